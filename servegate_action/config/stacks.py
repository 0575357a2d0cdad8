"""`model` and `stacks` of `.servegate.yml`: what is served, and the two ways to serve it.

It refuses to start anything (`launch` does), to read back what a server says of itself (`identity` does), and a stack whose
GPUs are named twice and are not the same ones.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from servegate_action.config.base import EnvEntry, EnvName, Model, Positive, PositiveInt
from servegate_action.records import Side


class ServedModel(Model):
    """Which model both stacks serve."""

    name: str = Field(min_length=1, description="the model's name; also the default of `served_model` in requests")
    path: str | None = Field(default=None, description="weights on disk (a file or a folder); hashed")
    revision: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{40}$", description="pinned 40-hex commit, taken as declared"
    )
    quantization: str | None = Field(default=None, description="declared weight quantization, e.g. bf16, fp8, q4_1")
    batch_size: PositiveInt | None = Field(default=None, description="how many requests both servers may run at once")


class Engine(StrEnum):
    """Which read-back a stack understands."""

    AUTO = "auto"
    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    LLAMA_CPP = "llama.cpp"
    OTHER = "other"


class ProcessStack(Model):
    """A stack started as a child process. `{port}` in command, env and health stands for the free port it is given."""

    command: tuple[str, ...] = Field(min_length=1)
    cwd: str | None = None


class ContainerStack(Model):
    """A stack started as a sibling container through the Docker Engine API."""

    image: str = Field(min_length=1, description="by digest (name@sha256:…) unless `allow_tag: true`")
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    volumes: tuple[str, ...] = Field(default=(), description="host:container[:ro]")
    gpus: Literal["all", "none"] | int | tuple[str, ...] = Field(
        default="none", description="all, none, a count, or UUIDs"
    )
    port: PositiveInt = Field(default=8000, description="the port that the server listens on inside the container")
    shm_size: str = "16g"
    ipc_host: bool = False
    user: str | None = None
    allow_tag: bool = Field(default=False, description="accept an image by tag, as one that is built on the machine")

    @model_validator(mode="after")
    def _pinned(self) -> ContainerStack:
        if "@sha256:" not in self.image and not self.allow_tag:
            raise ValueError(
                f"the image {self.image} is named by a tag, which may be another image tomorrow: name it by digest "
                "(name@sha256:…), or set `allow_tag: true` beside `image` for one that is built here"
            )
        return self


class EndpointStack(Model):
    """A stack that already runs and is not launched by servegate."""

    url: str = Field(pattern=r"^https?://[^\s/?#]+(:\d+)?(/[^\s?#]*)?$")
    launches: Literal["unknown", "fixed"] = Field(
        default="unknown",
        description="`fixed`: these two launches are what will serve; without it at best INCONCLUSIVE",
    )
    api_key_env: EnvName | None = Field(default=None, description="name of the variable that holds the bearer token")


class Stack(Model):
    """One way to serve the model behind an OpenAI-compatible API: exactly one of process, container, endpoint."""

    label: str = Field(min_length=1, max_length=80)
    process: ProcessStack | None = None
    container: ContainerStack | None = None
    endpoint: EndpointStack | None = None
    engine: Engine = Engine.AUTO
    served_model: str | None = Field(default=None, description="model name in requests; default: model.name")
    env: tuple[EnvEntry, ...] = Field(default=(), description="NAME (passed on, masked) or NAME=value")
    gpu_count: PositiveInt = Field(default=1, description="accelerators that this stack holds")
    gpu_uuids: tuple[str, ...] = Field(default=(), description="their UUIDs; default: all that are visible")
    gpu_pool: str | None = Field(default=None, description="pool or node type, when the two stacks need different ones")
    quantization: str | None = Field(default=None, description="declared for this stack where it cannot be read back")
    batch_size: PositiveInt | None = Field(
        default=None, description="declared for this stack where it cannot be read back"
    )
    health: str | None = Field(default=None, description="path that answers 200 once healthy, e.g. /health")
    ready_timeout_s: Positive = 900.0
    stop_timeout_s: Positive = 30.0

    @model_validator(mode="after")
    def _exactly_one(self) -> Stack:
        given = [kind for kind in ("process", "container", "endpoint") if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"exactly one of process, container, endpoint is needed; found {found}")
        if self.process is not None and not any("{port}" in word for word in (*self.process.command, *self.env)):
            raise ValueError(
                "the process is not told its port: servegate picks a free one for each launch; say it in the command, as in "
                '[python, serve.py, --port, "{port}"], or in env, as in [PORT={port}]'
            )
        return self

    @model_validator(mode="after")
    def _same_gpus(self) -> Stack:
        if self.gpu_uuids:
            declared = ", ".join(self.gpu_uuids)
            for entry in self.env:
                why = _beyond(entry, self.gpu_uuids)
                if why is not None:
                    raise ValueError(
                        f"env says {entry}, and gpu_uuids says {declared}: {why}. Name the same GPUs in both, or leave the "
                        "variable out"
                    )
            if self.container is not None and not _given(self.container.gpus, self.gpu_uuids):
                gpus = self.container.gpus
                said = ", ".join(gpus) if isinstance(gpus, tuple) else gpus
                raise ValueError(
                    f"container.gpus says {said}, and gpu_uuids says {declared}: the container would be given others than "
                    "the stack is said to hold. Write `gpus: all`, which gpu_uuids narrows, or name the same GPUs in both"
                )
        return self


def _beyond(entry: str, uuids: tuple[str, ...]) -> str | None:
    """Why the GPUs that a variable makes visible are more than these, or others; None where they are not, or nobody knows.

    CUDA takes the beginning of a UUID, and reads a list up to the first number that is no device. Which GPU a number is
    shows only when it runs: there the sampler looks.
    """
    name, told, value = entry.partition("=")
    if name not in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") or not told:
        return None
    names = [word.strip() for word in value.split(",")]
    names = [word for word in names[: names.index("-1") if "-1" in names else None] if word]
    if "all" in names:
        return "all GPUs are visible then"
    foreign = [word for word in names if _is_uuid(word) and not any(uuid.startswith(word) for uuid in uuids)]
    if foreign:
        return f"{foreign[0]} is not among them"
    return f"{len(names)} GPUs are visible then" if len(names) > len(uuids) else None


def _given(gpus: str | int | tuple[str, ...], uuids: tuple[str, ...]) -> bool:
    """Whether a container that asks for these may be given the declared ones. Which a number or a count means, nobody knows."""
    if isinstance(gpus, str):
        return True
    if isinstance(gpus, tuple) and all(map(_is_uuid, gpus)):
        return set(gpus) == set(uuids)
    return (gpus if isinstance(gpus, int) else len(gpus)) in {0, len(uuids)}


def _is_uuid(word: str) -> bool:
    return word.startswith(("GPU-", "MIG-"))


class Stacks(Model):
    """The two sides of the comparison."""

    baseline: Stack
    candidate: Stack

    def of(self, side: Side) -> Stack:
        """The stack of one side."""
        return self.baseline if side is Side.BASELINE else self.candidate
