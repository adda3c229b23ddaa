"""Batches: a file of requests in, a file of answers out, one line for one line, whatever happens in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from . import batch_work as batch_work, answer_file as answer_file, fleet as fleet
    from .batch_journal import BatchJournal as BatchJournal
    from .line_writer import LineDefaults as LineDefaults
    from .batch_journal import LineFile as LineFile
    from .line_writer import LineWriter as LineWriter

__getattr__, __dir__ = lazily(__name__)
