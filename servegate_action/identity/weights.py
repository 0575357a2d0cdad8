"""Which files make up a model, and one digest over them.

Weights, configuration, tokenizer and chat template: everything that changes what a server answers. The digest is the
SHA-256 over the sorted lines `path<TAB>size<TAB>sha256` (path relative to the model's folder; a single file goes by its
name), so that a copy in another folder has the same digest. It refuses to follow anything outside of the folder but
links to files (the hub's cache is made of those).
"""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from servegate_action.errors import CannotMeasure
from servegate_action.identity.hashing import FileHash, Progress, hash_files

PATTERNS = (
    "*.safetensors",
    "*.gguf",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.engine",
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "chat_template*",
)
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


@dataclass(frozen=True, slots=True)
class ModelHash:
    """The digest of a model and the files behind it."""

    digest: str
    files: tuple[FileHash, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def model_files(root: Path) -> tuple[Path, ...]:
    """The files of a model: the file itself (all parts of a split GGUF), or what of the folder matters, sorted by relative path."""
    if root.is_file():
        shards = _SHARD.fullmatch(root.name)
        return (
            tuple(sorted(root.parent.glob(f"{glob.escape(shards[1])}-?????-of-{shards[2]}.gguf")))
            if shards
            else (root,)
        )
    found = (path for path in root.rglob("*") if matters(path.relative_to(root).as_posix()) and path.is_file())
    return tuple(sorted(found, key=lambda path: path.relative_to(root).as_posix()))


def matters(name: str) -> bool:
    """Whether a file belongs to the model. Hidden folders (`.cache`, `.git`) do not."""
    parts = name.split("/")
    return not any(part.startswith(".") for part in parts) and any(
        fnmatch.fnmatchcase(parts[-1], pattern) for pattern in PATTERNS
    )


def hash_model(root: Path, *, cache_dir: Path | None, progress: Progress = lambda _: None) -> ModelHash:
    """Hash a model on this machine."""
    files = model_files(root)
    if not files:
        raise CannotMeasure(
            f"there is no model at {root}",
            why="the path does not exist here"
            if not root.exists()
            else f"no file of it is one of {', '.join(PATTERNS)}",
            next_step="correct model.path, or give model.revision (a 40-hex commit) instead",
        )
    hashes = hash_files(root, files, cache_dir=cache_dir, progress=progress)
    return ModelHash(digest(hashes), hashes)


def digest(files: Iterable[FileHash]) -> str:
    """SHA-256 over the sorted lines `path<TAB>size<TAB>sha256`."""
    lines = sorted(f"{file.name}\t{file.size}\t{file.sha256}" for file in files)
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
