"""Search: several texts at once, scored, dropped and gone on with, all through the one ask that forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .astar import AStar as AStar
    from .beam import Beam as Beam
    from .branch import Branch as Branch
    from .cautious import Cautious as Cautious
    from .chaotic import Chaotic as Chaotic
    from .diverse import Diverse as Diverse
    from .foresight import Foresight as Foresight
    from .mcts import Mcts as Mcts
    from .neurologic import Neurologic as Neurologic
    from .rewarded import Rewarded as Rewarded
    from .several import Several as Several
    from .smc import Smc as Smc
    from .stochastic import Stochastic as Stochastic
    from .twist import Lookahead as Lookahead

__getattr__, __dir__ = lazily(
    __name__,
    {
        "astar": "AStar",
        "beam": "Beam",
        "branch": "Branch",
        "cautious": "Cautious",
        "chaotic": "Chaotic",
        "diverse": "Diverse",
        "foresight": "Foresight",
        "mcts": "Mcts",
        "neurologic": "Neurologic",
        "rewarded": "Rewarded",
        "several": "Several",
        "smc": "Smc",
        "stochastic": "Stochastic",
        "twist": "Lookahead",
    },
)
