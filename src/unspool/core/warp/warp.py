"""Warps: what shapes a law before a token is drawn from it, with a state of their own for every prefix."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ..chance import At, Role
from ..errors import EmptyLaw
from ..law import Law
from ..option import expect, real
from ..tree import ROOT, Tree

NO_STATES: Mapping[str, Tensor] = MappingProxyType({})
COLDEST = 1e-5  # below this, ordinary logits divided by the temperature overflow; 0 is the exact limit


class Warp(Protocol):
    """A map from laws to laws that may depend on the text so far, through an immutable state.

    Because `step` returns a new state and never changes the old one, every tree node, beam and particle has its own.
    A warp without memory keeps the defaults: its state is None. `a | b` applies a first, then b.
    """

    def start(self, text: Sequence[int]) -> Any:
        """The state after the prompt."""
        return None

    def step(self, state: Any, token: int) -> Any:
        """The state after one more token."""
        return state

    def __call__(self, state: Any, law: Law) -> Law:
        """The shaped law."""
        ...

    def soften(self, state: Any, law: Law) -> Law:
        """The law as it is before a temperature of 0 at the end makes it a point; of other warps, the shaped one."""
        return self(state, law)

    def __or__(self, other: Warp) -> Warp:
        return self if type(other) is Same else Both(self, other)


@runtime_checkable
class Beside(Protocol):
    """A warp with a memory that can also be asked on a canvas, where tokens stand on both sides of a place."""

    def beside(self, tokens: Sequence[int], prompt: int, place: int) -> Any:
        """The state at a place: of all tokens that stand elsewhere, −1 where none does; the first are the prompt."""
        ...


@dataclass(frozen=True)
class Same(Warp):
    """Leaves every law as it is."""

    def __call__(self, state: Any, law: Law) -> Law:
        """The same law."""
        return law

    def __or__(self, other: Warp) -> Warp:
        return other


@dataclass(frozen=True)
class Both(Warp):
    """Two warps, one after the other."""

    first: Warp
    second: Warp

    def start(self, text: Sequence[int]) -> Any:
        """Both states."""
        return self.first.start(text), self.second.start(text)

    def step(self, state: Any, token: int) -> Any:
        """Both states after one more token."""
        return self.first.step(state[0], token), self.second.step(state[1], token)

    def __call__(self, state: Any, law: Law) -> Law:
        """The second applied to the first's law."""
        return self.second(state[1], self.first(state[0], law))

    def soften(self, state: Any, law: Law) -> Law:
        return self.second.soften(state[1], self.first(state[0], law))


@dataclass(frozen=True)
class Temperature(Warp):
    """p(x) ← p(x)^(1/t), normalised; t = 0 is greedy decoding, the point law of the most probable token.

    Cost: one division; at 0 one max.
    """

    t: float

    def __post_init__(self) -> None:
        fits = real(self.t, 0) and (self.t == 0 or self.t >= COLDEST)
        expected = f"0 (greedy) or a finite number from {COLDEST} on (1 leaves the law alone)"
        expect(fits, "temperature", self.t, expected, param="temperature")

    def __call__(self, state: Any, law: Law) -> Law:
        """The tempered law."""
        return law if self.t == 1 else law.temper(self.t)

    def soften(self, state: Any, law: Law) -> Law:
        return law if self.t == 0 else self(state, law)


def temperature_of(warp: Warp) -> float | None:
    """The temperature that a warp comes down to, None if it does more."""
    if isinstance(warp, Same):
        return 1.0
    return warp.t if isinstance(warp, Temperature) else None


@dataclass(frozen=True, eq=False)
class Prefix:
    """A text with the warp that shapes what follows it: all that drafters and verifiers may know of a request.

    It is the first `length` tokens of `tokens`, a list that prefixes of one text share and that only grows: so going on
    costs what is new, and what a prefix has been it stays.
    """

    tokens: list[int]
    length: int
    warp: Warp
    known: tuple[int, Any]  # after how many tokens the warp's state was last asked for, and what it was
    left: float = math.inf  # how many tokens may still follow
    prompt: int = 0  # how many of them were there when the warp's state began

    @staticmethod
    def of(text: tuple[int, ...], warp: Warp, left: float = math.inf) -> Prefix:
        """The prefix that is a whole prompt."""
        return Prefix(list(text), len(text), warp, (len(text), warp.start(text)), left, len(text))

    @property
    def text(self) -> tuple[int, ...]:
        """All its tokens, kept without the lock that a cached property takes in every round."""
        kept: tuple[int, ...] | None = self.__dict__.get("_text")
        if kept is None:
            kept = tuple(self.tokens if len(self.tokens) == self.length else self.tokens[: self.length])
            self.__dict__["_text"] = kept
        return kept

    @property
    def state(self) -> Any:
        """The warp's state, brought up to date when somebody looks: a device that shapes laws itself never does."""
        done, state = self.known
        if done < self.length and type(self.warp).step is not Warp.step:
            for token in self.tokens[done : self.length]:
                state = self.warp.step(state, token)
            object.__setattr__(self, "known", (self.length, state))
        return state

    def __len__(self) -> int:
        return self.length

    def then(self, tokens: Sequence[int]) -> Prefix:
        """This prefix with more tokens."""
        text = self.tokens
        if len(text) > self.length:  # another text goes on from here
            text = text[: self.length]
        text += tokens
        return Prefix(text, self.length + len(tokens), self.warp, self.known, self.left - len(tokens), self.prompt)

    def ahead(self, depth: int) -> int:
        """How far to draft, if `depth` tokens were wanted: the last token of a text need not be drafted."""
        return int(min(depth, self.left - 1))

    def shape(self, law: Law) -> Law:
        """The law that really follows this prefix, given the model's."""
        return self.warp(self.state, law)

    def soften(self, law: Law) -> Law:
        """The same, but for a temperature of 0 at the end of the warps."""
        return self.warp.soften(self.state, law)


class Scored:
    """A drafted tree with the target's laws, each shaped at its own prefix and only when it is looked at.

    After nodes that end the text (`last`) warps may leave no token, and nothing that is drawn there is kept: there the
    law is the model's own. `hidden` are the states of nodes that the verifier wants, a matrix with a row for each.
    """

    def __init__(
        self,
        tree: Tree,
        prefix: Prefix,
        root: Law,
        after: Sequence[Law],
        last: Collection[int] = (),
        hidden: Mapping[str, Tensor] = NO_STATES,
    ) -> None:
        self.tree, self.prefix, self.last, self.hidden = tree, prefix, last, hidden
        self.raw_root, self.raw_after = root, after
        self._states: dict[int, Any] = {ROOT: prefix.state}
        self._laws: dict[int, Law] = {}

    def raw(self, node: int) -> Law:
        """The model's own law after `node`, before any warp."""
        return self.raw_root if node < 0 else self.raw_after[node]

    def law(self, node: int) -> Law:
        """The target's law of the token after `node`, after all warps at that node's own prefix."""
        if node not in self._laws:
            raw = self.raw(node)
            self._laws[node] = raw if node in self.last else self.prefix.warp(self._state(node), raw)
        return self._laws[node]

    def soft(self, node: int) -> Law:
        """The same, but for a temperature of 0 at the end of the warps, so that it tells how surprising a token is."""
        return self.prefix.warp.soften(self._state(node), self.raw(node))

    def ends(self, node: int) -> bool:
        """True if warps leave no token after `node`: a text that gets there fails, and nothing below can stand."""
        try:
            return self.law(node).is_empty()
        except EmptyLaw:  # some warps say so at once
            return True

    def _state(self, node: int) -> Any:
        if node not in self._states:
            above = self._state(self.tree.parent[node])
            self._states[node] = self.prefix.warp.step(above, self.tree.drawn[node].token)
        return self._states[node]

    def at(self, role: Role, node: int, k: int = 0) -> At:
        """The address of a choice about the token after `node`."""
        start = len(self.prefix)
        position = start + self.tree.depth(node)
        return At(position, role, k, 0 if role == Role.PICK else start)
