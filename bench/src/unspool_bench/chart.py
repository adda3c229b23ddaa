"""The picture of the parallel benchmark: accuracy over tokens per forward, one panel per task."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from .closed import IDEAL
from .parallel import ParallelRow, best

COLUMNS, WIDE, HIGH = 3, 252, 150  # panels in a row, and the plot in each
LEFT, TOP, HEAD, UNDER = 56, 22, 18, 46  # around the plot; HEAD is above 100 %, for letters
PAD, LINE, LETTER = 20, 20, 7.3
NEAR = 9.0  # what lies closer together shares one dot

# Every colour stands on the picture's own ground, so that it can be read on any page.
STYLE = """
.ground { fill: #ffffff; stroke: #d4d9e0 } .plot { fill: #f7f9fb; stroke: #d4d9e0 } .grid { stroke: #e3e7ec }
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2630 }
.head { font-size: 15px; font-weight: 600 } .name { font-weight: 600 } .faint { fill: #667080 }
.closed { fill: none; stroke: #8b95a3; stroke-width: 2; stroke-dasharray: 5 4 }
.oracle { fill: none; stroke: #1f6fd1; stroke-width: 1.8 } text.oracle { fill: #1a5fb4; stroke: none }
.pupil { fill: #c7640a; stroke: none } text.pupil { fill: #b3560a }
.line { fill: none; stroke: #c7640a; stroke-width: 1.3; opacity: 0.7 }
@media (prefers-color-scheme: dark) {
.ground { fill: #171b21; stroke: #333b46 } .plot { fill: #1b2027; stroke: #333b46 } .grid { stroke: #2a313a }
text { fill: #dde3ea } .faint { fill: #93a0b0 } .closed { stroke: #7d8896 }
.oracle { stroke: #5aa2f5 } text.oracle { fill: #7ab5f8 } .pupil { fill: #f0964a } text.pupil { fill: #f0964a }
.line { stroke: #f0964a }
}
"""


class Dot(NamedTuple):
    """Methods of one model that came out at (nearly) the same point."""

    x: float
    y: float
    rows: list[ParallelRow]


def chart(rows: Sequence[ParallelRow], title: str) -> str:
    """An SVG with a panel per task: k per look as circles, every other method as a letter at its point."""
    tasks = list(dict.fromkeys(row.task for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows if row.k is None))
    letters = {name: chr(ord("A") + i % 26) for i, name in enumerate(methods)}
    panel_wide, panel_high = LEFT + WIDE + 20, TOP + HEAD + HIGH + UNDER
    width = 2 * PAD + min(COLUMNS, max(1, len(tasks))) * panel_wide
    keys, top = _legend(letters, width, {row.model for row in rows})
    height = top + math.ceil(len(tasks) / COLUMNS) * panel_high + PAD - 8
    panels = [
        _panel(
            [row for row in rows if row.task == task],
            letters,
            PAD + n % COLUMNS * panel_wide,
            top + n // COLUMNS * panel_high,
        )
        for n, task in enumerate(tasks)
    ]
    said = "Accuracy over tokens per forward, for " + ", ".join(tasks) + "."
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-labelledby="parallel-title parallel-desc">\n'
        f'<title id="parallel-title">{escape(title)}</title>\n<desc id="parallel-desc">{escape(said)}</desc>\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
        f"{_text(PAD, 30, title, 'head')}\n{keys}\n" + "\n".join(panels) + "\n</svg>\n"
    )


def _panel(rows: Sequence[ParallelRow], letters: dict[str, str], x0: float, y0: float) -> str:
    """One task: the ideal model as a dashed line, measured schedules as circles, methods as letters."""
    first = rows[0]
    left, top, most = x0 + LEFT, y0 + TOP, math.log2(max(2, first.places))

    def x(tokens: float) -> float:
        return left + 8 + (WIDE - 16) * math.log2(max(1.0, tokens)) / most

    def y(accuracy: float) -> float:
        return top + HEAD + HIGH * (1 - accuracy)

    parts = [_text(left, y0 + 14, f"{first.task}, n = {first.n}", "name")]
    parts.append(f'<rect class="plot" x="{left:g}" y="{top:g}" width="{WIDE}" height="{HIGH + HEAD}"/>')
    for share in (0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path class="grid" d="M{left:g} {y(share):g}h{WIDE}"/>')
    for share in (0.0, 0.5, 1.0):
        parts.append(_text(left - 8, y(share) + 4, f"{share:.0%}", "faint", "end"))
    for tokens in _ticks(first.places):
        parts.append(_text(x(tokens), y(0) + 16, str(tokens), "faint", "middle"))
    parts.append(_text(left + WIDE / 2, y(0) + 31, "tokens per forward", "faint", "middle"))
    parts += _schedules(first, [row for row in rows if row.k is not None], x, y)
    for model in ("oracle", "pupil"):
        others = [row for row in rows if row.k is None and row.model == model]
        parts += _named(_gathered(others, x, y), model, letters, left + WIDE / 2)
    return "".join(parts)


def _ticks(places: int) -> list[int]:
    doubled = [2**i for i in range(places.bit_length()) if 2**i <= places]
    return doubled if places == doubled[-1] else [*doubled, places]


def _schedules(
    first: ParallelRow, rows: Sequence[ParallelRow], x: Callable[[float], float], y: Callable[[float], float]
) -> Iterator[str]:
    """k per look: what an ideal model reaches, and what was measured."""
    if not rows:
        return
    measured = sorted({row.k for row in rows if row.k is not None})
    known = range(1, first.places + 1) if first.task in IDEAL else measured  # others take long to enumerate
    ideal = [(x(first.places / math.ceil(first.places / k)), y(best(first.task, first.n, k)[0])) for k in known]
    yield f'<path class="closed" d="{_line(ideal)}"/>'
    taught = [(x(row.tokens_per_forward), y(row.accuracy)) for row in rows if row.model == "pupil"]
    if len(taught) > 1:
        yield f'<path class="line" d="{_line(taught)}"/>'
    for row in rows:
        yield _circle(row.model, x(row.tokens_per_forward), y(row.accuracy), _tip(row))


def _line(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)


def _gathered(rows: Sequence[ParallelRow], x: Callable[[float], float], y: Callable[[float], float]) -> list[Dot]:
    """Rows by where they lie; what lies within NEAR of a dot goes to it."""
    dots: list[Dot] = []
    for row in rows:
        at, height = x(row.tokens_per_forward), y(row.accuracy)
        near = next((dot for dot in dots if math.hypot(dot.x - at, dot.y - height) < NEAR), None)
        if near is None:
            dots.append(Dot(at, height, [row]))
        else:
            near.rows.append(row)
    return dots


def _named(dots: Sequence[Dot], model: str, letters: dict[str, str], middle: float) -> Iterator[str]:
    """Each dot with the letters of its methods, the oracle's above it and the pupil's below."""
    for x, y, rows in dots:
        small = 2.4
        yield _circle(model, x, y, "", small)
        anchor = "start" if x < middle - WIDE / 3 else "end" if x > middle + WIDE / 3 else "middle"
        words = "".join(letters[row.method] for row in rows)
        tip = "".join(f"{_tip(row)}\n" for row in rows).rstrip()
        at = x - 4 if anchor == "start" else x + 4 if anchor == "end" else x
        yield _text(at, y + (-7 if model == "oracle" else 15), words, model, anchor, tip)


def _tip(row: ParallelRow) -> str:
    known = "" if row.ideal is None else f"; an ideal model {row.ideal:.4g}"
    error = "enumerated" if row.enumerated else f"± {row.error:.2f}"
    return f"{row.method}, {row.model}: {row.accuracy:.4g} ({error}) at {row.tokens_per_forward:.3g} per forward{known}"


def _legend(letters: dict[str, str], width: float, models: set[str]) -> tuple[str, int]:
    """What is what, in as many lines as it takes, and where the panels may begin."""
    entries: list[tuple[str, str]] = [('<path class="closed" d="M-9 0h22"/>', "ideal model, k per look")]
    shown = [model for model in ("oracle", "pupil") if model in models]
    entries += [(_circle(model, 2, 0), f"{model}, k per look") for model in shown]
    entries += [(_text(2, 4, letter, "name", "middle"), name) for name, letter in letters.items()]
    parts, x, line = [], float(PAD), 0
    for drawn, words in entries:
        wide = 34 + len(words) * LETTER
        if x + wide > width - PAD and x > PAD:
            x, line = float(PAD), line + 1
        y = 54 + line * LINE
        parts.append(f'<g transform="translate({x + 10:g} {y})">{drawn}</g>{_text(x + 28, y + 4, words)}')
        x += wide + 10
    return "".join(parts), 54 + line * LINE + 24


def _circle(model: str, x: float, y: float, tip: str = "", radius: float = 4.2) -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    size = radius if model == "oracle" else radius * 0.85  # so that one is seen around the other
    return f'<circle class="{model}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}">{title}</circle>'


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "", tip: str = "") -> str:
    look = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<text x="{x:g}" y="{y:g}"{look}>{escape(words)}{title}</text>'
