"""The token that plain decoding's law under a constraint gives, found without asking for the whole mask."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from ...core.chance import At, Chance
from ...core.errors import BadRequest, EmptyLaw
from ...core.law import NEVER, Drawn, Law
from ...core.warp.truncate import MinP, TopK
from ...core.warp.warp import Temperature, Warp
from .constraint import State, mask_of

PATIENCE = 512  # checks of one token's place after which the whole mask is asked for: then it is hardly dearer


@dataclass(frozen=True)
class Ranks:
    """What the warps after a constraint keep of what it allows, where that depends on the order of the scores alone.

    The `most` best (0: all), and of these none below `share` of the best; `greedy`: the best one. Ties are kept as the
    truncations keep them.
    """

    most: int = 0
    share: float = 0.0
    greedy: bool = False

    @staticmethod
    def of(warps: Sequence[Warp]) -> Ranks:
        """What these warps keep together; BadRequest if one of them has to know all that is allowed."""
        most, share = 0, 0.0
        for warp in warps:
            match warp:
                case Temperature(t=0):
                    return Ranks(greedy=True)  # of what the others leave, the best is in any case
                case TopK(k=k):
                    most = min(most or k, k)
                case MinP(p=p):
                    share = max(share, p)
                case _:
                    raise BadRequest(
                        f"awrs cannot draw by {warp} under a constraint: what that keeps depends on the mass of all "
                        "tokens that are allowed, and awrs does not ask for them. Leave it out, take top_k or min_p "
                        "instead, or another method, such as plain."
                    )
        return Ranks(most, share)

    def __bool__(self) -> bool:
        return self.greedy or self.most > 0 or self.share > 0

    def kept(self, law: Law, state: State) -> Law:
        """The law of what they keep of what the state allows; empty if it allows nothing."""
        kept: list[int] = []
        cut = NEVER
        checked = _checks(state)
        for token, score in _descending(law):
            if score < cut or score == NEVER:
                break
            if not checked(token):
                continue
            kept.append(token)
            if self.greedy:
                return Law.point(token, law)
            if len(kept) == 1 and self.share > 0:
                cut = float(law.scores[token] + math.log(self.share))  # rounded as the truncation rounds it
            if len(kept) == self.most:
                cut = max(cut, score)
        return law.only(mask_of(law.size, tuple(kept)).to(law.scores.device))


def drawn(law: Law, state: State | None, ranks: Ranks, chance: Chance, at: At) -> Drawn:
    """A token of the law that a mask before the ranks would leave: where there are none, by draws without replacement.

    A token that is refused takes its probability with it, so the first that is allowed has the law of those that are.
    The law that comes with it is the one before the constraint, unless the ranks have told more.
    """
    if state is None:
        return law.draw(chance, at)
    if ranks:
        kept = ranks.kept(law, state)
        if kept.is_empty():
            raise _empty()
        return kept.draw(chance, at)
    rest = law
    for refused in range(PATIENCE):
        if refused and rest.is_empty():  # at first it draws, which tells of a law that is broken
            raise _empty()
        token = rest.draw(chance, at._replace(round=refused)).token
        if state.allows(token):
            return Drawn(token, law)
        rest = rest.without(token)
    rest = rest.only(state.mask().to(rest.scores.device))
    if rest.is_empty():
        raise _empty()
    return Drawn(rest.draw(chance, at._replace(round=PATIENCE)).token, law)


def masked(law: Law, state: State) -> Callable[[int], Law]:
    """What gives the law of what is allowed, once somebody asks for it: that takes the whole mask."""
    return lambda node: law.only(state.mask().to(law.scores.device))


def _empty() -> EmptyLaw:
    return EmptyLaw(
        "the constraint allows none of the tokens that are possible here: it contradicts itself, or bad words, biases "
        "or a least number of tokens forbid what it needs. Loosen either."
    )


def _checks(state: State) -> Callable[[int], bool]:
    """What tells whether a token is allowed: by asking for it, and after so many by the whole mask."""
    asked = count()
    masks: list[Tensor] = []

    def allows(token: int) -> bool:
        if next(asked) < PATIENCE:
            return state.allows(token)
        if not masks:
            masks.append(state.mask())
        return bool(masks[0][token])

    return allows


def _descending(law: Law) -> Iterator[tuple[int, float]]:
    """All tokens with their scores, best first, of equal ones the lowest id first; nothing is sorted for the first."""
    yield law.best, float(law.scores[law.best])
    order = torch.sort(law.scores, descending=True, stable=True)
    tokens, scores = order.indices.tolist(), order.values.tolist()
    yield from ((token, score) for token, score in zip(tokens, scores, strict=True) if token != law.best)
