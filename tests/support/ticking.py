"""Time that passes only where a test says so, and models whose forwards take theirs by it."""

from __future__ import annotations

import itertools
from dataclasses import replace

from unspool.runtime.cache.cached_model import CachedModel

START, EACH = 0.010, 0.001  # seconds of a forward, and of each of its rows


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(CachedModel):
    """A model whose forwards take their time by the clock of a test."""

    clock: Clock

    def score(self, asked):
        given = zip(asked, super().score(asked), strict=True)
        answers = [replace(answer, rows=len(one.tree) + 1) for one, answer in given]  # as if nothing were ever known
        self.clock.now += START + EACH * sum(answer.rows for answer in answers)
        return answers


class Computing(CachedModel):
    """The same, for the rows that were really computed."""

    clock: Clock

    def score_beside(self, asked, parts):
        answers = super().score_beside(asked, parts)
        rows = sum(answer.rows for answer in answers) + sum(count for _, count in parts)
        self.clock.now += START + EACH * rows
        return answers


def written(engine, job, clock, tokens):
    """When each token of a text came, until it has so many."""
    came = [clock.now] * len(job.tokens)
    while len(came) < tokens:
        engine.step()
        came += [clock.now] * (len(job.tokens) - len(came))
    return came


def gaps(times):
    return [b - a for a, b in itertools.pairwise(times)]
