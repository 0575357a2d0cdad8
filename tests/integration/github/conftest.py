"""A fake GitHub with one pull request of the repository itself, and everything that publishing to it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from servegate_action.errors import ExitCode
from servegate_action.github.api import Api, Server
from servegate_action.github.comment import Occasion
from servegate_action.github.inputs import RunId
from servegate_action.github.publish import Finished, Where
from tests.support.fake_github import FakeGitHub, World, serving
from tests.support.fake_github.clock import InstantClock

ROWS = "\n".join(f"| {n} ✅ | check {n} | 1 | 2 | – | 2 % | PASS |" for n in range(1, 9))
TABLE = f"|    | Check | Baseline | Candidate | Change | Allowed | Verdict |\n|---|---|---|---|---|---|---|\n{ROWS}"


@pytest.fixture
def fake() -> Iterator[FakeGitHub]:
    world = World()
    world.add_pull(7)
    world.branches["main"] = world.pulls[7].base_sha
    with serving(FakeGitHub(world)) as running:
        yield running


@pytest.fixture
def clock() -> InstantClock:
    return InstantClock()


@pytest.fixture
def api(fake: FakeGitHub, clock: InstantClock) -> Api:
    return Api(Server(api_url=fake.url, token="t0ken"), repository="octo/repo", clock=clock)


MakePlace = Callable[..., Where]
MakeFinished = Callable[..., Finished]


def place_at(sha: str, *, run: int = 100, attempt: int = 1, number: int | None = 7, pull: bool = True) -> Where:
    """Where run 100 on pull request 7 publishes."""
    return Where(
        gate="llama-8b-chat",
        context="servegate/llama-8b-chat",
        sha=sha,
        number=number,
        on_pull_request=pull,
        run=RunId(run, attempt),
        run_url=f"https://github.com/octo/repo/actions/runs/{run}/attempts/{attempt}",
    )


def finished(
    word: str | None = "REJECT", *, code: ExitCode | None = None, title: str = "p95 TPOT got worse"
) -> Finished:
    """A finished run whose comment holds a checklist, and says what it was rendered for."""

    def text(occasion: Occasion) -> str:
        earlier = " ".join(one.head[:7] for one in occasion.earlier)
        newer = f"newer head {occasion.newer_head[:7]}" if occasion.newer_head else ""
        filler = "x" * max(0, occasion.max_chars - 3000)
        return f"### servegate: {word}\n\n**{title}**\n\n{TABLE}\n\nearlier {earlier} {newer}\n\n{filler}\n"

    if code is None:
        code = ExitCode[word] if word else ExitCode.CANNOT_MEASURE
    return Finished(word=word, exit_code=code, status_line=f"{word}: {title}", text=text, summary=f"# {word}")  # type: ignore[arg-type]
