"""The published JSON Schema of `verdict.json`, for programs that read it. The file is kept next to this module.

The file is what is published; a test holds that it is what the model says (`pytest --update-golden` writes it anew).
"""

from __future__ import annotations

import json
from pathlib import Path

from servegate_action.analysis.judgement import Judgement

FILE = Path(__file__).with_name("verdict.schema.json")


def verdict_schema() -> str:
    """The schema as text, as it stands in the file."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "servegate verdict.json",
        **{key: value for key, value in Judgement.model_json_schema().items() if key != "title"},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
