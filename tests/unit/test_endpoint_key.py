"""The key of an endpoint: which variables may hold it, and which may not be sent anywhere."""

from __future__ import annotations

import pytest

from servegate_action.config.stacks import Stack
from servegate_action.errors import UsageError
from servegate_action.measure.stack import headers

TOKEN = "ghs_of-the-job"


def endpoint(key: str | None) -> Stack:
    return Stack.model_validate({"label": "remote", "endpoint": {"url": "https://evil.example", "api_key_env": key}})


def test_the_key_that_the_endpoint_names_is_sent_as_a_bearer() -> None:
    assert headers(endpoint("SERVER_KEY"), {"SERVER_KEY": "k3y"}) == {"Authorization": "Bearer k3y"}
    assert headers(endpoint(None), {"SERVER_KEY": "k3y"}) == {}


def test_a_key_that_is_not_set_is_asked_for_by_name() -> None:
    with pytest.raises(UsageError, match="SERVER_KEY"):
        headers(endpoint("SERVER_KEY"), {})


def test_the_jobs_token_under_another_name_is_sent_to_no_endpoint() -> None:
    with pytest.raises(UsageError, match="holds the same as a variable that belongs to the job"):
        headers(endpoint("SERVER_KEY"), {"SERVER_KEY": TOKEN, "INPUT_GITHUB-TOKEN": TOKEN})
