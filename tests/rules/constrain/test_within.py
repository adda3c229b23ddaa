"""Forms that must end in time: every text does, whatever the model would rather say, and drafts change nothing."""

from __future__ import annotations

import json
import re

import pytest
from letters import Letters

from unspool import Settings
from unspool.core.errors import BadRequest
from unspool.rules.constrain import choices, grammar, json_schema, regex

jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

AB = Letters(("a", "b", "ab", "(", ")", "aa", "a"))
NESTED = grammar('start: "(" start ")" start | "a"')


def ends(state, left, words=AB):
    """Every way to write on, as (tokens, whether it ended); a text that can neither go on nor end is a way too."""
    allowed = state.mask().nonzero().flatten().tolist()
    if not allowed or left == 0:
        yield (), False
    for token in allowed:
        if token in words.eos:
            yield (token,), True
        else:
            for rest, ended in ends(state.step(token), left - 1, words):
                yield (token, *rest), ended


@pytest.mark.parametrize(
    ("form", "pattern"),
    [(regex("a(b|ab)*\\)"), r"a(b|ab)*\)"), (regex("\\(*a*"), r"\(*a*"), (choices("ab", "(a)"), r"ab|\(a\)")],
)
@pytest.mark.parametrize("most", [4, 6, 8])
def test_every_text_ends_in_time_and_has_its_form(form, pattern, most):
    for tokens, ended in ends(form.within(most).fit(AB).start(), most):
        assert ended, tokens
        assert len(tokens) <= most
        assert re.fullmatch(pattern, AB.decode(tokens[:-1]))


def test_when_time_is_short_free_text_goes_on_in_words_alone():
    words = Letters(("a", '"', "\\", " a", "-", "a1"))
    state = json_schema({"type": "string"}).within(20).fit(words).start().step(1)
    seen = set()
    while not state.complete() and state.allows(0):
        seen.add(tuple(state.allows(token) for token in (0, 2, 3, 4, 5)))
        state = state.step(0)
    assert seen == {(True, True, True, True, True), (True, False, True, False, True)}


def test_states_keep_the_protocol():
    start = NESTED.within(8).fit(AB).start()
    for path in ((), (3,), (3, 3), (3, 0), (3, 0, 4)):
        state = start
        for token in path:
            state = state.step(token)
        mask = state.mask().tolist()
        assert [state.allows(t) for t in range(AB.size)] == mask
        assert state.complete() == any(mask[t] for t in AB.eos)
        for token in state.forced():
            assert state.mask().nonzero().flatten().tolist() == [token]
            state = state.step(token)
    dead = start.step(4)
    assert not dead.mask().any()
    assert not dead.complete()


def test_a_text_that_cannot_end_in_time_any_more_is_an_error_and_never_a_wrong_text():
    """Every bracket makes the way to an end three tokens longer, which the search cannot foresee."""
    for tokens, ended in ends(NESTED.within(8).fit(AB).start(), 8):
        assert not ended or (AB.decode(tokens[:-1]).count("(") == AB.decode(tokens[:-1]).count(")") and len(tokens) < 9)


def test_a_text_that_has_ended_with_its_last_token_is_complete():
    state = regex("ab?").within(2).fit(AB).start()
    state = state.step(int(state.mask().nonzero()[0]))
    assert state.step(min(AB.eos)).complete()


@pytest.mark.parametrize(
    ("form", "why"),
    [
        (lambda: regex("a").within(0), "a whole number of tokens from 1 on"),
        (lambda: regex("(ab){9}").within(5).fit(AB), "within 5 tokens"),
        (lambda: regex("(a").within(5).fit(AB), "unclosed group"),
    ],
)
def test_what_cannot_end_in_time_is_refused(form, why):
    with pytest.raises(BadRequest, match=why):
        form()


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "size": {"type": "integer"},
    },
    "required": ["name", "tags", "size"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.slow), 0.8])
def test_the_default_model_ends_in_time_and_drafts_change_nothing(smollm2, temperature):
    prompt = "A very long list of tags, as JSON:"
    free, short = (
        Settings(constraint=form, temperature=temperature, seed=3, max_tokens=32)
        for form in (json_schema(SCHEMA), json_schema(SCHEMA).within(32))
    )
    assert smollm2.generate(prompt, free).reason == "length"  # else this shows nothing
    plain = smollm2.generate(prompt, short)
    assert plain.reason == "eos"
    jsonschema.validate(json.loads(plain.text), SCHEMA)
    drafted = smollm2.generate(prompt, short, "forced")
    assert drafted.tokens == plain.tokens
    assert drafted.trace.forwards["target"] < plain.trace.forwards["target"]


def test_a_number_that_something_must_follow_can_end():
    """A search that likes figures best would write them until there is no room."""
    words = Letters(tuple('{}[]":,1a'))
    schema = {"properties": {"a": {"type": "number"}, "aa": {"type": "string"}}, "additionalProperties": False}
    form = json_schema({"type": "object", "required": ["a", "aa"], **schema})
    state = form.within(32).fit(words).start()
    for token in words.encode('{"a":1111'):
        assert state.allows(token)
        state = state.step(token)
    written = ""
    while not state.complete():
        token = next(t for t in words.encode('}",:a1') if state.allows(t))
        state, written = state.step(token), written + words.decode((token,))
    jsonschema.validate(json.loads('{"a":1111' + written), json.loads(form.source))


@pytest.mark.slow
def test_the_beginning_is_the_one_without_a_limit(smollm2):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    settings = [
        Settings(constraint=form, max_tokens=32) for form in (json_schema(schema), json_schema(schema).within(32))
    ]
    free, short = (smollm2.generate("A book with a long name, as JSON:", one, raw=True).tokens for one in settings)
    assert free[:6] == short[:6]
