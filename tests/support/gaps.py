"""How far every approximate rule is from plain decoding, case by case: what tests/golden/gaps.json pins.

A rule that claims no exact law cannot fail `prove`, so a slip in its formula shows only here. `measured` gives two
figures for each trial of a rule and each standing case: its gap, the total variation from the truth, and its mark, the
mean over the law of whole texts of a number that is drawn from each text by a hash. Laws that are equally far from the
truth have different marks, and unlike a hash of rounded probabilities a mark moves no more than the law does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeAlias

from remembering import Cached
from repository import TESTS

from unspool.core.asks import Done
from unspool.core.chance import TooManyBranches
from unspool.core.claim import BOUND, HEURISTIC, Entry, Method
from unspool.proof import Case
from unspool.proof.case import STANDING, UNSHAPED
from unspool.proof.compare_laws import compared
from unspool.proof.prove import TOLERANCE, truth_of
from unspool.proof.shaping import PLAIN
from unspool.recipes.methods import entries, method
from unspool.rules.decode import Denoise, Speculate
from unspool.rules.draft import RSDC, Chain
from unspool.rules.unmask.adaptive import Adaptive
from unspool.rules.unmask.confident import Confident
from unspool.rules.unmask.filtered import Filtered
from unspool.rules.unmask.foreseen import Foreseen
from unspool.rules.verify.conditional import Conditional
from unspool.rules.verify.top_beta import TopBeta
from unspool.rules.verify.typical import TypicalAcceptance

FILE = TESTS / "golden" / "gaps.json"
RENEW = "scripts/gaps"  # what writes the file
CLOSE = 1e-9
BRANCHES = 150  # up to which a case is followed; with more, its texts are made shorter
MANY, REFUSED, TIED = "too many branches", "refused", "rounding decides"

_SURE = Case(2, ((21, 1), (1, 13), (8, 1), (2, 3), (5, 1)), ((1, 2), (4, 1)), (1,), PLAIN, None, None, 3)
_FLAT = Case(3, ((4, 3, 2), (2, 3, 4), (9, 1, 2), (3, 4, 5)), ((1, 2, 3), (4, 1, 1)), (0, 2), PLAIN, None, None, 3)
_MIDDLE = Case(2, ((1, 1), (3, 4), (2, 3), (9, 1), (8, 1)), ((1, 2), (4, 1)), (0,), PLAIN, None, None, 3)
_CANVASES = _SURE, _FLAT, _MIDDLE, Cached(**asdict(UNSHAPED[0])), Cached(**asdict(_SURE))
_GARDEN = Case(  # where the likeliest first token does not begin the likeliest text
    3,
    ((1, 7, 1), (1, 1, 1), (8, 7, 2), (5, 6, 1), (4, 3, 4), (9, 4, 5), (3, 6, 5)),
    ((1, 2, 3), (4, 1, 1)),
    (0,),
    PLAIN,
    None,
    None,
    4,
)
CASES = tuple(dict.fromkeys((*STANDING, *UNSHAPED, *_CANVASES, _GARDEN)))

MORE: Mapping[str, tuple[Method | str, ...]] = {
    "adaptive": (Denoise(Confident(0.5), 3, Adaptive(3, 0.6, ends=(0,), reach=1.0)),),
    "cached_dual": ("cached_dual:threshold=0.9,block=2,size=3",),
    "cached_prefix": ("cached_prefix:threshold=0.9,block=2,size=3",),
    "checked": ("checked:cost=0.8,threshold=0.6,size=3",),
    "conditional": (Speculate(Chain(2), Conditional(0.6, 0.4)), Speculate(RSDC((2,)), Conditional(0.5, 0.2))),
    "cycle": ("cycle:threshold=0.6,looks=1,least=0.9,size=3",),
    "delayed": ("delayed:threshold=1,reload=3,size=3",),
    "diverse": ("diverse:groups=2,width=1,apart=5",),
    "dynamic": ("dynamic:threshold=0.55,steps=2,block=3,size=3",),
    "explore": ("explore:threshold=0.68,block=4,size=4",),
    "filtered": (Denoise(Filtered(lambda sure: 8 * sure.cumprod(0) - 2, 3, 0.6), 3),),
    "foreseen": (
        Denoise(Confident(0.6), 3, Foreseen(3, 0.7, 0.3, ends=(0,))),
        Denoise(Confident(0.5), 3, Foreseen(2, 0.95, 0.6, ends=(1,))),
    ),
    "hierarchy": ("hierarchy:threshold=0.8,low=0.55,size=3",),
    "interval": ("interval:threshold=1,prompt=3,answer=2,renew=0.5,size=3",),
    "mcts": ("mcts:kids=3,rollouts=9",),
    "redundant": (
        "redundant:threshold=0.95,cluster=0.7,span=2,known=0,steady=2,size=3",
        "redundant:threshold=0.95,cluster=2,steady=0.6,streak=2,size=3",
    ),
    "rollback": ("bild:sure=0.4,steps=2 + rollback:surprise=0.8",),
    "top_beta": (Speculate(Chain(2), TopBeta(2, 2.0)),),
    "typical": (Speculate(Chain(2), TypicalAcceptance(0.6, 0.9)), Speculate(RSDC((2,)), TypicalAcceptance(0.4, 0.7))),
    "windowed": (
        "windowed:threshold=1,near=1,far=1,cycle=4,size=3",
        "windowed:threshold=0.75,near=1,far=2,cycle=4,size=3",
    ),
}
"""Trials beside a rule's own, where those never get to what it is about, or cannot tell it from another rule."""

Figures: TypeAlias = dict[str, float] | str
Measured: TypeAlias = list[dict[str, Figures]]


def approximate() -> dict[str, Entry]:
    """The rules that claim no exact law, by name."""
    return {name: entry for name, entry in entries().items() if entry.claim in (HEURISTIC, BOUND)}


def cases_of(entry: Entry) -> tuple[Case, ...]:
    """The standing cases of its proof, and a few that tell such rules from each other.

    For claims about a model's own law a sure one, a flat one, one that is sure of its middle, and two on a model that
    remembers what it computed; for searches one that leads a greedy text astray.
    """
    astray = (_GARDEN,) if entry.family == "search" else ()
    return (*STANDING, *astray) if entry.shaped else (*UNSHAPED, *_CANVASES, *astray)


def measured(entry: Entry, scale: float = 1.0, every: int = 1) -> Measured:
    """For each trial of a rule the figures of every case, by the number of the case.

    `scale` multiplies all weights of the models: the laws stay the same, and are rounded otherwise. With `every` 2 half
    of the standing cases are left out, others for the next trial; the few that tell rules apart never are.
    """
    telling = (*_CANVASES, _GARDEN)
    return [
        {
            str(CASES.index(case)): _figures(entry, trial, _scaled(case, scale))
            for i, case in enumerate(cases_of(entry))
            if case in telling or (i + number) % every == 0
        }
        for number, trial in enumerate((*entry.trials(entry.rule), *map(method, MORE.get(entry.name, ()))))
    ]


def _figures(entry: Entry, trial: Method, case: Case) -> Figures:
    """The figures of one case, or why there are none; `tokens` is said where texts had to be shorter."""
    for most in range(case.most, 0, -1):
        try:
            found = compared(trial, entry.claim, replace(case, most=most), BRANCHES, truth_of(entry))
        except TooManyBranches:
            continue
        if found is None:
            return REFUSED
        shorter = {} if most == case.most else {"tokens": most}
        return {**shorter, "gap": found.tv if found.tv > TOLERANCE else 0.0, "mark": mark(found.got)}
    return MANY


def _scaled(case: Case, scale: float) -> Case:
    if case.warp.startswith("repetition"):  # divides scores, so that it is no matter of laws alone
        return case
    target, draft = (tuple(tuple(scale * x for x in row) for row in rows) for rows in (case.target, case.draft))
    return replace(case, target=target, draft=draft)


def mark(law: Mapping[Done, float]) -> float:
    """The mean of a number in [0, 1) that each text has by its hash."""
    return sum(mass * _number(text) for text, mass in sorted(law.items(), key=lambda item: repr(item[0])))


def _number(text: Done) -> float:
    told = repr((text.tokens, text.reason, text.trim)).encode()
    return int.from_bytes(hashlib.sha256(told).digest()[:6], "big") / 2**48


def pinned(entry: Entry) -> Measured:
    """What the file should hold of a rule; where the rounding of weights decides what is written, just that."""
    now, rounded = measured(entry), measured(entry, 1.1)
    return [
        {number: figures if near(figures, others[number]) else TIED for number, figures in trial.items()}
        for trial, others in zip(now, rounded, strict=True)
    ]


def near(old: Figures, new: Figures) -> bool:
    """Whether these are the same figures, but for rounding."""
    if isinstance(old, str) or isinstance(new, str):
        return old == new
    return old.keys() == new.keys() and all(abs(old[key] - new[key]) <= CLOSE for key in old)


def differences(name: str, old: Measured, new: Measured) -> list[str]:
    """What has changed in a rule's figures, a line for each case."""
    if len(old) != len(new):
        return [f"{name}: {len(old)} trials are pinned, and there are {len(new)}"]
    lines = []
    for number, (before, now) in enumerate(zip(old, new, strict=True)):
        for case in sorted({*before, *now}, key=int):
            was, found = before.get(case, "not pinned"), now.get(case, "not measured")
            if was != TIED and not near(was, found):
                lines.append(f"{name}, trial {number}, case {case}: pinned {told(was)}, now {told(found)}")
    return lines


def kept(old: Measured, new: Measured) -> Measured:
    """The new figures, but the old ones where nothing but their rounding has changed."""
    if len(old) != len(new):
        return new
    return [
        {case: was[case] if case in was and near(was[case], figures) else figures for case, figures in trial.items()}
        for was, trial in zip(old, new, strict=True)
    ]


def told(figures: Figures) -> str:
    """Figures in words."""
    return figures if isinstance(figures, str) else ", ".join(f"{key} {value!r}" for key, value in figures.items())


def cases() -> dict[str, str]:
    """The cases by their numbers, in words."""
    return {str(number): "; ".join(str(case).splitlines()) for number, case in enumerate(CASES)}


def read() -> dict[str, dict]:
    """What is pinned: the `cases`, and the figures of all `rules`."""
    return json.loads(FILE.read_text())


def write(rules: Mapping[str, Measured]) -> None:
    """Pin these figures, a line for each case."""
    FILE.write_text(_lines({"renew": RENEW, "cases": cases(), "rules": dict(rules)}) + "\n")


def _lines(value: Any, margin: str = "") -> str:
    """As JSON, with a line for each of the innermost lists and dictionaries, and for each string."""
    if not isinstance(value, (dict, list)) or (value and all(isinstance(one, float | int) for one in _inside(value))):
        return json.dumps(value, ensure_ascii=False)
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    deeper = margin + " "
    told = [f"{deeper}{name}{_lines(one, deeper)}" for name, one in zip(names, _inside(value), strict=True)]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([first, ",\n".join(told), margin + last])


def _inside(value: dict[str, Any] | list[Any]) -> Collection[Any]:
    return value.values() if isinstance(value, dict) else value
