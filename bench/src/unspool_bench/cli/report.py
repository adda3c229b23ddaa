"""`unspool report`: journals of benchmarks as one page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

import unspool_bench as benches
from unspool import api
from unspool.api.papers import FORMATS
from unspool.apps.cli.terminal import dump, note, write
from unspool.core.errors import BadRequest

from .bench_suites import cells, drawn

if TYPE_CHECKING:
    from ..report import FoundJournals

DEFAULT = "results"


@click.command(short_help="Make a page of benchmark journals.")
@click.argument("folder", nargs=-1)
@click.option("-o", "--output", metavar="FILE", default="report.html", show_default=True, help="The page.")
@click.option("--json", "as_json", is_flag=True, help="The standings as data, and no page.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="The standings as a table for a paper, and no page.")
@click.option("--figure", metavar="FILE", help="Draw the speed-ups of the first journal, as .svg or .pdf.")
@click.option("--open", "opened", is_flag=True, help="Show the page in a browser.")
def report(
    folder: tuple[str, ...], output: str, as_json: bool, kind: str | None, figure: str | None, opened: bool
) -> int:
    """Make one HTML page of the journals in FOLDERs, which `unspool bench` has written; of ./results if none is named.

    The page needs no network and no other file: speed-ups with intervals, tokens per forward, latencies, what a round
    costs, where the time goes, what was accepted, and where texts part from plain decoding's. Its tables can be sorted
    and saved as CSV. A parallel*.json in the folder is drawn too. The same journals give the same page. docs/report.md
    says how to read it.
    """
    if (as_json or kind) and opened:
        raise click.UsageError("--json and --format make no page that --open could show")
    if as_json and kind:
        raise click.UsageError("--json and --format exclude each other")
    if figure is not None:
        api.figures.check(figure)
    told = benches.report.found([Path(name) for name in folder or (DEFAULT,)])
    for path in told.skipped:
        note(f"{path} holds no measurements of `unspool bench`; left out")
    if figure is not None:
        if not told.runs:
            raise BadRequest("there is no journal of `unspool bench` whose speed-ups could be drawn")
        api.figures.save(drawn(told.runs[0].standings, told.runs[0].path.stem), figure)
    if as_json:
        dump(_data(told))
        return 0
    if kind is not None:
        write("\n".join(api.papers.table(kind, *cells(run.standings)) for run in told.runs))
        return 0
    file = Path(output)
    _put(file, benches.report.page(told))
    write(f"{file}\n")
    if opened:
        click.launch(str(file.resolve()))
    return 0


def _data(told: FoundJournals) -> dict[str, object]:
    runs = [
        {"file": str(run.path), "about": run.about, "standings": [each.record() for each in run.standings]}
        for run in told.runs
    ]
    rows = [{"file": str(path), "rows": [row.record() for row in rows]} for path, rows in told.parallel]
    return {"runs": runs, "parallel": rows}


def _put(file: Path, text: str) -> None:
    """Write the page whole or not at all."""
    if file.is_dir():
        raise BadRequest(f"{file} is a folder; name a file with -o, such as {file / 'report.html'}")
    if not file.absolute().parent.is_dir():
        raise BadRequest(f"{file} cannot be written: the folder {file.absolute().parent} does not exist")
    part = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
