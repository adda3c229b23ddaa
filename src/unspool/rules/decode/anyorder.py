"""Speculation on a canvas: holes drafted together, then verified one given the others, in any order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from ...core.asks import Ask, Decoding, Done, Emit, Look
from ...core.canvas import HOLE, Canvas, Field, Frame, Status
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, Method, claims
from ...core.law import Drawn, Law, Point
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise import room
from ...loops.denoise_state import DenoiseState
from ...loops.guard import unguarded

Guessing: TypeAlias = Generator[Ask, Any, Mapping[int, Law]]
HoleOrder: TypeAlias = Callable[[Sequence[int], Chance], Sequence[int]]


class HoleDrafter(Protocol):
    """Laws to draft some holes from, in their order: for all, for the first few, or for none.

    The first `exact` of them are the model's own, given all that stands: what is drawn from these need not be verified.
    """

    @property
    def exact(self) -> int:
        """How many need not be verified."""

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Guessing:
        """Guess these holes."""


@dataclass(frozen=True)
class Alike:
    """All holes by one look, each given what stands and nothing of the others."""

    exact: int = 1

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Guessing:
        field: Field = yield Look(canvas, tuple(places))
        return field


@dataclass(frozen=True)
class Copied:
    """What last followed the token to the left, as far as the canvas knows: no look, and chosen, not drawn."""

    exact: int = 0

    def __call__(self, canvas: Canvas, places: Sequence[int]) -> Guessing:
        yield from ()
        tokens, guesses = list(canvas.tokens), dict[int, Law]()
        for place in places:
            pairs = [(a, b) for a, b in pairwise(tokens) if a == tokens[place - 1] != HOLE and b != HOLE]
            if place == 0 or not pairs:
                break
            tokens[place] = pairs[-1][1]
            guesses[place] = Law.point(tokens[place])
        return guesses


def left(holes: Sequence[int], chance: Chance) -> Sequence[int]:
    """From left to right."""
    return holes


def mixed(holes: Sequence[int], chance: Chance, role: Role = Role.ORDER, step: int = 0) -> Sequence[int]:
    """A uniformly random order, drawn before anything is looked at."""
    order: list[int] = []
    for n, hole in enumerate(holes):  # each goes before, between or behind those left of it
        even = Law(torch.zeros(n + 1, dtype=torch.float64))
        order.insert(even.draw(chance, At(hole, role, round=step)).token, hole)
    return order


def _trials(rule: type[AnyOrder]) -> list[Method]:
    return [rule(2, 3), rule(2, 3, Copied()), rule(2, 3, Alike(), mixed)]


@claims(
    LAW,
    note="if the model's conditionals are those of one joint law",
    shaped=False,
    trials=_trials,
    paper="2504.20456",
    systems=("AS-ARM / ASSD", "ASSD (context n-gram draft)"),
)
@dataclass(frozen=True)
class AnyOrder:
    """Draft the next `depth` holes of a fixed order together, and keep those that their joint law lets stand.

    With p the law that hole σ(j) was drafted from and q = p(· | what stands, x of σ(1..j−1)), read for all j from one
    look `along` the order: accept x with min(1, q(x)/p(x)); at the first refusal draw from norm[q − p]₊ and go on from
    there. If all stand, the same look has the law of the next hole too. Drafted alike, the first hole has q = p and
    stands, and the second is settled either way: so looks never outnumber tokens.

    Claim: LAW, for a model whose looks along an order are the conditionals of one joint law, as an any-subset model's
    are; a masked diffusion model's only roughly. It loses where holes depend on each other: then two looks give two
    tokens. Cost: two looks per round, one if the draft is copied or nothing but one hole is left.

    A trace counts a drafted token as accepted in the round in which it stands. From left to right these are tokens of
    the text; in a mixed order an end may come to stand left of some later, and what is behind it is counted too.
    """

    depth: int = 5
    size: int = 0
    guess: HoleDrafter = Alike()
    order: HoleOrder = left
    frame: Frame = ()  # what is given between and behind the holes

    def __post_init__(self) -> None:
        expect(whole(self.depth, 1), "anyorder:depth", self.depth, "a whole number of holes from 1 on")

    def framed(self, frame: Frame) -> AnyOrder:
        return replace(self, frame=frame)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail, warp = stop.start(), unguarded(warp, "anyorder")
        framed = Canvas.framed(text, self.frame) if self.frame else None
        canvas = Canvas.blank(text, self.size or room(stop.left(tail))) if framed is None else framed
        order = self.order(canvas.holes, chance)
        laws: dict[int, tuple[Law, Law]] = {}  # before and after warps
        told = len(text)
        while True:
            end = canvas.end(stop.tokens)
            ahead = [i for i in order if canvas.status[i] == Status.HOLE and i < end]
            drafted, stood = 0, tuple[int, ...]()
            if ahead:
                new, drafted, stood = yield from self._round(canvas, ahead, chance, warp)
                canvas = canvas.fill({i: token for i, (token, _, _) in new.items()})
                laws |= {i: (raw, law) for i, (_, raw, law) in new.items()}
            kept, reason, tail, trim = stop.cut(tail, canvas.tokens[told : min(canvas.settled, canvas.written)])
            if kept or ahead:
                shown = [laws.get(i) or (p := Law.point(canvas.tokens[i]), p) for i in range(told, told + len(kept))]
                before, after = [law for law, _ in shown], [law for _, law in shown]
                told += len(kept)
                # nothing behind the end is part of the text: what stood there was not accepted
                behind = told if reason else canvas.end(stop.tokens) + 1
                accepted = sum(place < behind for place in stood)
                yield Emit(kept, before, after, drafted, accepted, rounds=bool(ahead), canvas=canvas)
            if reason or told == canvas.written:
                return Done(canvas.tokens[len(text) : told], reason or "length", trim)

    def _round(
        self, canvas: Canvas, ahead: Sequence[int], chance: Chance, warp: Warp
    ) -> Generator[Ask, Any, tuple[dict[int, SettledToken], int, tuple[int, ...]]]:
        """The tokens that a round settles, how many were drafted for it, and the places of those that stood."""
        filled, new, drafts = canvas, dict[int, SettledToken](), dict[int, Drawn]()
        guesses = yield from self.guess(canvas, ahead[: self.depth])
        for n, (i, raw) in enumerate(guesses.items()):
            law = _shaped(raw, filled, i, warp, chance)
            if n < self.guess.exact:
                new[i] = SettledToken(law.draw(chance, At(i, Role.PICK)).token, raw, law)
            else:
                drafts[i] = law.draw(chance, At(i, Role.DRAFT, round=canvas.step))
            filled = filled.fill({i: drafts[i].token if i in drafts else new[i].token}, Status.DRAFT)
        if new and not drafts:
            return new, 0, ()
        along = (*drafts, *ahead[len(guesses) : len(guesses) + 1])  # the law after the last draft comes for nothing
        field: Field = yield Look(filled, along=along)
        filled = canvas.fill({i: settled.token for i, settled in new.items()}, Status.DRAFT)
        for stood, i in enumerate(along):
            law = _shaped(field[i], filled, i, warp, chance)
            if i not in drafts:
                token = law.draw(chance, At(i, Role.PICK)).token
                return new | {i: SettledToken(token, field[i], law)}, len(drafts), along[:stood]
            token, drafted = drafts[i]
            if not chance.coin(min(1.0, law[token] / drafted[token]), At(i, Role.ACCEPT, round=canvas.step)):
                token = law.minus(drafted).draw(chance, At(i, Role.RESIDUAL, round=canvas.step)).token
                return new | {i: SettledToken(token, field[i], law)}, len(drafts), along[:stood]
            new[i] = SettledToken(token, field[i], law)
            filled = filled.fill({i: token}, Status.DRAFT)
        return new, len(drafts), along


class SettledToken(NamedTuple):
    """A token for good, with the law it has been made to come from, before and after warps."""

    token: int
    before: Law
    after: Law


def _shaped(law: Law, canvas: Canvas, place: int, warp: Warp, chance: Chance) -> Law:
    """The law of a hole after all warps, on a canvas on which only this much stands."""
    return law if isinstance(law, Point) else DenoiseState(canvas, Field({place: law}), warp, chance).law(place)
