"""The format of token shards. What one process encoded of a source gives, for each split, three
objects (a large one several times three):

`tokens/<id>-<source>-<split>-<n>.tok`: nothing but tokens, little-endian uint16 (up to 65,536
items) or uint32; every document is followed by one end-of-text token. The id is that of what the
source was encoded from and with, so that sources may come and go beside it.

`….blocks`: one record of 16 bytes (`BLOCK_RECORD`) for each block of 1 MiB (fact `block_bytes`) of
the .tok object, the last one shorter: the CRC32C of the block, the token before it (end of text
before the first), and the number of documents that end before it. So one block can be read,
verified, and cut into samples with its documents known, without reading any other.

`….docs.parquet`: one row a document, in order: `document` (its id), `url`, `language`, `shard` (the
corpus object or input file), `start` and `end` (its tokens in the .tok object, end of text
included).

The manifest lists the three of a shard one after another, source by source and split by split,
shards in an order that is a hash of their number, so that what lay together in the crawl is spread;
and it vouches for each with a CRC32C of the whole, so a block is as trustworthy as the manifest.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eyas.store import Manifest, ObjectRef, StoreError

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_RECORD",
    "DOCUMENTS_SCHEMA",
    "SPLITS",
    "TokenObject",
    "block_tokens",
    "by_shard",
    "object_stem",
    "token_dtype",
    "token_objects",
]

BLOCK_BYTES = 2**20
BLOCK_RECORD = np.dtype([("crc32c", "<u4"), ("previous", "<u4"), ("documents", "<u8")])
SPLITS = ("train", "validation")
DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("document", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),
        pa.field("language", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("shard", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
    ]
)
_ENDINGS = (".tok", ".blocks", ".docs.parquet")
_KEY = re.compile(
    rf"tokens/[0-9a-f]{{12}}-(.+)-({'|'.join(SPLITS)})-\d{{5,}}(?:-\d+)?(?:{'|'.join(_ENDINGS)})"
)


@dataclass(frozen=True)
class TokenObject:
    """One shard of one split. `tokens.rows` counts tokens, `documents.rows` documents."""

    tokens: ObjectRef
    blocks: ObjectRef
    documents: ObjectRef


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """Little-endian uint16 if every id fits, else uint32."""
    return np.dtype("<u2") if vocab_size <= 2**16 else np.dtype("<u4")


def object_stem(identity: str, source: str, split: str, number: int, part: int = 0) -> str:
    """Key of a shard's objects without their endings; parts after the first are numbered."""
    tail = f"-{part}" if part else ""
    return f"tokens/{identity[:12]}-{source}-{split}-{number:05d}{tail}"


def by_shard(references: Iterable[ObjectRef]) -> dict[tuple[str, str], list[ObjectRef]]:
    """Objects of token shards by source and split, each in the order given; others are left out."""
    found: dict[tuple[str, str], list[ObjectRef]] = defaultdict(list)
    for reference in references:
        if match := _KEY.fullmatch(reference.key):
            found[match[1], match[2]].append(reference)
    return found


def token_objects(manifest: Manifest, source: str, split: str) -> tuple[TokenObject, ...]:
    """The shards of a source's split in manifest order. Raises StoreError if one is incomplete."""
    middle, wanted = f"-{source}-{split}-", (source, split)
    references = by_shard(o for o in manifest.objects if middle in o.key).get(wanted, [])
    found = []
    for i in range(0, len(references), len(_ENDINGS)):
        three = references[i : i + len(_ENDINGS)]
        stem = three[0].key.removesuffix(_ENDINGS[0])
        if [o.key for o in three] != [stem + ending for ending in _ENDINGS]:
            raise StoreError(
                f"version {manifest.version} of the tokens names {three[0].key} without the "
                ".blocks and .docs.parquet beside it; run `eyas tokenize` again"
            )
        found.append(TokenObject(*three))
    return tuple(found)


def block_tokens(dtype: npt.DTypeLike, block_bytes: int) -> int:
    """Tokens in a whole block."""
    return block_bytes // np.dtype(dtype).itemsize
