"""Small GGUF files with the metadata and tensor types that a test wants, written by hand after the format's description."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

MetaValue = int | str | Sequence[str]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, value: MetaValue) -> bytes:
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, int):
        return text(key) + struct.pack("<II", 4, value)
    return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(text(item) for item in value)


def tensor(name: str, shape: Sequence[int], kind: int) -> bytes:
    return (
        text(name)
        + struct.pack("<I", len(shape))
        + struct.pack(f"<{len(shape)}Q", *shape)
        + struct.pack("<IQ", kind, 0)
    )


def write(
    path: Path,
    *,
    metadata: Mapping[str, MetaValue],
    tensors: Sequence[tuple[Sequence[int], int]],
    version: int = 3,
) -> Path:
    """A file with a head only; `tensors` are (shape, ggml type)."""
    path.write_bytes(
        b"GGUF"
        + struct.pack("<IQQ", version, len(tensors), len(metadata))
        + b"".join(pair(key, value) for key, value in metadata.items())
        + b"".join(tensor(f"blk.{index}.weight", shape, kind) for index, (shape, kind) in enumerate(tensors))
    )
    return path
