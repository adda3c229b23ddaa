"""What a program uses: load a model, say what is wanted, read what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import lazily

if TYPE_CHECKING:
    from . import comparison as comparison
    from . import drafting as drafting
    from . import loader as loader
    from . import memory_plan as memory_plan
    from . import origin as origin
    from . import picture as picture
    from . import profile as profile
    from . import self_draft as self_draft
    from . import settings as settings
    from . import writer as writer

__getattr__, __dir__ = lazily(__name__)
