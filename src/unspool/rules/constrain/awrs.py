"""Adaptive weighted rejection: a token that a constraint allows, found with few checks, and how much it had to choose.

The pair is properly weighted: E[weight·1{token = x}] = p(x) if x is allowed, else 0, so E[weight] is the allowed mass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Protocol

from ...core.asks import Decoding, Done, Emit, Keep, Laws, Score, Scores
from ...core.chance import At, Chance, Role
from ...core.claim import LAW, claims
from ...core.law import Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix, Warp
from .allowed import Ranks, drawn, masked
from .constraint import State
from .parted import order


class Weighed(NamedTuple):
    """A token with its weight, None and 0 if there was none; and how often the constraint was asked."""

    token: int | None
    weight: float
    checks: int = 0


class Propose(Protocol):
    """Draws a token that is allowed, with a weight that makes up for what it was not drawn from."""

    def __call__(self, law: Law, state: State | None, chance: Chance, at: At) -> Weighed:
        """A properly weighted token of `law` under the constraint; its k-th random number is at round k."""


@dataclass(frozen=True)
class Recursive:
    """Draw without replacement until a token is allowed, then look at one more.

    With q the probability of the token among those not yet refused: a refusal multiplies the weight by 1 − q; the
    accepted token by 1 if the next in the same order is allowed too, else by q. On the average that is the allowed
    share of what was left, since q + (1 − q)·P(next allowed) is just that.

    Cost: two checks at least; as many as it takes, or at most `checks` of them, where accepting at the last one needs
    no second look and refusing there gives weight 0.
    """

    checks: int = 0  # 0: no limit

    def __post_init__(self) -> None:
        expect(whole(self.checks, 0), "checks", self.checks, "a whole number of checks, 0 for no limit")

    def __call__(self, law: Law, state: State | None, chance: Chance, at: At) -> Weighed:
        rest, weight = law, 1.0
        for check in count(1):
            if rest.is_empty():
                return Weighed(None, 0.0, check - 1)
            token = rest.draw(chance, at._replace(round=check - 1)).token
            others = rest.without(token)
            last = check == self.checks or others.is_empty()
            if state is None or state.allows(token):
                if last:
                    return Weighed(token, weight, check)
                second = others.draw(chance, at._replace(round=check)).token
                share = 1.0 if state is None or state.allows(second) else rest[token]
                return Weighed(token, weight * share, check + 1)
            if last:
                return Weighed(None, 0.0, check)
            weight *= math.exp(others.log_z - rest.log_z)  # 1 − q, without the cancellation
            rest = others
        raise AssertionError("not reached")


@dataclass(frozen=True)
class Geometric:
    """Draw with replacement until `accepts` tokens are allowed; the first is the token, the count tells the weight.

    What was refused once is not checked again: a coin with its mass says how often it would have come. The weight is
    (accepts − 1)/(trials − 1), the unbiased estimate from inverse binomial sampling; if `refusals` come first, it is
    accepted/(trials − 1), which keeps it unbiased.

    Cost: fewer checks than `Recursive` where one token has two thirds of the mass, and less variance with more
    `accepts`.
    """

    accepts: int = 2
    refusals: int = 1000

    def __post_init__(self) -> None:
        expect(whole(self.accepts, 2), "accepts", self.accepts, "a whole number from 2 on")
        expect(whole(self.refusals, 1), "refusals", self.refusals, "a whole number from 1 on")

    def __call__(self, law: Law, state: State | None, chance: Chance, at: At) -> Weighed:
        rest, first = law, None
        known: set[int] = set()  # tokens that are allowed
        good = bad = checks = 0
        while good < self.accepts and bad < self.refusals and not rest.is_empty():
            at = at._replace(round=good + bad)
            refused = -math.expm1(rest.log_z - law.log_z) if rest is not law else 0.0
            if refused > 0 and chance.coin(refused, at._replace(role=Role.ACCEPT)):
                bad += 1
                continue
            token = rest.draw(chance, at).token
            checks += token not in known
            if token in known or state is None or state.allows(token):
                good += 1
                known.add(token)
                first = token if first is None else first
            else:
                bad += 1
                rest = rest.without(token)
        if first is None:
            return Weighed(None, 0.0, checks)
        return Weighed(first, min(good, self.accepts - 1) / (good + bad - 1), checks)


@dataclass(frozen=True)
class AdaptiveRejection:
    """`geometric` where one token has at least two thirds of the mass, else `recursive`: what checks less there."""

    recursive: Recursive = Recursive()
    geometric: Geometric = Geometric()

    def __call__(self, law: Law, state: State | None, chance: Chance, at: At) -> Weighed:
        propose = self.recursive if law.is_empty() or law[law.best] < 2 / 3 else self.geometric
        return propose(law, state, chance, at)


@dataclass(frozen=True)
class FullMask:
    """Draw from p^power among all tokens that are allowed, with their whole mass Σ p^power as the weight.

    With a power the wanted texts are those of p(text)^power, a temperature of whole texts instead of tokens; this is
    the proposal with the least varying weights that looks at one token only (Power-SMC, 2602.10273).

    Cost: a mask over the vocabulary.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        expect(0 < self.power < math.inf, "power", self.power, "a finite number above 0; 1 is the law itself")

    def __call__(self, law: Law, state: State | None, chance: Chance, at: At) -> Weighed:
        sharp = law if self.power == 1 else Law(law.scores * self.power)
        some = sharp if state is None else sharp.only(state.mask().to(sharp.scores.device))
        if some.is_empty():
            return Weighed(None, 0.0, 1)
        weight = math.exp(some.log_z - self.power * law.log_z) if some is not law else 1.0
        return Weighed(some.draw(chance, at).token, weight, 1)


@claims(LAW, trials=lambda rule: [rule()], paper="2504.05410", systems=("AWRS (one token, unweighted)",))
@dataclass(frozen=True)
class Awrs:
    """Draw tokens without replacement until the request's constraint allows one: local masking without the mask.

    For constraints that are slow to ask, such as a predicate in Python: a token costs a few checks instead of one per
    token of the vocabulary. The law is that of local masking; what it leaves unweighed, `smc` with `Recursive` weighs.
    The mask is made only for who looks at the law that is reported with a token.

    Truncations see what the constraint leaves, as in plain decoding. At temperature 0, with top_k and with min_p the
    tokens are asked for from the best on until enough are allowed. All others (top_p, typical, epsilon, eta,
    top_n_sigma) would have to know the mass of all that is allowed; they are refused beside a constraint.

    Claim: LAW: that of plain decoding under the same settings, for any temperature, penalties, biases and prohibitions,
    top_k and min_p. With the same seed the texts are the same without a constraint, at temperature 0, with top_k and
    with min_p.
    Cost: one forward and, on the average, 1/(allowed mass) checks per token or fewer; with top_k at least k of them.
    Whoever has been refused 512 times in one place is told the whole mask.
    """

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail = stop.start()
        found = order(warp)
        ranks = Ranks.of(found.after)
        state = None if found.constraint is None else found.constraint.start()
        prefix = Prefix.of(text, found.free, stop.left(tail))
        while True:
            scores: Scores = yield Score()
            token, law = drawn(prefix.shape(scores.leaf[0]), state, ranks, chance, At(len(prefix), Role.PICK))
            kept, reason, tail, trim = stop.cut(tail, (token,))
            yield Emit(kept, [scores.leaf[0]], [law] if state is None or ranks else Laws(masked(law, state), [ROOT]))
            prefix = prefix.then(kept)
            state = None if state is None else state.step(token)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)
            yield Keep(NOTHING, (ROOT,), (token,))
