"""The server's own description: what it says of requests and responses is what happens."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from serving import CHAT, folder, lm, serving, told  # noqa: F401

from unspool.apps.server import House, Limits
from unspool.apps.server.asking import MISPLACED, UNSUPPORTED, chat, completion
from unspool.apps.server.clients import Client
from unspool.apps.server.fields import Fields
from unspool.apps.server.spec import spec

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


def follow(schemathesis, served, examples, only=None):
    """Ask what the description allows and what it does not, and hold every answer against it."""
    from schemathesis import GenerationMode
    from schemathesis import checks as known
    from schemathesis.specs.openapi import checks

    described = schemathesis.openapi.from_dict(served.http.get("/openapi.json").json())
    wanted = [
        known.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]
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
                case.validate_response(answer, checks=wanted)

            hold()
    served.until(served.empty)
    return seen


def test_what_is_described_is_what_happens(schemathesis, served):
    seen = follow(schemathesis, served, SHORT)
    assert {200, 400} <= seen["POST /v1/chat/completions"].keys() | seen["POST /v1/completions"].keys()


@pytest.mark.slow
def test_what_is_described_is_what_happens_for_long(schemathesis, served):
    follow(schemathesis, served, 200)


@pytest.mark.parametrize(("path", "read"), [("/v1/chat/completions", chat), ("/v1/completions", completion)])
def test_every_field_that_is_read_is_described_and_none_besides(path, read):
    asked = set()

    class Noted(Fields):
        def raw(self, name):
            asked.update({name} if not self.inside else ())
            return super().raw(name)

    read(Noted({"messages": CHAT, "prompt": "a", "tools": []}), LIMITS, "plain")
    described = spec(House("little"), LIMITS, 258)["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    assert asked | {"model"} == set(described["schema"]["properties"]) | UNSUPPORTED.keys() | MISPLACED.keys()


def test_the_description_follows_the_house():
    open_, named = House("little"), House("little", clients=(Client("a", "secret"),), hosts=("localhost",))
    told = {house: spec(house, LIMITS, 258) for house in (open_, named)}
    assert "security" not in told[open_]
    assert told[named]["security"] == [{"key": []}]
    statuses = [set(told[house]["paths"]["/v1/models"]["get"]["responses"]) for house in (open_, named)]
    assert statuses == [{"200"}, {"200", "401", "403"}]
    assert "secret" not in json.dumps(told[named])
    fields = told[open_]["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert fields["properties"]["n"]["maximum"] == LIMITS.texts
