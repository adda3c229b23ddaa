"""`unspool bench parallel-text`: ParallelBench's questions in words, on a real model that fills holes."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import api
from unspool.apps.cli.group import Grouped, methods_like, options
from unspool.apps.cli.loading import Loading
from unspool.apps.cli.terminal import dump, table, write

METHODS = (
    "plain",
    "confident:threshold=2",
    "confident:threshold=0.95",
    "confident:threshold=0.8",
    "confident:threshold=0.6",
    "factor",
)
DIFFUSION = "smollm2-diffusion"
HEADS = ("task", "method", "score", "tokens/forward", "questions")


@click.command(
    "parallel-text",
    cls=Grouped,
    short_help="ParallelBench's questions in words: score against tokens per forward.",
)
@click.argument("method", nargs=-1, shell_complete=methods_like)
@click.option("--data", required=True, metavar="FOLDER", help="Holds tasks.jsonl.gz and task_config.*.yaml.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="A task, as in shuffle or puzzle/sudoku_n4_12.")
@click.option("--limit", default=5, show_default=True, type=click.IntRange(1), help="Questions of each task.")
@click.option("--max-tokens", "most", default=64, show_default=True, type=click.IntRange(1), help="Per answer.")
@click.option("-t", "--temperature", default=0.0, show_default=True, type=click.FloatRange(0.0))
@click.option("-s", "--seed", default=0, show_default=True, type=int)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, by task and by method.")
@options(Loading, "loading", {"model": DIFFUSION})
def parallel_text(
    method: tuple[str, ...],
    data: str,
    tasks: tuple[str, ...],
    limit: int,
    most: int,
    temperature: float,
    seed: int,
    as_json: bool,
    loading: Loading,
) -> int:
    """Answer ParallelBench's questions by METHODs (thresholds of confident, if none is named), and score the answers.

    Where several thresholds are tried, a row says what the best of them for each single question would reach: no rule
    that has one threshold for all can do better.
    """
    methods = method or METHODS
    loading.check(methods)
    asked = benches.parallel_text.questions(Path(data), tasks, limit)
    lm = loading.load(quiet=True)
    settings = api.settings.Settings(max_tokens=most, temperature=temperature, seed=seed)
    with tqdm(total=len(asked) * len(methods), unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:
        found = benches.parallel_text.measured(lm, asked, methods, settings, lambda: bar.update(1) and None)
    if as_json:
        dump({"model": loading.model, "machine": benches.machine.machine(), "tasks": found})
        return 0
    rows = [
        (task, spec, f"{row['score']:.2f}", f"{row['tokens_per_forward']:.2f}", f"{row['questions']:.0f}")
        for task, told in found.items()
        for spec, row in told.items()
    ]
    write(table(HEADS, rows, right=", ".join(HEADS[2:])) + "\n")
    return 0
