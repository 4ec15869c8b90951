"""The store: keys to bytes on `s3://` or a folder; manifests, commits, streams."""

from __future__ import annotations

from .base import Corrupt, NotFound, ObjectInfo, Store, StoreError
from .doctor import Finding, doctor
from .manifest import (
    Manifest,
    ObjectRef,
    commit_manifest,
    manifest_versions,
    put_object,
    put_object_chunks,
    read_manifest,
    read_object,
)
from .reader import ObjectReader
from .sealed import crc32c, dump_json, identity, now, seal, unseal
from .status import RoomStatus, status
from .streams import put_piece, read_pieces
from .verify import VerifyReport, verify

__all__ = [
    "Corrupt",
    "Finding",
    "Manifest",
    "NotFound",
    "ObjectInfo",
    "ObjectReader",
    "ObjectRef",
    "RoomStatus",
    "Store",
    "StoreError",
    "VerifyReport",
    "commit_manifest",
    "crc32c",
    "doctor",
    "dump_json",
    "identity",
    "manifest_versions",
    "now",
    "open_store",
    "put_object",
    "put_object_chunks",
    "put_piece",
    "read_manifest",
    "read_object",
    "read_pieces",
    "seal",
    "status",
    "unseal",
    "verify",
]


def open_store(url: str) -> Store:
    """The store at `s3://bucket[/prefix]`, or the folder at any other path."""
    if url.startswith("s3://"):
        from .s3 import S3Store

        return S3Store(url)
    if "://" in url:
        raise StoreError(f'store "{url}": write s3://bucket/prefix or a folder')
    from .folder import FolderStore

    return FolderStore(url)
