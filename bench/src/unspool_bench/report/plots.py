"""Plots: figures over figures, with axes, as SVG whose colours follow the page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .markup import Attributes, Html, tag

WIDE, HIGH = 520, 280  # the plot
LEFT, TOP, RIGHT, UNDER = 56, 14, 20, 44  # around it
NEAR = 13.0  # marks closer together share one place


class PlotMark(NamedTuple):
    """A contender at its place; its number is that of the table beside. Whiskers are the ends of intervals."""

    number: int
    name: str
    x: float
    y: float
    tip: str
    kind: str = "dot"
    across: tuple[float, float] | None = None
    along: tuple[float, float] | None = None


@dataclass(frozen=True)
class Scale:
    """From figures to points; doublings are equally far apart where it is `Doubling`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The point of a figure; what lies outside is put on the edge."""
        share = (self.measure(value) - self.measure(self.low)) / (self.measure(self.high) - self.measure(self.low))
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def measure(self, value: float) -> float:
        """What is laid off."""
        return value


class Doubling(Scale):
    """A scale of ratios."""

    def measure(self, value: float) -> float:
        """Doublings."""
        return math.log2(max(value, 1e-9))


@dataclass(frozen=True)
class Axis:
    """A scale with its name and the figures written beside it."""

    name: str
    scale: Scale
    ticks: Sequence[tuple[float, str]]


def across(name: str, low: float, high: float, ticks: Sequence[tuple[float, str]], kind: type[Scale] = Scale) -> Axis:
    """An axis from left to right."""
    return Axis(name, kind(low, high, LEFT, LEFT + WIDE), ticks)


def upward(name: str, low: float, high: float, ticks: Sequence[tuple[float, str]], kind: type[Scale] = Scale) -> Axis:
    """An axis from below."""
    return Axis(name, kind(low, high, TOP + HIGH, TOP), ticks)


def plot(title: str, said: str, x: Axis, y: Axis, inside: Sequence[Html], name: str) -> Html:
    """A picture: axes, then what is drawn in them; `said` is the picture in words, `name` its id."""
    parts = [tag("rect", {"class": "plot", "x": LEFT, "y": TOP, "width": WIDE, "height": HIGH})]
    for value, label in x.ticks:
        at = x.scale(value)
        parts.append(tag("path", {"class": "grid", "d": f"M{at:.1f} {TOP}v{HIGH}"}))
        parts.append(_text(at, TOP + HIGH + 16, label, "faint", "middle"))
    for value, label in y.ticks:
        at = y.scale(value)
        parts.append(tag("path", {"class": "grid", "d": f"M{LEFT} {at:.1f}h{WIDE}"}))
        parts.append(_text(LEFT - 8, at + 4, label, "faint", "end"))
    parts.append(_text(LEFT + WIDE / 2, TOP + HIGH + 36, x.name, "", "middle"))
    turned = {"transform": f"translate(14 {TOP + HIGH / 2:g}) rotate(-90)", "text-anchor": "middle"}
    parts.append(tag("text", turned, y.name))
    width, height = LEFT + WIDE + RIGHT, TOP + HIGH + UNDER
    about: Attributes = {
        "class": "chart", "viewBox": f"0 0 {width} {height}", "width": width, "height": height,
        "role": "img", "aria-labelledby": f"{name}-picture {name}-words",
    }  # fmt: skip
    words = [tag("title", {"id": f"{name}-picture"}, title), tag("desc", {"id": f"{name}-words"}, said)]
    picture = tag("svg", about, *words, *parts, *inside)
    return tag("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": title}, picture)


def line(points: Sequence[tuple[float, float]], x: Axis, y: Axis, kind: str, tip: str) -> Html:
    """Points joined."""
    path = "M" + "L".join(f"{x.scale(a):.1f} {y.scale(b):.1f}" for a, b in points)
    return tag("path", {"class": kind, "d": path}, tag("title", {}, tip))


def marks(given: Sequence[PlotMark], x: Axis, y: Axis) -> Iterator[Html]:
    """Whiskers, dots and their numbers; dots that lie together share one label."""
    for each in given:
        here, there = x.scale(each.x), y.scale(each.y)
        if each.across is not None:
            low, high = map(x.scale, each.across)
            yield tag("path", {"class": "whisker", "d": f"M{low:.1f} {there:.1f}H{high:.1f}"})
        if each.along is not None:
            low, high = map(y.scale, each.along)
            yield tag("path", {"class": "whisker", "d": f"M{here:.1f} {low:.1f}V{high:.1f}"})
    for together in _together(given, x, y):
        for each in together:
            about: Attributes = {"class": each.kind, "cx": x.scale(each.x), "cy": y.scale(each.y), "r": 4.5}
            yield tag("circle", about, tag("title", {}, f"{each.name}: {each.tip}"))
        right = max(x.scale(each.x) for each in together)
        label = ", ".join(str(each.number) for each in together)
        top, wide = min(y.scale(each.y) for each in together), 7.5 * len(label)
        fits = right + 8 + wide < LEFT + WIDE
        at = right + 8 if fits else min(x.scale(each.x) for each in together) - 8
        yield _text(at, max(TOP + 12, top - 5), label, "label", "start" if fits else "end")


def _together(given: Sequence[PlotMark], x: Axis, y: Axis) -> list[list[PlotMark]]:
    groups: list[list[PlotMark]] = []
    for each in given:
        here, there = x.scale(each.x), y.scale(each.y)
        near = (g for g in groups if any(math.hypot(x.scale(o.x) - here, y.scale(o.y) - there) < NEAR for o in g))
        group = next(near, None)
        if group is None:
            groups.append([each])
        else:
            group.append(each)
    return groups


def _text(x: float, y: float, words: str, kind: str, anchor: str) -> Html:
    return tag("text", {"x": x, "y": y, "class": kind or None, "text-anchor": anchor}, words)
