"""The demo's stack is a real engine that forgets each prompt and ends when it is asked to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from servegate_action import client
from servegate_action.demo import model_path
from servegate_action.launch import Running
from tests.integration.launch.making import Place, process

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(model_path() is None, reason="the demo set is not installed: scripts/bootstrap demo"),
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    place = Place(tmp_path_factory.mktemp("engine"))
    words = ["-m", "servegate_action.demo.server", "--model", str(model_path()), "--port", "{port}"]
    words += ["--threads", "1", "--parallel", "2", "--ctx", "128", "--metrics"]
    with place.launch(process(sys.executable, *words, ready_s=120)) as running:
        yield running
    assert running.gone()
    assert "main loop exited" in place.log.read_text()


def test_it_says_what_it_serves(engine: Running) -> None:
    props = client.get_json(engine.ready.base_url + "/props")
    assert isinstance(props, dict)
    assert props["total_slots"] == 2
    assert props["model_ftype"] == "Q4_1"
    assert Path(str(props["model_path"])) == model_path()
    assert isinstance(client.get_text(engine.ready.base_url + "/metrics"), client.Answered)


def test_a_prompt_that_is_sent_twice_is_computed_twice_and_answered_alike(engine: Running) -> None:
    texts = set()
    for _ in range(2):
        body: client.Json = {"prompt": "The quick brown fox jumps over the lazy", "max_tokens": 4, "temperature": 0}
        reply = client.post_json(engine.ready.base_url + "/v1/completions", body)
        assert isinstance(reply, client.Answered)
        answer = reply.json()
        assert isinstance(answer, dict)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert answer["usage"]["completion_tokens"] == 4
        texts.add(answer["choices"][0]["text"])
    assert len(texts) == 1


def test_a_model_file_that_does_not_exist_is_said_in_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path)
    words = ["-m", "servegate_action.demo.server", "--model", "no.gguf", "--port", "{port}", "--threads", "1"]
    with pytest.raises(Exception, match="exit code 1") as failed, place.launch(process(sys.executable, *words)):
        pass
    assert "there is no model file no.gguf" in str(failed.value)
