"""Cold starts of llama.cpp with its weights in the page cache and dropped from it.

    python -m benchmarks.cold_start [--launches 5]

Starts the demo's engine in turns (as found, dropped, as found, …), with the file read once before each start that is
called warm. Prints, per launch, what became of the page cache and the seconds until the port was open, `/health` said 200
and the first token came; then the medians. Needs the demo set of scripts/bootstrap.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from servegate_action import client, demo, telemetry
from servegate_action.launch.ports import is_open, reserved_port


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=5, help="of each kind")
    options = parser.parse_args()
    demo.check_available()
    model = demo.model_path()
    assert model is not None
    seconds: dict[str, list[tuple[float, ...]]] = {"warm": [], "dropped": []}
    print(f"{'page cache':12} {'port':>7} {'health':>7} {'token':>7}   bytes resident at the start")
    for _ in range(options.launches):
        for kind, found in seconds.items():
            resident = prepare(model, kind)
            found.append(launch(model))
            print(f"{kind:12} " + " ".join(f"{value:6.2f}s" for value in found[-1]) + f"   {resident}", flush=True)
    for kind, found in seconds.items():
        medians = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"median {kind:8}" + " ".join(f"{value:6.2f}s" for value in medians))


def prepare(model: Path, kind: str) -> int | None:
    """Read the file, or drop it; bytes that are in the page cache afterwards."""
    if kind == "warm":
        model.read_bytes()
        return telemetry.page_cache.resident_bytes(model)
    dropped = telemetry.drop_page_cache([model])
    assert dropped.condition == "dropped", dropped.reason
    return dropped.resident_after


def launch(model: Path) -> tuple[float, float, float]:
    """Seconds until the port was open, the server healthy, the first token there."""
    with reserved_port() as port:
        pass
    command = (sys.executable, "-m", "servegate_action.demo.server", "--model", str(model), "--port", str(port))
    started = time.monotonic()
    process = subprocess.Popen([*command, "--threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while not is_open("127.0.0.1", port):
            assert process.poll() is None
            time.sleep(0.002)
        opened = time.monotonic() - started
        while not getattr(client.get_text(f"{url}/health"), "ok", False):
            time.sleep(0.002)
        healthy = time.monotonic() - started
        answer = client.one_token(url)
        assert isinstance(answer, client.OneToken), answer
        return opened, healthy, time.monotonic() - started
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
