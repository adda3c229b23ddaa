"""Train a small model that fills holes, from nothing, on lines of text, and write it as a folder that loads.

A kind says what is learnt: `next` reads from left to right (AR2Diff's beginning), `holes` is masked diffusion,
`unrolled` corrects whole texts (AR2Diff, for the method resample), `certain` makes what is right certain (dParallel,
for peaked), `gaps` says what goes between two tokens or that nothing does (POINTER, for insert). With --init a model
goes on from another kind's folder.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from unspool.core.errors import BadRequest

from ..adapt import Interrupts, rate
from ..command import command, setting
from .filler_network import FillerSize, SmallNetwork, write_folder
from .text_losses import Certain, Gaps, Holes, Next, TextLoss, Texts, Unrolled
from .texts import batches, encoded, lines_of, tokenizer_of


@dataclass(frozen=True)
class FillerSettings:
    """What to learn, from what, and for how long."""

    kind: str = setting("holes", "What to learn: next, holes, unrolled, certain or gaps.")
    texts: str = setting("", "Files of texts, one a line (.gz too), separated by commas.")
    init: str = setting("", "A folder of this command to go on from, with its tokens and its size.")
    out: str = setting("filler", "The folder to write to.")
    minutes: float = setting(3.0, "Wall time.")
    steps: int = setting(0, "Stop after so many steps; 0: by time alone.")
    vocab: int = setting(0, "Tokens; 0: bytes.")
    width: int = setting(128, "Numbers of a state.")
    layers: int = setting(4, "Layers.")
    heads: int = setting(4, "Heads of attention.")
    longest: int = setting(64, "Tokens of a text; longer ones are left out.")
    most: int = setting(100_000, "Texts to read.")
    batch: int = setting(64, "Texts of a step.")
    lr: float = setting(2e-3, "Peak learning rate.")
    held: int = setting(256, "Texts that are held out to say how well it does.")
    certainty: float = setting(2.0, "Weight of the entropy, for the kind certain.")
    seed: int = setting(0, "The seed of first weights, order and holes.")


KINDS: Mapping[str, Callable[[FillerSettings, Texts], TextLoss]] = {
    "next": lambda settings, texts: Next(),
    "holes": lambda settings, texts: Holes(),
    "unrolled": lambda settings, texts: Unrolled(),
    "certain": lambda settings, texts: Certain(settings.certainty),
    "gaps": lambda settings, texts: Gaps.of(texts),
}


def filler(settings: FillerSettings) -> dict[str, Any]:
    """Train, write the folder, and return what was found; Ctrl-C ends training and writes what there is."""
    if settings.kind not in KINDS:
        raise BadRequest(f"--kind {settings.kind!r} is not known; expected one of {', '.join(KINDS)}.")
    if settings.width % settings.heads or settings.width // settings.heads % 2:
        raise BadRequest(f"--width {settings.width} is not {settings.heads} heads of an even number of numbers each.")
    torch.manual_seed(settings.seed)
    lines = lines_of(settings.texts, settings.most)
    tokenizer = _tokens(settings, lines)
    texts = encoded(tokenizer, lines, settings.longest)
    held, texts = texts[: min(settings.held, len(texts) // 10)], texts[min(settings.held, len(texts) // 10) :]
    if len(texts) < settings.batch or not held:
        raise BadRequest(f"{len(texts)} texts have at most {settings.longest} tokens; a batch has {settings.batch}.")
    size = FillerSize(tokenizer.get_vocab_size(), settings.width, settings.layers, settings.heads)
    network = SmallNetwork(size, settings.kind == "next")
    if settings.init:
        network.take(settings.init)
    lesson = KINDS[settings.kind](settings, texts)
    with Interrupts() as asked:
        steps, loss = _loop(settings, network, lesson, texts, asked)
    found = {"kind": settings.kind, "steps": steps, "loss": loss, "held_out": measured(network, lesson, held)}
    write_folder(Path(settings.out), network, tokenizer, {**asdict(settings), **found})
    print(f"{settings.out}: {steps} steps, held-out loss {found['held_out']:.4f}", flush=True)
    return found


def _tokens(settings: FillerSettings, lines: list[str]) -> Tokenizer:
    if not settings.init:
        return tokenizer_of(lines, settings.vocab)
    file = Path(settings.init).expanduser() / "tokenizer.json"
    if not file.is_file():
        raise BadRequest(f"--init {settings.init} has no tokenizer.json; expected a folder of this command.")
    return Tokenizer.from_file(str(file))


def _loop(
    settings: FillerSettings, network: SmallNetwork, lesson: TextLoss, texts: Texts, asked: Interrupts
) -> tuple[int, float]:
    """Train until the time is up; the number of steps, and the mean loss of the last fifty."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.01)
    began, step, losses = time.monotonic(), 0, list[float]()
    while True:
        for some in batches(texts, settings.batch, torch.randperm(len(texts)).tolist()):  # type: ignore[arg-type]
            done = (time.monotonic() - began) / max(settings.minutes * 60, 1e-3)
            done = max(done, step / settings.steps) if settings.steps else done
            if asked.stopped or done >= 1:
                return step, sum(losses[-50:]) / max(1, len(losses[-50:]))
            for group in optimiser.param_groups:
                group["lr"] = rate(settings.lr, step, 50, done)
            loss = lesson(network, some)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            losses.append(float(loss.detach()))
            step += 1
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(f"the loss is no number at step {step}; lower --lr.")
            if step % 100 == 0:
                print(f"step {step}: loss {sum(losses[-100:]) / 100:.4f}", flush=True)


@torch.no_grad()
def measured(network: SmallNetwork, lesson: TextLoss, texts: Texts, rounds: int = 4) -> float:
    """The mean loss on texts that were held out, with holes drawn several times."""
    return sum(float(lesson(network, texts)) for _ in range(rounds)) / rounds


if __name__ == "__main__":
    sys.exit(command(FillerSettings, "Train a small model that fills holes.", filler))
