"""How fast a model is hashed, against `sha256sum` on the same files in the same run.

    python -m benchmarks.model_hash [--gigabytes 2] [--files 4] [--folder DIR]

Writes files of random bytes, then hashes them in turns (sha256sum, servegate, sha256sum, …), each time from a warm page
cache, so that both see the same data and the disk decides nothing; then once from the cache of hashes; then a byte is
flipped in a file of 1 GB with its mtime put back. Prints GB/s, the ratio, and milliseconds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from servegate_action.identity import hash_model

CHUNK = 64 * 2**20
TURNS = 3


def main() -> None:
    """One comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--folder", default=None, help="where to write; default: the system's temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="servegate-hash-") as name:
        folder = Path(name) / "model"
        folder.mkdir()
        size = round(options.gigabytes * 1e9 / options.files)
        files = [write(folder / f"model-{index:05d}.safetensors", size) for index in range(options.files)]
        compare(folder, files, size * len(files))
        cached(folder, Path(name) / "cache")
        for path in files:
            path.unlink()
        flipped(Path(name))


def write(path: Path, size: int) -> Path:
    """Random bytes, on the disk and in the page cache."""
    with path.open("wb") as file:
        left = size
        while left > 0:
            left -= file.write(os.urandom(min(CHUNK, left)))
        os.fsync(file.fileno())
    return path


def compare(folder: Path, files: list[Path], size: int) -> None:
    """In turns, the median of three each; per CPU-second as well, which other load on the machine does not change."""
    taken: dict[str, list[tuple[float, float]]] = {"sha256sum": [], "servegate": []}
    for _ in range(TURNS):
        before = clocks()
        told = subprocess.run(["sha256sum", *map(str, files)], check=True, capture_output=True, text=True).stdout
        between = clocks()
        found = hash_model(folder, cache_dir=None)
        after = clocks()
        taken["sha256sum"].append((between[0] - before[0], between[1] - before[1]))
        taken["servegate"].append((after[0] - between[0], after[1] - between[1]))
        assert [file.sha256 for file in found.files] == [line.split()[0] for line in told.splitlines()]
    rates = {
        name: [size / statistics.median(turn) / 1e9 for turn in zip(*turns, strict=True)]
        for name, turns in taken.items()
    }
    for name, (wall, cpu) in rates.items():
        print(f"{name:10} {wall:6.2f} GB/s   {cpu:5.2f} GB per CPU-second")
    ratios = [mine / theirs for mine, theirs in zip(rates["servegate"], rates["sha256sum"], strict=True)]
    print(
        f"ratio      {ratios[0]:6.2f}        {ratios[1]:5.2f}   ({len(files)} files, {size / 1e9:.1f} GB, {os.cpu_count()} cores)"
    )


def clocks() -> tuple[float, float]:
    """(wall, CPU of this process and of its ended children) in seconds."""
    times = os.times()
    return time.monotonic(), times.user + times.system + times.children_user + times.children_system


def cached(folder: Path, cache: Path) -> None:
    """The second call."""
    first = hash_model(folder, cache_dir=cache)
    started = time.monotonic()
    second = hash_model(folder, cache_dir=cache)
    print(f"second call from the cache: {(time.monotonic() - started) * 1e3:.1f} ms")
    assert first == second


def flipped(folder: Path) -> None:
    """One byte in a file of 1 GB, with size and mtime as before: the inode's ctime gives it away."""
    path = write(folder / "one.safetensors", 10**9)
    before, digest = path.stat(), hash_model(path, cache_dir=folder).digest
    with path.open("r+b") as file:
        file.seek(500_000_000)
        byte = file.read(1)[0]
        file.seek(500_000_000)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    found = hash_model(path, cache_dir=folder).digest != digest
    print(f"one flipped byte in 1 GB, size and mtime as before: {'found' if found else 'NOT FOUND'}")


if __name__ == "__main__":
    main()
