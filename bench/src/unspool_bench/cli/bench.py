"""`unspool bench`: benchmarks whose best possible scores are known."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import api, recipes
from unspool.api.papers import FORMATS
from unspool.apps.cli.terminal import INTERRUPTED, dump, note, table, write

from .bench_denoise import denoise
from .bench_json import json_bench
from .bench_parallel_text import parallel_text
from .bench_suites import long, quality, spec, throughput

if TYPE_CHECKING:
    from unspool.runtime.engine.contracts import Infill

    from ..parallel import Bench, ParallelCell, ParallelRow

METHODS = (
    "one",
    "quota:steps=3",
    "confident:threshold=0.9",
    "confident:threshold=0.7",
    "factor",
    "entropy_bound",
    "local",
    "explore",
)
TASKS = ("copy", "sort", "replace_random", "insert_random", "remove_random", "shuffle", "parity", "words", "chain")
_HEADS = ("task", "n", "model", "method", "tokens/forward", "accuracy", "ideal", "KL", "bound", "nats", "rounds ≥")
_MOST = 16  # places per look that may be asked for: the largest answers have so many


def _widths(ctx: click.Context, parameter: click.Parameter, given: str) -> tuple[int, ...]:
    try:
        widths = tuple(int(part) for part in given.split(","))
    except ValueError:
        widths = ()
    if not widths or not all(1 <= k <= _MOST for k in widths):
        raise click.BadParameter(f"{given!r} is not a list of numbers from 1 to {_MOST}, such as 1,2,4")
    return tuple(sorted(set(widths)))


@click.group(short_help="Benchmarks whose best possible scores are known.")
def bench() -> None:
    """Measure methods on tasks whose best possible scores are known."""


for suite in (spec, json_bench, denoise, parallel_text, long, throughput, quality):
    bench.add_command(suite)


@bench.command(short_help="List tasks: accuracy against tokens per forward.")
@click.argument("method", nargs=-1)
@click.option(
    "--task", "tasks", multiple=True, metavar="NAME", help="A task, such as shuffle; `all` is every one. Repeatable."
)
@click.option("--n", default=6, show_default=True, type=click.IntRange(2, 8), help="Items; latin has 4 at most.")
@click.option("--k", "widths", default="1,2,4,8,16", show_default=True, callback=_widths, help="Places per look.")
@click.option("--model", type=click.Choice(["both", "oracle", "pupil"]), default="both", show_default=True)
@click.option("--weights", metavar="FILE", help="Another pupil's weights (.safetensors).")
@click.option("--texts", default=100, show_default=True, type=click.IntRange(1), help="Questions where it is drawn.")
@click.option("--branches", default=1000, show_default=True, type=click.IntRange(1), help="Up to which to enumerate.")
@click.option("-t", "--temperature", default=1.0, show_default=True, type=click.FloatRange(0.0))
@click.option("-s", "--seed", default=0, show_default=True, type=int)
@click.option("--svg", "--figure", "svg", metavar="FILE", help="Also draw the picture, as .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects, one per row.")
@click.option("--csv", "as_csv", is_flag=True, help="Comma-separated values, all of them.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="A table for a paper.")
def parallel(
    method: tuple[str, ...],
    tasks: tuple[str, ...],
    n: int,
    widths: tuple[int, ...],
    model: str,
    weights: str | None,
    texts: int,
    branches: int,
    temperature: float,
    seed: int,
    svg: str | None,
    as_json: bool,
    as_csv: bool,
    kind: str | None,
) -> int:
    """Fill the answers of list tasks by METHODs (one of each family, if none is named), and by k places per look.

    The oracle is a model whose laws are exact, so what it gets wrong is the method's doing; the pupil is a small model
    that learnt the tasks. `ideal` is what an ideal model reaches with k per look. KL is the distance from the true law
    of the answers in nats, where all branches could be followed, and `bound` what k per look must lose; `nats` is what
    an answer told, and `rounds ≥` how many rounds that takes if none tells more than the fullest. Interrupted, it still
    prints what it has measured. docs/parallel.md says more.
    """
    if as_json + as_csv + (kind is not None) > 1:
        raise click.UsageError("--json, --csv and --format exclude each other")
    for given in method:
        recipes.methods.method(given)  # a wrong name is said before the first row is measured
    chosen = [benches.tasks.task(name) for name in (benches.tasks.TASKS if "all" in tasks else tasks or TASKS)]
    if svg is not None:
        api.figures.check(svg)
    models = _models(model, weights)
    rows: list[ParallelRow] = []
    measure = benches.parallel.Bench(models, texts, branches, temperature, seed)
    plans = benches.parallel.plans(chosen, n, list(models), method or METHODS, widths)
    try:
        _measure(measure, plans, rows)
    except KeyboardInterrupt:
        note(f"interrupted; {len(rows)} rows were measured")
        _report(rows, as_json, as_csv, kind, svg, temperature)
        return INTERRUPTED
    except Exception:
        if rows:
            _report(rows, as_json, as_csv, kind, svg, temperature)
        raise
    _report(rows, as_json, as_csv, kind, svg, temperature)
    return 0


def _models(model: str, weights: str | None) -> dict[str, Infill]:
    models: dict[str, Infill] = {}
    if model in ("both", "oracle"):
        models["oracle"] = benches.tasks.oracle()
    if model in ("both", "pupil"):
        models["pupil"] = benches.pupil.Pupil.load(benches.pupil.WEIGHTS if weights is None else Path(weights))
    return models


def _measure(measure: Bench, cells: list[ParallelCell], rows: list[ParallelRow]) -> None:
    with tqdm(total=len(cells), unit="row", leave=False, disable=not sys.stderr.isatty()) as bar:
        for row in measure(cells):
            rows.append(row)
            bar.set_description(f"{row.task}, {row.model}")
            bar.update(1)


def _report(
    rows: list[ParallelRow], as_json: bool, as_csv: bool, kind: str | None, svg: str | None, temperature: float
) -> None:
    if svg is not None and rows:
        how = "tokens drawn from their laws" if temperature == 1 else f"temperature {temperature:g}"
        drawn = benches.chart.chart(rows, f"Accuracy when several tokens are filled per forward, {how}")
        api.figures.save(drawn, svg)
    if as_json:
        dump([row.record() for row in rows])
    elif as_csv:
        text = io.StringIO()
        if rows:
            lines = csv.DictWriter(text, list(rows[0].record()), lineterminator="\n")
            lines.writeheader()
            lines.writerows(row.record() for row in rows)
        write(text.getvalue())
    elif kind is not None:
        write(api.papers.table(kind, _HEADS, [_cells(row) for row in rows]))
    else:
        right = "n, tokens/forward, accuracy, ideal, KL, bound, nats, rounds ≥"
        write(table(_HEADS, [_cells(row) for row in rows], right=right) + "\n")


def _cells(row: ParallelRow) -> tuple[str, ...]:
    accuracy = f"{row.accuracy:.3f}" if row.enumerated else f"{row.accuracy:.2f} ±{row.error:.2f}"
    return (
        row.task,
        str(row.n),
        row.model,
        row.method,
        f"{row.tokens_per_forward:.2f}",
        accuracy,
        "" if row.ideal is None else f"{row.ideal:.3f}",
        "" if row.divergence is None else f"{row.divergence:.3f}",
        "" if row.bound is None else f"{row.bound:.3f}",
        f"{row.information:.2f}",
        f"{row.least:.1f}",
    )
