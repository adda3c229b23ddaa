"""Warp plans: a chain of warps as plain numbers, in the one order in which kernels apply them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from .forbid import BadWords, Forbid, MinTokens, NoRepeatNgram
from .mask import Mask
from .penalise import Frequency, LogitBias, Presence, Repetition
from .truncate import Epsilon, Eta, MinP, TopK, TopNSigma, TopP, Typical
from .warp import Both, Prefix, Same, Temperature, Warp

ORDER: tuple[type[Warp], ...] = (
    LogitBias, Repetition, Frequency, Presence, NoRepeatNgram, BadWords, Forbid, MinTokens,
    Temperature, TopNSigma, TopK, TopP, MinP, Typical, Epsilon, Eta,
)  # fmt: skip
"""The order of `Settings.warp`, behind a mask: each may stand in a plan once, and none before one listed earlier."""


PLAN = "_plan"  # what a warp's plan is called among what it holds


@dataclass(frozen=True)
class WarpPlan:
    """What a chain of warps does, by its parameters; a field at its default does nothing."""

    mask: Mask | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    repetition: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    no_repeat_ngram: int = 0
    bad_words: tuple[tuple[int, ...], ...] = ()
    forbidden: tuple[int, ...] = ()
    min_tokens: int = 0
    ends: tuple[int, ...] = ()  # tokens that are forbidden until so many were generated
    temperature: float = 1.0
    top_n_sigma: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical: float = 1.0
    epsilon: float = 0.0
    eta: float = 0.0

    @cached_property
    def remembers(self) -> bool:
        """Whether it looks at the text so far."""
        penalised = self.repetition != 1 or self.frequency != 0 or self.presence != 0
        return penalised or self.no_repeat_ngram > 0 or any(len(words) > 1 for words in self.bad_words)

    @cached_property
    def edits(self) -> bool:
        """Whether it changes scores before the temperature."""
        listed = self.logit_bias or self.bad_words or self.forbidden or (self.min_tokens and self.ends)
        return bool(listed) or self.mask is not None or self.remembers

    @cached_property
    def truncates(self) -> bool:
        """Whether it drops tokens after the temperature; from a point, which a temperature of 0 leaves, it cannot."""
        cuts = self.top_n_sigma is not None or self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return self.temperature > 0 and (cuts or self.typical < 1 or self.epsilon > 0 or self.eta > 0)

    @cached_property
    def longest_list(self) -> int:
        """How many biases, prohibitions or tokens of bad words it has, whichever are most."""
        strikes = len(self.bad_words) + len(self.forbidden) + len(self.ends)
        return max(len(self.logit_bias), strikes, sum(map(len, self.bad_words)))

    @cached_property
    def highest_token(self) -> int:
        """The highest token that it names, 0 if none."""
        biased = (token for token, _ in self.logit_bias)
        return max(chain(biased, self.forbidden, self.ends, *self.bad_words), default=0)

    @cached_property
    def unmasked(self) -> WarpPlan:
        """The same without its mask."""
        return self if self.mask is None else replace(self, mask=None)

    @property
    def bare(self) -> bool:
        """Whether it comes down to a temperature."""
        return not (self.edits or self.truncates)


def plan_of(warp: Warp) -> WarpPlan | None:
    """The plan that does what these warps do; None if there is none: others are among them, or in another order.

    It is kept with the warp, which a request asks with for every token, and goes with it.
    """
    try:
        known = vars(warp)
    except TypeError:  # it has slots, and no room for more
        return _planned(warp)
    if PLAN not in known:
        known[PLAN] = _planned(warp)
    plan: WarpPlan | None = known[PLAN]
    return plan


def _planned(warp: Warp) -> WarpPlan | None:
    plan, last = WarpPlan(), -1
    for number, part in enumerate(_parts(warp)):
        if number == 0 and isinstance(part, Mask):
            plan = replace(plan, mask=part)
            continue
        if type(part) not in ORDER or ORDER.index(type(part)) <= last:
            return None
        last = ORDER.index(type(part))
        plan = replace(plan, **_fields(part))
    return plan


def count_following(prefix: Prefix, tokens: Sequence[int]) -> int:
    """How many of these tokens the mask of a prefix lets follow, one after the other; its warps have a plan."""
    mask, state = mask_of(prefix)
    return mask.follows(state, tokens)


def mask_of(prefix: Prefix) -> tuple[Mask, Any]:
    """The mask of a prefix whose warps have a plan, where it comes first of all, and its state."""
    warp, state = prefix.warp, prefix.state
    while isinstance(warp, Both):
        warp, state = warp.first, state[0]
    assert isinstance(warp, Mask)
    return warp, state


def _parts(warp: Warp) -> Iterator[Warp]:
    if isinstance(warp, Both):
        yield from _parts(warp.first)
        yield from _parts(warp.second)
    elif type(warp) is not Same:
        yield warp


def _fields(part: Warp) -> dict[str, Any]:
    match part:
        case LogitBias(bias):
            return {"logit_bias": tuple(bias.items())}
        case Repetition(penalty):
            return {"repetition": penalty}
        case Frequency(penalty):
            return {"frequency": penalty}
        case Presence(penalty):
            return {"presence": penalty}
        case NoRepeatNgram(n):
            return {"no_repeat_ngram": n}
        case BadWords(sequences):
            return {"bad_words": tuple(map(tuple, sequences))}
        case Forbid(tokens):
            return {"forbidden": tuple(sorted(tokens))}
        case MinTokens(n, ends):
            return {"min_tokens": n, "ends": tuple(sorted(ends))}
        case Temperature(t):
            return {"temperature": t}
        case TopNSigma(n):
            return {"top_n_sigma": n}
        case TopK(k):
            return {"top_k": k}
        case TopP(p):
            return {"top_p": p}
        case MinP(p):
            return {"min_p": p}
        case Typical(mass):
            return {"typical": mass}
        case Epsilon(epsilon):
            return {"epsilon": epsilon}
        case Eta(epsilon):
            return {"eta": epsilon}
    raise AssertionError(f"{type(part).__name__} stands in ORDER, but nobody says what it does")
