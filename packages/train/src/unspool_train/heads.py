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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from unspool.core.errors import BadRequest
from unspool.runtime.network.lookahead_heads import Matrices, bent

from .adapt import base_name, rate
from .command import BASE, command, device_of, setting
from .corpus import Corpus
from .network import MATRICES, NORMS, Frozen, layer, normed

FILE = "heads.safetensors"
DECAY = 0.8
WARMUP = 30  # steps over which the learning rate rises
CHUNK = 8192  # anchors whose laws over the whole vocabulary are in memory at a time
TOPS = (1, 2, 4, 8)
Laid: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
Slopes: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Settings:
    """Which heads, on what, for how long."""

    model: str = setting(BASE, "A catalogue name, a .gguf file, or a folder of safetensors.")
    corpus: str = setting("", "Files or folders of documents (.npz, .npz.gz), separated by commas.")
    out: str = setting("heads", "The folder to write to.")
    heads: int = setting(4, "How many heads: how far ahead to guess.")
    blocks: int = setting(1, "Residual blocks of each head.")
    blind: bool = setting(False, "Do not let heads read the token that follows the state, as in the paper.")
    minutes: float = setting(5.0, "Wall time.")
    steps: int = setting(0, "Stop after so many steps; 0: by time alone.")
    lr: float = setting(1e-3, "Peak learning rate.")
    tokens: int = setting(65_536, "Tokens of a step, padding included.")
    greedy: float = setting(0.5, "Share of greedy answers among the documents.")
    held: float = setting(0.01, "Share of the documents held out.")
    seed: int = setting(0, "The seed of the order of documents.")
    device: str = setting("auto", "cpu or cuda; auto takes a GPU if there is one.")


@dataclass(frozen=True)
class Batch:
    """Documents of similar length, one per row, padded on the right; their lengths and those of their prompts."""

    tokens: Tensor
    lengths: Tensor
    prompts: Tensor

    def answers(self) -> Tensor:
        """Places [n, 2] (row, t), row by row, with token t + 1 in the answer."""
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device)[None]
        return ((place + 1 >= self.prompts[:, None]) & (place + 1 < self.lengths[:, None])).nonzero()


@dataclass
class Passed:
    """What training has done so far: steps, tokens, and every head's loss at the first and at the last step."""

    steps: int = 0
    tokens: int = 0
    first: list[float] = field(default_factory=list)
    last: list[float] = field(default_factory=list)


def heads(settings: Settings) -> dict[str, Any]:
    """Train heads and write them with how often they are right; Ctrl-C ends training and writes what there is."""
    if not settings.corpus:
        raise BadRequest("no corpus was given; name .npz files or a folder of them with --corpus.")
    for name, value in (("heads", settings.heads), ("blocks", settings.blocks), ("tokens", settings.tokens)):
        if value < 1:
            raise BadRequest(f"--{name} is {value}; expected at least 1.")
    began, device = time.monotonic(), device_of(settings.device)
    corpus = Corpus.read([Path(part) for part in settings.corpus.split(",")])
    among, held = corpus.split(settings.held, settings.seed)
    teacher = Teacher(Frozen.open(settings.model, device))
    dim, count, depth = teacher.frozen.shape.dim, settings.heads, settings.blocks
    sizes = [(count, depth, dim, dim), (count, depth, dim), *([] if settings.blind else [(count, dim, dim)])]
    of = Matrices(*(torch.zeros(size, device=device, requires_grad=True) for size in sizes))
    out, passed = Path(settings.out), Passed()
    out.mkdir(parents=True, exist_ok=True)
    try:
        train(teacher, of, batches(corpus, among, settings, device), settings, passed, began)
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
    teacher: Teacher, of: Matrices, stream: Iterator[Batch], settings: Settings, passed: Passed, began: float
) -> None:
    """Train until the time is up or all steps are made, and take note of what has passed."""
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
        passed.last = learned(teacher, batch, of)
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


class Teacher:
    """The frozen model: the states that heads read, and the laws that they are to foresee."""

    def __init__(self, frozen: Frozen) -> None:
        self.frozen, self.dtype = frozen, torch.bfloat16 if frozen.head.is_cuda else torch.float32
        self.head, self.embedding = frozen.head.to(self.dtype), frozen.embedding.to(self.dtype)
        self.slopes: Slopes = torch.compile(slopes, dynamic=True) if frozen.head.is_cuda else slopes
        self.layers = [self._laid_out(index) for index in range(frozen.shape.layers)]

    def _laid_out(self, index: int) -> Laid:
        """The weights of a layer, as `layer` takes them."""
        own = {name: self.frozen.base[f"layers.{index}.{name}"].to(self.dtype) for name in (*MATRICES, *NORMS)}
        qkv, gate_up = (torch.cat([own[name] for name in names]) for names in (("q", "k", "v"), ("gate", "up")))
        return own["norm1"], qkv, own["o"], own["norm2"], gate_up, own["down"]

    @torch.no_grad()
    def states(self, tokens: Tensor) -> Tensor:
        """What leaves the last norm [rows, width, dim]."""
        shape = self.frozen.shape
        cos, sin = self.frozen.rotation(torch.arange(tokens.shape[1], device=tokens.device)[None, None])
        x = self.embedding[tokens]
        for weights in self.layers:
            x = layer(x, *weights, cos, sin, None, shape.heads, shape.kv_heads, shape.norm_eps)
        return normed(x, self.frozen.base["norm"], shape.norm_eps)


def slopes(logits: Tensor, wanted: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Σ weight · KL(wanted ‖ softmax(logits)) over rows but for the entropies of `wanted`, and the slope in logits."""
    wide = logits.float()
    total = wide.logsumexp(1)
    slope = ((wide - total[:, None]).exp() - wanted) * weight[:, None]
    return (weight * (total - (wanted * wide).sum(1))).sum(), slope.to(logits.dtype)


class Foresight(torch.autograd.Function):
    """Σ weight · KL(wanted ‖ softmax(x·Wᵀ)) but for entropies; the slope in x is made at once, and no logits kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, head: Tensor, wanted: Tensor, weight: Tensor, slopes: Slopes) -> Tensor:
        """`wanted` are the probabilities [n, vocab] that x is to give."""
        loss, slope = slopes(functional.linear(x.to(head.dtype), head), wanted, weight)
        ctx.save_for_backward(slope @ head)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None, None, None, None]:
        """The slope, which is known already."""
        return ctx.saved_tensors[0].float() * grads[0], None, None, None, None


def learned(teacher: Teacher, batch: Batch, of: Matrices) -> list[float]:
    """Add the slopes of a batch; return every head's mean cross-entropy."""
    count = len(of.blocks)
    with torch.no_grad():
        row, place = batch.answers().unbind(1)
        states, then = teacher.states(batch.tokens)[row, place], batch.tokens[row, place + 1]
        sums, total = torch.zeros(count, device=states.device), max(len(row) - count, 1)
    for first in range(0, len(row) - count, CHUNK):
        last = min(first + CHUNK, len(row) - count)
        with torch.no_grad():  # the model's laws at these places and the next few, once for all heads
            laws = functional.linear(states[first : last + count], teacher.head).float().softmax(1)
        words = teacher.embedding[then[first:last]].float()
        foreseen = bent(states[first:last].float(), words, of)
        loss = torch.zeros((), device=states.device)
        for k in range(1, count + 1):
            same = (row[first + k : last + k] == row[first:last]).float() / total
            own: Tensor = Foresight.apply(
                foreseen[:, k - 1], teacher.head, laws[k:][: last - first], same, teacher.slopes
            )  # type: ignore[no-untyped-call]
            loss, sums[k - 1] = loss + DECAY**k * own, sums[k - 1] + own.detach()
        loss.backward()  # type: ignore[no-untyped-call]
    return sums.tolist()


def batches(corpus: Corpus, among: NDArray[np.int64], settings: Settings, device: str) -> Iterator[Batch]:
    """Batches for ever: documents of similar length together, in a random order of lengths."""
    rng = np.random.default_rng(settings.seed)
    documents = corpus.stream(rng, among, settings.greedy)
    while True:
        some = sorted((next(documents) for _ in range(4096)), key=lambda i: corpus.starts[i + 1] - corpus.starts[i])
        groups: list[list[int]] = [[]]
        for index in some:
            width = int(corpus.starts[index + 1] - corpus.starts[index])
            if groups[-1] and (len(groups[-1]) + 1) * width > settings.tokens:
                groups.append([])
            groups[-1].append(index)
        for number in rng.permutation(len(groups)):
            yield batch_of(corpus, groups[number], device)


def batch_of(corpus: Corpus, chosen: list[int], device: str) -> Batch:
    """These documents as rows."""
    documents = [corpus[index] for index in chosen]
    tokens = np.zeros((len(documents), max(len(one.tokens) for one in documents)), np.int64)
    for row, one in enumerate(documents):
        tokens[row, : len(one.tokens)] = one.tokens
    lengths, prompts = [len(one.tokens) for one in documents], [one.prompt for one in documents]
    return Batch(*(torch.as_tensor(part).to(device) for part in (tokens, lengths, prompts)))


@torch.no_grad()
def hits(teacher: Teacher, corpus: Corpus, held: NDArray[np.int64], of: Matrices) -> dict[str, list[list[float]]]:
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
            foreseen = bent(teacher.states(batch.tokens)[row, place].float(), words, of)
            total += len(row)
            for k in range(count):
                logits = functional.linear(foreseen[:, k].to(teacher.dtype), teacher.head)
                hit = logits.topk(TOPS[-1], 1).indices == batch.tokens[row, place + 2 + k][:, None]
                right[k] += torch.stack([hit[:, :top].any(1).sum() for top in TOPS]).cpu()
        if total:
            found[kind] = (right / total).tolist()
    return found


if __name__ == "__main__":
    sys.exit(command(Settings, "Train heads that look ahead.", heads))
