"""More documents in the model's own words: it answers questions, which it asks itself by sampling or is given.

Its own questions are sampled after the bare opening of a conversation; both the opening and what stands between
question and answer are taken from documents that exist, or from the model's chat template. An answer that runs into a
loop is cut where its second turn begins. Answers are greedy, or some of them drawn; then every question that is given
is answered in both ways, one after the other. Questions of like length are answered together, long ones fewer at a
time. A drafter guesses best what answers to questions of the same sort have taught it: give those that will be asked.
With a filler, answers are what the model finds good and the filler foresees (lenient_texts.py).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from unspool.core.errors import BadRequest
from unspool.models.address import path
from unspool.models.vocabulary import Vocabulary
from unspool.models.weights import open_checkpoint

from .command import ModelSettings, command, device_of, setting
from .decoder import Decoder, greedy, sampled
from .delta_compression import read_delta
from .framing import Framing, of_documents, of_template
from .lenient_texts import lenient
from .token_corpus import CLOSED, SAMPLED, TokenCorpus
from .training_network import Frozen

CUT, LOOPED = 2, 4
HOLE = 16  # what stands for a hole with a filler, and is never written then
_PERIOD, _TURNS = 64, 12  # tokens of a loop at most, and of its turns behind the first at least
_ROOM = 384  # tokens of the shortest texts with their prompts


@dataclass(frozen=True)
class SpeakSettings(ModelSettings):
    """How much to write, and where."""

    like: str = setting("", "Documents whose conversations show how one opens; else the model's chat template does.")
    out: str = setting("fresh.npz", "The .npz file to write.")
    seconds: float = setting(90.0, "How long to write, loading not counted.")
    rounds: int = setting(0, "Stop after so many rounds; 0: by time alone.")
    rows: int = setting(4096, "Texts at a time at most.")
    room: int = setting(1_600_000, "Tokens of all texts at a time, room for answers included.")
    asked: str = setting(
        "",
        "Questions to answer, in any order: a file of one a line, as text or as a string of JSON, or documents (.npz) "
        "whose questions are answered anew; else its own.",
    )
    question: int = setting(96, "Tokens of a question at most; longer ones that are given are left out.")
    answer: int = setting(256, "Tokens of an answer at most.")
    temperature: float = setting(1.0, "Temperature of its own questions.")
    drawn: float = setting(0.0, "Share of the answers that are drawn.")
    heat: float = setting(0.8, "Temperature of those.")
    begun: int = setting(
        0,
        "Tokens at most that are drawn of such an answer; it goes on greedily, and what was drawn counts as asked. "
        "0: all.",
    )
    filler: str = setting(
        "", "A change that fills holes (a file or its folder), whose foresight decides between near ties."
    )
    ratio: float = setting(0.5, "With it: what a token's share of the likeliest one's probability must be to stand.")
    window: int = setting(8, "With it: holes filled at a time.")
    seed: int = setting(1, "The seed of all that is drawn.")
    eager: bool = setting(False, "No CUDA graphs.")

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not 0 <= self.drawn <= 1:
            raise BadRequest(f"--drawn is {self.drawn}; expected a share of the answers, from 0 to 1.")
        if not 0 < self.ratio <= 1:
            raise BadRequest(f"--ratio is {self.ratio}; expected more than 0, and 1 at most.")
        if self.filler and self.drawn:
            raise BadRequest("--filler writes no answers that are drawn; leave one of the two out.")
        if self.begun < 0:
            raise BadRequest(f"--begun is {self.begun}; expected a number of tokens, or 0.")
        for name in ("rows", "room", "question", "answer", "window"):
            if getattr(self, name) < 1:
                raise BadRequest(f"--{name} is {getattr(self, name)}; expected at least 1.")


class Turn(NamedTuple):
    """Prompts that are answered together, and which of them by drawing."""

    prompts: list[list[int]]
    drawn: list[bool]


def unlooped(text: list[int]) -> list[int]:
    """A text without the repetitions at its end; one that does not end in at least three turns is left as it is."""
    whole, longest = np.array(text), min(_PERIOD, len(text) // 3, len(text) - _TURNS)
    if longest < 1:
        return text
    ends = np.lib.stride_tricks.sliding_window_view(whole, _TURNS)[-1 - longest : -1]
    best, kept = 0, len(text)
    for period in longest - np.nonzero((ends == whole[-_TURNS:]).all(1))[0][::-1]:  # those that its end has
        different = np.nonzero(whole[period:] != whole[:-period])[0]
        run = len(text) - period - (int(different[-1]) + 1 if len(different) else 0)
        if run >= max(2 * period, _TURNS) and run > best:
            best, kept = run, len(text) - int(run)
    return text[:kept]


class Speaker:
    """The model, with a cache for every number of texts that it answers at a time."""

    def __init__(self, settings: SpeakSettings, end: int) -> None:
        settings.check()
        self.end, self.hole = end, HOLE if settings.filler else -1
        self.settings, self.frozen = settings, Frozen.open(settings.model, device_of(settings.device))
        self.chance = torch.Generator(self.frozen.embedding.device).manual_seed(settings.seed)
        self.rng = np.random.default_rng(settings.seed)
        own = {**self.frozen.base, "mask": self.frozen.embedding.mean(0)}
        device = str(self.frozen.embedding.device)
        filling = read_delta(settings.filler, device).applied(own) if settings.filler else None
        self.weights = {"reads": own} | ({} if filling is None else {"fills": filling})
        self._decoders: dict[tuple[str, int], Decoder] = {}

    def rung(self, prompt: int) -> int:
        """The room of a text with a prompt of so many tokens: all those of a few sizes."""
        room = _ROOM
        while room < prompt + self.settings.answer + 1 + (self.settings.window if self.settings.filler else 0):
            room *= 2
        return room

    def count(self, room: int) -> int:
        """Texts of this room at a time."""
        return max(1, min(self.settings.rows, self.settings.room // room))

    def decoder(self, room: int, kind: str = "reads") -> Decoder:
        """The decoder for texts of this room: of the model that reads, or of the one that fills."""
        if (kind, room) not in self._decoders:
            made = Decoder(self.frozen, self.count(room), room, self.hole, self.end, not self.settings.eager)
            made.load(self.weights[kind])
            self._decoders[kind, room] = made
        return self._decoders[kind, room]

    def begins(self, turn: Turn) -> list[int]:
        """How many tokens of each answer of a turn are drawn and count as asked."""
        most = self.settings.begun
        return [int(self.rng.integers(1, most + 1)) if most and each else 0 for each in turn.drawn]

    def answered(self, turn: Turn, begun: Sequence[int] = ()) -> list[list[int]]:
        """What it says to prompts that have one room, so many tokens of each drawn; without numbers, all of those."""
        room = self.rung(max(map(len, turn.prompts)))
        decoder, settings = self.decoder(room), self.settings
        missing = decoder.count - len(turn.prompts)
        full = turn.prompts + [turn.prompts[-1]] * missing
        if settings.filler:
            texts = lenient(
                decoder, self.decoder(room, "fills"), full, settings.window, settings.ratio, settings.answer
            )
            return texts.tokens[: len(turn.prompts)]
        if not any(turn.drawn):
            return greedy(decoder, full, self.settings.answer).tokens[: len(turn.prompts)]
        heat = [self.settings.heat * each for each in turn.drawn] + [0.0] * missing
        first = [*begun, *[0] * missing] if begun else None
        return sampled(decoder, full, self.settings.answer, heat, self.chance, first).tokens[: len(turn.prompts)]

    def own_questions(self, framing: Framing) -> Iterator[Turn]:
        """Questions that the model asks itself, each once, for ever."""
        settings, asked, waiting = self.settings, set[tuple[int, ...]](), list[list[int]]()
        opening, bridge = framing.opening, framing.bridge
        decoder = self.decoder(self.rung(len(opening) + settings.question + len(bridge)))
        rng, heat = np.random.default_rng(settings.seed), [settings.temperature] * decoder.count
        while True:
            found = sampled(decoder, [opening] * decoder.count, settings.question, heat, self.chance)
            for text in found.tokens:
                if text[-1] == decoder.end and len(text) > 3 and tuple(text) not in asked:
                    asked.add(tuple(text))
                    waiting.append([*opening, *text[:-1], *bridge])  # which begins with the end of the question
            while len(waiting) >= decoder.count:
                some, waiting = waiting[: decoder.count], waiting[decoder.count :]
                yield Turn(some, (rng.random(len(some)) < settings.drawn).tolist())

    def given_questions(self, prompts: list[list[int]]) -> Iterator[Turn]:
        """These prompts, each once, then in the other way if some are drawn; in a random order of lengths."""
        settings, rng = self.settings, np.random.default_rng(self.settings.seed)
        drawn = rng.random(len(prompts)) < settings.drawn
        for _ in range(2 if 0 < settings.drawn < 1 else 1):
            turns = list[list[int]]()
            for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
                room = self.rung(len(prompts[i]))
                if not turns or self.rung(len(prompts[turns[-1][0]])) != room or len(turns[-1]) >= self.count(room):
                    turns.append([])
                turns[-1].append(i)
            for number in rng.permutation(len(turns)):
                yield Turn([prompts[i] for i in turns[number]], drawn[turns[number]].tolist())
            drawn = ~drawn


@torch.no_grad()
def speak(settings: SpeakSettings) -> dict[str, float]:
    """Write documents until the time is up."""
    framing = of_documents(TokenCorpus.read([settings.like])) if settings.like else of_template(vocabulary_of(settings))
    speaker = Speaker(settings, framing.end)
    print(f"# opening {framing.opening}, before an answer {framing.bridge}, at its end {framing.end}", flush=True)
    given = questions(settings, framing)
    turns = speaker.own_questions(framing) if given is None else speaker.given_questions(given)
    written: list[tuple[list[int], int, int]] = []
    drawn: list[bool] = []
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < settings.seconds and not (settings.rounds and rounds >= settings.rounds):
        turn = next(turns, None)
        if turn is None:
            break
        begun = speaker.begins(turn) if settings.begun else [0] * len(turn.prompts)
        texts = speaker.answered(turn, begun if settings.begun else ())
        for prompt, text, drew in zip(turn.prompts, texts, begun, strict=True):
            closed = text[-1] == framing.end
            kept = text if closed else unlooped(text)
            end = CLOSED if closed else CUT if len(kept) == len(text) else LOOPED
            written.append(([*prompt, *kept], len(prompt) + min(drew, len(kept)), end))
        drawn += [each and not settings.begun for each in turn.drawn]
        rounds += 1
        tokens = sum(len(text) for text, _, _ in written)
        print(f"# {time.monotonic() - began:.0f} s: {len(written):,} documents, {tokens:,} tokens", flush=True)
    took = time.monotonic() - began
    save(settings.out, written, drawn)
    tokens = sum(len(text) for text, _, _ in written)
    return {"documents": len(written), "tokens": tokens, "seconds": took}


def vocabulary_of(settings: SpeakSettings) -> Vocabulary:
    """The vocabulary of the model that speaks."""
    source = Path(settings.model).expanduser()
    return open_checkpoint(source if source.exists() else path(settings.model)).vocabulary()


def questions(settings: SpeakSettings, framing: Framing) -> list[list[int]] | None:
    """The prompts of the file; None if there is no file."""
    if not settings.asked:
        return None
    frame = len(framing.opening) + len(framing.bridge)
    if settings.asked.endswith((".npz", ".npz.gz")):
        known = TokenCorpus.read([settings.asked])
        found = [known[i].tokens[: known[i].prompt].tolist() for i in range(len(known))]
    else:
        vocabulary, lines = vocabulary_of(settings), Path(settings.asked).read_text(encoding="utf-8").split("\n")
        found = [framing.prompt(vocabulary, _said(line)) for line in lines if line.strip()]
    found = [prompt for prompt in found if 0 < len(prompt) <= frame + settings.question]
    if not found:
        raise BadRequest(f"--asked: {settings.asked} has no question of at most {settings.question} tokens.")
    return found


def _said(line: str) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return line
    return text if isinstance(text, str) else line


def save(file: str, written: Sequence[tuple[list[int], int, int]], drawn: Sequence[bool] = ()) -> None:
    """Write documents (tokens, length of the prompt, how it ended) in the form that `TokenCorpus` reads.

    `drawn` says whose answers were drawn, nobody's if it is empty.
    """
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    tokens = np.concatenate([np.array(text, np.uint32) for text, _, _ in written])
    np.savez(
        file,
        toks=tokens.astype(np.uint16) if tokens.max(initial=0) < 1 << 16 else tokens,
        lens=np.array([len(text) for text, _, _ in written], np.uint16),
        plen=np.array([prompt for _, prompt, _ in written], np.uint16),
        mode=np.array(drawn or [False] * len(written), np.uint8) * SAMPLED,
        end=np.array([end for _, _, end in written], np.uint8),
    )


if __name__ == "__main__":
    sys.exit(command(SpeakSettings, "Write more documents in the model's own words.", speak))
