"""`unspool bench json`: which JSON schemas are taken, whether rightly, and how fast."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import models
from unspool.apps.cli.terminal import INTERRUPTED, note, table, write
from unspool.core.errors import BadRequest

if TYPE_CHECKING:
    from ..journal import Journal
    from ..schemas import SchemaRow
    from ..score import TakerScore
    from ..shelf import SchemaCase

TAKERS = ("unspool", "unspool-check", "llguidance", "xgrammar")  # as in bench/takers.py, which is slow to import
_HEADS = (
    "backend",
    "schemas",
    "right",
    "wrong",
    "refused",
    "late",
    "broken",
    "valid rejected",
    "invalid taken",
    "outputs",
    "wrong outputs",
    "stuck",
    "compile ms p50 / p95 / max",
    "mask µs p50 / p99",
)


@click.command("json", short_help="JSON schemas: which are taken, whether rightly, how fast.")
@click.option("--data", required=True, metavar="FOLDER", help="Schemas with valid and invalid instances.")
@click.option("--backend", "backends", multiple=True, type=click.Choice(TAKERS), help="Repeatable; all but xgrammar.")
@click.option("--split", "splits", multiple=True, metavar="NAME", help="A part of the collection. Repeatable.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many schemas, evenly over the splits.")
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(0.1), help="For one schema.")
@click.option("-m", "--model", default="smollm2", show_default=True, help="Whose tokens; its weights are not loaded.")
@click.option("-s", "--seed", default=0, show_default=True, type=int)
@click.option("--json", "to", metavar="FILE", help="Write the result; a run that is started again goes on from it.")
def json_bench(
    data: str,
    backends: tuple[str, ...],
    splits: tuple[str, ...],
    limit: int | None,
    seconds: float,
    model: str,
    seed: int,
    to: str | None,
) -> int:
    """Take JSON schemas, read their instances token by token, and write random texts under the masks.

    A schema counts as right if it was taken, every valid instance was read to its end, every invalid one was not, and
    the package jsonschema finds no fault with the texts that were written. With --json the rows are kept beside the
    result (FILE with the ending .jsonl, and tables with .md), and what is there is not measured again.
    docs/constrain.md says more.
    """
    chosen = tuple(dict.fromkeys(backends)) or TAKERS[:-1]
    if to is not None and not Path(to).resolve().parent.is_dir():
        raise BadRequest(f"{to} cannot be written: the folder {Path(to).resolve().parent} does not exist")
    found = benches.shelf.cases(Path(data), splits, limit)
    settings = {"model": model, "seed": seed, "seconds": seconds}
    journal = benches.journal.Journal(None if to is None else Path(to).with_suffix(".jsonl"), settings)
    try:
        _measure(journal, found, chosen, model, seed, seconds)
    except KeyboardInterrupt:
        _report(journal, found, chosen, None, settings)
        note("interrupted; start it again with the same --json to go on" if to else "interrupted")
        return INTERRUPTED
    _report(journal, found, chosen, to, settings)
    return 0


def _measure(
    journal: Journal, found: Sequence[SchemaCase], backends: Sequence[str], model: str, seed: int, seconds: float
) -> None:
    """Measure what the journal lacks, each schema in a process that can be ended."""
    wanted = [(name, case) for name in backends for case in found if (name, case.name) not in journal]
    if not wanted:
        return
    checkpoint = models.weights.open_checkpoint(models.address.path(model))
    known, judge = benches.takers.TAKERS, benches.schemas.SchemaJudge(checkpoint.vocabulary(), seed=seed)
    for name in dict.fromkeys(name for name, _ in wanted):
        known[name].take(
            {"type": "object"}, judge.words
        )  # an engine reads the vocabulary once: no part of a compilation

    def judged(given: tuple[str, SchemaCase]) -> SchemaRow:
        return judge(given[0], known[given[0]], given[1])

    bar = tqdm(
        total=len(backends) * len(found),
        initial=len(backends) * len(found) - len(wanted),
        unit="schema",
        leave=False,
        disable=not sys.stderr.isatty(),
    )
    with bar, benches.apart.Apart(judged, seconds) as apart:
        for name, case in wanted:
            bar.set_description(name)
            try:
                row = apart((name, case))
            except benches.apart.TooLate:
                row = benches.schemas.SchemaRow(
                    name, case.name, case.split, benches.schemas.LATE, f"more than {seconds:g} s"
                )
            except benches.apart.Crashed:
                row = benches.schemas.SchemaRow(
                    name, case.name, case.split, benches.schemas.BROKEN, "the process crashed"
                )
            journal.add((name, case.name), row.record())
            bar.update(1)


def _report(
    journal: Journal, found: Sequence[SchemaCase], backends: Sequence[str], to: str | None, settings: dict[str, Any]
) -> None:
    names = {case.name for case in found}
    rows = [
        benches.schemas.SchemaRow.of(row)
        for (taker, name), row in journal.items()
        if taker in backends and name in names
    ]
    if not rows:
        return
    scores = [benches.score.score(name, rows) for name in backends if any(row.taker == name for row in rows)]
    splits = benches.score.by_split(rows, [each.taker for each in scores])
    write(table(_HEADS, [_cells(each) for each in scores], right=", ".join(_HEADS[1:])) + "\n\n")
    lines = [(split, *(_share(*counts) for counts in row.values())) for split, row in splits.items()]
    write(table(("right / wrong / not taken", *splits[next(iter(splits))]), lines) + "\n")
    for each in scores:
        for head, counts in (("refused for", each.refusals), ("checked at the end", each.checks)):
            if counts:
                listed = ", ".join(f"{keyword} {count}" for keyword, count in counts.items())
                write(f"\n{each.taker}, {head}: {listed}\n")
    for mine in (each.taker for each in scores if each.taker in TAKERS[:2]):
        for other in (each.taker for each in scores if each.taker not in TAKERS[:2]):
            if lost := benches.score.only_theirs(rows, mine, other):
                why = Counter(keyword for row, _ in lost for keyword in row.refused or (row.why[:60] or "a fault",))
                listed = ", ".join(f"{keyword} {count}" for keyword, count in why.most_common())
                write(f"\n{other} is right and {mine} is not, {len(lost)}: {listed}\n")
    if to is not None:
        _save(Path(to), scores, splits, rows, settings)


def _cells(each: TakerScore) -> tuple[str, ...]:
    counts = (each.schemas, each.right, each.wrong, each.refused, each.late, each.broken)
    faults = (each.rejected, each.admitted, each.outputs, each.outputs_wrong, each.stuck)
    compiled, masks = list(each.compile_ms.values()), list(each.mask_us.values())[:2]
    return (
        each.taker,
        *map(str, (*counts, *faults)),
        " / ".join(f"{value:.1f}" for value in compiled),
        " / ".join(f"{value:.0f}" for value in masks),
    )


def _share(right: int, wrong: int, refused: int) -> str:
    return f"{right} / {wrong} / {refused}"


def _save(path: Path, scores: list[TakerScore], splits: Any, rows: list[SchemaRow], settings: dict[str, Any]) -> None:
    faults = [row.record() | {"writing": row.record()["writing"] | {"masks": {}}} for row in rows if row.fault]
    result = {
        "machine": benches.machine.machine()
        | {name: _version(name) for name in ("llguidance", "xgrammar", "jsonschema")},
        "settings": settings,
        "scores": [each.record() for each in scores],
        "by_split": splits,
        "faults": faults,
    }
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")
    path.with_suffix(".md").write_text(_markdown(scores, splits), "utf-8")


def _markdown(scores: list[TakerScore], splits: Any) -> str:
    """The tables for a page."""
    names = [each.taker for each in scores]
    parts = [_rows(_HEADS, [_cells(each) for each in scores])]
    parts.append(
        _rows(
            ("right / wrong / not taken", *names), [(k, *(_share(*c) for c in v.values())) for k, v in splits.items()]
        )
    )
    for head, tables in (
        ("refused for", [e.refusals for e in scores]),
        ("checked at the end", [e.checks for e in scores]),
    ):
        keywords = sorted(
            {key for counts in tables for key in counts}, key=lambda key: -max(c.get(key, 0) for c in tables)
        )
        if keywords:
            parts.append(_rows((head, *names), [(key, *(str(c.get(key, "")) for c in tables)) for key in keywords]))
    return "\n".join(parts)


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
