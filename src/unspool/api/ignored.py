"""What of a method a model pays no heed to: it is said, as nobody would notice."""

from __future__ import annotations

from typing import Any

from ..core.claim import Method
from ..loops.denoise import Denoise
from ..loops.speculate import Speculate
from ..loops.unmasker import CachedView
from ..rules.unmask.credited import Credited
from ..runtime.engine.contracts import FillsBlocks

PLAIN = "on_device: this model does not draft for itself here, which takes a GPU, so this is plain decoding"


def ignored(method: Method, model: Any) -> str | None:
    """A line for users whose method asks for what this model does not do; None if there is no such thing."""
    if isinstance(method, Speculate) and method.draft.verifies is not None:
        return PLAIN if getattr(model, "device", None) is None else None
    view = method.view if isinstance(method, Denoise) else None
    view = view.view if isinstance(view, Credited) else view
    if not isinstance(view, CachedView) or not isinstance(model, FillsBlocks) or model.keeps_keys:
        return None
    return (
        f"{type(view).__name__} does nothing here: this model reads what is left of a block from an exact cache, and "
        "computes the block anew at every look. Text and cost are those of the same method without it."
    )
