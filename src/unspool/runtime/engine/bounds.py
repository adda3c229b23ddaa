"""Bounds: how much one request may ask of the engine in one step, and for how long it may go on without a model."""

from __future__ import annotations

from ...core.asks import Ask, Check, Draw, Keep, Look, Score
from ...core.errors import BadRequest, OutOfRoom

TURN = 64  # asks without a model after which others get their turn; a round of any method has a handful
# Asks in a row that need no model before a decoder counts as one that never ends. The longest honest rows are those of
# canvases that are only shown, once for every step that changes nothing: hundreds, or thousands if somebody wants so
# many steps. Ten thousand take about a second, during which others have had their turns.
SILENT = 160 * TURN
COPIES = 4  # a row of a copied canvas gives no law, so that many of them count as one that does


def rows_asked(ask: Ask | None, texts: int) -> int:
    """How many rows of a model an ask takes, of a request that keeps so many texts; the prompt is not counted."""
    match ask:
        case Score(tree) | Check(tree):
            return len(tree) + texts
        case Keep(tree, nodes):
            return max(len(tree), len(nodes))
        case Draw(depth=depth):
            return depth
        case Look(canvas, along=along):
            low, high = canvas.window
            return max(len(ask.places), len(along) * (high - low) // COPIES)
        case _:
            return texts


def refuse_large(ask: Ask | None, texts: int, most: float) -> None:
    """Refuse an ask that takes more rows than one request may have in one step."""
    if (rows := rows_asked(ask, texts)) > most:
        raise BadRequest(
            f"the method wants {rows} rows of the model in one step, but one request may have {most:.0f} here. Choose "
            "smaller options (its width, count, depth, window, …) or ask for fewer tokens."
        )


def refuse_outgrown(slots: int, most: float) -> None:
    """Fail a request whose texts together take more of the cache than one request may hold."""
    if slots > most:
        raise OutOfRoom(
            f"the texts of this request take {slots} tokens of cache by now, but one request may hold {most:.0f} here. "
            "Ask for fewer new tokens, or for a narrower search (its width, count, particles, …)."
        )


def refuse_endless(silent: int) -> None:
    """Fail a decoder that has gone on for so long without asking a model that it would never end."""
    if silent >= SILENT:
        raise BadRequest(
            f"the method went on for {silent} asks in a row without a look at the model, so it would never end. This "
            "is a fault of the method together with these settings; choose another, or other options."
        )
