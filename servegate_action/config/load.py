"""Reads `.servegate.yml`: every problem at once, each with file, line, what is wrong and what is allowed.

YAML is read as a tree of nodes, because only nodes know their lines; duplicate keys, alias bombs and deep nesting are
refused there. The plain data is then validated in strict mode against `config.models`, and each complaint is taken back
to its line. This module never touches the environment: text comes in, a `Config` goes out.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from math import isfinite
from typing import Any, get_args

from pydantic import BaseModel, JsonValue, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from servegate_action.config.cost import IDLE_ALLOWED
from servegate_action.config.limits import LIMIT_ALLOWED
from servegate_action.config.models import Config
from servegate_action.config.workload import LENGTH_ALLOWED
from servegate_action.errors import ConfigError, Problem

MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 32

Path = tuple[str | int, ...]


@dataclass(slots=True)
class Tree:
    """Plain data of a YAML text, the line of every path in it, and what was wrong with the text itself."""

    file: str
    data: JsonValue = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    nodes: int = 0

    def line(self, path: Iterable[str | int]) -> int:
        """Line of the path, or of the nearest thing around it that exists in the file."""
        known = tuple(path)
        while known and known not in self.lines:
            known = known[:-1]
        return self.lines.get(known, 1)

    def problem(self, path: Path, what: str, allowed: str = "") -> Problem:
        """A problem at the line of `path`."""
        return Problem(self.file, self.line(path), _dotted(path), what, allowed)


def load(text: str, *, file: str) -> Config:
    """The configuration in `text`. Raises ConfigError with every problem found."""
    return validate(read_tree(text, file=file))


def validate(tree: Tree) -> Config:
    """Strict validation of read data. Raises ConfigError with every problem found."""
    if tree.problems:
        raise ConfigError(tree.problems)
    try:
        return Config.model_validate_json(json.dumps(tree.data), strict=True)
    except ValidationError as error:
        raise ConfigError(_in_order(_translate(error, tree))) from None


def dump(config: Config) -> str:
    """The resolved configuration as YAML (JSON is YAML) that `load` reads back to an equal `Config`."""
    return json.dumps(config.model_dump(mode="json", exclude_none=True), indent=2, sort_keys=False) + "\n"


def as_written(part: Mapping[str, object]) -> str:
    """A part of a configuration as a person writes it, in YAML blocks."""
    text = StringIO()
    YAML(pure=True).dump(part, text)
    return text.getvalue()


# ---------------------------------------------------------------- YAML to data


def read_tree(text: str, *, file: str) -> Tree:
    """Plain data with lines. What is wrong with the YAML itself ends up in `problems`, never in an exception."""
    tree = Tree(file)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        tree.problems.append(Problem(file, 1, "", f"the file is larger than {MAX_BYTES >> 20} MiB"))
        return tree
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
        if node is None:
            tree.problems.append(Problem(file, 1, "", "the file is empty", "`servegate config init` writes a starter"))
            return tree
        tree.data = _plain(node, (), tree, yaml)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"not YAML: {error.problem or error.context}"
        tree.problems.append(Problem(file, mark.line + 1 if mark else 1, "", what))
    except (YAMLError, ValueError, RecursionError) as error:
        tree.problems.append(Problem(file, 1, "", f"not YAML: {str(error).splitlines()[0]}"))
    return tree


class _TooMuch(ValueError):
    """The document expands beyond any honest configuration."""


def _plain(node: Node, path: Path, tree: Tree, yaml: YAML) -> JsonValue:
    tree.nodes += 1
    if tree.nodes > MAX_NODES or len(path) > MAX_DEPTH:
        raise _TooMuch("the document expands to more than any gate needs (aliases inside aliases, or too deep)")
    tree.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, MappingNode):
        return _mapping(node, path, tree, yaml)
    if isinstance(node, SequenceNode):
        return [_plain(item, (*path, index), tree, yaml) for index, item in enumerate(node.value)]
    return _scalar(node, path, tree, yaml)


def _mapping(node: MappingNode, path: Path, tree: Tree, yaml: YAML) -> dict[str, JsonValue]:
    data: dict[str, JsonValue] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, ScalarNode):
            tree.problems.append(Problem(tree.file, line, _dotted(path), "a key must be a plain word"))
            continue
        key = str(key_node.value)
        here = (*path, key)
        if key == "<<":
            tree.problems.append(Problem(tree.file, line, _dotted(here), "merge keys are not supported; write it out"))
            continue
        if key in data:
            first = tree.lines[here]
            tree.problems.append(Problem(tree.file, line, _dotted(here), f"duplicate key; first used in line {first}"))
            continue
        tree.lines[here] = line
        data[key] = _plain(value_node, here, tree, yaml)
    return data


def _scalar(node: Node, path: Path, tree: Tree, yaml: YAML) -> JsonValue:
    value: object = yaml.constructor.construct_object(node, deep=True)
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    tree.problems.append(
        Problem(
            tree.file, node.start_mark.line + 1, _dotted(path), f"{node.value!r} has no meaning here", "text, number"
        )
    )
    return None


# ---------------------------------------------------------------- complaints back to lines


def _translate(error: ValidationError, tree: Tree) -> Iterator[Problem]:
    """Pydantic's findings as problems; the several complaints of one union become a single one."""
    by_path: dict[Path, list[Mapping[str, Any]]] = {}
    for finding in error.errors(include_url=False):
        path = _real_path(finding["loc"], tree.data, missing=finding["type"] in ("missing", "extra_forbidden"))
        by_path.setdefault(path, []).append(finding)
    for path, findings in by_path.items():
        if any(child != path and child[: len(path)] == path for child in by_path) and len(findings) > 1:
            continue
        yield _problem(path, findings, tree)


def _real_path(location: tuple[int | str, ...], data: JsonValue, *, missing: bool) -> Path:
    """`location` without the names of union branches, which are not keys of the file."""
    path: list[int | str] = []
    here: JsonValue = data
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(here, dict) and (part in here or (missing and last)):
            path.append(part)
            here = here.get(str(part))
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
    return tuple(path)


def _problem(path: Path, findings: list[Mapping[str, Any]], tree: Tree) -> Problem:
    kind = findings[0]["type"]
    if kind == "extra_forbidden":
        known = _keys_at(path[:-1])
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        if str(path[-1]).endswith(")"):
            hint = "; a comma ends a value inside {…}: put uniform(a, b) and lognormal(mean, sigma) in quotes"
        return tree.problem(path, f"unknown key{hint}", ", ".join(known))
    if kind == "missing":
        return tree.problem(path, "required key is missing")
    own = [finding for finding in findings if finding["type"] == "value_error"]
    message = str((own or findings)[0]["msg"]).removeprefix("Value error, ")
    value = _at(tree.data, path)
    found = "" if own or isinstance(value, dict | list) else f"; found {value!r}"
    return tree.problem(path, message[:1].lower() + message[1:] + found, _allowed(path))


def _at(data: JsonValue, path: Path) -> JsonValue:
    for part in path:
        if isinstance(data, dict):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
    return data


def _keys_at(path: Path) -> list[str]:
    model = _model_at(path)
    return sorted(model.model_fields) if model else []


def _model_at(path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at `path`."""
    model: type[BaseModel] | None = Config
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        info = model.model_fields.get(part)
        model = next(_models_in(info.annotation), None) if info else None
    return model


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _allowed(path: Path) -> str:
    """What may stand at `path`, in words, from the model's own description."""
    key = str(path[-1]) if path else ""
    if key in ("prompt_tokens", "output_tokens"):
        return LENGTH_ALLOWED
    if path and path[0] == "limits" and key not in ("failed_share", "advisory", "cells", "limits"):
        return LIMIT_ALLOWED
    if path[:2] == ("cost", "idle") and len(path) == 3:
        return IDLE_ALLOWED
    model = _model_at(path[:-1])
    info = model.model_fields.get(key) if model and path else None
    return info.description or "" if info else ""


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line, problem.key))


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
