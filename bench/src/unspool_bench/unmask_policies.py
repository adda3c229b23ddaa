"""Policies of filling holes on a real model: tokens per forward, and how likely the text is to a model that reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

from unspool.api.likelihood import Pair, likelihoods
from unspool.api.lm import LM
from unspool.api.settings import Settings

FIRST = "confident:threshold=2,block=16"  # one hole per look, which all others are held against
PLAIN = (
    "Copy this list exactly: apple, banana, cherry, date, elderberry, fig, grape, honeydew, kiwi, lemon, mango.",
    "Write the numbers from 1 to 40, separated by commas.",
    "Repeat this sentence three times: The quick brown fox jumps over the lazy dog.",
    "Count down from 30 to 1, one number per line.",
    'Copy this JSON exactly: {"name": "Ada", "born": 1815, "city": "London", "field": "mathematics"}',
    "List the days of the week and the months of the year.",
    "Write the alphabet, one letter per line.",
    "Write the multiplication table of 7 up to 7 x 12, one product per line.",
)


@dataclass
class PolicyRuns:
    """One method on one set of prompts."""

    tokens: list[int] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    nats: list[float] = field(default_factory=list)
    repeats: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)

    def record(self) -> dict[str, float]:
        """Sums before ratios: a long text counts for what it is."""
        return {
            "tokens": sum(self.tokens),
            "tokens_per_forward": round(sum(self.tokens) / sum(self.forwards), 3),
            "rows_per_token": round(sum(self.rows) / sum(self.tokens), 2),
            "ms_per_token": round(1e3 * sum(self.seconds) / sum(self.tokens), 2),
            "nats": round(sum(self.nats) / sum(self.tokens), 4),
            "repeated_4grams": round(mean(self.repeats), 3),
            "same": round(mean(self.same), 3),
        }


Cells = Mapping[str, Mapping[str, PolicyRuns]]
"""By set of prompts, and by method."""


def measured(
    lm: LM,
    base: LM,
    asked: Mapping[str, Sequence[str]],
    methods: Sequence[str],
    settings: Settings,
    advance: Callable[[str, str, str], None],
) -> Cells:
    """Every method on every prompt, one prompt after the other; `advance` is told the set, the method and the text.

    `base` is the model under which texts are scored, left to right; `same` counts those of the first method.
    """
    cells = {kind: {name: PolicyRuns() for name in methods} for kind in asked}
    for kind, texts in asked.items():
        for text in texts:
            prompt, first = lm.encode(lm.asked(text)), None
            for name in methods:
                lm.model.forget()
                output = lm.generate(prompt, settings, name)
                first = output.tokens if first is None else first
                if not output.tokens:
                    continue
                cell = cells[kind][name]
                cell.tokens.append(len(output.tokens))
                cell.forwards.append(output.trace.forwards["target"])
                cell.rows.append(output.trace.rows["target"] - len(prompt))
                cell.seconds.append(output.trace.seconds_total)
                cell.nats.append(likelihood(base, prompt, output.tokens))
                cell.repeats.append(repetition(output.tokens))
                cell.same.append(output.tokens == first)
                advance(kind, name, output.text)
    return {kind: {name: cell for name, cell in rows.items() if cell.tokens} for kind, rows in cells.items()}


def likelihood(base: LM, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> float:
    """log p(tokens | prompt) under a model that reads left to right."""
    return likelihoods(base.model, [Pair(prompt, tokens)])[0].logprob


def repetition(text: Sequence[int], size: int = 4) -> float:
    """The share of a text's n-grams that occurred before in it."""
    grams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
