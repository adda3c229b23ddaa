"""Networks: layers, attention, mixtures of experts, quantised and batch-invariant matrices, look-ahead heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import batch_invariant as batch_invariant, experts as experts, head_guesses as head_guesses
    from . import (
        hidden_transfer as hidden_transfer,
        lookahead_heads as lookahead_heads,
        per_layer as per_layer,
        recurrent_loader as recurrent_loader,
    )
    from . import recurrent_plan as recurrent_plan

__getattr__, __dir__ = lazily(__name__)
