"""unspool decodes language models: every serious decoding method as a small rule behind one interface.

Names are loaded when they are first used, so that `import unspool` and `unspool --help` stay quick.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from .core.lazy import lazily
from .core.version import VERSION as __version__  # noqa: N811  (its usual name)

if TYPE_CHECKING:
    from .api.comparison import compare as compare
    from .api.diverge import divergence as divergence
    from .api.lm import LM as LM
    from .api.loader import load as load
    from .api.profile import Profile as Profile
    from .api.settings import Settings as Settings
    from .api.writer import Event as Event, Interrupted as Interrupted, Output as Output
    from .core.asks import Check as Check, Done as Done, Emit as Emit, Keep as Keep, Look as Look, Score as Score
    from .core.asks import Scores as Scores, Verdict as Verdict
    from .core.canvas import Canvas as Canvas
    from .core.chance import At as At, Every as Every, Philox as Philox, Role as Role, Tape as Tape
    from .core.claim import ARGMAX as ARGMAX, BOUND as BOUND, HEURISTIC as HEURISTIC, LAW as LAW, SEED as SEED
    from .core.claim import Claim as Claim, Method as Method, claims as claims
    from .core.errors import UnspoolError as UnspoolError
    from .core.law import Drawn as Drawn, Law as Law
    from .core.stop import Stop as Stop
    from .core.trace import Trace as Trace
    from .core.tree import Tree as Tree
    from .core.warp import Warp as Warp
    from .loops.denoise import Denoise as Denoise
    from .loops.drafter import Draft as Draft, Memoryless as Memoryless, Source as Source
    from .loops.plain import plain as plain
    from .loops.speculate import Speculate as Speculate
    from .proof.prove import Proof as Proof, prove as prove
    from .recipes.methods import method as method
    from .rules.constrain import choices as choices, json_schema as json_schema, keywords as keywords, regex as regex
    from .rules.constrain.grammars import grammar as grammar
    from .rules.constrain.predicates import predicate as predicate
    from .rules.constrain.until_form import until as until
    from .runtime.cache.table_model import Joint as Joint, Table as Table
    from .runtime.engine.engine import Engine as Engine

# torch says so when numpy is not there, which nothing here needs.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

__getattr__, __dir__ = lazily(__name__)
__all__ = ["__version__", *__dir__()]
