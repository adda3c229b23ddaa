"""Speculation by steps of reasoning: a small model writes a step, the base model keeps it or writes its own."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from ...core.asks import Ask, Check, Checked, Decoding, Done, Emit, Keep, Laws, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, Method, claims
from ...core.errors import BadRequest
from ...core.law import Law, chosen
from ...core.option import expect, real, whole
from ...core.stop import Stop, Tail
from ...core.tree import NOTHING, ROOT, Tree
from ...core.warp.warp import Prefix, Warp
from ...loops.drafter import Nothing, begun, possible
from ...loops.speculate import Speculate
from ..draft.chain import DRAFT
from ..draft.composite import proposed
from .judge import Chatting, Judge


def _trials(rule: type[Steps]) -> list[Method]:
    judge = Judge(ask=(0,), marks=(0, 1))
    return [rule(judge, 0.5, longest=2, end="b"), rule(judge, 0.5, longest=1, first=1, end="b")]


@claims(HEURISTIC, trials=_trials, paper="2504.07891", systems=("SpecReason",), needs=(DRAFT,))
@dataclass(frozen=True)
class Steps:
    """Keep a step that a draft model wrote if the base model marks it with at least `threshold`, else write it anew.

    A step ends with the string `end`, after `longest` tokens, or with the text. The mark is read from one forward over
    the step and the judge's question: the expected digit, Σ i·P(i) / Σ P(i). The first `first` steps are the base
    model's own. A step for which the question has no room is the base model's too. The wording of the question is ours;
    the paper's further ends (an answer in a box, a step that repeats) are left to stops. The base model's own steps are
    written by `inside`, which may speculate.

    Claim: HEURISTIC. A threshold above the highest mark is plain decoding of the base model, seed for seed; 0 is the
    law of the draft model. The gap that is printed is the one to plain decoding of the base model.
    Cost: per step a forward of the draft model per token and one of the base model over step and question; a step that
    is refused costs what `inside` takes to write it besides: a forward of the base model per token, unless it drafts.
    """

    judge: Judge | None = None
    threshold: float = 7.0
    longest: int = 512
    first: int = 0
    end: str = "\n\n"
    inside: Speculate = Speculate()  # noqa: RUF009  (frozen)

    def __post_init__(self) -> None:
        expect(real(self.threshold, 0), "steps:threshold", self.threshold, "a mark from 0 on; usual is 7")
        expect(whole(self.longest, 1), "steps:longest", self.longest, "a whole number of tokens from 1 on")
        expect(whole(self.first, 0), "steps:first", self.first, "a whole number of steps from 0 on")
        expect(self.end != "", "steps:end", self.end, "the string that ends a step, as a blank line")

    def fit(self, vocabulary: Chatting) -> Steps:
        return self if self.judge is not None else replace(self, judge=Judge.of(vocabulary))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        if self.judge is None or stop.piece is None:
            lacks = "judge=, or is run by name" if self.judge is None else "a stop that knows the bytes of tokens"
            raise BadRequest(f"steps needs {lacks}")
        tail, number = stop.start(), 0
        prefix = Prefix.of(text, warp, stop.left(tail))
        while True:
            tree, laws = NOTHING, list[Law]()
            if number >= self.first:
                tree, laws = yield from self._drafted(prefix, tail, stop, chance)
            if (yield from self._stands(tree, prefix, stop)):
                kept, reason, tail, trim = stop.cut(tail, tree.tokens(range(len(tree))))
                size = len(kept)  # shorter than the step if time has run out
                after = [drawn.law for drawn in tree.drawn[:size]]
                yield Emit(kept, laws[:size], after, drafted=len(tree), accepted=size)
                yield Keep(tree, (size - 1,), (None,))
                prefix = prefix.then(kept)
            else:
                prefix, reason, tail, trim = yield from self._own(prefix, tail, stop, chance, len(tree))
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)
            number += 1

    def _drafted(
        self, prefix: Prefix, tail: Tail, stop: Stop, chance: Chance
    ) -> Generator[Ask, Any, tuple[Tree, list[Law]]]:
        """A step of the draft model, and its laws before warps; nothing if it has nothing to say."""
        tree, node, here, laws = NOTHING, ROOT, prefix, list[Law]()
        step, reason = self._border(stop), None
        so_far = step.start()
        while not reason:
            scores: Scores = yield Score(tree, by=DRAFT)
            law = possible(here, scores.law(node))
            if law is None:
                return NOTHING, []
            drawn = law.draw(chance, At(len(here), Role.DRAFT, round=len(prefix)))
            laws.append(scores.law(node))
            tree, node = tree.grow(drawn, node)
            here = here.then((drawn.token,))
            _, ended, tail, _ = stop.cut(tail, (drawn.token,))
            _, reason, so_far, _ = step.cut(so_far, (drawn.token,))
            reason = reason or ended
        return tree, laws

    def _stands(self, tree: Tree, prefix: Prefix, stop: Stop) -> Generator[Ask, Any, bool]:
        """Whether the base model gives the step a good enough mark."""
        assert self.judge is not None
        ask = self.judge.ask
        if not len(tree) or len(tree) + len(ask) > prefix.left + stop.spare:
            return False
        asked = Tree.chain([*tree.drawn, *(chosen(x) for x in ask)])
        scores: Scores = yield Score(asked)
        return self.judge.mark(scores.law(len(asked) - 1)) >= self.threshold

    def _own(
        self, prefix: Prefix, tail: Tail, stop: Stop, chance: Chance, refused: int
    ) -> Generator[Ask, Any, tuple[Prefix, str | None, Tail, int]]:
        """A step of the base model, written by `inside` up to the border; what was accepted beyond it is forgotten."""
        step, source = self._border(stop), begun(self.inside.draft, prefix)
        so_far, ended, reason, trim = step.start(), None, None, 0
        while not ended and not reason:
            depth = prefix.left - 1
            nodes = int(min(self.inside.budget, depth + stop.spare))
            tree: Tree = yield from proposed(source if depth > 0 else Nothing(), prefix, nodes, chance)
            tree, last = stop.prune(tail, tree.within(depth))
            checked: Checked = yield Check(tree, prefix, self.inside.verify, chance, source.want, last)
            (node, token), scored, scores = checked
            written = (*tree.tokens(tree.path(node)), token)
            kept, reason, tail, trim = stop.cut(tail, step.cut(so_far, written).kept)
            _, ended, so_far, _ = step.cut(so_far, kept)
            parents = [ROOT, *tree.path(node)][: len(kept)]
            laws = Laws(scored.raw, parents), Laws(scored.law, parents)
            yield Emit(kept, *laws, drafted=refused + tree.guesses, accepted=len(kept) - 1)
            yield Keep(tree, (parents[-1],), (kept[-1],))
            prefix, refused = prefix.then(kept), 0
            source.learn(prefix, tree, scores)
        return prefix, reason, tail, trim

    def _border(self, stop: Stop) -> Stop:
        return Stop(strings=(self.end,), most=self.longest, piece=stop.piece)
