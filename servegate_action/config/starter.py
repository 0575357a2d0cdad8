"""The two files that `servegate config init` writes: a commented starter gate and a workflow that runs it.

Both are plain text with few holes; a test loads the one and lints the other, so that a new user begins with files that
work. A release cannot know its own commit, so that the workflow leaves that hole open and names the version beside it.
"""

from __future__ import annotations

from servegate_action import __version__

GATE_FILE = ".servegate.yml"
WORKFLOW_FILE = ".github/workflows/servegate.yml"

GATE = """\
# servegate gate. Check it with `servegate config check`; every key is explained by `servegate config schema`.
version: 1
gate: my-model                              # names the status servegate/my-model; require that status

model:
  name: my-org/my-model                     # sent as `model` in every request
  path: /srv/models/my-model                # weights: hashed, must be the same on both sides
  quantization: bf16                        # declared; what the server or the files reveal counts more
  batch_size: 64                            # requests that both servers may run at once

stacks:
  baseline:                                 # in use today
    label: vLLM
    container:
      image: vllm/vllm-openai@sha256:0000000000000000000000000000000000000000000000000000000000000000
      command: [--model, /model, --served-model-name, my-org/my-model, --max-num-seqs, "64"]
      volumes: ["/srv/models/my-model:/model:ro"]
      gpus: all
  candidate:                                # proposed by the pull request
    label: my build
    process: {command: [python, serve.py, --port, "{port}"]}
    ready_timeout_s: 1800
    env: [HF_HUB_OFFLINE=1]                 # NAME passes a variable on, masked; nothing else of the runner is passed

workload:                                   # your traffic: prompt and output lengths, requests in flight, weights
  seed: 7
  cells:
    - {name: chat, prompt_tokens: 512, output_tokens: 256, concurrency: [1, 16], weight: 6}
    - {name: rag, prompt_tokens: 8000, output_tokens: 256, concurrency: 16, weight: 3}
    - {name: long, prompt_tokens: 32000, output_tokens: 512, concurrency: 4, weight: 1, requests: 100}

rounds: {min: 4, max: 8, budget_minutes: 240}   # a fresh start of each stack per round; looks after 4, 6, 8

limits: {}                                  # defaults: tok/s and cost 2%, p95 TPOT 3%, p95 TTFT 5%, in each cell 3/5/10%
# limits: {ttft_p95: 8%, cells: {ttft_p95: 15%}, advisory: [gpu_utilization]}
# slo: {ttft_p95_ms: 500, tpot_p95_ms: 50}  # absolute; broken means rejected

# cost:                                     # without prices, row 6 speaks in GPU-seconds
#   gpu_hour_usd: 2.50
#   traffic: {requests_per_hour: 900}
#   idle: {baseline: keep_warm, candidate: keep_warm}
"""

WORKFLOW = f"""\
name: servegate
on:
  pull_request:
  merge_group:
  workflow_dispatch:
permissions: {{}}
concurrency:
  group: servegate-gpu-pool                 # one measurement at a time on this GPU pool, none is cancelled
  cancel-in-progress: false
jobs:
  gate:
    # Measuring a pull request runs its code on the GPU host: branches of this repository only.
    if: github.event_name != 'pull_request' || github.event.pull_request.head.repo.full_name == github.repository
    runs-on: [self-hosted, gpu]
    timeout-minutes: 300
    permissions:
      contents: read
      pull-requests: write                  # the comment
      statuses: write                       # the status to require
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with:
          persist-credentials: false
      - uses: servegate/servegate@<commit-of-the-release> # v{__version__}
        with:
          config: .servegate.yml
      - if: always()
        uses: actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a # v7.0.1
        with:
          name: servegate-report
          path: servegate-report
"""
