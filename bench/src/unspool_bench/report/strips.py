"""Strips and steps: small pictures without axes, one per contender."""

from __future__ import annotations

from collections.abc import Mapping

from .markup import Attributes, Html, tag
from .spent import PARTS, Spent

WIDE, HIGH = 176, 74  # of a histogram's bars
LAST = 10  # accepted tokens from which on rounds share one bar


def strip(spent: Spent, most: float) -> Html:
    """A bar as long as a token took, in the colours of what it was spent on; `most` fills the width."""
    if spent.parts is None:
        said = f"{1e3 * spent.whole:.2f} ms per token, not split"
        return _bar([("whole", 100 * spent.whole / most, said)], said)
    pieces = [
        (part, 100 * seconds / most, f"{part}: {1e3 * seconds:.2f} ms per token, {seconds / spent.whole:.0%}")
        for part, seconds in spent.parts.items()
    ]
    return _bar(pieces, "; ".join(said for *_, said in pieces))


def _bar(pieces: list[tuple[str, float, str]], said: str) -> Html:
    drawn, x = [], 0.0
    for part, wide, tip in pieces:
        place: Attributes = {"class": f"part {part}", "x": x, "y": 0, "width": wide, "height": 10}
        drawn.append(tag("rect", place, tag("title", {}, tip)))
        x += wide
    box: Attributes = {"class": "strip", "viewBox": "0 0 100 10", "preserveAspectRatio": "none"}
    return tag("svg", {**box, "role": "img", "aria-label": said}, *drawn)


def key() -> Html:
    """What the colours of strips mean."""
    entries = [
        tag("li", {}, _square(part), f"{part}: {tip}") for part, tip in {**PARTS, "whole": "no trace to split"}.items()
    ]
    return tag("ul", {"class": "key"}, *entries)


def _square(part: str) -> Html:
    square = tag("rect", {"class": f"part {part}", "width": 10, "height": 10})
    return tag("svg", {"class": "square", "viewBox": "0 0 10 10", "aria-hidden": "true"}, square)


def histograms(found: Mapping[str, Mapping[int, int]]) -> Html:
    """Per contender the share of rounds in which 0, 1, 2 … drafted tokens stood; all on one scale."""
    shares = {name: _shares(counted) for name, counted in found.items()}
    slots = max(8, *map(len, shares.values()))
    most = max(max(own) for own in shares.values())
    return tag(
        "div", {"class": "smalls"}, *(_histogram(name, found[name], shares[name], slots, most) for name in found)
    )


def _shares(counted: Mapping[int, int]) -> list[float]:
    deepest = min(LAST, max(counted))
    return [sum(n for k, n in counted.items() if min(k, LAST) == i) / sum(counted.values()) for i in range(deepest + 1)]


def _histogram(name: str, counted: Mapping[int, int], shares: list[float], slots: int, most: float) -> Html:
    rounds, step, parts = sum(counted.values()), WIDE / slots, []
    named = [f"{i}{'+' if i == LAST else ''}" for i in range(len(shares))]
    for i, (label, share) in enumerate(zip(named, shares, strict=True)):
        x, tall = i * step, HIGH * share / most
        tip = tag("title", {}, f"{label} accepted: {share:.1%} of {rounds} rounds")
        place: Attributes = {"class": "stood", "x": x + 1, "y": 14 + HIGH - tall, "width": step - 2, "height": tall}
        parts.append(tag("rect", place, tip))
        middle: Attributes = {"x": x + step / 2, "text-anchor": "middle"}
        if share >= 0.005:
            parts.append(tag("text", {**middle, "y": 10 + HIGH - tall, "class": "tiny"}, f"{100 * share:.0f}"))
        parts.append(tag("text", {**middle, "y": HIGH + 26, "class": "tiny faint"}, label))
    parts.append(tag("path", {"class": "axis", "d": f"M0 {HIGH + 14.5}h{WIDE}"}))
    told = ", ".join(f"{label} in {share:.0%}" for label, share in zip(named, shares, strict=True))
    said = [tag("title", {}, f"Accepted tokens per round, {name}"), tag("desc", {}, f"Of {rounds} rounds: {told}.")]
    box: Attributes = {"viewBox": f"0 0 {WIDE} {HIGH + 30}", "width": WIDE, "height": HIGH + 30, "role": "img"}
    mean = sum(k * n for k, n in counted.items()) / rounds
    legend = tag("figcaption", {}, tag("code", {}, name), tag("small", {}, f"{rounds} rounds, mean {mean:.2f}"))
    return tag("figure", {"class": "small"}, legend, tag("svg", box, *said, *parts))
