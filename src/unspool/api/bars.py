"""Bars: one figure for each of some methods, with its interval where there is one, as SVG for pages and papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .picture import LETTER, PAD, label, safe, tip

ROW, WIDE, TOP = 26, 420, 78
STYLE = """
.ground { fill: #ffffff } text { font: 12px system-ui, "DejaVu Sans", Helvetica, Arial, sans-serif; fill: #1f2630 }
.head { font-size: 15px; font-weight: 600 } .faint { fill: #667080 } .axis { stroke: #d4d9e0 } .one { stroke: #98a2b0 }
.bar { fill: #1f6fd1 } .slow { fill: #d9730d } .whisker { stroke: #1f2630 }
@media (prefers-color-scheme: dark) {
.ground { fill: #171b21 } text { fill: #dde3ea } .faint { fill: #93a0b0 } .axis { stroke: #333b46 }
.one { stroke: #66707e } .bar { fill: #5aa2f5 } .slow { fill: #f0964a } .whisker { stroke: #dde3ea }
}
"""


class Bar(NamedTuple):
    """A method's figure, the ends of its interval, and what else is told of it."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    told: str = ""


def bars(found: Sequence[Bar], title: str, what: str) -> str:
    """An SVG with a bar for each, from 0; those below 1, which plain decoding has, are of another colour."""
    left = PAD + max((len(bar.name) for bar in found), default=0) * LETTER + 10
    most = max([1.0, *(bar.high or bar.value for bar in found)]) * 1.05
    told = max((len(bar.told) for bar in found), default=0) * LETTER
    width = max(left + WIDE + 60 + told + PAD, 2 * PAD + len(title) * 9)
    height = TOP + len(found) * ROW + PAD

    def at(value: float) -> float:
        return left + value / most * WIDE

    step = next(step for step in (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100, 1e9) if most / step <= 8)
    parts = []
    for n in range(int(most / step) + 1):
        kind, x = "one" if n * step == 1 else "axis", at(n * step)
        parts.append(f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - PAD + 4}"/>')
        parts.append(label(x, TOP - 12, f"{n * step:g}", "faint", "middle"))
    for row, bar in enumerate(found):
        y = TOP + row * ROW + ROW / 2
        parts.append(label(left - 8, y + 4, bar.name, "", "end"))
        said = f"{bar.name}: {bar.value:.2f} {what}"
        place = f'x="{left:.1f}" y="{y - 8:.1f}" width="{max(0.0, at(bar.value) - left):.1f}" height="16"'
        parts.append(f'<rect class="{"slow" if bar.value < 1 else "bar"}" {place} rx="2">{tip(said)}</rect>')
        if bar.low is not None and bar.high is not None:
            span = f'x1="{at(bar.low):.1f}" x2="{at(bar.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"'
            parts.append(f'<line class="whisker" {span}/>')
        beyond = at(max(bar.value, bar.high or 0.0)) + 8
        parts.append(label(beyond, y + 4, f"{bar.value:.2f}  {bar.told}".rstrip()))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">\n<title>{safe(title)}</title>\n<style>{STYLE}</style>\n'
        f'<rect class="ground" width="{width:.0f}" height="{height:.0f}"/>\n{label(PAD, 28, title, "head")}'
        f"{label(PAD, 46, what, 'faint')}\n" + "\n".join(parts) + "\n</svg>\n"
    )
