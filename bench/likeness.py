"""What the answers of a rule are held against plain decoding's by: work, likeness, likelihood, and near ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.api.writer import Output
from unspool.core.chance import At, Philox, Role
from unspool.core.law import Law
from unspool.core.warp.warp import Prefix


@dataclass(frozen=True)
class Text:
    """One answer: its tokens, what it says, and its log-likelihood under the model that reads."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    said: str
    nats: float


def work(outputs: Sequence[Output]) -> dict[str, Any]:
    """What the models had to do: sums before ratios."""
    trace = sum((output.trace for output in outputs[1:]), outputs[0].trace)
    tokens = sum(len(output.tokens) for output in outputs)
    rate = trace.draft_acceptance_rate
    others = sum(count for name, count in trace.forwards.items() if name != "target")
    return {
        "texts": len(outputs),
        "tokens": tokens,
        "tokens_per_forward": round(tokens / max(1, trace.forwards["target"]), 3),
        "tokens_per_forward_error": round(_ratio_error(outputs), 3),
        "rows_per_token": round((trace.rows["target"] - trace.prompt) / max(1, tokens), 2),
        "draft_forwards_per_token": round(others / max(1, tokens), 2),
        "mean_acceptance_length": None if rate is None else round(trace.mean_acceptance_length, 3),
        "draft_acceptance_rate": None if rate is None else round(rate, 3),
    }


def _ratio_error(outputs: Sequence[Output]) -> float:
    """The standard error of tokens per forward, a ratio of sums, over texts; 0 for one text, which tells of none."""
    pairs = [(len(output.tokens), output.trace.forwards["target"]) for output in outputs]
    forwards, count = max(1, sum(each for _, each in pairs)), len(pairs)
    ratio = sum(tokens for tokens, _ in pairs) / forwards
    spread = sum((tokens - ratio * each) ** 2 for tokens, each in pairs)
    return math.sqrt(spread * count / max(1, count - 1)) / forwards


def likeness(texts: list[Text], others: list[Text]) -> dict[str, Any]:
    """How near the texts are to plain decoding's."""
    pairs = list(zip(texts, others, strict=True))
    alike = sum(a == b for ours, theirs in pairs for a, b in zip(ours.tokens, theirs.tokens, strict=False))
    longest = sum(max(len(ours.tokens), len(theirs.tokens)) for ours, theirs in pairs)
    return {
        "compared": len(pairs),
        "same": sum(ours.tokens == theirs.tokens for ours, theirs in pairs),
        "equal_tokens": round(alike / max(1, longest), 3),
    }


def likelihoods(texts: list[Text], pool: list[Text]) -> dict[str, Any]:
    """How likely texts are, and those of plain decoding."""
    (nats, off), (plain, plain_off) = _mean(texts), _mean(pool)
    return {
        "nats": round(nats, 4),
        "nats_error": round(off, 4),
        "plain_nats": round(plain, 4),
        "plain_nats_error": round(plain_off, 4),
    }


def _mean(texts: list[Text]) -> tuple[float, float]:
    """Log-likelihood per token as a ratio of sums, and its standard error over texts."""
    tokens, count = max(1, sum(len(text.tokens) for text in texts)), len(texts)
    mean = sum(text.nats for text in texts) / tokens
    spread = sum((text.nats - mean * len(text.tokens)) ** 2 for text in texts)
    return mean, math.sqrt(spread * count / max(1, count - 1)) / tokens


def verdicts(lm: LM, settings: Settings, texts: list[Text], others: list[Text]) -> dict[str, Any]:
    """How many of the texts that differ are near ties, and what is to be said of the rest."""
    ties, rest = 0, []
    passes = passes_of(lm.model)
    for ours, theirs in zip(texts, others, strict=True):
        found = divergence(ours.prompt, ours.tokens, theirs.tokens, passes)
        if found is None:
            continue
        tied = found.near_tie
        if settings.temperature and found.ours is not None and found.theirs is not None:
            begun = (*ours.prompt, *ours.tokens[: found.position])
            prefix = Prefix.of(begun, settings.warp(lm.vocabulary))
            at = At(len(begun), Role.PICK)
            drawn = {prefix.shape(Law(p(begun))).draw(Philox(settings.seed, 0), at).token for p in passes}
            tied = {found.ours, found.theirs} <= drawn
        ties += tied
        rest += [] if tied else [str(found)]
    return {"near_ties": ties, "unexplained": rest}
