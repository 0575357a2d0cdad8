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
    """In turns, the median of three each."""
    seconds: dict[str, list[float]] = {"sha256sum": [], "servegate": []}
    for _ in range(TURNS):
        started = time.monotonic()
        told = subprocess.run(["sha256sum", *map(str, files)], check=True, capture_output=True, text=True).stdout
        seconds["sha256sum"].append(time.monotonic() - started)
        started = time.monotonic()
        found = hash_model(folder, cache_dir=None)
        seconds["servegate"].append(time.monotonic() - started)
        assert [file.sha256 for file in found.files] == [line.split()[0] for line in told.splitlines()]
    rates = {name: size / statistics.median(taken) / 1e9 for name, taken in seconds.items()}
    for name, rate in rates.items():
        print(
            f"{name:10} {rate:6.2f} GB/s   ({', '.join(f'{taken:.2f}' for taken in seconds[name])} s for {size / 1e9:.1f} GB)"
        )
    print(f"ratio      {rates['servegate'] / rates['sha256sum']:6.2f}   ({len(files)} files, {os.cpu_count()} cores)")


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
