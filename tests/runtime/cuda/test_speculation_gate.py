"""What the gate decides over many texts, by a clock of its own: no GPU is needed for it."""

import pytest

from unspool.runtime.cuda.device_speculation import TRIAL
from unspool.runtime.cuda.speculation_gate import DRAWN, HOPE, RECALL, Drafting, SpeculationGate, Way

PLAIN = 0.48  # ms of a step, as one text has on an H200


class Text:
    """A text in which no token comes twice, as a gate sees it."""

    def __init__(self):
        self.tokens = []


def speed(gains, leap, length=192, kind=None, gate=None, rows=1):
    """Tokens per plain step's time: texts one after the other, of which speculative steps bring these tokens each."""
    gate = gate or SpeculationGate()
    for _ in range(3):
        gate.took(rows, None, PLAIN)
        gate.took(rows, RECALL, leap)
    took, tokens = 0.0, 0.0
    for gain in gains:
        text, written = Text(), 0.0
        if kind is not None:
            gate.draws(text, kind)
        while written < length:
            if gate.pays([text] * rows):
                rounds = 8 if gate.sure([text] * rows) else TRIAL
                took, written = took + rounds * leap, written + rounds * gain
                gate.speculated(text, rounds, rounds * gain)
            else:
                took, written = took + 32 * PLAIN, written + 32
                text.tokens += range(len(text.tokens), len(text.tokens) + 32)
                gate.stepped(text, 32)
        tokens += written
    return tokens * PLAIN / took


@pytest.mark.parametrize("kind", [None, DRAWN])
@pytest.mark.parametrize("leap", [0.55, 0.65, 0.9])
@pytest.mark.parametrize("gain", [1.0, 1.1, 1.3, 1.6])
def test_texts_of_which_all_gain_the_same_never_lose_more_than_three_percent(gain, leap, kind):
    assert speed([gain] * 24, leap, kind=kind) >= max(0.97, 0.97 * gain * PLAIN / leap)


def test_what_greedy_texts_have_gained_is_believed_of_the_next_one():
    gate = SpeculationGate()
    speed([1.1] * 24, 0.91, gate=gate)
    assert not gate.pays([Text()])
    for _ in range(30):  # texts that repeat themselves are drafted for, and bring more
        gate.speculated(Text(), 8, 8 * HOPE)
    assert gate.pays([Text()])


def test_greedy_texts_that_gain_much_are_drafted_for_between_those_that_gain_little():
    """One text says little of the next: six families in turn, some of them below what a step costs."""
    gains = (1.2, 2.4, 1.5, 1.3, 2.2, 3.0) * 6
    best = len(gains) / sum(min(1.0, 0.65 / PLAIN / gain) for gain in gains)  # of one who knows before
    assert speed(gains, 0.65) >= 0.96 * best
    assert speed(gains, 0.91) >= 1.05  # where half of them lose


def test_what_no_text_brought_is_tried_again_after_some_thousand_tokens():
    gate = SpeculationGate()
    speed([1.0] * 24, 0.91, gate=gate)
    assert not gate.pays([Text()])
    text = Text()
    for _ in range(400):
        gate.stepped(text, 32)
    assert gate.pays([Text()])


@pytest.mark.parametrize(
    ("times", "gain", "expected"),
    [
        ((0.6, 0.7, 0.85), 1.6, 8),
        ((0.6, 0.7, 0.85), 3.4, 16),
        ((0.6, 0.62, 0.65), 2.0, 32),
        ((0.9, 1.1, 1.3), 1.6, None),
    ],
    ids=["little to gain", "much to gain", "width costs nothing", "nothing pays"],
)
def test_trees_have_the_width_that_brings_most_for_what_their_steps_take(times, gain, expected):
    """All widths are timed, and what one of them brings tells what the others would."""
    gate, text = SpeculationGate(), Text()
    choices, chosen = [Drafting(Way.RECALL, tokens) for tokens in (8, 16, 32)], []
    took = {None: PLAIN} | dict(zip(choices, times, strict=True))
    for _ in range(80):
        way = gate.pays([text], choices)
        chosen.append(way)
        gate.took(1, way, took[way])
        if way is None:
            text.tokens += range(len(text.tokens), len(text.tokens) + 8)
            gate.stepped(text, 8)
        else:
            gate.speculated(text, 4, 4 * (1 + (gain - 1) * way.share), way)
    assert chosen[:12] == [each for each in (None, *choices) for _ in range(3)]
    late = [None if way is None else way.tokens for way in chosen[40:]]
    assert late.count(expected) >= 0.9 * len(late)


def test_eight_texts_side_by_side_forget_as_slowly_as_one():
    """In as many steps; else what brought them nothing would be tried eight times as often."""
    one, eight = SpeculationGate(), SpeculationGate()
    for gate, rows in ((one, 1), (eight, 8)):
        for _ in range(3):
            gate.took(1, None, PLAIN)
            gate.took(1, RECALL, 0.91)
        for _ in range(16):
            gate.speculated(Text(), 8, 8)  # they bring nothing
        texts = [Text() for _ in range(rows)]
        for _ in range(40):
            for text in texts:
                gate.stepped(text, 32, rows)
        assert not gate.pays([Text()])


@pytest.mark.parametrize("way", Way)
def test_one_text_that_gains_nothing_does_not_shut_drafts_out_for_the_next(way):
    """Greedy texts gain very differently, so what is believed of any of them moves slowly."""
    gate, drafts = SpeculationGate(), Drafting(way, 32)
    for _ in range(3):
        gate.took(1, None, 0.48)
        gate.took(1, drafts, 0.48 * 1.6)
    poor = Text()
    assert gate.pays([poor], (drafts,)) is drafts
    for _ in range(10):
        gate.speculated(poor, 2, 2, drafts)
    assert gate.pays([poor], (drafts,)) is None
    assert gate.pays([Text()], (drafts,)) is drafts


@pytest.mark.parametrize(
    ("gains", "pays"), [((1.5, 1.5), True), ((1.2, 1.8), False), ((1.2, 2.6), False), ((1.38, 2.6), True)]
)
def test_a_text_that_gains_little_is_not_held_up_for_what_another_gains(gains, pays):
    """Two texts that gain 1.5 have a token in less than a plain step on the mean; of 1.2 and 1.8 that is not so.

    Of 1.2 and 2.6 it is, but a step of 1.46 plain ones takes the first text a fifth longer for a token.
    """
    gate, texts = SpeculationGate(), [Text() for _ in gains]
    for _ in range(3):
        gate.took(2, None, PLAIN)
        gate.took(2, RECALL, 1.46 * PLAIN)
    for text, gain in zip(texts, gains, strict=True):
        for _ in range(60):
            gate.speculated(text, 8, 8 * gain, rows=2)
    assert (gate.pays(texts) is not None) is pays


def test_a_trial_that_brought_nothing_is_followed_by_no_more_than_another():
    """Drafts are still believed in after it, so they are tried once more, and not eight times."""
    gate, text = SpeculationGate(), Text()
    for _ in range(3):
        gate.took(1, None, PLAIN)
        gate.took(1, RECALL, 1.2 * PLAIN)
    gate.speculated(text, 2, 2)
    assert gate.pays([text])
    assert not gate.sure([text])
    gate.speculated(text, 2, 4)
    assert gate.sure([text])
