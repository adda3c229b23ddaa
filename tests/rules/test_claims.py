"""Every registered claim holds, and the oracle that says so can see what it should see."""

import pytest
from planted import BUGS, UNSHAPED, WALK_ON_WITHHELD_Q
from selection import crossed

from unspool.core.claim import ARGMAX, BOUND, HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest
from unspool.core.option import options
from unspool.proof import prove
from unspool.proof.prove import truth_of
from unspool.recipes.methods import described, entries, method
from unspool.rules.decode import Speculate
from unspool.rules.draft import RSDC, Chain
from unspool.rules.verify import greedy, rejection, sample_match

pytestmark = pytest.mark.usefixtures("one_thread")


def rules():
    """All rules; those that promise nothing when there is time: `test_gaps` enumerates their standing cases anyway."""
    later = pytest.mark.slow
    return [pytest.param(name, marks=later if entry.claim is HEURISTIC else ()) for name, entry in entries().items()]


@pytest.mark.parametrize("name", rules())
def test_claim_holds(name):
    proof = prove(name, quick=True)
    assert proof.ok, proof.counterexample
    assert proof.branches > 0
    assert proof.cases > 0
    if proof.claim not in (HEURISTIC.name, BOUND.name):
        assert proof.tv <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in entries().items() if entry.claim is not HEURISTIC])
def test_a_promise_holds_in_the_proof_that_people_run(name):
    """It draws ten times as many cases as a quick one, and is held against every standing case."""
    proof = prove(name)
    assert proof.ok, proof.counterexample


def promised():
    """What people type for every rule that promises something, at its defaults."""
    found = [entry for entry in entries().values() if entry.claim is not HEURISTIC and entry.build is not None]
    sized = ["size" in options(entry.build) for entry in found]  # a canvas needs a size, else told by max_tokens
    return [
        f"{entry.name}:size=3" if size else entry.name
        for entry, size in zip(found, sized, strict=True)
        if entry.name != "retrieve"  # which asks for a file
    ]


@pytest.mark.parametrize("spec", crossed(promised(), quick=12))
def test_a_method_keeps_its_claim_as_people_run_it(spec):
    """Made by its name, not as the rule's own trials make it, which are small so that much can be followed."""
    entry = described(spec)

    def run(*asked):
        return method(spec)(*asked)  # a new one each time, as for every request

    about = {"bound": entry.bound, "shaped": entry.shaped, "truth": truth_of(entry)}
    proof = prove(run, entry.claim, quick=True, name=spec, **about)
    assert proof.ok, proof.counterexample
    assert proof.cases > 1


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_caught(bug):
    proof = prove(BUGS[bug], LAW, quick=True, name=bug, shaped=bug not in UNSHAPED)
    assert not proof.ok
    assert proof.tv > 1e-3
    assert "target weights" in proof.counterexample
    assert "truth" in proof.counterexample


def test_withheld_q_is_exact_under_the_walk():
    assert prove(WALK_ON_WITHHELD_Q, SEED, quick=True).ok


def test_rejection_is_exact_in_law_but_not_in_seed():
    method = Speculate(Chain(2), rejection)
    assert prove(method, LAW, quick=True).ok
    assert not prove(method, SEED).ok


def test_greedy_is_the_argmax_but_not_the_law():
    method = Speculate(Chain(2), greedy)
    assert prove(method, ARGMAX, quick=True).ok
    assert not prove(method, LAW).ok


def test_heuristics_print_their_gap():
    proof = prove("confident")
    assert proof.claim == "HEURISTIC"
    assert 0.01 < proof.tv < 1


def test_a_bound_is_held_against_each_case():
    sloppy = Speculate(Chain(1), greedy)  # greedy verification of drawn text, called sampling
    assert prove(sloppy, BOUND, bound=lambda case: 1.0, quick=True).ok
    assert not prove(sloppy, BOUND, bound=lambda case: 0.01).ok
    with pytest.raises(BadRequest, match="does not say which"):
        prove(sloppy, BOUND)


def test_cases_too_large_to_follow_are_counted_and_not_passed_over():
    wide = Speculate(RSDC((3, 3)), rejection, budget=12)  # thousands of branches for the first token
    proof = prove(wide, quick=True)
    assert proof.ok
    assert 0 < proof.skipped < 50
    assert proof.record()["skipped"] == proof.skipped
    assert prove("plain", quick=True).skipped == 0


@pytest.mark.parametrize("name", ["lenient", "mixture"])
def test_a_stated_bound_is_kept_but_not_by_being_exact(name):
    proof = prove(name, quick=True)
    assert proof.claim == "BOUND"
    assert 0.01 < proof.tv < 1


def test_an_unknown_rule_is_named_with_the_known_ones():
    with pytest.raises(BadRequest, match=r"no method is called 'rejecton'.*rejection"):
        prove("rejecton")


def test_a_user_rule_can_be_proved():
    def impatient(scored, chance):  # takes the first drafted token without a look at the target
        kids = scored.tree.kids(~0)
        return sample_match(scored, chance) if not kids else sample_match(scored, chance)._replace(node=kids[0])

    proof = prove(Speculate(Chain(1), impatient))
    assert not proof.ok
    assert "prompt" in proof.counterexample


def test_a_promise_about_a_models_own_law_says_that_warps_are_left_out():
    """The default temperature is 0, which is a warp: whoever promises nothing of it has to say so."""
    own = [entry for entry in entries().values() if not entry.shaped and entry.claim is not HEURISTIC]
    assert {"one", "anyorder", "entropy_bound", "peaked"} <= {entry.name for entry in own}
    condition = "at temperature 1, without truncations and penalties"
    assert all(entry.promise.endswith(condition) for entry in own)
    assert entries()["one"].promise == f"LAW if the model's conditionals are those of one joint law, {condition}"
    others = [entry.note for entry in entries().values() if entry not in own]
    assert not any("temperature 1" in note for note in others)
