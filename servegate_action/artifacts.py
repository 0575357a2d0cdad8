"""Files that outlive a container: readable for everyone, owned like the folder they were made in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from servegate_action.errors import StorageFailed


def open_to_all(root: Path, *, like: Path) -> None:
    """Make a tree world-readable, and its owner the owner of `like` where this user may do that. Links are left alone."""
    owner = like.stat()
    try:
        for path in _tree(root):
            path.chmod(0o755 if path.is_dir() else 0o644)
            if os.geteuid() == 0:
                os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    except OSError as error:
        raise StorageFailed(f"the evidence in {root} cannot be handed over: {error}") from error


def _tree(root: Path) -> Iterator[Path]:
    yield root
    for path in root.rglob("*"):
        if not path.is_symlink():
            yield path
