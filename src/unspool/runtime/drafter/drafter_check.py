"""Does a drafter belong to its target, and is it read as it was trained? Measured on a text, under likely readings.

The text stays right whatever a drafter guesses, so that a wrong reading is silent: it only costs acceptance. Files
leave some things open (whether numbers of layers count inputs or outputs, which norm comes before the residual, what is
recycled, whether the last known token's place guesses), and engines differ in what they take for granted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...core.law import chosen
from ...core.tree import NOTHING, ROOT, Tree
from ...models.drafters.description import DrafterFile
from ...models.shape import Shape
from ..engine.contracts import ScoreRequest, Session
from ..network.linear import EmbeddingAndHead
from .drafter_model import TrainedDrafter, network_of

DEPTH = 4  # guesses ahead that are compared
PLACES = 48  # of a text from which they are made
STRANGER = 0.08  # of first guesses: a drafter that is right less often was trained for something else
CLEARLY = 0.15  # tokens by which another reading must be better to be believed


@dataclass(frozen=True)
class Fit:
    """How a drafter does under one reading: the share of its best guesses, one ahead, two ahead, …, that are right."""

    reading: str
    file: DrafterFile
    right: tuple[float, ...]

    @property
    def tokens(self) -> float:
        """How many guesses would stand in a round, if rates ahead do not depend on each other."""
        total, reach = 0.0, 1.0
        for rate in self.right:
            reach *= rate
            total += reach
        return total

    @property
    def rates(self) -> str:
        """The shares in words."""
        return ", ".join(f"{rate:.0%}" for rate in self.right) or "none"

    def __str__(self) -> str:
        return f"{self.reading}: right {self.rates}"


@dataclass(frozen=True)
class DrafterReport:
    """What was found: the file as it says itself, all other readings that were tried, and the one that fits best."""

    told: Fit
    tried: tuple[Fit, ...]

    @property
    def best(self) -> Fit:
        """The reading to use: the file's own, or the first that no other is clearly better than."""
        most = max(fit.tokens for fit in (self.told, *self.tried))
        return next(fit for fit in (self.told, *self.tried) if fit.tokens >= most - CLEARLY)

    @property
    def stranger(self) -> bool:
        """Whether it does not seem to belong to its target, however it is read."""
        return not self.best.right or self.best.right[0] < STRANGER


def readings(file: DrafterFile, target: Shape) -> list[tuple[str, DrafterFile]]:
    """Other ways to read a file, each in words: every thing that dialects disagree about, turned round."""
    spec, found = file.spec, list[tuple[str, DrafterFile]]()
    if spec.join in ("attend", "context"):
        for shift, word in ((1, "later"), (-1, "earlier")):
            numbers = tuple(number + shift for number in spec.states)
            if min(numbers) >= 0 and max(numbers) <= target.layers:
                found.append((f"hidden states one {word}", file.reading(states=numbers)))
    if spec.join == "attend":
        word = "not normed" if spec.residual_normed else "normed"
        found.append((f"the residual {word}", file.reading(residual_normed=not spec.residual_normed)))
    if spec.join in ("attend", "project"):
        word = "embedding" if not spec.embedding_first else "state"
        found.append((f"the {word} first", file.reading(embedding_first=not spec.embedding_first)))
        if not spec.block and "norm.weight" in file.tensors:
            word = "before" if spec.recycles_normed else "after"
            found.append((f"states recycled {word} the norm", file.reading(recycles_normed=not spec.recycles_normed)))
    if spec.join == "context":
        word, depth = ("does not guess", spec.block - 1) if spec.anchored else ("guesses too", spec.block)
        if depth:
            found.append((f"the last token's place {word}", file.reading(anchored=not spec.anchored, depth=depth)))
        if any(spec.shape.windows):
            word = "see all of the block" if spec.causal_windows else "see only what is before"
            found.append((f"places in windows {word}", file.reading(causal_windows=not spec.causal_windows)))
    if spec.shape.layers and spec.shape.rope_theta != target.rope_theta:
        turned = replace(spec.shape, rope_theta=target.rope_theta, rope_scaling=target.rope_scaling)
        found.append(("the target's rotary base", file.reading(shape=turned)))
    return found


class TextStates:
    """Hidden states of one text, by their numbers, for a drafter that reads some of them."""

    def __init__(self, states: dict[int, Tensor], numbers: Sequence[int]) -> None:
        self._all = [states[number] for number in numbers]

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> Tensor:
        return torch.cat([each[first : len(text) - 1] for each in self._all], -1)


def fit(
    reading: str,
    file: DrafterFile,
    ends: EmbeddingAndHead,
    text: Sequence[int],
    best: Sequence[int],
    states: dict[int, Tensor],
) -> Fit:
    """How often a drafter's best guess is the target's, `best[i]` after text[:i + 1], so far ahead of places of a text.

    What was drafted before is taken from the text, so that rates ahead are those given that all before is right.
    """
    network = network_of(file, ends, len(text) + 16 * DEPTH)
    drafter = TrainedDrafter(network, TextStates(states, file.spec.states))
    stride = max(1, (len(text) - DEPTH - 8) // PLACES)
    start = min(8, max(2, len(text) - DEPTH - 1))
    session = drafter.open(text[:start])
    right, counted = [0] * DEPTH, [0] * DEPTH
    end = start
    while end + DEPTH <= len(text):
        path = text[end : end + DEPTH - 1]
        (scores,) = drafter.score([ScoreRequest(session, Tree.chain([chosen(x) for x in path]))])
        for ahead in range(DEPTH):
            law = scores.law(ahead - 1) if ahead else scores.leaf[0]
            if not law.is_empty():
                counted[ahead] += 1
                right[ahead] += law.best == best[end + ahead - 1]
        for token in text[end : end + stride]:
            session.keep(NOTHING, (ROOT,), (token,))
        end += stride
    session.close()
    return Fit(reading, file, tuple(r / n for r, n in zip(right, counted, strict=True) if n))


def examined(
    file: DrafterFile, target: Shape, measure: Callable[[str, DrafterFile], Fit], thorough: bool = False
) -> DrafterReport:
    """The file as it says itself; where that does badly, or if told so, under all other readings too.

    The best of them is turned round once more in everything else, since a file may be odd in two ways.
    """
    told = measure("as the file says", file)
    tried: list[Fit] = []
    if thorough or told.tokens < 1:
        tried = [measure(words, other) for words, other in readings(file, target)]
        top = max(tried, key=lambda each: each.tokens, default=told)
        if top.tokens > told.tokens:
            tried += [measure(f"{top.reading}, {words}", other) for words, other in readings(top.file, target)]
    return DrafterReport(told, tuple(tried))
