"""Fragments of a text that are thrown away and written anew, as long as that makes it better."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch

from ...core.asks import Decoding, Done, Emit, OutOfTime
from ...core.canvas import Canvas, Status
from ...core.chance import At, Chance, Readdressed, Role
from ...core.claim import HEURISTIC, Method, claims, fit
from ...core.errors import BadRequest
from ...core.law import Law, Point
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise import Denoise
from ...loops.guard import unguarded
from ...loops.unmasker import Unmask, View, look, suited
from ..search.reward import Grader, Reward, written
from ..unmask.confident import Confident
from ..unmask.cooling import Cooling
from ..unmask.unmask_trials import Brief
from .refill import overheard, refilled

COOLING = Cooling()
KEPT = 4096  # tokens of a population whose laws are kept, each as wide as the vocabulary
Worth: TypeAlias = Callable[[tuple[int, ...], Sequence[float]], float]
"""How good a text is, from its tokens and the log-probability that each had when it was filled; higher is better."""


def likely(tokens: tuple[int, ...], logprobs: Sequence[float]) -> float:
    """The mean log-probability of a token: the model's own taste, where no other is given."""
    return sum(logprobs) / max(1, len(logprobs))


def _trials(rule: type[Fragments]) -> list[Method]:
    one = Confident(math.inf)
    return [Brief(lambda size: rule(Denoise(one, size), (0,), rounds=1, least=1, most=1, unmask=one))]


@claims(HEURISTIC, shaped=False, trials=_trials, paper="2501.06158", systems=("GenMol (fragment remasking)",))
@dataclass(frozen=True)
class Fragments:
    """Write texts by `first`; replace a random fragment of one by holes, fill them, drop the worst text, and again.

    A `population` of texts is kept, of 4,096 tokens together at most; every round takes one of them, all equally
    likely. Fragments lie between the tokens `separators`; one is replaced by `least` to `most` holes, all equally
    likely, as far as the text has room. What comes of it joins, and the text that is worth least goes, of equals the
    oldest: with one text, what replaces it must be worth no less. The best is handed out. What a text is worth says an
    oracle (`reward`, of the text as it reads), or else `worth`. By name, separators are the tokens of the vocabulary
    that are one of `signs`.

    Claim: HEURISTIC. No rounds and one text is `first` alone. It loses where a fragment can only be improved together
    with another. Cost: what `first` costs for every text, and the looks that fill a fragment per round.
    """

    first: Method
    separators: Collection[int] = ()
    worth: Worth = likely
    rounds: int = 10
    least: int = 5
    most: int = 15
    unmask: Unmask = COOLING
    view: View = look
    signs: str = "."
    population: int = 1
    reward: Reward | None = None

    def __post_init__(self) -> None:
        expect(whole(self.population, 1), "fragments:population", self.population, "a whole number of texts from 1 on")
        expect(whole(self.rounds, 0), "fragments:rounds", self.rounds, "a whole number of rounds from 0 on")
        expect(whole(self.least, 1), "fragments:least", self.least, "a whole number of holes from 1 on")
        expect(whole(self.most, self.least), "fragments:most", self.most, "a whole number of holes, at least `least`")

    def fit(self, vocabulary: Any) -> Fragments:
        signs = [token for sign in self.signs if (token := vocabulary.token(sign)) is not None]
        first, unmask = fit(self.first, vocabulary), suited(self.unmask, vocabulary)
        view = suited(self.view, vocabulary)
        return replace(self, first=first, unmask=unmask, view=view, separators=self.separators or tuple(signs))

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        if self.rounds and not self.separators:
            raise BadRequest(
                "fragments need to know the tokens that lie between them: run the method through a loaded model, which "
                "gives its vocabulary, or give separators=(id, …)."
            )
        start, warp = stop.start(), unguarded(warp, "fragments")
        grade, texts = None if self.reward is None else Grader(self.reward, stop), list[PopulationText]()
        step = 0
        for n in range(self.population):
            noise = chance if n == 0 else Readdressed(chance, partial(_of_text, n))
            own = yield from overheard(self.first(text, noise, warp, stop))
            laws = list(zip(own.before, own.after, strict=True))
            texts.append(self._candidate(own.tokens, laws, own.reason, grade, stop))
            step = max(step, own.step + 1)
            if own.reason == "time" or sum(len(each.tokens) for each in texts) >= KEPT:
                break
        for n in range(self.rounds if texts[-1].reason != "time" else 0):
            tokens, laws, _, _ = texts[_one_of(len(texts), chance, At(len(text), Role.DRAFT, 2, n))]
            low, high = self._fragment(tokens, chance, At(len(text), Role.DRAFT, 0, n))
            room = int(min(self.most, stop.left(start) - len(tokens) + high - low))
            count = min(self.least, room) + _one_of(
                room - min(self.least, room) + 1, chance, At(len(text), Role.DRAFT, 1, n)
            )
            holes = _opened(text, tokens, low, high, count, step)
            try:
                canvas, new = yield from refilled(holes, self.unmask, self.view, warp, chance)
            except OutOfTime:
                break  # with the best so far
            step = canvas.step
            tried = [*laws[:low], *(new[len(text) + i] for i in range(low, low + count)), *laws[high:]]
            other, why, _, _ = stop.cut(start, canvas.tokens[len(text) :])
            texts.append(self._candidate(other, tried[: len(other)], why or "length", grade, stop))
            del texts[min(range(len(texts)), key=lambda i: texts[i].worth)]
        tokens, laws, reason, _ = max(reversed(texts), key=lambda each: each.worth)
        kept, why, _, trim = stop.cut(start, tokens)
        before, after = [law for law, _ in laws], [law for _, law in laws]
        whole_text = Canvas.blank(text, len(kept)).fill(dict(enumerate(kept, len(text))))
        yield Emit(kept, before, after, rounds=0, canvas=whole_text)
        return Done(kept, why or reason, trim)

    def _candidate(
        self, tokens: tuple[int, ...], laws: list[tuple[Law, Law]], reason: str, grade: Grader | None, stop: Stop
    ) -> PopulationText:
        kept, _, _, trim = stop.cut(stop.start(), tokens)
        if self.population > 1:  # a law holds on to all that its look told
            laws = [_alone(before, after) for before, after in laws]
        if grade is not None:
            return PopulationText(tokens, laws, reason, grade.of(written(kept, stop, trim)))
        told = [law.logprob(x) for x, (law, _) in zip(tokens, laws, strict=False)]
        return PopulationText(tokens, laws, reason, self.worth(tokens, told))

    def _fragment(self, tokens: tuple[int, ...], chance: Chance, at: At) -> tuple[int, int]:
        """One of the spans between separators, those that are empty among them."""
        cuts = [-1, *(i for i, x in enumerate(tokens) if x in self.separators), len(tokens)]
        n = _one_of(len(cuts) - 1, chance, at)
        return cuts[n] + 1, cuts[n + 1]


class PopulationText(NamedTuple):
    """A text of the population, the laws of its tokens before and after warps, why it ended, and what it is worth."""

    tokens: tuple[int, ...]
    laws: list[tuple[Law, Law]]
    reason: str
    worth: float


def _of_text(n: int, at: At) -> At:
    """An address for the n-th of several texts of one request."""
    return at._replace(k=at.k + (n << 12))  # siblings of one text have smaller numbers than that


def _alone(before: Law, after: Law) -> tuple[Law, Law]:
    """The same laws, without what else their look told."""
    own = before if isinstance(before, Point) else Law(before.scores.clone())
    return own, Point(after.best, own) if isinstance(after, Point) else Law(after.scores.clone())


def _one_of(count: int, chance: Chance, at: At) -> int:
    return Law(torch.zeros(count, dtype=torch.float64)).draw(chance, at).token


def _opened(text: tuple[int, ...], tokens: tuple[int, ...], low: int, high: int, count: int, step: int) -> Canvas:
    """The text with holes in place of tokens[low:high]; its window is on them."""
    start = len(text)
    size = len(tokens) - (high - low) + count
    rest = {start + i: x for i, x in enumerate(tokens[:low])}
    rest |= {start + low + count + i: x for i, x in enumerate(tokens[high:])}
    canvas = replace(Canvas.blank(text, size), step=step).fill(rest, Status.DRAFT)
    return canvas.within(start + low, start + low + count)
