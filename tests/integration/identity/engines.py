"""Servers that answer as the engines do: shapes taken from their documentation and from their own tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answers = Mapping[str, object]

VLLM_METRICS = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="llama"} 0.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",calculate_kv_scales="False",cpu_offload_gb="0",enable_prefix_caching="False",engine="0",gpu_memory_utilization="0.9",num_cpu_blocks="None",num_gpu_blocks="573",swap_space_bytes="4294967296"} 1.0
"""


def vllm(model: str, *, owned_by: str = "vllm") -> dict[str, object]:
    """Without dev mode: `/server_info` is a 404."""
    return {
        "/v1/models": {
            "object": "list",
            "data": [
                {
                    "id": "llama",
                    "object": "model",
                    "created": 1,
                    "owned_by": owned_by,
                    "root": model,
                    "parent": None,
                    "max_model_len": 8192,
                }
            ],
        },
        "/version": {"version": "0.33.1"},
        "/metrics": VLLM_METRICS,
    }


def vllm_dev(
    model: str, *, max_num_seqs: int = 64, dtype: str = "torch.bfloat16", quantization: str | None = None
) -> dict[str, object]:
    """With VLLM_SERVER_DEV_MODE=1."""
    return {
        **vllm(model),
        "/server_info?config_format=json": {
            "vllm_config": {
                "model_config": {"model": model, "dtype": dtype, "quantization": quantization, "max_model_len": 8192},
                "cache_config": {"cache_dtype": "auto", "enable_prefix_caching": False},
                "scheduler_config": {"max_num_seqs": max_num_seqs, "max_num_batched_tokens": 8192},
                "parallel_config": {"tensor_parallel_size": 1},
            },
            "vllm_env": {"VLLM_API_KEY": "s3cret"},
            "system_env": {},
        },
    }


def sglang(model: str, *, newer: bool = True) -> dict[str, object]:
    """`/server_info` (newer) or `/get_server_info`."""
    info = {
        "model_path": model,
        "tokenizer_path": model,
        "dtype": "auto",
        "quantization": None,
        "kv_cache_dtype": "auto",
        "mem_fraction_static": 0.836,
        "max_running_requests": 128,
        "max_total_tokens": 20480,
        "api_key": "s3cret",
        "attention_backend": "fa3",
        "tp_size": 1,
        "dp_size": 2,
        "status": "ready",
        "max_total_num_tokens": 20480,
        "internal_states": [
            {"effective_max_running_requests_per_dp": 48},
            {"effective_max_running_requests_per_dp": 48},
        ],
        "version": "0.5.9",
    }
    about = {"model_path": model, "tokenizer_path": model, "is_generation": True, "weight_version": "default"}
    models = {"object": "list", "data": [{"id": model, "object": "model", "owned_by": "sglang", "root": model}]}
    paths = ("/server_info", "/model_info") if newer else ("/get_server_info", "/get_model_info")
    return {"/v1/models": models, paths[0]: info, paths[1]: about}


def tensorrt_llm() -> dict[str, object]:
    """The metrics page is a JSON list of iterations, empty before the first request."""
    iteration = {
        "cpuMemUsage": 1,
        "gpuMemUsage": 76665782272,
        "iter": 154,
        "iterLatencyMS": 7.0,
        "kvCacheStats": {"cacheHitRate": 0.0, "freeNumBlocks": 101253, "tokensPerBlock": 32, "usedNumBlocks": 3},
        "numActiveRequests": 1,
        "maxNumActiveRequests": 64,
        "maxBatchSizeStatic": 64,
    }
    return {
        "/v1/models": {"object": "list", "data": [{"id": "llama", "object": "model", "owned_by": "tensorrt_llm"}]},
        "/version": {"version": "1.2.0"},
        "/metrics": [iteration],
    }


@contextmanager
def serving(answers: Answers) -> Iterator[str]:
    """A server on loopback that answers these paths (query included) and 404 to all others; its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            body = (found if isinstance(found, str) else json.dumps(found)).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
