"""Other versions of a real GGUF file: the same model in another quantization, or with layers cut off.

Reads and writes GGUF 3 after the format's description. Q4_1 blocks (32 weights: scale and minimum as F16, 16 bytes of
nibbles) become Q8_0 (32 weights: scale as F16, 32 signed bytes). Everything that is not named stays byte for byte.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Q4_1, Q8_0 = 3, 8
Q4_1_BYTES, Q8_0_BYTES, BLOCK = 20, 34, 32
ALIGNMENT = 32
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class File:
    """`pairs` are key, and type with value as raw bytes."""

    pairs: tuple[tuple[str, bytes], ...]
    tensors: tuple[Tensor, ...]


def to_q8_0(source: Path, target: Path) -> Path:
    """Every Q4_1 tensor as Q8_0, and the label with it."""
    file = _read(source)
    tensors = tuple(
        replace(tensor, kind=Q8_0, data=_q8_0(_from_q4_1(tensor.data))) if tensor.kind == Q4_1 else tensor
        for tensor in file.tensors
    )
    return _write(target, File(_with_number(file.pairs, "general.file_type", 7), tensors))


def relabelled(source: Path, target: Path) -> Path:
    """The same tensors under a label that is not theirs."""
    file = _read(source)
    return _write(target, File(_with_number(file.pairs, "general.file_type", 7), file.tensors))


def without_layers(source: Path, target: Path, *, keep: int) -> Path:
    """Only the first `keep` layers."""
    file = _read(source)
    tensors = tuple(tensor for tensor in file.tensors if _layer(tensor.name) < keep)
    return _write(target, File(_with_number(file.pairs, "llama.block_count", keep), tensors))


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else -1


def _from_q4_1(data: bytes) -> NDArray[np.float32]:
    """Shape (blocks, 32): the low nibbles of a block are its first half, the high ones its second."""
    blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, Q4_1_BYTES)
    scale, low = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    packed = blocks[:, 4:]
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32) * scale + low


def _q8_0(weights: NDArray[np.float32]) -> bytes:
    scale = np.abs(weights).max(axis=1, keepdims=True) / 127.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    packed = np.rint(weights * inverse).astype(np.int8)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), packed.view(np.uint8)], axis=1).tobytes()


def _with_number(pairs: tuple[tuple[str, bytes], ...], key: str, value: int) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, struct.pack("<II", 4, value) if name == key else raw) for name, raw in pairs)


# ---------------------------------------------------------------- the format


def _read(path: Path) -> File:
    data = path.read_bytes()
    at = 8
    number: Callable[[str, int], int] = lambda form, where: struct.unpack_from(form, data, where)[0]  # noqa: E731

    def text(where: int) -> tuple[str, int]:
        length = number("<Q", where)
        return data[where + 8 : where + 8 + length].decode(), where + 8 + length

    def after(kind: int, where: int) -> int:
        if kind in _SIZES:
            return where + _SIZES[kind]
        if kind == 8:
            return where + 8 + number("<Q", where)
        inner, count = number("<I", where), number("<Q", where + 4)
        where += 12
        if inner in _SIZES:
            return where + count * _SIZES[inner]
        for _ in range(count):
            where = after(inner, where)
        return where

    count, pair_count = number("<Q", at), number("<Q", at + 8)
    at += 16
    pairs: list[tuple[str, bytes]] = []
    for _ in range(pair_count):
        key, at = text(at)
        end = after(number("<I", at), at + 4)
        pairs.append((key, data[at:end]))
        at = end
    heads: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(count):
        name, at = text(at)
        dimensions = number("<I", at)
        shape = struct.unpack_from(f"<{dimensions}Q", data, at + 4)
        at += 4 + 8 * dimensions
        heads.append((name, shape, number("<I", at), number("<Q", at + 4)))
        at += 12
    start = -(-at // ALIGNMENT) * ALIGNMENT
    ends = sorted([offset for *_, offset in heads] + [len(data) - start])
    tensors = [
        Tensor(name, shape, kind, data[start + offset : start + ends[ends.index(offset) + 1]])
        for name, shape, kind, offset in heads
    ]
    return File(tuple(pairs), tuple(_trimmed(tensor) for tensor in tensors))


def _trimmed(tensor: Tensor) -> Tensor:
    """Without the padding behind it, where the type's size is known."""
    elements = int(np.prod(tensor.shape))
    sizes = {
        0: elements * 4,
        1: elements * 2,
        Q4_1: elements // BLOCK * Q4_1_BYTES,
        Q8_0: elements // BLOCK * Q8_0_BYTES,
    }
    return replace(tensor, data=tensor.data[: sizes.get(tensor.kind, len(tensor.data))])


def _write(path: Path, file: File) -> Path:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    head = [b"GGUF", struct.pack("<IQQ", 3, len(file.tensors), len(file.pairs))]
    head += [text(key) + raw for key, raw in file.pairs]
    offset = 0
    for tensor in file.tensors:
        shape = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        head.append(text(tensor.name) + shape + struct.pack("<IQ", tensor.kind, offset))
        offset += -(-len(tensor.data) // ALIGNMENT) * ALIGNMENT
    with path.open("wb") as target:
        target.write(b"".join(head))
        for tensor in file.tensors:
            target.write(bytes(-target.tell() % ALIGNMENT))
            target.write(tensor.data)
        target.write(bytes(-target.tell() % ALIGNMENT))
    return path
