"""A comparison in words: the table, where texts part, and one sentence for each method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .table import table

if TYPE_CHECKING:
    from ...api.comparison import Comparison, MethodRow
    from ...core.cost import Cost

_HEADS = (
    "method",
    "tokens",
    "tokens/forward",
    "accepted",
    "seconds",
    "draft/forward/rule/rest",
    "speed-up",
    "break-even",
    "same text",
)
_ROWS = (2, 3, 5, 9, 17, 33)
_MARGIN = 0.03  # differences below this are noise of the machine


def report(found: Comparison, greedy: bool) -> str:
    """The whole report."""
    rows = [_cells(row, found.plain) for row in found.rows]
    text = table(_HEADS, rows, right=", ".join(_HEADS[1:])) + "\n"
    for row in found.rows[1:]:
        for number, where in row.parted:
            text += f"{row.method} parts from plain decoding in prompt {number + 1}, {where}\n"
    text += "\n" + "".join(f"{verdict(row, found.plain, greedy)}\n" for row in found.rows[1:])
    return text if found.cost is None else f"{text}{_line(found.cost)}\n"


def _line(cost: Cost) -> str:
    """The break-even line of this machine."""
    first, *others = (f"{cost.break_even(rows):.2f}" for rows in _ROWS)
    points = ", ".join(f"{tokens} with {rows - 1}" for tokens, rows in zip(others, _ROWS[1:], strict=True))
    return f"break-even here: a round must bring {first} tokens to pay with 1 of them drafted, {points}."


def _cells(row: MethodRow, plain: MethodRow) -> tuple[str, ...]:
    total = row.total
    rate = total.draft_acceptance_rate
    spent = (total.seconds_draft, total.seconds_forward, total.seconds_rule, total.seconds_overhead)
    split = "/".join(f"{part / total.seconds_total:.0%}" for part in spent) if total.seconds_total else "-"
    pays = _break_even(row, plain)
    return (
        row.method,
        f"{total.tokens}",
        f"{total.tokens_per_forward:.2f}",
        "-" if rate is None else f"{rate:.0%}",
        f"{total.seconds_total:.2f}",
        split,
        f"{row.speed_up(plain):.2f}×",
        "-" if row is plain or pays is None else f"{pays:.2f}",
        f"{row.same} of {len(row.outputs)}",
    )


def verdict(row: MethodRow, plain: MethodRow, greedy: bool) -> str:
    """One sentence: whether the method pays here, and why."""
    total, speed, pays = row.total, row.speed_up(plain), _break_even(row, plain)
    got = total.tokens / total.rounds if total.rounds else 0.0
    why = f"a round must bring {pays or 0.0:.2f} tokens to pay, and brought {got:.2f}"
    if speed > 1 + _MARGIN:
        said = f"{speed:.2f}× as fast as plain decoding here; {why}."
    elif speed < 1 - _MARGIN:
        said = f"do not speculate here: {speed:.2f}× the speed of plain decoding; {why}."
    else:
        said = f"makes no difference here ({speed:.2f}×); {why}."
    return f"{row.method}: {said}{_sameness(row, greedy)}"


def _sameness(row: MethodRow, greedy: bool) -> str:
    differ = len(row.outputs) - row.same
    if not differ:
        return ""
    if not greedy:
        return f" {differ} of {len(row.outputs)} texts are other draws than plain decoding's."
    bugs = sum(not where.near_tie for _, where in row.parted)
    if bugs:
        return f" {bugs} of {len(row.outputs)} texts differ by more than rounding explains: that is a bug."
    return f" {differ} of {len(row.outputs)} texts part at near ties, which rounding decides."


def _break_even(row: MethodRow, plain: MethodRow) -> float | None:
    base = plain.total
    return row.total.break_even(base.seconds_total / base.tokens) if base.tokens else None
