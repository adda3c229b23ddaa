"""Canvases: texts or grids with holes, for decoders that fill positions in any order; and the laws at their places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from .law import Law

if TYPE_CHECKING:
    from .stop import Stop

HOLE = -1
Frame: TypeAlias = tuple["int | tuple[int, ...]", ...]
"""What stands behind a prompt: numbers of holes, and tokens that are given; () for holes alone."""


def frame_size(frame: Frame) -> int:
    """How many places there are."""
    return sum(part if isinstance(part, int) else len(part) for part in frame)


class Status(IntEnum):
    """What is known of a position."""

    GIVEN = 0  # part of the prompt, never changes
    HOLE = 1  # nothing yet
    DRAFT = 2  # filled, may be revised
    FIXED = 3  # filled for good


@dataclass(frozen=True)
class Canvas:
    """Tokens with holes, the status of each position, and when it was filled.

    `shape` is () for a text, (height, width) for a grid; `window` is the half-open range of positions that a decoder is
    working on; `filled[i]` is the step at which position i got its token, −1 before that.
    """

    tokens: tuple[int, ...]
    status: tuple[Status, ...]
    filled: tuple[int, ...]
    window: tuple[int, int]
    shape: tuple[int, ...] = ()
    step: int = 0

    @staticmethod
    def blank(prompt: Iterable[int], holes: int, shape: tuple[int, ...] = ()) -> Canvas:
        """The prompt followed by this many holes."""
        given = tuple(prompt)
        size = len(given) + holes
        return Canvas(
            tokens=given + (HOLE,) * holes,
            status=(Status.GIVEN,) * len(given) + (Status.HOLE,) * holes,
            filled=(-1,) * size,
            window=(len(given), size),
            shape=shape,
        )

    @staticmethod
    def framed(prompt: Iterable[int], frame: Frame) -> Canvas:
        """The prompt followed by holes with given tokens between and behind them; the window is on all of it."""
        canvas = Canvas.blank(prompt, 0)
        tokens, status = list(canvas.tokens), list(canvas.status)
        for part in frame:
            tokens += (HOLE,) * part if isinstance(part, int) else part
            status += [Status.HOLE] * part if isinstance(part, int) else [Status.GIVEN] * len(part)
        begins = len(canvas)
        return Canvas(tuple(tokens), tuple(status), (-1,) * len(tokens), (begins, len(tokens)))

    @cached_property
    def written(self) -> int:
        """The place behind the last one that was not given: all that is written ends there."""
        return next((i + 1 for i in reversed(range(len(self))) if self.status[i] != Status.GIVEN), len(self))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def holes(self) -> list[int]:
        """The empty positions of the window."""
        return [i for i in range(*self.window) if self.status[i] == Status.HOLE]

    def is_hole(self, position: int) -> bool:
        """Whether nothing stands at a position yet."""
        return self.status[position] == Status.HOLE

    @cached_property
    def prompt(self) -> int:
        """How many positions at the beginning were given."""
        return next((i for i, status in enumerate(self.status) if status != Status.GIVEN), len(self))

    @property
    def settled(self) -> int:
        """How many positions at the beginning will not change any more."""
        return next((i for i in range(len(self)) if self.is_open(i)), len(self))

    def is_open(self, position: int) -> bool:
        """True where a token is still to come, or may still be revised."""
        return self.status[position] in (Status.HOLE, Status.DRAFT)

    def end(self, stops: Collection[int]) -> int:
        """The first position behind the prompt that holds one of these tokens; the length if none does."""
        if not stops:
            return len(self)
        known = range(self.prompt, len(self))
        return next((i for i in known if self.tokens[i] in stops and self.status[i] != Status.HOLE), len(self))

    def within(self, low: int, high: int) -> Canvas:
        """This canvas with its window on these positions."""
        return self if self.window == (low, high) else replace(self, window=(low, high))

    def cut(self, end: int) -> Canvas:
        """This canvas without what stands from `end` on."""
        low, high = self.window
        return replace(
            self,
            tokens=self.tokens[:end],
            status=self.status[:end],
            filled=self.filled[:end],
            window=(min(low, end), min(high, end)),
        )

    def fixed(self, low: int, high: int) -> Canvas:
        """This canvas with the drafts among these positions made final."""
        settled = (
            Status.FIXED if low <= i < high and status == Status.DRAFT else status
            for i, status in enumerate(self.status)
        )
        return replace(self, status=tuple(settled))

    def masked(self, positions: Collection[int]) -> Canvas:
        """This canvas as it would be if nothing were known of these positions, given ones among them too."""
        return replace(
            self,
            tokens=tuple(HOLE if i in positions else x for i, x in enumerate(self.tokens)),
            status=tuple(Status.HOLE if i in positions else s for i, s in enumerate(self.status)),
            filled=tuple(-1 if i in positions else t for i, t in enumerate(self.filled)),
        )

    def fill(self, tokens: Mapping[int, int], status: Status = Status.FIXED) -> Canvas:
        """This canvas one step later, with these positions filled."""
        for i in tokens:
            self._refuse_outside(i)
            if self.status[i] in (Status.GIVEN, Status.FIXED):
                raise ValueError(f"position {i} is {self.status[i].name.lower()} and cannot be filled")
        new = [tokens.get(i, x) for i, x in enumerate(self.tokens)]
        marks = [status if i in tokens else s for i, s in enumerate(self.status)]
        when = [self.step if i in tokens else t for i, t in enumerate(self.filled)]
        return replace(self, tokens=tuple(new), status=tuple(marks), filled=tuple(when), step=self.step + 1)

    def remask(self, positions: Iterable[int]) -> Canvas:
        """This canvas with these drafts turned into holes again."""
        gone = set(positions)
        for i in gone:
            self._refuse_outside(i)
            if self.status[i] != Status.DRAFT:
                raise ValueError(f"position {i} is {self.status[i].name.lower()}; only drafts can be masked again")
        return replace(
            self,
            tokens=tuple(HOLE if i in gone else x for i, x in enumerate(self.tokens)),
            status=tuple(Status.HOLE if i in gone else s for i, s in enumerate(self.status)),
            filled=tuple(-1 if i in gone else t for i, t in enumerate(self.filled)),
        )

    def insert(self, at: int, holes: int = 1) -> Canvas:
        """This canvas with new holes before position `at`; the window grows with them."""
        low, high = self.window
        if not low <= at <= high:
            raise ValueError(f"position {at} is outside the window {low}..{high}; holes go where the decoder works")
        return replace(
            self,
            tokens=self.tokens[:at] + (HOLE,) * holes + self.tokens[at:],
            status=self.status[:at] + (Status.HOLE,) * holes + self.status[at:],
            filled=self.filled[:at] + (-1,) * holes + self.filled[at:],
            window=(low, high + holes),
        )

    def extend(self, holes: int) -> Canvas:
        """This canvas with more holes at the end and the window moved onto them."""
        size = len(self)
        return replace(
            self,
            tokens=self.tokens + (HOLE,) * holes,
            status=self.status + (Status.HOLE,) * holes,
            filled=self.filled + (-1,) * holes,
            window=(size, size + holes),
        )

    def _repr_html_(self) -> str:
        """A cell for every place, for notebooks: what is given is grey, holes are points, drafts are pale."""
        ground = "rgba(128,128,128,.25)", "none", "rgba(46,160,67,.18)", "rgba(46,160,67,.40)"  # by status
        cells = zip(self.tokens, self.status, strict=True)
        shown = (f'<td style="background:{ground[s]}">{"·" if s == Status.HOLE else t}</td>' for t, s in cells)
        return f"<table><tr>{''.join(shown)}</tr></table>"

    def _refuse_outside(self, position: int) -> None:
        if not 0 <= position < len(self):
            raise ValueError(f"position {position} is outside the canvas, which has the positions 0 to {len(self) - 1}")


class Confidence(NamedTuple):
    """How peaked a law is: its most probable token, that one's probability, its lead over the second, the entropy.

    A law that nothing can change any more, because the model reads it from what is final already, counts as certain:
    to wait would teach its place nothing, and all others something.
    """

    token: int
    p: float
    margin: float
    entropy: float  # in nats


class Field(Mapping[int, Law]):
    """The law at each of some places of a canvas; `rows` is how many token rows were computed to tell.

    The laws at the `final` places depend on nothing that is still open. What every rule asks first, the peaks, is
    worked out for all places together when the first is looked at.
    """

    def __init__(self, laws: Mapping[int, Law], rows: int = 0, final: Collection[int] = ()) -> None:
        self._laws, self.rows, self.final = laws, rows, frozenset(final)

    @staticmethod
    def of(places: Sequence[int], scores: Tensor, rows: int = 0, final: Collection[int] = ()) -> Field:
        """The field whose laws are the rows of `scores` [places, vocab], in this order."""
        field = Field({place: Law(scores[n]) for n, place in enumerate(places)}, rows, final)
        field.__dict__["scores"] = scores
        return field

    @cached_property
    def scores(self) -> Tensor:
        """All log-weights [places, vocab], in the order of the places."""
        return torch.stack([law.scores for law in self._laws.values()])

    @cached_property
    def peaks(self) -> Mapping[int, Confidence]:
        """The peak of every law."""
        if not self._laws:
            return {}
        logs = self.scores.float() if self.scores.dtype in (torch.float16, torch.bfloat16) else self.scores
        logs = logs.log_softmax(1)
        two, tokens = logs.topk(min(2, logs.shape[1]))
        p = logs.exp()
        entropy = -torch.where(p > 0, p * logs, 0.0).sum(1)
        best = two.exp()
        margin = best[:, 0] - best[:, 1] if best.shape[1] == 2 else best[:, 0]
        told = torch.stack((tokens[:, 0].to(p.dtype), best[:, 0], margin, entropy), 1).tolist()
        found = {place: Confidence(int(row[0]), *row[1:]) for place, row in zip(self._laws, told, strict=True)}
        return found | {place: Confidence(found[place].token, 1.0, 1.0, 0.0) for place in self.final & found.keys()}

    def parted(self, size: int) -> list[Field]:
        """The field of every trial of a look with trials, at a canvas of this size; their rows count once."""
        laws: dict[int, dict[int, Law]] = {}
        for place, law in self._laws.items():
            laws.setdefault(place // size, {})[place % size] = law
        return [Field(found, 0 if n else self.rows) for n, found in laws.items()]

    def __getitem__(self, place: int) -> Law:
        return self._laws[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._laws)

    def __len__(self) -> int:
        return len(self._laws)


class Binding(ABC):
    """Declared by a warp that binds a text as a whole, and so says itself what may stand on a canvas."""

    @abstractmethod
    def guard(self, canvas: Canvas, stop: Stop) -> Any:
        """Who puts tokens on the canvas of one request (`loops/guard.py`), at the end of a generator of asks."""
