"""The demo's stack: llama.cpp's own OpenAI-compatible server, out of the `xllamacpp` wheel, in the foreground.

    python -m servegate_action.demo.server --model FILE.gguf --port 8080 --threads 2 --parallel 4 --ctx 512

A real engine for any CPU, started like any other `process` stack. Nothing of a request survives it: `cache_prompt` is off
and idle slots keep nothing, so that no prompt is answered out of an earlier one's prefix. Continuous batching is on. It
refuses to serve anything but loopback, and to be more than a command line in front of the engine.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from servegate_action.errors import UsageError

_INSTALL = "pip install 'servegate[demo]'"
# the names that llama.cpp's command line gives to the types of its KV cache
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags, named as llama.cpp's server names them."""
    parser = argparse.ArgumentParser(prog="python -m servegate_action.demo.server", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="GGUF file")
    parser.add_argument("--alias", help="model name in requests; default: the file's name")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True, help="threads that compute")
    parser.add_argument("--parallel", type=int, default=4, help="slots: requests that run at once")
    parser.add_argument("--ctx", type=int, default=512, help="tokens of context per slot, prompt and answer together")
    parser.add_argument("--cache-type-k", choices=_CACHE_TYPES, default="f16")
    parser.add_argument("--cache-type-v", choices=_CACHE_TYPES, default="f16")
    parser.add_argument("--metrics", action="store_true", help="answer /metrics")
    return parser.parse_args(arguments)


def serve(told: argparse.Namespace) -> None:
    """Start the engine and stay until asked to end."""
    try:
        import xllamacpp
    except ImportError as error:
        raise UsageError(
            "the demo's engine is not installed: there is no module xllamacpp",
            why=str(error),
            next_step=_INSTALL,
        ) from error
    if not told.model.is_file():
        raise UsageError(f"there is no model file {told.model}")
    params = xllamacpp.CommonParams()
    params.model.path = str(told.model)
    params.model_alias = {told.alias or told.model.stem}
    params.port = told.port
    params.cpuparams.n_threads = told.threads
    params.cpuparams_batch.n_threads = told.threads
    params.n_parallel = told.parallel
    params.n_ctx = told.ctx * told.parallel
    params.kv_unified = False
    params.cache_type_k = _cache_type(xllamacpp, told.cache_type_k)
    params.cache_type_v = _cache_type(xllamacpp, told.cache_type_v)
    params.cont_batching = True
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_ctx_checkpoints = 0
    params.slot_prompt_similarity = 0.0
    params.endpoint_metrics = told.metrics
    params.n_gpu_layers = 0
    params.n_threads_http = told.parallel + 2
    params.ui = False
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    while True:
        signal.pause()


def _cache_type(xllamacpp: ModuleType, name: str) -> object:
    return getattr(xllamacpp.ggml_type, f"GGML_TYPE_{name.upper()}")


if __name__ == "__main__":
    serve(options(sys.argv[1:]))
