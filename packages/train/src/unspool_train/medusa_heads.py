"""Train heads that look ahead (Medusa): small blocks on the model's last state, read by the model's own frozen head.

head_k(h_t, x_{t+1}) guesses token t + 1 + k, k = 1..K. loss = Σ_k 0.8^k · KL(the model's law of that token ‖ head_k)
over answers in the model's own words, so that a head learns what the model would say and not what a text happened to.

Claim: none is needed; drafts are verified, and bad heads cost time alone. Papers: heads, decay and the tied start as in
Medusa-1 (arXiv 2401.10774), where heads have output matrices of their own and do not know x_{t+1}; the model's law as
the target and a head that knows x_{t+1} as in Hydra (arXiv 2402.05109), whose later heads also know each other's.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch.nn import functional

from unspool.core.errors import BadRequest
from unspool.runtime.network.lookahead_heads import Matrices, bent

from .adapt import base_name, rate
from .chunked_loss import CHUNK, Slopes, foreseen, slopes
from .command import TrainingSettings, command, device_of, setting
from .rows import PaddedBatch, batch_of, batches
from .teacher import Teacher
from .token_corpus import TokenCorpus
from .training_network import Frozen

FILE = "heads.safetensors"
DECAY = 0.8
WARMUP = 30  # steps over which the learning rate rises
TOPS = (1, 2, 4, 8)


@dataclass(frozen=True)
class HeadsSettings(TrainingSettings):
    """Which heads, on what, for how long."""

    out: str = setting("heads", "The folder to write to.")
    heads: int = setting(4, "How many heads: how far ahead to guess.")
    blocks: int = setting(1, "Residual blocks of each head.")
    blind: bool = setting(False, "Do not let heads read the token that follows the state, as in the paper.")
    minutes: float = setting(5.0, "Wall time.")
    lr: float = setting(1e-3, "Peak learning rate.")
    tokens: int = setting(65_536, "Tokens of a step, padding included.")


@dataclass
class HeadsProgress:
    """What training has done so far: steps, tokens, and every head's loss at the first and at the last step."""

    steps: int = 0
    tokens: int = 0
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)


def heads(settings: HeadsSettings) -> dict[str, Any]:
    """Train heads and write them with how often they are right; Ctrl-C ends training and writes what there is."""
    if not settings.corpus:
        raise BadRequest("no corpus was given; name .npz files or a folder of them with --corpus.")
    for name, value in (("heads", settings.heads), ("blocks", settings.blocks), ("tokens", settings.tokens)):
        if value < 1:
            raise BadRequest(f"--{name} is {value}; expected at least 1.")
    began, device = time.monotonic(), device_of(settings.device)
    corpus = TokenCorpus.read([Path(part) for part in settings.corpus.split(",")])
    among, held = corpus.split(settings.held, settings.seed)
    teacher = Teacher(Frozen.open(settings.model, device))
    dim, count, depth = teacher.frozen.shape.dim, settings.heads, settings.blocks
    sizes = [(count, depth, dim, dim), (count, depth, dim), *([] if settings.blind else [(count, dim, dim)])]
    of = Matrices(*(torch.zeros(size, device=device, requires_grad=True) for size in sizes))
    out, passed = Path(settings.out), HeadsProgress()
    out.mkdir(parents=True, exist_ok=True)
    try:
        rng = np.random.default_rng(settings.seed)
        stream = batches(corpus, among, rng, settings.greedy, settings.tokens, device)
        train(teacher, of, stream, settings, passed, began)
    except KeyboardInterrupt:
        print(f"stopped after {passed.steps} steps; what was learned is written", flush=True)
    kept = {name: part.detach().bfloat16().cpu() for name, part in of._asdict().items() if part is not None}
    about = {"kind": "medusa", "base": base_name(settings.model), "steps": str(passed.steps)}
    save_file(kept, out / f"{FILE}.part", metadata=about)
    (out / f"{FILE}.part").replace(out / FILE)
    stored = Matrices(**{name: part.to(device).float() for name, part in kept.items()})
    found = {**asdict(passed), "hits": hits(teacher, corpus, held, stored)}
    (out / "heads.json").write_text(json.dumps(found, indent=1) + "\n")
    for kind, rows in found["hits"].items():
        for number, row in enumerate(rows, 1):
            print(f"{kind:8} head {number}: " + ", ".join(f"top {k} {p:.3f}" for k, p in zip(TOPS, row, strict=True)))
    print(f"{out / FILE}: {(out / FILE).stat().st_size:,} bytes")
    return found


def train(
    teacher: Teacher,
    of: Matrices,
    stream: Iterator[PaddedBatch],
    settings: HeadsSettings,
    passed: HeadsProgress,
    began: float,
) -> None:
    """Train until the time is up or all steps are made, and take note of what has passed."""
    rule: Slopes = torch.compile(slopes, dynamic=True) if teacher.head.is_cuda else slopes
    parts, began_steps = [part for part in of if part is not None], time.monotonic()
    optimiser = torch.optim.AdamW(parts, lr=0.0, betas=(0.9, 0.95), weight_decay=0.0)
    while True:
        done = (time.monotonic() - began) / (settings.minutes * 60)
        done = max(done, passed.steps / settings.steps) if settings.steps else done
        if done >= 1:
            return
        for group in optimiser.param_groups:
            group["lr"] = rate(settings.lr, passed.steps, WARMUP, done)
        batch = next(stream)
        passed.last = learned(teacher, batch, of, rule)
        if not all(map(math.isfinite, passed.last)):
            raise FloatingPointError(f"the loss is no number at step {passed.steps}; lower --lr.")
        norm = torch.nn.utils.clip_grad_norm_(parts, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        passed.steps, passed.tokens = passed.steps + 1, passed.tokens + int(batch.lengths.sum())
        passed.first = passed.first or passed.last
        if passed.steps == 1 or passed.steps % 25 == 0:
            losses = " ".join(f"{loss:.3f}" for loss in passed.last)
            pace = passed.tokens / (time.monotonic() - began_steps)
            told = f"step {passed.steps} done {done:.2f} loss {losses} norm {float(norm):.3g} {pace:,.0f} tokens/s"
            print(told, flush=True)


def learned(teacher: Teacher, batch: PaddedBatch, of: Matrices, rule: Slopes) -> list[float]:
    """Add the slopes of a batch; return every head's mean cross-entropy."""
    count = len(of.blocks)
    with torch.no_grad():
        row, place = batch.answers().unbind(1)
        states, then = teacher.states(batch.tokens)[row, place], batch.tokens[row, place + 1]
        sums, total = torch.zeros(count, device=states.device), max(len(row) - count, 1)
    for first in range(0, len(row) - count, CHUNK):
        last = min(first + CHUNK, len(row) - count)
        laws = teacher.laws(states[first : last + count], None)  # at these places and the next few, for all heads
        words = teacher.embedding[then[first:last]].float()
        ahead = bent(states[first:last].float(), words, of)
        loss = torch.zeros((), device=states.device)
        for k in range(1, count + 1):
            same = (row[first + k : last + k] == row[first:last]).float() / total
            own = foreseen(ahead[:, k - 1], teacher.head, laws[k:][: last - first], same, rule)
            loss, sums[k - 1] = loss + DECAY**k * own, sums[k - 1] + own.detach()
        loss.backward()  # type: ignore[no-untyped-call]
    return sums.tolist()


@torch.no_grad()
def hits(teacher: Teacher, corpus: TokenCorpus, held: NDArray[np.int64], of: Matrices) -> dict[str, list[list[float]]]:
    """How often the token that came is among a head's best, by the kind of answer, head by head."""
    found, count = {}, len(of.blocks)
    for kind, among in (("greedy", held[corpus.greedy[held]]), ("drawn", held[~corpus.greedy[held]])):
        right, total = torch.zeros(count, len(TOPS)), 0
        chosen = [int(index) for index in among[:512]]
        for first in range(0, len(chosen), 32):
            batch = batch_of(corpus, chosen[first : first + 32], str(teacher.head.device))
            row, place = batch.answers().unbind(1)
            inside = place + 1 + count < batch.lengths[row]
            row, place = row[inside], place[inside]
            words = teacher.embedding[batch.tokens[row, place + 1]].float()
            ahead = bent(teacher.states(batch.tokens)[row, place].float(), words, of)
            total += len(row)
            for k in range(count):
                logits = functional.linear(ahead[:, k].to(teacher.dtype), teacher.head)
                hit = logits.topk(TOPS[-1], 1).indices == batch.tokens[row, place + 2 + k][:, None]
                right[k] += torch.stack([hit[:, :top].any(1).sum() for top in TOPS]).cpu()
        if total:
            found[kind] = (right / total).tolist()
    return found


if __name__ == "__main__":
    sys.exit(command(HeadsSettings, "Train heads that look ahead.", heads))
