"""The models that draft for a model: others by name, it itself in another precision, parts of it, trained drafters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .. import api
from ..core.errors import BadRequest
from ..core.option import expect

if TYPE_CHECKING:
    from .lm import LM

SELF = "self"  # the model itself, in another precision
DTYPES = ("fp32", "bf16", "fp16")
ROUNDINGS = ("none", "packed", "int8", "int4")
Open: TypeAlias = "Callable[[str | Path, str | None, str | None], LM]"


def attached(lm: LM, draft: LM | str | Path, small: LM | str | Path | None, open_model: Open) -> LM:
    """The model with what drafts for it, and what drafts for that.

    `open_model` takes a name, a dtype and a quantization; None for those of the model. layers:N are layers of the model
    itself, but for a small model beside a draft model of its own: then of that one.
    """
    if isinstance(draft, (str, Path)):
        draft = api.trained_draft.shipped(lm.name, draft)
    if isinstance(draft, (str, Path)) and api.trained_draft.is_trained(draft):
        if small is not None:
            raise BadRequest(f"small={small!r} drafts for a model of its own; {draft} reads {lm.name}")
        return replace(lm, drafter=api.trained_draft.trained_for(lm.model, lm.name, draft))
    parts = small is not None and _is_part(draft) and _is_part(small)
    if parts and (exits := api.self_draft.sorted_exits(lm, str(draft), str(small))) is not None:
        return replace(lm, draft=replace(exits[0], draft=exits[1]))
    second = _opened(lm, draft, open_model)
    if small is not None:
        second = replace(second, draft=_opened(lm if _is_part(draft) else second, small, open_model))
    return replace(lm, draft=second)


def expect_drafts(draft: object, small: object) -> None:
    """Refuse what is no draft model, and a small one without one, before a model is read."""
    for option, given in (("draft", draft), ("small", small)):
        fits = given is None or isinstance(given, (str, Path)) or hasattr(given, "vocabulary")
        expect(fits, option, given, "a loaded model, the name of one, a drafter's folder, layers:N, mtp, or None")
    if draft is None and small is not None:
        raise BadRequest(f"small={small!r} drafts for the draft model; give that too, as draft=")


def in_precision(name: str) -> tuple[str, str | None, str | None]:
    """The name of a model without its precision, and that: smollm2:int4, self:bf16; None for the model's own."""
    model, colon, said = name.rpartition(":")
    if not colon or said not in (*DTYPES, *ROUNDINGS) or not model:
        return name, None, None
    return (model, said, None) if said in DTYPES else (model, None, said)


def _is_part(draft: LM | str | Path) -> bool:
    return isinstance(draft, str) and api.self_draft.is_shortcut(draft)


def _opened(lm: LM, draft: LM | str | Path, open_model: Open) -> LM:
    """One draft model; layers:N is a part of `lm`."""
    if not isinstance(draft, (str, Path)):
        return draft
    if isinstance(draft, str) and api.self_draft.is_shortcut(draft):
        return api.self_draft.shortcut(lm, draft)
    if isinstance(draft, Path):
        return open_model(draft, None, None)
    name, dtype, rounded = in_precision(draft)
    if name == SELF and dtype is rounded is None:
        raise BadRequest(f"{draft!r} would be {lm.name} as it is; write self:int4, self:int8 or self:bf16")
    return open_model(lm.name if name == SELF else name, dtype, rounded)
