"""The floors of the package as a picture: the modules that ran on each, and the way of a request between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, EDGE, GAP = 1200, 24, 46
LEFT, MIDDLE = 330, 190  # how wide the column of methods is, and the lane between the columns
LETTER, CHIP, SPACE, ROW, HEAD = 7.25, 23, 7, 30, 30
NAMED = 72  # for the names of folders within a floor

FLOORS = {
    "apps": "command line, server, batches, plug-ins",
    "api": "load, generate, settings",
    "recipes": "a name → a method",
    "rules": "one method a file",
    "loops": "speculate, denoise, plain",
    "runtime": "engine, KV cache, networks, CUDA graphs",
    "models": "files, tokenizers, chat templates",
    "core": "laws, chance, trees, canvases, asks, stops, claims, warps",
}
ORDER = {"engine": 1, "cache": 2, "network": 3, "cuda": 4}  # of folders, as a request meets them
# How a module is drawn, by the ways that run it.
SHADES = {
    frozenset({"cpu", "server", "gpu"}): ("all", "in all three"),
    frozenset({"cpu", "server"}): ("host", "without a GPU"),
    frozenset({"server"}): ("server", "in the server only"),
    frozenset({"gpu"}): ("gpu", "on a GPU only"),
}
STYLE = """
text { font: 12px ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; fill: #26303a }
.chip text { font: 11.5px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; text-anchor: middle }
.floor { fill: #f6f7f9; stroke: #c9d0d8 } .name { font-weight: 700; font-size: 14px } .about { fill: #66717d }
.folder { fill: #66717d; font-size: 11.5px }
.all rect { fill: #2f6fb5 } .all text { fill: #fff } .host rect { fill: #c7def5 } .server rect { fill: #f7d9a8 }
.gpu rect { fill: #bfe3c8 } .some rect { fill: #e3e6ea }
.way { fill: none; stroke: #b3403a; stroke-width: 2; marker-end: url(#tip) } .said { fill: #8f2f2a; font-size: 11.5px }
.dot { fill: #b3403a } .number { fill: #fff; font-weight: 700; text-anchor: middle; font-size: 11.5px }
"""


@dataclass
class Band:
    """A floor with its modules laid out in rows."""

    floor: str
    x: float
    y: float
    width: float
    rows: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def height(self) -> float:
        """How high it is, with its title."""
        return HEAD + ROW * len(self.rows) + 8

    @property
    def bottom(self) -> float:
        """Where it ends."""
        return self.y + self.height


def length(text: str) -> float:
    """How wide a chip is."""
    return len(text) * LETTER + 14


def folders(floor: str, modules: Sequence[str]) -> dict[str, list[str]]:
    """The modules of a floor by the folders within it."""
    found: dict[str, list[str]] = {}
    for module in modules:
        first, *middle, last = module.split("/")
        if first == floor:
            found.setdefault("/".join(middle), []).append(last)
    return {name: found[name] for name in sorted(found, key=lambda name: ORDER.get(name, 0))}


def band(floor: str, modules: Sequence[str], x: float, y: float, width: float) -> Band:
    """Lay a floor's modules out, as many in a row as fit."""
    made, grouped = Band(floor, x, y, width), folders(floor, modules)
    room = width - 24 - (NAMED if any(grouped) else 0)
    for folder, names in grouped.items():
        rows: list[list[str]] = [[]]
        for name in names:
            if rows[-1] and sum(length(n) + SPACE for n in rows[-1]) + length(name) > room:
                rows.append([])
            rows[-1].append(name)
        made.rows += [(folder if i == 0 else "", row) for i, row in enumerate(rows)]
    return made


def drawn(part: Band, shade: Mapping[str, str], modules: Sequence[str]) -> list[str]:
    """A band as SVG."""
    x, y = part.x, part.y
    out = [
        f'<rect class="floor" x="{x}" y="{y:g}" width="{part.width}" height="{part.height:g}" rx="8"/>',
        f'<text class="name" x="{x + 12}" y="{y + 20:g}">{part.floor}/</text>',
        f'<text class="about" x="{x + 30 + 8.4 * len(part.floor):g}" y="{y + 20:g}">{FLOORS[part.floor]}</text>',
    ]
    indent, folder = NAMED if any(name for name, _ in part.rows) else 0, ""
    for number, (name, row) in enumerate(part.rows):
        top, at, folder = y + HEAD + number * ROW, x + 12 + indent, name or folder
        if name:
            out.append(f'<text class="folder" x="{x + 12}" y="{top + 16:g}">{name}/</text>')
        for module in row:
            path = "/".join(filter(None, (part.floor, folder if indent else "", module)))
            assert path in modules, path
            wide = length(module)
            out.append(
                f'<g class="chip {shade[path]}"><title>unspool/{path}.py</title>'
                f'<rect x="{at:g}" y="{top:g}" width="{wide:g}" height="{CHIP}" rx="5"/>'
                f'<text x="{at + wide / 2:g}" y="{top + 15.5:g}">{module}</text></g>'
            )
            at += wide + SPACE
    return out


def arrow(
    points: Sequence[tuple[float, float]], number: int, label: str, at: tuple[float, float], rise: int = 0
) -> str:
    """A step of the request: a line with bends, its number at a place on it, and what goes along it."""
    path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
    x, y = at
    return (
        f'<path class="way" d="{path}"/><circle class="dot" cx="{x:g}" cy="{y:g}" r="9"/>'
        f'<text class="number" x="{x:g}" y="{y + 4:g}">{number}</text>'
        f'<text class="said" x="{x + 15:g}" y="{y + 4 - rise:g}">{escape(label)}</text>'
    )


def down(x: float, above: Band, below: Band, number: int, label: str) -> str:
    """A step from one band to the next below it."""
    return arrow([(x, above.bottom), (x, below.y - 2)], number, label, (x, above.bottom + GAP / 2 - 2))


def picture(ran: Mapping[str, Sequence[str]]) -> str:
    """The floors, the modules that ran in each way, and the eight steps of a request."""
    modules = sorted({module for found in ran.values() for module in found})
    shade = {m: SHADES.get(frozenset(way for way in ran if m in ran[way]), ("some", ""))[0] for m in modules}
    whole, right = WIDTH - 2 * EDGE, WIDTH - 2 * EDGE - LEFT - MIDDLE
    x = EDGE + LEFT + MIDDLE
    apps = band("apps", modules, EDGE, 62, whole)
    api = band("api", modules, EDGE, apps.bottom + GAP, whole)
    recipes = band("recipes", modules, EDGE, api.bottom + GAP, LEFT)
    rules = band("rules", modules, EDGE, recipes.bottom + GAP, LEFT)
    loops = band("loops", modules, EDGE, rules.bottom + GAP, LEFT)
    runtime = band("runtime", modules, x, recipes.y, right)
    models = band("models", modules, x, max(runtime.bottom + 16, loops.y), right)
    core = band("core", modules, EDGE, max(models.bottom, loops.bottom) + 24, whole)
    bands = (apps, api, recipes, rules, loops, runtime, models, core)
    lane, middle = EDGE + LEFT, EDGE + LEFT / 2
    far, near, high, low = lane + 62, lane + 30, runtime.y + 32, loops.y + 40
    asked = [(lane, low + 24), (far, low + 24), (far, high + 20), (x - 2, high + 20)]
    answered = [(x, high), (near, high), (near, low), (lane + 2, low)]
    steps = [
        down(middle, apps, api, 1, "a prompt and settings"),
        down(middle, api, recipes, 2, "the name “lookup”"),
        down(middle, recipes, rules, 3, "its options, checked"),
        down(middle, rules, loops, 4, "Speculate(Lookup(…))"),
        down(x + 70, api, runtime, 5, "submit: tokens and method"),
        arrow(asked, 6, "ask: Check(tree)", (far, rules.y + 22)),
        arrow(answered, 7, "answer: Checked", (near + 24, high), rise=8),
        arrow(
            [(x + 380, runtime.y), (x + 380, api.bottom + 2)], 8, "tokens → text", (x + 380, api.bottom + GAP / 2 + 2)
        ),
    ]
    height = core.bottom + EDGE
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        'aria-label="The floors of the package, the modules that run for one request, and its way between them">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" markerHeight="6" '
        'orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#b3403a"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height:g}" rx="10" fill="#fff"/>',
        *legend(ran),
    ]
    for part in bands:
        out += drawn(part, shade, modules)
    return "\n".join([*out, *steps, "</svg>", ""])


def legend(ran: Mapping[str, Sequence[str]]) -> list[str]:
    """What the colours mean, and how many modules run in each way."""
    counts = ", ".join(f"{len(ran[way])} {said}" for way, said in SAID.items() if way in ran)
    out = [f'<text class="name" x="{EDGE}" y="28">Modules that run for one request by lookup: {escape(counts)}</text>']
    at = float(EDGE)
    for name, meaning in SHADES.values():
        out.append(
            f'<g class="chip {name}"><rect x="{at:g}" y="38" width="14" height="14" rx="3"/></g>'
            f'<text x="{at + 20:g}" y="49.5">{meaning}</text>'
        )
        at += 44 + 6.4 * len(meaning)
    note = "a floor imports floors below it, never above"
    out.append(f'<text class="about" x="{WIDTH - EDGE}" y="49.5" text-anchor="end">{note}</text>')
    return out


SAID = {"cpu": "on the CPU", "server": "through the server", "gpu": "on a GPU"}
