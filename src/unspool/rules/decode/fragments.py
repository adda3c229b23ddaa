"""Fragments of a text that are thrown away and written anew, as long as that makes it better."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from ...core.asks import Decoding, Done, Emit, OutOfTime
from ...core.canvas import Canvas, Status
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, Method, claims, fit
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise import Denoise
from ...loops.guard import unguarded
from ...loops.unmasker import Unmask, View, look, suited
from ..unmask.confident import Confident
from ..unmask.cooling import Cooling
from ..unmask.unmask_trials import Brief
from .refill import overheard, refilled

COOLING = Cooling()
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
    """Write a text by `first`; then replace a random fragment by holes, fill them, keep the better text, and again.

    Fragments lie between the tokens `separators`; each of the `rounds` replaces one of them by `least` to `most` holes,
    all equally likely, as far as the text has room. What replaces a text must be worth no less. The paper keeps a
    population and an oracle of the chemistry; here it is one text and whatever `worth` is given. A method that is run
    by name takes for separators the tokens of the vocabulary that are one of `signs`.

    Claim: HEURISTIC. No rounds is `first` alone. It loses where a fragment can only be improved together with another.
    Cost: what `first` costs, and the looks that fill a fragment per round.
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

    def __post_init__(self) -> None:
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
        best = yield from overheard(self.first(text, chance, warp, stop))
        laws = list(zip(best.before, best.after, strict=True))
        tokens, reason, step = best.tokens, best.reason, best.step + 1
        for n in range(self.rounds):
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
            if self._worth(other, tried) >= self._worth(tokens, laws):
                tokens, laws, reason = other, tried[: len(other)], why or "length"
        kept, why, _, trim = stop.cut(start, tokens)
        before, after = [law for law, _ in laws], [law for _, law in laws]
        whole_text = Canvas.blank(text, len(kept)).fill(dict(enumerate(kept, len(text))))
        yield Emit(kept, before, after, rounds=0, canvas=whole_text)
        return Done(kept, why or reason, trim)

    def _worth(self, tokens: tuple[int, ...], laws: Sequence[tuple[Law, Law]]) -> float:
        return self.worth(tokens, [law.logprob(x) for x, (law, _) in zip(tokens, laws, strict=False)])

    def _fragment(self, tokens: tuple[int, ...], chance: Chance, at: At) -> tuple[int, int]:
        """One of the spans between separators, those that are empty among them."""
        cuts = [-1, *(i for i, x in enumerate(tokens) if x in self.separators), len(tokens)]
        n = _one_of(len(cuts) - 1, chance, at)
        return cuts[n] + 1, cuts[n + 1]


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
