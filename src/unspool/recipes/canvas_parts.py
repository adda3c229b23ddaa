"""Compositions of what fills canvases: which holes, where, by which looks, what is checked and what is taken back.

    factor + cached_dual                   Fast-dLLM: which holes + how they are looked at
    confident:threshold=0.8 + credited     a threshold over credit for earlier looks
    filtered:file=FILE + foreseen          Learn2PD: a filter on a canvas that shrinks to the end of the text
    adaptive + cached_prefix               AdaBlock over a cache

Every part gives what its name stands for; what no part stands for is that of the first that has it, which is mostly
`confident`. `block` and `size` may stand in any one part, and count for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from ..core.claim import Entry
from ..core.errors import BadRequest, cut
from ..core.option import options
from ..loops.denoise import Denoise
from ..loops.unmasker import CachedView, FixedBlocks
from ..rules.unmask.credited import Credited
from ..rules.unmask.early import Early
from .names import Part

ROLES = {
    "unmask": "which holes are filled",
    "blocks": "where is looked",
    "view": "how is looked",
    "remask": "what is taken back",
    "check": "what is checked",
}
# What a name stands for, where that is not the choice of holes.
STANDS_FOR: dict[str, tuple[str, ...]] = {
    "adaptive": ("blocks",),
    "cached_dual": ("view",),
    "cached_prefix": ("view",),
    "checked": ("check",),
    "context": ("view",),
    "credited": ("view",),
    "cycle": ("blocks",),
    "delayed": ("view",),
    "edit": ("remask",),
    "foreseen": ("blocks",),
    "guided": ("view",),
    "interval": ("view",),
    "renoise": ("unmask", "view", "remask"),
    "resample": ("remask",),
    "sliding": ("blocks",),
    "softened": ("view",),
    "windowed": ("view",),
}
# Options of names that do not stand for the choice of holes, but say something of it all the same.
CHOOSING = frozenset({"threshold", "certainty", "entropy", "slope", "randomness", "settle", "steps"})
SHARED = ("block", "size")


class CanvasPart(NamedTuple):
    """One part of a composition: its name, what it was made into, and the options that were written."""

    name: str
    made: Denoise
    given: Mapping[str, str]

    @property
    def roles(self) -> tuple[str, ...]:
        """What it decides: what its name stands for, and what one of its options says besides."""
        named = STANDS_FOR.get(self.name, ("unmask",))
        if self.name == "quota" and self.given.get("ends") == "never":
            named = (*named, "view")
        if self.name == "explore" and self.made.check is not None:
            named = (*named, "check")
        chooses = "unmask" not in named and self.name != "renoise" and CHOOSING & self.given.keys()
        return (*named, "unmask") if chooses else named


def expect_denoise(found: Any, spec: str) -> Denoise:
    """BadRequest if a part of one's own is no `Denoise`, whose parts could be joined with others."""
    if not isinstance(found, Denoise):
        kind = type(found).__name__
        raise BadRequest(f"{cut(spec)!r} cannot be used: a part is a {kind}; expected a Denoise, as in Denoise(rule)")
    return found


class ChosenPart(Protocol):
    """A part of a spec, and the rule that it names, if it is none of one's own."""

    @property
    def part(self) -> Part:
        """As it was written."""

    @property
    def entry(self) -> Entry | None:
        """The rule."""

    @property
    def build(self) -> Callable[..., Any]:
        """What makes it."""


def composed(spec: str, chosen: Sequence[ChosenPart], make: Callable[[Any, Mapping[str, str]], Any]) -> Denoise:
    """Parts that fill a canvas, as one; those that have blocks, and a canvas of a size, all have the same.

    `make` makes a part with options besides those that are written in it.
    """
    shared = shared_options(spec, [each.part.given for each in chosen])
    declared = [{} if each.entry is None else options(each.build) for each in chosen]
    parts: dict[int, CanvasPart] = {}
    for n in sorted(range(len(chosen)), key=lambda n: "block" in declared[n]):  # first those with blocks of their own
        each = chosen[n]
        made = make(each, {name: text for name, text in shared.items() if name in declared[n]})
        name = each.part.said if each.entry is None else each.entry.name
        parts[n] = CanvasPart(name, expect_denoise(made, spec), each.part.given)
        if "block" not in declared[n] and isinstance(made.blocks, FixedBlocks):
            shared.setdefault("block", str(made.blocks.size))
    return joined(spec, [parts[n] for n in range(len(chosen))])


def shared_options(spec: str, given: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The size of blocks and of the canvas, whichever part says it; BadRequest if two do."""
    found: dict[str, str] = {}
    for option in SHARED:
        said = [each[option] for each in given if option in each]
        if len(said) > 1:
            raise BadRequest(f"{cut(spec)!r} says {option} {len(said)} times; it counts for all parts, so say it once")
        if said:
            found[option] = said[0]
    return found


def joined(spec: str, parts: Sequence[CanvasPart]) -> Denoise:
    """All parts as one method; BadRequest if two of them decide the same.

    Two may that go together: `early` ends what another rule fills, and credit is given to what a cache lets see.
    """
    ending = next((part for part in parts if part.name == "early"), None)
    credit = next((part for part in parts if part.name == "credited"), None)
    cache = next((part for part in parts if isinstance(part.made.view, CachedView)), None)
    givers: dict[str, CanvasPart] = {}
    for part in parts:
        for role in part.roles:
            other = givers.get(role, part)
            over = role == "view" and {id(part), id(other)} == {id(credit), id(cache)}
            around = role == "unmask" and (part is ending or other is ending) and part.name != other.name
            if other is not part and not over and not around:
                raise BadRequest(
                    f"{cut(spec)!r} cannot be used: {other.name} and {part.name} both say {ROLES[role]}; leave one of "
                    "them, or the option that says it, out"
                )
            if other is part or other is ending:
                givers[role] = part
    first = parts[0] if ending is None else ending
    size = max(part.made.size for part in parts)
    made = replace(first.made, size=size, **{role: getattr(part.made, role) for role, part in givers.items()})
    if ending is not None and isinstance(own := ending.made.unmask, Early) and givers["unmask"] is not ending:
        made = replace(made, unmask=replace(own, rule=made.unmask))
    if credit is not None and cache is not None and isinstance(view := credit.made.view, Credited):
        made = replace(made, view=replace(view, view=cache.made.view))
    return made
