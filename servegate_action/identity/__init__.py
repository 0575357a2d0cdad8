"""What a stack is: the same model, the same quantization, the same batch size, and the same answers?

Weights are hashed (`weights`, `hashing`, `volume`), heads of weight files and launch flags are read (`gguf`, `hub`,
`flags`), the engine is asked what it says of itself (`engines`), and answers are compared (`numerics`). Every fact comes
with how well it is known. This room refuses to take a declaration for a proof, to load a model, and to judge.
"""

from __future__ import annotations

from servegate_action.identity.hashing import hash_files
from servegate_action.identity.identify import Subject, identify
from servegate_action.identity.metrics import server_metrics
from servegate_action.identity.numerics import compare_answers, compare_logprobs, long_prompts, probe_prompts
from servegate_action.identity.volume import VolumeReader
from servegate_action.identity.weights import ModelHash, hash_model

__all__ = [
    "ModelHash",
    "Subject",
    "VolumeReader",
    "compare_answers",
    "compare_logprobs",
    "hash_files",
    "hash_model",
    "identify",
    "long_prompts",
    "probe_prompts",
    "server_metrics",
]
