"""The picture of `unspool bench denoise`: how much faster a method fills, and what the text loses by it.

A panel per set of prompts. To the right: tokens per forward. Up: nats per token under the base model, against one hole
per look (the first method of the file). Blue methods check themselves by reading left to right, orange ones fill and
never read. Of either kind, the line joins those that no other beats in both; the fastest of them is named, and the
fastest that loses at most 0.05 nats. Hover tells the rest, and the head of the picture what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

TITLES = {"chat": "open chat", "plain": "copies, lists, records"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 250, 62, 104, 60
LETTER = 6.6  # of a label, about, in pixels
READS = ("plain", "masks", "denoised", "merge")
STYLE = """
svg { font: 12px system-ui, sans-serif; } text { fill: #24292f; } .soft { fill: #6e7781; } .axis { stroke: #d0d7de; }
.reads { fill: #0969da; } .fills { fill: #bc4c00; } .edge { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
.ground { fill: #ffffff; } .head { font-size: 15px; font-weight: 600; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .soft { fill: #9198a1; } .axis { stroke: #3d444d; }
.reads { fill: #4493f8; } .fills { fill: #f0883e; } .edge { stroke: #6e7681; } .ground { fill: #171b21; } }
"""


def panel(title: str, rows: Mapping[str, Mapping[str, float]], x0: float) -> str:
    """One set of prompts, its left edge at x0."""
    first = next(iter(rows.values()))["nats"]
    points = {name: (row["tokens_per_forward"], row["nats"] - first) for name, row in rows.items()}
    right = max(2.0, *(math.ceil(x) for x, _ in points.values()))
    low, high = min(y for _, y in points.values()) - 0.05, max(y for _, y in points.values()) + 0.08

    def at(x: float, y: float) -> tuple[float, float]:
        return x0 + (x - 0.8) / (right - 0.8) * WIDTH, TOP + (high - y) / (high - low) * HEIGHT

    parts = [f'<text x="{x0}" y="{TOP - 16}" font-weight="600">{escape(title)}</text>']
    for mark in range(1, int(right) + 1):
        a, b = at(mark, low), at(mark, high)
        parts.append(f'<line class="axis" x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"/>')
        parts.append(f'<text class="soft" x="{a[0]:.1f}" y="{a[1] + 16:.1f}" text-anchor="middle">{mark}</text>')
    zero = at(0.8, 0.0)
    parts.append(f'<line class="axis" x1="{x0}" y1="{zero[1]:.1f}" x2="{x0 + WIDTH}" y2="{zero[1]:.1f}"/>')
    for level in (low + 0.05, 0.0, high - 0.08):
        beside = f'x="{x0 - 8}" y="{at(1, level)[1] + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="soft" {beside}>{level:+.2f}</text>')
    for kind, names in _kinds(points).items():
        own = {name: points[name] for name in names}
        best = [
            n for n, (x, y) in own.items() if not any(u >= x and v >= y and (u, v) != (x, y) for u, v in own.values())
        ]
        edge = sorted(at(*points[name]) for name in best)
        parts.append('<polyline class="edge" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in edge) + '"/>')
        for name, point in own.items():
            x, y = at(*point)
            tip = f"{name}: {point[0]:.2f} tokens per forward, {point[1]:+.3f} nats"
            dot = f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"><title>{escape(tip)}</title></circle>'
            parts.append(dot)
            if name in _named(own, best):
                parts.append(_label(x, y, "one hole per look" if name == next(iter(rows)) else name, x0, kind))
    below = TOP + HEIGHT + 34
    parts.append(f'<text class="soft" x="{x0 + WIDTH / 2}" y="{below}" text-anchor="middle">tokens per forward</text>')
    return "\n".join(parts)


def _label(x: float, y: float, name: str, x0: float, kind: str) -> str:
    """A method's name beside its dot: to the right where there is room, else to the left; of readers above it."""
    wide = LETTER * len(name)
    fits = x + 9 + wide <= x0 + WIDTH + GAP / 2
    at, end = (x + 9, "start") if fits else (x - 9, "end")
    up = -9 if kind == "reads" else 4
    return f'<text x="{at:.1f}" y="{y + up:.1f}" text-anchor="{end}">{escape(name)}</text>'


def _named(points: dict[str, tuple[float, float]], best: list[str]) -> set[str]:
    """Of the best the fastest of all, and the fastest of those that lose at most 0.05 nats."""
    near = [name for name in best if points[name][1] >= -0.05]
    return {max(some, key=lambda name: points[name][0]) for some in (best, near) if some}


def _kinds(points: dict[str, tuple[float, float]]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {"reads": [], "fills": []}
    for name in points:
        kinds["reads" if name.split(":")[0] in READS else "fills"].append(name)
    return kinds


def chart(methods: Mapping[str, Mapping[str, Mapping[str, float]]], model: str, base: str) -> str:
    """An SVG of what `unspool bench denoise` measured: by set of prompts, and by method."""
    width = LEFT + len(methods) * (WIDTH + GAP)
    panels = [
        panel(TITLES.get(kind, kind), rows, LEFT + i * (WIDTH + GAP)) for i, (kind, rows) in enumerate(methods.items())
    ]
    about = f"{model}: nats per token under {base}, against one hole per look"
    heads = [
        f'<text class="head" x="16" y="26">{escape(model)}: tokens per forward against likelihood</text>',
        f'<text class="soft" x="16" y="46">up: nats per token under {escape(base)}, more (+) or less (-) likely than '
        "filling one hole per look</text>",
        *_legend(16, 66),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + 50}" '
        f'viewBox="0 0 {width} {TOP + HEIGHT + 50}" role="img">\n'
        f"<title>{escape(about)}</title><style>{STYLE}</style>\n"
        f'<rect class="ground" width="{width}" height="{TOP + HEIGHT + 50}"/>\n'
        + "\n".join([*heads, *panels])
        + "\n</svg>\n"
    )


def _legend(x: float, y: float) -> list[str]:
    told = {
        "reads": "reads left to right to check itself",
        "fills": "fills and never reads",
        "": "none is better in both",
    }
    parts = []
    for kind, words in told.items():
        mark = f'<rect class="{kind}" x="{x:.1f}" y="{y - 9}" width="9" height="9" rx="4.5"/>'
        line = f'<line class="edge" x1="{x:.1f}" y1="{y - 4}" x2="{x + 16:.1f}" y2="{y - 4}"/>'
        far = 15 if kind else 22
        parts.append((mark if kind else line) + f'<text class="soft" x="{x + far:.1f}" y="{y}">{words}</text>')
        x += far + LETTER * len(words) + 16
    return parts
