"""The numbers of a model in the hub's layout: `config.json`, `hf_quant_config.json` and the heads of the weight files.

`quantization_config` names the method (https://huggingface.co/docs/transformers/main_classes/quantization); a safetensors
file begins with a u64 length and a JSON object of tensors with their dtypes. Without a method, the weights are in the
dtype that most bytes of the files have. When the configuration and the files disagree, that is a contradiction.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from servegate_action.identity.facts import Fact, Numbers, proven
from servegate_action.identity.formats import FLOATS, normal, weight_only

LONGEST_HEADER = 100 * 2**20
Json = Mapping[str, object]


def read_json(path: Path) -> Json:
    """An object from a file; empty when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def safetensors_bytes(path: Path) -> Mapping[str, int]:
    """Bytes per dtype of one file, from its header; empty when the file is no safetensors file."""
    with path.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= LONGEST_HEADER:
            return {}
        try:
            tensors = json.loads(file.read(length))
        except ValueError:
            return {}
    sizes: Counter[str] = Counter()
    for tensor in tensors.values() if isinstance(tensors, dict) else ():
        if isinstance(tensor, dict) and isinstance(tensor.get("dtype"), str):
            offsets = tensor.get("data_offsets")
            if isinstance(offsets, list) and len(offsets) == 2:
                sizes[normal(tensor["dtype"])] += int(offsets[1]) - int(offsets[0])
    return dict(sizes)


def read_hub(folder: Path, weights: Sequence[Path]) -> tuple[Numbers, tuple[str, ...]]:
    """(numbers, contradictions) of a model's folder."""
    stored: Counter[str] = Counter()
    for path in weights:
        if path.suffix == ".safetensors":
            stored.update(safetensors_bytes(path))
    return interpret(read_json(folder / "config.json"), read_json(folder / "hf_quant_config.json"), stored)


def interpret(config: Json, modelopt: Json, stored: Mapping[str, int]) -> tuple[Numbers, tuple[str, ...]]:
    """The same, from what was read."""
    compute = _compute(config)
    quantization = _object(config, "quantization_config") or _object(
        _object(config, "text_config"), "quantization_config"
    )
    method = _method(quantization, modelopt, compute)
    dominant = max(stored, key=lambda name: stored[name]) if stored else None
    if method is not None:
        weights, activations = method
        source = "config.json quantization_config" if quantization else "hf_quant_config.json"
        numbers = Numbers(
            weights=proven(weights, source),
            activations=proven(activations, source),
            kv_cache=_kv(quantization, modelopt),
        )
        numbers = numbers.over(Numbers(compute=compute))
        plain = dominant in FLOATS and not weights.endswith("-bnb") and weights != normal(dominant or "")
        wrong = f"{source} says {weights}, but most bytes of the weight files are {dominant}" if plain else None
    else:
        fact = proven(dominant, "safetensors header") or compute
        numbers = Numbers(weights=fact, activations=compute, compute=compute)
        known = compute.value if compute is not None else None
        wrong = None
        if dominant is not None and known is not None and dominant not in FLOATS:
            wrong = (
                f"config.json says {known} without a quantization, but most bytes of the weight files are {dominant}"
            )
    return numbers, (wrong,) if wrong else ()


def _compute(config: Json) -> Fact | None:
    """`dtype` (newer) or `torch_dtype`, of the model or of its text part."""
    for part in (config, _object(config, "text_config")):
        for key in ("dtype", "torch_dtype"):
            fact = proven(part.get(key), f"config.json {key}")
            if fact is not None:
                return fact
    return None


def _method(quantization: Json, modelopt: Json, compute: Fact | None) -> tuple[str, str | None] | None:
    """(weights, activations) by the quantization's method, None when there is none."""
    half = compute.value if compute is not None else None
    name = str(quantization.get("quant_method", "")).lower()
    bits = quantization.get("bits", quantization.get("w_bit"))
    if name == "fp8":
        return f"fp8_{quantization.get('fmt', 'e4m3')}", "fp8_e4m3"
    if name == "compressed-tensors":
        return _compressed(quantization, half)
    if name == "bitsandbytes":
        return (weight_only(4, "bnb"), half) if quantization.get("load_in_4bit") else ("int8-bnb", half)
    if name in ("mxfp4", "modelopt", "modelopt_fp4"):
        return (weight_only(4, "mxfp4"), half) if name == "mxfp4" else _modelopt(quantization)
    if name:
        return (weight_only(bits, name) if isinstance(bits, int) else name), half
    return _modelopt(_object(modelopt, "quantization"))


def _modelopt(quantization: Json) -> tuple[str, str | None] | None:
    """NVIDIA ModelOpt: `FP8` and `NVFP4` quantize activations as well, `W4A16…` names say so themselves."""
    name = quantization.get("quant_algo")
    if not isinstance(name, str):
        return None
    plain = {"fp8": "fp8_e4m3"}.get(name.lower(), name.lower())
    return plain, (plain if plain in ("fp8_e4m3", "nvfp4") else None)


def _compressed(quantization: Json, half: str | None) -> tuple[str, str | None]:
    groups = quantization.get("config_groups")
    first = (
        next((group for group in groups.values() if isinstance(group, dict)), {}) if isinstance(groups, dict) else {}
    )
    weights, inputs = _object(first, "weights"), _object(first, "input_activations")
    if inputs:
        return _scheme(weights), _scheme(inputs)
    bits = weights.get("num_bits")
    return (weight_only(bits, "compressed") if isinstance(bits, int) else "compressed-tensors"), half


def _scheme(part: Json) -> str:
    bits, kind = part.get("num_bits"), part.get("type")
    return "fp8_e4m3" if (bits, kind) == (8, "float") else f"{'fp' if kind == 'float' else 'int'}{bits}"


def _kv(quantization: Json, modelopt: Json) -> Fact | None:
    """A KV cache scheme that the checkpoint itself asks for."""
    scheme = _object(quantization, "kv_cache_scheme")
    if scheme:
        return proven(_scheme(scheme), "config.json kv_cache_scheme")
    name = _object(modelopt, "quantization").get("kv_cache_quant_algo", quantization.get("kv_cache_quant_algo"))
    return proven({"FP8": "fp8_e4m3"}.get(str(name), str(name)), "kv_cache_quant_algo")


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}
