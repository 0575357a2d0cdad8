"""What all tests share: golden files, compared byte by byte and written anew on request.

`pytest --update-golden` rewrites the files of the tests that run; look at the difference before you commit it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A slow machine is no failure; and the same examples every time, so that a red build is red on the next machine, too.
settings.register_profile("servegate", deadline=None, derandomize=True)
settings.load_profile("servegate")

GOLDEN = Path(__file__).parent / "golden"

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with the golden file of that name."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="")
        assert path.is_file(), f"no golden file {name}; make it with pytest --update-golden"
        assert text == path.read_bytes().decode(), f"{name} changed; if that is meant: pytest --update-golden"

    return compare
