"""The server's own description: what it says of requests and responses is what happens."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from serving import folder, lm, serving, told  # noqa: F401

from unspool.apps.server import Limits, ServerConfig, Worker, application
from unspool.apps.server.bodies import MISPLACED, UNSUPPORTED, ChatRequest, CompletionRequest
from unspool.apps.server.clients import Client

LIMITS = Limits(tokens=6, texts=3, body=1 << 22, seconds=60)
SHORT = 4  # examples of each kind for each route; the longer run has more


@pytest.fixture(scope="module")
def served(lm):
    with serving(lm, LIMITS, keys=("key",), methods=("lookup", "suffix:depth=4")) as made:
        made.http.headers["authorization"] = "Bearer key"
        yield made


@pytest.fixture(scope="module")
def schemathesis():
    return pytest.importorskip("schemathesis", minversion="4")


def wanted():
    """What is looked at in every answer."""
    from schemathesis import checks as known
    from schemathesis.specs.openapi import checks

    return [
        known.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]


def follow(schemathesis, served, examples, only=None):
    """Ask what the description allows and what it does not, and hold every answer against it."""
    from schemathesis import GenerationMode

    described = schemathesis.openapi.from_dict(served.http.get("/openapi.json").json())
    seen = {}
    for found in described.get_all_operations():
        operation = found.ok()
        wrong = [GenerationMode.NEGATIVE] if operation.method == "post" else []  # else there is nothing to get wrong
        for mode in [GenerationMode.POSITIVE, *wrong]:

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=examples == SHORT,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def hold(case):
                answer = case.call(base_url=str(served.http.base_url), headers={"authorization": "Bearer key"})
                seen.setdefault(case.operation.label, Counter())[answer.status_code] += 1
                case.validate_response(answer, checks=wanted())

            hold()
    served.until(served.empty)
    return seen


def test_what_is_described_is_what_happens(schemathesis, served):
    seen = follow(schemathesis, served, SHORT)
    assert {200, 400} <= seen["POST /v1/chat/completions"].keys() | seen["POST /v1/completions"].keys()


@pytest.mark.parametrize("logprobs", [None, 1])
def test_streams_and_figures_are_as_described(schemathesis, served, logprobs):
    described = schemathesis.openapi.from_dict(served.http.get("/openapi.json").json())
    asked = {"prompt": "a", "max_tokens": 3, "logprobs": logprobs}
    for body in (asked, asked | {"stream": True, "stream_options": {"include_usage": True}}):
        case = described["/v1/completions"]["POST"].Case(body=body, media_type="application/json")
        answer = case.call(base_url=str(served.http.base_url), headers={"authorization": "Bearer key"})
        assert answer.status_code == 200
        case.validate_response(answer, checks=wanted())


@pytest.mark.slow
def test_what_is_described_is_what_happens_for_long(schemathesis, served):
    follow(schemathesis, served, 200)


def spec(lm, **config):
    """The description of a server that is set up so."""
    app = application(Worker(lm, LIMITS), ServerConfig("little", **config))
    assert app.openapi() is app.openapi()  # made once, however often somebody asks
    return app.openapi()


def fields(told, kind):
    return told["components"]["schemas"][kind]["properties"]


def test_every_field_that_is_read_is_described_and_none_besides(lm):
    described = spec(lm)
    for kind, also in ((ChatRequest, ("messages", "tools")), (CompletionRequest, ("prompt", "best_of"))):
        known = {field.alias or name for name, field in kind.model_fields.items()}
        assert known == set(fields(described, kind.__name__))
        assert {"model", "temperature", "stop", "decoding", *also} <= known
        assert not known & (UNSUPPORTED.keys() | MISPLACED.keys())


def test_the_description_follows_the_config(lm):
    open_, named = spec(lm), spec(lm, clients=(Client("a", "secret"),), hosts=("localhost",), methods=("lookup",))
    assert "security" not in open_
    assert named["security"] == [{"key": []}]
    assert named["paths"]["/healthz"]["get"]["security"] == []
    statuses = [set(told["paths"]["/v1/models"]["get"]["responses"]) for told in (open_, named)]
    assert statuses == [{"200"}, {"200", "401", "403"}]
    assert "secret" not in json.dumps(named)
    assert "422" not in json.dumps(named)
    asked = fields(named, "CompletionRequest")
    assert asked["n"]["anyOf"][0]["maximum"] == LIMITS.texts
    assert asked["model"]["anyOf"][0]["enum"] == ["little"]
    assert [each.get("maxItems") for each in asked["prompt"]["anyOf"]] == [None, LIMITS.texts, None, LIMITS.texts]
    assert asked["prompt"]["anyOf"][2]["items"]["maximum"] == lm.vocabulary.size - 1
    assert fields(named, "Decoding")["method"]["anyOf"][0]["enum"] == ["plain", "lookup"]
