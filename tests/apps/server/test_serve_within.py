"""`decoding.within`: a text with a form is complete in time, and what cannot be so is refused before it is begun."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import json

import pytest
from serving import CHAT, folder, lm, served  # noqa: F401

from unspool import json_schema
from unspool.apps.server.timely import REACH, Timely

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "notes": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "notes"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"schema": PERSON}}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("within", [30, 60])
def test_a_text_is_complete_within_so_many_tokens(served, within, seed):
    asked = {"messages": CHAT, "max_tokens": 80, "seed": seed, "temperature": 1, "response_format": FORMAT}
    cut = served.post("/v1/chat/completions", **asked).json()["choices"][0]
    assert cut["finish_reason"] == "length"  # or the little model would close it by itself
    answer = served.post("/v1/chat/completions", **asked, decoding={"within": within}).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert answer["usage"]["completion_tokens"] <= within
    jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)


def test_it_goes_with_a_method_and_several_texts(served):
    asked = {"prompt": "a", "max_tokens": 40, "n": 2, "response_format": {"type": "regex", "regex": "[a-z ]+\\."}}
    answer = served.post("/v1/completions", **asked, decoding={"within": 12, "method": "lookup"}).json()
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "stop"]
    assert all(choice["text"].endswith(".") for choice in answer["choices"])
    assert answer["usage"]["completion_tokens"] <= 24


@pytest.mark.parametrize(
    ("more", "within", "why"),
    [
        ({}, 8, "expected a response_format"),
        ({"response_format": {"type": "text"}}, 8, "expected a response_format"),
        ({"response_format": {"type": "items", "items": "any"}}, 8, "expected a response_format"),
        ({"response_format": FORMAT}, 41, "at most max_tokens, which is 40"),
        ({"response_format": FORMAT}, 3, "no text of this form was found that ends within 3 tokens; allow more"),
        ({"response_format": FORMAT}, 0, "decoding.within is 0"),
        ({"response_format": FORMAT}, 2**40, "decoding.within is 1099511627776"),
        ({"response_format": FORMAT}, "8", "decoding.within is '8'"),
        ({"tools": [{"type": "function", "function": {"name": "now"}}]}, 8, "none beside tools"),
    ],
)
def test_what_cannot_be_closed_is_refused(served, more, within, why):
    asked = {"messages": CHAT, "max_tokens": 40, **more, "decoding": {"within": within}}
    answer = served.post("/v1/chat/completions", **asked)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert why in error["message"]
    assert error["param"] == "decoding.within"


def test_a_form_that_is_too_long_to_look_through_is_refused_or_left_open(lm):
    long = json_schema({"type": "array", "items": {"type": "integer"}, "minItems": 400})
    with pytest.raises(Exception, match=f"ends within {REACH} tokens; leave it out"):
        Timely(long, 4000).fit(lm.vocabulary)
    assert Timely(long, 4000, optional=True).fit(lm.vocabulary).start().mask().any()


def test_no_search_is_longer_than_its_reach(lm, monkeypatch):
    from unspool.rules.constrain.closing import Closing

    rooms = []
    find = Closing.find
    monkeypatch.setattr(Closing, "find", lambda self, state, room, *rest: rooms.append(room) or find(self, state, room))
    state = Timely(json_schema({"type": "array", "items": {"type": "integer"}}), 1000).fit(lm.vocabulary).start()
    for _ in range(990):
        state = state.step(int(state.mask().nonzero()[0]))
        state.mask()
    assert max(rooms) < REACH
    assert len(rooms) > 1
