"""JSON schemas: what is taken out of a grammar is checked, what nobody can check is refused, and no work is endless."""

import json

import pytest

from unspool.core.errors import BadRequest
from unspool.rules.constrain import cursor, json_schema, matcher
from unspool.rules.constrain.trial import under

pytest.importorskip("llguidance")
pytest.importorskip("jsonschema")
pytestmark = pytest.mark.usefixtures("one_thread")

WORDY = {  # at most so many words: expressions that make a lexer grow as it reads
    "type": "object",
    "properties": {
        name: {"type": "array", "items": {"type": "string", "maxLength": 300, "pattern": r"^(?:\S+\s+){0,99}\S+$"}}
        for name in "abc"
    },
}
SAID = {name: ["Ability to work closely with our team and many others " * 4 + "so"] * 3 for name in "abc"}


@pytest.fixture(scope="module")
def words(smollm2_path):
    from unspool.models.weights import open_checkpoint

    return open_checkpoint(smollm2_path).vocabulary()


class Raw(str):
    """A text that is JSON already."""


def after(constraint, data, words):
    state = constraint.start()
    for token in words.encode(data if isinstance(data, Raw) else json.dumps(data), special=False):
        state = state.step(token)
    return state


def agrees(schema, words, right=(), wrong=(), check=True):
    constraint = json_schema(schema, check).fit(words)
    return all(after(constraint, data, words).complete() for data in right) and not any(
        after(constraint, data, words).complete() for data in wrong
    )


# ---- long texts


def test_a_long_text_that_is_followed_without_masks_is_read_to_its_end(words):
    assert after(json_schema(WORDY).fit(words), SAID, words).complete()


def test_running_out_of_fuel_is_an_error_and_harms_no_other_text(words, monkeypatch):
    """Without masks in between the lexer gives up; that must not look like a text that breaks the grammar."""
    monkeypatch.setattr(cursor, "STRETCH", 10**9)
    monkeypatch.setattr(matcher, "SHORT", 0)  # a grammar that is remembered has its limits already
    monkeypatch.setattr(matcher, "limits", lambda: matcher.engine().LLParserLimits(step_lexer_fuel=100_000))
    constraint = json_schema(WORDY).fit(words)
    whole = int(constraint.start().mask().sum())
    with pytest.raises(BadRequest, match="cannot be followed any further"):
        after(constraint, SAID, words).complete()
    assert int(constraint.start().mask().sum()) == whole


def test_a_grammar_is_compiled_once_unless_it_is_a_strangers(words):
    ours = json_schema(WORDY).fit(words)
    assert json_schema(WORDY).fit(words) is ours
    tried = []
    with under(tried.append):
        assert json_schema(WORDY).fit(words) is not ours
    assert tried


@pytest.mark.parametrize(("quick", "lexers"), [(60.0, 3), (0.0, 1)])
def test_texts_that_are_written_together_do_not_wait_for_one_lexer(words, monkeypatch, quick, lexers):
    monkeypatch.setattr(matcher, "threads", lambda: 2)
    monkeypatch.setattr(matcher, "LEXERS", 3)
    monkeypatch.setattr(matcher, "SHORT", 0)
    monkeypatch.setattr(matcher, "QUICK", quick)
    constraint = json_schema({"enum": ["abc", "b"]}).fit(words)
    starts = [constraint.start() for _ in range(6)]
    assert len({id(start.cursor._original) for start in starts}) == lexers
    assert len({tuple(start.mask().nonzero().flatten().tolist()) for start in starts}) == 1


# ---- what a grammar cannot say


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "checked"),
    [
        ({"type": "string", "pattern": "^(?!ab)[a-c]+$"}, ["ba"], ["abc", "xy"], {"pattern"}),
        (
            {"patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}, "additionalProperties": False},
            [{"ab": 7}, {"a": 1}],
            [{"ab": 3}, {"c": 1}],
            {"patternProperties", "additionalProperties"},
        ),
        (
            {"type": "object", "minProperties": 2},
            [{"a": 1, "b": 2}],
            [{"a": 1}, Raw('{"a": 1, "a": 2}')],
            {"minProperties"},
        ),
        (
            {"properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"]}},
            [{"a": 1, "b": 1}, {"b": 1}],
            [{"a": 1}],
            {"dependencies"},
        ),
        (
            {"if": {"required": ["a"]}, "then": {"properties": {"a": {"type": "string", "format": "date"}}}},
            [{"a": "2024-02-29"}, {"b": 1}],
            [{"a": "2023-02-29"}],
            {"if", "then"},
        ),
        (
            {"$ref": "#/odd/place", "odd": {"place": {"not": {"const": 1}, "type": "integer"}}},
            [2],
            [1, "x"],
            {"not"},
        ),
        (
            {
                "$ref": "#/$defs/n",
                "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n", "maxProperties": 1}}, "type": "object"}},
            },
            [{"n": {"n": {}}}, {"n": {}, "x": 1}],
            [{"n": {"n": {}, "x": 1}}, {"n": 1}],
            {"maxProperties"},
        ),
    ],
)
def test_what_is_left_out_of_the_grammar_is_checked_at_the_end(words, schema, right, wrong, checked):
    report = json_schema(schema, check=True).report
    assert {use.keyword for use in report.checked} == checked
    assert agrees(schema, words, right, wrong)
    with pytest.raises(BadRequest):
        json_schema(schema).fit(words)


def test_keywords_that_are_younger_than_the_draft_are_checked_together(words):
    """jsonschema alone would ignore them in draft 4; the report says that they are checked."""
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "if": {"properties": {"a": {"const": 1}}},
        "then": {"required": ["b"]},
    }
    assert agrees(schema, words, [{"a": 2}, {"a": 1, "b": 1}], [{"a": 1}])


def test_a_format_that_nobody_can_tell_is_refused_even_with_a_check(words):
    """jsonschema would let anything pass."""
    with pytest.raises(BadRequest, match="'format' at /properties/a"):
        json_schema({"properties": {"a": {"format": "iri"}}, "not": {"required": ["b"]}}, check=True).fit(words)


def test_what_stands_beside_a_reference_means_what_the_draft_says(words):
    schema = {"properties": {"a": {"$ref": "#/definitions/l", "maxItems": 1}}, "definitions": {"l": {"type": "array"}}}
    old = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    new = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    assert agrees(old, words, [{"a": [1, 2]}], [{"a": 1}], check=False)
    assert agrees(new, words, [{"a": [1]}], [{"a": [1, 2]}, {"a": 1}], check=False)
    assert [str(use) for use in json_schema(old).report.unknown] == ["'maxItems' at /properties/a"]
    assert json_schema(new).report.unknown == ()


@pytest.mark.parametrize("check", [False, True])
def test_a_date_exists(words, check):
    """Inside the grammar, and where a format is only checked."""
    right = ["2024-02-29", "2000-02-29", "2023-12-31", "0400-02-29"]
    wrong = ["2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10", "24-02-29"]
    times = ["T23:59:60Z", "t15:59:60.5-08:00", "T10:00:00.123+05:30", "T00:59:60+01:00"]
    off = ["T22:59:60Z", "T23:58:60Z", "T24:00:00Z", "T10:00:00", "T15:59:60-07:00"]
    extra = {"not": {"const": 1}} if check else {}
    assert agrees({"type": "string", "format": "date", **extra}, words, right, wrong, check)
    late = {"type": "string", "format": "date-time", "pattern": "^2", **extra}
    day = "2024-02-29"
    assert agrees(late, words, [day + time for time in times], [day + time for time in off], check)
    assert not agrees(late, words, ["1999-01-01T10:00:00Z"], check=check)
    if check:
        inner = {"if": {"required": ["a"]}, "then": {"properties": {"a": {"type": "string", "format": "date"}}}}
        assert agrees(inner, words, [{"a": text} for text in right], [{"a": text} for text in wrong])


def test_a_host_name_has_253_letters_at_most(words):
    host = {"type": "string", "format": "hostname"}
    long = ".".join(["a" * 63] * 4)
    assert agrees(host, words, ["a.example", long[:253]], [long], check=False)
    assert agrees({**host, "maxLength": 5}, words, ["a.com"], ["ab.com"], check=False)


# ---- limits


def nested(depth):
    schema = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


LADDER = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}, {"$ref": f"#/$defs/a{i + 1}"}]} for i in range(40)}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(24)]},
        {"allOf": [{"anyOf": [{"minimum": i}, {"maximum": -i}, {"multipleOf": i + 2}]} for i in range(14)]},
        {"enum": [f"value number {i}" for i in range(100_000)]},
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(20_000)}},
        nested(400),
    ],
)
def test_what_would_grow_without_bounds_is_refused(words, schema, check):
    with pytest.raises(BadRequest, match=r"too large|too big|too deep|recursion limit"):
        json_schema(schema, check).fit(words)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a0", "$defs": {**LADDER, "a40": {"type": "integer"}}},  # 2⁴⁰ ways that are all the same
        {"type": "string", "minLength": 10**6, "maxLength": 10**9},
        {"type": "string", "pattern": "^((a{1,500}){1,500}){1,500}$"},
        {"enum": [f"value number {i}" for i in range(5000)]},
    ],
)
def test_what_only_looks_large_is_taken(words, schema):
    assert json_schema(schema).fit(words).start().mask().any()
