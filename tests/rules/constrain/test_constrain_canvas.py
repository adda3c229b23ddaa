"""Constraints on canvases: whatever is filled in whatever order, the text meets them, or an error says why not."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from letters import Letters
from listed import Listed
from proposing import ended

from unspool.api.settings import Settings
from unspool.core.canvas import HOLE, Canvas, Field, Status
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp import Same, Temperature
from unspool.loops.denoise_state import DenoiseState
from unspool.rules.constrain import Constrained, choices, grammar, json_schema, keywords, regex, until
from unspool.rules.constrain.closing import Closing
from unspool.rules.constrain.context_free import cfg
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, FixedBlocks, one
from unspool.rules.unmask.lave import Lave
from unspool.rules.unmask.outlook import Outlook
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

pytest.importorskip("llguidance")

WORDS = Letters(("(", ")"), controls=0, ends=1)
NEST = grammar('start: "(" start ")" start |')
RULES = cfg({"S": ["( S ) S", ""]})


def nested(text: str) -> bool:
    depth = 0
    for letter in text:
        depth += 1 if letter == "(" else -1
        if depth < 0:
            return False
    return depth == 0


def weights(text: tuple[int, ...]) -> list[float]:
    mixed = sum((i + 1) * (token + 1) for i, token in enumerate(text))
    return [(mixed * k + 3 * k + mixed) % 5 + 1 for k in range(3)]


def texts_of(method, constraint, size, warp=None, most=3000):
    """The exact law of what a method writes, as strings, each checked to be a text with at most one end, at its end."""
    table = Table(3, weights)
    stop = Stop(WORDS.eos, most=size, piece=WORDS.piece)

    def program(chance):
        engine = Engine({"target": table})
        job = engine.submit(method, (0,), chance, Constrained(constraint) | (warp or Same()), stop)
        engine.run()
        return job.result()

    law: dict[str, float] = {}
    for done, mass in Every(most=most).law(program).items():
        assert not WORDS.eos & set(done.tokens[:-1])
        text = WORDS.decode(done.tokens)
        law[text] = law.get(text, 0) + mass
    return law


@pytest.mark.parametrize("form", [NEST, RULES], ids=["left to right", "with holes"])
@pytest.mark.parametrize(
    ("method", "size", "warp"),
    [
        (Denoise(Confident(0.5), size=3), 3, None),
        (Denoise(Confident(0.3), size=3, blocks=FixedBlocks(2)), 3, Temperature(0.5)),
        (Denoise(Confident(0.2), size=6, blocks=FixedBlocks(3)), 6, Temperature(0.0)),
        (Denoise(one, size=2), 2, None),
    ],
    ids=["confident", "parallel", "blocks", "any order"],
)
def test_every_branch_ends_in_a_text_that_meets_the_grammar(form, method, size, warp):
    law = texts_of(method, form.fit(WORDS), size, warp)
    assert all(nested(text) for text in law)
    assert sum(law.values()) == pytest.approx(1)


def test_without_a_constraint_the_check_sees_the_wrong_texts():
    """The same model and methods write what is not nested, if nothing keeps them."""
    law = texts_of(Denoise(Confident(0.5), size=3), regex(r"[()]*").fit(WORDS), 3)
    assert sum(mass for text, mass in law.items() if not nested(text)) > 0.3


@pytest.mark.parametrize("method", [Denoise(one, size=2), Denoise(Confident(0.4), size=3)], ids=["one", "confident"])
def test_a_constraint_that_allows_everything_changes_nothing(method):
    stop = Stop(WORDS.eos, most=method.size, piece=WORDS.piece)

    def law(warp):
        def program(chance):
            engine = Engine({"target": Table(3, weights)})
            job = engine.submit(method, (0,), chance, warp, stop)
            engine.run()
            return job.result()

        return Every(most=4000).law(program)

    free = {d.tokens: mass for d, mass in law(Same()).items()}
    kept = {d.tokens: mass for d, mass in law(Constrained(regex(r"[()]*").fit(WORDS))).items()}
    assert total_variation(free, kept) < 1e-12


# ---- the guard by hand


def guard_of(form, size, words=WORDS):
    stop = Stop(words.eos, most=size, piece=words.piece)
    canvas = Canvas.blank((0,), size)
    return ended(Lave.of(form.fit(words), canvas, stop)), canvas


def sight_of(canvas, rows, temperature=None):
    """A look with these weights at the holes, left to right."""
    laws = {i: Law.of(row) for i, row in zip(canvas.holes, rows, strict=True)}
    return DenoiseState(canvas, Field(laws), Same() if temperature is None else Temperature(temperature), Philox(0))


OPEN, SHUT, END = [9, 1, 1], [1, 9, 1], [1, 1, 9]


def test_what_agrees_with_the_model_and_the_grammar_is_taken_as_it_is():
    guard, canvas = guard_of(NEST, 4)
    filled = ended(guard(sight_of(canvas, [OPEN, OPEN, SHUT, SHUT], 0.0), canvas, [1, 2, 3, 4], Status.DRAFT))
    assert filled.tokens == (0, 0, 0, 1, 1)


def test_a_proposal_without_a_way_to_an_end_is_replaced_by_the_next_best():
    guard, canvas = guard_of(NEST, 2)
    filled = ended(guard(sight_of(canvas, [SHUT, OPEN], 0.0), canvas, [1], Status.DRAFT))
    assert filled.tokens[1] == 0
    filled = ended(guard(sight_of(filled, [OPEN], 0.0), filled, [2], Status.DRAFT))
    assert filled.tokens == (0, 0, 1)


def test_an_end_stands_only_where_the_text_before_it_can_be_whole():
    guard, canvas = guard_of(RULES, 4)
    filled = ended(guard(sight_of(canvas, [OPEN, OPEN, END, SHUT], 0.0), canvas, [3], Status.DRAFT))
    assert filled.tokens[3] == 2  # "()" fits before it
    guard, canvas = guard_of(RULES, 4)
    filled = ended(guard(sight_of(canvas, [OPEN, END, OPEN, SHUT], 0.0), canvas, [2], Status.DRAFT))
    assert filled.tokens[2] != 2  # one letter does not


def test_what_is_forced_is_filled_along():
    guard, canvas = guard_of(choices("(())", "()"), 6)
    filled = ended(guard(sight_of(canvas, [OPEN, OPEN, OPEN, OPEN, OPEN, OPEN], 0.0), canvas, [2], Status.DRAFT))
    assert filled.tokens[1:5] == (0, 0, 1, 1)


def test_a_second_thought_that_breaks_the_text_is_undone():
    guard, canvas = guard_of(NEST, 2)
    state = sight_of(canvas, [OPEN, SHUT], 0.0)
    filled = ended(guard(state, canvas, [1, 2], Status.DRAFT))
    changed = filled.fill({1: 1}, Status.DRAFT)
    mended = ended(guard.mend(state, filled, changed))
    assert mended.tokens == (0, 0, 1)
    assert mended.step == changed.step
    emptied = ended(guard.mend(state, filled, filled.remask([1])))
    assert emptied.tokens == (0, HOLE, 1)
    assert ended(guard(sight_of(emptied, [SHUT], 0.0), emptied, [1], Status.DRAFT)).tokens == (0, 0, 1)


def test_a_second_thought_that_leaves_a_way_to_an_end_stands():
    guard, canvas = guard_of(regex(r"[()]*"), 2)
    state = sight_of(canvas, [OPEN, SHUT], 0.0)
    filled = ended(guard(state, canvas, [1, 2], Status.DRAFT))
    assert ended(guard.mend(state, filled, filled.fill({1: 1}, Status.DRAFT))).tokens == (0, 1, 1)


def test_second_thoughts_end_after_some_that_came_to_nothing(monkeypatch):
    """Each of them takes a search, and there may be one for every place."""
    guard, canvas = guard_of(choices("()()()()"), 8)
    state = sight_of(canvas, [OPEN, SHUT] * 4, 0.0)
    filled = ended(guard(state, canvas, range(1, 9), Status.DRAFT))
    searched, completed = list[int](), Lave._completed

    def counted(self, outlook, text):
        searched.append(1)
        return (yield from completed(self, outlook, text))

    monkeypatch.setattr(Lave, "_completed", counted)
    guard.patience = 2
    changed = filled.fill({i: 1 - filled.tokens[i] for i in (1, 2, 3, 4, 5)}, Status.DRAFT)
    assert ended(guard.mend(state, filled, changed)).tokens == filled.tokens
    assert len(searched) == 2


def test_a_guard_that_has_nothing_to_fill_makes_a_step_all_the_same():
    guard, canvas = guard_of(NEST, 2)
    filled = ended(guard(sight_of(canvas, [OPEN, SHUT], 0.0), canvas, [], Status.DRAFT))
    assert filled.tokens == canvas.tokens
    assert filled.step == canvas.step + 1


@pytest.mark.parametrize(
    ("form", "size"),
    [
        (regex(r"\({5}"), 4),
        (regex(r"[()]{7}"), 6),
        (choices("()()()"), 5),
        (keywords("((((("), 4),
        (RULES & regex(r"\(+"), 5),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_asked(form, size):
    with pytest.raises(BadRequest, match=rf"up to {size} tokens"):
        guard_of(form, size)


def test_a_canvas_without_an_end_token_is_filled_to_its_last_place():
    endless = RULES.fit(Letters(("(", ")"), controls=0, ends=0))
    guard = ended(Lave.of(endless, Canvas.blank((0,), 4), Stop(most=4)))
    assert len(guard.witness) == 4
    assert nested(WORDS.decode(guard.witness))
    with pytest.raises(BadRequest, match="up to 3 tokens"):
        ended(Lave.of(endless, Canvas.blank((0,), 3), Stop(most=3)))


def test_two_constraints_on_one_canvas_are_refused():
    twice = Constrained(NEST.fit(WORDS)) | Constrained(NEST.fit(WORDS))
    engine = Engine({"target": Table(3, weights)})
    job = engine.submit(Denoise(one, size=2), (0,), Philox(0), twice, Stop(WORDS.eos, most=2))
    engine.run()
    with pytest.raises(BadRequest, match="join them with &"):
        job.result()


# ---- texts with holes, exactly

TWO = Letters(("(", ")", "[", "]", "()", "("))  # one token of two letters, and two tokens of the same letter
DYCK = {"S": ["( S ) S", "[ S ] S", ""]}


def dyck(text: str) -> bool:
    stack: list[str] = []
    for letter in text:
        if letter in "([":
            stack.append(letter)
        elif not stack or stack.pop() != {")": "(", "]": "["}[letter]:
            return False
    return not stack


@pytest.mark.parametrize("length", range(5))
def test_holes_of_one_token_are_counted_exactly(length):
    """Against all texts of this length: a text with holes can be completed if and only if one of them fits."""
    fitted = cfg(DYCK).fit(TWO)
    words = [text for text in itertools.product(range(5), repeat=length) if dyck(TWO.decode(text))]
    for text in itertools.product((HOLE, 0, 1, 2, 4), repeat=length):
        fits = any(all(a in (HOLE, b) for a, b in zip(text, word, strict=True)) for word in words)
        found = fitted.filled(text)
        assert (found is not None) == fits
        if found is not None:
            assert dyck(TWO.decode(found))
            assert all(a in (HOLE, b) for a, b in zip(text, found, strict=True))


def test_a_token_that_is_known_stays_that_token():
    assert cfg(DYCK).fit(TWO).filled((5, HOLE)) == (5, 1)


def test_adding_a_token_never_makes_a_text_possible():
    fitted = cfg({"S": ["a S b", "a b"]}).fit(Letters(("a", "b")))
    for text in itertools.product((HOLE, 0, 1), repeat=6):
        if fitted.filled(text) is None:
            known = [(*text[:i], x, *text[i + 1 :]) for i in range(6) if text[i] == HOLE for x in (0, 1)]
            assert all(fitted.filled(more) is None for more in known)


def test_left_to_right_it_is_the_grammar_that_llguidance_reads():
    ours, theirs = (
        cfg(DYCK).fit(TWO).start(),
        grammar('start: "(" start ")" start | "[" start "]" start |').fit(TWO).start(),
    )

    def compare(a, b, depth):
        assert a.mask().tolist() == b.mask().tolist()
        assert a.complete() == b.complete()
        if depth:
            for token in a.mask().nonzero().flatten().tolist():
                compare(a.step(token), b.step(token), depth - 1)

    compare(ours, theirs, 3)


def test_rules_that_derive_nothing_are_refused():
    with pytest.raises(BadRequest, match="no text at all"):
        cfg({"S": ["a S"]}).fit(Letters(("a",)))
    with pytest.raises(BadRequest, match="rules"):
        cfg({})


# ---- on real tokens

SMALL = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1},
    },
    "required": ["id", "tags"],
    "additionalProperties": False,
}

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 2},
        "note": {"type": "string", "minLength": 12},
        "sub": {"type": "object", "properties": {"x": {"type": "number", "minimum": 100}}, "required": ["x"]},
    },
    "required": ["id", "tags", "note", "sub"],
    "additionalProperties": False,
}


def test_a_short_way_to_an_end_is_found_from_anywhere(smollm2):
    jsonschema = pytest.importorskip("jsonschema")
    words = smollm2.vocabulary
    closing = Closing(words.size, words.eos, words.piece)
    whole = '{"id": "ABC-1234", "tags": ["red", "green", "red"], "note": "what a lovely day", "sub": {"x": 123.5}}'
    tokens = words.encode(whole)
    state = json_schema(SCHEMA).fit(words).start()
    assert closing.find(state, 8) is None
    for at in range(len(tokens) + 1):
        if at % 5 == 0:
            found = closing.find(state, 64)
            assert found is not None, words.decode(tokens[:at])
            jsonschema.validate(json.loads(words.decode((*tokens[:at], *found))), SCHEMA)
            assert len(found) <= len(tokens) - at + 12
        state = state.step(tokens[at]) if at < len(tokens) else state


@pytest.mark.parametrize(
    ("form", "room", "pattern"),
    [
        (keywords("rain"), 16, "rain"),
        (keywords("umbrella", ("dog", "cat")), 16, "umbrella.*(dog|cat)|(dog|cat).*umbrella"),
        (until("</t>").then(regex("[0-9]{3}")), 20, "</t>[0-9]{3}$"),
        (keywords("rain") & regex("[a-z ]{4,60}"), 16, "^[a-z ]*rain[a-z ]*$"),
        (choices("no") | keywords("antidisestablishmentarianism"), 16, "^no$|antidisestablishmentarianism"),
    ],
    ids=["a word", "two words", "a trigger", "a word in a form", "either"],
)
def test_a_text_is_found_that_has_what_a_constraint_waits_for(smollm2, form, room, pattern):
    words = smollm2.vocabulary
    stop = Stop(words.eos, most=room, piece=words.piece)
    guard = ended(Lave.of(form.fit(words), Canvas.blank((1,), room), stop))
    assert re.search(pattern, words.decode([x for x in guard.witness if x not in words.eos]), re.DOTALL)
    assert len(guard.witness) <= 12


@pytest.mark.parametrize(
    ("allowed", "count", "without", "expected"),
    [
        ((2, 7, 9), 1, (), [2]),
        ((2, 7, 9), 9, (), [2, 7, 9]),
        ((7, 9, 31), 2, (), [7, 9]),
        ((7, 9), 2, (7,), [9]),
        ((31, 33), 1, (31,), [33]),
        ((), 2, (), []),
    ],
)
def test_the_likeliest_tokens_that_may_stand_in_a_hole(allowed, count, without, expected):
    """Found among the first few, among those that are tried, and among all: each with its log-probability."""
    law = Law(torch.arange(40.0, 0.0, -1.0))
    outlook = Outlook(DenoiseState(Canvas.blank((1,), 2), Field({1: law}), Same(), Philox(0)))
    found = outlook.best(1, Listed(frozenset((token,) for token in allowed), 40), count, without)
    assert [token for token, _ in found] == expected
    assert [p for _, p in found] == pytest.approx([law.logprob(token) for token in expected])


@pytest.mark.parametrize(
    "method",
    [Denoise(Confident(0.9), blocks=FixedBlocks(8)), Denoise(Confident(0.06), blocks=FixedBlocks(12))],
    ids=["blocks", "parallel"],
)
def test_a_model_of_noise_writes_valid_json_on_a_canvas(smollm2, method):
    """Nearly every proposal is wrong; what comes out validates all the same."""
    jsonschema = pytest.importorskip("jsonschema")
    words = smollm2.vocabulary
    noise = torch.randn(32, words.size, generator=torch.Generator().manual_seed(0)) * 3

    class Noise:
        vocab = words.size

        def look(self, asked):
            return [Field.of(ask.look.places, noise[[i - 2 for i in ask.look.places]], rows=1) for ask in asked]

    options = Settings(constraint=json_schema(SMALL), max_tokens=24)
    engine = Engine({"target": Noise()})
    job = engine.submit(method, (1, 2), Philox(0), options.warp(words), options.stop_rule(words))
    engine.run()
    jsonschema.validate(json.loads(words.decode(job.result().tokens)), SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_diffusion_model_writes_what_a_schema_accepts(smollm2, temperature):
    import unspool

    jsonschema = pytest.importorskip("jsonschema")
    lm = unspool.load("smollm2-diffusion", dtype="fp32", device="cpu")
    options = Settings(constraint=json_schema(SMALL), temperature=temperature, max_tokens=32)
    output = lm.generate([{"role": "user", "content": "Answer in JSON."}], options, "confident")
    jsonschema.validate(json.loads(output.text), SMALL)
