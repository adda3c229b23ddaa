"""Different tokens to stand side by side in a tree: drawn, or chosen where the request leaves nothing to draw."""

from __future__ import annotations

from ...core.chance import At, Chance
from ...core.law import Drawn, Law, Point, chosen
from ...core.warp.warp import Prefix
from ...loops.drafter import possible


def is_greedy(law: Law) -> bool:
    """Whether this is the law of greedy decoding: one token, by temperature 0 and not because others are barred."""
    return isinstance(law, Point)


def siblings(prefix: Prefix, raw: Law, count: int, chance: Chance, first: At) -> list[Drawn]:
    """At most `count` different tokens to follow a prefix, given a draft model's law there.

    They are drawn without replacement, each from the law without its elder siblings, at address `first` and the
    following. Under greedy decoding one token would be left: then they are the draft's most probable ones, chosen, so
    that their laws are point masses and any exact rule stays exact.
    """
    law = possible(prefix, raw)
    if law is None or count < 1:
        return []
    if is_greedy(law):
        return [chosen(x) for x in likeliest_of(prefix, raw, count)]
    found: list[Drawn] = []
    while len(found) < count and not law.is_empty():
        found.append(law.draw(chance, first._replace(k=first.k + len(found))))
        law = law.without(found[-1].token)
    return found


def likeliest_of(prefix: Prefix, raw: Law, count: int) -> list[int]:
    """The most probable tokens before a temperature of 0 leaves one, most probable first."""
    law = prefix.soften(raw)
    return [x for x in law.top(min(count, law.size)) if law[x] > 0]
