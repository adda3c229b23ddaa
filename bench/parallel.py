"""The parallel benchmark with its picture: python bench/parallel.py → bench/results/parallel.json, docs/parallel.svg.

The same rows as `unspool bench parallel`, with more questions and more branches.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import record
import torch
from tqdm import tqdm

from unspool_bench.chart import chart
from unspool_bench.cli.bench import METHODS, TASKS
from unspool_bench.parallel import Bench, plans
from unspool_bench.pupil import Pupil
from unspool_bench.tasks import oracle, task

WIDTHS = (1, 2, 4, 8, 16)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--n", type=int, default=6)
    options.add_argument("--texts", type=int, default=200)
    options.add_argument("--branches", type=int, default=2000)
    options.add_argument("--methods", nargs="+", default=METHODS)
    options.add_argument("--out", default="bench/results/parallel.json")
    options.add_argument("--svg", default="docs/parallel.svg")
    given = options.parse_args()
    torch.set_num_threads(1)
    models = {"oracle": oracle(), "pupil": Pupil.load()}
    cells = plans(map(task, TASKS), given.n, list(models), given.methods, WIDTHS)
    bench = Bench(models, given.texts, given.branches)
    rows = list(tqdm(bench(cells), total=len(cells), unit="row", disable=not sys.stderr.isatty()))
    command = f"python bench/parallel.py --n {given.n} --texts {given.texts} --branches {given.branches}"
    command += "" if given.methods is METHODS else f" --methods {' '.join(given.methods)}"
    record.save(given.out, {"command": command, "rows": [row.record() for row in rows]})
    title = "Accuracy when several tokens are filled per forward, tokens drawn from their laws"
    Path(given.svg).write_text(chart(rows, title), "utf-8")


if __name__ == "__main__":
    main()
