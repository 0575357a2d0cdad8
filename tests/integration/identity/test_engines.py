"""What each engine says of itself, put together with its flags and files; where these contradict what is declared."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from servegate_action.config.stacks import ContainerStack, EndpointStack, Engine, ProcessStack, ServedModel, Stack
from servegate_action.errors import CannotMeasure
from servegate_action.identity import Subject, hash_model, identify, server_metrics
from servegate_action.records import Absent, Evidence, StackIdentity
from tests.integration.identity import engines
from tests.support import gguf_files


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A BF16 model in the hub's layout, heads only."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"]}))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    return folder


def process(command: str, *, cwd: Path | None = None, engine: Engine = Engine.AUTO) -> Stack:
    return Stack(
        label="x",
        process=ProcessStack(command=tuple(command.split()), cwd=str(cwd) if cwd else None),
        engine=engine,
        env=("PORT={port}",),
    )


def container(command: str, *volumes: str, image: str = "vllm/vllm-openai@sha256:00") -> Stack:
    return Stack(label="x", container=ContainerStack(image=image, command=tuple(command.split()), volumes=volumes))


def look(stack: Stack, answers: engines.Answers, **more: object) -> StackIdentity:
    """`more` are fields of the declared model or of the subject."""
    told = {key: more.pop(key) for key in ("quantization", "batch_size", "revision") if key in more}
    declared = ServedModel.model_validate({"name": "llama", **told})
    command = stack.process.command if stack.process else stack.container.command if stack.container else ()
    with engines.serving(answers) as url:
        return identify(
            Subject(
                stack=stack,
                model=declared,
                base_url=url,
                command=command,
                container_digest=Absent(absent="no container"),
                **more,  # type: ignore[arg-type]
            )
        )


def tuple_of(identity: StackIdentity) -> tuple[object, ...]:
    found = identity.quantization
    return (found.weights, found.activations, found.kv_cache, found.compute)


BF16 = ("bf16", "bf16", "bf16", "bf16")


# ---------------------------------------------------------------- vLLM


def test_vllm_is_proven_from_its_files_flags_and_pages(model: Path) -> None:
    found = look(process(f"vllm serve {model} --max-num-seqs 64"), engines.vllm(str(model)))
    assert (found.engine, found.engine_version) == ("vllm", "0.33.1")
    assert (found.model.digest, found.model.evidence) == (hash_model(model, cache_dir=None).digest, Evidence.PROVEN)
    assert tuple_of(found) == BF16
    assert found.quantization.evidence is Evidence.PROVEN
    assert (found.batch.cap, found.batch.evidence, found.batch.source) == (64, Evidence.PROVEN, "launch flag")
    assert found.contradictions == ()
    assert found.read_back["cache_config_info.cache_dtype"] == "auto"


def test_of_several_models_the_one_that_is_asked_for_is_meant(model: Path) -> None:
    """A server that lists another model first, as one with adapters may."""
    answers = engines.vllm(str(model))
    (own,) = answers["/v1/models"]["data"]  # type: ignore[index]
    answers["/v1/models"] = {"data": ["odd", {**own, "id": "other", "root": "/elsewhere"}, own]}
    found = look(process(f"vllm serve {model} --max-num-seqs 64"), answers)
    assert found.model.digest == hash_model(model, cache_dir=None).digest
    assert found.read_back["v1_models.id"] == "llama"


def test_vllm_in_dev_mode_says_its_batch_and_types_itself(model: Path) -> None:
    stack = container("--model /model", f"{model}:/model:ro")
    found = look(stack, engines.vllm_dev("/model", max_num_seqs=128, dtype="torch.float16"))
    assert tuple_of(found) == ("bf16", "fp16", "fp16", "fp16")
    assert (found.batch.cap, found.batch.source) == (128, "/server_info scheduler_config.max_num_seqs")
    assert found.model.evidence is Evidence.PROVEN
    assert "s3cret" not in found.model_dump_json()


def test_weights_that_are_quantized_while_loading_are_what_the_flag_says(model: Path) -> None:
    found = look(process(f"vllm serve {model} --quantization fp8 --kv-cache-dtype fp8"), engines.vllm(str(model)))
    assert tuple_of(found) == ("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "bf16")
    assert found.quantization.evidence is Evidence.PROVEN


def test_the_servers_own_batch_beats_the_flag(model: Path) -> None:
    found = look(process(f"vllm serve {model} --max-num-seqs 64"), engines.vllm_dev(str(model), max_num_seqs=32))
    assert found.batch.cap == 32


def test_an_unknown_wrapper_around_vllm_proves_what_the_server_says_and_no_more(model: Path) -> None:
    found = look(process("python serve.py --max-num-seqs 64"), engines.vllm(str(model)), batch_size=64)
    assert found.engine == "vllm"
    assert found.model.evidence is Evidence.PROVEN
    assert (found.batch.cap, found.batch.evidence) == (64, Evidence.DECLARED)
    assert found.quantization.kv_cache == Absent(absent="the KV cache's format is not revealed")
    assert found.quantization.evidence is Evidence.UNKNOWN


# ---------------------------------------------------------------- SGLang, TensorRT-LLM


@pytest.mark.parametrize("newer", [True, False])
def test_sglang_adds_its_replicas_up(model: Path, newer: bool) -> None:
    stack = process(f"python3 -m sglang.launch_server --model-path {model}")
    found = look(stack, engines.sglang(str(model), newer=newer))
    assert (found.engine, found.engine_version) == ("sglang", "0.5.9")
    assert (found.batch.cap, found.batch.evidence) == (96, Evidence.PROVEN)
    assert tuple_of(found) == BF16
    assert found.quantization.evidence is Evidence.PROVEN
    assert "s3cret" not in found.model_dump_json()


def test_tensorrt_llm_shows_its_batch_in_its_iterations(model: Path) -> None:
    found = look(process(f"trtllm-serve {model} --max_batch_size 64"), engines.tensorrt_llm())
    assert (found.engine, found.engine_version) == ("tensorrt-llm", "1.2.0")
    assert (found.batch.cap, found.batch.evidence) == (64, Evidence.PROVEN)
    assert found.model.evidence is Evidence.PROVEN
    assert found.quantization.weights == "bf16"
    assert found.quantization.evidence is Evidence.UNKNOWN


def test_tensorrt_llm_before_its_first_request_has_its_flag() -> None:
    answers = {**engines.tensorrt_llm(), "/metrics": []}
    found = look(process("trtllm-serve /nowhere --max_batch_size 32"), answers)
    assert (found.batch.cap, found.batch.source) == (32, "launch flag")


def test_an_engine_that_is_configured_is_asked_in_its_own_way_only(model: Path) -> None:
    found = look(process("serve", engine=Engine.SGLANG), engines.vllm(str(model)))
    assert found.engine == "sglang"
    assert found.engine_version == Absent(absent="the server does not say its version")


# ---------------------------------------------------------------- declared, unknown, contradicted


def test_an_unknown_server_is_what_is_declared(model: Path) -> None:
    found = look(process("python serve.py"), {}, quantization="bf16", batch_size=8, configured=model)
    assert found.engine == Absent(absent="the server does not say which engine it is")
    assert (found.model.digest, found.model.evidence) == (hash_model(model, cache_dir=None).digest, Evidence.DECLARED)
    assert (found.quantization.weights, found.quantization.evidence) == ("bf16", Evidence.DECLARED)
    assert (found.batch.cap, found.batch.evidence) == (8, Evidence.DECLARED)
    assert found.contradictions == ()


def test_an_unknown_server_without_declarations_is_unknown() -> None:
    found = look(process("python serve.py"), {})
    assert isinstance(found.model.digest, Absent)
    assert {found.model.evidence, found.quantization.evidence, found.batch.evidence} == {Evidence.UNKNOWN}


def test_a_revision_is_declared() -> None:
    found = look(process("python serve.py"), {}, revision="a" * 40)
    assert (found.model.digest, found.model.evidence) == ("a" * 40, Evidence.DECLARED)


def test_a_declared_batch_that_the_server_does_not_have_is_a_contradiction(model: Path) -> None:
    found = look(process(f"vllm serve {model} --max-num-seqs 32"), engines.vllm(str(model)), batch_size=64)
    assert found.batch.cap == 32
    assert found.contradictions == (
        "the configuration declares a batch size of 64, but the server's cap is 32 (launch flag)",
    )


def test_a_declared_quantization_that_the_files_do_not_have_is_a_contradiction(model: Path) -> None:
    found = look(process(f"vllm serve {model}"), engines.vllm(str(model)), quantization="fp8")
    assert found.quantization.weights == "bf16"
    assert found.contradictions == ("the configuration declares fp8, but the weights are bf16 (safetensors header)",)


def test_other_weights_than_the_configured_ones_are_a_contradiction(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    stack = process(f"vllm serve {model}")
    found = look(stack, engines.vllm(str(model)), configured=other)
    assert found.contradictions == (
        f"the stack serves {model}, the configuration names {other}, and their contents differ",
    )
    assert look(stack, engines.vllm(str(model)), configured=model.parent).contradictions == ()


def test_a_copy_of_the_configured_weights_is_no_contradiction(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in model.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert look(process(f"vllm serve {model}"), engines.vllm(str(model)), configured=copy).contradictions == ()


def test_a_gguf_file_that_is_not_what_the_server_says_is_a_contradiction(tmp_path: Path) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", metadata={"general.file_type": 7}, tensors=[((64, 64), 8)])
    props = {"total_slots": 2, "model_path": str(path), "model_ftype": "Q4_K - Medium", "build_info": "b1"}
    found = look(process(f"llama-server -m {path}"), {"/props": props})
    assert found.quantization.weights == "q8_0"
    assert found.contradictions == (
        "the server says q4_k_m (/props model_ftype), the files are q8_0 (GGUF metadata and tensor types)",
    )


def test_a_damaged_gguf_file_cannot_be_measured(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + bytes(3))
    with pytest.raises(CannotMeasure, match="the weights cannot be understood"):
        look(process(f"llama-server -m {tmp_path}/m.gguf"), {})


def test_an_endpoints_path_is_only_declared(model: Path) -> None:
    stack = Stack(label="x", endpoint=EndpointStack(url="http://127.0.0.1:1"))
    found = look(stack, engines.vllm_dev(str(model)))
    assert found.model.evidence is Evidence.DECLARED
    assert found.batch.evidence is Evidence.PROVEN


# ---------------------------------------------------------------- weights that only the container sees


class HereInstead:
    """Runs the sibling's code here, under the path that the container would have."""

    def __init__(self, inside: str, here: Path) -> None:
        self.inside, self.here = inside, here

    def run_python(self, code: str, args: Sequence[str]) -> str:
        path = str(self.here / Path(args[0]).relative_to(self.inside))
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, path, *args[1:]], check=True, capture_output=True, text=True
        )
        return done.stdout


def test_weights_in_a_named_volume_are_hashed_by_a_sibling(model: Path) -> None:
    found = look(
        container("--model /model", "weights:/model"),
        engines.vllm("/model"),
        volume=HereInstead("/model", model),
    )
    assert (found.model.digest, found.model.evidence) == (hash_model(model, cache_dir=None).digest, Evidence.PROVEN)
    assert tuple_of(found) == BF16


def test_from_inside_a_container_a_path_of_the_host_is_read_by_a_sibling(model: Path, tmp_path: Path) -> None:
    """The same path exists here as well, with other content: it must not be hashed."""
    misleading = tmp_path / "misleading"
    misleading.mkdir()
    (misleading / "config.json").write_text("{}")
    stack = container("--model /model", f"{misleading}:/model:ro")
    found = look(stack, engines.vllm("/model"), volume=HereInstead("/model", model), sees_host=False)
    assert found.model.digest == hash_model(model, cache_dir=None).digest


def test_without_a_sibling_such_weights_are_unknown() -> None:
    found = look(container("--model /model", "weights:/model"), engines.vllm("/model"))
    assert found.model.digest == Absent(absent="/model is only inside the container, and no revision is declared")
    assert found.model.evidence is Evidence.UNKNOWN


# ---------------------------------------------------------------- the metrics page


def test_the_metrics_page_is_numbers_and_its_absence_is_none() -> None:
    with engines.serving(engines.vllm("m")) as url:
        assert server_metrics(url) == {"vllm:num_requests_running": 0.0, "vllm:cache_config_info": 1.0}
    with engines.serving({}) as url:
        assert server_metrics(url) == {}
    assert server_metrics("http://127.0.0.1:9") == {}
