"""Constraints that cannot be used: each is refused with what is wrong with it, and no work is without bounds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from letters import Letters

from unspool.chance import Philox
from unspool.constrain import Constrained, grammar, json_schema, regex
from unspool.constrain.matcher import LONGEST
from unspool.constrain.trie import Trie
from unspool.decode import Speculate
from unspool.errors import BadRequest, EmptyLaw
from unspool.run.engine import Engine
from unspool.run.table import Table
from unspool.stop import Stop

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


@pytest.mark.parametrize(
    "schema",
    [
        chained(30),
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], "additionalProperties": False},
    ],
)
def test_texts_that_are_exponential_or_endless_are_refused_where_they_have_to_end(schema):
    """A grammar of them is small, so it compiles; that no short text is found is told before a model is asked."""
    with pytest.raises(BadRequest, match="ends within 48 tokens"):
        json_schema(schema).within(48).fit(WORDS)


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


def test_the_command_line_says_in_one_line_what_is_wrong_with_a_schema(tmp_path, smollm2_path):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "integer", "minimum": 5, "maximum": 3}))
    command = [sys.executable, "-m", "unspool", "run", "A number?", "--json-schema", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ran.returncode in (1, 2)
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert "minimum (5) is greater than maximum (3)" in line
