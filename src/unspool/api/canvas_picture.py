"""The picture of a canvas: which place was filled at which look, how sure the model was, and in which blocks."""

from __future__ import annotations

from collections.abc import Callable

from .filling import Filling, Place
from .picture import LETTER, PAD, ROW, label, safe, shown, square, tip

TOP = 122
CLASSES = ((0.9, "sure"), (0.5, "fair"), (0.0, "bold"))  # by the model's own probability of the token
UNKNOWN = "given"  # of a token whose probability was not asked for
FAINT = 0.02  # guesses below this are not drawn

STYLE = """
.ground { fill: #ffffff; stroke: #d4d9e0 } .border { stroke: #98a2b0; stroke-dasharray: 4 3 }
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2630 }
.head { font-size: 15px; font-weight: 600 } .faint { fill: #667080 }
.sure { fill: #3d1f8f } .fair { fill: #8a63d2 } .bold { fill: #e08a1e } .given { fill: #98a2b0 }
.guess { fill: #8a63d2 } .back { fill: none; stroke: #c0392b; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
.ground { fill: #171b21; stroke: #333b46 } .border { stroke: #66707e }
text { fill: #dde3ea } .faint { fill: #93a0b0 }
.sure { fill: #c9b3ff } .fair { fill: #8a63d2 } .bold { fill: #f0a64a } .given { fill: #66707e }
.guess { fill: #8a63d2 } .back { stroke: #ff7b6b }
}
"""
LEGEND = (
    ("sure", "filled at p ≥ 0.9"),
    ("fair", "0.5 to 0.9"),
    ("bold", "below 0.5"),
    ("guess", "looked at: larger is surer"),
    ("back", "taken back"),
    ("border", "end of a block"),
)
LEGEND_WIDTH = sum(18 + len(words) * LETTER + 22 for _, words in LEGEND)


def canvas_picture(filling: Filling, name: Callable[[int], str], title: str) -> str:
    """An SVG with a row per place and a column per look; `name` spells a token."""
    labels = [shown(name(place.token)) for place in filling.places]
    looks, count = len(filling.lines), len(filling.places)
    wide = 18 if looks <= 64 else 10  # of a column
    numbers = len(str(count)) * LETTER + 10
    left = PAD + numbers + max(map(len, labels), default=0) * LETTER + 12
    width = max(left + looks * wide + PAD, 2 * PAD + LEGEND_WIDTH, 2 * PAD + len(title) * 9)
    height = TOP + count * ROW + PAD

    def column(number: int) -> float:
        return left + (number - 1) * wide

    parts: list[str] = []
    step = 1 if wide > 10 and looks < 10 else 5
    for number in sorted({1, *range(step, looks + 1, step)}):
        parts.append(label(column(number) + wide / 2, TOP - 8, str(number), "faint", "middle"))
    for edge in sorted({high for _, high in filling.windows if 0 < high < count}):
        y = TOP + edge * ROW
        parts.append(f'<line class="border" x1="{PAD / 2:g}" x2="{width - PAD / 2:.0f}" y1="{y}" y2="{y}"/>')
    for row, (place, spelt) in enumerate(zip(filling.places, labels, strict=True)):
        y = TOP + row * ROW
        parts.append(label(PAD + numbers - 10, y + 13, str(row + 1), "faint", "end"))
        parts.append(label(PAD + numbers, y + 13, spelt))
        parts.append(_marks(place, name, column, wide, y + ROW / 2))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="trace-title trace-desc">\n'
        f'<title id="trace-title">{safe(title)}</title>\n<desc id="trace-desc">{safe(str(filling))} '
        "One row per place, one column per look.</desc>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>\n'
        f"{label(PAD, 30, title, 'head')}{label(PAD, 50, str(filling), 'faint')}{_legend()}\n"
        f"{label(left - 8, TOP - 8, 'look', 'faint', 'end')}\n" + "\n".join(parts) + "\n</svg>\n"
    )


def kind_of(p: float | None) -> str:
    """How bold it was to fill a place with a token of this probability."""
    return UNKNOWN if p is None else next(kind for least, kind in CLASSES if p >= least)


def _marks(place: Place, name: Callable[[int], str], column: Callable[[int], float], wide: int, middle: float) -> str:
    """What became of a place, look by look."""
    marks, size = [], wide - 4
    for number, p in place.sure.items():
        if number not in (place.look, *place.before) and p > FAINT:
            told = f"look {number}: the best guess had {p:.2f}"
            marks.append(_dot("guess", column(number) + wide / 2, middle, p**0.5 * size / 4, told))
    for number, token in place.before.items():
        told = f"look {number}: {shown(name(token))}, taken back later"
        marks.append(_dot("back", column(number) + wide / 2, middle, size / 2 - 1, told))
    if place.look:
        odds = "" if place.p is None else f", p = {place.p:.2f}"
        told = f"{shown(name(place.token))}: filled at look {place.look}{odds}"
        marks.append(square(kind_of(place.p), column(place.look) + 2, middle, size, size, told))
    return "".join(marks)


def _dot(kind: str, x: float, y: float, radius: float, told: str = "") -> str:
    return f'<circle class="{kind}" cx="{x:g}" cy="{y:g}" r="{radius:.2f}">{tip(told) if told else ""}</circle>'


def _legend() -> str:
    parts, x, y = [], float(PAD), 72
    for kind, words in LEGEND:
        if kind == "border":
            parts.append(f'<line class="border" x1="{x:g}" x2="{x + 14:g}" y1="{y}" y2="{y}"/>')
        elif kind in ("guess", "back"):
            parts.append(_dot(kind, x + 6, y, 3.5 if kind == "guess" else 5))
        else:
            parts.append(square(kind, x, y, 12, 12))
        parts.append(label(x + 18, y + 4, words))
        x += 18 + len(words) * LETTER + 22
    return "".join(parts)
