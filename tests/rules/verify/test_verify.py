"""The numbers that papers state of each verifier, and what follows, computed exactly on every branch of a round."""

import itertools
import random
from dataclasses import dataclass
from functools import partial

import pytest
from proposing import answered
from selection import crossed

from unspool.core.asks import Check, Score, Scores, Verdict
from unspool.core.chance import Every, Philox, Role, total_variation
from unspool.core.claim import ARGMAX, BOUND, HEURISTIC, LAW, SEED
from unspool.core.errors import BadRequest
from unspool.core.law import Drawn, Law
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Same, Temperature
from unspool.core.warp.warp import Prefix, Scored
from unspool.proof import prove
from unspool.proof.case import STANDING
from unspool.proof.compare_laws import compared
from unspool.rules.decode import Speculate
from unspool.rules.draft import RSDC, BiLD, Chain, Coupled, Lookup, Memoryless, SpecHub, SpecInfer
from unspool.rules.verify import (
    Conditional,
    Lenient,
    Mixture,
    Rollback,
    TopBeta,
    TypicalAcceptance,
    block,
    greedy,
    kseq,
    multipath,
    rejection,
    sample_match,
    traversal,
    zeroing,
)
from unspool.rules.verify.block import longest, residual
from unspool.rules.verify.kseq import alike, common_test
from unspool.rules.verify.multipath import helpful
from unspool.rules.verify.synthetic import Synthetic
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest

PROMPT = (0,)
EXACT = (sample_match, zeroing, rejection, block, traversal, kseq, multipath)


def always(*weights: float) -> Table:
    """A model whose law does not depend on the text."""
    return Table(len(weights), lambda text: weights)


def toy(seed: int, vocab: int = 3) -> Table:
    """A model with a drawn law for every text."""
    return Table(vocab, lambda text: [random.Random(f"{seed}{text}{x}").random() ** 2 + 0.01 for x in range(vocab)])


def scored(drafter: Table, ask: Score) -> Scores:
    return drafter.score([ScoreRequest(drafter.open(PROMPT), ask.tree)])[0]


def one_round(draft, verify, target: Table, drafter: Table) -> dict[tuple[tuple[int, ...], int], float]:
    """The exact law of (accepted tokens, next token) of one drafted and checked tree."""

    def program(chance):
        prefix = Prefix.of(PROMPT, Same())
        tree, _ = answered(draft.begin(prefix).propose(prefix, 16, chance), partial(scored, drafter))
        scores = target.score([ScoreRequest(target.open(PROMPT), tree)])[0]
        node, token = Check(tree, prefix, verify, chance).answer(scores).verdict
        return tree.tokens(tree.path(node)), token

    return Every().law(program)


def accepted(draft, verify, target: Table, drafter: Table) -> float:
    """E[τ]: the expected number of accepted tokens in one round."""
    return sum(len(tokens) * mass for (tokens, _), mass in one_round(draft, verify, target, drafter).items())


def off(law, target: Table, length: int) -> float:
    """Total variation of the text a round begins, continued by the target, from the target's own text."""
    texts = dict.fromkeys(itertools.product(range(target.vocab), repeat=length), 0.0)
    truth = {text: likelihood(target, (), text) for text in texts}
    for (tokens, token), mass in law.items():
        start = (*tokens, token)
        for rest in itertools.product(range(target.vocab), repeat=length - len(start)):
            texts[start + rest] += mass * likelihood(target, start, rest)
    return total_variation(texts, truth)


def likelihood(target: Table, start: tuple[int, ...], rest: tuple[int, ...]) -> float:
    mass = 1.0
    for i, token in enumerate(rest):
        mass *= target.law(PROMPT + start + rest[:i])[token]
    return mass


# ---- all exact rules


@pytest.mark.parametrize("verify", EXACT, ids=lambda v: v.__name__)
@pytest.mark.parametrize(
    ("draft", "vocab", "length"),
    [
        (Chain(3), 2, 4),
        (Chain(2), 3, 3),
        (BiLD(0.0, 3), 3, 4),
        (RSDC((2, 2)), 2, 3),
        (RSDC((2, 1)), 3, 3),
        (RSDC((3,)), 4, 2),
        (SpecInfer(2, 2), 2, 3),
        (SpecInfer(2, 2), 3, 3),
        (SpecInfer(3, 1), 3, 2),
        (SpecInfer(3, 2), 2, 3),
    ],
    ids=str,
)
def test_a_round_leaves_the_joint_law_of_the_text_as_it_is(verify, draft, vocab, length):
    target = toy(1, vocab)
    assert off(one_round(draft, verify, target, toy(2, vocab)), target, length) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("verify", EXACT, ids=lambda v: v.__name__)
@pytest.mark.parametrize("draft", [RSDC((2, 1)), SpecInfer(2, 2)], ids=str)
def test_whole_texts_under_warps_and_stops_on_trees_that_the_quick_proofs_leave_out(verify, draft):
    proof = prove(Speculate(draft, verify), quick=True)
    assert proof.ok, proof.counterexample


@pytest.mark.parametrize("verify", EXACT, ids=lambda v: v.__name__)
def test_no_rule_has_a_limit_of_depth(verify):
    law, deep = Law.of([0.0, 1.0]), 3000
    tree = Tree.chain([Drawn(1, law)] * deep)
    scored = Scored(tree, Prefix.of((0,), Same()), law, [law] * deep)
    assert verify(scored, Philox(1)) == Verdict(deep - 1, 1)


@pytest.mark.parametrize("verify", [rejection, block, traversal, kseq], ids=lambda v: v.__name__)
@pytest.mark.parametrize("draft", [Chain(2), SpecInfer(2, 2), RSDC((2, 2))], ids=str)
def test_a_draft_from_the_target_itself_is_accepted_whole(verify, draft):
    target = toy(3)
    assert accepted(draft, verify, target, target) == pytest.approx(2, abs=1e-12)


@pytest.mark.parametrize("verify", EXACT, ids=lambda v: v.__name__)
@pytest.mark.parametrize("draft", [Chain(2), SpecInfer(2, 2), RSDC((2, 1))], ids=str)
def test_nothing_is_accepted_of_a_draft_that_the_target_would_never_write(verify, draft):
    target = always(1, 3, 0, 0)
    law = one_round(draft, verify, target, always(0, 0, 1, 2))
    assert law == pytest.approx({((), 0): 0.25, ((), 1): 0.75})


# ---- block verification


def test_block_accepts_eleven_ninths_where_rejection_accepts_ten():
    target, drafter = always(1, 2), always(2, 1)
    assert accepted(Chain(2), rejection, target, drafter) == pytest.approx(10 / 9, abs=1e-12)
    assert accepted(Chain(2), block, target, drafter) == pytest.approx(11 / 9, abs=1e-12)


def test_block_is_never_below_rejection_and_mostly_above():
    pairs = [(toy(seed), toy(seed + 100)) for seed in range(30)]
    gains = [accepted(Chain(2), block, p, q) - accepted(Chain(2), rejection, p, q) for p, q in pairs]
    assert min(gains) > -1e-12
    assert sum(gain > 1e-3 for gain in gains) > 15


@pytest.mark.parametrize(
    "other", [sample_match, zeroing, rejection, traversal, kseq, multipath], ids=lambda v: v.__name__
)
def test_for_chosen_tokens_all_exact_rules_are_the_same(other):
    for seed in range(5):
        target, drafter = toy(seed), toy(seed + 50)
        law = one_round(BiLD(0.0, 3), block, target, drafter)
        assert total_variation(law, one_round(BiLD(0.0, 3), other, target, drafter)) < 1e-12


def test_on_one_token_block_is_rejection():
    for seed in range(5):
        target, drafter = toy(seed), toy(seed + 50)
        laws = [one_round(Chain(1), verify, target, drafter) for verify in (block, rejection)]
        assert total_variation(*laws) < 1e-12


# ---- traversal verification


def test_traversal_is_block_on_chains_and_rejection_on_one_level():
    for seed in range(5):
        target, drafter = toy(seed), toy(seed + 50)
        for draft, other in ((Chain(3), block), (RSDC((2,)), rejection), (SpecInfer(2, 1), rejection)):
            laws = [one_round(draft, verify, target, drafter) for verify in (traversal, other)]
            assert total_variation(*laws) < 1e-12


def test_traversal_and_block_say_the_same_of_a_chain_with_the_same_random_numbers():
    said = {traversal: [], block: []}
    for seed, verify in itertools.product(range(200), said):
        chance, prefix = Philox(seed), Prefix.of(PROMPT, Same())
        target, drafter = toy(seed, 5), toy(seed + 1, 5)
        tree, _ = answered(Chain(4).begin(prefix).propose(prefix, 4, chance), partial(scored, drafter))
        scores = target.score([ScoreRequest(target.open(PROMPT), tree)])[0]
        said[verify].append(Check(tree, prefix, verify, chance).answer(scores).verdict)
    assert said[traversal] == said[block]
    assert len({node for node, _ in said[block]}) == 5


@pytest.mark.parametrize("draft", [RSDC((2, 2)), SpecInfer(2, 2)], ids=str)
def test_traversal_accepts_more_than_rejection_on_trees(draft):
    pairs = [(toy(seed), toy(seed + 50)) for seed in range(2)]
    gains = [accepted(draft, traversal, p, q) - accepted(draft, rejection, p, q) for p, q in pairs]
    assert min(gains) > -1e-12
    assert max(gains) > 0.01


class Refusing:
    """Chance that refuses every coin it can, and remembers their probabilities."""

    def __init__(self):
        self.coins = []

    def coin(self, p, at):
        self.coins.append(p)
        return p == 1

    def choose(self, law, at):
        return law.best


def test_the_worked_example_of_the_traversal_paper():
    p, q = Law.of([0.3, 0.4, 0.3]), Law.of([0.6, 0.3, 0.1])
    tree = Tree((Drawn(0, q), Drawn(1, q), Drawn(2, q.without(1)), Drawn(0, q)), (ROOT, 0, 0, 2))
    chance = Refusing()
    verdict = traversal(Scored(tree, Prefix.of(PROMPT, Same()), p, [p] * 4), chance)
    first, below_c, c, a, root = chance.coins
    assert first == pytest.approx(2 / 3)
    assert below_c == pytest.approx(7 / 11 * 0.5)  # α(c) = .05/.55 · 7 = .636, and the a below it has half of that
    assert c == pytest.approx(0.2)
    assert (a, root) == (0, 1)
    assert verdict == Verdict(ROOT, 2)  # P − Q is largest there


# ---- many drafts: K-SEQ, its optimum, and the best path


def optimum(p: Law, q: Law, count: int) -> float:
    """α*: what an optimal transport from `count` independent drafts to p accepts."""
    order = sorted(range(p.size), key=lambda x: -p[x] / q[x])
    sets = [order[:i] for i in range(p.size + 1)]
    return 1 + min(1 - (1 - sum(q[x] for x in s)) ** count - sum(p[x] for x in s) for s in sets)


@pytest.mark.parametrize("count", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_kseq_lies_between_its_bound_and_the_optimum(count):
    for seed in range(15):
        target, drafter = toy(seed, 4), toy(seed + 50, 4)
        best = optimum(target.law(PROMPT), drafter.law(PROMPT), count)
        rate = accepted(SpecInfer(count, 1), kseq, target, drafter)
        assert (1 - (1 - 1 / count) ** count) * best - 1e-9 <= rate <= best + 1e-12
        assert accepted(SpecInfer(count, 1), rejection, target, drafter) <= best + 1e-12


def test_kseq_accepts_more_of_more_drafts_and_is_rejection_for_one():
    for seed in range(5):
        target, drafter = toy(seed), toy(seed + 50)
        laws = [one_round(Chain(2), verify, target, drafter) for verify in (kseq, rejection)]
        assert total_variation(*laws) < 1e-12
        rates = [accepted(SpecInfer(count, 1), kseq, target, drafter) for count in (1, 2, 3)]
        assert rates == sorted(rates)


def test_kseq_keeps_every_path_that_begins_with_the_accepted_token():
    target, drafter = toy(1), toy(51)
    alone = accepted(Chain(2), kseq, target, drafter) - accepted(Chain(1), kseq, target, drafter)
    both = accepted(SpecInfer(2, 2), kseq, target, drafter) - accepted(SpecInfer(2, 1), kseq, target, drafter)
    assert both > alone


def test_only_siblings_of_one_law_count_as_independent():
    law = Law.of([1, 1])
    tree = Tree((Drawn(0, law), Drawn(0, law), Drawn(1, Law.of([1, 1]))), (ROOT, ROOT, ROOT))
    assert alike(tree, tree.kids(ROOT)) == [0, 1]


def test_the_best_of_one_path_is_that_path():
    for seed in range(5):
        target, drafter = toy(seed), toy(seed + 50)
        law = one_round(Chain(3), block, target, drafter)
        assert total_variation(law, one_round(SpecInfer(1, 3), multipath, target, drafter)) < 1e-12


def test_more_paths_help_a_poor_draft_and_hurt_no_perfect_one():
    target = always(1, 2, 6)
    shapes = (1, 2), (2, 2), (2, 1), (3, 1)  # three paths of two tokens would be most of the time of this file
    one, two, two_short, three_short = (accepted(SpecInfer(*k), multipath, target, always(6, 2, 1)) for k in shapes)
    assert one < two
    assert two_short < three_short
    perfect = [accepted(SpecInfer(k, 1), multipath, toy(1), toy(1)) for k in (1, 2)]
    assert perfect == pytest.approx([1, 1])  # the best of two would be accepted less often than one
    near = Law.of((5, 3, 2)), Law.of((4, 4, 2))
    assert [helpful(*near, k) for k in (1, 2, 3)] == [1, 1, 1]
    assert helpful(Law.of((1, 2, 6)), Law.of((6, 2, 1)), 3) == 3


def test_a_hub_accepts_as_much_as_any_rule_can_of_such_siblings():
    """P(S) + Σ min(P, q): what is always there is never lost, and a drawn token is at best accepted min(P, q)."""
    for seed in range(10):
        target, drafter = toy(seed, 4), toy(seed + 50, 4)
        p, q = target.law(PROMPT), drafter.law(PROMPT)
        for width in (1, 2, 3):
            top = q.top(width - 1) if width > 1 else []
            left = 1 - sum(q[x] for x in top)
            others = sum(min(p[x], q[x] / left) for x in range(4) if x not in top)
            best = sum(p[x] for x in top) + others
            assert accepted(SpecHub((width,)), rejection, target, drafter) == pytest.approx(best, abs=1e-9)
    wider = [accepted(SpecHub((k,)), rejection, toy(1, 4), toy(51, 4)) for k in (1, 2, 3)]
    assert wider == sorted(wider)
    assert wider[0] == pytest.approx(accepted(Chain(1), rejection, toy(1, 4), toy(51, 4)))


def test_synthetic_acceptance_is_what_was_asked_for():
    for rate in (0.0, 0.3, 1.0):
        for draft, most in ((Chain(1), 1), (Chain(3), 3)):
            expected = sum(rate**i for i in range(1, most + 1))
            assert accepted(draft, Synthetic(rate), toy(1), toy(2)) == pytest.approx(expected)
    greedy = Prefix.of(PROMPT, Temperature(0.0))
    law, tree = Law.of([5, 3, 2]), Tree.chain([Drawn(2, Law.point(2))])
    assert Synthetic(1.0)(Scored(tree, greedy, law, [law]), Philox(0)) == Verdict(0, 0)  # though 0 is the likeliest


def test_multipath_refuses_paths_of_different_lengths():
    law = Law.of([1, 1])
    tree = Tree((Drawn(0, law), Drawn(0, law), Drawn(1, law)), (ROOT, ROOT, 0))
    other = Law.of([1, 5])  # which two paths serve better than one
    with pytest.raises(BadRequest, match="different lengths"):
        multipath(Scored(tree, Prefix.of(PROMPT, Same()), other, [law] * 3), Refusing())


def test_zeroing_has_the_law_of_the_walk_down_to_what_is_accepted():
    for draft in (RSDC((2, 2)), SpecInfer(2, 2), Chain(2), BiLD(0.0, 2)):
        laws = [one_round(draft, verify, toy(1), toy(2)) for verify in (sample_match, zeroing)]
        assert total_variation(*laws) < 1e-12


def test_shared_noise_accepts_everything_of_the_target_itself_and_keeps_the_seed():
    assert accepted(Coupled(2), sample_match, toy(1), toy(1)) == pytest.approx(2)
    # intervals by id: P = [0, .75), [.75, 1) and Q = [0, .5), [.5, 1) overlap in .5 + .25
    assert accepted(Coupled(1), sample_match, always(3, 1), always(1, 1)) == pytest.approx(0.75)
    # a little mass moved at the lowest id shifts every other interval: far below the race's (1 − TV)/(1 + TV)
    assert accepted(Coupled(1), sample_match, always(1, 0, 1, 1), always(0, 1, 1, 1)) == pytest.approx(2 / 3)


# ---- approximate rules


def test_without_lenience_or_mixing_the_approximate_rules_are_exact():
    for draft in (Chain(2), RSDC((2, 1))):
        law = one_round(draft, rejection, toy(1), toy(2))
        for verify in (Lenient(1.0), Mixture(0.0)):
            assert total_variation(law, one_round(draft, verify, toy(1), toy(2))) < 1e-12


@pytest.mark.parametrize("verify", [TopBeta(beta=1), TopBeta(tau=0.0), Rollback(0.0)], ids=str)
def test_at_their_strictest_the_approximate_greedy_rules_are_greedy(verify):
    for draft in (Chain(2), BiLD(0.0, 2)):
        laws = [one_round(draft, rule, toy(1), toy(2)) for rule in (greedy, verify)]
        assert total_variation(*laws) < 1e-12


@pytest.mark.parametrize("verify", [TypicalAcceptance(), Conditional()], ids=str)
def test_at_temperature_zero_the_rules_that_draw_are_greedy(verify):
    """`top_beta` and `rollback` draw nothing, and judge the law before it: their settings count there too."""
    assert prove(Speculate(Chain(2), verify), ARGMAX, quick=True).ok


def test_the_more_a_rule_lets_pass_the_more_is_accepted():
    target, drafter = toy(1), toy(2)
    for ladder in (
        [Lenient(1.0), Lenient(0.8), Lenient(0.4)],
        [Mixture(0.0), Mixture(0.2), Mixture(0.6)],
        [TypicalAcceptance(0.3, 0.9), TypicalAcceptance(), TypicalAcceptance(0.01, 0.01)],
        [TopBeta(1), TopBeta(2), TopBeta(3, float("inf"))],
        [Rollback(0.0), Rollback(1.0), Rollback(float("inf"))],
        [Conditional(0.5, 0.0), Conditional(0.2, 0.1), Conditional(0.0, 0.1)],
    ):
        rates = [accepted(Chain(2), verify, target, drafter) for verify in ladder]
        assert rates == sorted(rates)
        assert rates[-1] > rates[0]


def test_conditional_verification_accepts_of_a_flat_law_what_it_refuses_of_a_peaked_one():
    flat, peaked = [3.2, *[1.0] * 20], [30.0, 2.2, 1.0]  # token 1 has 4.3 % and 6.6 %, the bars are 0 and 8.5 %
    for weights, stands in ((flat, 1.0), (peaked, 0.066)):
        law = one_round(Chain(1), Conditional(0.15, 0.15), always(*weights), always(0, 1))
        assert sum(mass for (path, _), mass in law.items() if path == (1,)) == pytest.approx(stands, abs=0.01)


def test_a_mixture_is_accepted_and_off_in_proportion():
    target, drafter = always(3, 1), always(1, 1)  # TV = .25
    assert accepted(Chain(1), Mixture(0.4), target, drafter) == pytest.approx(1 - 0.6 * 0.25)
    assert off(one_round(Chain(1), Mixture(0.4), target, drafter), target, 2) == pytest.approx(0.4 * 0.25)


@pytest.mark.parametrize(
    ("verify", "draft"),
    crossed(
        [Mixture(0.3), Mixture(1.0), Lenient(0.5), Conditional(), TypicalAcceptance(0.0, 0.0)],
        [Lookup(ngram=1, least=1, depth=2), Chain(2), RSDC((2,))],
        quick=3,
    ),
)
def test_no_approximate_rule_writes_what_the_target_cannot(verify, draft):
    """Neither what a constraint or a truncation forbids, nor what the model itself rules out."""
    for case in STANDING:
        if case.most <= 3:
            found = compared(Speculate(draft, verify), HEURISTIC, case, 20_000)
            assert {text for text, mass in found.got.items() if mass > 0} <= found.truth.keys(), str(case)


def test_a_mixture_keeps_the_weight_of_forbidden_tokens_with_the_target():
    target, drafter = always(3, 1, 0), always(1, 1, 2)  # half of q is on what p forbids: 0.8·p + 0.4·q
    law = one_round(Chain(1), Mixture(0.4), target, drafter)
    first = [sum(mass for (path, token), mass in law.items() if (*path, token)[0] == x) for x in range(3)]
    assert first == pytest.approx([0.8 * 0.75 + 0.1, 0.8 * 0.25 + 0.1, 0.0])


@pytest.mark.parametrize("slack", [0.5, *(pytest.param(x, marks=pytest.mark.slow) for x in (0.2, 0.1))])
def test_bounds_hold_for_other_parameters_and_are_not_idle(slack):
    for verify in (Lenient(1 - slack), Mixture(slack)):
        method = Speculate(Chain(1), verify)
        assert prove(method, BOUND, bound=lambda case: 1 - (1 - slack) ** case.most, quick=True).ok
        assert not prove(method, BOUND, bound=lambda case: 0.01 * slack, quick=True).ok


def test_the_little_model_stops_where_it_is_unsure():
    sure, unsure = always(9, 1), always(5, 4)
    assert accepted(BiLD(0.6, 3), greedy, sure, sure) == 3
    assert accepted(BiLD(0.6, 3), greedy, sure, unsure) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SpecInfer(0, 1),
        lambda: Coupled(0),
        lambda: BiLD(2.0),
        lambda: Lenient(0.0),
        lambda: Mixture(1.5),
        lambda: TypicalAcceptance(alpha=1.0),
        lambda: TopBeta(beta=0),
        lambda: Rollback(-1.0),
        lambda: Conditional(base=float("nan")),
    ],
)
def test_parameters_out_of_range_are_refused_with_what_was_expected(wrong):
    with pytest.raises(BadRequest, match="expected"):
        wrong()


# ---- variants that look right but are not


def stop_at_the_first_failure(scored, chance):
    """Block verification's h with token verification's scan."""
    tree, node, weight = scored.tree, ROOT, 1.0
    law = scored.law(ROOT)
    while kids := tree.kids(node):
        x, q = tree.drawn[kids[0]]
        below = min(1.0, weight * scored.law(node)[x] / q[x])
        rest = tree.kids(kids[0])
        stands = residual(scored.law(kids[0]), tree.drawn[rest[0]].law, below)[1] if rest else below
        if not chance.coin(stands, scored.at(Role.ACCEPT, kids[0])):
            law = residual(scored.law(node), q, weight)[0]
            break
        node, weight, law = kids[0], below, scored.law(kids[0])
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)


@dataclass(frozen=True)
class OnlyCoins:
    """Chance that tosses coins as another does, and draws nothing."""

    chance: object

    def coin(self, p, at):
        return self.chance.coin(p, at)

    def choose(self, law, at):
        return law.best


def unscaled_residual(scored, chance):
    node, _ = block(scored, OnlyCoins(chance))
    kids = scored.tree.kids(node)
    law = scored.law(node).minus(scored.tree.drawn[kids[0]].law) if kids else scored.law(node)
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)


def alpha_as_a_ratio_of_sums(scored, chance):
    """Traversal with α ← min(1, ΣR/ΣQ'), Q' unnormalised after the refused token is struck."""

    def offer(node, alpha):
        law = scored.law(node)
        for kid in scored.tree.kids(node):
            x, q = scored.tree.drawn[kid]
            if (verdict := offer(kid, min(1.0, alpha * law[x] / q[x]))) is not None:
                return verdict
            left = float((alpha * law.p - q.spread(law)).clamp_min(0).sum())
            law, others = law.minus(q, alpha) if alpha else law, 1 - q[x]
            alpha = 1.0 if node == ROOT else min(1.0, left / others) if others > 1e-12 else 0.0
        if chance.coin(alpha, scored.at(Role.ACCEPT, node, max(node, 0))):
            return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)
        return None

    return offer(ROOT, 1.0)


def one_coin_for_cousins(scored, chance):
    """Traversal whose coins are told apart by position alone, so that siblings share one."""

    @dataclass(frozen=True)
    class ByPosition:
        def coin(self, p, at):
            return chance.coin(p, at._replace(k=0))

        def choose(self, law, at):
            return chance.choose(law, at)

    return traversal(scored, ByPosition())


def kseq_with(rho, residual_scale):
    """K-SEQ on one level, with a ρ and a residual of one's own."""

    def verify(scored, chance):
        tree, law = scored.tree, scored.law(ROOT)
        kids = alike(tree, tree.kids(ROOT))
        if not kids:
            return sample_match(scored, chance)
        q = tree.drawn[kids[0]].law
        r = rho(law, q, len(kids))
        common = [min(q[x], law[x] / r) for x in range(law.size)]
        for k, kid in enumerate(kids):
            x = tree.drawn[kid].token
            if chance.coin(min(1.0, law[x] / (r * q[x])), scored.at(Role.ACCEPT, ROOT, k)):
                return Verdict(kid, scored.law(kid).draw(chance, scored.at(Role.RESIDUAL, kid)).token)
        scale = residual_scale(r, sum(common), len(kids))
        rest = Law.of([max(0.0, law[x] - scale * common[x]) for x in range(law.size)])
        rest = law if rest.is_empty() else rest
        return Verdict(ROOT, rest.draw(chance, scored.at(Role.RESIDUAL, ROOT)).token)

    return verify


def right_rho(p, q, count):
    return common_test(p, q, count)[0]


def largest_rho(p, q, count):
    return float(count)  # exact too, but it accepts less


def right_scale(rho, beta, count):
    return (1 - (1 - min(1.0, beta)) ** count) / beta if beta > 0 else 0.0


def chosen_path_with_the_draft_s_law(scored, chance):
    """The best of several paths, verified as if it were any path."""
    tree, front = scored.tree, scored.tree.kids(ROOT)
    law = scored.law(ROOT)
    if not front:
        return sample_match(scored, chance)
    first = max(front, key=lambda kid: law[tree.drawn[kid].token] / tree.drawn[kid].law[tree.drawn[kid].token])
    return longest(scored, [first], [tree.drawn[first].law], chance)


def struck_without_normalising(scored, chance):
    tree, node, law = scored.tree, ROOT, scored.law(ROOT)
    while kids := tree.kids(node):
        here = scored.law(node)
        for k, kid in enumerate(kids):
            x = tree.drawn[kid].token
            if chance.coin(here[x], scored.at(Role.ACCEPT, node, k)):
                node, law = kid, scored.law(kid)
                break
            rest = law.without(x)
            law = law if rest.is_empty() else rest
        else:
            break
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)


@dataclass(frozen=True)
class Told(Memoryless):
    """A drafter that tells something else of what another one drew."""

    draft: object
    tell: object

    def propose(self, prefix, budget, chance):
        tree = yield from self.draft.propose(prefix, budget, chance)
        return self.tell(tree)


def without_duplicates(tree):
    kept = {drawn.token: (drawn, above) for drawn, above in reversed(list(zip(tree.drawn, tree.parent, strict=True)))}
    pairs = list(kept.values())[::-1]
    return Tree(tuple(d for d, _ in pairs), tuple(a for _, a in pairs))


def with_the_eldest_s_law(tree):
    first = {above: tree.drawn[tree.kids(above)[0]].law for above in tree.parent}
    return Tree(tuple(Drawn(d.token, first[a]) for d, a in zip(tree.drawn, tree.parent, strict=True)), tree.parent)


PLANTED = {
    "block: stop at the first failure": Speculate(Chain(2), stop_at_the_first_failure),
    "block: residual not scaled": Speculate(Chain(2), unscaled_residual),
    "traversal: alpha as a ratio of sums (public re-implementation)": Speculate(RSDC((1, 2)), alpha_as_a_ratio_of_sums),
    "traversal: siblings share a coin": Speculate(RSDC((2,)), one_coin_for_cousins),
    "traversal: q not struck without replacement": Speculate(Told(RSDC((2,)), with_the_eldest_s_law), traversal),
    "kseq: residual with rho where that is not the root": Speculate(
        SpecInfer(2, 1), kseq_with(largest_rho, lambda rho, beta, count: rho)
    ),
    "kseq: rho is 1": Speculate(SpecInfer(2, 1), kseq_with(lambda p, q, count: 1.0, right_scale)),
    "kseq: duplicates removed": Speculate(Told(SpecInfer(2, 1), without_duplicates), kseq),
    "kseq: drawn without replacement": Speculate(Told(RSDC((2,)), with_the_eldest_s_law), kseq),
    "multipath: the draft's law for the best path": Speculate(SpecInfer(2, 1), chosen_path_with_the_draft_s_law),
    "multipath: duplicates removed": Speculate(Told(SpecInfer(2, 1), without_duplicates), multipath),
    "zeroing: struck without normalising": Speculate(RSDC((2,)), struck_without_normalising),
    "lenience called exact": Speculate(Chain(1), Lenient()),
    "a mixture called exact": Speculate(Chain(1), Mixture()),
    "conditional verification called exact": Speculate(Lookup(1, 1, 1), Conditional()),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_variant_is_caught(bug):
    proof = prove(PLANTED[bug], LAW, name=bug, quick=True)
    assert not proof.ok
    assert proof.tv > 1e-4
    assert "truth" in proof.counterexample


@pytest.mark.parametrize("rho", [right_rho, largest_rho])
def test_the_planted_parts_are_right_but_for_the_planted_fault(rho):
    target = toy(1)
    assert off(one_round(SpecInfer(2, 1), kseq_with(rho, right_scale), target, toy(2)), target, 2) < 1e-12


def test_shared_noise_must_be_read_by_the_walk():
    assert prove(Speculate(Coupled(1), sample_match), SEED, quick=True).ok
    assert not prove(Speculate(Coupled(1), rejection), SEED, quick=True).ok


def test_a_small_budget_makes_fewer_and_shorter_paths_of_one_length():
    prefix, drafter = Prefix.of(PROMPT, Same()), toy(1)
    for budget, shape in ((1, (ROOT,)), (3, (ROOT, ROOT)), (4, (ROOT, ROOT, 0, 1)), (9, (ROOT, ROOT, 0, 1))):
        tree, _ = answered(SpecInfer(2, 2).propose(prefix, budget, Philox(1)), partial(scored, drafter))
        assert tree.parent == shape
