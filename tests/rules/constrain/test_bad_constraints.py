"""Constraints that cannot be used: each is refused with what is wrong with it, and no work is without bounds."""

from __future__ import annotations

import json

import pytest
from letters import Letters

from unspool.core.chance import Philox
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.stop import Stop
from unspool.rules.constrain import Constrained, choices, grammar, json_schema, regex
from unspool.rules.constrain.finite import endless
from unspool.rules.constrain.matcher import LONGEST
from unspool.rules.constrain.rules import endless as endless_rules
from unspool.rules.constrain.trie import Trie
from unspool.rules.decode import Speculate
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")

WORDS = Letters(("a", "b", "x", "y", "{", "}", "[", "]", '"', ":", ",", "1", " ", "\n"))


def nested(schema, depth):
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def chained(depth):
    """Every level holds two of the next, so that the smallest text has 2^depth parts."""
    names = [f"d{i}" for i in range(depth)]
    parts = {
        name: {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/d{i + 1}"} for key in "xy"},
            "required": ["x", "y"],
            "additionalProperties": False,
        }
        for i, name in enumerate(names)
    }
    return {"$defs": {**parts, f"d{depth}": {"const": 1}}, "$ref": "#/$defs/d0"}


def product(count):
    """Alternatives that have to be multiplied out: 2^count of them."""
    pairs = [[{"properties": {f"{key}{i}": {"type": "integer"}}} for key in "ab"] for i in range(count)]
    return {"allOf": [{"anyOf": pair} for pair in pairs]}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (product(24), "too large"),
        (nested({"type": "string"}, 400), "recursion limit"),
        ({"$ref": "#"}, "cannot be met"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "cannot be met"),
        ({"type": "integer", "minimum": 5, "maximum": 3}, r"minimum \(5\) is greater than maximum \(3\)"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "incompatible types"),
        ({"type": "object", "properties": [1]}, "properties must be an object"),
        ({"type": "object", "required": "a"}, "Expected array for 'required'"),
        ({"type": "string", "minLength": -1}, "Expected positive integer for 'minLength'"),
        ({"type": "string", "pattern": "(a"}, "unclosed group|pattern"),
    ],
)
def test_a_broken_or_exponential_schema_is_refused_and_says_why(schema, why):
    with pytest.raises(BadRequest, match=why):
        json_schema(schema).fit(WORDS)


def test_a_schema_that_is_nested_beyond_python_is_refused():
    with pytest.raises(BadRequest, match="nested too deeply"):
        json_schema(nested({}, 100_000))


def test_texts_that_are_exponential_are_refused_where_they_have_to_end():
    """A grammar of them is small, so it compiles; that no short text is found is told before a model is asked."""
    with pytest.raises(BadRequest, match="ends within 48 tokens"):
        json_schema(chained(30)).within(48).fit(WORDS)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ('start: x\nx: y "a"\ny: x "b"', "cannot be met"),  # left-recursive through another rule, and no way out
        ('start: x\nx: "a" y\ny: "b" x', "never ends"),
        ('start: "a"\nstart: "b"', "duplicate rule"),
        ('root ::= "a', "cannot be read"),
        ("start: /(a/", "unclosed group|cannot be used"),
        ("start: " + '"a" ' * (LONGEST // 4), "characters; expected at most"),
    ],
)
def test_a_broken_or_unsatisfiable_grammar_is_refused_and_says_why(source, why):
    with pytest.raises(BadRequest, match=why):
        grammar(source).fit(WORDS)


def linked(**more):
    """A list that never ends, unless more is said of it."""
    return {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["next"],
        **more,
    }


ENDLESS = {
    "a list": linked(),
    "each other": {
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        },
        "$ref": "#/$defs/a",
    },
    "a prefix": {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#"}], "minItems": 2},
    "every alternative": {"anyOf": [linked(), {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]},
    "a name that is not listed": {"type": "object", "required": ["x"], "additionalProperties": {"$ref": "#"}},
    "deep inside": {"type": "object", "properties": {"x": {"allOf": [{"$ref": "#"}]}}, "required": ["x"]},
}
ENDING = {
    "optional": {**linked(), "required": ["v"]},
    "null": linked(properties={"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}),
    "another kind": linked(type=["object", "null"]),
    "no kind": {"properties": {"next": {"$ref": "#"}}, "required": ["next"]},
    "few items": {"type": "array", "items": {"$ref": "#"}},
    "an enum": linked(properties={"next": {"enum": [1, {"next": 2}]}}),
    "a tree": {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["kids"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_schema_that_nothing_finite_meets_is_refused_before_a_text_is_begun(name):
    with pytest.raises(BadRequest, match="nothing finite does"):
        json_schema(ENDLESS[name]).fit(WORDS)


@pytest.mark.parametrize("name", ENDING)
def test_a_schema_with_a_way_out_is_not(name):
    json_schema(ENDING[name]).fit(WORDS)


def test_the_parts_that_need_themselves_are_named():
    with pytest.raises(BadRequest, match=r"themselves: the top, /\$defs/a, /\$defs/a/properties/b, /\$defs/b"):
        json_schema(ENDLESS["each other"]).fit(WORDS)


def test_a_long_chain_of_parts_is_solved_in_one_go():
    """Every part needs the next, and the last needs nothing, or the first: no pass over all of them for each."""
    last = {"type": "integer"}
    parts = {
        f"d{i}": {"type": "object", "properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}, "required": ["x"]}
        for i in range(4_000)
    }
    assert endless({"$defs": {**parts, "d4000": last}, "$ref": "#/$defs/d0"}) == ()
    assert len(endless({"$defs": {**parts, "d4000": {"$ref": "#/$defs/d0"}}, "$ref": "#/$defs/d0"})) == 8_002


@pytest.mark.parametrize(
    "source",
    [
        'start: "a" start | "b" start',
        'start: x | y\nx: ("a" | "b") y\ny: ("x" | "y") x+',
        'start: "a" (start | ("b" start)~2..3)',
        'root ::= "a" root | "b" root',
        'start: "a"? start{1,2}\n   | "b" [ "x" ] start // comment',
        "start: A start | B start\nA: /a/\nB: /b/",
    ],
)
def test_a_grammar_that_derives_nothing_finite_is_refused(source):
    with pytest.raises(BadRequest, match="cannot be met: it never ends"):
        grammar(source).fit(WORDS)


@pytest.mark.parametrize(
    "source",
    [
        'start: "a" start | "b"',
        'start: "a" start?',
        'start: "a" start*',
        'start: "a" start~0..2',
        'start: "a" start{0,2}',
        'start: "a" [start]',
        'start: "a" x\nx: "b" start |',
        'start: "a" x\nx: |  "b" start',
        'start: ("a" start\n | "b")',
        'start: /a|:/ | "|" start | "x".."y" start\n%ignore / /',
        'start: "a" x -> other | "b" start\n?x: "a"',
        'root ::= "a" root | [ab]',
    ],
)
def test_a_grammar_with_a_way_out_is_not(source):
    grammar(source).fit(WORDS)


@pytest.mark.parametrize("source", ["start: x\nx[max_tokens=3]: x x", "start: x\nx.2: x x", "start: %json {} start"])
def test_rules_in_a_notation_that_is_not_read_are_not_judged(source):
    assert endless_rules(source) == ()


def test_what_goes_beyond_a_limit_is_not_called_endless():
    """500 optional properties may follow the brace, more than the parser lets stand in one place."""
    open_object = {"type": "object", "properties": {f"a{i}": {"type": "integer"} for i in range(600)}}
    letters = Letters((*"abc0123456789{}[]:,. \n", '"'))
    with pytest.raises(BadRequest, match="one object may have about 490 of them") as refused:
        json_schema(open_object).fit(letters)
    for untrue in ("never ends", "recursive", "Parser"):
        assert untrue not in str(refused.value)
    few = dict(list(open_object["properties"].items())[:490])  # as many as the message says
    for closed in ({}, {"additionalProperties": False}):
        json_schema({"type": "object", "properties": few, **closed}).fit(letters)
    required = {**open_object, "required": list(open_object["properties"])}
    json_schema(required).fit(letters)


@pytest.mark.parametrize("make", [regex, grammar, choices], ids=lambda make: make.__name__)
def test_half_a_character_is_refused(make):
    with pytest.raises(BadRequest, match="surrogate"):
        make('start: "\ud800"').fit(WORDS)


def test_left_recursion_with_a_way_out_is_fine():
    state = grammar('start: x\nx: y "a" | "a"\ny: x "b"').fit(WORDS).start()
    for token in (0, 1, 0):
        assert state.allows(token)
        state = state.step(token)
    assert state.complete()


def test_an_empty_trie_is_refused():
    with pytest.raises(BadRequest, match="at least one sequence"):
        Trie((), WORDS)


@pytest.mark.parametrize("pattern", ["((a{1,1000}){1,1000}b){1,1000}", "(a|b)*a(a|b){1000}"])
def test_an_exponential_expression_is_followed_within_its_limits_or_refused(pattern):
    """Either every prefix has a mask, or the refusal says how far it went; nothing hangs."""
    assert followed(regex(pattern).fit(WORDS).start(), [0, 1] * 32 if "|" in pattern else [0] * 64) in ("", "refused")


def followed(state, tokens):
    try:
        for token in tokens:
            assert state.mask()[token]
            state = state.step(token)
    except BadRequest as refusal:
        return "refused" if "cannot be followed any further" in str(refusal) else str(refusal)
    return ""


def test_a_request_whose_constraint_leaves_nothing_fails_alone():
    """Two that exclude each other after one token end in an error; their neighbour in the batch does not notice."""
    size = WORDS.size
    model = Table(size, lambda text: [1.0] * size)
    engine = Engine({"target": model})
    good, bad = (Constrained(form.fit(WORDS)) for form in (regex("ab"), regex("aa") & regex("ab")))
    stop = Stop(tokens=WORDS.eos, most=8)
    jobs = [engine.submit(Speculate(), (0,), Philox(1), warp, stop) for warp in (good, bad, good)]
    engine.run()
    assert jobs[0].result().tokens[:2] == jobs[2].result().tokens[:2] == (0, 1)
    with pytest.raises(EmptyLaw, match="constraint leaves no token"):
        jobs[1].result()


def test_the_command_line_says_in_one_line_what_is_wrong_with_a_schema(tmp_path, loaded):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "integer", "minimum": 5, "maximum": 3}))
    code, out, err = loaded("run", "A number?", "--json-schema", str(file))
    assert code in (1, 2)
    assert out == ""
    (line,) = err.splitlines()
    assert "minimum (5) is greater than maximum (3)" in line
