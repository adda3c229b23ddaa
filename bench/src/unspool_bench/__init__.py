"""Benchmarks: suites that race methods, and tasks whose right answers, and whose best possible scores, are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unspool.core.lazy import lazily

if TYPE_CHECKING:
    from . import apart as apart
    from . import bench_race as bench_race
    from . import chart as chart
    from . import contender as contender
    from . import journal as journal
    from . import llamacpp_peer as llamacpp_peer
    from . import machine as machine
    from . import molecule as molecule
    from . import parallel as parallel
    from . import parallel_text as parallel_text
    from . import pareto as pareto
    from . import peers as peers
    from . import pupil as pupil
    from . import report as report
    from . import schemas as schemas
    from . import score as score
    from . import shelf as shelf
    from . import standing as standing
    from . import suites as suites
    from . import takers as takers
    from . import tasks as tasks
    from . import transformers_peer as transformers_peer
    from . import tuning as tuning
    from . import unmask_policies as unmask_policies

__getattr__, __dir__ = lazily(__name__)
