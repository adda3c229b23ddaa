"""Leaps: drafts made on the device write what plain decoding writes, in fewer forwards, and leave nothing behind."""

from __future__ import annotations

import interpreted  # noqa: F401  (Triton, before anything imports kernels)
import pytest
import torch
from test_rows import Blank, left

from unspool.core.asks import Write
from unspool.core.chance import At, Philox, Role
from unspool.core.law import Law, chosen
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Prefix, Temperature
from unspool.kernels.match import match
from unspool.kernels.match import reference as match_reference
from unspool.runtime.cuda.copy_estimate import BigramCopies
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.cuda.speculation_gate import RECALL, Drafting, SpeculationGate, Way
from unspool.runtime.engine.contracts import ScoreRequest

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="kernels run on the device here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy, of what kernels mask away
]
VOCAB = 8


def scores(text):
    """What a network that sees exactly this text says of the next token: mostly what followed the last two before."""
    found = torch.randn(VOCAB, generator=torch.Generator().manual_seed(hash(tuple(text[-2:])) % 2**31)) * 4
    return found + torch.randn(VOCAB, generator=torch.Generator().manual_seed(hash(tuple(text)) % 2**31)) * 0.3


class Reader(Blank):
    """A network that reads the line of descent of every token through the table, its slots and its bits."""

    forwards = 0

    def __init__(self, *args):
        super().__init__(*args)
        self.memory = torch.full((self.slots.room + 1,), -1, dtype=torch.int32)

    def run(self, tokens, rows, want=()):
        self.forwards += 1
        self.memory[rows.slots.long()] = tokens
        wide, texts = len(rows.slots) // len(rows.past), []
        for row in range(len(rows.past)):
            slots, seen = rows.seen(row, None)
            for i in range(wide):
                real = i < int(rows.count[row])
                texts.append(self.memory[slots[seen[i]].long()].tolist() if real else [0])
                if real and rows.sees is not None:
                    assert int(rows.places[row * wide + i]) == len(texts[-1]) - 1
        return texts, {}

    def read(self, x):
        return torch.stack([scores(text) for text in x])


class Always(SpeculationGate):
    """Leaps, whatever the clock says."""

    def pays(self, leaves, choices=(RECALL,)):
        return choices[-1]


def plainly(prompt, seed, number, most, t):
    text = list(prompt)
    for _ in range(most):
        text.append(Philox(seed, number).choose(Temperature(t)(None, Law(scores(text))), At(len(text), Role.PICK)))
    return text


@pytest.mark.parametrize(
    ("t", "ahead", "rows", "turns"),
    [(0.0, 3, 3, 2), (0.7, 7, 2, 1), pytest.param(0.0, 63, 1, 2, marks=pytest.mark.slow)],
)
def test_a_leap_writes_what_plain_decoding_writes(t, ahead, rows, turns):
    network = Reader(VOCAB, 900, 128)
    model = graph_model(network, 2, 16)
    model.device.speculation.gate = Always()
    prompts = [[5, 1, 4] * 7, [2, 3, 2, 3, 2], [1]][:rows]
    sessions = [model.open(prompt) for prompt in prompts]
    warp, leaps, tokens = Temperature(t), 0, 0
    model.score([ScoreRequest(session, NOTHING) for session in sessions])
    for session in sessions:
        leaf = session.leaves[0]
        model.slots.drop([leaf.slots.pop()])
        leaf.law = None
    for _ in range(2):
        texts = [tuple(session.leaves[0].tokens) for session in sessions]
        writes = [Write(Prefix.of(text, warp), Philox(7, i), 9, ahead) for i, text in enumerate(texts)]
        replies = model.device.write([ScoreRequest(session, NOTHING) for session in sessions], writes, turns)
        assert replies is not None
        for reply, session, before in zip(replies, sessions, texts, strict=True):
            assert reply.rounds
            assert before + reply.tokens == tuple(session.leaves[0].tokens)
            assert len(reply.tokens) <= sum(leap.tokens for leap in reply.rounds)
            leaps, tokens = leaps + len(reply.rounds), tokens + len(reply.tokens)
    for number, (prompt, session) in enumerate(zip(prompts, sessions, strict=True)):
        text = session.leaves[0].tokens
        assert text == plainly(prompt, 7, number, len(text) - len(prompt), t)
        assert len(session.leaves[0].slots) == len(text) - 1
        assert network.memory[session.leaves[0].slots].tolist() == text[:-1]
        session.close()
    assert tokens > leaps or t > 0  # something was drafted and stood
    assert left(model) == (0, 0)


class Noting(Always):
    """Leaps, and notes which steps it is told the seconds of."""

    def __init__(self):
        super().__init__()
        self.timed = []

    def took(self, rows, chosen, seconds):
        self.timed.append((rows, chosen))


def test_a_step_that_captures_a_graph_is_not_timed():
    """It takes hundreds of times as long as the steps after it, and the gate would believe that of all of them."""
    model = graph_model(Reader(VOCAB, 900, 128), 2, 16)
    gate = model.device.speculation.gate = Noting()
    session = model.open([5, 1, 4] * 7)
    captured = []
    for _ in range(3):
        known = len(model.executor.buckets)
        write = Write(Prefix.of(tuple(session.leaves[0].tokens), Temperature(0)), Philox(7), 9, 3)
        model.read_ahead(session.leaves)
        assert model.device.write([ScoreRequest(session, NOTHING)], [write], 2) is not None
        captured.append(len(model.executor.buckets) > known)
    assert captured == [True, False, False]
    assert gate.timed == [(1, Drafting(Way.RECALL, 4))] * 2
    session.close()


@pytest.mark.parametrize("older", [5, 40])
def test_a_draft_below_many_of_earlier_forwards_sees_its_own_line(older):
    """All drafts that are kept in the cache have a bit in the row of a new one, however few tokens that adds."""
    network = Reader(VOCAB, 900, 128)
    model = graph_model(network, 2, 16)
    prompt = [5, 1, 4]
    session = model.open(prompt)
    tokens = [(i * i + 3) % VOCAB for i in range(older + 1)]
    parents = [ROOT, ROOT, *range(older - 1)]  # two lines that grow side by side
    drawn = [chosen(token) for token in tokens]
    model.score([ScoreRequest(session, Tree(tuple(drawn[:-1]), tuple(parents[:-1])))])
    whole = Tree(tuple(drawn), tuple(parents))
    (found,) = model.score([ScoreRequest(session, whole)])
    assert found.rows == 1
    for node in range(older + 1):
        text = [*prompt, *whole.tokens(whole.path(node))]
        assert found.after[node].scores.tolist() == pytest.approx(scores(text).tolist(), abs=1e-5), node
    session.close()
    assert left(model) == (0, 0)


def test_the_longest_match_wins_and_then_the_latest():
    texts = torch.randint(0, 3, (5, 64), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    lanes = torch.tensor([4, 0, 2, 2], dtype=torch.int32)
    ends = torch.tensor([63, 0, 1, 40], dtype=torch.int32)
    assert match(texts, lanes, ends).tolist() == match_reference(texts, lanes, ends).tolist()


CHAIN = Drafting(Way.CHAIN, 16)


class Text:
    """A text that leaps bring so many tokens each, as a pace sees it: no token in it comes twice, unless told."""

    def __init__(self, tokens=()):
        self.tokens = list(tokens)

    def write(self, count):
        self.tokens += range(len(self.tokens), len(self.tokens) + count)


@pytest.mark.parametrize(("gain", "least"), [(1.0, 0.97), (1.5, 0.97), (1.7, 0.96), (2.0, 1.05), (4.0, 2.0)])
def test_a_pace_loses_little_where_leaps_do_not_pay_and_wins_where_they_do(gain, least):
    """By its own clock, over 1,000 tokens: 0.54 ms a step, 0.94 ms a leap."""
    pace, text, took, tokens = SpeculationGate(), Text(), 0.0, 0.0
    step, leap = 0.54, 0.94
    for _ in range(3):
        pace.took(1, None, step)
        pace.took(1, RECALL, leap)
    while tokens < 1000:
        if pace.pays([text]):
            rounds = 4 if pace.sure([text]) else 2
            took, tokens = took + rounds * leap, tokens + rounds * gain
            pace.speculated(text, rounds, rounds * gain)
        else:
            took, tokens = took + 32 * step, tokens + 32
            text.write(32)
            pace.stepped(text, 32)
    assert tokens * step / took >= least


def test_what_drafts_bring_drawn_texts_is_believed_of_the_next_ones_and_of_greedy_texts_it_is_not():
    pace, first, texts = SpeculationGate(), [Text() for _ in range(3)], [Text() for _ in range(4)]
    for _ in range(3):
        pace.took(1, None, 0.54)
        pace.took(1, RECALL, 0.94)
    for text in (*first, *texts[:3]):
        pace.draws(text)
    assert pace.pays(first[:1])
    for text in first:
        while pace.pays([text]):
            pace.speculated(text, 2, 2)  # they bring nothing
    assert not pace.pays([texts[1]])
    assert pace.pays([texts[3]])
    for _ in range(40):  # it is tried again, and brings more
        pace.speculated(texts[1], 2, 8)
    assert pace.pays([texts[2]])


def test_a_text_that_begins_to_repeat_itself_leaps_again():
    pace, text = SpeculationGate(), Text(range(100))
    for _ in range(3):
        pace.took(1, None, 0.54)
        pace.took(1, RECALL, 0.94)
    for _ in range(12):
        pace.speculated(text, 4, 4)  # they bring nothing
    for _ in range(5):
        text.write(32)
        pace.stepped(text, 32)
        assert not pace.pays([text])
    text.tokens += range(40, 72)
    pace.stepped(text, 32)
    assert pace.pays([text])


@pytest.mark.parametrize("seed", range(5))
def test_copies_tell_what_a_copy_after_the_last_two_tokens_would_have_brought(seed):
    dice = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 2 + seed, (90,), generator=dice).tolist()
    copies, first, expected, found = BigramCopies(), 20, 0, 0
    for end in (41, 42, 90):
        at = first
        while at < end:  # by its definition, looking back anew every time
            last = [i for i in range(2, at) if tokens[i - 2 : i] == tokens[at - 2 : at]]
            source = last[-1] if last else at
            while at < end and source < at and tokens[source] == tokens[at]:
                at, source = at + 1, source + 1
            at, expected = at + 1, expected + 1
        found += copies.rounds(tokens[:end], first)
        first = end
    assert found == expected


def test_a_pace_times_both_before_it_chooses():
    pace, text = SpeculationGate(), Text()
    assert not pace.pays([text])
    for _ in range(3):
        pace.took(1, None, 1.0)
    assert pace.pays([text])
    assert not pace.pays([text, Text()])  # two rows have times of their own
    for _ in range(3):
        pace.took(1, RECALL, 9.0)
    assert not pace.pays([text])


@pytest.mark.parametrize(
    ("chain", "gain", "expected"),
    [(1.2, 4.0, CHAIN), (1.2, 2.0, RECALL), (3.0, 4.0, RECALL)],
    ids=["it pays", "it brings too little", "it takes too long"],
)
def test_a_trained_drafter_is_timed_and_left_out_where_it_loses(chain, gain, expected):
    pace, texts = SpeculationGate(), [Text() for _ in range(4)]
    ways, took = (RECALL, CHAIN), {None: 0.54, RECALL: 0.94, CHAIN: chain}
    brings, tried = {RECALL: 2.2, CHAIN: gain}, []
    for turn in range(240):
        text = texts[turn // 60]
        way = pace.pays([text], ways)
        tried.append(way)
        pace.took(1, way, took[way])
        if way is None:
            text.write(32)
            pace.stepped(text, 32)
        else:
            pace.speculated(text, 4, 4 * brings[way], way)
    assert tried[:9] == [None] * 3 + [RECALL] * 3 + [CHAIN] * 3
    assert set(tried[40:60]) == set(tried[220:]) == {expected}
    assert pace.pays([Text()], ways) is expected  # what it brought some is believed of the next text


def written_by(pace, gains, texts):
    """Which share of the tokens of texts of 96, the gains of which take turns, comes with the trained drafter."""
    took, by_drafter = {None: 0.48, RECALL: 0.91, CHAIN: 0.99}, 0.0
    for number in range(texts):
        text, tokens, gain = Text(), 0.0, gains[number % len(gains)]
        while tokens < 96:
            way = pace.pays([text], (RECALL, CHAIN))
            pace.took(1, way, took[way])
            if way is None:
                tokens += 16
                text.write(16)
                pace.stepped(text, 16)
                continue
            rounds = 8 if pace.sure([text], way) else 2
            brought = rounds * (gain if way is CHAIN else gain / 1.5)
            pace.speculated(text, rounds, brought, way)
            tokens, by_drafter = tokens + brought, by_drafter + (brought if way is CHAIN else 0)
    return by_drafter / (96 * texts)


def test_texts_that_gain_little_do_not_shut_a_drafter_out_for_those_that_gain_much():
    """Neither one by one nor many in a row: what is believed of any text moves slowly, and is forgotten."""
    assert written_by(SpeculationGate(), (1.9, 3.0, 2.8, 2.2, 3.6, 2.9), 36) > 0.75
    pace = SpeculationGate()
    assert written_by(pace, (1.2,), 60) < 0.2
    written_by(pace, (3.2,), 60)
    assert written_by(pace, (3.2,), 20) > 0.9


def test_no_more_rounds_are_made_than_may_bring_what_is_wanted():
    pace, texts = SpeculationGate(), [Text(), Text()]
    for _ in range(60):
        pace.speculated(texts[0], 4, 16)
        pace.speculated(texts[1], 4, 8)
    assert pace.enough(texts[:1], [9]) == 3
    assert pace.enough(texts, [9, 9]) == 5
    assert pace.enough(texts, [1, 1]) == 1
