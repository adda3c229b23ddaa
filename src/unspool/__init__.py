"""unspool decodes language models: every serious decoding method as a small rule behind one interface.

Names are loaded when they are first used, so that `import unspool` and `unspool --help` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .asks import Check as Check
    from .asks import Done as Done
    from .asks import Emit as Emit
    from .asks import Keep as Keep
    from .asks import Look as Look
    from .asks import Score as Score
    from .asks import Scores as Scores
    from .asks import Verdict as Verdict
    from .canvas import Canvas as Canvas
    from .chance import At as At
    from .chance import Every as Every
    from .chance import Philox as Philox
    from .chance import Role as Role
    from .chance import Tape as Tape
    from .claim import ARGMAX as ARGMAX
    from .claim import BOUND as BOUND
    from .claim import HEURISTIC as HEURISTIC
    from .claim import LAW as LAW
    from .claim import SEED as SEED
    from .claim import Claim as Claim
    from .claim import Method as Method
    from .claim import claims as claims
    from .comparison import compare as compare
    from .constrain import choices as choices
    from .constrain import json_schema as json_schema
    from .constrain import keywords as keywords
    from .constrain import regex as regex
    from .constrain.grammar import grammar as grammar
    from .constrain.predicate import predicate as predicate
    from .constrain.until import until as until
    from .decode.denoise import Denoise as Denoise
    from .decode.plain import plain as plain
    from .decode.speculate import Speculate as Speculate
    from .diverge import divergence as divergence
    from .draft.draft import Draft as Draft
    from .draft.draft import Memoryless as Memoryless
    from .draft.draft import Source as Source
    from .errors import UnspoolError as UnspoolError
    from .law import Drawn as Drawn
    from .law import Law as Law
    from .lm import LM as LM
    from .loader import load as load
    from .methods import method as method
    from .profile import Profile as Profile
    from .proof.prove import Proof as Proof
    from .proof.prove import prove as prove
    from .run.engine import Engine as Engine
    from .run.table import Joint as Joint
    from .run.table import Table as Table
    from .settings import Settings as Settings
    from .stop import Stop as Stop
    from .trace import Trace as Trace
    from .tree import Tree as Tree
    from .warp import Warp as Warp
    from .writer import Event as Event
    from .writer import Interrupted as Interrupted
    from .writer import Output as Output

_HOMES = {
    "asks": "Check Done Emit Keep Look Score Scores Verdict",
    "canvas": "Canvas",
    "chance": "At Every Philox Role Tape",
    "claim": "ARGMAX BOUND HEURISTIC LAW SEED Claim Method claims",
    "comparison": "compare",
    "constrain": "choices grammar json_schema keywords predicate regex until",
    "decode": "Denoise Speculate plain",
    "diverge": "divergence",
    "draft": "Draft Memoryless Source",
    "errors": "UnspoolError",
    "law": "Drawn Law",
    "lm": "LM",
    "loader": "load",
    "methods": "method",
    "profile": "Profile",
    "proof": "Proof prove",
    "run.engine": "Engine",
    "run.table": "Joint Table",
    "settings": "Settings",
    "stop": "Stop",
    "trace": "Trace",
    "tree": "Tree",
    "warp": "Warp",
    "writer": "Event Interrupted Output",
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'unspool' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
