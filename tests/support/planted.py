"""Bugs that well-known engines have shipped, or that papers warn of, planted for the oracle to find.

Sources: the exactness bugs of public engines by their issue numbers, and the variants of rejection rules that look
right but are not. Each is a complete method that would claim LAW.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from unspool.core.asks import Score, Scores, Verdict
from unspool.core.chance import At, Role
from unspool.core.claim import Method
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp import Scored
from unspool.loops.drafter import possible
from unspool.rules.decode import Denoise, Speculate
from unspool.rules.draft import RSDC, Chain, Memoryless
from unspool.rules.draft.chain import DRAFT
from unspool.rules.verify import rejection, sample_match


@dataclass(frozen=True)
class Drafted(Memoryless):
    """A draft of `depth` levels made by `step(law, chance, at) -> drawn siblings`; deeper levels hang from the last."""

    step: Callable
    depth: int = 1

    def propose(self, prefix, budget, chance):
        tree, node, start = NOTHING, ROOT, len(prefix)
        for i in range(self.depth):
            scores: Scores = yield Score(tree, by=DRAFT)
            under, law = node, possible(prefix, scores.law(node))
            if law is None:
                break
            for drawn in self.step(law, chance, At(start + i, Role.DRAFT, round=start)):
                tree, node = tree.grow(drawn, under)
            if node == under:
                break
            prefix = prefix.then((tree.drawn[node].token,))
        return tree


def two(law: Law, chance, at: At, replacement: bool) -> list[Drawn]:
    first = law.draw(chance, at)
    rest = law if replacement else law.without(first.token)
    return [first] if rest.is_empty() else [first, rest.draw(chance, at._replace(k=1))]


# ---- lies about q


def argmax_with_soft_q(law, chance, at):
    return [Drawn(law.best, law)]


def drawn_after_top_k_reported_before(law, chance, at):
    kept = law.only(law.p >= law.p.topk(min(2, law.size)).values[-1])
    return [Drawn(kept.draw(chance, at).token, law)]


def drawn_in_low_precision(law, chance, at):
    coarse = Law.of([round(p * 8) / 8 for p in law.p.tolist()])  # bf16 has 8 bits; on small tables 3 show the same
    return [Drawn(coarse.draw(chance, at).token, law)]


def disliked_draws_dropped(law, chance, at):
    drawn = law.draw(chance, at)
    return [] if law[drawn.token] < 0.4 else [drawn]


def better_of_two_draws(law, chance, at):
    return [max(two(law, chance, at, replacement=True), key=lambda d: law[d.token])]


def without_replacement_reported_with(law, chance, at):
    return [Drawn(d.token, law) for d in two(law, chance, at, replacement=False)]


def without_replacement_sorted(law, chance, at):
    drawn = two(law, chance, at, replacement=False)
    tokens = sorted((d.token for d in drawn), key=lambda x: -law[x])
    return [Drawn(x, d.law) for x, d in zip(tokens, drawn, strict=True)]


def duplicates_removed(law, chance, at):
    drawn = two(law, chance, at, replacement=True)
    return drawn[:1] if drawn[0].token == drawn[-1].token else drawn


# ---- wrong verdicts


def half_residual(scored: Scored, chance) -> Verdict:
    tree, node, law = scored.tree, ROOT, scored.law(ROOT)
    while kids := tree.kids(node):
        for k, kid in enumerate(kids):
            x, q = tree.drawn[kid]
            if chance.coin(min(1.0, law[x] / q[x]), scored.at(Role.ACCEPT, node, k)):
                node, law = kid, scored.law(kid)
                break
            rest = law.without(x)
            law = law if rest.is_empty() else rest
        else:
            break
    return Verdict(node, law.draw(chance, scored.at(Role.RESIDUAL, node)).token)


def token_from_the_wrong_row(scored: Scored, chance) -> Verdict:
    verdict = rejection(scored, chance)
    above = scored.tree.parent[verdict.node] if verdict.node >= 0 else ROOT
    return Verdict(verdict.node, scored.law(above).draw(chance, scored.at(Role.RESIDUAL, verdict.node, 9)).token)


def bonus_before_warps(scored: Scored, chance) -> Verdict:
    verdict = rejection(scored, chance)
    if scored.tree.kids(verdict.node):
        return verdict
    raw = scored.raw(verdict.node)
    return Verdict(verdict.node, raw.draw(chance, scored.at(Role.RESIDUAL, verdict.node)).token)


def a_sample_per_leaf_and_a_fresh_bonus(scored: Scored, chance) -> Verdict:
    node = ROOT
    for k, kid in enumerate(scored.tree.kids(ROOT)):
        if scored.law(ROOT).draw(chance, scored.at(Role.ACCEPT, ROOT, k)).token == scored.tree.drawn[kid].token:
            node = kid
            break
    return Verdict(node, scored.law(node).draw(chance, scored.at(Role.RESIDUAL, node)).token)


def penalty_frozen_within_a_block(scored: Scored, chance) -> Verdict:
    frozen = Scored(scored.tree, scored.prefix, scored.raw_root, scored.raw_after)
    frozen._state = lambda node: scored.prefix.state
    return rejection(frozen, chance)


def typical_acceptance(scored: Scored, chance) -> Verdict:
    node = ROOT
    while kids := scored.tree.kids(node):
        p = scored.law(node).p
        entropy = -(p * p.clamp_min(1e-12).log()).sum()
        if scored.law(node)[scored.tree.drawn[kids[0]].token] <= min(0.09, 0.3 * float(torch.exp(-entropy))):
            break
        node = kids[0]
    return Verdict(node, scored.law(node).draw(chance, scored.at(Role.RESIDUAL, node)).token)


# ---- wrong noise


@dataclass(frozen=True)
class SameNoiseEveryRound:
    """Chance whose accept and draft noise does not depend on the position, as a buffer of uniforms drawn once."""

    chance: object

    def choose(self, law, at):
        return self.chance.choose(law, at if at.role in (Role.PICK, Role.RESIDUAL) else At(0, at.role, at.k))

    def coin(self, p, at):
        return self.chance.coin(p, At(0, at.role, at.k))


@dataclass(frozen=True)
class OneNoiseForDraftAndResidual:
    """Chance that redraws the residual with the noise of the draft at that position."""

    chance: object

    def choose(self, law, at):
        return self.chance.choose(law, at._replace(role=Role.DRAFT) if at.role == Role.RESIDUAL else at)

    def coin(self, p, at):
        return self.chance.coin(p, at)


def with_noise(noise: type, method: Method) -> Method:
    return lambda text, chance, warp, stop: method(text, noise(chance), warp, stop)


# ---- wrong stops


@dataclass(frozen=True)
class OnlyTheLastToken:
    """A stop that looks for its tokens only at the end of a block."""

    stop: object
    spare: float = math.inf

    def start(self):
        return self.stop.start()

    def left(self, tail):
        return self.stop.left(tail)

    def prune(self, tail, tree):
        return tree, frozenset()

    def cut(self, tail, new):
        cut = self.stop.cut(tail, new)
        if cut.reason != "token" or new[-1] in self.stop.tokens:
            return cut
        return replace(self.stop, tokens=frozenset()).cut(tail, new)


def stop_seen_only_at_the_end_of_a_block(text, chance, warp, stop):
    return Speculate(Chain(2), rejection)(text, chance, warp, OnlyTheLastToken(stop))


def stop_not_cut(text, chance, warp, stop):
    """The block goes out whole although a stop stands inside it."""

    class Uncut:
        spare = math.inf

        def start(self):
            return stop.start()

        def left(self, tail):
            return stop.left(tail)

        def prune(self, tail, tree):
            return tree, frozenset()

        def cut(self, tail, new):
            cut = stop.cut(tail, new)
            return cut._replace(kept=tuple(new)) if cut.reason == "token" else cut

    return Speculate(Chain(2), rejection)(text, chance, warp, Uncut())


# ---- wrong canvases


def surest_draw_first(state):
    """Draw in every hole, then keep the draw that came out surest: the choice looks at what it keeps."""
    return [max(state.holes, key=state.sure)]


BUGS: dict[str, Method] = {
    "greedy draft, soft q (transformers #32867)": Speculate(Drafted(argmax_with_soft_q), rejection),
    "q reported before top-k (transformers #47932)": Speculate(Drafted(drawn_after_top_k_reported_before), rejection),
    "stop seen only at the end of a block (transformers #47912)": stop_seen_only_at_the_end_of_a_block,
    "block not cut at a stop (vllm #47616)": stop_not_cut,
    "half residual (EAGLE #20)": Speculate(Chain(1), half_residual),
    "penalty frozen within a block (sglang #33643)": Speculate(Chain(2), penalty_frozen_within_a_block),
    "q drawn in low precision (DeepSpec #31)": Speculate(Drafted(drawn_in_low_precision), rejection),
    "token from the wrong row (openvino.genai #4190)": Speculate(Chain(2), token_from_the_wrong_row),
    "bonus from the law before warps (SAM-Decoding)": Speculate(Chain(1), bonus_before_warps),
    "one sample per leaf, fresh bonus (Medusa, REST)": Speculate(RSDC((2,)), a_sample_per_leaf_and_a_fresh_bonus),
    "disliked draws dropped": Speculate(Drafted(disliked_draws_dropped), rejection),
    "the better of two draws": Speculate(Drafted(better_of_two_draws), rejection),
    "without replacement, verified in sorted order": Speculate(Drafted(without_replacement_sorted), rejection),
    "without replacement, verified as with": Speculate(Drafted(without_replacement_reported_with), rejection),
    "duplicates removed before verification": Speculate(Drafted(duplicates_removed), rejection),
    "typical acceptance called exact": Speculate(Chain(1), typical_acceptance),
    "uniforms reused every round (Sequoia)": with_noise(SameNoiseEveryRound, Speculate(Chain(1), rejection)),
    "draft noise reused for the residual (vllm #54282)": with_noise(
        OneNoiseForDraftAndResidual, Speculate(Chain(1), rejection)
    ),
    "surest draw kept (LLaDA #42)": Denoise(surest_draw_first, 3),
}

# Bugs that no warp is needed for, and whose cause lies in the model's own law.
UNSHAPED = {"surest draw kept (LLaDA #42)"}


# What looks suspicious but is exact: q withheld from a drawn token only costs acceptance (vllm #40269).
def q_withheld(law, chance, at):
    return [Drawn(law.draw(chance, at).token, Law.point(0))]


WALK_ON_WITHHELD_Q = Speculate(Drafted(q_withheld, depth=2), sample_match)
