"""Search: several texts at once, scored, dropped and gone on with, all through the one ask that forks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .ahead import Ahead as Ahead, Beamed as Beamed, Greedy as Greedy, Sampled as Sampled
    from .astar import AStar as AStar
    from .beam import Beam as Beam
    from .branch import Branch as Branch
    from .cautious import Cautious as Cautious
    from .chaotic import Chaotic as Chaotic
    from .cut_short import CutShort as CutShort
    from .diverse import Diverse as Diverse
    from .foresight import Foresight as Foresight
    from .length_norm import LENGTH as LENGTH, PATIENCE as PATIENCE, Power as Power
    from .mark import (
        Agreement as Agreement,
        Graded as Graded,
        JudgeMark as JudgeMark,
        Leaning as Leaning,
        LikelihoodMark as LikelihoodMark,
        Mark as Mark,
    )
    from .mcts import Mcts as Mcts
    from .neurologic import Neurologic as Neurologic
    from .smc import RESAMPLE as RESAMPLE
    from .reward import reward_of as reward_of
    from .rewarded import Rewarded as Rewarded
    from .rollout import Border as Border
    from .several import FOREVER as FOREVER, Several as Several
    from .smc import LookaheadTwist as LookaheadTwist, PrefixTwist as PrefixTwist, Smc as Smc, Twist as Twist
    from .stochastic import Stochastic as Stochastic

__getattr__, __dir__ = lazily(__name__)
