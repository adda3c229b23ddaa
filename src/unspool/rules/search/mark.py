"""Marks: what a piece of text is thought to be worth, by whoever is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...core.asks import Ask, GiveWay
from ...core.errors import BadRequest
from ..constrain.potential import Worth, weighed
from ..decode.judge import QUESTION, Chatting, Judge
from .beam_cache import BeamCache
from .choose import overlap
from .reward import Reward, asked
from .rollout import Rollout


class Mark(Protocol):
    """Gives marks to rollouts, higher for better; it may ask the model."""

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        """One mark for each."""


@dataclass(frozen=True)
class LikelihoodMark:
    """exp(mean log p) of what was written, the inverse of its perplexity: between 0 and 1."""

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        yield from ()
        return [math.exp(rollout.mean) for rollout in rollouts]


@dataclass(frozen=True)
class RewardMark:
    """What a function says of all that was written after the prompt: a process reward, tests that pass."""

    worth: Worth

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        yield from ()
        return [weighed(self.worth, "the mark", rollout.text.tokens) for rollout in rollouts]


@dataclass(frozen=True)
class Graded:
    """What a reward says of the text after the prompt, as far as it is written: a process reward model, a checker."""

    reward: Reward
    read: Callable[[tuple[int, ...]], str] | None = None

    def fit(self, vocabulary: Chatting) -> Graded:
        return replace(self, read=vocabulary.decode)

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        if self.read is None:
            raise BadRequest("a reward reads text: run the method by name, or give Graded(reward, read)")
        yield from ()
        return [asked(self.reward, self.read(rollout.text.tokens)) for rollout in rollouts]


@dataclass(frozen=True)
class Agreement:
    """How much a text has in common with the others, as the mean of shared character n-grams: minimum Bayes risk.

    The utility is `unspool.rules.search.choose.overlap`, the heart of chrF; Σ over all pairs, so texts² comparisons.
    """

    read: Callable[[tuple[int, ...]], str] | None = None

    def fit(self, vocabulary: Chatting) -> Agreement:
        return replace(self, read=vocabulary.decode)

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        if self.read is None:
            raise BadRequest("agreement is between texts: run the method by name, or give Agreement(read)")
        texts = [self.read(rollout.text.tokens) for rollout in rollouts]
        marks = list[float]()
        for one in texts:
            shared = list[float]()
            for other in texts:
                shared.append(overlap(one, other))
                yield GiveWay()
            marks.append(sum(shared) / len(texts))
        return marks


@dataclass(frozen=True)
class JudgeMark:
    """The mark that the model itself gives if it is asked `judge`'s question behind the text, from 0 to 1.

    Cost: a row for every token of the question and every rollout; 0 for all if the budget has no room for that.
    """

    judge: Judge | None = None
    question: str = QUESTION

    def fit(self, vocabulary: Chatting) -> JudgeMark:
        return self if self.judge is not None else JudgeMark(Judge.of(vocabulary, self.question), self.question)

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        if self.judge is None:
            raise BadRequest(
                "a judge has to know the tokens: run the method by name, or give JudgeMark(Judge(ask, marks))"
            )
        texts = [rollout.text for rollout in rollouts]
        if not grove.affords(texts, len(self.judge.ask)):
            return [0.0] * len(rollouts)
        laws = yield from grove.after(texts, self.judge.ask)
        best = len(self.judge.marks) - 1
        return [self.judge.mark(law) / best for law in laws]


@dataclass(frozen=True)
class Leaning:
    """log p(first token) + weight·mark: what the model leans to, moved by what comes of it."""

    mark: Mark
    weight: float = 1.0

    def fit(self, vocabulary: Chatting) -> Leaning:
        return Leaning(fit_mark(self.mark, vocabulary), self.weight)

    def __call__(self, grove: BeamCache, rollouts: Sequence[Rollout]) -> Generator[Ask, Any, list[float]]:
        marks = yield from self.mark(grove, rollouts)
        return [rollout.first + self.weight * mark for rollout, mark in zip(rollouts, marks, strict=True)]


def fit_mark(mark: Mark, vocabulary: Chatting) -> Mark:
    """The mark for this vocabulary, if it has to know it."""
    return mark.fit(vocabulary) if isinstance(mark, (Agreement, Graded, JudgeMark, Leaning)) else mark
