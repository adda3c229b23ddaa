"""Rules that decide how much of a draft stands. Each is a function of the scored tree and chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .blended import Blended as Blended, RacedBlock as RacedBlock
    from .block import block as block
    from .conditional import Conditional as Conditional
    from .greedy import greedy as greedy
    from .judged import Judged as Judged
    from .kseq import kseq as kseq
    from .lenient import Lenient as Lenient
    from .mixture import Mixture as Mixture
    from .multipath import multipath as multipath
    from .race import race as race
    from .rejection import rejection as rejection
    from .rollback import Rollback as Rollback
    from .sample_match import sample_match as sample_match
    from .synthetic import Synthetic as Synthetic
    from .top_beta import TopBeta as TopBeta
    from .traversal import traversal as traversal
    from .typical import TypicalAcceptance as TypicalAcceptance
    from .zeroing import zeroing as zeroing

__getattr__, __dir__ = lazily(__name__)
