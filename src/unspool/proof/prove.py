"""Prove a claim: enumerate the method on drawn cases and compare the joint law of whole texts with the truth."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings

from ..core.chance import TooManyBranches
from ..core.claim import BOUND, HEURISTIC, LAW, About, Claim, Entry, Method
from ..core.errors import BadRequest
from ..recipes.methods import entries, named
from .case import STANDING, UNSHAPED, Case, cases
from .compare_laws import Broken, Compared, Truth, Witness, compared, shown
from .plainly import Conditioned, Plainly
from .shaping import PLAIN

TOLERANCE = 1e-12


class Effort(NamedTuple):
    """How long to look: drawn cases and branches per trial, and branches up to which one case is followed.

    The standing cases are shared out among the trials of a rule: each trial is held against every `every`th of them,
    or more where there are fewer trials, so that each case is met by some trial.
    """

    cases: int
    branches: int
    each: int
    every: int

    def standing(self, number: int, trials: int, shaped: bool) -> Sequence[Case]:
        """The standing cases for this one of so many trials."""
        known, every = STANDING if shaped else UNSHAPED, min(self.every, trials)
        return known[number % every :: every]


QUICK, THOROUGH = Effort(8, 300, 250, 4), Effort(80, 20000, 3000, 1)


@dataclass(frozen=True)
class Proof:
    """What enumeration found of one claim: the largest total variation from what was promised, over all cases.

    For SEED and ARGMAX, `tv` also counts the probability of any text other than the promised one. A proof in which some
    trial of the method was compared nowhere is not `ok`: it has shown nothing.
    """

    method: str
    claim: str
    tv: float
    branches: int
    ok: bool
    seconds: float
    cases: int = 0  # compared, of which `shorter` with fewer tokens than the case has
    shorter: int = 0
    skipped: int = 0  # too large to follow even for one token
    refused: int = 0  # with a constraint that the method says it cannot work under
    counterexample: str | None = None
    witness: Witness | None = None  # the branch that shows it, for `replay`

    def record(self) -> dict[str, Any]:
        """The proof as plain data."""
        named = "method", "claim", "tv", "branches", "ok", "seconds", "cases", "shorter", "skipped", "refused"
        data: dict[str, Any] = {name: getattr(self, name) for name in named}
        if self.counterexample:
            data["counterexample"] = self.counterexample
        if self.witness:
            data["witness"] = self.witness.record()
        return data


@dataclass
class _Tally:
    tv: float = 0.0
    branches: int = 0
    cases: int = 0
    shorter: int = 0
    skipped: int = 0
    refused: int = 0
    broken: bool = False


def prove(
    method: Method | str,
    claim: Claim = LAW,
    *,
    quick: bool = False,
    name: str | None = None,
    bound: Callable[[Case], float] | None = None,
    shaped: bool = True,
    truth: Truth = Plainly,
) -> Proof:
    """Enumerate a method, or a registered rule by name, against what it claims.

    Any callable (text, chance, warp, stop) -> generator of asks can be proved; it may use the models "target" and
    "draft". `shaped=False` leaves warps out, `bound` is what BOUND claims of the total variation in a case, and `truth`
    tells the law of a case where the claim is about another than plain decoding's.
    """
    if isinstance(method, str):
        return prove_entry(named(method), quick=quick)
    label = name or str(getattr(method, "__name__", type(method).__name__))
    return _prove(label, claim, [method], quick, bound, shaped, truth)


def prove_entry(entry: Entry, quick: bool = False) -> Proof:
    """Enumerate all trials of a registered rule."""
    trials = list(entry.trials(entry.rule))
    return _prove(entry.name, entry.claim, trials, quick, entry.bound, entry.shaped, truth_of(entry))


def truth_of(entry: Entry) -> Truth:
    """The truth that a rule's claim is held against."""
    about = entry.about or About()
    return partial(Conditioned if about.conditioned else Plainly, first=about.first)


def prove_all(names: tuple[str, ...] = (), quick: bool = False) -> Iterator[Proof]:
    """Enumerate the named rules, or every registered one."""
    chosen = [named(name) for name in names] if names else list(entries().values())
    for entry in chosen:
        yield prove_entry(entry, quick)


def _prove(
    label: str,
    claim: Claim,
    trials: list[Method],
    quick: bool,
    bound: Callable[[Case], float] | None,
    shaped: bool,
    truth: Truth,
) -> Proof:
    if claim is BOUND and bound is None:
        raise BadRequest(f"{label} claims a bound but does not say which: give bound=, a function of the case")
    tally, began, broken, witness = _Tally(), perf_counter(), None, None
    for number, method in enumerate(trials):
        before = tally.cases
        try:
            effort = QUICK if quick else THOROUGH
            _search(method, claim, tally, effort, effort.standing(number, len(trials), shaped), bound, shaped, truth)
            if tally.cases == before:
                raise Broken("no case could be compared, so nothing was shown: every one was too large or was refused")
        except Broken as found:
            named = re.sub(r"<function (\S+) at 0x\w+>", r"\1", str(method))
            broken = f"{named}\n{found}"
            witness = found.witness and replace(found.witness, trial=number)
            break
    if not trials:
        broken = "the rule has no trials, so nothing was shown"
    seconds, t = perf_counter() - began, tally
    counts = t.cases, t.shorter, t.skipped, t.refused
    return Proof(label, claim.name, t.tv, t.branches, broken is None, seconds, *counts, broken, witness)


def _search(
    method: Method,
    claim: Claim,
    tally: _Tally,
    effort: Effort,
    standing: Sequence[Case],
    bound: Callable[[Case], float] | None,
    shaped: bool,
    truth: Truth,
) -> None:
    """Look for a case in which the claim fails: drawn ones first, which Hypothesis shrinks, then the standing ones."""
    drawn = cases() if shaped else cases(warps=(PLAIN,))
    start = tally.branches
    large: list[int] = []  # how many texts there were in cases that had too many branches

    def hold(whole: Case) -> None:
        try:
            found, case = _followed(method, claim, whole, effort.each, truth, large)
        except TooManyBranches:
            tally.skipped += 1
            return
        except Broken:
            tally.tv, tally.broken = 1.0, True  # there is no law to compare
            raise
        if found is None:
            tally.refused += 1
            return
        tally.branches += found.branches
        tally.cases += 1
        tally.shorter += case.most < whole.most
        limit = TOLERANCE + (bound(case) if claim is BOUND and bound is not None else 0.0)  # a bound may be attained
        if found.tv > limit and claim is not HEURISTIC:
            tally.tv, tally.broken = found.tv, True
            told = f"{case}\ntotal variation {found.tv:.3g}, promised ≤ {limit:.3g}\n{shown(found)}"
            raise Broken(told, found.witness)
        tally.tv = max(tally.tv, found.tv)

    @given(drawn)
    @settings(
        max_examples=effort.cases,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
    )
    def check(case: Case) -> None:
        # Once a case has failed, Hypothesis must be able to try it and smaller ones again.
        if tally.broken or tally.branches - start < effort.branches:
            hold(case)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hypothesis's own, about how the cases are drawn
        check()
    for case in standing:
        hold(case)


def _followed(
    method: Method, claim: Claim, case: Case, most: int, truth: Truth, large: list[int]
) -> tuple[Compared | None, Case]:
    """What came of this case, or of the same case with shorter texts if it has too many branches.

    Cases with as many texts as two that were too large are not even tried: finding that out is most of the work.
    """
    while True:
        texts = len(truth(case, ()).law())
        try:
            if sum(known <= texts for known in large) >= 2:
                raise TooManyBranches(most)
            return compared(method, claim, case, most, truth), case
        except TooManyBranches:
            large.append(texts)
            if case.most == 1:
                raise
            case = replace(case, most=case.most - 1)
