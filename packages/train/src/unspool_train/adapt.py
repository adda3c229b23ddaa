"""Adapt a causal model to block diffusion: it keeps its next-token head and learns to fill blocks in any order.

loss = causal · NTP on the clean stream + Σ w · CE at the masks + β · Σ w · H at the masks that are right, β > 0 late.

Next-token prediction may learn the model's own laws instead of its documents' tokens (`--faithful`), which keeps what
reads as it was while what fills is learnt.

Two forms, one after the other. First every weight is free. Then the change so far is cut to the size it will have on
disk (delta_compression.py), and its factors are trained on, so that nothing is lost at the end but what rounding to
int8 takes.

Claim: HEURISTIC; decoding by confidence with the adapted weights is approximate, and `evaluate.py` measures by how
much. Papers: complementary masks and a shared clean stream as in Fast-dLLM v2 (arXiv 2509.26328), the kept next-token
loss as in Set Block Decoding (arXiv 2509.04185), certainty as in dParallel (arXiv 2509.26488).
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unspool.core.errors import BadRequest

from .command import BASE, TrainingSettings, command, device_of, setting
from .delta_compression import Delta, lost, write_delta
from .feed import BatchFeed
from .noisy_rows import NoisyBatch, Recipe
from .objective import Objective, Readouts
from .token_corpus import TokenCorpus
from .trained import CHECKPOINT, Trained, begun, keep
from .training_figures import StepSums, exam, marks
from .training_network import Frozen, TrainingNetwork

DELTA = "delta.safetensors"
_RESERVE = 12.0  # seconds for the export and the last validation, on a GPU
_EARLY = 0.12  # share of the time with small blocks only, when nothing was adapted before
_RISE = 0.1  # share of the time over which certainty comes in


@dataclass(frozen=True)
class AdaptSettings(TrainingSettings):
    """What to adapt, on what, for how long."""

    init: str = setting("", "A delta or a checkpoint to go on from: a file or its folder.")
    out: str = setting("adapted", "The folder to write to.")
    minutes: float = setting(12.0, "Wall time for everything, the export included.")
    lr: float = setting(2e-4, "Peak learning rate while every weight is free.")
    fold_lr: float = setting(1e-4, "Peak learning rate of the factors.")
    fold_at: float = setting(0.68, "Share of the time after which the change is cut to size, to train its factors.")
    certainty: float = setting(1.0, "Weight β of the entropy of masked tokens that are already right.")
    certain_at: float = setting(0.4, "Share of the time after which it begins; it grows over the next tenth.")
    greedy: float = setting(0.8, "Share of greedy answers among the documents.")
    causal: float = setting(0.5, "Weight of next-token prediction on the clean stream.")
    faithful: float = setting(0.0, "Share of that which learns the model's own laws instead of its documents' tokens.")
    ordered: float = setting(0.4, "Share of blocks masked roughly in reading order.")
    decay: float = setting(0.93, "Factor on a mask's loss for each mask between it and the visible text on its left.")
    sliding: float = setting(0.0, "Share of documents with windows of masks alone that begin anywhere.")
    window: int = setting(8, "Masks of such a window.")
    fade: float = setting(0.8, "Factor on a mask's loss for each mask on its left in such a window.")
    rows: int = setting(64, "Rows of a batch.")
    width: int = setting(2048, "Tokens of a row; a multiple of 128 on a GPU.")
    accumulate: int = setting(1, "Batches of a step.")
    warmup: int = setting(30, "Steps over which the learning rate rises, in either form.")
    budget: int = setting(39_000_000, "Bytes of the exported change.")
    exam: str = setting("", "Documents to validate on instead of those held out.")
    validation: int = setting(2, "Batches of validation per block size.")
    workers: int = setting(8, "Processes that pack batches.")
    eager: bool = setting(False, "Do not compile.")

    def recipe(self) -> Recipe:
        """How rows are packed."""
        return Recipe(
            self.rows,
            self.width,
            ordered=self.ordered,
            decay=self.decay,
            causal=self.causal,
            sliding=self.sliding,
            window=self.window,
            fade=self.fade,
        )


class AdaptRun:
    """One adaptation: the network, its objective, its log and its clock."""

    def __init__(self, settings: AdaptSettings) -> None:
        self.settings, self.began, self.interrupts = settings, time.monotonic(), Interrupts()
        self.recipe, self.device = settings.recipe(), device_of(settings.device)
        self.on_gpu = self.device.startswith("cuda")
        self.out = Path(settings.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.frozen = Frozen.open(settings.model, self.device)
        self.build(self.on_gpu and not settings.eager)

    def build(self, compiled: bool) -> None:
        """Make the network and the objective, compiled or not."""
        dtype = torch.bfloat16 if self.on_gpu else torch.float32
        recipe = self.recipe
        self.network = TrainingNetwork(self.frozen, dtype, recipe.rows, recipe.width, recipe.mask, compiled)
        self.objective = Objective(self.network.head, recipe.mask, compiled)
        self.origin = {**self.frozen.base, "mask": self.frozen.embedding.mean(0)}

    def elapsed(self) -> float:
        """Seconds since the run was made."""
        return time.monotonic() - self.began

    def say(self, kind: str, **figures: Any) -> None:
        """Write one line to the log and one to the terminal."""
        record = {"kind": kind, "seconds": round(self.elapsed(), 1), **figures}
        with (self.out / "train.jsonl").open("a") as log:
            log.write(json.dumps(record) + "\n")
        shown = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in record.items()
        )
        print(" ".join(shown), flush=True)

    def forward(
        self, weights: Mapping[str, Tensor], batch: NoisyBatch, certainty: float, faithful: float = 0.0
    ) -> tuple[Tensor, Readouts]:
        """The loss of a batch and what was found at its read-outs."""
        sure = np.where((batch.block > 0) & batch.real, batch.weight * np.float32(certainty), np.float32(0.0))
        read, target, weight, force = (
            torch.from_numpy(part).to(self.device) for part in (batch.read, batch.target, batch.weight, sure)
        )
        told = None
        if faithful:
            with torch.no_grad():
                reads = read[: int((batch.block == 0).sum())]
                told = self.network.hidden(self.origin, batch).index_select(0, reads)
        states = self.network.hidden(weights, batch).index_select(0, read)
        return self.objective(states, target, weight, force, told, faithful)

    def validate(self, weights: Mapping[str, Tensor], batches: list[NoisyBatch]) -> dict[str, dict[str, float]]:
        """The marks of these weights."""
        with torch.no_grad():
            return marks(batches, [self.forward(weights, batch, 0.0)[1] for batch in batches])


def adapt(settings: AdaptSettings) -> dict[str, Any]:
    """Run an adaptation and return its last figures; Ctrl-C and a time-out leave an export."""
    if not settings.corpus:
        raise BadRequest("no corpus was given; name .npz files or a folder of them with --corpus.")
    sources = [Path(part) for part in settings.corpus.split(",")]
    run = AdaptRun(settings)
    early = replace(run.recipe, blocks=(4, 8), shares=(0.8, 0.2))  # from a causal model, small blocks first
    recipes = [run.recipe] if settings.init else [early, run.recipe]
    with BatchFeed(sources, recipes, settings.greedy, settings.held, settings.seed, settings.workers) as feed:
        asked = TokenCorpus.read([settings.exam]) if settings.exam else TokenCorpus.read(sources)
        among = asked.split(1.0 if settings.exam else settings.held)[1]
        held = exam(asked, among, settings.validation, run.recipe)
        trained = Trained(begun(settings.init, run.origin) if settings.init else run.origin)
        _settle(run, trained, feed.take())
        run.say("start", device=run.device, compiled=run.network.compiled, figures=run.validate(trained.plain(), held))
        with run.interrupts:
            steps = _loop(run, trained, feed, held)
    return _export(run, trained, held, steps)


def _settle(run: AdaptRun, trained: Trained, batch: NoisyBatch) -> None:
    """Compute one gradient and throw it away; where compiling fails, go on without."""
    try:
        run.forward(trained.weights(), batch, 1.0, run.settings.faithful)[0].backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # the compiler raises what it likes
        if not run.network.compiled:
            raise
        run.say("fallback", why=f"{type(error).__name__}: {str(error)[:500]}")
        run.build(False)
        run.forward(trained.weights(), batch, 1.0, run.settings.faithful)[0].backward()  # type: ignore[no-untyped-call]
    for parameter in trained.parameters():
        parameter.grad = None


class Interrupts:
    """While open, an interrupt or a termination asks the loop to end after its step, so that the export follows.

    The loop looks, after each step, whether it was asked to (`stopped`).
    """

    def __init__(self) -> None:
        self.stopped = False
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        def stop(number: int, frame: object) -> None:
            self.stopped = True

        with suppress(ValueError):  # only the main thread may do this
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, stop)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def rate(peak: float, step: int, warmup: int, done: float) -> float:
    """Rise over `warmup` steps, and fall on half a cosine from the peak to a twentieth of it as `done` goes to 1."""
    return peak * min(1.0, (step + 1) / max(warmup, 1)) * (0.05 + 0.475 * (1 + math.cos(math.pi * min(done, 1.0))))


def _optimiser(trained: Trained, fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(trained.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.0, fused=fused)


def _loop(run: AdaptRun, trained: Trained, feed: BatchFeed, held: list[NoisyBatch]) -> int:
    """Train until the time is up; return the number of steps."""
    settings, began = run.settings, run.elapsed()
    ends = max(settings.minutes * 60 - (_RESERVE if run.on_gpu else 0.0), began + 1.0)
    optimiser = _optimiser(trained, run.on_gpu)
    step = formed = 0  # steps, and steps in this form
    turned = validated = 0.0
    passed = StepSums(run.elapsed())
    while not run.interrupts.stopped:
        done = (run.elapsed() - began) / (ends - began)
        done = max(done, step / settings.steps) if settings.steps else done
        if done >= 1.0:
            break
        feed.stage.value = int(done > _EARLY)
        if not trained.folded and done >= settings.fold_at:
            _fold(run, trained)
            optimiser, formed, turned = _optimiser(trained, run.on_gpu), 0, done
        if trained.folded:
            lr = rate(settings.fold_lr, formed, settings.warmup, (done - turned) / (1.0 - turned))
        else:
            lr = rate(settings.lr, formed, settings.warmup, done)
        for group in optimiser.param_groups:
            group["lr"] = lr
        beta = settings.certainty * min(max((done - settings.certain_at) / _RISE, 0.0), 1.0)
        for _ in range(settings.accumulate):
            waiting = run.elapsed()
            batch = feed.take()
            waited = run.elapsed() - waiting
            loss, answer = run.forward(trained.weights(), batch, beta, settings.faithful)
            (loss / settings.accumulate).backward()  # type: ignore[no-untyped-call]
            passed.add(batch, answer, waited)
        norm = torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        step, formed = step + 1, formed + 1
        if step == 1 or step % 25 == 0:
            figures = passed.figures(run.elapsed())
            run.say("step", step=step, done=done, lr=lr, beta=beta, norm=float(norm), **figures)
            if not math.isfinite(figures["causal"] + figures["block"]):
                raise FloatingPointError(f"the loss is no number at step {step}; lower --lr.")
            passed = StepSums(run.elapsed())
        if done - validated >= 0.2:
            validated = done
            run.say("validation", done=done, figures=run.validate(trained.plain(), held))
            keep(trained.plain(), run.out / CHECKPOINT)
            if trained.folded:  # what is there if the run is killed
                delta = trained.delta(run.frozen.base, settings.budget)
                write_delta(run.out / DELTA, delta, base_name(settings.model), run.recipe.mask)
            passed = StepSums(run.elapsed())
    return step


def _fold(run: AdaptRun, trained: Trained) -> None:
    """Cut the change to its final size, write it, and train its factors from here on."""
    began, base = run.elapsed(), run.frozen.base
    with torch.no_grad():
        delta = trained.delta(base, run.settings.budget)
        write_delta(run.out / DELTA, delta, base_name(run.settings.model), run.recipe.mask)
        shares = lost(delta, trained.plain(), base)
        trained.fold(base, delta)
    run.say("fold", took=run.elapsed() - began, lost=shares, ranks=_ranks(delta))


def _export(run: AdaptRun, trained: Trained, held: list[NoisyBatch], steps: int) -> dict[str, Any]:
    """Write the change and validate what was written."""
    base, path = run.frozen.base, run.out / DELTA
    with torch.no_grad():
        weights = trained.plain()
        delta = trained.delta(base, run.settings.budget)
        stored = write_delta(path, delta, base_name(run.settings.model), run.recipe.mask).to(run.device)
        free = run.validate(weights, held)
        figures = run.validate(stored.applied(base), held)
        shares = lost(stored, weights, base)
    size = path.stat().st_size
    run.say("end", steps=steps, figures=free)
    run.say("export", file=str(path), bytes=size, lost=shares, ranks=_ranks(stored), figures=figures)
    return {"steps": steps, "bytes": size, "lost": shares, "free": free, "stored": figures}


def _ranks(delta: Delta) -> dict[str, list[int]]:
    """Smallest, mean and largest rank by kind of matrix."""
    kinds: dict[str, list[int]] = {}
    for name, factors in delta.factors.items():
        kinds.setdefault(name.rsplit(".", 1)[-1], []).append(factors.left.shape[1])
    return {kind: [min(ranks), round(sum(ranks) / len(ranks)), max(ranks)] for kind, ranks in kinds.items()}


def base_name(model: str) -> str:
    """What a file says it belongs to."""
    return BASE if BASE in model.lower() else Path(model).stem


if __name__ == "__main__":
    sys.exit(command(AdaptSettings, "Adapt a causal model to block diffusion.", adapt))
