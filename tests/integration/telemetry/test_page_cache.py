"""Weight files out of the page cache: dropped where the kernel does it, and never called dropped where it does not."""

from __future__ import annotations

import mmap
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from servegate_action.telemetry.page_cache import drop_page_cache, resident_bytes


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder on a disk: a tmpfs has nothing but its cache."""
    mounts = [(Path(part.mountpoint), part.fstype) for part in psutil.disk_partitions(all=True)]
    around = [(len(mount.parts), kind) for mount, kind in mounts if tmp_path.is_relative_to(mount)]
    if max(around, default=(0, ""))[1] in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is in memory, where nothing can be dropped")
    return tmp_path


SIZE = 8 * 2**20


def write(path: Path, size: int = SIZE) -> Path:
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def test_written_weights_are_resident_until_they_are_dropped(disk: Path) -> None:
    path = write(disk / "model.safetensors")
    assert resident_bytes(path) == SIZE
    found = drop_page_cache([path])
    assert found.condition == "dropped", found.reason
    assert (found.files, found.bytes, found.resident_before) == (1, SIZE, SIZE)
    assert resident_bytes(path) == found.resident_after
    path.read_bytes()
    assert resident_bytes(path) == SIZE


def test_fincore_agrees(disk: Path) -> None:
    path = write(disk / "model.safetensors")
    told = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", str(path)], capture_output=True, text=True, check=True
    )
    assert int(told.stdout) == resident_bytes(path)


def test_a_folder_is_all_its_files_once_links_included(disk: Path) -> None:
    blobs, model = disk / "blobs", disk / "model"
    blobs.mkdir()
    model.mkdir()
    write(blobs / "abc")
    (model / "a.safetensors").symlink_to(blobs / "abc")
    (model / "again.safetensors").symlink_to(blobs / "abc")
    (model / "empty").touch()
    assert drop_page_cache([model]).files == 1


def test_pages_that_somebody_has_mapped_stay_and_it_says_so(disk: Path) -> None:
    path = write(disk / "model.safetensors")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[:: mmap.PAGESIZE]) > 0
        found = drop_page_cache([path])
    assert found.condition == "as found"
    assert "another process has them mapped" in found.reason


def test_nothing_to_drop_is_unknown(disk: Path) -> None:
    found = drop_page_cache([disk / "none"])
    assert (found.condition, found.files) == ("unknown", 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_cannot_be_opened_are_not_called_dropped(disk: Path) -> None:
    path = write(disk / "model.safetensors")
    path.chmod(0)
    found = drop_page_cache([path])
    assert found.condition != "dropped"
