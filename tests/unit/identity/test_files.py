"""What files say of their numbers: GGUF heads, the hub's configuration, safetensors headers."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from servegate_action.identity import hub
from servegate_action.identity.facts import Fact, Numbers
from servegate_action.identity.formats import agrees, normal
from servegate_action.identity.gguf import NotGguf, read_head
from servegate_action.records import Evidence
from tests.support import gguf_files

Q4_0, Q4_1, Q8_0, Q4_K, Q6_K, F32, F16 = 2, 3, 8, 12, 14, 0, 1
BIG, SMALL = (4096, 4096), (4096,)


@pytest.mark.parametrize(
    "given,expected",
    [
        ("torch.bfloat16", "bf16"),
        ("HALF", "fp16"),
        ("F8_E4M3", "fp8_e4m3"),
        (" fp8_e4m3fn ", "fp8_e4m3"),
        ("Q4_K_M", "q4_k_m"),
    ],
)
def test_a_format_has_one_name(given: str, expected: str) -> None:
    assert normal(given) == expected


@pytest.mark.parametrize(
    "declared,found,same",
    [
        ("bf16", "bf16", True),
        ("BFloat16", "bf16", True),
        ("fp8", "fp8_e4m3", True),
        ("awq", "w4a16-awq", True),
        ("q4", "q4_1", True),
        ("fp8", "bf16", False),
        ("q4_0", "q4_1", False),
        ("gptq", "w4a16-awq", False),
    ],
)
def test_a_declared_name_may_be_less_exact_than_a_found_one(declared: str, found: str, same: bool) -> None:
    assert agrees(declared, found) is same


# ---------------------------------------------------------------- GGUF


def test_a_plain_gguf_is_what_its_label_says(tmp_path: Path) -> None:
    head = read_head(
        gguf_files.write(
            tmp_path / "m.gguf",
            metadata={"general.file_type": 3, "general.name": "x", "tokenizer.ggml.tokens": ["a", "bc", "ü"]},
            tensors=[(BIG, Q4_1), (BIG, Q4_1), (BIG, Q8_0), (SMALL, F32)],
        )
    )
    assert (head.weights, head.contradiction) == ("q4_1", None)
    assert head.metadata == {"general.file_type": 3, "general.name": "x"}
    assert head.elements == {"q4_1": 2 * 4096**2, "q8_0": 4096**2, "f32": 4096}


def test_a_mixed_quantization_keeps_its_name(tmp_path: Path) -> None:
    path = gguf_files.write(
        tmp_path / "m.gguf", metadata={"general.file_type": 15}, tensors=[(BIG, Q4_K), (BIG, Q4_K), (BIG, Q6_K)]
    )
    assert (read_head(path).weights, read_head(path).contradiction) == ("q4_k_m", None)


@pytest.mark.parametrize("label", [7, 15])
def test_a_label_that_the_tensors_do_not_bear_out_is_not_believed(tmp_path: Path, label: int) -> None:
    head = read_head(
        gguf_files.write(tmp_path / "m.gguf", metadata={"general.file_type": label}, tensors=[(BIG, Q4_0)])
    )
    assert head.weights == "q4_0"
    assert head.contradiction is not None
    assert head.contradiction.endswith("but most of its weights are q4_0")


def test_a_label_that_only_a_few_tensors_bear_out_is_not_believed(tmp_path: Path) -> None:
    path = gguf_files.write(
        tmp_path / "m.gguf", metadata={"general.file_type": 7}, tensors=[(BIG, Q4_1), (BIG, Q4_1), (BIG, Q8_0)]
    )
    assert read_head(path).weights == "q4_1"
    assert read_head(path).contradiction == "the file calls itself q8_0, but most of its weights are q4_1"


def test_a_file_without_a_label_is_what_most_of_it_is(tmp_path: Path) -> None:
    head = read_head(gguf_files.write(tmp_path / "m.gguf", metadata={}, tensors=[(BIG, F16), (SMALL, F32)]))
    assert (head.weights, head.contradiction) == ("fp16", None)


def test_an_unknown_type_is_named_by_its_number(tmp_path: Path) -> None:
    assert read_head(gguf_files.write(tmp_path / "m.gguf", metadata={}, tensors=[(BIG, 99)])).weights == "type99"


@pytest.mark.parametrize(
    "damage,words",
    [
        (lambda data: b"GGML" + data[4:], "does not begin with GGUF"),
        (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "version 1 is not understood"),
        (lambda data: data[: len(data) // 2], "cut short or damaged"),
        (lambda data: data[:16] + struct.pack("<Q", 2**60) + data[24:], "cut short or damaged"),
    ],
)
def test_a_damaged_head_is_an_error_and_no_guess(tmp_path: Path, damage: object, words: str) -> None:
    path = gguf_files.write(tmp_path / "m.gguf", metadata={"a": "b"}, tensors=[(BIG, Q4_0)])
    assert callable(damage)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(NotGguf, match=words):
        read_head(path)


# ---------------------------------------------------------------- safetensors and config.json


def safetensors(path: Path, **tensors: tuple[str, int]) -> Path:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [size], "data_offsets": [at, at + size]}
        at += size
    data = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    return path


def test_the_header_says_how_many_bytes_are_of_which_type(tmp_path: Path) -> None:
    path = safetensors(tmp_path / "a.safetensors", x=("BF16", 100), y=("F32", 8), z=("BF16", 20))
    assert hub.safetensors_bytes(path) == {"bf16": 120, "fp32": 8}


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 16, struct.pack("<Q", 4) + b"nope"])
def test_a_file_that_is_no_safetensors_file_says_nothing(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    assert hub.safetensors_bytes(path) == {}


def values(numbers: Numbers) -> tuple[str | None, ...]:
    parts = (numbers.weights, numbers.activations, numbers.kv_cache, numbers.compute)
    return tuple(part.value if part is not None else None for part in parts)


CONFIGS: list[tuple[dict[str, object], dict[str, object], dict[str, int], tuple[str | None, ...]]] = [
    ({"torch_dtype": "bfloat16"}, {}, {"bf16": 9}, ("bf16", "bf16", None, "bf16")),
    ({"dtype": "float16"}, {}, {}, ("fp16", "fp16", None, "fp16")),
    ({"text_config": {"torch_dtype": "bfloat16"}}, {}, {}, ("bf16", "bf16", None, "bf16")),
    ({}, {}, {"fp32": 3}, ("fp32", None, None, None)),
    ({}, {}, {}, (None, None, None, None)),
    (
        {
            "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"},
        },
        {},
        {"fp8_e4m3": 9, "bf16": 2},
        ("fp8_e4m3", "fp8_e4m3", None, "bf16"),
    ),
    (
        {"torch_dtype": "float16", "quantization_config": {"quant_method": "awq", "bits": 4}},
        {},
        {"int32": 9, "fp16": 2},
        ("w4a16-awq", "fp16", None, "fp16"),
    ),
    (
        {"torch_dtype": "float16", "quantization_config": {"quant_method": "gptq", "bits": 8}},
        {},
        {"int32": 9},
        ("w8a16-gptq", "fp16", None, "fp16"),
    ),
    ({"quantization_config": {"quant_method": "quark"}}, {}, {}, ("quark", None, None, None)),
    (
        {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        {},
        {"bf16": 9},
        ("w4a16-bnb", "bf16", None, "bf16"),
    ),
    (
        {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
        {},
        {},
        ("int8-bnb", None, None, None),
    ),
    (
        {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "mxfp4"}},
        {},
        {"uint8": 9},
        ("w4a16-mxfp4", "bf16", None, "bf16"),
    ),
    (
        {
            "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float"},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
        },
        {},
        {"fp8_e4m3": 5},
        ("fp8_e4m3", "fp8_e4m3", "fp8_e4m3", "bf16"),
    ),
    (
        {
            "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None}},
            },
        },
        {},
        {"int32": 5},
        ("w4a16-compressed", "bf16", None, "bf16"),
    ),
    (
        {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "compressed-tensors"}},
        {},
        {},
        ("compressed-tensors", "bf16", None, "bf16"),
    ),
    (
        {"torch_dtype": "bfloat16"},
        {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
        {"uint8": 9},
        ("nvfp4", "nvfp4", "fp8_e4m3", "bf16"),
    ),
    (
        {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
        {},
        {"fp8_e4m3": 9},
        ("fp8_e4m3", "fp8_e4m3", None, "bf16"),
    ),
]


@pytest.mark.parametrize("config,modelopt,stored,expected", CONFIGS)
def test_a_configuration_is_one_tuple(
    config: dict[str, object], modelopt: dict[str, object], stored: dict[str, int], expected: tuple[str | None, ...]
) -> None:
    numbers, wrong = hub.interpret(config, modelopt, stored)
    assert values(numbers) == expected
    assert wrong == ()


def test_a_configuration_that_the_weights_do_not_bear_out_is_a_contradiction() -> None:
    fp8: dict[str, object] = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    assert hub.interpret(fp8, {}, {"bf16": 9, "fp8_e4m3": 1})[1] == (
        "config.json quantization_config says fp8_e4m3, but most bytes of the weight files are bf16",
    )
    numbers, wrong = hub.interpret({"torch_dtype": "bfloat16"}, {}, {"fp8_e4m3": 9})
    assert wrong == ("config.json says bf16 without a quantization, but most bytes of the weight files are fp8_e4m3",)
    assert numbers.weights == Fact("fp8_e4m3", Evidence.PROVEN, "safetensors header")


def test_a_folder_is_read_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    (tmp_path / "hf_quant_config.json").write_text("[]")
    parts = [safetensors(tmp_path / f"{n}.safetensors", x=("BF16", 10)) for n in "ab"]
    assert values(hub.read_hub(tmp_path, parts)[0]) == ("bf16", "bf16", None, "bf16")


def test_a_configuration_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert hub.read_json(tmp_path / "none.json") == {}
    (tmp_path / "bad.json").write_text("{")
    assert hub.read_json(tmp_path / "bad.json") == {}
