"""What verifiers declare of themselves, so that loops and runtimes need to know none by name; and the default one."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

from .asks import Verdict, Verify
from .chance import Chance, Role
from .tree import ROOT
from .warp.warp import Scored

V = TypeVar("V")

_by_token: list[Any] = []  # rules: functions, and classes whose instances are rules
_kernels: list[tuple[Any, Kernel]] = []


class Kernel(Enum):
    """A verification that a device can do by itself; a rule that decides alike may declare it."""

    GREEDY = "follow the most probable token down the tree"
    SAMPLE_MATCH = "draw with plain decoding's own noise, and follow what was drawn down the tree"
    REJECTION = "accept x ~ q with probability min(1, p(x)/q(x)), else draw from the residual"


@runtime_checkable
class Bounded(Protocol):
    """A rule that says how far its texts may be from the law they should have."""

    def gap(self, tokens: int) -> float:
        """In total variation, for texts of so many tokens."""


def states_wanted(verify: Verify) -> tuple[str, ...]:
    """The hidden states of the target at drafted tokens that a rule looks at: what its `want` names, as for `Score`.

    They are in `Scored.hidden`. Most rules are functions and want none.
    """
    want: tuple[str, ...] = getattr(verify, "want", ())
    return want


def token_by_token(rule: V) -> V:
    """Declare that a rule decides on every drafted token before it looks at what was drafted below it.

    Then a token below one that was refused has influenced nothing, and its random number may serve again in the next
    round, as drafters that use plain decoding's numbers have it.
    """
    _by_token.append(rule)
    return rule


def decides_token_by_token(verify: Verify) -> bool:
    """Whether this rule, or its class, was declared so."""
    return any(verify is rule or (isinstance(rule, type) and isinstance(verify, rule)) for rule in _by_token)


def on_device(kernel: Kernel) -> Callable[[V], V]:
    """Declare that a kernel decides as this rule does, so that a runtime may let its device verify."""

    def declare(rule: V) -> V:
        _kernels.append((rule, kernel))
        return rule

    return declare


def kernel_of(verify: Verify) -> Kernel | None:
    """The kernel that decides as this rule does, if one was declared."""
    return next((kernel for rule, kernel in _kernels if rule is verify), None)


@on_device(Kernel.SAMPLE_MATCH)
@token_by_token
def sample_match(scored: Scored, chance: Chance) -> Verdict:
    """Draw y ~ P at each node from plain decoding's own noise; if y was drafted go there, else stop with y.

    Pr(accept x) = P(x), which is optimal for any deterministic tree: E[accepted] = Σ over nodes of P(path).

    Claim: SEED. The text is the one plain decoding gives for this seed, whatever was drafted.
    Cost: one draw per accepted token and one more.
    """
    node = ROOT
    while True:
        token = scored.law(node).draw(chance, scored.at(Role.PICK, node)).token
        kid = scored.tree.child(node, token)
        if kid is None:
            return Verdict(node, token)
        node = kid
