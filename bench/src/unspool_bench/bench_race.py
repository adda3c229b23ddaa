"""The race: every contender on every case, in turns, each measured once and kept at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.settings import Settings

from .bench_case import BenchCase
from .contender import PLAIN, Contender, Sample
from .journal import Journal, Key

WARM = "Once upon a time"


@dataclass(frozen=True)
class Race:
    """Contenders over cases, `repeats` times; the first contender is plain decoding, against which texts are held.

    Case by case all contenders run one after another, so that a slow drift of the machine meets all alike; each starts
    from cold caches, and every one has written a few tokens before anything counts.
    """

    lm: LM
    contenders: Sequence[Contender]
    cases: Sequence[BenchCase]
    settings: Settings
    repeats: int = 1

    def plan(self) -> Iterator[tuple[Key, BenchCase, Contender]]:
        """Everything that is to be measured, in its order."""
        for repeat in range(self.repeats):
            for case in self.cases:
                for contender in self.contenders:
                    yield (case.name, contender.name, str(repeat)), case, contender

    def run(self, journal: Journal, advance: Callable[[], None] = lambda: None) -> None:
        """Measure what the journal does not hold yet."""
        warm: set[str] = set()
        for key, case, contender in self.plan():
            if key not in journal:
                if contender.name not in warm:
                    contender.write([self.lm.encode(WARM)], replace(self.settings, max_tokens=4))
                    warm.add(contender.name)
                journal.add(key, self._measured(journal, key, case, contender))
            advance()

    def _measured(self, journal: Journal, key: Key, case: BenchCase, contender: Contender) -> dict[str, Any]:
        prompts = [self._encoded(case, text) for text in case.prompts]
        # The same seed in every run: another draw in a later one would be another text.
        settings = replace(self.settings, max_tokens=case.most, stop=case.stops)
        sample = contender.write(prompts, settings)
        marks = None if case.mark is None else [case.mark(text) for text in sample.texts]
        row: dict[str, Any] = {
            "family": case.family,
            "exact": contender.exact,
            "tokens": [list(tokens) for tokens in sample.tokens],
            "texts": list(sample.texts),
            "prompt_tokens": sum(map(len, prompts)),
            "seconds": sample.seconds,
            "seconds_first": sample.first,
            "forwards": sample.forwards,
            "marks": marks,
            "trace": sample.trace,
        }
        if contender.name != PLAIN:
            row |= self._held_against(journal[case.name, PLAIN, key[2]]["tokens"], prompts, sample)
        return row

    def _held_against(self, plain: list[list[int]], prompts: list[tuple[int, ...]], sample: Sample) -> dict[str, Any]:
        """Whether the texts are plain decoding's; for greedy ones that are not, where they part and why."""
        same = [list(tokens) == other for tokens, other in zip(sample.tokens, plain, strict=True)]
        parted: list[dict[str, Any]] = []
        if self.settings.temperature == 0:
            for prompt, tokens, other in zip(prompts, sample.tokens, plain, strict=True):
                found = divergence(prompt, tokens, other, passes_of(self.lm.model))
                if found is not None:
                    parted.append({**asdict(found), "near_tie": found.near_tie})
        return {"same": same, "parted": parted}

    def _encoded(self, case: BenchCase, text: str) -> tuple[int, ...]:
        if case.raw or self.lm.vocabulary.chat_template is None:
            return self.lm.encode(text)
        return self.lm.encode([{"role": "user", "content": text}])
