"""The head of a GGUF file: what its metadata says of the quantization, and what its tensors really are.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian). Only the head is
read; arrays (vocabularies) are passed over. The label (`general.file_type`) is checked against the type that most of
the elements have, because a label can be edited without touching a tensor.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servegate_action.identity.formats import normal

TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 6: "q5_0", 7: "q5_1", 8: "q8_0", 9: "q8_1", 10: "q2_k", 11: "q3_k",
    12: "q4_k", 13: "q5_k", 14: "q6_k", 15: "q8_k", 16: "iq2_xxs", 17: "iq2_xs", 18: "iq3_xxs", 19: "iq1_s",
    20: "iq4_nl", 21: "iq3_s", 22: "iq2_s", 23: "iq4_xs", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64",
    29: "iq1_m", 30: "bf16", 34: "tq1_0", 35: "tq2_0", 39: "mxfp4",
}  # fmt: skip
"""ggml_type of a tensor (ggml.h)."""
FILE_TYPES = {
    0: "f32", 1: "f16", 2: "q4_0", 3: "q4_1", 7: "q8_0", 8: "q5_0", 9: "q5_1", 10: "q2_k", 11: "q3_k_s", 12: "q3_k_m",
    13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m", 16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 19: "iq2_xxs", 20: "iq2_xs",
    21: "q2_k_s", 22: "iq3_xs", 23: "iq3_xxs", 24: "iq1_s", 25: "iq4_nl", 26: "iq3_s", 27: "iq3_m", 28: "iq2_s",
    29: "iq2_m", 30: "iq4_xs", 31: "iq1_m", 32: "bf16", 36: "tq1_0", 37: "tq2_0", 38: "mxfp4_moe",
}  # fmt: skip
"""llama_ftype of a file (llama.h)."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_FORMATS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9

Scalar = int | float | bool | str


class NotGguf(ValueError):
    """The file is no GGUF file of a version that is understood, or it is cut short."""


@dataclass(frozen=True, slots=True)
class GgufHead:
    """Scalars of the metadata, and the number of elements of each tensor type."""

    metadata: Mapping[str, Scalar]
    elements: Mapping[str, int]

    @property
    def dominant(self) -> str:
        """The type that most elements have."""
        return max(self.elements, key=lambda name: self.elements[name]) if self.elements else "unknown"

    @property
    def label(self) -> str | None:
        """What `general.file_type` claims."""
        number = self.metadata.get("general.file_type")
        return FILE_TYPES.get(number) if isinstance(number, int) else None

    @property
    def weights(self) -> str:
        """The quantization: the label where the tensors bear it out, else the tensors' own type."""
        label, dominant = self.label, self.dominant
        return normal(label if label is not None and _borne_out(label, self.elements) else dominant)

    @property
    def contradiction(self) -> str | None:
        """Why the label is not believed."""
        if self.label is None or _borne_out(self.label, self.elements):
            return None
        return f"the file calls itself {self.label}, but most of its weights are {self.dominant}"


def _borne_out(label: str, elements: Mapping[str, int]) -> bool:
    """A mixed quantization (`q4_k_m`) is named after a type that some tensors have; a plain one after the commonest."""
    if label in TYPES.values():
        return max(elements, key=lambda name: elements[name], default=None) == label
    base = "_".join(label.split("_")[:2])
    return base in elements or base not in TYPES.values()


def read_head(path: Path) -> GgufHead:
    """Parse the head of a file. Raises NotGguf, or OSError when it cannot be read."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            return _parse(data)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise NotGguf(f"{path.name}: the head is cut short or damaged ({error})") from error


class _Cursor:
    """A place in the file that moves on as things are read."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def number(self, kind: int) -> Scalar:
        value: Scalar = struct.unpack_from(_FORMATS[kind], self.data, self.at)[0]
        self.at += _SIZES[kind]
        return value

    def size(self) -> int:
        value: int = struct.unpack_from("<Q", self.data, self.at)[0]
        self.at += 8
        if value > len(self.data):
            raise IndexError(f"a length of {value} in a file of {len(self.data)} bytes")
        return value

    def text(self) -> str:
        length = self.size()
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind: int) -> Scalar | None:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            self.skip_array()
            return None
        if kind not in _FORMATS:
            raise IndexError(f"unknown value type {kind}")
        return self.number(kind)

    def skip_array(self) -> None:
        kind = int(self.number(4))
        count = self.size()
        if kind in _SIZES:
            self.at += count * _SIZES[kind]
            return
        for _ in range(count):
            if kind == _STRING:
                self.at += struct.unpack_from("<Q", self.data, self.at)[0] + 8
            else:
                self.value(kind)


def _parse(data: mmap.mmap) -> GgufHead:
    if data[:4] != b"GGUF":
        raise NotGguf("the file does not begin with GGUF")
    cursor = _Cursor(data)
    cursor.at = 4
    version = int(cursor.number(4))
    if version not in (2, 3):
        raise NotGguf(f"GGUF version {version} is not understood (2 and 3 are)")
    tensors, pairs = cursor.size(), cursor.size()
    metadata: dict[str, Scalar] = {}
    for _ in range(pairs):
        key = cursor.text()
        value = cursor.value(int(cursor.number(4)))
        if value is not None:
            metadata[key] = value
    elements: Counter[str] = Counter()
    for _ in range(tensors):
        cursor.text()
        shape = [int(cursor.number(10)) for _ in range(int(cursor.number(4)))]
        kind = int(cursor.number(4))
        elements[TYPES.get(kind, f"type{kind}")] += math.prod(shape)
        cursor.at += 8
    return GgufHead(metadata, dict(elements))
