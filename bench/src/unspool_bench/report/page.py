"""The page: one HTML file with everything in it, the same for the same journals."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from ..chart import chart
from ..contender import PLAIN
from ..parallel import ParallelRow
from . import sheets
from .markup import Html, joined, safe, tag
from .parts import Folded, Piece, ReportPart, parts
from .runs import FoundJournals, MeasuredRun
from .sheet import Sheet

APART = ("suite", "source", "machine", "cost")  # what is told in other places


def page(found: FoundJournals) -> str:
    """The whole page."""
    keys = _keys(found)
    chapters = [(_title(run), _facts(run), list(parts(run, key))) for run, key in zip(found.runs, keys, strict=False)]
    for number, (path, rows) in enumerate(found.parallel, 1):
        chapters.append(("parallel", tag("p", {"class": "facts"}, path.name), [_parallel(rows, f"parallel-{number}")]))
    told = {sheet.name: sheet.csv() for *_, own in chapters for part in own for sheet in _sheets(part.pieces)}
    style, script = _asset("page.css"), _asset("page.js")
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    sources = [run.path for run in found.runs] + [path for path, _ in found.parallel]
    names = [*keys, *(f"parallel-{n}" for n in range(1, len(found.parallel) + 1))]
    heading = _heading(found.runs)
    return Template(_asset("page.html")).substitute(
        policy=safe(policy),
        title=safe(heading),
        heading=_named(found.runs),
        machine=_machines(found),
        style=style,
        script=script,
        contents=joined(
            _entry(f"{name}-run", title, own) for name, (title, _, own) in zip(names, chapters, strict=True)
        ),
        short=joined(tag("li", {}, _short(run)) for run in found.runs),
        chapters=joined(_chapter(f"{name}-run", *chapter) for name, chapter in zip(names, chapters, strict=True)),
        sources=safe(", ".join(f"{path.absolute().parent.name}/{path.name}" for path in sources)),
        data=json.dumps(told, ensure_ascii=True).replace("<", "\\u003c").replace("&", "\\u0026"),
    )


def _keys(found: FoundJournals) -> list[str]:
    """A name for each run that is fit for an id: its suite, with a number from the second on."""
    keys: list[str] = []
    for run in found.runs:
        base = re.sub(r"[^a-z0-9]+", "-", run.suite.lower()).strip("-") or "run"
        again = sum(key == base or re.fullmatch(rf"{base}-\d+", key) is not None for key in keys)
        keys.append(f"{base}-{again + 1}" if again else base)
    return keys


def _title(run: MeasuredRun) -> str:
    return f"{run.suite}: {run.about['source']}" if run.about.get("source") else run.suite


def _models(runs: Sequence[MeasuredRun]) -> list[str]:
    return list(dict.fromkeys(str(run.about.get("model")) for run in runs if run.about.get("model")))


def _heading(runs: Sequence[MeasuredRun]) -> str:
    return "unspool report: " + (", ".join(_models(runs)) or "parallel decoding")


def _named(runs: Sequence[MeasuredRun]) -> Html:
    models = [tag("code", {}, model) for model in _models(runs)]
    return Html(", ".join(models)) if models else safe("Parallel decoding")


def _machines(found: FoundJournals) -> Html:
    """What it was measured on, and with which versions; a line for each machine that differs."""
    lines: dict[str, None] = {}
    for run in found.runs:
        machine = dict(run.about.get("machine") or {})
        if told := " · ".join(f"{key} {value}" for key, value in machine.items() if value is not None):
            lines[told] = None
    return joined(tag("p", {"class": "facts"}, told) for told in lines)


def _facts(run: MeasuredRun) -> Html:
    """How a run was measured, and what it lacks."""
    told = {key: value for key, value in run.about.items() if key not in APART and value is not None}
    cases = len({case for (case, _, _), _ in run.journal.items()})
    told |= {"cases": cases, "methods": len(run.rows), "texts": sum(s.texts for s in run.overall.values())}
    facts = [tag("div", {}, tag("dt", {}, key.replace("_", " ")), tag("dd", {}, _said(v))) for key, v in told.items()]
    lacking = f"Not finished: {run.missing} measurements are missing, and families that lack one are left out."
    return joined([tag("dl", {"class": "facts"}, *facts), tag("p", {"class": "warn"}, lacking) if run.missing else ""])


def _said(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (Mapping, list)) else str(value)


def _short(run: MeasuredRun) -> Html:
    """A run in one line: the fastest, and whether texts are the same."""
    racing = [s for s in run.overall.values() if s.contender != PLAIN]
    if not racing:
        return joined([tag("b", {}, run.suite), ": no method has been through all cases yet."])
    told: list[str] = [tag("b", {}, run.suite), ":"]
    for kind in ("exact method", "approximate method", "program beside"):
        if own := [s for s in racing if run.kind(s.contender) == kind]:
            best = max(own, key=lambda s: s.speed_up.value)
            interval = sheets.ranged(best.speed_up)
            pace = f" {best.speed_up.value:.2f}×" + (f" ({interval})" if interval else "")
            told += [f" fastest {kind} ", tag("code", {}, best.contender), pace, ";"]
    held = [s for s in racing if s.same is not None]
    same, texts = sum(s.same or 0 for s in held), sum(s.texts for s in held)
    verdicts = [each.verdict for each in sheets.partings(run)]
    bugs, ties = verdicts.count(sheets.BUG), verdicts.count(sheets.TIE)
    told += [f" {same} of {texts} texts are plain decoding's"] if held and not run.drawn else [" texts were drawn"]
    told += [f", {ties} near {'tie' if ties == 1 else 'ties'}"] if ties else []
    told += [", ", tag("span", {"class": "bug"}, f"{bugs} {'BUG' if bugs == 1 else 'BUGS'}")] if bugs else []
    return joined([*told, "."])


def _parallel(rows: Sequence[ParallelRow], name: str) -> ReportPart:
    title = "Accuracy when several tokens are filled per forward"
    drawn = base64.b64encode(chart(rows, title).encode()).decode()
    said = f"{title}: a panel per task, methods as letters; the table below has the numbers."
    image = Html(f'<img alt="{safe(said)}" src="data:image/svg+xml;base64,{drawn}">')
    box = tag("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": title}, image)
    note = "List tasks whose best possible scores are known; the dashed line is what an ideal model reaches."
    return ReportPart(name, title, note, [box, Folded("In numbers", sheets.parallels(rows, name))])


def _chapter(name: str, title: str, facts: Html, own: Sequence[ReportPart]) -> Html:
    heading = tag("h2", {"id": f"{name}-title"}, title)
    shown = [_part(part) for part in own] or [tag("p", {}, "Nothing to compare yet.")]
    return tag("section", {"id": name, "aria-labelledby": f"{name}-title"}, heading, facts, *shown)


def _part(part: ReportPart) -> Html:
    pieces = [_piece(piece) for piece in part.pieces]
    heading = tag("h3", {"id": f"{part.name}-title"}, part.title)
    note = tag("p", {"class": "note"}, part.note)
    return tag("section", {"id": part.name, "aria-labelledby": f"{part.name}-title"}, heading, note, *pieces)


def _piece(piece: Piece) -> Html:
    if isinstance(piece, Folded):
        return tag("details", {}, tag("summary", {}, piece.summary), piece.sheet.html())
    return piece.html() if not isinstance(piece, Html) else piece


def _entry(name: str, title: str, own: Sequence[ReportPart]) -> Html:
    links = [tag("li", {}, tag("a", {"href": f"#{part.name}"}, part.title)) for part in own]
    return tag("li", {}, tag("a", {"href": f"#{name}"}, title), tag("ul", {}, *links))


def _sheets(pieces: Sequence[Piece]) -> Iterator[Sheet]:
    for piece in pieces:
        if not isinstance(piece, Html):
            yield piece.sheet if isinstance(piece, Folded) else piece


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
