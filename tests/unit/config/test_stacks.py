"""GPUs that are named twice must be the same ones, wherever they are named."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from servegate_action.config.stacks import Stack

A, B = "GPU-aaaa-1", "GPU-bbbb-2"
IMAGE = "vllm@sha256:" + "b" * 64


def process(*env: str, uuids: tuple[str, ...] = (A,)) -> Stack:
    command = {"command": ["serve", "{port}"]}
    return Stack.model_validate({"label": "x", "process": command, "env": env, "gpu_uuids": uuids})


def container(gpus: object, *env: str, uuids: tuple[str, ...] = (A,)) -> Stack:
    inside = {"image": IMAGE, "gpus": gpus}
    return Stack.model_validate({"label": "x", "container": inside, "env": env, "gpu_uuids": uuids})


def refused(error: pytest.ExceptionInfo[ValidationError]) -> str:
    (found,) = error.value.errors()
    return found["msg"].removeprefix("Value error, ")


@pytest.mark.parametrize(
    "entry, why",
    [
        (f"CUDA_VISIBLE_DEVICES={A},{B}", f"{B} is not among them"),
        (f"CUDA_VISIBLE_DEVICES={B}", f"{B} is not among them"),
        ("CUDA_VISIBLE_DEVICES=GPU-bb", "GPU-bb is not among them"),
        ("CUDA_VISIBLE_DEVICES=0,1", "2 GPUs are visible then"),
        ("NVIDIA_VISIBLE_DEVICES=all", "all GPUs are visible then"),
        (f"NVIDIA_VISIBLE_DEVICES={A}, {B}", f"{B} is not among them"),
        ("NVIDIA_VISIBLE_DEVICES=MIG-1", "MIG-1 is not among them"),
    ],
)
def test_visible_gpus_that_are_not_the_declared_ones_are_refused(entry: str, why: str) -> None:
    with pytest.raises(ValidationError) as caught:
        process(entry)
    assert refused(caught) == (
        f"env says {entry}, and gpu_uuids says {A}: {why}. Name the same GPUs in both, or leave the variable out"
    )
    with pytest.raises(ValidationError):
        container("all", entry)


@pytest.mark.parametrize(
    "entry",
    [
        f"CUDA_VISIBLE_DEVICES={A}",
        "CUDA_VISIBLE_DEVICES=GPU-aaaa",  # CUDA takes the beginning of a UUID
        "CUDA_VISIBLE_DEVICES=0",  # which one that is shows only when it runs
        "CUDA_VISIBLE_DEVICES=0,-1",  # CUDA reads up to the first that does not exist
        "CUDA_VISIBLE_DEVICES=",
        "CUDA_VISIBLE_DEVICES",  # a variable of the job, which is not known here
        "NVIDIA_VISIBLE_DEVICES=void",
        "NVIDIA_VISIBLE_DEVICES=none",
        f"VISIBLE={A},{B}",
    ],
)
def test_what_does_not_contradict_is_left_alone(entry: str) -> None:
    assert process(entry).env == (entry,)


def test_fewer_visible_gpus_than_held_are_the_stacks_own_loss() -> None:
    assert process(f"CUDA_VISIBLE_DEVICES={A}", uuids=(A, B)).gpu_uuids == (A, B)


def test_without_gpu_uuids_there_is_nothing_to_contradict() -> None:
    assert process("CUDA_VISIBLE_DEVICES=0,1", uuids=()).gpu_uuids == ()
    assert container([A, B], uuids=()).gpu_uuids == ()


@pytest.mark.parametrize("gpus, said", [([B], B), ([A, B], f"{A}, {B}"), (2, "2")])
def test_a_container_is_given_the_gpus_that_its_stack_declares(gpus: object, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        container(gpus)
    assert refused(caught) == (
        f"container.gpus says {said}, and gpu_uuids says {A}: the container would be given others than the stack is said to "
        "hold. Write `gpus: all`, which gpu_uuids narrows, or name the same GPUs in both"
    )


@pytest.mark.parametrize("gpus", ["all", "none", 0, 1, [A], ["0"]])
def test_a_container_with_the_declared_gpus_is_good(gpus: object) -> None:
    assert container(gpus).gpu_uuids == (A,)
    assert container([B, A], uuids=(A, B)).gpu_uuids == (A, B)
