"""Whether a text that was cut has the form that it must have all the same: it may have met it with its last token."""

from __future__ import annotations

from ..rules.constrain.form import Form, FormVocabulary
from .settings import Settings
from .writer import ROWS, Output

CUT = (
    "the text was cut before it had the form that it must have; raise max_tokens, or have it closed in time: "
    "constraint=unspool.json_schema(…).within(max_tokens)"
)
CUT_BY = ("length", "time", ROWS)  # reasons for which a text may end before it has its form


def cut_short(output: Output, settings: Settings, words: FormVocabulary) -> bool:
    """True if the settings ask for a form, and the text ended before it had it, for want of tokens or time."""
    made = settings.constraint
    if made is None or output.reason not in CUT_BY:
        return False
    if settings.suffix:
        return output.reason != "length"  # every hole is filled, and what is given behind them completes the form
    state = (made.fit(words) if isinstance(made, Form) else made).start()
    for token in output.tokens:
        state = state.step(token)
    return not state.complete()
