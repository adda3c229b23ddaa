"""Compositions by name: any drafter under any verifier, on every surface; parts of one's own; and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from textwrap import dedent

import pytest

from unspool import Settings, rules
from unspool.core import claim as registry
from unspool.core.claim import BOUND, HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest
from unspool.loops.speculate import Speculate
from unspool.proof.case import STANDING
from unspool.proof.prove import prove, prove_entry
from unspool.recipes.composition import ORDER, composed, name_of, verifier_of
from unspool.recipes.draft_lengths import LENGTHS
from unspool.recipes.methods import NotOffered, claim_of, described, entries, method, needs, refuse_files, requested
from unspool.recipes.names import Part, canonical, parts_of
from unspool.recipes.verify import USUAL
from unspool.rules.draft.on_device import OnDevice

FILED = ("judged", "retrieve", "specdecpp")  # which cannot do without a file
VERIFIERS = [name for name in USUAL if name not in FILED]
DRAFTERS = [entry.name for entry in entries().values() if entry.family == "draft" and entry.name not in FILED]


def test_a_spec_is_a_drafter_and_a_verifier_with_options_of_their_own():
    assert parts_of("rsd_c:widths=3+2 + typical:epsilon=0.1") == (
        Part("rsd_c", "widths=3+2"),
        Part("typical", "epsilon=0.1"),
    )
    assert parts_of("a/b.py:mine:x=1 + block")[0] == Part("a/b.py:mine", "x=1", file=True)
    assert parts_of("mcts:reward=tests.py:passed") == (Part("mcts", "reward=tests.py:passed"),)
    assert canonical("speculative decoding:depth=2 + Block verification") == "chain:depth=2 + block"
    made = method("chain:depth=2 + block")
    assert made == Speculate(rules.draft.Chain(2), rules.verify.block, budget=2)
    assert requested("chain:depth=2 + block") == made
    assert requested("chain:depth=2,verify=block") == method("chain:verify=block,depth=2") == made
    assert canonical("speculative decoding:verify=Block verification") == "chain + block"
    assert claim_of("lookup:verify=typical") is HEURISTIC
    assert needs("lookup + block") == ()
    assert needs("heads + typical") == ("heads",)


@pytest.mark.parametrize("name", VERIFIERS)
def test_every_verifier_is_a_method_with_a_drafter_that_is_stated(name):
    made = method(name)
    assert isinstance(made, Speculate)
    assert verifier_of(made) == name
    assert made.draft == method(USUAL[name]).draft
    assert set(needs(name)) == {*needs(USUAL[name])}
    assert method(f"{USUAL[name]} + {name}") == made


def test_a_drafter_claims_what_the_rule_claims_that_verifies_it():
    """So that a composition can claim what its verifier does: no drafter of ours has a gap of its own."""
    for name in DRAFTERS:
        usual = verifier_of(method(name))
        assert ORDER[entries()[name].claim] <= ORDER[entries()[usual].claim], name


@pytest.mark.parametrize(
    ("spec", "claim"),
    [
        ("chain:depth=2 + block", LAW),
        ("chain:depth=2 + sample_match", SEED),
        ("lookup:ngram=1,least=1,depth=2 + zeroing", LAW),
        ("chain:depth=1 + lenient:lenience=0.5", BOUND),
        ("chain:depth=1 + mixture:weight=0.6", BOUND),
        ("lookup:ngram=1,least=1,depth=2", SEED),
    ],
)
def test_a_composition_says_what_it_claims_and_keeps_it(spec, claim):
    assert claim_of(spec) is claim
    proof = prove_entry(described(spec), quick=True)
    assert proof.ok
    assert proof.method == spec


def drafters():
    """The drafters of the first trial of every rule, small enough to be enumerated, with their budgets."""
    for name in DRAFTERS:
        trial = next(iter(entries()[name].trials(entries()[name].rule)))
        yield pytest.param(trial, id=name)


@pytest.mark.slow
@pytest.mark.parametrize("drafting", [*drafters()])
@pytest.mark.parametrize("name", VERIFIERS)
def test_every_pair_that_is_not_refused_keeps_the_claim_of_its_verifier(drafting, name):
    entry, verify = entries()[name], method(name).verify
    try:
        made = composed(drafting, verify, name)
    except BadRequest:
        assert drafting.draft.reuses_noise or drafting.draft.verifies is not None
        return
    assert prove_entry(replace(entry, trials=lambda _: [made]), quick=True).ok


def test_a_bound_is_that_of_the_options_as_they_are():
    case = STANDING[0]
    assert described("chain + lenient:lenience=0.5").bound(case) == pytest.approx(1 - 0.5**case.most)
    assert described("chain + mixture:weight=0.6").bound(case) == pytest.approx(1 - 0.4**case.most)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("coupled + block", "Coupled under block would not be exact"),
        ("raced + traversal", "Raced under traversal would not be exact"),
        ("on_device + block", "OnDevice leaves drafting and verifying to the model, which does it by sample_match"),
        ("plain + block", "'plain' is of the family decode; expected a drafter before the plus"),
        ("chain + lookup", "'lookup' is of the family draft; expected a verifier after it"),
        ("lookup + blended", "'blended' verifies nothing but its own drafts"),
        ("chain + block + block", "has 3 parts; expected a drafter and a verifier"),
        (
            "chain +",
            r"the method 'chain \+' lacks a part beside its plus; write it as in 'lookup' or 'lookup \+ block'",
        ),
        ("+ block", "lacks a part beside its plus"),
        ("", "the method '' lacks a name"),
        ("chain+block", "put blanks around the plus: 'chain \\+ block'"),
        ("chain:depth=4+block", "put blanks around the plus"),
        ("chain:depth=300 + block", "chain:depth is 300; expected a whole number from 1 to 256"),
        ("chain + lenient:lenience=7", "lenient:lenience is 7; expected a number from 0.001 to 1"),
        ("chain + typical:depth=2", "'typical' has no option 'depth'"),
        ("chain:verify=blok", "no method is called 'blok'. Did you mean 'block'"),
        ("chain:verify=", "the method '' lacks a name"),
        ("chain:verify=lookup", "a verifier after it"),
        ("chain:verify=block,verify=typical", "has no option 'verify'|twice"),
        ("chain:verify=block + typical", "has 3 parts; expected a drafter and a verifier"),
        ("plain:verify=block", "a drafter"),
        ("specinfer:paths=64,depth=64 + kseq", "expected paths × depth at most 512"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_built(spec, why):
    for made in (method, requested):
        with pytest.raises(BadRequest, match=why):
            made(spec)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_rule_takes_its_numbers_by_name(length):
    made = method(f"paced:length={length},longest=3,doubt=0.5,ratio=0.2 + block")
    assert 0 < made.draft.length.most(made.draft.length.start()) <= made.budget == 3


YOURS = dedent(
    """
    from dataclasses import dataclass
    from typing import Annotated
    from pathlib import Path
    from unspool import Draft, HEURISTIC, SEED, Speculate, claims
    from unspool.core.option import Range
    from unspool.rules.draft import Lookup
    from unspool.core.verifier import sample_match

    with Path(__file__).with_suffix(".ran").open("a") as ran:
        ran.write("x")
    draft = Lookup(1, 1, 2)
    def verify(scored, chance):
        return sample_match(scored, chance)
    whole = Speculate(draft, budget=2)
    def build(depth: Annotated[int, Range(1, 4)] = 2):
        return Lookup(1, 1, depth)
    @claims(SEED, trials=lambda rule: [Speculate(draft, rule)], name="lastly")
    def lastly(scored, chance):
        from unspool.core.asks import Verdict
        return Verdict(-1, scored.law(-1).best)
    number = 3
    def odd(a, b, c): ...
    """
)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    place = tmp_path / "own_parts.py"
    place.write_text(YOURS)
    return place


def test_a_part_of_one_s_own_stands_wherever_one_of_ours_does(file):
    lookup = rules.draft.Lookup
    assert method(f"{file}:whole").draft == lookup(1, 1, 2)
    assert method(f"{file}:draft") == Speculate(lookup(1, 1, 2))
    assert method(f"{file}:draft + block").verify is rules.verify.block
    assert method(f"{file}:build:depth=3 + rejection").draft == lookup(1, 1, 3)
    assert name_of(method(f"chain + {file}:verify").verify) == "verify"
    assert method(f"{file}:verify").draft == lookup()
    assert file.with_suffix(".ran").read_text() == "x"  # once, not once per name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (":build:depth=9", "depth is 9; expected a whole number from 1 to 4"),
        (":build:width=1", "has no option 'width'; its options are: depth=2"),
        (":whole:depth=1", "takes no options, and depth was given"),
        (":number", "is of the type int, and cannot be called"),
        (":odd", "takes \\(a, b, c\\), but a method is called as"),
        (":absent", "has no 'absent'; it has: "),
        (":buld", "Did you mean .*py:build\\?"),
    ],
)
def test_what_is_wrong_with_one_s_own_part_is_said(file, name, why):
    with pytest.raises(BadRequest, match=why):
        method(f"{file}{name}")


def test_no_request_runs_a_file(file):
    for spec in (f"{file}:whole", f"{file}:draft + block", f"chain + {file}:verify", f"{file}:build:depth=2"):
        for asked in (requested, refuse_files):
            with pytest.raises(NotOffered, match="names a file, and only the operator may"):
                asked(spec)
        with pytest.raises(NotOffered):
            requested(spec, (spec + " ", f"{file}:other"))
    assert not file.with_suffix(".ran").exists()
    assert isinstance(requested(f"{file}:draft + block", (f"{file}:draft + block",)), Speculate)


def test_one_s_own_claims_what_it_says_and_is_held_to_it(file):
    assert claim_of(f"chain + {file}:verify") is HEURISTIC
    assert claim_of(f"{file}:draft + block") is HEURISTIC
    proof = prove_entry(described(f"lookup:ngram=1,least=1,depth=1 + {file}:lastly"), quick=True)
    assert proof.claim == "SEED"
    assert not proof.ok


def test_the_command_line_proves_a_composition(here):
    greedy = "lookup:ngram=1,least=1,depth=1 + greedy"
    code, out, _ = here("prove", "--quick", "--json", "chain:depth=1 + block", greedy)
    assert code == 0
    assert [(one["method"], one["claim"], one["ok"]) for one in json.loads(out)] == [
        ("chain:depth=1 + block", "LAW", True),
        (greedy, "ARGMAX", True),
    ]


def test_what_verifies_is_shown_by_run_trace_and_compare(loaded, file):
    asked = ("one two three one two", "--raw", "--max-tokens", "3", "--json", "--quiet", "--method")
    run = json.loads(loaded("run", *asked, "lookup + block")[1])
    assert (run["method"], run["verify"]) == ("lookup + block", "block")
    own = json.loads(loaded("run", *asked, f"{file}:draft + rejection")[1])
    assert (own["text"], own["verify"]) == (run["text"], "rejection")
    told = ("one two three one two", "--raw", "--max-tokens", "3", "--method", f"lookup + {file}:verify")
    assert loaded("trace", *told)[1].startswith("verified by verify: ")
    told = ("-p", "one two one two", "--raw", "--max-tokens", "3", "--json")
    found = loaded("compare", "typical", f"{file}:whole", *told)
    assert [(row["method"], row["verify"]) for row in json.loads(found[1])] == [
        ("plain", None),
        ("typical", "typical"),
        (f"{file}:whole", "sample_match"),
    ]


def test_on_device_says_where_it_is_plain_decoding(loaded):
    asked = ("Hello", "--raw", "--max-tokens", "2", "--method")
    assert "so this is plain decoding" in loaded("run", *asked, "on_device")[2]
    assert "plain decoding" not in loaded("run", *asked, "lookup")[2]


def test_on_device_says_so_in_python_too(smollm2):
    few = Settings(max_tokens=2)
    for named in ("on_device", "on_device:nodes=15", Speculate(OnDevice(31), budget=31)):
        assert "so this is plain decoding" in smollm2.generate("Hello", few, named).note
    assert smollm2.generate("Hello", few, "lookup").note is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "inner",
    [rules.draft.Auto(), rules.draft.Aligned(rules.draft.Lookup(1, 1, 1), 1)],
)
def test_a_cascade_holds_drafters_that_ask_for_prices_and_prompts(inner):
    made = Speculate(rules.draft.Cascade(inner, rules.verify.sample_match, 2), rules.verify.rejection, budget=2)
    assert prove(made, LAW, quick=True).ok
