"""The picture of a text's origins: which token became certain in which round, and when it was first in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from .origin import Origin

ROW, TOP, PAD, LETTER = 18, 104, 20, 7.3
LONGEST = 22  # letters of a token that are shown

# Every colour stands on the picture's own ground, so that it can be read on any page.
STYLE = """
.ground { fill: #ffffff; stroke: #d4d9e0 } .band { fill: #f1f4f8 }
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #1f2630 }
.head { font-size: 15px; font-weight: 600 } .faint { fill: #667080 }
.drafted { fill: #1f6fd1 } .early { fill: #a9cbf3 } .added { fill: #d9730d } .wrong { fill: none; stroke: #98a2b0 }
@media (prefers-color-scheme: dark) {
.ground { fill: #171b21; stroke: #333b46 } .band { fill: #1f252d }
text { fill: #dde3ea } .faint { fill: #93a0b0 }
.drafted { fill: #5aa2f5 } .early { fill: #2b4f7c } .added { fill: #f0964a } .wrong { stroke: #66707e }
}
"""
LEGEND = (
    ("drafted", "drafted, and stood"),
    ("early", "guessed right, not certain yet"),
    ("added", "added by the target"),
    ("wrong", "guessed wrong"),
)

LEGEND_WIDTH = sum(18 + len(words) * LETTER + 22 for _, words in LEGEND)


def picture(origins: Sequence[Origin], name: Callable[[int], str], title: str) -> str:
    """An SVG with a row per token and a column per round; `name` spells a token."""
    labels = [shown(name(origin.token)) for origin in origins]
    rounds = max((origin.round for origin in origins), default=0)
    wide = 18 if rounds <= 64 else 10  # of a column
    numbers = len(str(len(origins))) * LETTER + 10
    left = PAD + numbers + max(map(len, labels), default=0) * LETTER + 12
    width = max(left + rounds * wide + PAD, 2 * PAD + LEGEND_WIDTH, 2 * PAD + len(title) * 9)
    height = TOP + len(origins) * ROW + PAD

    def column(number: int) -> float:
        return left + (number - 1) * wide

    parts = [_bands(origins, PAD / 2, width - PAD)]
    step = 1 if wide > 10 and rounds < 10 else 5
    for number in [1, *range(step, rounds + 1, step)] if step > 1 else range(1, rounds + 1):
        parts.append(label(column(number) + wide / 2, TOP - 8, str(number), "faint", "middle"))
    for row, (origin, spelt) in enumerate(zip(origins, labels, strict=True)):
        y = TOP + row * ROW
        parts.append(label(PAD + numbers - 10, y + 13, str(row + 1), "faint", "end"))
        parts.append(label(PAD + numbers, y + 13, spelt))
        parts.append(_marks(origin, name, column, wide, y))
    summary = said(origins)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-labelledby="trace-title trace-desc">\n'
        f'<title id="trace-title">{safe(title)}</title>\n<desc id="trace-desc">{safe(summary)} '
        "One row per token, one column per round.</desc>\n"
        f"<style>{STYLE}</style>\n"
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>\n'
        f"{label(PAD, 30, title, 'head')}{label(PAD, 50, summary, 'faint')}{_legend()}\n"
        f"{label(left - 8, TOP - 8, 'round', 'faint', 'end')}\n" + "\n".join(parts) + "\n</svg>\n"
    )


def said(origins: Sequence[Origin]) -> str:
    """The picture in one sentence."""
    rounds = len({origin.round for origin in origins})
    drafted = sum(origin.drafted for origin in origins)
    early = sum(origin.stood is not None and origin.stood < origin.round for origin in origins)
    ahead = f"; {early} stood a round or more before they were certain" if early else ""
    return f"{len(origins)} tokens in {rounds} rounds, {drafted} of them drafted{ahead}."


def shown(text: str) -> str:
    """A token's text on one short line: blanks and line ends are seen, and nothing that XML forbids is left."""
    text = text.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥")
    text = _printable(text) or "∅"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _bands(origins: Sequence[Origin], x: float, width: float) -> str:
    """A shade behind every other round's tokens, so that one sees which came together."""
    rows = [row for row, origin in enumerate(origins) if origin.round % 2 == 0]
    return "".join(
        f'<rect class="band" x="{x:g}" y="{TOP + row * ROW}" width="{width:.0f}" height="{ROW}"/>' for row in rows
    )


def _marks(origin: Origin, name: Callable[[int], str], column: Callable[[int], float], wide: int, y: int) -> str:
    """What stood in a token's place, round by round."""
    marks, size = [], wide - 4
    middle, stood = y + ROW / 2, origin.stood or origin.round
    for number, tokens in origin.guesses.items():
        if origin.token not in tokens and number <= origin.round:
            said = f"round {number}: " + ", ".join(shown(name(token)) for token in tokens[:5])
            centre = column(number) + wide / 2
            marks.append(f'<circle class="wrong" cx="{centre:g}" cy="{middle:g}" r="2.5">{tip(said)}</circle>')
        elif number < stood:  # right once, and given up again
            marks.append(square("early", column(number) + 2, middle, size, size, f"round {number}: right, then lost"))
    if stood < origin.round:
        span = column(origin.round) - column(stood)
        marks.append(square("early", column(stood) + 2, middle, span, size, f"in place from round {stood} on"))
    x, what = column(origin.round), "drafted, and stood" if origin.drafted else "added by the target"
    told = f"{shown(name(origin.token))}: certain in round {origin.round}, {what}"
    if origin.drafted:
        marks.append(square("drafted", x + 2, middle, size, size, told))
    else:
        radius = size / 2
        circle = f'<circle class="added" cx="{x + wide / 2:g}" cy="{middle:g}" r="{radius:g}">{tip(told)}</circle>'
        marks.append(circle)
    return "".join(marks)


def square(kind: str, x: float, middle: float, width: float, height: float, told: str = "") -> str:
    """A square with round corners around a middle line, and what is told of it when it is pointed at."""
    place = f'x="{x:g}" y="{middle - height / 2:g}" width="{width:g}" height="{height:g}"'
    return f'<rect class="{kind}" {place} rx="2">{tip(told) if told else ""}</rect>'


def _legend() -> str:
    parts, x, y = [], float(PAD), 70
    for kind, words in LEGEND:
        if kind in ("added", "wrong"):
            parts.append(f'<circle class="{kind}" cx="{x + 6:g}" cy="{y}" r="{6 if kind == "added" else 2.5}"/>')
        else:
            parts.append(square(kind, x, y, 12, 12))
        parts.append(label(x + 18, y + 4, words))
        x += 18 + len(words) * LETTER + 22
    return "".join(parts)


def label(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """Words at a place."""
    look = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:g}" y="{y:g}"{look}>{safe(words)}</text>'


def tip(words: str) -> str:
    """What is told of a mark when it is pointed at."""
    return f"<title>{safe(words)}</title>"


def safe(words: str) -> str:
    """Words as XML may have them."""
    return escape(_printable(words))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
