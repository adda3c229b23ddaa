"""Standings: what a journal says, as ratios of sums with the intervals that other cases could have given."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from .contender import PLAIN
from .journal import Journal

T = TypeVar("T")
DRAWS = 1000
LEVEL = 0.95


class ConfidenceInterval(NamedTuple):
    """A figure, and the range that holds it in 95 of 100 draws of cases."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """One contender on one family, or on all.

    speed_up is tokens per second over plain decoding's, each a sum over sums: a mean of ratios would let short texts
    decide. Names are vLLM's where it has them.
    """

    contender: str
    family: str
    cases: int
    tokens: int
    forwards: int
    seconds: float
    speed_up: ConfidenceInterval
    tokens_per_forward: float
    tokens_per_second: float
    time_to_first_token: float | None
    time_per_output_token: float | None
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    right: ConfidenceInterval | None  # the share of answers that are
    exact: bool  # whether it claims plain decoding's greedy text
    same: int | None  # texts that are plain decoding's
    texts: int
    parted: tuple[dict[str, Any], ...]

    @property
    def bugs(self) -> int:
        """Greedy texts that differ from plain decoding's by more than rounding explains, where that was claimed."""
        return sum(not each["near_tie"] for each in self.parted) if self.exact else 0

    def record(self) -> dict[str, Any]:
        """As plain data."""
        data = dict(self.__dict__)
        for name in ("speed_up", "right"):
            data[name] = None if data[name] is None else data[name]._asdict()
        return {**data, "parted": list(self.parted), "bugs": self.bugs}


Rows = dict[str, dict[str, list[dict[str, Any]]]]  # by contender and case


def standings(journal: Journal, seed: int = 0) -> list[Standing]:
    """For every contender each family and, if there are several, all together; in the order of measurement."""
    rows: Rows = {}
    families: dict[str, dict[str, None]] = {}
    for (case, contender, _), row in journal.items():
        rows.setdefault(contender, {}).setdefault(case, []).append(row)
        families.setdefault(row["family"], {})[case] = None
    groups = {family: list(cases) for family, cases in families.items()}
    if len(groups) > 1:
        groups["all"] = [case for cases in groups.values() for case in cases]
    return [
        _standing(name, family, cases, rows, seed)
        for name in rows
        for family, cases in groups.items()
        if all(case in rows[name] and case in rows.get(PLAIN, {}) for case in cases)
    ]


def _standing(name: str, family: str, cases: list[str], rows: Rows, seed: int) -> Standing:
    own = [row for case in cases for row in rows[name][case]]
    tokens, seconds = sum(map(_count, own)), sum(row["seconds"] for row in own)
    forwards = sum(row["forwards"] for row in own)
    firsts = [row["seconds_first"] for row in own if row["seconds_first"] is not None]
    decoding = [(row["seconds"] - row["seconds_first"], _count(row) - 1) for row in own if row["seconds_first"]]
    steps = sum(count for _, count in decoding)
    rounds, accepted, drafted = (sum(r["trace"].get(k) or 0 for r in own) for k in ("rounds", "accepted", "drafted"))
    marks = [mark for row in own for mark in row["marks"] or () if mark is not None]
    held = [same for row in own for same in row.get("same", ())]

    def speed_up(chosen: Sequence[str]) -> float:
        ours, plain = ([row for case in chosen for row in rows[who][case]] for who in (name, PLAIN))
        base = _rate(plain)
        return _rate(ours) / base if base else math.nan  # plain decoding may have nothing to say

    return Standing(
        contender=name,
        family=family,
        cases=len(cases),
        tokens=tokens,
        forwards=forwards,
        seconds=seconds,
        speed_up=bootstrapped(cases, speed_up, seed),
        tokens_per_forward=tokens / forwards if forwards else math.nan,
        tokens_per_second=tokens / seconds,
        time_to_first_token=sum(firsts) / len(firsts) if firsts else None,
        time_per_output_token=sum(s for s, _ in decoding) / steps if steps > 0 else None,
        mean_acceptance_length=1 + accepted / rounds if drafted else None,
        draft_acceptance_rate=accepted / drafted if drafted else None,
        right=wilson(sum(marks), len(marks)) if marks else None,
        exact=all(row.get("exact", True) for row in own),
        same=sum(held) if held else None,
        texts=sum(len(row["tokens"]) for row in own),
        parted=tuple(each for row in own for each in row.get("parted", ())),
    )


def bootstrapped(cases: Sequence[T], figure: Callable[[Sequence[T]], float], seed: int) -> ConfidenceInterval:
    """A figure of these cases, with the range of what as many drawn from them again and again would have given."""
    value = figure(cases)
    if len(cases) < 2:
        return ConfidenceInterval(value, math.nan, math.nan)
    dice = random.Random(seed)
    figures = (figure(dice.choices(cases, k=len(cases))) for _ in range(DRAWS))
    drawn = sorted(found for found in figures if not math.isnan(found))
    if not drawn:
        return ConfidenceInterval(value, math.nan, math.nan)
    cut = int(len(drawn) * (1 - LEVEL) / 2)
    return ConfidenceInterval(value, drawn[cut], drawn[-1 - cut])


def wilson(hits: int, tries: int) -> ConfidenceInterval:
    """A share with Wilson's 95 % interval, which is sound for few tries and for shares near 0 and 1."""
    z, p = 1.959964, hits / tries
    middle = (p + z * z / (2 * tries)) / (1 + z * z / tries)
    half = z * math.sqrt(p * (1 - p) / tries + z * z / (4 * tries * tries)) / (1 + z * z / tries)
    return ConfidenceInterval(p, max(0.0, middle - half), min(1.0, middle + half))


def by_contender(found: Iterable[Standing]) -> dict[str, dict[str, Standing]]:
    """The same, by contender and family."""
    table: defaultdict[str, dict[str, Standing]] = defaultdict(dict)
    for each in found:
        table[each.contender][each.family] = each
    return dict(table)


def _count(row: dict[str, Any]) -> int:
    return sum(map(len, row["tokens"]))


def _rate(rows: list[dict[str, Any]]) -> float:
    seconds: float = sum(row["seconds"] for row in rows)
    return sum(map(_count, rows)) / seconds
