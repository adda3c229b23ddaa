"""Rollouts: texts written on side by side, up to the end of a step or of several."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ...core.asks import Ask, GiveWay
from ...core.chance import At, Chance, Role
from ...core.claim import unwatched
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop, Tail
from .beam_cache import BeamCache
from .search_text import Text, Watch

Follow: TypeAlias = Callable[[int, Text, Law], int]
"""Which token follows in rollout i, given its text and the law."""


def drawing(chance: Chance, number: int) -> Follow:
    """Draw every token, in each rollout with numbers of its own; `number` tells one set of rollouts from another."""
    return lambda i, text, law: law.draw(chance, At(len(text.prefix), Role.DRAFT, i, number)).token


@dataclass(frozen=True)
class Border:
    """Where a step ends: with the first token in which one of these strings is complete, or after `longest` tokens."""

    ends: tuple[str, ...] = ("\n",)
    longest: int = 64

    def __post_init__(self) -> None:
        expect("" not in self.ends, "ends", self.ends, "strings of at least one character")
        expect(whole(self.longest, 1), "longest", self.longest, "a whole number of tokens from 1 on")

    def stop(self, stop: Stop) -> Stop:
        """The border as a stop over the same tokens."""
        if self.ends and stop.piece is None:
            raise BadRequest("steps that end with a string need a stop that knows the bytes of tokens (piece=)")
        return Stop(strings=self.ends, most=self.longest, piece=stop.piece)


@dataclass(frozen=True, eq=False)
class Rollout:
    """A text at the end of each of its steps; the last of these may be unfinished if the budget was spent."""

    start: Text
    stages: tuple[Text, ...]

    @property
    def text(self) -> Text:
        """All of it."""
        return self.stages[-1]

    @property
    def tokens(self) -> tuple[int, ...]:
        """What was written since the start."""
        return self.text.tokens[len(self.start.tokens) :]

    @property
    def first(self) -> float:
        """log p of its first token."""
        return self.text.links(len(self.start.tokens))[0].logp

    @property
    def mean(self) -> float:
        """The mean log p of its tokens."""
        return (self.text.logp - self.start.logp) / len(self.tokens)


def rolled(
    grove: BeamCache,
    start: Text,
    texts: Sequence[Text],
    border: Stop,
    stop: Stop,
    follow: Follow,
    steps: int = 1,
    held: Sequence[Text] = (),
    watch: Watch = unwatched,
) -> Generator[Ask, Any, list[Rollout]]:
    """Write these texts on from `start` for so many steps each, or to their end, or until the budget is spent.

    If that is broken off, `watch` is told how far they have come, those that have ended and are likeliest first.
    """
    runs = [_Rollout(text, border.start(), ()) for text in texts]
    if texts and texts[0] is not start:  # a first token was chosen already
        runs = [run.past(border, steps) for run in runs]
    try:
        while grove.affords(live := [run.text for run in runs if not run.over]):
            kept = [stage for run in runs for stage in run.stages]
            raws = iter((yield from grove.score(live, (start, *held, *kept))))
            for i, run in enumerate(runs):
                if run.over:
                    continue
                raw = next(raws)
                law = run.text.prefix.shape(raw)
                text = run.text.then(follow(i, run.text, law), raw, law, stop)
                runs[i] = replace(run, text=text).past(border, steps)
                yield GiveWay()
    except BaseException:
        watch(sorted((run.text for run in runs), key=_unpromising))
        raise
    return [Rollout(start, run.stages if run.over else (*run.stages, run.text)) for run in runs]


def _unpromising(text: Text) -> tuple[bool, float]:
    return text.reason is None, -text.logp / max(1, len(text.tokens))


@dataclass(frozen=True, eq=False)
class _Rollout:
    text: Text
    tail: Tail
    stages: tuple[Text, ...]
    over: bool = False

    def past(self, border: Stop, steps: int) -> _Rollout:
        """After its last token: at a border it has one stage more."""
        _, reason, tail, _ = border.cut(self.tail, self.text.tokens[-1:])
        if not reason and not self.text.reason:
            return replace(self, tail=tail)
        stages = (*self.stages, self.text)
        return _Rollout(self.text, border.start(), stages, len(stages) == steps or self.text.reason is not None)
