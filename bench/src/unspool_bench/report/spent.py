"""Spent: where the wall time of a contender's tokens went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PARTS = {
    "draft": "making drafts",
    "forward": "forwards of the target",
    "rule": "verifying and choosing",
    "overhead": "protocol, bookkeeping, other requests of the batch",
}


@dataclass(frozen=True)
class Spent:
    """Seconds per token, whole and by part; a contender without a trace has no parts."""

    whole: float
    parts: dict[str, float] | None


def spent(rows: Sequence[dict[str, Any]]) -> Spent | None:
    """The wall time per token, split in the shares that the traces tell; None if nothing was written.

    Texts of a batch wait for each other, so that their own times add up to more than the wall time: shares do not.
    """
    tokens = sum(len(text) for row in rows for text in row["tokens"])
    if not tokens:
        return None
    whole = sum(row["seconds"] for row in rows) / tokens
    told = [row["trace"]["seconds"] for row in rows if row["trace"].get("seconds")]
    total = sum(each["total"] for each in told)
    if not total or len(told) < len(rows):
        return Spent(whole, None)
    return Spent(whole, {part: whole * sum(each[part] for each in told) / total for part in PARTS})


def accepted(rows: Sequence[dict[str, Any]]) -> dict[int, int]:
    """In how many rounds so many drafted tokens stood; empty if nothing was drafted."""
    if not any(row["trace"].get("drafted") for row in rows):
        return {}
    counted: Counter[int] = Counter()
    for row in rows:
        # JSON has made texts of the numbers.
        counted.update({int(k): rounds for k, rounds in row["trace"].get("accepted_histogram", {}).items()})
    return dict(sorted(counted.items()))


def per_round(rows: Sequence[dict[str, Any]]) -> tuple[float, float] | None:
    """Rows that a drafting contender's round computes (drafted + 1) and tokens it writes (accepted + 1), as means.

    None where texts were written together: their rounds share forwards, which then have other numbers of rows.
    """
    if any(len(row["tokens"]) > 1 for row in rows):
        return None
    rounds, drafted, stood = (sum(row["trace"].get(k) or 0 for row in rows) for k in ("rounds", "drafted", "accepted"))
    return (1 + drafted / rounds, 1 + stood / rounds) if rounds and drafted else None
