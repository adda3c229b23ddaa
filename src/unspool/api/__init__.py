"""What a program uses: load a model, say what is wanted, read what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import awaited as awaited, bars as bars, display as display, papers as papers
    from . import (
        by_transformers as by_transformers,
        canvas_picture as canvas_picture,
        comparison as comparison,
        draft_models as draft_models,
        drafting as drafting,
        figures as figures,
        filling as filling,
        finished as finished,
        healing as healing,
        ignored as ignored,
        infill as infill,
        loader as loader,
        memory_plan as memory_plan,
        native_models as native_models,
    )
    from . import origin as origin, picture as picture, profile as profile, self_draft as self_draft
    from . import settings as settings, trained_draft as trained_draft, warm_up as warm_up
    from . import writer as writer

__getattr__, __dir__ = lazily(__name__)
