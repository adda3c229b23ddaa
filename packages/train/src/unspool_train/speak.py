"""More documents in the model's own words: it answers questions greedily, which it asks itself by sampling or is given.

Its own questions are sampled after the bare opening of a conversation; both the opening and what stands between
question and answer are taken from documents that exist. An answer that runs into a loop is cut where its second turn
begins.
A drafter guesses best what answers to questions of the same sort have taught it: give those that will be asked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from unspool.core.errors import BadRequest
from unspool.models.address import path
from unspool.models.weights import open_checkpoint

from .command import ModelSettings, command, device_of, setting
from .corpus import CLOSED, Corpus
from .decoder import Decoder, greedy, sampled
from .network import Frozen

CUT, LOOPED = 2, 4
_LOOK = 500  # documents that show what conversations have in common
_PERIOD = 64


@dataclass(frozen=True)
class Settings(ModelSettings):
    """How much to write, and where."""

    like: str = setting("", "Documents whose conversations show how one opens.")
    out: str = setting("fresh.npz", "The .npz file to write.")
    seconds: float = setting(90.0, "How long to write, loading not counted.")
    rounds: int = setting(0, "Stop after so many rounds; 0: by time alone.")
    rows: int = setting(4096, "Texts at a time.")
    asked: str = setting("", "A file of questions to answer, one a line, as text or as a string of JSON; else its own.")
    question: int = setting(96, "Tokens of a question at most; longer ones that are given are left out.")
    answer: int = setting(256, "Tokens of an answer at most.")
    temperature: float = setting(1.0, "Temperature of the questions.")
    seed: int = setting(1, "The seed of the questions.")
    eager: bool = setting(False, "No CUDA graphs.")


def frame(corpus: Corpus) -> tuple[list[int], list[int]]:
    """What all conversations begin with, and what all prompts end with."""
    prompts = [corpus[i].tokens[: corpus[i].prompt].tolist() for i in range(min(len(corpus), _LOOK))]
    return _common(prompts), _common([prompt[::-1] for prompt in prompts])[::-1]


def _common(texts: Sequence[Sequence[int]]) -> list[int]:
    shared = []
    for column in zip(*texts, strict=False):
        if len(set(column)) > 1:
            break
        shared.append(int(column[0]))
    return shared


def unlooped(text: list[int]) -> list[int]:
    """A text without the repetitions at its end; one that does not end in at least three turns is left as it is."""
    whole = np.array(text)
    best, kept = 0, len(text)
    for period in range(1, min(_PERIOD, len(text) // 3) + 1):
        different = np.nonzero(whole[period:] != whole[:-period])[0]
        run = len(text) - period - (int(different[-1]) + 1 if len(different) else 0)
        if run >= max(2 * period, 12) and run > best:
            best, kept = run, len(text) - run
    return text[:kept]


@torch.no_grad()
def speak(settings: Settings) -> dict[str, float]:
    """Write documents until the time is up."""
    device = device_of(settings.device)
    frozen = Frozen.open(settings.model, device)
    opening, bridge = frame(Corpus.read([settings.like]))
    print(f"# opening {opening}, between question and answer {bridge}", flush=True)
    room = len(opening) + settings.question + len(bridge) + settings.answer + 1
    decoder = Decoder(frozen, settings.rows, room, 16, 2, not settings.eager)
    decoder.load({**frozen.base, "mask": frozen.embedding.mean(0)})
    given = questions(settings)
    texts = own_questions(decoder, settings, opening) if given is None else iter(given)
    written: list[tuple[list[int], int, int]] = []
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < settings.seconds and not (settings.rounds and rounds >= settings.rounds):
        prompts = [[*opening, *text, *bridge] for text in islice(texts, settings.rows)]
        if not prompts:
            break
        full = prompts + [prompts[-1]] * (settings.rows - len(prompts))
        for prompt, text in zip(prompts, greedy(decoder, full, settings.answer).tokens, strict=False):
            closed = text[-1] == decoder.end
            kept = text if closed else unlooped(text)
            end = CLOSED if closed else CUT if len(kept) == len(text) else LOOPED
            written.append(([*prompt, *kept], len(prompt), end))
        rounds += 1
        tokens = sum(len(text) for text, _, _ in written)
        print(f"# {time.monotonic() - began:.0f} s: {len(written):,} documents, {tokens:,} tokens", flush=True)
    took = time.monotonic() - began
    save(settings.out, written)
    tokens = sum(len(text) for text, _, _ in written)
    return {"documents": len(written), "tokens": tokens, "seconds": took}


def own_questions(decoder: Decoder, settings: Settings, opening: list[int]) -> Iterator[list[int]]:
    """Questions that the model asks itself, each once, for ever."""
    chance = torch.Generator(decoder.device).manual_seed(settings.seed)
    asked: set[tuple[int, ...]] = set()
    while True:
        found = sampled(decoder, [opening] * settings.rows, settings.question, settings.temperature, chance)
        for text in found.tokens:
            if text[-1] == decoder.end and len(text) > 3 and tuple(text) not in asked:
                asked.add(tuple(text))
                yield text[:-1]  # the bridge begins with the end of the question


def questions(settings: Settings) -> list[list[int]] | None:
    """The questions of the file, those of like length together; None if there is no file."""
    if not settings.asked:
        return None
    source = Path(settings.model).expanduser()
    vocabulary = open_checkpoint(source if source.exists() else path(settings.model)).vocabulary()
    lines = Path(settings.asked).read_text(encoding="utf-8").splitlines()
    found = sorted((list(vocabulary.encode(_said(line))) for line in lines if line.strip()), key=len)
    found = [text for text in found if len(text) <= settings.question]
    if not found:
        raise BadRequest(f"--asked: {settings.asked} has no question of at most {settings.question} tokens.")
    return found


def _said(line: str) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return line
    return text if isinstance(text, str) else line


def save(file: str, written: Sequence[tuple[list[int], int, int]]) -> None:
    """Write greedy documents (tokens, length of the prompt, how it ended) in the form that `Corpus` reads."""
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    np.savez(
        file,
        toks=np.concatenate([np.array(text, np.uint16) for text, _, _ in written]),
        lens=np.array([len(text) for text, _, _ in written], np.uint16),
        plen=np.array([prompt for _, prompt, _ in written], np.uint16),
        mode=np.zeros(len(written), np.uint8),
        end=np.array([end for _, _, end in written], np.uint8),
    )


if __name__ == "__main__":
    sys.exit(command(Settings, "Write more documents in the model's own words.", speak))
