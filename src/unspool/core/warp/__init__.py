"""What shapes a law: temperature, truncation, penalties, prohibitions, and their composition with `|`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazily

if TYPE_CHECKING:
    from .forbid import BadWords as BadWords
    from .forbid import Forbid as Forbid
    from .forbid import MinTokens as MinTokens
    from .forbid import NoRepeatNgram as NoRepeatNgram
    from .never_say import NeverSay as NeverSay, pieces_of as pieces_of
    from .penalise import Frequency as Frequency
    from .penalise import LogitBias as LogitBias
    from .penalise import Presence as Presence
    from .penalise import Repetition as Repetition
    from .warp import Temperature as Temperature
    from .truncate import Epsilon as Epsilon
    from .truncate import Eta as Eta
    from .truncate import MinP as MinP
    from .truncate import TopK as TopK
    from .truncate import TopNSigma as TopNSigma
    from .truncate import TopP as TopP
    from .truncate import Typical as Typical
    from .warp import Both as Both
    from .warp import Prefix as Prefix
    from .warp import Same as Same
    from .warp import Scored as Scored
    from .warp import Warp as Warp

__getattr__, __dir__ = lazily(__name__)
