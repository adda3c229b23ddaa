"""The oracle itself: what it must see, what it must not pass over, and that its truth is nobody else's."""

import json
import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from planted import Drafted
from truth import law_of_text

from unspool.apps.cli import main
from unspool.core.asks import Check, Emit, Laws, Score, Verdict
from unspool.core.chance import At, Every, Role, TooManyBranches, Unrepeatable, total_variation
from unspool.core.claim import HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import Law
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp import Frequency, MinP, Presence, Repetition, Temperature, TopK, TopP
from unspool.core.warp.warp import Prefix, Scored
from unspool.loops.drafter import possible
from unspool.loops.plain import Plain
from unspool.proof import plainly, prove, shaping
from unspool.proof.case import STANDING, UNSHAPED, Blind, Case, cases
from unspool.proof.compare_laws import compared, replay
from unspool.proof.plainly import EMPTY, Conditioned, Plainly
from unspool.proof.prove import QUICK, THOROUGH
from unspool.recipes.methods import entries
from unspool.rules.decode import Speculate
from unspool.rules.draft import RSDC, SLEM, Cascade, Chain, Either, Lookup, Memoryless, Merge, SpecInfer
from unspool.rules.draft.chain import DRAFT
from unspool.rules.draft.coupled import Coupled
from unspool.rules.draft.raced import Raced
from unspool.rules.verify import block, kseq, multipath, race, rejection, sample_match, traversal, zeroing

pytestmark = pytest.mark.usefixtures("one_thread")


# ---- a truth of its own


def test_every_warp_of_the_cases_is_stated_twice():
    assert tuple(plainly.SAID) == shaping.WARPS


@pytest.mark.parametrize("case", STANDING, ids=lambda case: f"{case.vocab} tokens, {case.warp}, {case.end}{case.until}")
def test_the_plain_truth_is_the_law_that_warps_and_stops_give(case):
    """Two statements of one law: either could be wrong, but hardly in the same way."""
    plain = Plainly(case).law()
    failed = plain.pop(EMPTY, 0.0)
    table, warp = case.tables()["target"], case.shaping()
    if failed:
        with pytest.raises(EmptyLaw):
            law_of_text(table, case.prompt, warp, case.stop())
    else:
        assert total_variation(plain, law_of_text(table, case.prompt, warp, case.stop())) < 1e-14
    assert math.fsum([failed, *plain.values()]) == pytest.approx(1, abs=1e-14)


def dead_ends(case, beyond=2):
    """Texts that end, or were drafted on behind their end, after which warps leave the target no token."""
    plain, found, stack = Plainly(case), [], [((), False)]
    while stack:
        text, over = stack.pop()
        p = plain.around(text)[1]
        if p is None:
            found += [text] if over else []
        elif len(text) < case.most + beyond:
            new = [(*text, token) for token, share in enumerate(p) if share > 0]
            stack += [(longer, over or plain.ended(longer) is not None) for longer in new]
    return found


@given(cases())
@settings(max_examples=600, deadline=None, derandomize=True)
def test_drafts_run_past_the_end_only_where_something_can_follow(case):
    """Else a method that goes on to cut what it verified would fail for no fault of its own."""
    for each in (case, replace(case, warp="brackets"), replace(case, warp="never 1 after 0")):
        assert not (isinstance(each.stop(), Blind) and dead_ends(each))


def test_a_constraint_that_leaves_nothing_behind_the_end_refutes_nobody():
    """[0, 0] is the whole text, and only 1 may follow, which this model never writes."""
    case = Case(2, ((1, 0),), ((1, 0),), (0,), "brackets", None, None, 2)
    assert dead_ends(case)
    for method in (Speculate(Chain(2), rejection), Speculate(SLEM(3), budget=9)):
        assert compared(method, LAW, case, 1000).tv < 1e-12


SHAPINGS = {
    "temperature": (plainly.temperature(0.7), Temperature(0.7), "TemperatureLogitsWarper", (0.7,)),
    "top-k": (plainly.top_k(40), TopK(40), "TopKLogitsWarper", (40,)),
    "top-p": (plainly.top_p(0.9), TopP(0.9), "TopPLogitsWarper", (0.9,)),
    "top-p of nearly all": (plainly.top_p(0.999), TopP(0.999), "TopPLogitsWarper", (0.999,)),
    "min-p": (plainly.min_p(0.05), MinP(0.05), "MinPLogitsWarper", (0.05,)),
    "repetition": (plainly.repetition(1.3), Repetition(1.3), "RepetitionPenaltyLogitsProcessor", (1.3,)),
}


@pytest.mark.parametrize("spread", [0.05, 1.0, 4.0], ids=["flat", "usual", "steep"])
@pytest.mark.parametrize("name", SHAPINGS)
def test_three_statements_of_a_warp_agree_on_laws_of_real_size(name, spread):
    """The proof's, the decoders' and transformers', on 49,152 scores as a model gives them, rounded nowhere."""
    transformers = pytest.importorskip("transformers")
    said, warp, known, options = SHAPINGS[name]
    made = torch.Generator().manual_seed(int(spread * 100))
    scores = torch.randn(49152, dtype=torch.float64, generator=made) * spread
    text = tuple(torch.randint(0, 49152, (300,), generator=made).tolist())
    plain = torch.tensor(said(scores.tolist(), text[:200], text[200:]), dtype=torch.float64)
    prefix = Prefix.of(text[:200], warp).then(text[200:])
    ours = prefix.shape(Law(scores)).scores
    theirs = getattr(transformers, known)(*options)(torch.tensor([text]), scores[None])[0]
    for other in (ours, theirs):
        assert torch.equal(plain.isinf(), other.isinf())
        assert torch.allclose(plain.softmax(0), other.softmax(0), rtol=1e-9, atol=0)


@pytest.mark.parametrize(("mass", "kept"), [(0.5, 1), (0.75, 2), (0.7500001, 4), (0.875, 4), (1.0, 4)])
def test_a_nucleus_with_an_exact_border_ends_there(mass, kept):
    """½, ¼, ⅛, ⅛ are sums of powers of two, so that the mass is reached exactly; the last two tie."""
    scores = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64).log()
    assert sum(map(math.isfinite, plainly.top_p(mass)(scores.tolist(), (), ()))) == kept
    assert int(TopP(mass)(None, Law(scores)).scores.isfinite().sum()) == kept


def test_penalties_are_those_of_openai():
    scores = [1.0, -1.0, 0.5]
    written = (0, 2, 0)
    for said, warp in ((plainly.frequency(0.4), Frequency(0.4)), (plainly.presence(0.4), Presence(0.4))):
        law = Prefix.of((1, 1), warp).then(written).shape(Law(torch.tensor(scores, dtype=torch.float64)))
        assert said(scores, (1, 1), written) == pytest.approx(law.scores.tolist())
    assert plainly.frequency(0.4)(scores, (1, 1), written) == pytest.approx([0.2, -1.0, 0.1])


def test_masking_is_not_conditioning_and_the_two_truths_tell_them_apart():
    case = Case(2, ((3, 1), (1, 2)), ((1, 1),), (0,), "brackets", None, None, 4)
    masked, conditioned = Plainly(case).law(), Conditioned(case).law()
    assert all(done.tokens.count(0) == done.tokens.count(1) for done in conditioned)
    assert total_variation(masked, conditioned) > 0.1


# ---- what it must not pass over


def never(text, chance, warp, stop):
    raise EmptyLaw("no")
    yield


def gives_up_after_token_1(text, chance, warp, stop):
    decoding, reply = Speculate(Chain(2), rejection)(text, chance, warp, stop), None
    while True:
        try:
            ask = decoding.send(reply)
        except StopIteration as end:
            return end.value
        if isinstance(ask, Emit) and 1 in ask.tokens:
            raise EmptyLaw("every token is forbidden here")
        reply = yield ask


def endless(text, chance, warp, stop):
    raise TooManyBranches(1)
    yield


def refusing(text, chance, warp, stop):
    raise BadRequest("this method cannot be used with a constraint")
    yield


@pytest.mark.parametrize("claim", [LAW, SEED], ids=["LAW", "SEED"])
@pytest.mark.parametrize("method", [never, gives_up_after_token_1])
def test_a_method_that_fails_where_plain_decoding_writes_is_refuted(method, claim):
    proof = prove(method, claim, quick=True)
    assert not proof.ok
    assert "no token is left" in proof.counterexample


def test_a_method_must_fail_where_plain_decoding_does():
    """After 1 1 there is nothing: a method that writes on, or says that the text is over, has another law."""

    def unconstrained(text, chance, warp, stop):
        return Plain()(text, chance, shaping.FREE["none"], stop)

    case = Case(2, ((1, 1),), ((1, 1),), (0,), "dead end", None, None, 3)
    assert compared(Plain(), SEED, case, 100).tv == 0
    assert compared(unconstrained, HEURISTIC, case, 100).tv == 0.25
    assert Plainly(case).law()[EMPTY] == 0.25


@pytest.mark.parametrize("method", [endless, refusing])
def test_a_proof_that_compared_nothing_fails(method):
    proof = prove(method, quick=True)
    assert not proof.ok
    assert proof.cases == 0 or method is refusing
    assert proof.counterexample


@pytest.mark.parametrize("end", [SystemExit(0), GeneratorExit()], ids=["SystemExit", "GeneratorExit"])
def test_a_method_cannot_end_the_proof(end):
    def exits(text, chance, warp, stop):
        raise end
        yield

    assert not prove(exits, quick=True).ok


def test_a_refusal_after_the_first_token_is_a_failure():
    """Else a method could hide whatever it does under a constraint by refusing one branch of it."""

    def fickle(text, chance, warp, stop):
        decoding, reply, written = Plain()(text, chance, warp, stop), None, 0
        while True:
            try:
                ask = decoding.send(reply)
            except StopIteration as end:
                return end.value
            written += isinstance(ask, Emit)
            if "Constrained" in repr(warp) and written > 1:
                raise BadRequest("this constraint is too hard")
            reply = yield ask

    proof = prove(fickle, LAW, quick=True)
    assert not proof.ok
    assert "too hard" in proof.counterexample


def test_only_a_constraint_can_be_refused_and_that_is_counted():
    def refuses_constraints(text, chance, warp, stop):
        if "Constrained" in repr(warp):
            raise BadRequest("this method cannot be used with a constraint")
        return (yield from Plain()(text, chance, warp, stop))

    proof = prove(refuses_constraints, SEED, quick=True)
    assert proof.ok
    assert proof.refused >= 12
    assert proof.record()["refused"] == proof.refused


def test_shortened_cases_are_counted():
    proof = prove(Speculate(RSDC((2, 1)), sample_match), SEED, quick=True)
    assert proof.ok
    assert proof.shorter > 0
    assert proof.record()["shorter"] == proof.shorter


@pytest.mark.parametrize("effort", [QUICK, THOROUGH], ids=["quick", "thorough"])
@pytest.mark.parametrize("trials", range(1, 7))
def test_every_standing_case_is_met_by_some_trial(effort, trials):
    for known, shaped in ((STANDING, True), (UNSHAPED, False)):
        met = [case for number in range(trials) for case in effort.standing(number, trials, shaped)]
        assert set(met) == set(known)


def test_a_rule_without_trials_shows_nothing():
    from unspool.proof.prove import prove_entry

    assert not prove_entry(replace(entries()["sample_match"], trials=lambda rule: [])).ok


def test_a_method_that_remembers_branches_is_told_so():
    seen = []

    def program(chance):
        seen.append(0)
        return chance.choose(Law.of([1] * (3 if len(seen) < 3 else 1)), At(0, Role.PICK))

    with pytest.raises(Unrepeatable, match="remembers"):
        Every().law(program)


# ---- bugs that small worlds hide


@dataclass(frozen=True)
class Changed:
    """Plain decoding by a law that somebody has changed: `change(law, written)`."""

    change: object

    def __call__(self, text, chance, warp, stop):
        change, prompt = self.change, len(text)

        def wrong(scored, chance):
            law = change(scored.law(ROOT), len(scored.prefix) - prompt)
            return Verdict(ROOT, law.draw(chance, scored.at(Role.PICK, ROOT)).token)

        return Speculate(verify=wrong)(text, chance, warp, stop)


def greedy_from_the_fourth_token_on(law, written):
    return law.temper(0) if written >= 3 else law


def wrong_from_the_fourth_token_of_the_vocabulary_on(law, written):
    return Law(law.scores + torch.tensor([0, 0, 0, 0.5, 0.5][: law.size], dtype=torch.float64))


def test_a_fourth_token_and_a_fourth_entry_of_the_vocabulary_are_looked_at():
    assert prove(Changed(lambda law, written: law), SEED, quick=True).ok
    for change in (greedy_from_the_fourth_token_on, wrong_from_the_fourth_token_of_the_vocabulary_on):
        proof = prove(Changed(change), LAW, name=change.__name__, quick=True)
        assert not proof.ok, change.__name__
        assert proof.tv > 1e-3


def fourth_sibling_against_the_wrong_law(scored, chance):
    tree, law = scored.tree, scored.law(ROOT)
    for k, kid in enumerate(tree.kids(ROOT)):
        x, q = tree.drawn[kid]
        judged = scored.law(ROOT) if k == 3 else law
        if chance.coin(min(1.0, judged[x] / q[x]) if q[x] > 0 else 0.0, scored.at(Role.ACCEPT, ROOT, k)):
            return Verdict(kid, scored.law(kid).draw(chance, scored.at(Role.RESIDUAL, kid)).token)
        law = law.minus(q)
    return Verdict(ROOT, law.draw(chance, scored.at(Role.RESIDUAL, ROOT)).token)


def test_a_fourth_sibling_is_looked_at():
    assert not prove(Speculate(RSDC((4,)), fourth_sibling_against_the_wrong_law), quick=True).ok


@pytest.mark.parametrize("warp", ["min-p 0.45", "presence 0.8", "bias", "never 1 after 0", "no 1 among the first two"])
def test_a_method_that_ignores_a_warp_is_refuted(warp):
    def ignores(text, chance, given, stop):
        return Plain()(text, chance, shaping.FREE["none"] if given is shaping.FREE[warp] else given, stop)

    assert not prove(ignores, LAW, quick=True).ok


# ---- what comes with a token


@dataclass(frozen=True)
class Reporting:
    """A method whose reports somebody has changed."""

    change: object

    def __call__(self, text, chance, warp, stop):
        decoding, reply = Speculate(Chain(2), rejection)(text, chance, warp, stop), None
        while True:
            try:
                ask = decoding.send(reply)
            except StopIteration as end:
                return end.value
            reply = yield self.change(ask) if isinstance(ask, Emit) else ask


def shifted(emit):
    return replace(emit, before=[*emit.before][::-1], after=[*emit.after][::-1])


def swapped(emit):
    return replace(emit, before=emit.after, after=emit.before)


def raw_for_warped(emit):
    return replace(emit, after=emit.before)


class NoNumbers(Law):
    """A law whose probabilities are no numbers, which no comparison by `>` would see."""

    def spread(self, like):
        return torch.full_like(like.scores, math.nan)


def no_numbers(emit):
    return replace(emit, after=[NoNumbers(law.scores) for law in emit.after])


def nothing(emit):
    return replace(emit, before=[], after=[])


def called_a_canvas(emit):
    return replace(shifted(emit), canvas=object())


LATER = pytest.param(raw_for_warped, marks=pytest.mark.slow)


@pytest.mark.parametrize("change", [shifted, swapped, LATER, no_numbers, nothing, called_a_canvas])
def test_emitted_probabilities_are_part_of_what_is_proved(change):
    proof = prove(Reporting(change), LAW, quick=True)
    assert not proof.ok
    assert "the law emitted" in proof.counterexample or "came with token" in proof.counterexample


def test_reports_that_are_right_hold():
    assert prove(Reporting(lambda emit: emit), LAW, quick=True).ok


# ---- counterexamples that can be run again


def run(*words):
    with pytest.raises(SystemExit) as end:
        main(list(words))
    return end.value.code


def test_a_failed_seed_shows_the_two_texts_of_one_branch_and_can_be_replayed():
    method = Speculate(Chain(2), rejection)
    proof = prove(method, SEED)
    assert not proof.ok
    told = replay(method, proof.witness)
    mine = next(line for line in told.splitlines() if line.startswith("the method writes"))
    plain = next(line for line in told.splitlines() if line.startswith("plain decoding writes"))
    assert mine.split("writes")[1] != plain.split("writes")[1]
    assert mine.split("writes ")[1] in proof.counterexample
    assert plain.split("writes ")[1] in proof.counterexample
    assert "PICK at position" in told
    assert "drafted:" in told
    assert "stood; then comes" in told
    assert "where yes had probability" in told
    assert "with the same random numbers" in proof.counterexample
    assert "they part at token" in proof.counterexample
    assert "plain decoding, PICK at position" in proof.counterexample
    rows = [line.split() for line in proof.counterexample.splitlines() if " truth " in line]
    assert all(row[row.index("got") + 1] != row[row.index("truth") + 1] for row in rows)  # no equal ones
    assert rows or "the law is kept" in proof.counterexample


def test_the_branch_that_is_replayed_has_the_step_that_is_wrong():
    """A rule that draws from p again where a draft was refused: nothing of it shows where the draft was accepted."""

    def half(scored, chance):
        tree, node, law = scored.tree, ROOT, scored.law(ROOT)
        while kids := tree.kids(node):
            token, q = tree.drawn[kids[0]]
            if not chance.coin(min(1.0, law[token] / q[token]), scored.at(Role.ACCEPT, node)):
                break
            node, law = kids[0], scored.law(kids[0])
        return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)

    method = Speculate(Chain(2), half)
    for case in STANDING[:4]:
        found = compared(method, LAW, case, 50_000)
        assert found.tv > 0.05
        assert ": no, where yes had probability" in replay(method, found.witness)


def test_a_counterexample_is_replayed_on_the_command_line(tmp_path, capsys):
    rule = tmp_path / "mine.py"
    rule.write_text(
        "from unspool import Speculate\nfrom unspool.rules.draft import Chain\n"
        "from unspool.rules.verify import rejection\n"
        "mine = Speculate(Chain(1), rejection)\n"
    )
    assert run("prove", f"{rule}:mine", "--claim", "seed", "--quick", "--json") == 1
    (tmp_path / "proofs.json").write_text(capsys.readouterr().out)
    assert run("prove", f"{rule}:mine", "--replay", str(tmp_path / "proofs.json")) == 0
    told = capsys.readouterr().out
    assert "the method writes" in told
    assert "plain decoding writes" in told
    assert "drafted:" in told
    assert "stood; then comes" in told
    assert run("prove", f"{rule}:mine", "--claim", "seed", "--quick", "--replay") == 1
    assert told.strip() in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    ["", "[", "{}", "[1]", '[{"method": "block"}]', '[{"method": "block", "witness": 3}]', "null",
     '[{"method": "block", '
     '"witness": {"case": {"vocab": 2}, "claim": "LAW", "branch": [], "trial": 0}}]', "[" * 100_000,
     json.dumps([{"method": "block", "witness": {"case": {"vocab": 2, "target": [], "draft": [[1, 1]], "prompt": [0],
     "warp": "none", "end": None, "until": None, "most": 10**8}, "claim": "LAW", "branch": [], "trial": 0}}])],
    ids=["empty", "open", "object", "number", "no witness", "wrong witness", "null", "half a case", "deep", "huge"],
)  # fmt: skip
def test_a_file_that_is_no_proof_is_refused_in_words(tmp_path, capsys, text):
    file = tmp_path / "proofs.json"
    file.write_text(text)
    assert run("prove", "block", "--replay", str(file)) != 0
    assert "Traceback" not in (told := capsys.readouterr().err)
    assert "proof" in told or "prove" in told


# ---- compositions


@pytest.mark.parametrize("verify", [block, traversal, multipath])
@pytest.mark.parametrize("draft", [Coupled(2), Raced(2), Either(Lookup(), Coupled(1)), Merge(Lookup(), Raced(1))])
def test_drafts_with_reused_noise_are_refused_under_rules_that_look_ahead(draft, verify):
    with pytest.raises(BadRequest, match=r"would not be exact.*Use sample_match"):
        Speculate(draft, verify)


@pytest.mark.parametrize("verify", [sample_match, race, rejection, zeroing, kseq])
@pytest.mark.parametrize("draft", [Coupled(2), Raced(2)])
def test_drafts_with_reused_noise_are_exact_under_rules_that_decide_token_by_token(draft, verify):
    case = Case(2, ((3, 1), (1, 2), (2, 5)), ((1, 2), (4, 1), (1, 1)), (0,), "none", None, None, 3)
    assert compared(Speculate(draft, verify), LAW, case, 3000).tv < 1e-12


@pytest.mark.parametrize("verify", [block, traversal, multipath])
def test_what_is_refused_would_have_another_law(verify):
    """So the fence is needed: with the declaration taken for granted, the law comes out wrong."""

    class Undeclared(Coupled):
        reuses_noise = False

    case = Case(2, ((3, 1), (1, 2), (2, 5)), ((1, 2), (4, 1), (1, 1)), (0,), "none", None, None, 3)
    assert compared(Speculate(Undeclared(2), verify), LAW, case, 3000).tv > 1e-3


def test_inside_a_cascade_noise_is_fresh_whatever_drafts():
    method = Speculate(Cascade(Raced(1), rejection, 1), block)
    assert prove(method, LAW, quick=True).ok


# ---- paths that end on their own

DRY = Case(3, ((2, 6, 5), (3, 7, 3)), ((1, 0, 0), (6, 7, 4)), (0,), "no bigram twice", None, None, 3)


@dataclass(frozen=True)
class AllAtOnce(Memoryless):
    """Independent paths, all of which end where one of them has no token left: the bug that `SpecInfer` once had."""

    def propose(self, prefix, budget, chance):
        tree, ends, start = NOTHING, [ROOT, ROOT], len(prefix)
        for i in range(prefix.ahead(2)):
            scores = yield Score(tree, by=DRAFT)
            said = [tree.tokens(tree.path(node)) for node in ends]
            laws = {path: possible(prefix.then(path), scores.law(node)) for path, node in zip(said, ends, strict=True)}
            if None in laws.values():
                return tree
            for j, node in enumerate(ends):
                tree, ends[j] = tree.grow(laws[said[j]].draw(chance, At(start + i, Role.DRAFT, j, start)), node)
        return tree


@pytest.mark.parametrize("verify", [multipath, kseq, rejection])
def test_a_path_that_runs_dry_ends_alone(verify):
    found = compared(Speculate(SpecInfer(2, 2), verify), LAW, DRY, 3000)
    assert found.tv < 1e-12
    assert found.branches > 200


def test_paths_that_end_together_are_not_exact():
    assert compared(Speculate(AllAtOnce(), multipath), LAW, DRY, 3000).tv > 0.01


@pytest.mark.parametrize("verify", [block, traversal, multipath, rejection])
def test_what_hangs_below_a_dead_end_is_never_weighed(verify):
    """A copied draft may run through a dead end; the node there is a leaf, whatever was drafted below it."""
    case = Case(2, ((1, 3), (2, 3)), ((1, 1),), (0, 1, 1, 1, 0), "dead end, temperature 1.5, top-p 0.7", None, None, 5)
    assert Plainly(case).law()[EMPTY] > 0.1
    drafted = []

    def watched(scored, chance):
        drafted.append(scored.tree.tokens(range(len(scored.tree))))
        return verify(scored, chance)

    assert compared(Speculate(Lookup(1, 1, 4), watched), LAW, case, 3000).tv < 1e-12
    assert (1, 1, 1, 0) in drafted  # after two of token 1 nothing can follow, and something was drafted


def test_nothing_is_verified_behind_a_token_that_ends_the_text():
    """There a warp may have no law, which is no reason for the text to fail that plain decoding writes."""
    asked = []

    def spying(scored, chance):
        asked.append(scored.tree)
        return sample_match(scored, chance)

    draft = Drafted(lambda law, chance, at: [law.draw(chance, at)], depth=3)
    case = Case(2, ((1, 1),), ((1, 1),), (0,), "none", 1, None, 4, blind=False)
    assert compared(Speculate(draft, spying), SEED, case, 3000).tv < 1e-12
    assert any(len(tree) for tree in asked)
    for tree in asked:
        assert all(tree.drawn[node].token != 1 for node in tree.parent if node >= 0)


def test_checks_and_laws_of_emits_are_lazy():
    """A proof looks at every emitted law; decoding itself must not, or each would cost a pass over the vocabulary."""
    made = []
    laws = Laws(lambda node: made.append(node) or Law.of([1]), [ROOT, 0])
    assert len(laws) == 2
    assert not made
    assert isinstance(laws[1], Law)
    assert made == [0]
    assert Check(NOTHING, Prefix.of((0,), shaping.FREE["none"]), sample_match, None).tree is NOTHING
    assert Scored(NOTHING, Prefix.of((0,), shaping.FREE["none"]), Law.of([1, 1]), []).ends(ROOT) is False


def test_records_are_plain_data():
    proof = prove(never, quick=True)
    assert json.loads(json.dumps(proof.record()))["witness"]["case"]["warp"] == "none"
