"""llama.cpp's own server inside a container: `--model FILE.gguf --port 8080 --threads 2 --parallel 4 --ctx 512`.

The flags are named as llama.cpp's server names them. Like the demo's stack, but reachable from the container's network.
"""

from __future__ import annotations

import argparse
import signal
import threading

import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--ctx", type=int, default=512)
    told = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = told.model
    params.model_alias = {told.alias}
    params.hostnames = ["0.0.0.0"]
    params.port = told.port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = told.threads
    params.n_parallel = told.parallel
    params.n_ctx = told.ctx * told.parallel
    params.kv_unified = False
    params.cont_batching = True
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_ctx_checkpoints = 0
    params.slot_prompt_similarity = 0.0
    params.endpoint_metrics = True
    params.n_gpu_layers = 0
    params.n_threads_http = told.parallel + 2
    params.ui = False
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    ended.wait()


main()
