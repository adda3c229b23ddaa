"""One case of a proof: a method's exact law of whole texts beside the truth, and the branch that tells them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from ..core.asks import Done, Emit
from ..core.canvas import Canvas
from ..core.chance import At, Every, Role, TooManyBranches, total_variation
from ..core.claim import ARGMAX, HEURISTIC, SEED, Claim, Method
from ..core.errors import BadRequest, EmptyLaw
from ..core.warp import Temperature
from ..runtime.engine.engine import Engine
from .case import Case
from .narrate import address, narrated
from .plainly import EMPTY, Plainly, Shaping, greedy
from .shaping import BOUND_BY

CLOSE = 1e-9  # how far an emitted probability may be from the truth's: both are sums of the same few numbers


Truth: TypeAlias = Callable[[Case, tuple[Shaping, ...]], Plainly]
"""What tells the true law of a case, given what is to be shaped last."""


@dataclass(frozen=True)
class Witness:
    """One branch of one case, by which a counterexample can be run again."""

    case: Case
    claim: str
    branch: tuple[int, ...]
    trial: int = 0

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {"case": asdict(self.case), "claim": self.claim, "branch": list(self.branch), "trial": self.trial}


class Broken(AssertionError):
    """A case in which a claim does not hold, with a branch that shows it where there is one."""

    def __init__(self, told: str, witness: Witness | None = None) -> None:
        super().__init__(told)
        self.witness = witness


@dataclass(frozen=True)
class Difference:
    """Two texts of one branch, so by the same random numbers, and what chance said where they first differ."""

    mine: Done
    plain: Done
    branch: tuple[int, ...]
    at: int
    choices: tuple[tuple[str, At, int], ...]

    def __str__(self) -> str:
        lines = [f"  plain decoding writes {_text(self.plain)}", f"  the method writes {_text(self.mine)}"]
        told = "; ".join(f"{who}, {address(at)}: {outcome}" for who, at, outcome in self.choices)
        return "\n".join([*lines, f"  they part at token {self.at + 1}, where {told or 'nobody asked chance'}"])


@dataclass(frozen=True)
class Compared:
    """What came out and what should have: the laws of whole texts, and how far apart they are.

    For SEED and ARGMAX, `parted` is a branch in which the method wrote something else than plain decoding, and where.
    """

    tv: float
    branches: int
    got: Mapping[Done, float]
    truth: Mapping[Done, float]
    parted: Difference | None = None
    witness: Witness | None = None


def compared(method: Method, claim: Claim, case: Case, most: int, truth: Truth = Plainly) -> Compared | None:
    """Enumerate a method in a case; None if it refuses the case's constraint, in words."""
    run = _Run(method, claim, case, truth)
    every = Every(most)
    try:
        if claim in (SEED, ARGMAX):
            pairs = every.law(lambda _: run.both(every))
            got = _marginal(pairs)
            other = sum(mass for (mine, plain), mass in pairs.items() if mine != plain)
        else:
            got, other = every.law(lambda _: run.mine(every)), 0.0
    except (TooManyBranches, Broken, KeyboardInterrupt):
        raise
    except BaseException as error:  # whatever it is: a method may not end the proof either
        early = every.branches == 0 and not every.choices  # a refusal comes before anything is drawn
        if isinstance(error, BadRequest) and early and case.warp in BOUND_BY and "constraint" in str(error):
            return None
        raise run.failed(error, every) from error
    wanted = run.truth
    tv = max(other, total_variation(got, wanted))
    worst = max({*got, *wanted}, key=lambda text: got.get(text, 0.0) - wanted.get(text, 0.0))
    branch = run.parted.branch if run.parted else run.branches.get(worst, (0, 0, None))[2]
    witness = None if branch is None else Witness(case, claim.name, branch)
    return Compared(tv, every.branches, got, wanted, run.parted, witness)


def shown(found: Compared) -> str:
    """The two texts of one branch, where they should be the same; and the texts whose probabilities differ most."""
    got, truth = found.got, found.truth
    texts = sorted({*got, *truth}, key=lambda t: -abs(got.get(t, 0) - truth.get(t, 0)))[:4]
    differ = [t for t in texts if abs(got.get(t, 0) - truth.get(t, 0)) > CLOSE]
    rows = [f"  {_text(t):24} got {got.get(t, 0):.6f}  truth {truth.get(t, 0):.6f}" for t in differ]
    told = ["with the same random numbers", str(found.parted)] if found.parted else []
    told += ["texts that differ most:", *rows] if rows else ["every text has the right probability: the law is kept"]
    return "\n".join(told)


def replay(method: Method, witness: Witness, truth: Truth = Plainly) -> str:
    """Run the branch of a counterexample again, and tell every choice of it."""
    claim = Claim[witness.claim]
    run, every = _Run(method, claim, witness.case, truth), Every()
    lines = [str(witness.case), "what happened, in this order:"]
    run.method = narrated(method, lambda said: lines.append(f"  {said}"))
    try:
        mine, plain = every.replay(lambda _: run.both(every), witness.branch)
        lines += [f"the method writes {_text(mine)}"]
        if claim in (SEED, ARGMAX):
            choices = every.choices[-len(plain.tokens) :] if plain.tokens else []
            lines += [f"  plain decoding, {address(at)}: token {outcome}" for at, outcome in choices]
            lines += [f"plain decoding writes {_text(plain)}"]
    except Exception as error:
        lines += [f"the method fails: {type(error).__name__}: {error}"]
    return "\n".join(lines)


class _Run:
    """A method and plain decoding on one case, as often as there are branches."""

    def __init__(self, method: Method, claim: Claim, case: Case, truth: Truth) -> None:
        self.method, self.claim, self.case = method, claim, case
        self.plainly = truth(case, (greedy,) if claim is ARGMAX else ())
        self.truth = self.plainly.law()
        self.warp = case.shaping() | Temperature(0.0) if claim is ARGMAX else case.shaping()
        self.tables, self.stop = case.tables(), case.stop()
        self.engine = Engine(case.models(self.tables))
        # For each text, how many drafts were refused and how many choices made in the branch to it that has most of
        # them, and that branch: rules go wrong where they refuse, and where all is accepted there is little to see.
        self.branches: dict[Done, tuple[int, int, tuple[int, ...]]] = {}
        self.parted: Difference | None = None

    def mine(self, every: Every) -> Done:
        """What the method writes in this branch; EMPTY where no token was left."""
        done = self._decoded(every)
        refused = sum(at.role is Role.ACCEPT and not outcome for at, outcome in every.choices)
        seen = refused, len(every.branch), every.branch
        if done not in self.branches or seen[:2] > self.branches[done][:2]:
            self.branches[done] = seen
        return done

    def both(self, every: Every) -> tuple[Done, Done]:
        """What the method writes in this branch, and what plain decoding does."""
        mine = self.mine(every)
        count = len(every.choices)
        plain = self.plainly.text(every)
        if mine != plain and self.parted is None:
            self.parted = self._parted(mine, plain, every, count)
        return mine, plain

    def _parted(self, mine: Done, plain: Done, every: Every, count: int) -> Difference:
        """Where two texts of this branch part; the method made the first `count` choices of it."""
        both = zip(mine.tokens, plain.tokens, strict=False)
        at = next((i for i, (a, b) in enumerate(both) if a != b), min(len(mine.tokens), len(plain.tokens)))
        here = len(self.case.prompt) + at
        said = [("the method" if i < count else "plain decoding", *each) for i, each in enumerate(every.choices)]
        return Difference(mine, plain, every.branch, at, tuple(each for each in said if each[1].position == here))

    def failed(self, error: BaseException, every: Every) -> Broken:
        """That the method raised an error, and in which branch."""
        told = f"{self.case}\nthe method failed: {type(error).__name__}: {error}"
        return Broken(told, Witness(self.case, self.claim.name, every.branch))

    def _decoded(self, every: Every) -> Done:
        job = self.engine.submit(self.method, self.case.prompt, every, self.warp, self.stop)
        self.engine.run()
        try:
            done = job.result()
        except EmptyLaw:
            return EMPTY
        emitted = tuple(x for emit in job.emitted for x in emit.tokens)
        here = Witness(self.case, self.claim.name, every.branch)
        if emitted != done.tokens:
            raise Broken(f"{self.case}\nemitted {emitted}, but ended with {done.tokens}", here)
        if self.claim is not HEURISTIC and (wrong := self._misreported(job.emitted)):
            raise Broken(f"{self.case}\n{wrong}", here)
        return done

    def _misreported(self, emitted: Iterable[Emit]) -> str:
        """Which probability came with a token and was not the one it had, before or after warps; "" if none."""
        written: tuple[int, ...] = ()
        like = self.tables["target"].law(self.case.prompt)
        for emit in emitted:
            laws = [("before", emit.before, 0), ("after", emit.after, 1)]
            if self.claim is ARGMAX:  # searches rank by the law before its best token was taken, and report that
                laws = laws[:1]
            if isinstance(emit.canvas, Canvas):  # what a hole had when it was filled is given by more than its left
                laws = []
            for i in range(len(emit.tokens)):
                for name, given, which in laws:
                    if i >= len(given):
                        return f"no law {name} warps came with token {len(written) + i + 1}"
                    true = self.plainly.around(written + emit.tokens[:i])[which] or []
                    said = given[i].spread(like).tolist()
                    if len(said) != len(true) or not all(abs(a - b) <= CLOSE for a, b in zip(said, true, strict=True)):
                        place = f"token {len(written) + i + 1} of {[*written, *emit.tokens]}"
                        return f"the law emitted {name} warps with {place} is {_law(said)}; it is {_law(true)}"
            written += emit.tokens
        return ""


def _marginal(pairs: Mapping[tuple[Done, Done], float]) -> dict[Done, float]:
    law: dict[Done, float] = {}
    for (mine, _), mass in pairs.items():
        law[mine] = law.get(mine, 0.0) + mass
    return law


def _law(p: list[float]) -> str:
    return "[" + ", ".join(f"{x:.4f}" for x in p) + "]"


def _text(done: Done) -> str:
    return "no text: no token is left" if done == EMPTY else f"{list(done.tokens)} ({done.reason})"
