"""Launch commands of the engines that we know, and of programs that only look like them; where their weights are."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from servegate_action.config.stacks import ContainerStack, EndpointStack, Engine, ProcessStack, Stack
from servegate_action.identity.engines import ReadBack
from servegate_action.identity.flags import Flags, read_flags
from servegate_action.identity.places import host_path, locate
from servegate_action.records import Evidence


def flags(command: str, *, image: str | None = None, engine: Engine = Engine.AUTO) -> Flags:
    return read_flags(command.split(), image=image, engine=engine)


COMMANDS = [
    ("vllm serve /m --max-num-seqs 64", None, Engine.VLLM, "/m", 64),
    ("/opt/venv/bin/vllm serve --max-num-seqs=64 --model /m", None, Engine.VLLM, "/m", 64),
    ("python3 -m vllm.entrypoints.openai.api_server --model /m --max_num_seqs 8", None, Engine.VLLM, "/m", 8),
    ("--model /m --max-num-seqs 64", "vllm/vllm-openai@sha256:00", Engine.VLLM, "/m", 64),
    ("--model /m", "docker.io/vllm/vllm-openai:v0.33", Engine.VLLM, "/m", None),
    ("--model /m", "localhost:5000/vllm/vllm-openai", Engine.VLLM, "/m", None),
    (
        "python3 -m sglang.launch_server --model-path /m --max-running-requests 32",
        None,
        Engine.SGLANG,
        "/m",
        32,
    ),
    ("trtllm-serve /m --max_batch_size 16", "nvcr.io/x/release:1", Engine.TENSORRT_LLM, "/m", 16),
    ("trtllm-serve serve /m --max_batch_size 16", None, Engine.TENSORRT_LLM, "/m", 16),
    ("/usr/bin/llama-server -m /m.gguf --parallel 4", None, Engine.LLAMA_CPP, "/m.gguf", 4),
    ("llama-server --model /m.gguf -np 4 -np 8", None, Engine.LLAMA_CPP, "/m.gguf", 8),
    ("-m /m.gguf --parallel 4", "ghcr.io/ggml-org/llama.cpp:server", Engine.LLAMA_CPP, "/m.gguf", 4),
    ("python -m servegate_action.demo.server --model /m.gguf --parallel 2", None, Engine.LLAMA_CPP, "/m.gguf", 2),
]


@pytest.mark.parametrize("command,image,engine,model,cap", COMMANDS)
def test_an_engines_own_command_is_understood(
    command: str, image: str | None, engine: Engine, model: str, cap: int | None
) -> None:
    found = flags(command, image=image)
    assert (found.engine, found.entry, found.model, found.cap) == (engine, True, model, cap)


def test_an_unknown_program_only_declares() -> None:
    found = flags("python serve.py --model /m --dtype bfloat16 --max-num-seqs 64", engine=Engine.VLLM)
    assert (found.engine, found.entry, found.cap) == (Engine.VLLM, False, 64)
    assert found.numbers.compute is not None
    assert found.numbers.compute.evidence is Evidence.DECLARED


def test_a_program_of_no_known_engine_keeps_only_its_model() -> None:
    found = flags("python serve.py --model /m --max-num-seqs 64")
    assert (found.engine, found.entry, found.model, found.cap) == (Engine.AUTO, False, "/m", None)


def test_an_engine_that_the_server_denies_is_not_the_commands() -> None:
    found = flags("vllm serve /m", engine=Engine.SGLANG)
    assert (found.engine, found.entry) == (Engine.SGLANG, False)


def test_numbers_of_a_command_are_proven_with_their_flag() -> None:
    numbers = flags("vllm serve /m --quantization fp8 --kv-cache-dtype fp8_e4m3 --dtype half").numbers
    assert numbers.weights is not None
    assert numbers.kv_cache is not None
    assert numbers.compute is not None
    assert (numbers.weights.value, numbers.weights.evidence, numbers.weights.source) == (
        "fp8_e4m3",
        Evidence.PROVEN,
        "launch flag --quantization",
    )
    assert (numbers.kv_cache.value, numbers.compute.value) == ("fp8_e4m3", "fp16")


def test_auto_is_no_value() -> None:
    numbers = flags("vllm serve /m --dtype auto --kv-cache-dtype auto").numbers
    assert (numbers.compute, numbers.kv_cache) == (None, None)


@pytest.mark.parametrize(
    "extra,expected",
    [
        ("", "fp16"),
        ("--cache-type-k q8_0 --cache-type-v q8_0", "q8_0"),
        ("-ctk q8_0", "k=q8_0,v=fp16"),
        ("--cache-type-v f32", "k=fp16,v=fp32"),
    ],
)
def test_llama_cpps_cache_is_two_types(extra: str, expected: str) -> None:
    fact = flags(f"llama-server -m /m.gguf {extra}").numbers.kv_cache
    assert fact is not None
    assert (fact.value, fact.evidence) == (expected, Evidence.PROVEN)


def test_the_cache_of_an_unknown_wrapper_is_unknown() -> None:
    assert flags("python serve.py -m /m.gguf", engine=Engine.LLAMA_CPP).numbers.kv_cache is None


def test_a_flag_without_its_value_has_none() -> None:
    assert flags("llama-server -m /m.gguf --parallel").cap is None
    assert flags("llama-server --parallel many -m").cap is None


# ---------------------------------------------------------------- where the weights are

VOLUMES = ("/srv/models:/models:ro", "/srv/other:/models/deep", "cache:/root/.cache", "./here:/here", "w/x:/wx:ro")


@pytest.mark.parametrize(
    "inside,outside",
    [
        ("/models/a", "/srv/models/a"),
        ("/models", "/srv/models"),
        ("/models/deep/x.gguf", "/srv/other/x.gguf"),
        ("/root/.cache/x", None),
        ("/elsewhere", None),
        ("/here/a", "/job/here/a"),
        ("/wx", "/job/w/x"),
    ],
)
def test_a_path_inside_is_translated_through_the_mounts(inside: str, outside: str | None) -> None:
    found = host_path(PurePosixPath(inside), VOLUMES, Path("/job"))
    assert found == (Path(outside) if outside is not None else None)


def process(cwd: str | None = None) -> Stack:
    return Stack(label="x", process=ProcessStack(command=("serve", "{port}"), cwd=cwd))


def container(*volumes: str) -> Stack:
    return Stack(label="x", container=ContainerStack(image="x@sha256:00", volumes=volumes))


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve /m --max-num-seqs 64 --config options.yaml",
        "vllm serve /m --config=options.yaml --max-num-seqs 64",
        "trtllm-serve /m --max_batch_size 64 --extra_llm_api_options o.yml",
    ],
)
def test_flags_beside_a_file_of_options_prove_nothing(command: str) -> None:
    found = read_flags(command.split(), image=None, engine=Engine.AUTO)
    assert (found.entry, found.cap) == (False, 64)


NO_FLAGS = Flags((), Engine.AUTO, entry=False)


def test_what_the_server_says_comes_first(tmp_path: Path) -> None:
    served, flagged, configured = (tmp_path / name for name in ("served", "flagged", "configured"))
    for path in (served, flagged, configured):
        path.touch()
    command = Flags(("llama-server", "-m", str(flagged)), Engine.LLAMA_CPP, entry=True)
    read = ReadBack(Engine.LLAMA_CPP, model=str(served))
    found = [
        locate(process(), read, command, configured=configured),
        locate(process(), ReadBack(Engine.OTHER), command, configured=configured),
        locate(process(), ReadBack(Engine.OTHER), NO_FLAGS, configured=configured),
        locate(process(), ReadBack(Engine.OTHER), NO_FLAGS, configured=tmp_path / "none"),
    ]
    assert [(place.path, place.evidence) for place in found if place is not None] == [
        (str(served), Evidence.PROVEN),
        (str(flagged), Evidence.PROVEN),
        (str(configured), Evidence.DECLARED),
    ]
    assert found[3] is None


def test_a_relative_path_is_the_processs_own(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").touch()
    place = locate(process(str(tmp_path)), ReadBack(Engine.LLAMA_CPP, model="m.gguf"), NO_FLAGS, configured=None)
    assert place is not None
    assert place.path == str(tmp_path / "m.gguf")


def test_relative_paths_are_below_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "serving").mkdir()
    (tmp_path / "serving" / "m.gguf").touch()
    read = ReadBack(Engine.LLAMA_CPP, model="m.gguf")
    place = locate(process("serving"), read, NO_FLAGS, configured=None, workspace=tmp_path)
    assert place is not None
    assert place.path == str(tmp_path / "serving" / "m.gguf")


def test_a_hub_name_is_no_place(tmp_path: Path) -> None:
    read = ReadBack(Engine.VLLM, model="meta-llama/Llama-3.1-8B")
    assert locate(process(str(tmp_path)), read, NO_FLAGS, configured=None) is None
    assert locate(container(), read, NO_FLAGS, configured=None) is None


def test_a_containers_path_is_here_or_only_inside(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    read = ReadBack(Engine.VLLM, model="/model/m")
    here = locate(container(f"{tmp_path}:/model:ro"), read, NO_FLAGS, configured=None)
    inside = locate(container("weights:/model"), read, NO_FLAGS, configured=None)
    assert here is not None
    assert inside is not None
    assert (here.kind, here.path, here.evidence) == ("here", str(tmp_path / "m"), Evidence.PROVEN)
    assert (inside.kind, inside.path) == ("container", "/model/m")


def test_a_path_that_an_endpoint_reports_may_be_of_another_machine(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    stack = Stack(label="x", endpoint=EndpointStack(url="http://127.0.0.1:1"))
    place = locate(stack, ReadBack(Engine.VLLM, model=str(tmp_path / "m")), NO_FLAGS, configured=None)
    assert place is not None
    assert place.evidence is Evidence.DECLARED
