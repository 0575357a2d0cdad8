"""Volumes as written, and as the engine's host must be told them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from servegate_action.errors import UsageError
from servegate_action.launch.volumes import OwnMount, Paths, Volume

WORKSPACE = Path("/github/workspace")
IN_ACTION = Paths(
    WORKSPACE,
    (
        OwnMount(PurePosixPath("/github/workspace"), PurePosixPath("/home/runner/work/repo/repo")),
        OwnMount(PurePosixPath("/github"), PurePosixPath("/home/runner/other")),
        OwnMount(PurePosixPath("/var/run/docker.sock"), PurePosixPath("/run/user/1000/docker.sock")),
    ),
    (PurePosixPath("/var/run/docker.sock"), PurePosixPath("/run/user/1000/docker.sock")),
)


def only(paths: Paths, text: str) -> Volume:
    (volume,) = paths.volumes((text,), label="x")
    return volume


@pytest.mark.parametrize(
    "text,source",
    [
        ("/srv/models:/model", "/srv/models"),
        ("/github/workspace/models:/model", "/home/runner/work/repo/repo/models"),
        ("models:/model", "models"),
        ("./models:/model", "/home/runner/work/repo/repo/models"),
        ("models/llama:/model", "/home/runner/work/repo/repo/models/llama"),
        (".:/model", "/home/runner/work/repo/repo"),
        ("/github/home/x:/model", "/home/runner/other/home/x"),
    ],
)
def test_a_path_inside_of_the_action_becomes_the_hosts(text: str, source: str) -> None:
    assert only(IN_ACTION, text).source == source


def test_on_the_host_a_path_stays_as_it_is() -> None:
    assert only(Paths(Path("/job")), "weights/a:/m:ro") == Volume("/job/weights/a", "/m", read_only=True)
    assert not only(Paths(Path("/job")), "/a:/m").read_only
    assert not only(Paths(Path("/job")), "/a:/m:rw").read_only


def test_a_bare_word_is_a_volume_of_the_engine() -> None:
    assert only(IN_ACTION, "cache:/m").named
    assert not only(IN_ACTION, "./cache:/m").named


@pytest.mark.parametrize("text", ["", "/a", "/a:", ":/m", "/a:m", "/a:/m:rx", "/a:/m:ro:z", "a:b:c:d"])
def test_a_malformed_volume_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        only(IN_ACTION, text)


@pytest.mark.parametrize(
    "source",
    [
        "/var/run/docker.sock",
        "/var/run",
        "/",
        "/var",
        "/var/run/../run/docker.sock",
        "/run/user/1000",
        "/run/user/1000/docker.sock",
    ],
)
def test_the_engines_socket_and_whatever_holds_it_is_refused(source: str) -> None:
    with pytest.raises(UsageError, match="socket"):
        only(IN_ACTION, f"{source}:/x")


def test_the_usual_socket_is_refused_where_nothing_else_is_known() -> None:
    with pytest.raises(UsageError, match="socket"):
        only(Paths(Path("/job")), "/run:/x")


def test_a_link_to_the_socket_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights").symlink_to("/run/docker.sock")
    with pytest.raises(UsageError, match="socket"):
        only(Paths(tmp_path), "./weights:/x")


def test_a_folder_that_is_not_there_is_refused_where_that_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    paths = Paths(tmp_path)
    paths.check_existence(("./weights:/x", "cache:/y"), label="x")
    with pytest.raises(UsageError, match="does not exist"):
        paths.check_existence(("./wieghts:/x",), label="x")
    with pytest.raises(UsageError, match="names a volume of the engine, not the folder") as slip:
        paths.check_existence(("weights:/x:ro",), label="x")
    assert "write ./weights:/x:ro" in slip.value.next_step
    inside = Paths(tmp_path, (OwnMount(PurePosixPath(tmp_path), PurePosixPath("/host")),))
    inside.check_existence(("/srv/only-the-host-sees-it:/x",), label="x")
    with pytest.raises(UsageError, match="does not exist"):
        inside.check_existence((f"{tmp_path}/wieghts:/x",), label="x")
