"""Serving: OpenAI-compatible completions over HTTP, several models behind one address."""

from __future__ import annotations

from .app import build_app
from .completions import Limits
from .engine import Served
from .errors import ApiError
from .server import RunningServer, ServeError, serve, start_server

__all__ = [
    "ApiError",
    "Limits",
    "RunningServer",
    "ServeError",
    "Served",
    "build_app",
    "serve",
    "start_server",
]
