"""Turns that end with their texts: the device writes on while the host looks for end tokens a few turns behind.

A go of many turns is sent at once, so that the device never waits for the host; but most answers end somewhere inside
one, and what is computed behind their end is for nothing. So turns are sent in groups: while one group runs, the host
reads the tokens of the group before, and sends no further one if nobody wants it. A text is what it would have been.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .graph_bucket import LOOK, Bucket


def run_until_ended(bucket: Bucket, turns: int, wants: Sequence[int], ends: Sequence[frozenset[int]]) -> int:
    """Run at most so many turns of a bucket without masks; how many there were.

    Row i wants `wants[i]` tokens, and none behind a token of `ends[i]`. It stops early when all rows have what they
    want.
    """
    bucket.send()
    wanting = dict(enumerate(zip(wants, ends, strict=True)))
    for first in range(0, turns, LOOK):
        sent = min(first + LOOK, turns)
        for _ in range(first, sent):
            bucket.turn(bucket.shaping, _no_masks)
        if first:
            tokens = bucket.seen.read()
            wanting = {
                row: (want, end)
                for row, (want, end) in wanting.items()
                if want > first and not any(token < 0 or token in end for token in tokens[row])
            }
            if not wanting:
                return sent
        if sent < turns:
            bucket.seen.send(bucket.written[:, first:sent])
    return turns


def _no_masks(masks: Tensor) -> None:
    raise AssertionError("these turns have no masks")
