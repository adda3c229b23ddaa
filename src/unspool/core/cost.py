"""What a forward costs, as a function of how many token rows it computes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from .errors import BadRequest


@dataclass(frozen=True)
class Cost:
    """t(n): the time of one forward over n rows, by straight lines between measured points.

    Before the first point it is flat, after the last one it goes on with the last slope. The runtime's `measure` makes
    one for a model; any unit of time will do, since only ratios decide.
    """

    rows: tuple[int, ...]
    times: tuple[float, ...]
    requests: int = 1  # that share the forward
    aside: float = 0.0  # what asking for more than the next token takes per request beside the forward
    speculates: bool = False  # whether the model drafts for itself when told to write on
    drafts: bool = False  # and the drafter that was trained for it does so there too
    guesses: bool = False  # whether it has heads that guess for a small part of a forward

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.rows, self.rows[1:], strict=False))
        if not self.rows or len(self.rows) != len(self.times) or not rising or min(self.times) <= 0:
            raise BadRequest(
                f"a cost with rows {self.rows} and times {self.times} cannot be used; "
                "expected rising numbers of rows and a time above 0 for each"
            )

    def __call__(self, rows: int) -> float:
        if len(self.rows) == 1 or rows <= self.rows[0]:
            return self.times[0]
        right = min(bisect_left(self.rows, rows), len(self.rows) - 1)
        a, b = self.rows[right - 1], self.rows[right]
        slope = (self.times[right] - self.times[right - 1]) / (b - a)
        return self.times[right - 1] + slope * (rows - a)

    def break_even(self, rows: int) -> float:
        """How many tokens a round over so many rows must bring to be as fast as plain decoding: t(n) / t(1)."""
        return self(rows) / self(1)

    def among(self, requests: int) -> Cost:
        """What one request's rows cost when so many alike share the forward: t(requests · n).

        What is taken aside is in t(n) once for every n > 1, and is due for every request; where all of them only want
        their next token, for none. The fuller the batch, the sooner a node no longer pays: that switches speculation
        off by itself, which ReSpec (2510.26475) does with a scheduler of two states.
        """
        times = [self(requests * n) + (requests - 1) * self.aside for n in self.rows]
        if requests > 1 and self.rows[0] == 1:
            times[0] = max(self(1), self(requests) - self.aside)
        return Cost(self.rows, tuple(times), requests, self.aside)


FREE = Cost((1,), (1.0,))
"""The cost of a forward that does not care how many rows it has: the budget alone decides."""
