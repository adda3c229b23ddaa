"""`unspool bench denoise`: policies of filling holes on a real model, with their thresholds swept, and a picture."""

from __future__ import annotations

import sys
from typing import Any

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import api, recipes
from unspool.api.papers import FORMATS
from unspool.apps.cli.compare import prompts_of
from unspool.apps.cli.examples import FREE
from unspool.apps.cli.group import Grouped, methods_like, options
from unspool.apps.cli.loading import Loading
from unspool.apps.cli.terminal import dump, table, write
from unspool.core.errors import BadRequest

SLIDING = "leading:threshold=0.9 + sliding:window=8"  # no gap, and what stands is read as text
METHODS = ("plain", "masks", SLIDING, "confident", "credited", "factor", "entropy_bound")
DIFFUSION = "smollm2-diffusion"
SWEPT = "threshold"
HEADS = ("prompts", "method", "tokens/forward", "nats/token", "lost", "same text", "repeated 4-grams", "ms/token")


def _numbers(ctx: click.Context, parameter: click.Parameter, given: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in given.split(",") if part.strip()))
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a list of numbers, such as 0.5,0.7,0.9") from None


@click.command(cls=Grouped, short_help="Filling policies on a real model: speed against likelihood, thresholds swept.")
@click.argument("method", nargs=-1, shell_complete=methods_like)
@click.option(
    "--thresholds",
    default="0.5,0.7,0.8,0.9,0.95",
    show_default=True,
    callback=_numbers,
    metavar="P,…",
    help="Where a METHOD has a threshold and does not say it.",
)
@click.option("--block", default=16, show_default=True, type=click.IntRange(1, 4096), help="Places of a block.")
@click.option("--prompts", "files", multiple=True, metavar="FILE", help="Prompts: one per line, or .jsonl. Repeatable.")
@click.option("--base", metavar="MODEL", help="Whose likelihood is told; smollm2, or else the model itself.")
@click.option("--limit", default=3, show_default=True, type=click.IntRange(1), help="Prompts of each kind.")
@click.option("--max-tokens", "most", default=64, show_default=True, type=click.IntRange(1), help="Per text.")
@click.option("-t", "--temperature", default=0.0, show_default=True, type=click.FloatRange(0.0))
@click.option("-s", "--seed", default=0, show_default=True, type=int)
@click.option("--figure", metavar="FILE", help="Draw the picture, as .svg or .pdf.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="A table for a paper.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, by kind of prompts and by method.")
@options(Loading, "loading", {"model": DIFFUSION})
def denoise(
    method: tuple[str, ...],
    thresholds: tuple[float, ...],
    block: int,
    files: tuple[str, ...],
    base: str | None,
    limit: int,
    most: int,
    temperature: float,
    seed: int,
    figure: str | None,
    kind: str | None,
    as_json: bool,
    loading: Loading,
) -> int:
    """Fill answers by METHODs (some of each kind, if none is named) on a model that fills holes.

    A METHOD with an option `threshold` that does not say it is measured at each of --thresholds. All are held against
    filling one hole per look: `lost` is by how many nats per token the text is less likely to a model that reads it
    from left to right. The picture joins those that no other beats in both.
    """
    methods = swept(method or METHODS, thresholds, block)
    if figure is not None:
        api.figures.check(figure)
    loading.check(tuple(methods))
    own = {"yours": [text for file in files for text in prompts_of(file)][:limit]} if files else {}
    asked = own or {"chat": list(FREE[:limit]), "plain": list(benches.unmask_policies.PLAIN[:limit])}
    lm = loading.load(quiet=True)
    reader = _reader(lm, base, loading)
    settings = api.settings.Settings(max_tokens=most, temperature=temperature, seed=seed)
    total = len(methods) * sum(map(len, asked.values()))
    with tqdm(total=total, unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:
        cells = benches.unmask_policies.measured(lm, reader, asked, methods, settings, lambda *_: bar.update(1))
    found = {name: {spec: cell.record() for spec, cell in rows.items()} for name, rows in cells.items()}
    if figure is not None:
        api.figures.save(benches.pareto.chart(found, loading.model, reader.name), figure)
    if as_json:
        about = {"model": loading.model, "base": reader.name, "max_tokens": most, "temperature": temperature}
        dump({**about, "machine": benches.machine.machine(), "methods": found})
        return 0
    rows = [_cells(name, spec, row, rows) for name, rows in found.items() for spec, row in rows.items()]
    right = ", ".join(HEADS[2:])
    write(api.papers.table(kind, HEADS, rows) if kind else table(HEADS, rows, right=right) + "\n")
    return 0


def swept(methods: tuple[str, ...], thresholds: tuple[float, ...], block: int) -> list[str]:
    """One hole per look, and every method, at each threshold if it has one and does not say it; in blocks likewise."""
    found = [f"confident:{SWEPT}=2,block={block}"]
    for spec in methods:
        (first, *_) = recipes.names.parts_of(spec)
        known = recipes.method_listing.listings().get(recipes.names.known(first.said) or "")
        declared = {} if known is None or "+" in spec else known.options
        more = [f"block={block}"] if "block" in declared and "block" not in first.given else []
        levels = thresholds if SWEPT in declared and SWEPT not in first.given else ()
        for level in levels or (None,):
            given = ([] if level is None else [f"{SWEPT}={level:g}"]) + more
            found.append(spec + (("," if ":" in spec else ":") + ",".join(given) if given else ""))
    return list(dict.fromkeys(found))


def _reader(lm: Any, base: str | None, loading: Loading) -> Any:
    """The model that tells how likely a text is: another one by name, or the one that fills, if it reads too."""
    if base is None and loading.model == DIFFUSION:
        base = "smollm2"
    if base is not None:
        made = api.loader.load(base, dtype=loading.dtype, device=loading.device)
        if made.vocabulary.size != lm.vocabulary.size:
            raise BadRequest(f"--base {base} has other tokens than {loading.model}; name a model with the same ones.")
        return made
    return lm


def _cells(kind: str, spec: str, row: dict[str, float], rows: dict[str, dict[str, float]]) -> tuple[str, ...]:
    lost = next(iter(rows.values()))["nats"] - row["nats"]
    return (
        kind,
        spec,
        f"{row['tokens_per_forward']:.2f}",
        f"{-row['nats']:.3f}",
        f"{lost:+.3f}",
        f"{row['same']:.0%}",
        f"{row['repeated_4grams']:.0%}",
        f"{row['ms_per_token']:.1f}",
    )
