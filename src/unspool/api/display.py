"""How notebooks show things: `_repr_html_` of outputs and comparisons, without scripts or files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Comparison
    from .writer import Event, Output

_PLAIN, _DRAFTED = "rgba(128, 128, 128, .16)", "rgba(46, 160, 67, .30)"  # readable on light and dark pages

COMPARED = ("method", "claim", "speed-up", "tokens/forward", "accepted", "same text", "nats/token")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells as a table."""
    head = "".join(f'<th style="text-align:left">{escape(cell)}</th>' for cell in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{escape(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def output_html(output: Output) -> str:
    """The text with every token on a ground of its own: green if it had been drafted, grey if the model added it.

    On a canvas it is violet, the darker the later its place was filled.
    """
    last = max((event.round for event in output.events), default=1)
    cells = "".join(
        f'<span title="{"round" if event.canvas is None else "look"} {event.round}{_odds(event.logprob)}" style='
        f'"background:{_ground(event, last)};margin-right:1px;border-radius:2px">{escape(event.text)}</span>'
        for event in output.events
        if event.text
    )
    said = escape(f"[{output.reason}] {output.trace}")
    told = f"<div><small>{_legend(output.events)}{said}</small></div>"
    return f'<div style="white-space:pre-wrap;line-height:1.7">{cells}</div>{told}'


def comparison_html(found: Comparison) -> str:
    """A row for every method."""
    return table(COMPARED, comparison_rows(found))


def comparison_rows(found: Comparison) -> list[tuple[str, ...]]:
    """The cells of a comparison under the heads `COMPARED`."""
    rows: list[tuple[str, ...]] = []
    for row in found.rows:
        total, rate, nats = row.total, row.total.draft_acceptance_rate, row.nats_per_token
        cells = (row.method, "-" if row.entry is None else row.entry.claim.name, f"{row.speed_up(found.plain):.2f}×")
        more = (f"{total.tokens_per_forward:.2f}", "-" if rate is None else f"{rate:.0%}")
        rows.append((*cells, *more, f"{row.same} of {len(row.outputs)}", "-" if nats is None else f"{nats:.3f}"))
    return rows


def _ground(event: Event, last: int) -> str:
    if event.canvas is None:
        return _DRAFTED if event.drafted else _PLAIN
    return f"rgba(124, 77, 255, {0.1 + 0.4 * event.round / max(1, last):.2f})"


def _legend(events: Sequence[Event]) -> str:
    """What the grounds mean, where there is more than one."""
    if any(event.canvas is not None for event in events):
        return "the darker, the later it was filled · "
    named = ((_DRAFTED, "drafted"), (_PLAIN, "added by the model")) if any(event.drafted for event in events) else ()
    return "".join(f'<b style="font-weight:normal;background:{ground}">{word}</b> · ' for ground, word in named)


def _odds(logprob: float | None) -> str:
    return "" if logprob is None else f", log p {logprob:.2f}"
