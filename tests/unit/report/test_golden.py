from __future__ import annotations

from collections.abc import Callable

import pytest

from servegate_action.analysis.judgement import Judgement, Word
from servegate_action.report import comment, page, summary
from tests.support import judgements

Golden = Callable[[str, str], None]
WORDS = pytest.mark.parametrize("word", list(Word), ids=lambda word: word.value)


def made(word: Word) -> Judgement:
    return judgements.ALL[word]()


@WORDS
def test_the_comment_is_as_it_was(word: Word, golden: Golden) -> None:
    golden(f"{word.value.lower()}/comment.md", comment(made(word)))


@WORDS
def test_the_summary_is_as_it_was(word: Word, golden: Golden) -> None:
    golden(f"{word.value.lower()}/summary.md", summary(made(word)))


@WORDS
def test_the_page_is_as_it_was(word: Word, golden: Golden) -> None:
    golden(f"{word.value.lower()}/report.html", page(made(word)))


def test_the_spanish_texts_are_as_they_were(golden: Golden) -> None:
    golden("reject-es/comment.md", comment(made(Word.REJECT), language="es"))
    golden("reject-es/report.html", page(made(Word.REJECT), language="es"))


def test_a_run_without_a_complete_round_is_as_it_was(golden: Golden) -> None:
    golden("no-rounds/comment.md", comment(judgements.without_rounds()))
