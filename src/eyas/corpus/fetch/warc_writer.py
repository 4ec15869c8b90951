"""Pages as a crawler would have left them: WARC/1.1, each record a gzip member of its own.

The bytes depend on the page alone: dates come from the archive that the page was in, record ids are
derived from URL and content. Format: ISO 28500:2017 (WARC 1.1), written by warcio.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import uuid
from collections.abc import Mapping
from email.utils import formatdate

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

__all__ = ["warc_info", "warc_response"]

_LAST = int(datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC).timestamp())


def warc_info(name: str, modified: int, fields: Mapping[str, str]) -> bytes:
    """The record that opens a file; `modified` is seconds since 1970."""
    buffer, writer = _writer()
    record = writer.create_warcinfo_record(name, dict(fields))
    text = "".join(f"{key}: {value}\n" for key, value in fields.items())
    record.rec_headers.replace_header("WARC-Date", _date(modified))
    record.rec_headers.replace_header("WARC-Record-ID", _record_id(name, text.encode()))
    writer.write_record(record)
    return buffer.getvalue()


def warc_response(url: str, data: bytes, modified: int, content_type: str) -> bytes:
    """The record of one page; `modified` is seconds since 1970."""
    buffer, writer = _writer()
    headers = [
        ("Content-Type", content_type),
        ("Content-Length", str(len(data))),
        ("Last-Modified", formatdate(_clamp(modified), usegmt=True)),
    ]
    record = writer.create_warc_record(
        url,
        "response",
        payload=io.BytesIO(data),
        http_headers=StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1"),
        warc_headers_dict={"WARC-Date": _date(modified), "WARC-Record-ID": _record_id(url, data)},
    )
    writer.write_record(record)
    return buffer.getvalue()


def _writer() -> tuple[io.BytesIO, WARCWriter]:
    buffer = io.BytesIO()
    return buffer, WARCWriter(buffer, gzip=True, warc_version="WARC/1.1")


def _record_id(url: str, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"<urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{url}#{digest}')}>"


def _date(modified: int) -> str:
    moment = datetime.datetime.fromtimestamp(_clamp(modified), datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _clamp(modified: int) -> int:
    return min(max(modified, 0), _LAST)
