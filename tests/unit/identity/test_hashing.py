"""One digest per model: stable under copying, sensitive to a flipped byte, quick the second time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servegate_action.errors import CannotMeasure
from servegate_action.identity.hashing import CACHE_FILE, hash_files, sha256
from servegate_action.identity.volume import read_remote
from servegate_action.identity.weights import digest, hash_model, matters, model_files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "nested").mkdir(parents=True)
    (folder / ".cache").mkdir()
    for name, size in {
        "a.safetensors": 9_000_000,
        "b.safetensors": 1,
        "nested/c.safetensors": 3,
        "config.json": 2,
        "tokenizer.json": 5,
        "tokenizer_config.json": 5,
        "chat_template.jinja": 5,
        "generation_config.json": 4,
        "README.md": 7,
        ".cache/x.safetensors": 7,
    }.items():
        (folder / name).write_bytes(os.urandom(size))
    return folder


def test_the_digest_is_that_of_the_sorted_lines(model: Path) -> None:
    files = [
        path for path in model.rglob("*") if path.is_file() and "README" not in path.name and ".cache" not in str(path)
    ]
    lines = sorted(
        f"{path.relative_to(model)}\t{path.stat().st_size}\t{hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in files
    )
    found = hash_model(model, cache_dir=None)
    assert found.digest == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert (len(found.files), found.size) == (8, sum(path.stat().st_size for path in files))


def test_a_copy_elsewhere_has_the_same_digest(model: Path, tmp_path: Path) -> None:
    before = hash_model(model, cache_dir=None).digest
    assert hash_model(model.rename(tmp_path / "moved"), cache_dir=None).digest == before


def test_a_renamed_file_is_another_model(model: Path) -> None:
    before = hash_model(model, cache_dir=None).digest
    (model / "b.safetensors").rename(model / "d.safetensors")
    assert hash_model(model, cache_dir=None).digest != before


def test_a_single_file_goes_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"abc")
    found = hash_model(tmp_path / "m.gguf", cache_dir=None)
    assert found.digest == digest(found.files)
    assert [(file.name, file.size) for file in found.files] == [("m.gguf", 3)]


def test_a_split_file_is_all_its_parts(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00003.gguf", "other.gguf"):
        (tmp_path / name).write_bytes(name.encode())
    found = hash_model(tmp_path / "m-00001-of-00002.gguf", cache_dir=None)
    assert [file.name for file in found.files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"abc")
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a.safetensors").symlink_to(tmp_path / "blob")
    assert hash_model(folder, cache_dir=None).files[0].sha256 == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    "name,counts",
    [
        ("x.gguf", True),
        ("sub/x.safetensors", True),
        ("merges.txt", False),
        (".git/x.gguf", False),
        ("config.json", True),
    ],
)
def test_only_what_changes_an_answer_counts(name: str, counts: bool) -> None:
    assert matters(name) is counts


def test_a_model_that_is_not_there_is_an_error_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure) as caught:
        hash_model(tmp_path / "none", cache_dir=None)
    assert caught.value.why == "the path does not exist here"
    with pytest.raises(CannotMeasure) as caught:
        hash_model(tmp_path, cache_dir=None)
    assert "no file of it is one of *.safetensors" in caught.value.why


def test_a_file_that_vanishes_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="cannot be read"):
        hash_files(tmp_path, [tmp_path / "gone.gguf"], cache_dir=None)


# ---------------------------------------------------------------- the cache


def test_the_second_call_reads_no_file(model: Path, tmp_path: Path) -> None:
    first = hash_model(model, cache_dir=tmp_path)
    for path in model_files(model):
        stamp = path.stat()
        path.chmod(stamp.st_mode)  # ctime moves: the cache has to notice even this
    said: list[str] = []
    again = hash_model(model, cache_dir=tmp_path, progress=said.append)
    assert again == first
    cached = (tmp_path / CACHE_FILE).read_text()
    assert hash_model(model, cache_dir=tmp_path) == first
    assert (tmp_path / CACHE_FILE).read_text() == cached


def test_a_flipped_byte_is_found_although_size_and_mtime_are_as_before(model: Path, tmp_path: Path) -> None:
    first = hash_model(model, cache_dir=tmp_path)
    path = model / "a.safetensors"
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[4_000_000] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert hash_model(model, cache_dir=tmp_path).digest != first.digest


def test_a_damaged_cache_is_no_cache(model: Path, tmp_path: Path) -> None:
    first = hash_model(model, cache_dir=tmp_path)
    for text in ("{", "[]", '{"a": 1}', '{"a": "short"}'):
        (tmp_path / CACHE_FILE).write_text(text)
        assert hash_model(model, cache_dir=tmp_path) == first


def test_a_cache_that_cannot_be_written_is_no_error(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert hash_model(model, cache_dir=tmp_path / "file" / "cache") == hash_model(model, cache_dir=None)


def test_a_file_of_many_blocks_hashes_as_one(tmp_path: Path) -> None:
    data = os.urandom(20_000_003)
    (tmp_path / "x").write_bytes(data)
    counted: list[int] = []
    assert sha256(tmp_path / "x", counted.append) == hashlib.sha256(data).hexdigest()
    assert sum(counted) == len(data)


# ---------------------------------------------------------------- through a sibling container


class HereInstead:
    """Runs the sibling's code in a child of ours, as a container with the same volume would."""

    def __init__(self, *, answer: str | None = None) -> None:
        self.answer = answer

    def run_python(self, code: str, args: object) -> str:
        if self.answer is not None:
            return self.answer
        assert isinstance(args, list)
        command = [sys.executable, "-I", "-c", code, *args]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_sibling_finds_the_same_digest(model: Path) -> None:
    (model / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    remote = read_remote(HereInstead(), str(model))
    assert remote.model == hash_model(model, cache_dir=None)
    assert remote.configs == {"config.json": {"torch_dtype": "bfloat16"}}


def test_a_sibling_that_finds_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CannotMeasure, match="there is no model at"):
        read_remote(HereInstead(), str(tmp_path))


@pytest.mark.parametrize("answer", ["Traceback", '{"file": {"name": "x", "size": 1, "sha256": "no"}}', '{"file": 3}'])
def test_a_siblings_answer_is_checked(answer: str) -> None:
    with pytest.raises(CannotMeasure, match="the container that reads the weights"):
        read_remote(HereInstead(answer=answer), "/m")
