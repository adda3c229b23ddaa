"""What approximate rules write is what they wrote: their gaps are pinned, since their claims promise nothing."""

import math

import pytest
from gaps import CLOSE, RENEW, approximate, cases, differences, kept, mark, measured, near, read
from remembering import Remembering

from unspool.core.asks import Done, Look, Soft
from unspool.core.canvas import Canvas
from unspool.core.law import Law
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import LookRequest

pytestmark = pytest.mark.usefixtures("one_thread")
PINNED = read()
MEANT = f"If the change is meant, write the figures anew with `{RENEW}"


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)], ids=["a third", "all"])
@pytest.mark.parametrize("name", approximate())
def test_a_rule_is_as_far_from_plain_decoding_as_it_was(name, every):
    assert name in PINNED["rules"], f"nothing is pinned of {name}; `{RENEW} {name}` does that"
    pinned, now = PINNED["rules"][name], measured(approximate()[name], every=every)
    if every > 1 and len(pinned) == len(now):
        pinned = [{case: was[case] for case in found if case in was} for was, found in zip(pinned, now, strict=True)]
    found = differences(name, pinned, now)
    shown = [*found[:8], *([f"… and {len(found) - 8} more"] if len(found) > 8 else [])]
    assert not found, "\n".join([f"{name} writes something else than it did.", *shown, f"{MEANT} {name}`."])


def test_nothing_is_pinned_of_rules_that_are_gone():
    gone = PINNED["rules"].keys() - approximate().keys()
    assert not gone, f"pinned, but no approximate rule: {sorted(gone)}. {MEANT}`."


def test_the_cases_are_those_that_were_pinned():
    assert PINNED["cases"] == cases(), f"the cases have changed. {MEANT}`."


def figures(name):
    return [figures for trial in PINNED["rules"][name] for figures in trial.values() if not isinstance(figures, str)]


@pytest.mark.parametrize("name", PINNED["rules"])
def test_some_case_shows_what_a_rule_does(name):
    """One without any gap would be pinned with the rule switched off."""
    assert max(one["gap"] for one in figures(name)) > 0.001


def test_no_rule_is_pinned_as_another():
    """Where the laws of two rules are equal on all cases, what tells them apart is not tested."""
    marks = {name: frozenset(round(one["mark"], 8) for one in figures(name)) for name in PINNED["rules"]}
    same = [(a, b) for a in marks for b in marks if a < b and marks[a] == marks[b]]
    assert not same


def test_most_of_it_is_pinned():
    """A figure is left out where it depends on rounding, and there are few of those."""
    told = [figures for trials in PINNED["rules"].values() for trial in trials for figures in trial.values()]
    assert sum(isinstance(one, str) for one in told) < 0.05 * len(told)


A, B, C = (Done((token,), "length") for token in range(3))


def test_a_mark_tells_laws_apart_that_are_equally_far_from_the_truth():
    one, other = {A: 0.5, B: 0.3, C: 0.2}, {A: 0.5, B: 0.2, C: 0.3}
    assert abs(mark(one) - mark(other)) > 1e-3
    assert mark({A: 0.5, B: 0.5}) != mark({Done(A.tokens, "stop"): 0.5, B: 0.5})
    assert mark(one) == mark(dict(reversed(one.items())))


def test_a_difference_says_where_and_what():
    old = [{"0": {"gap": 0.25, "mark": 0.5}, "3": "refused", "4": "rounding decides"}]
    new = [{"0": {"gap": 0.25, "mark": 0.5 + CLOSE / 2}, "3": {"gap": 0.0, "mark": 0.5}, "4": {"gap": 1, "mark": 1}}]
    assert differences("rule", old, new) == ["rule, trial 0, case 3: pinned refused, now gap 0.0, mark 0.5"]
    assert "case 3: pinned refused, now not measured" in differences("rule", old, [{}])[1]
    assert differences("rule", old, old * 2) == ["rule: 1 trials are pinned, and there are 2"]
    assert not near({"gap": 0.25, "mark": 0.5}, {"gap": 0.25, "mark": 0.5 + 2 * CLOSE})
    assert not near({"gap": 0.25, "mark": 0.5}, {"tokens": 2, "gap": 0.25, "mark": 0.5})


def test_figures_that_only_rounding_has_changed_stay_as_they_are():
    old = [{"0": {"gap": 0.25, "mark": 0.5}, "1": {"gap": 0.25, "mark": 0.5}}]
    new = [{"0": {"gap": 0.25, "mark": 0.5 + 1e-16}, "1": {"gap": 0.5, "mark": 0.5}, "2": "refused"}]
    assert kept(old, new) == [{"0": old[0]["0"], "1": new[0]["1"], "2": "refused"}]
    assert kept([], new) == new


# ---- the model that remembers


def laws(model, *looks):
    session = model.open((0,))
    return [model.look([LookRequest(session, look)])[0] for look in looks][-1]


def model(kind):
    return kind(2, lambda text: [[3, 1], [1, 2], [2, 5]][(sum(text) + len(text)) % 3])


BLANK = Canvas.blank((0,), 3)
LATER = BLANK.fill({1: 1})


def test_fresh_looks_are_those_of_the_plain_table():
    for look in (Look(BLANK), Look(LATER), Look(LATER, along=(2, 3)), Look(LATER, fresh=frozenset(range(4)))):
        new, plain = laws(model(Remembering), Look(BLANK), look), laws(model(Table), look)
        assert all(math.isclose(new[i][x], plain[i][x]) for i in plain for x in range(2))


@pytest.mark.parametrize(
    "look",
    [
        Look(LATER, (2,), fresh=frozenset({2, 3})),
        Look(LATER, (2,), seen=frozenset({0, 2, 3})),
        Look(LATER, (2,), soft={3: Soft(Law.of([1, 0]), 0.5)}),
    ],
)
def test_what_is_old_unseen_or_soft_changes_a_law(look):
    new, plain = laws(model(Remembering), Look(BLANK), look), laws(model(Table), look)
    assert abs(new[2][0] - plain[2][0]) > 0.001


def test_what_has_changed_is_renewed():
    old = Look(LATER, (2,), fresh=frozenset({2}))
    some, every = Look(LATER, (2,), fresh=frozenset({2}), renew=0.5), Look(LATER, (2,))
    told = [laws(model(Remembering), Look(BLANK), look)[2][0] for look in (old, some, every)]
    assert len({round(p, 9) for p in told}) == 3
