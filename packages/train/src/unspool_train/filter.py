"""Train the filter of `filtered` on what a model says when it is told which of its guesses are right.

For every prompt the slow sampler, one token per look, writes the text y*. An oracle then decodes it again, block by
block: at each look it fills exactly the holes whose most probable token is that of y*, and takes down how sure the
model was of every hole and which were right.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from unspool.api.loader import load
from unspool.core.asks import Decoding, Done, Emit, Look
from unspool.core.canvas import Canvas, Field
from unspool.core.chance import Chance, Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp.warp import Temperature, Warp
from unspool.loops.denoise import Denoise
from unspool.loops.unmasker import FixedBlocks
from unspool.rules.unmask.confident import Confident
from unspool.rules.unmask.filtered import Filter, certainties
from unspool.runtime.engine.contracts import Infill
from unspool.runtime.engine.engine import Engine

from .command import command, device_of, setting

BATCH = 32  # prompts whose texts are written together


@dataclass(frozen=True)
class FilterSettings:
    """What to learn from, and where to write it."""

    model: str = setting("smollm2-diffusion", "A model that fills holes.")
    prompts: str = setting("", "A file of prompts, one a line.")
    count: int = setting(64, "How many of them to take.")
    answer: int = setting(64, "Tokens of each answer.")
    block: int = setting(16, "Places of a block, which is all that the filter knows.")
    width: int = setting(32, "Units between its two layers.")
    steps: int = setting(2000, "Steps of training.")
    out: str = setting("filter.safetensors", "The file to write.")
    seed: int = setting(0, "The seed of its first weights, and of which looks are held out.")
    device: str = setting("auto", "cpu or cuda; auto takes a GPU if there is one.")


class FilterExamples(NamedTuple):
    """One row per look: how sure the model was at each place of the block, what was right, and what was a hole."""

    sure: Tensor  # [looks, block]
    right: Tensor
    open: Tensor


@dataclass
class OracleFilling:
    """Fill exactly what is right, in blocks of `block` places, and take notes."""

    truth: tuple[int, ...]
    block: int
    notes: list[tuple[list[float], list[float], list[float]]] = field(default_factory=list)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Write the truth after `text`."""
        canvas, blocks = Canvas.blank(text, len(self.truth)), FixedBlocks(self.block)
        while (canvas := blocks(canvas)).holes:
            seen: Field = yield Look(canvas)
            right = {i: x for i in canvas.holes if seen.peaks[i].token == (x := self.truth[i - len(text)])}
            self._note(canvas, seen, right)
            # nothing right: no look will say anything else, so the truth is told
            canvas = canvas.fill(right or {i: self.truth[i - len(text)] for i in canvas.holes})
        points = [Law.point(x) for x in self.truth]
        yield Emit(self.truth, points, points, canvas=canvas)
        return Done(self.truth, "length")

    def _note(self, canvas: Canvas, seen: Field, right: dict[int, int]) -> None:
        low = canvas.window[0]
        places = range(low, low + self.block)
        sure = certainties(canvas, {i: seen.peaks[i].p for i in canvas.holes}, self.block)
        self.notes.append((sure, [float(i in right) for i in places], [float(i in seen) for i in places]))


def examples(model: Infill, prompts: Sequence[tuple[int, ...]], size: int, block: int = 32) -> FilterExamples:
    """What the oracle takes down for these prompts, with answers of `size` tokens."""
    if not prompts:
        raise BadRequest("a filter needs at least one prompt to learn from; none was given")
    engine, greedy = Engine({"target": model}), Temperature(0.0)
    slow = Denoise(Confident(math.inf), size, FixedBlocks(block))
    texts = [engine.submit(slow, prompt, Philox(0), greedy, Stop()) for prompt in prompts]
    engine.run()
    oracles = [OracleFilling(job.result().tokens, block) for job in texts]
    told = [engine.submit(o, prompt, Philox(0), greedy, Stop()) for o, prompt in zip(oracles, prompts, strict=True)]
    engine.run()
    for job in told:
        job.result()
    columns = zip(*(note for oracle in oracles for note in oracle.notes), strict=True)
    return FilterExamples(*(torch.tensor(column) for column in columns))


class TrainedFilter(NamedTuple):
    """A filter, its loss on looks it was not trained on, and the share of what it passes there that is wrong."""

    filter: Filter
    loss: float
    wrong: float


def train(
    data: FilterExamples, width: int = 32, steps: int = 2000, rate: float = 3e-3, threshold: float = 0.9, seed: int = 0
) -> TrainedFilter:
    """Minimise the binary cross-entropy over the holes, all looks in each of `steps` steps of AdamW.

    A tenth of the looks is held out. The paper makes 40,000 steps and averages over filled places too, which are right
    by themselves and drown the others; here only holes count.
    """
    count = len(data.sure)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    held = max(1, count // 10)
    if count < 2:
        raise BadRequest(f"a filter needs at least 2 looks to learn from; the prompts gave {count}: give more of them")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Filter(data.sure.shape[1], width)
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate)
    seen, kept = (FilterExamples(*(part[rows] for part in data)) for rows in (order[held:], order[:held]))
    for _ in range(steps):
        optimiser.zero_grad()
        _loss(net, seen).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        passed = (net(kept.sure).sigmoid() > threshold) & (kept.open > 0)
        wrong = float((passed & (kept.right == 0)).sum()) / max(1, int(passed.sum()))
        return TrainedFilter(net.eval().requires_grad_(False), float(_loss(net, kept)), wrong)


def _loss(net: Filter, data: FilterExamples) -> Tensor:
    each = torch.nn.functional.binary_cross_entropy_with_logits(net(data.sure), data.right, reduction="none")
    return (each * data.open).sum() / data.open.sum()


def learn(settings: FilterSettings) -> TrainedFilter:
    """Write texts slowly, let the oracle tell what was right, train a filter on that, and save it."""
    if not settings.prompts:
        raise BadRequest("a filter learns from prompts; name a file of them, one a line, with --prompts.")
    for name, low in (("count", 1), ("answer", 1), ("block", 1), ("width", 1), ("steps", 1)):
        if getattr(settings, name) < low:
            raise BadRequest(f"--{name} is {getattr(settings, name)}; expected a whole number from {low} on.")
    lines = [line for line in Path(settings.prompts).read_text(encoding="utf-8").splitlines() if line.strip()]
    device = device_of(settings.device)
    lm = load(settings.model, device=device, dtype="bf16" if device.startswith("cuda") else "fp32")
    if not isinstance(lm.model, Infill):
        raise BadRequest(f"{settings.model} reads left to right; a filter is for a model that fills holes.")
    prompts = [lm.encode(lm.asked(line)) for line in lines[: settings.count]]
    told = list[FilterExamples]()
    for first in range(0, len(prompts) or 1, BATCH):
        told.append(examples(lm.model, prompts[first : first + BATCH], settings.answer, settings.block))
        print(f"# {sum(len(each.sure) for each in told):,} looks", flush=True)
    joined = FilterExamples(*(torch.cat(parts) for parts in zip(*told, strict=True)))
    found = train(joined, settings.width, settings.steps, seed=settings.seed)
    Path(settings.out).parent.mkdir(parents=True, exist_ok=True)
    found.filter.save(settings.out)
    print(f"# loss on looks held out {found.loss:.4f}; of what passes there {found.wrong:.2%} is wrong", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(command(FilterSettings, "Train the filter of the method filtered.", learn))
