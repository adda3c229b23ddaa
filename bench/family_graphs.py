"""Little models of every family on CUDA graphs: their bits in every batch, the texts that methods write, their steps.

    python bench/family_graphs.py [--only TITLE ...] [--device cuda] [--jobs 8] [--off] [--json FILE]

Each family is a process of its own, with random weights in bfloat16 on `BatchInvariantFused`. *bits*: `check` of
`runtime/network/batch_invariant.py`, which reads a text at once, in pieces and in a tree. *texts*: three prompts are
written on alone by `plain`; then together by `plain`, by `recycle`, `auto` and `lookup` (T = 0.9), and by `on_device`,
`auto` and `plain` (T = 0); how many are the same. *off*: the largest difference of a score to float32, the median over
eight texts, and PyTorch's own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from record import save
from safetensors.torch import save_file

from tests.support.families import FAMILIES, told
from tests.support.familyfolders import tensors
from tests.support.graphfamilies import off, texts
from unspool.core.errors import BadRequest
from unspool.models.weights import open_checkpoint
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.network.batch_invariant import check

ROOM, MOST = 1024, 24
PROMPTS = [[(7 * i + j) % 59 + 2 for j in range(size)] for i, size in enumerate((5, 9, 17))]
TOGETHER = (
    (0.9, ("plain", "plain", "plain")),
    (0.9, ("recycle", "auto", "lookup")),
    (0.0, ("on_device", "auto", "plain")),
)


def measured(title: str, device: str, far: bool) -> dict[str, Any]:
    """What one family keeps."""
    family = next(family for family in FAMILIES if family.title == title)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(told(family)))
        save_file(tensors(told(family)), Path(folder) / "model.safetensors")
        checkpoint = open_checkpoint(Path(folder))
        model = graph_model(BatchInvariantFused.load(checkpoint, torch.bfloat16, device, ROOM), sequences=8)
        found: dict[str, Any] = {"bits": True}
        try:
            check(model)
        except BadRequest:
            found["bits"] = False
        alone = {
            heat: [texts(model, ["plain"], [prompt], MOST, heat)[0] for prompt in PROMPTS] for heat in dict(TOGETHER)
        }
        same = [
            a == b
            for heat, methods in TOGETHER
            for a, b in zip(texts(model, list(methods), PROMPTS, MOST, heat), alone[heat], strict=True)
        ]
        found["texts"] = f"{sum(same)}/{len(same)}"
        if far:
            found["off"], found["PyTorch"] = off(checkpoint, torch.bfloat16, device, 9)
    return found


def one(title: str, given: argparse.Namespace) -> dict[str, Any]:
    """The same in a process of its own; what it died of where it did."""
    began = perf_counter()
    asked = [sys.executable, __file__, "--one", title, "--device", given.device, *(["--off"] if given.off else [])]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=given.timeout, check=False)
        last = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()[-1:]
        found = json.loads(last[0]) if done.returncode == 0 else {"died": last[0] if last else done.returncode}
    except subprocess.TimeoutExpired:
        found = {"died": f"not done after {given.timeout} s"}
    print(f"{title:<36} {perf_counter() - began:5.0f} s  {found}", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[family.title for family in FAMILIES])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--timeout", type=int, default=300)
    parser.add_argument("--off", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.one, given.device, given.off)))
        return
    with ThreadPoolExecutor(given.jobs) as pool:
        found = dict(zip(given.only, pool.map(lambda title: one(title, given), given.only), strict=True))
    if given.json:
        save(given.json, {"families": found})


if __name__ == "__main__":
    main()
