"""Teach the pupil of `unspool bench parallel`: python bench/pupil.py [--out FILE] [--log FILE].

One core takes about six minutes; an interrupt ends the lesson early. The seed fixes every question and every initial
weight; on another processor, or with another release of PyTorch, rounding may still lead to slightly other weights.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import Random
from time import process_time

import record
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from unspool_bench.lesson import Lesson, error
from unspool_bench.pupil import LAYERS, WEIGHTS, WIDTH, Pupil
from unspool_bench.tasks import TASKS

SIZES = (3, 6, 8)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=Lesson.steps)
    options.add_argument("--batch", type=int, default=Lesson.batch)
    options.add_argument("--rate", type=float, default=Lesson.rate)
    options.add_argument("--seed", type=int, default=Lesson.seed)
    options.add_argument("--out", default=str(WEIGHTS))
    options.add_argument("--log", default="bench/results/parallel-pupil.json")
    given = options.parse_args()
    torch.set_num_threads(1)
    lesson = Lesson(given.steps, given.batch, given.rate, seed=given.seed)
    losses: list[float] = []
    began = process_time()
    network = lesson.begin()
    try:
        for loss in tqdm(lesson(network), total=given.steps, unit="step", disable=not sys.stderr.isatty()):
            losses.append(loss)
            if len(losses) % 250 == 0:
                mean = sum(losses[-250:]) / 250
                print(f"step {len(losses)}: loss {mean:.4f}, {process_time() - began:.0f} s of one core", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(losses)} steps; what was learnt is kept")
    seconds = process_time() - began
    save_file({name: weight.half().contiguous() for name, weight in network.state_dict().items()}, given.out)
    pupil = Pupil.load(Path(given.out))  # as it will be used: rounded to half precision
    errors = {
        name: {n: error(pupil, task, n, Random(1)) for n in dict.fromkeys(min(n, task.most) for n in SIZES)}
        for name, task in TASKS.items()
    }
    for name, found in errors.items():
        print(f"{name:15}", "  ".join(f"n = {n}: {nats:.4f}" for n, nats in found.items()))
    means = [sum(losses[i : i + 250]) / len(losses[i : i + 250]) for i in range(0, len(losses), 250)]
    result = {
        "command": f"python bench/pupil.py --steps {given.steps} --batch {given.batch} --rate {given.rate} "
        f"--seed {given.seed}",
        "steps": len(losses),
        "layers": LAYERS,
        "width": WIDTH,
        "weights": sum(weight.numel() for weight in network.parameters()),
        "core_seconds": seconds,
        "loss_by_250_steps": means,
        "error_nats_per_hole": errors,
    }
    record.save(given.log, result)


if __name__ == "__main__":
    main()
