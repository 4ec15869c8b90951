"""Removals: documents taken out of a corpus by URL or domain, with a record of who asked and why.

A record is `corpus/removals/<n>.json`, sealed, taken with If-None-Match and never changed. All of
them together are part of the corpus's identity, so a later run of the same recipe leaves the same
documents out. What the stages read is one object of all URLs and domains, named by its content.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from eyas.recipe import UsageError
from eyas.store import (
    ObjectRef,
    Store,
    dump_json,
    identity,
    now,
    put_object,
    read_object,
    seal,
    unseal,
)

from .steps.urls import normal_host

__all__ = ["Removals", "load_removals", "put_removals", "read_removals", "record_removal"]

_FOLDER = "corpus/removals/"
_NUMBER = re.compile(r"corpus/removals/(\d{6})\.json")
_HTTP = re.compile(r"https?://", re.IGNORECASE)
_HOST_END = re.compile(r"[/?]")
_PORT = re.compile(r":(?!(?:80|443)?$)\d+$")
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")
_UNRESERVED = frozenset(string.ascii_letters + string.digits + "-._~")


@dataclass(frozen=True)
class Removals:
    """URLs and domains to leave out, each with the number of the first record that names it."""

    urls: Mapping[str, int] = field(default_factory=dict)
    domains: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.urls or self.domains)

    def number(self, url: str) -> int:
        """The record that takes out this URL, 0 for none. A domain takes its subdomains along."""
        found = self.urls.get(_url_key(url), 0)
        host = normal_host(url) if self.domains and not found else ""
        while host and not found:
            found = self.domains.get(host, 0)
            host = host.partition(".")[2]
        return found


def record_removal(store: Store, urls: Iterable[str], domains: Iterable[str], why: str) -> int:
    """Write the next record and return its number. Raises UsageError if it names nothing, no
    reason, or something that is no URL or no domain."""
    body = {
        "urls": sorted({u.strip() for u in urls} - {""}),
        "domains": sorted({_domain(d) for d in domains}),
        "why": why.strip(),
        "created": now(),
    }
    if not body["urls"] and not body["domains"]:
        raise UsageError("nothing to remove: name a URL or a domain")
    if nameless := [u for u in body["urls"] if not _url_key(u)]:
        raise UsageError(f'"{nameless[0]}" is no URL; write one such as https://example.org/page')
    if not body["why"]:
        raise UsageError("a removal needs its reason: it is kept with the record for good")
    number = max(_numbers(store), default=0) + 1
    while not store.put_if_absent(f"{_FOLDER}{number:06d}.json", seal(body | {"number": number})):
        number += 1
    return number


def read_removals(store: Store) -> Removals:
    """All records together. Raises Corrupt for a damaged one."""
    urls: dict[str, int] = {}
    domains: dict[str, int] = {}
    for number in _numbers(store):
        key = f"{_FOLDER}{number:06d}.json"
        body = unseal(store, key, store.get(key))
        for url in body["urls"]:
            urls.setdefault(_url_key(url), number)
        for domain in body["domains"]:
            domains.setdefault(domain, number)
    return Removals(urls, domains)


def put_removals(store: Store, removals: Removals) -> ObjectRef | None:
    """What the stages read, as an object named by its content; None if nothing is removed."""
    if not removals:
        return None
    body = {"urls": dict(removals.urls), "domains": dict(removals.domains)}
    return put_object(store, f"corpus/lists/removals-{identity(body)[:32]}.json", dump_json(body))


def load_removals(store: Store, ref: ObjectRef) -> Removals:
    """The inverse. Raises Corrupt."""
    return Removals(**json.loads(read_object(store, ref)))


def _numbers(store: Store) -> list[int]:
    found = (_NUMBER.fullmatch(o.key) for o in store.list(_FOLDER))
    return sorted(int(match[1]) for match in found if match)


def _url_key(url: str) -> str:
    """What is compared: an http URL without scheme, user, usual port, fragment and closing slash,
    its host as DNS compares it and the rest as a crawler writes it: /مصر is /%D9%85%D8%B5%D8%B1.
    Any other name as it is."""
    url = url.strip()
    if not _HTTP.match(url):
        return url
    rest = url.partition("://")[2].partition("#")[0]
    cut = _HOST_END.search(rest)
    written, path = (rest[: cut.start()], rest[cut.start() :]) if cut else (rest, "")
    port = _PORT.search(written)
    host = (normal_host(url) or written.lower()) + (port[0] if port else "")
    if not path.isascii() or "%" in path:
        path = _ESCAPE.sub(_usual, quote(path, safe=string.punctuation, errors="surrogatepass"))
    return (host + path).rstrip("/")


def _usual(escape: re.Match[str]) -> str:
    """RFC 3986, 6.2.2: upper case, and none where none is needed."""
    character = chr(int(escape[0][1:], 16))
    return character if character in _UNRESERVED else escape[0].upper()


def _domain(text: str) -> str:
    """As DNS compares it. Whoever names a page, or a whole top-level domain, meant something else:
    nothing is taken out by mistake."""
    text = text.strip()
    written = text.rpartition("://")[2]
    whole = written.startswith((".", "*."))
    host = normal_host(f"http://{written.removeprefix('*').removeprefix('.')}")
    if not re.fullmatch(r"[^\s/@:*]+", host):
        raise UsageError(f'"{text}" is no domain; write one such as example.org')
    if re.search(r"[/?#].", written):
        raise UsageError(f'"{text}" is a page and no domain; name it as a URL, with https://')
    if "." not in host and not whole:
        raise UsageError(f'"{text}" has no dot; if all domains below it are meant, write .{host}')
    return host
