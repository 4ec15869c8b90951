"""Logs of the standard library: text for people, one JSON object a line when asked."""

from __future__ import annotations

import json
import logging
import sys

__all__ = ["set_up"]


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(form: str, debug: bool = False) -> None:
    """Our loggers at INFO (DEBUG when asked), everybody else's at WARNING, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname).1s %(name)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(_Json() if form == "json" else text)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("eyas").setLevel(logging.DEBUG if debug else logging.INFO)
