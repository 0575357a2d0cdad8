"""Weights that only the stack's container can see: hashed by a sibling with the same volume, read-only.

The room that owns the container engine provides a `VolumeReader`; the code that runs inside is a string of ours that
needs nothing but Python 3.8. Its output is foreign data and is checked line by line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from servegate_action.errors import CannotMeasure
from servegate_action.identity.hashing import FileHash
from servegate_action.identity.weights import PATTERNS, ModelHash, digest

_SHA256 = re.compile(r"[0-9a-f]{64}")

READ = r"""
import concurrent.futures, fnmatch, hashlib, json, os, struct, sys
root, patterns = sys.argv[1], sys.argv[2:]
def belongs(name):
    parts = name.split("/")
    return not any(p.startswith(".") for p in parts) and any(fnmatch.fnmatchcase(parts[-1], p) for p in patterns)
def files():
    if os.path.isfile(root):
        return [(os.path.basename(root), root)]
    found = []
    for folder, _, names in os.walk(root, followlinks=False):
        for name in names:
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, root).replace(os.sep, "/")
            if belongs(relative) and os.path.isfile(path):
                found.append((relative, path))
    return sorted(found)
def sha256(item):
    name, path = item
    digest, buffer = hashlib.sha256(), bytearray(8 << 20)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while True:
            size = file.readinto(buffer)
            if not size:
                break
            digest.update(view[:size])
    return {"name": name, "size": os.path.getsize(path), "sha256": digest.hexdigest()}
def header(path):
    sizes = {}
    with open(path, "rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if 2 <= length <= 100 << 20:
            for tensor in json.loads(file.read(length)).values():
                if isinstance(tensor, dict) and "dtype" in tensor and "data_offsets" in tensor:
                    a, b = tensor["data_offsets"]
                    sizes[tensor["dtype"]] = sizes.get(tensor["dtype"], 0) + b - a
    return sizes
items = files()
with concurrent.futures.ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
    for line in pool.map(sha256, sorted(items, key=lambda item: -os.path.getsize(item[1]))):
        print(json.dumps({"file": line}))
stored = {}
for name, path in items:
    if name.endswith(".safetensors"):
        for dtype, size in header(path).items():
            stored[dtype] = stored.get(dtype, 0) + size
    if name in ("config.json", "hf_quant_config.json") and os.path.getsize(path) < 1 << 20:
        with open(path, encoding="utf-8") as file:
            print(json.dumps({"json": {"name": name, "value": json.load(file)}}))
print(json.dumps({"stored": stored}))
"""


class VolumeReader(Protocol):
    """Runs Python in a container with the stack's volumes, read-only, and gives back its standard output."""

    def run_python(self, code: str, args: Sequence[str]) -> str:
        """`python3 -c code args…`. Raises CannotMeasure when it fails."""


@dataclass(frozen=True, slots=True)
class RemoteModel:
    """What a sibling read: the digest, the configuration files, bytes per dtype of the safetensors files."""

    model: ModelHash
    configs: Mapping[str, Mapping[str, object]]
    stored: Mapping[str, int]


def read_remote(volume: VolumeReader, path: str) -> RemoteModel:
    """Hash and read a model at a path inside the container."""
    output = volume.run_python(READ, [path, *PATTERNS])
    files: list[FileHash] = []
    configs: dict[str, Mapping[str, object]] = {}
    stored: dict[str, int] = {}
    for line in filter(None, output.splitlines()):
        record = _record(line)
        if "file" in record:
            files.append(_file(record["file"]))
        elif isinstance(record.get("json"), dict):
            configs |= _config(record["json"])
        elif isinstance(record.get("stored"), dict):
            stored = {str(key): size for key, size in _items(record["stored"]) if isinstance(size, int)}
    if not files:
        raise CannotMeasure(f"there is no model at {path} inside of the stack's container")
    ordered = tuple(sorted(files, key=lambda file: file.name))
    return RemoteModel(ModelHash(digest(ordered), ordered), configs, stored)


def _record(line: str) -> Mapping[str, object]:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise CannotMeasure(
            f"the container that reads the weights answered with something else: {line[:200]}"
        ) from error
    return value if isinstance(value, dict) else {}


def _items(value: object) -> list[tuple[object, object]]:
    return list(value.items()) if isinstance(value, dict) else []


def _file(value: object) -> FileHash:
    found = dict(_items(value))
    name, size, sha256 = found.get("name"), found.get("size"), found.get("sha256")
    if isinstance(name, str) and isinstance(size, int) and isinstance(sha256, str) and _SHA256.fullmatch(sha256):
        return FileHash(name, size, sha256)
    raise CannotMeasure(f"the container that reads the weights gave no usable hash: {found}")


def _config(value: object) -> dict[str, Mapping[str, object]]:
    found = dict(_items(value))
    name, content = found.get("name"), found.get("value")
    return {name: content} if isinstance(name, str) and isinstance(content, dict) else {}
