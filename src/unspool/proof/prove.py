"""Prove a claim: enumerate the method on drawn cases and compare the joint law of whole texts with the truth."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, settings

from ..asks import Done
from ..chance import Chance, Every, TooManyBranches, total_variation
from ..claim import ARGMAX, BOUND, HEURISTIC, LAW, SEED, Claim, Entry, Method, entries
from ..errors import BadRequest, EmptyLaw
from ..run.engine import Engine
from ..warp import Temperature
from .case import PLAIN, STANDING, WARPS, Case, cases
from .truth import law_of_text, text_of_seed

TOLERANCE = 1e-12


class Effort(NamedTuple):
    """How long to look: drawn cases and branches per trial, and branches up to which one case is followed."""

    cases: int
    branches: int
    each: int


QUICK, THOROUGH = Effort(15, 800, 250), Effort(80, 20000, 3000)


@dataclass(frozen=True)
class Proof:
    """What enumeration found of one claim: the largest total variation from what was promised, over all cases.

    For SEED and ARGMAX, `tv` also counts the probability of any text other than the promised one.
    """

    method: str
    claim: str
    tv: float
    branches: int
    ok: bool
    seconds: float
    cases: int = 0
    skipped: int = 0  # cases that were too large to follow even for one token
    counterexample: str | None = None

    def record(self) -> dict[str, Any]:
        """The proof as plain data."""
        data: dict[str, Any] = {
            k: getattr(self, k) for k in ("method", "claim", "tv", "branches", "ok", "seconds", "cases", "skipped")
        }
        if self.counterexample:
            data["counterexample"] = self.counterexample
        return data


@dataclass
class _Tally:
    tv: float = 0.0
    branches: int = 0
    cases: int = 0
    skipped: int = 0
    broken: bool = False


class _Broken(AssertionError):
    """A case in which the claim does not hold."""


def prove(
    method: Method | str,
    claim: Claim = LAW,
    *,
    quick: bool = False,
    name: str | None = None,
    bound: Callable[[Case], float] | None = None,
    shaped: bool = True,
) -> Proof:
    """Enumerate a method, or a registered rule by name, against what it claims.

    Any callable (text, chance, warp, stop) -> generator of asks can be proved; it may use the models "target" and
    "draft". `shaped=False` leaves warps out, `bound` is what BOUND claims of the total variation in a case.
    """
    if isinstance(method, str):
        return prove_entry(_entry(method), quick=quick)
    label = name or str(getattr(method, "__name__", type(method).__name__))
    return _prove(label, claim, [method], quick, bound, shaped)


def prove_entry(entry: Entry, quick: bool = False) -> Proof:
    """Enumerate all trials of a registered rule."""
    return _prove(entry.name, entry.claim, list(entry.trials(entry.rule)), quick, entry.bound, entry.shaped)


def prove_all(names: tuple[str, ...] = (), quick: bool = False) -> Iterator[Proof]:
    """Enumerate the named rules, or every registered one."""
    chosen = [_entry(name) for name in names] if names else list(entries().values())
    for entry in chosen:
        yield prove_entry(entry, quick)


def _entry(name: str) -> Entry:
    known = entries()
    if name not in known:
        raise BadRequest(f"no method is called {name!r}; there are: {', '.join(known)}")
    return known[name]


def _prove(
    label: str, claim: Claim, trials: list[Method], quick: bool, bound: Callable[[Case], float] | None, shaped: bool
) -> Proof:
    if claim is BOUND and bound is None:
        raise BadRequest(f"{label} claims a bound but does not say which: give bound=, a function of the case")
    tally, began, broken = _Tally(), perf_counter(), None
    for method in trials:
        try:
            _search(method, claim, tally, QUICK if quick else THOROUGH, bound, shaped)
        except _Broken as found:
            shown = re.sub(r"<function (\S+) at 0x\w+>", r"\1", str(method))
            broken = f"{shown}\n{found}"
            break
    ok = broken is None
    seconds = perf_counter() - began
    return Proof(label, claim.name, tally.tv, tally.branches, ok, seconds, tally.cases, tally.skipped, broken)


def _search(
    method: Method,
    claim: Claim,
    tally: _Tally,
    effort: Effort,
    bound: Callable[[Case], float] | None,
    shaped: bool,
) -> None:
    """Look for a case in which the claim fails: drawn ones first, which Hypothesis shrinks, then the standing ones."""
    drawn = cases() if shaped else cases(warps=(PLAIN,))
    start = tally.branches

    def hold(case: Case) -> None:
        try:
            tv, branches, difference, case = _followed(method, claim, case, effort.each)
        except TooManyBranches:
            tally.skipped += 1
            return
        tally.branches += branches
        tally.cases += branches > 0
        limit = TOLERANCE + (bound(case) if claim is BOUND and bound is not None else 0.0)  # a bound may be attained
        if tv > limit and claim is not HEURISTIC:
            tally.tv, tally.broken = tv, True
            raise _Broken(f"{case}\ntotal variation {tv:.3g}, promised ≤ {limit:.3g}\n{difference}")
        tally.tv = max(tally.tv, tv)

    @given(drawn)
    @settings(
        max_examples=effort.cases,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    def check(case: Case) -> None:
        # Once a case has failed, Hypothesis must be able to try it and smaller ones again.
        if tally.broken or tally.branches - start < effort.branches:
            hold(case)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hypothesis's own, about how the cases are drawn
        check()
    for case in STANDING:
        if shaped or case.warp == PLAIN:
            hold(case)


def _followed(method: Method, claim: Claim, case: Case, most: int) -> tuple[float, int, str, Case]:
    """The distance in this case, or in the same case with shorter texts if it has too many branches."""
    while True:
        try:
            return (*_distance(method, claim, case, most), case)
        except TooManyBranches:
            if case.most == 1:
                raise
            case = replace(case, most=case.most - 1)
        except EmptyLaw:
            return 0.0, 0, "", case  # the warp forbids every token here; there is no text to compare
        except _Broken:
            raise
        except Exception as error:
            raise _Broken(f"{case}\nthe method failed: {type(error).__name__}: {error}") from error


def _distance(method: Method, claim: Claim, case: Case, most: int) -> tuple[float, int, str]:
    """Total variation from the promise, branches visited, and the texts that differ most."""
    tables, stop = case.tables(), case.stop()
    warp = WARPS[case.warp] | Temperature(0.0) if claim is ARGMAX else WARPS[case.warp]
    every, engine = Every(most), Engine(case.models(tables))

    def decoded(chance: Chance) -> Done:
        job = engine.submit(method, case.prompt, chance, warp, stop)
        engine.run()
        done = job.result()
        emitted = tuple(x for emit in job.emitted for x in emit.tokens)
        if emitted != done.tokens:
            raise _Broken(f"{case}\nemitted {emitted}, but ended with {done.tokens}")
        return done

    def both(chance: Chance) -> tuple[Done, Done]:
        return decoded(chance), text_of_seed(tables["target"], case.prompt, warp, stop, chance)

    truth = law_of_text(tables["target"], case.prompt, warp, stop)
    if claim in (SEED, ARGMAX):
        pairs = every.law(both)
        got = _marginal(pairs)
        other = sum(mass for (mine, plain), mass in pairs.items() if mine != plain)
        return max(other, total_variation(got, truth)), every.branches, _difference(got, truth)
    got = every.law(decoded)
    return total_variation(got, truth), every.branches, _difference(got, truth)


def _marginal(pairs: dict[tuple[Done, Done], float]) -> dict[Done, float]:
    law: dict[Done, float] = {}
    for (mine, _), mass in pairs.items():
        law[mine] = law.get(mine, 0.0) + mass
    return law


def _difference(got: dict[Done, float], truth: dict[Done, float]) -> str:
    texts = sorted({*got, *truth}, key=lambda t: -abs(got.get(t, 0) - truth.get(t, 0)))[:4]
    rows = [f"  {list(t.tokens)!s:16} {t.reason:8} got {got.get(t, 0):.6f}  truth {truth.get(t, 0):.6f}" for t in texts]
    return "texts that differ most:\n" + "\n".join(rows)
