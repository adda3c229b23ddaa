"""What is drafted, filled and cut, as docstrings say: laws under warps, no favoured order, no stop string in a text."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from canvases import Scripted

from unspool.core.canvas import Canvas, Field
from unspool.core.chance import At, Every, Philox, Role
from unspool.core.law import Law, chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.verifier import sample_match
from unspool.core.warp import Frequency, Same, Temperature
from unspool.core.warp.forbid import NoRepeatNgram
from unspool.core.warp.warp import Prefix, Warp
from unspool.loops.denoise_state import DenoiseState
from unspool.loops.plain import Plain
from unspool.loops.speculate import Speculate
from unspool.loops.unmasker import Rule
from unspool.models.vocabulary import TextStream
from unspool.recipes.methods import method
from unspool.rules.constrain.parted import timely
from unspool.rules.decode import Denoise
from unspool.rules.draft import RSDC, RSDS, Chain, Coupled, Phrase, SpecInfer
from unspool.rules.unmask import Confident, one
from unspool.rules.verify import block, multipath, rejection, traversal
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine


def weights(text, salt=0):
    mixed = salt + sum((place + 2) * (token + 1) for place, token in enumerate(text))
    return [1.0 + (mixed + token * token) % 5 for token in range(4)]


TABLE = Table(4, weights)


def proposed(draft, prefix, chance, table=TABLE):
    """The tree that a drafter makes with this table."""
    proposing, session, reply = draft.begin(prefix).propose(prefix, 12, chance), table.open(prefix.text), None
    try:
        while True:
            ask = proposing.send(reply)
            reply = table.score([ScoreRequest(session, ask.tree)])[0] if hasattr(ask, "tree") else None
    except StopIteration as end:
        return end.value


@pytest.mark.parametrize("draft", [Chain(3), Coupled(3), RSDC((2, 1)), SpecInfer(2, 3), RSDS(2, 2)], ids=str)
def test_tokens_are_drafted_under_the_warps_of_their_own_prefix(draft):
    """Else a draft is right about what the model would say, and not about what the request will."""
    prefix, deep = Prefix.of((0, 1, 2), Frequency(1.5) | Temperature(0.5)), 0
    for seed in range(4):
        tree = proposed(draft, prefix, Philox(seed))
        for node, (_, law) in enumerate(tree.drawn):
            above = tree.tokens(tree.path(node)[:-1])
            deep += bool(above)
            whole = prefix.then(above).shape(TABLE.law((*prefix.text, *above)))
            elder = [tree.drawn[kid].token for kid in tree.kids(tree.parent[node]) if kid < node]
            expected = whole.without(*elder) if elder and isinstance(draft, (RSDC, RSDS)) else whole
            assert law.p.tolist() == pytest.approx(expected.p.tolist(), abs=1e-12)
    assert deep


def test_a_coupled_draft_of_the_model_itself_always_stands():
    """It draws with the numbers that plain decoding will use at these positions."""
    engine = Engine({"target": TABLE, "draft": TABLE})
    job = engine.submit(Speculate(Coupled(3)), (0, 1), Philox(5), Temperature(1.2), Stop(most=12))
    engine.run()
    assert job.trace.accepted_tokens == job.trace.drafted > 6


COUNTING = Table(4, lambda text: [float(token == (text[-1] + 1) % 4) for token in range(4)])


def test_phrases_go_on_from_the_end_of_the_draft():
    """And not from the end of the text, though they hang below the draft."""
    prefix = Prefix.of((0, 1, 2, 3, 0, 1, 2, 3, 0), Same())
    tree = proposed(Phrase(Chain(1), phrases=1, length=2), prefix, Philox(0), COUNTING)
    assert [tree.tokens(tree.path(node)) for node in range(len(tree))] == [(1,), (1, 2), (1, 2, 3)]


@pytest.mark.parametrize(
    ("spec", "nodes"), [("phrase:depth=2,phrases=1,length=3", 5), ("cascade:depth=1,ngram=2,copied=4", 5)]
)
def test_a_recipe_leaves_room_for_all_that_its_options_ask_for(spec, nodes):
    """A text that counts is foreseen by draft model, phrases and copies alike, so every round drafts all it may."""
    engine = Engine({"target": COUNTING, "draft": COUNTING})
    job = engine.submit(method(spec), (0, 1, 2, 3, 0, 1, 2, 3, 0), Philox(0), stop=Stop(most=40))
    engine.run()
    assert max(emit.drafted for emit in job.emitted) == nodes


def test_of_equal_siblings_the_first_is_found():
    tree = Tree(tuple(chosen(x) for x in (2, 1, 2, 3, 3)), (ROOT, ROOT, ROOT, 0, 2))
    assert [tree.child(ROOT, token) for token in (1, 2, 3)] == [1, 0, None]
    assert tree.end((2, 3)) == 3


LAST = 3  # the token that ends a text, or the stop string that it spells
ENDS = {
    "token": Stop(tokens=frozenset({LAST})),
    "string": Stop(strings=("d",), piece=lambda token: b"abcd"[token:][:1]),
}


@pytest.mark.parametrize("stop", ENDS)
@pytest.mark.parametrize(
    "decoder",
    [
        *(Speculate(Coupled(3), verify) for verify in (sample_match, rejection)),
        *(Speculate(Chain(3), verify) for verify in (rejection, block, traversal)),
        Speculate(RSDC((2, 1)), rejection),
        Speculate(SpecInfer(2, 3), multipath),
    ],
    ids=lambda each: f"{type(each.draft).__name__}-{each.verify.__name__}",
)
def test_what_ends_the_text_may_be_drafted_where_warps_leave_nothing_behind_it(decoder, stop):
    """No token may come twice: the end is the last there is, so behind it is no law, and none is needed."""

    def law(method):
        def text(chance):
            engine = Engine({"target": TABLE, "draft": TABLE})
            job = engine.submit(method, (0,), chance, NoRepeatNgram(1), ENDS[stop])
            engine.run()
            return job.result().tokens

        return Every().law(text)

    expected, found = law(Plain()), law(decoder)
    assert (1, 2, LAST) in expected
    assert found.keys() == expected.keys()
    assert [found[text] for text in expected] == pytest.approx(list(expected.values()), abs=1e-12)


# ---- canvases


def test_holes_are_filled_in_every_order_alike():
    def order(chance):
        canvas, filled = Canvas.blank((0,), 3), []
        while canvas.holes:
            state = DenoiseState(canvas, Field({i: Law.of([1.0]) for i in canvas.holes}), Same(), chance)
            (place,) = one(state)
            filled.append(place)
            canvas = canvas.fill({place: 0})
        return tuple(filled)

    found = Every().law(order)
    assert len(found) == 6
    assert list(found.values()) == pytest.approx([1 / 6] * 6)


def test_a_warp_hears_of_the_prompt_once_and_of_every_filled_place_before_a_hole():
    canvas = Canvas.blank((0, 0, 1), 3).fill({3: 2})
    even = Law.of([1.0] * 4)
    state = DenoiseState(canvas, Field(dict.fromkeys(canvas.holes, even)), Frequency(1.0), Philox(0))
    for place in (4, 5):  # what was written is the 2; the prompt is not
        assert state.law(place).scores.tolist() == pytest.approx([0, 0, -1, 0])


class Prompted(Warp):
    """Forbids the tokens of the prompt, which is all it remembers."""

    def start(self, text):
        return tuple(text)

    def __call__(self, state, law):
        return law.without(*set(state))


def test_a_warp_that_remembers_the_prompt_is_told_the_prompt_and_no_more():
    canvas = Canvas.blank((0, 0, 1), 3).fill({3: 2})
    even = Law.of([1.0] * 4)
    state = DenoiseState(canvas, Field(dict.fromkeys(canvas.holes, even)), Prompted() | Temperature(1.0), Philox(0))
    for place in (4, 5):
        assert state.law(place).p.tolist() == pytest.approx([0, 0, 0.5, 0.5])


@pytest.mark.parametrize("renewed", [False, True])
def test_a_hole_is_drawn_with_the_number_of_its_place_unless_it_may_be_drawn_again(renewed):
    """Then each look has a number of its own, or a revised token could never change."""
    chance, even, seen = Philox(3), Law.of([1.0] * 50), []
    for step in range(6):
        canvas = replace(Canvas.blank((0,), 2), step=step)
        seen.append(DenoiseState(canvas, Field({1: even, 2: even}), Same(), chance, renewed).draw(2).token)
    if renewed:
        assert len(set(seen)) > 3
    else:
        assert set(seen) == {even.invert(chance.uniform(At(2, Role.PICK)))}


class Doubt(Rule):
    """Leaves the first fill alone, looks again at place 2, masks it, and is content with what comes then."""

    looks = 2

    def __init__(self):
        self.calls = 0

    def begin(self):
        return Doubt()

    def asks(self, canvas):
        return [2] if self.calls == 1 else []

    def __call__(self, state, canvas):
        self.calls += 1
        return canvas.remask([2]) if self.calls == 2 else canvas


def test_a_token_that_was_revised_comes_with_the_law_of_its_last_look():
    model = Scripted({1: (0, 0.9), 2: (1, 0.9)}, {2: (2, 0.8)}, {2: (3, 0.7)})
    engine = Engine({"target": model})
    job = engine.submit(Denoise(Confident(0.0), 2, remask=Doubt()), (4,), Philox(0), Temperature(0.0), Stop(most=2))
    engine.run()
    assert job.result().tokens == (0, 3)
    before = [law for emit in job.emitted for law in emit.before]
    assert [law[law.best] for law in before] == pytest.approx([0.9, 0.7])
    assert [law.best for law in before] == [0, 3]


# ---- stops

PIECES = [b"ab", b"c", b"x\xc3", b"\xa9b", b"abc", b"a"]


def test_what_is_left_is_counted_from_here():
    stop = Stop(most=5)
    tail = stop.cut(stop.start(), (1, 2)).tail
    assert stop.left(stop.start()) == 5
    assert stop.left(tail) == 3


class Anything:
    """A constraint that allows every token, at any time."""

    def start(self):
        return self

    def step(self, token):
        return self

    def mask(self):
        return torch.ones(4, dtype=torch.bool)

    def allows(self, token):
        return True

    def forced(self):
        return (1, 1, 1, 1)

    def complete(self):
        return True


def test_the_last_token_of_a_constrained_text_ends_it():
    state = timely(Anything(), Stop(frozenset({3}), most=3))
    for left in (3, 2):
        assert state.mask().tolist() == [True] * 4
        assert state.allows(1)
        assert len(state.forced()) == left
        state = state.step(1)
    assert state.mask().tolist() == [False, False, False, True]
    assert [state.allows(token) for token in range(4)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [((0, 1), ""), ((2, 3, 5, 0, 1), "xéba"), ((5, 4), "a"), ((3, 0, 0, 1), "\ufffdbab"), ((2, 0, 1), "x\ufffd")],
)
def test_a_text_that_ends_with_a_stop_string_ends_before_it(tokens, text):
    """In one piece and streamed; a stream may hold back, but never what it has let out."""
    piece = PIECES.__getitem__
    stop = Stop(strings=("abc",), piece=piece)
    cut = stop.cut(stop.start(), tokens)
    assert (cut.kept, cut.reason) == (tokens, "string")
    stream, said = TextStream(piece, ("abc",)), ""
    assert stream.whole(tokens, cut.trim) == text
    for token in tokens:
        said += stream.push(token)
        assert text.startswith(said)
    assert said + stream.end(cut.trim) == text


def test_masses_of_tables_differ():
    """Else nothing above could see a law that belongs to another prefix."""
    seen = defaultdict(set)
    for text in [(0,), (1,), (0, 1), (1, 0), (2, 2, 2)]:
        seen[tuple(weights(text))].add(text)
    assert len(seen) > 2
