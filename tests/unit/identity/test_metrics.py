"""A server's metrics page as plain numbers."""

from __future__ import annotations

from servegate_action.identity.engines import clean, flatten
from servegate_action.identity.metrics import MOST, labels, parse

PAGE = """
# HELP vllm:num_requests_running Number of requests running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{le="0.1"} 5.0
vllm:time_to_first_token_seconds_sum 1.5
vllm:time_to_first_token_seconds_count 7 1700000000000
vllm:kv_cache_usage_perc NaN
vllm:cache_config_info{block_size="16",cache_dtype="auto",note="a \\"b\\", c"} 1.0
python_gc_objects_collected_total{generation="0"} 5.0
sglang:gen_throughput +Inf
llamacpp:n_busy_slots_per_decode 1.5
vllm:broken{
not a line at all
"""


def test_series_add_up_and_buckets_and_strangers_stay_out() -> None:
    assert parse(PAGE) == {
        "vllm:num_requests_running": 7.0,
        "vllm:time_to_first_token_seconds_sum": 1.5,
        "vllm:time_to_first_token_seconds_count": 7.0,
        "vllm:cache_config_info": 1.0,
        "llamacpp:n_busy_slots_per_decode": 1.5,
    }


def test_labels_of_an_info_metric() -> None:
    assert labels(PAGE, "vllm:cache_config_info")["cache_dtype"] == "auto"
    assert labels(PAGE, "vllm:none") == {}


def test_tensorrt_llms_list_is_its_last_iteration() -> None:
    text = '[{"iter": 1}, {"iter": 2, "kvCacheStats": {"usedNumBlocks": 3}, "ok": true, "name": "x"}]'
    assert parse(text) == {"trtllm:iter": 2.0, "trtllm:kvCacheStats.usedNumBlocks": 3.0}
    assert parse("[]") == {}
    assert parse("[broken") == {}


def test_a_hostile_page_stays_small() -> None:
    page = "".join(f"vllm:a{number} 1\n" for number in range(10_000))
    assert len(parse(page)) == MOST


def test_foreign_text_is_one_short_line_without_controls_and_without_secrets() -> None:
    assert clean("a\x1b[31mb\n\u202ec") == "a [31mb c"
    assert len(clean("x" * 10_000)) == 301
    found = flatten({"api_key": "s3cret", "a": {"hf_token": "s3cret", "b": 1, "none": None}, "bos_token": "<s>"})
    assert found == {"api_key": "***", "a.hf_token": "***", "a.b": "1", "bos_token": "<s>"}
    assert len(flatten({str(number): number for number in range(10_000)})) == 150
