"""tmp"""

from servegate_action.analysis.judgement import Judgement


def page(j: Judgement, *, language: str = "en") -> str:
    return "<!doctype html><title>servegate</title>"
