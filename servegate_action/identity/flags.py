"""What the flags of a launch command say: model, numbers, batch cap, for the engines that we know.

A command that servegate itself started with a known engine's own entry point is proof of what that engine was told. The
same flags on an unknown program only declare it. Flags come as `--name value`, `--name=value`, with `-` or `_` inside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from servegate_action.config.stacks import Engine
from servegate_action.identity.facts import Fact, Numbers, claimed, proven
from servegate_action.identity.formats import normal

_ENTRY_POINTS: tuple[tuple[Engine, tuple[str, ...]], ...] = (
    (Engine.VLLM, ("vllm", "vllm.entrypoints.openai.api_server", "vllm/vllm-openai")),
    (Engine.SGLANG, ("sglang", "sglang.launch_server", "lmsysorg/sglang")),
    (Engine.TENSORRT_LLM, ("trtllm-serve", "tensorrt-llm", "tensorrt_llm")),
    (Engine.LLAMA_CPP, ("llama-server", "servegate_action.demo.server", "llama.cpp", "ggml-org/llama.cpp")),
)
_MODEL = {
    Engine.VLLM: ("--model",),
    Engine.SGLANG: ("--model-path", "--model"),
    Engine.TENSORRT_LLM: ("--model",),
    Engine.LLAMA_CPP: ("--model", "-m"),
}
_CAP = {
    Engine.VLLM: ("--max-num-seqs",),
    Engine.SGLANG: ("--max-running-requests",),
    Engine.TENSORRT_LLM: ("--max-batch-size",),
    Engine.LLAMA_CPP: ("--parallel", "-np"),
}
_OPTION_FILES = ("--config", "--extra-llm-api-options")
"""Flags that name a file of further options (vLLM, SGLang, TensorRT-LLM)."""
_POSITIONAL = {"serve": Engine.VLLM, "trtllm-serve": Engine.TENSORRT_LLM}


@dataclass(frozen=True, slots=True)
class Flags:
    """A launch command, understood as far as its engine is known.

    `entry` is true for the engine's own program, told by nothing but its flags: a file of options may say anything.
    """

    command: tuple[str, ...]
    engine: Engine
    entry: bool

    @property
    def model(self) -> str | None:
        """The model's path or name."""
        named = self.value(*_MODEL.get(self.engine, ("--model", "--model-path", "-m")))
        return named or self._positional()

    @property
    def cap(self) -> int | None:
        """How many requests may run at once."""
        text = self.value(*_CAP.get(self.engine, ()))
        return int(text) if text is not None and text.isdigit() else None

    @property
    def numbers(self) -> Numbers:
        """The quantization tuple's parts that flags decide."""
        if self.engine is Engine.LLAMA_CPP:
            return Numbers(kv_cache=self._llama_cache())
        return Numbers(
            weights=self._fact("--quantization", "-q"),
            kv_cache=self._fact("--kv-cache-dtype"),
            compute=self._fact("--dtype"),
        )

    def value(self, *names: str) -> str | None:
        """The value of the last of these flags in the command."""
        wanted = {_plain(name) for name in names}
        found = None
        for index, word in enumerate(self.command):
            name, equals, rest = word.partition("=")
            if not name.startswith("-") or _plain(name) not in wanted:
                continue
            if equals:
                found = rest
            elif index + 1 < len(self.command):
                found = self.command[index + 1]
        return found

    def _fact(self, *names: str) -> Fact | None:
        return self._known(self.value(*names), f"launch flag {names[0]}")

    def _known(self, value: object, source: str) -> Fact | None:
        make: Callable[[object, str], Fact | None] = proven if self.entry else claimed
        return make(value, source)

    def _llama_cache(self) -> Fact | None:
        """llama.cpp keeps keys and values in types of their own, F16 unless told otherwise (its own default)."""
        key, value = self.value("--cache-type-k", "-ctk"), self.value("--cache-type-v", "-ctv")
        if key is None and value is None:
            return self._known("f16", "llama.cpp's default KV cache type") if self.entry else None
        key, value = normal(key or "f16"), normal(value or "f16")
        return self._known(key if key == value else f"k={key},v={value}", "launch flags --cache-type-k, --cache-type-v")

    def _positional(self) -> str | None:
        """`vllm serve MODEL`, `trtllm-serve MODEL` (or `trtllm-serve serve MODEL`)."""
        words = [word.rpartition("/")[2] for word in self.command]
        for index, word in enumerate(words[:-1]):
            following = self.command[index + 1 :]
            if word == "trtllm-serve" and following[0] == "serve":
                following = following[1:]
            if _POSITIONAL.get(word) is self.engine and following and not following[0].startswith("-"):
                return following[0]
        return None


def read_flags(command: Sequence[str], *, image: str | None, engine: Engine) -> Flags:
    """Understand a command. `engine` is what the configuration or the server says; AUTO looks at the words."""
    program = tuple(command) if image is None else (repository(image), *command)
    recognised = next((known for known, names in _ENTRY_POINTS if _starts(program, names)), None)
    actual = recognised if engine in (Engine.AUTO, Engine.OTHER) and recognised is not None else engine
    told = Flags(tuple(command), actual, entry=recognised is not None and recognised is actual)
    return replace(told, entry=False) if told.value(*_OPTION_FILES) is not None else told


def repository(image: str) -> str:
    """An image without its tag and digest; a registry may have a port."""
    return re.sub(r":[^/]*$", "", image.partition("@")[0])


def _starts(program: Sequence[str], names: Sequence[str]) -> bool:
    """An entry point among the words before the first flag, a module after `-m`, or the image."""
    words: list[str] = []
    for index, word in enumerate(program):
        if word.startswith("-") and word != "-m" and index > 0 and words:
            break
        words.append(word)
    return any(
        word == name or word.endswith(f"/{name}") or (("/" in name) and f"/{word}".endswith(f"/{name}"))
        for word in words
        for name in names
    )


def _plain(name: str) -> str:
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name
