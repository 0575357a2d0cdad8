"""The documents say what the code does: versions, inputs, commands, links and workflow snippets agree.

A document that no test holds is a claim. What is compared here is read from the files as a user reads them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import get_args

import pytest
from markdown_it import MarkdownIt
from ruamel.yaml import YAML

import servegate_action
from servegate_action.config import starter
from servegate_action.github import inputs

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
PACKAGE = ROOT / "servegate_action"


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load_yaml(text: str) -> dict[str, object]:
    loaded = YAML(typ="safe", pure=True).load(text)
    assert isinstance(loaded, dict)
    return loaded


def documents() -> list[Path]:
    """Every Markdown file that a reader may open."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests/README.md"])


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a document."""

    document: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    return [
        Block(document, token.map[0] + 1, token.info, token.content)
        for document in documents()
        for token in MarkdownIt().parse(document.read_text(encoding="utf-8"))
        if token.type == "fence" and token.map and token.info.split(" ")[0] in languages
    ]


# ---------------------------------------------------------------- versions


def test_the_version_is_the_same_in_code_and_changelog() -> None:
    newest = re.search(r"^## \[(\d+\.\d+\.\d+)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert newest
    assert newest[1] == servegate_action.__version__


def test_pyproject_takes_the_version_from_the_code() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "servegate_action/__init__.py"


def test_the_release_workflow_finds_the_version_and_the_line_of_action_yml_that_it_rewrites() -> None:
    release = read(".github/workflows/release.yml")
    assert f'__version__ = "{servegate_action.__version__}"' in read("servegate_action/__init__.py").splitlines()
    assert "^  image: Dockerfile$" in release
    assert read("action.yml").splitlines().count("  image: Dockerfile") == 1


def test_workflows_that_name_a_release_name_this_one() -> None:
    named = {
        (name, release)
        for name, text in workflow_texts()
        for release in re.findall(r"uses: servegate/servegate@(.*)$", text, re.MULTILINE)
    }
    assert {"starter.yml", "simple.yml"} <= {name for name, _ in named}
    assert any(name.startswith("README-") for name, _ in named)
    assert {release for _, release in named} == {f"<commit-of-the-release> # v{servegate_action.__version__}"}, named


# ---------------------------------------------------------------- the action


def action() -> dict[str, dict[str, dict[str, object]]]:
    return load_yaml(read("action.yml"))  # type: ignore[return-value]


def table_names(document: str, heading: str) -> set[str]:
    """First-column code names of the table under a heading."""
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", read(document), re.MULTILINE | re.DOTALL)
    assert section, f"{document} has no section '{heading}'"
    first_columns = re.findall(r"^\| (`[^|]+)\|", section[1], re.MULTILINE)
    return {name for column in first_columns for name in re.findall(r"`([^`]+)`", column)}


def test_the_action_reads_exactly_the_inputs_that_action_yml_declares() -> None:
    assert list(action()["inputs"]) == list(inputs.NAMES)


@pytest.mark.parametrize(
    ("name", "choices"),
    [("mode", inputs.Mode), ("comment", inputs.CommentWhen), ("accelerator", inputs.Accelerator)],
)
def test_the_description_of_a_choice_names_all_that_is_allowed(name: str, choices: object) -> None:
    described = str(action()["inputs"][name]["description"])
    assert [word for word in get_args(choices) if not re.search(rf"\b{word}\b", described)] == []


def test_defaults_in_action_yml_are_the_defaults_of_the_code() -> None:
    declared = {f"INPUT_{name.upper()}": str(entry.get("default", "")) for name, entry in action()["inputs"].items()}
    token = declared.pop("INPUT_GITHUB-TOKEN")
    assert token == "${{ github.token }}"
    assert inputs.read_inputs(declared) == inputs.read_inputs({})


def test_readme_documents_every_input_and_output_and_no_other() -> None:
    assert table_names("README.md", "Inputs") == set(action()["inputs"])
    assert table_names("README.md", "Outputs") == set(action()["outputs"])


def test_every_input_and_output_says_what_it_is() -> None:
    for kind in ("inputs", "outputs"):
        for name, entry in action()[kind].items():
            assert len(str(entry["description"])) > 20, (kind, name)


def test_the_entry_points_are_in_the_image_and_are_not_shell() -> None:
    runs = action()["runs"]
    for key, wanted in (("entrypoint", "servegate-action"), ("post-entrypoint", "servegate-post")):
        door = Path(str(runs[key]))
        assert door.name == wanted
        text = read(f"docker/{door.name}")
        assert text.startswith("#!/opt/servegate/bin/python3 -I")
        assert f"docker/{door.name}" in read("Dockerfile")


# ---------------------------------------------------------------- workflows


def workflow_texts() -> Iterator[tuple[str, str]]:
    """The repository's own workflows, the one that `servegate config init` writes, and every one shown in a document."""
    for path in sorted([*ROOT.glob(".github/workflows/*.yml"), *ROOT.glob("docs/**/*.yml")]):
        yield path.name, path.read_text(encoding="utf-8")
    yield "starter.yml", starter.WORKFLOW
    for block in blocks("yaml", "yml"):
        if re.search(r"^on:", block.text, re.MULTILINE) and re.search(r"^jobs:", block.text, re.MULTILINE):
            yield f"{block.document.stem}-{block.line}.yml", block.text


@pytest.fixture(scope="module")
def workflows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository") / ".github" / "workflows"
    folder.mkdir(parents=True)
    for name, text in workflow_texts():
        # A document cannot know the commit of the release that it is part of.
        (folder / name).write_text(re.sub(r"@<commit[^>]*>", "@" + "0" * 40, text), encoding="utf-8")
    return folder


def lint(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}\n{done.stdout}{done.stderr}"


def test_workflows_and_snippets_fit_the_schema(workflows: Path) -> None:
    lint(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *sorted(workflows.glob("*.yml")))


def test_workflows_and_snippets_pass_actionlint(workflows: Path) -> None:
    configuration = ROOT / ".github/actionlint.yaml"
    lint(BIN / "actionlint", "-shellcheck=", "-config-file", configuration, *sorted(workflows.glob("*.yml")))


def test_workflows_and_snippets_have_no_security_finding(workflows: Path) -> None:
    lint(BIN / "zizmor", "--offline", "--no-progress", "--min-severity", "medium", workflows)


def test_actions_are_pinned_by_commit_with_the_version_beside() -> None:
    loose = [
        f"{name}: {line.strip()}"
        for name, text in workflow_texts()
        for line in text.splitlines()
        if re.search(r"\buses: (?!\./)", line)
        and not re.search(r"uses: [\w./-]+@([0-9a-f]{40}|<[^>]+>) # v\d+(\.\d+)*$", line)
    ]
    assert not loose


def test_an_action_is_the_same_commit_wherever_it_is_used() -> None:
    pins: dict[str, set[str]] = {}
    for _, text in workflow_texts():
        for name, pin in re.findall(r"\buses: ([\w./-]+)@(.+)$", text, re.MULTILINE):
            pins.setdefault(name, set()).add(pin)
    assert {name: found for name, found in pins.items() if len(found) > 1} == {}


def test_no_workflow_puts_event_text_into_a_script() -> None:
    for name, text in workflow_texts():
        for job in load_yaml(text)["jobs"].values():  # type: ignore[attr-defined]
            for number, step in enumerate(job.get("steps", [])):
                assert "github.event." not in step.get("run", ""), (name, number)


# ---------------------------------------------------------------- documents


def test_relative_links_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target) and not (document.parent / target).exists()
    ]
    assert not broken


@dataclass(frozen=True, slots=True)
class Command:
    """A `servegate …` line of a shell block."""

    place: str
    words: tuple[str, ...]
    options: frozenset[str]


def commands() -> Iterator[Command]:
    for block in blocks("sh", "bash", "console"):
        for line in block.text.splitlines():
            match = re.match(r"^(?:\$ )?(?:\S*/)?servegate ([a-z]+)(.*?)(?: #.*)?$", line)
            if match:
                words = (match[1], *re.findall(r"^ ([a-z]+)", match[2])) if match[1] == "config" else (match[1],)
                options = frozenset(re.findall(r" (--?[a-z][a-z-]*)", match[2]))
                yield Command(str(block), words, options)


def test_commands_in_documents_exist_with_the_options_shown() -> None:
    helps: dict[tuple[str, ...], str] = {}
    wrong = []
    for command in commands():
        if command.words not in helps:
            door = [sys.executable, "-m", "servegate_action", *command.words, "--help"]
            done = subprocess.run(door, capture_output=True, text=True, check=False)
            helps[command.words] = done.stdout if done.returncode == 0 else ""
        known = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", helps[command.words]))
        if not known or not command.options <= known:
            wrong.append(f"{command.place}: servegate {' '.join(command.words)} {sorted(command.options - known)}")
    assert not wrong


@pytest.mark.parametrize("document", ["README.md", "docs/reading-a-report.md"])
def test_the_comment_that_a_document_shows_is_one_that_servegate_writes(document: str) -> None:
    shown = [line.removeprefix(">").strip() for line in read(document).splitlines() if line.startswith(">")]
    assert shown[0].startswith("### ❌ servegate")
    assert set(shown) <= set(read("tests/golden/reject/comment.md").splitlines())


def gates() -> Iterator[tuple[str, str]]:
    """Every gate that we ship or show: the starter, the demo's, and those in documents."""
    yield "starter", starter.GATE
    demo = read("servegate_action/demo/config.yml")
    yield "demo", Template(demo).substitute(dict.fromkeys(Template(demo).get_identifiers(), "x"))
    for block in blocks("yaml", "yml"):
        if re.search(r"^version: 1$", block.text, re.MULTILINE):
            yield f"{block.document.stem}-{block.line}", block.text


def test_every_gate_that_is_shipped_or_shown_fits_the_published_schema(tmp_path: Path) -> None:
    """As an editor reads it: `servegate config schema` beside the file. The last one shows that the schema can refuse."""
    door = [sys.executable, "-m", "servegate_action", "config", "schema"]
    schema = tmp_path / "schema.json"
    schema.write_bytes(subprocess.run(door, capture_output=True, check=True).stdout)
    files = {name: tmp_path / f"{name}.yml" for name, _ in gates()}
    for name, text in gates():
        files[name].write_text(text, encoding="utf-8")
    assert len(files) >= 3
    lint(BIN / "check-jsonschema", "--schemafile", schema, *files.values())
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(starter.GATE.replace("concurrency: 16", "concurrency: 0"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"wrong\.yml"):
        lint(BIN / "check-jsonschema", "--schemafile", schema, wrong)


def test_scripts_named_in_documents_exist() -> None:
    for document in documents():
        for name in re.findall(r"\bscripts/([a-z]+)", document.read_text(encoding="utf-8")):
            assert (ROOT / "scripts" / name).is_file(), (document.name, name)


def recipe(name: str) -> str:
    section = re.search(rf"^## Recipe: {name}\n(.*?)^## ", read("CONTRIBUTING.md"), re.MULTILINE | re.DOTALL)
    assert section, f"CONTRIBUTING.md has no recipe '{name}'"
    return section[1]


@pytest.mark.parametrize(
    ("name", "known_by", "one_of_them"),
    [
        ("add a metric", r"\bMetricName\.[A-Z]|class MetricName\(", "analysis/compared.py"),
        ("add an engine", r"\bEngine\.VLLM|\"vllm:|class Engine\(StrEnum", "analysis/server_view.py"),
    ],
)
def test_a_recipe_names_every_module_that_must_learn_of_it(name: str, known_by: str, one_of_them: str) -> None:
    modules = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(known_by, path.read_text(encoding="utf-8"))
    }
    assert one_of_them in modules
    assert {module for module in modules if f"`{module}`" not in recipe(name)} == set()


def test_modules_named_in_documents_exist() -> None:
    missing = [
        f"{document.name}: {name}"
        for document in documents()
        for name in re.findall(r"`((?:\w+/)+\w+\.py)`", document.read_text(encoding="utf-8"))
        if not any((place / name).is_file() for place in (ROOT, PACKAGE, ROOT / "tests"))
    ]
    assert not missing


# ---------------------------------------------------------------- requirements


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "requirements").glob("*.txt")))
def test_locked_packages_are_pinned_hashed_and_name_no_registry(name: str) -> None:
    text = read(f"requirements/{name}")
    assert "://" not in text
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+==\S+", entry), entry
        assert "--hash=sha256:" in entry, entry


def test_every_dependency_has_its_reason_beside_it() -> None:
    section = re.search(r"^dependencies = \[\n(.*?)^\]", read("pyproject.toml"), re.MULTILINE | re.DOTALL)
    assert section
    for line in section[1].splitlines():
        assert re.match(r'  "[^"]+", +# \S.{15,}', line), line


def test_the_runtime_lock_covers_what_pyproject_asks_for() -> None:
    wanted = {
        re.split(r"[<>=\[ ]", name)[0] for name in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    }
    locked = set(re.findall(r"^([a-z0-9._-]+)==", read("requirements/runtime.txt"), re.MULTILINE))
    assert {name.replace(".", "-") for name in wanted} <= locked


# ---------------------------------------------------------------- style that a linter cannot hold


def test_no_test_replaces_anything_at_run_time() -> None:
    forbidden = re.compile(r"\b(unittest\." + "mock|monkey" + r"patch|Magic" + r"Mock)\b")
    for path in [*ROOT.glob("tests/**/*.py"), *PACKAGE.rglob("*.py")]:
        assert not forbidden.search(path.read_text(encoding="utf-8")), path


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = {
        str(path.relative_to(ROOT)): length
        for path in PACKAGE.rglob("*.py")
        if (length := len(path.read_text(encoding="utf-8").splitlines())) > 650
    }
    assert not long, json.dumps(long)
