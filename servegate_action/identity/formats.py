"""Names of number formats, the same whatever file, flag or server they come from.

Lower case: `fp32`, `fp16`, `bf16`, `fp8_e4m3`, `int8`, `q4_1`, `q4_k_m`, `w4a16-awq`. A declared name may be less exact
than a found one (`fp8` for `fp8_e4m3`, `awq` for `w4a16-awq`); it then agrees with it.
"""

from __future__ import annotations

_SAME = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "f32": "fp32",
    "f64": "fp64",
    "float64": "fp64",
    "f8_e4m3": "fp8_e4m3",
    "f8_e5m2": "fp8_e5m2",
    "e4m3": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "fp8_e4m3fn": "fp8_e4m3",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
}
FLOATS = frozenset({"fp64", "fp32", "fp16", "bf16"})


def normal(name: str) -> str:
    """One spelling: lower case, without `torch.`; synonyms become one name."""
    plain = name.strip().lower().removeprefix("torch.").removeprefix("torch_")
    return _SAME.get(plain, plain)


def agrees(declared: str, found: str) -> bool:
    """Whether a declared name may stand for the found one: equal, its family (`fp8`), or one of its parts (`awq`)."""
    claim, fact = normal(declared), normal(found)
    return claim == fact or fact.startswith(f"{claim}_") or claim in fact.split("-")


def weight_only(bits: int, method: str) -> str:
    """`w4a16-awq`: weights in few bits, activations left at 16."""
    return f"w{bits}a16-{method}"
