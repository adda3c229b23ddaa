"""A job: one request inside the engine, and the account that says what it may hold beside others.

Requests stand in two lines, those of small and those of large ones, by what all their texts may need together, and each
by turns for their clients (see `scheduler`). Large ones hold at most a `share` of the whole, all of them together; the
rest is only for small ones. Those may have everything, but while a large one waits those that came after it keep to the
rest, so that its share comes free. So nobody who wants little ever waits for somebody who wants much, and both lines
move on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple

from ...core.asks import (
    TARGET,
    Ask,
    Check,
    Checked,
    Decoding,
    Done,
    Drew,
    Emit,
    OutOfTime,
    Score,
    Scores,
    Write,
    Written,
)
from ...core.canvas import Field
from ...core.errors import BadRequest, UnspoolError
from ...core.law import Law
from ...core.reported_law import Reports, reported
from ...core.stop import Stop
from ...core.trace import Trace
from ...core.tree import NOTHING, ROOT, Tree
from ...core.verifier import sample_match
from .contracts import Session

WAITING, LIVE, ENDED = "waiting", "live", "ended"
RECENT = 8  # rounds, or steps, over which a mean is taken of what they took of late
SMALL = 4  # how many small requests fit into the share of the large ones
PARTING = 64  # asks that a decoder may still make when its time is over
TURN = 64  # asks without a model after which others get their turn; a round of any method has a handful
LONG = 0.05  # seconds without a model after which they get it too: a canvas may think for as long between two asks
# Asks in a row that need no model before a decoder counts as one that never ends. The longest honest rows are those of
# canvases that are only shown, once for every step that changes nothing: hundreds, or thousands if somebody wants so
# many steps. Ten thousand take about a second, during which others have had their turns.
SILENT = 160 * TURN
GIVEN = 1 << 20  # times in a row that one may give way: a few times for each row of the widest answer


@dataclass(eq=False)
class Account:
    """One request's texts, which share their part of every step, and of the cache (see `Shares`).

    Where requests of several clients live together, all accounts of a client share its part of a step (see `Turns`).
    """

    client: str = ""  # whose request it is, as far as is known
    owner: str = ""  # whose prompts its texts may find in the cache, and who may find theirs
    room: int = 0  # tokens of cache that all its texts which have not ended may need
    texts: int = 0  # and how many these are
    turn: int = 0  # the step in which it last had one
    steps: int = 0  # in which it took part


@dataclass(frozen=True)
class Shares:
    """How a supply of `whole` (cache tokens, places) is divided between large and small requests.

    With a `share` of 1 nothing is kept for small requests, and all are large.
    """

    whole: float
    share: float = 1.0

    @property
    def most(self) -> float:
        """What one request may hold, and all large ones together."""
        return max(1, math.floor(self.whole * self.share)) if self.whole < math.inf else self.whole

    @property
    def small(self) -> float:
        """The most that a small request may want; without a limit all requests are small."""
        if self.whole == math.inf:
            return math.inf
        return min(max(1, self.most // SMALL), self.rest)

    @property
    def rest(self) -> float:
        """What is for small requests alone."""
        return self.whole - self.most if self.whole < math.inf else self.whole


class Ledger:
    """What small and large accounts hold of the cache and of the places, each of them together."""

    def __init__(self, tokens: Shares, places: Shares) -> None:
        self._tokens, self._places = tokens, places
        self._held: dict[bool, tuple[int, int]] = {False: (0, 0), True: (0, 0)}  # tokens and places, by large or not

    def large(self, account: Account) -> bool:
        """Whether an account wants much of one or the other for all its texts that have not ended."""
        return account.room > self._tokens.small or account.texts > self._places.small

    def allows(self, account: Account, room: int, waited: bool) -> bool:
        """Whether an account may have so much room and a place now; `waited` if a large one from before still waits."""
        large = self.large(account)
        (tokens, places), (others, seats) = self._held[large], self._held[not large]
        if tokens + others + room > self._tokens.whole or places + seats + 1 > self._places.whole:
            return False
        if large:
            return tokens + room <= self._tokens.most and places + 1 <= self._places.most
        return not waited or (tokens + room <= self._tokens.rest and places + 1 <= self._places.rest)

    def take(self, account: Account, room: int) -> None:
        """Let an account have so much room, and a place."""
        large = self.large(account)
        tokens, places = self._held[large]
        self._held[large] = tokens + room, places + 1


@dataclass(eq=False)
class Job:
    """One request inside the engine: what it emitted so far, how it ended, and its trace."""

    decoding: Decoding
    text: tuple[int, ...]
    room: int
    trace: Trace
    state: str = WAITING
    emitted: deque[Emit] = field(default_factory=deque)
    done: Done | None = None
    error: Exception | None = None
    after: Job | None = None  # a request that has to end before this one begins
    sessions: dict[str, Session] = field(default_factory=dict)
    ask: Ask | None = None
    reply: Any = None
    answered: bool = True  # its decoder can go on: it has asked nothing, or `reply` is the answer
    reading: bool = False  # its ask waits until more of its prompt is read
    cut: int = 0  # rows of its ask that are computed now, if that is not all of it
    begun: bool = False  # some rows of its ask are computed
    span: float = 0.0  # seconds that its look may take now, if others should not wait for all of it
    looking: Generator[None, None, Field] | None = None  # its look, where that has paused
    key: int = field(init=False)  # the same for the same prompt, whoever owns it
    began: float = 0.0
    laws: bool = True  # whether anybody looks at the laws of what is emitted
    logprobs: int | None = None  # or at what is reported of them: of each token, and of so many best
    patience: float = math.inf  # seconds after which somebody wants to see what was written
    stop: Stop = field(default_factory=Stop)
    deadline: float | None = None  # by the clock of its stop; it runs from the first ask on
    silent: int = 0  # asks since the last that needed a model
    given: int = 0  # and how often it gave way since then
    texts: int = 1  # how many leaves it keeps
    tokens: list[int] = field(default_factory=list)  # all that it has emitted, whoever has read it since
    account: Account = field(default_factory=Account)
    turn: int = 0  # the step in which it last had one
    seconds: float = 0.0  # that its decoder and its verification took in its last round
    mean: float = 0.0  # and in those before that, of late
    rows: int = 0  # of a model that its last round took
    slots: int = field(init=False)  # tokens of cache that it holds at most

    def __post_init__(self) -> None:
        self.key, self.slots = hash(self.text), len(self.text)

    @property
    def asks(self) -> str | None:
        """The name of the model that it asks."""
        return TARGET if isinstance(self.ask, (Check, Write)) else getattr(self.ask, "by", None)

    @property
    def writes(self) -> bool:
        """Whether it may write on by itself: nobody looks at the laws."""
        return isinstance(self.ask, Write) and not self.laws

    @property
    def question(self) -> tuple[Tree, tuple[str, ...]]:
        """The tree that it asks about, and what it wants beside."""
        return (self.ask.tree, tuple(self.ask.want)) if isinstance(self.ask, (Score, Check)) else (NOTHING, ())

    @property
    def check(self) -> Check | None:
        """What it asks, as a check: writing on is to check nothing, under sample matching."""
        if isinstance(self.ask, Write):
            return Check(NOTHING, self.ask.prefix, sample_match, self.ask.chance)
        return self.ask if isinstance(self.ask, Check) else None

    @property
    def late(self) -> bool:
        """Whether its time is over."""
        return self.deadline is not None and self.stop.clock() >= self.deadline

    @property
    def host_seconds(self) -> float:
        """What its decoder and its verification take in a round; what lasts longer once, by chance, counts little."""
        return min(self.seconds, self._mean)

    @property
    def _mean(self) -> float:
        return self.mean + (self.seconds - self.mean) / RECENT if self.mean else self.seconds

    def begin_round(self) -> None:
        """Start timing a new round; the last one goes into the running mean."""
        self.mean, self.seconds = self._mean, 0.0

    def begin(self) -> None:
        """Start its time limit with its first ask, if it has one."""
        if self.deadline is None and self.stop.seconds is not None:
            self.deadline = self.stop.clock() + self.stop.seconds

    def emit(self, emit: Emit) -> None:
        """Count and queue tokens that its decoder emits; laws that nobody reads are dropped."""
        self.tokens += emit.tokens
        if self.trace.seconds_first is None and emit.tokens:
            self.trace.seconds_first = perf_counter() - self.began
        trace = self.trace
        trace.rounds += emit.rounds
        trace.tokens += len(emit.tokens)
        trace.drafted += emit.drafted
        trace.accepted[emit.accepted] += emit.rounds
        if not self.laws and emit.before:  # laws hold on to all that a forward computed
            before, after = self._reported(emit, emit.before), self._reported(emit, emit.after)
            emit = Emit(emit.tokens, before, after, emit.drafted, emit.accepted, emit.rounds, emit.canvas)
        self.emitted.append(emit)

    def append(self, tokens: Sequence[int], but: str | None = None) -> None:
        """Keep tokens behind its text in the sessions of all its models, `but` for one that has done so."""
        for name, session in self.sessions.items():
            for token in tokens if name != but else ():
                session.keep(NOTHING, (ROOT,), (token,))

    def written(self, checked: Checked) -> Written:
        """The one token that was checked, kept in the sessions of all its models."""
        token, scored = checked.verdict.token, checked.scored
        told = (
            self.laws or self.logprobs is not None
        )  # warps that a device carried out are not carried out again unread
        before, after = ([scored.raw(ROOT)], [scored.law(ROOT)]) if told else ([], [])
        self.append((token,))
        return Written((token,), before, after)

    def hand_out(self, written: Written) -> None:
        """Emit what was written for it though nobody goes on: an interrupt is about to end it."""
        emit = self.decoding.send(written)
        if isinstance(emit, Emit):
            self.emit(emit)

    def _reported(self, emit: Emit, laws: Sequence[Law]) -> Sequence[Law]:
        """What is reported of laws, if anything is."""
        if self.logprobs is None or isinstance(laws, Reports):
            return () if self.logprobs is None else laws
        k = self.logprobs
        return [reported(law, token, k) for token, law in zip(emit.tokens, laws, strict=False)]

    def out_of_time(self) -> Done:
        """Tell its decoder that the time is over; how it ends, after it has handed out what it still has.

        A method made of methods may ask once more after a part of it has ended, and is told again.
        """
        ask: Ask | None = None
        try:
            for _ in range(PARTING):
                ask = self.decoding.send(None) if isinstance(ask, Emit) else self.decoding.throw(OutOfTime())
                if isinstance(ask, Emit):
                    self.emit(ask)
        except StopIteration as end:
            done: Done = end.value
            return done
        except OutOfTime:
            pass
        return Done(tuple(self.tokens), "time")

    def result(self) -> Done:
        """How it ended, or the error that ended it."""
        if self.error is not None:
            raise self.error
        if self.done is None:
            raise RuntimeError("this request has not ended yet")
        return self.done


class PartialAnswer(NamedTuple):
    """Some rows of a large answer were computed; the answer itself comes in a later step."""

    rows: int


def rows_of(reply: Any) -> int:
    """How many rows an answer took, 0 if all was known already."""
    counted = reply.scores if isinstance(reply, Checked) else reply
    return counted.rows if isinstance(counted, (Scores, Field, Written, Drew, PartialAnswer)) else 0


def forwards_of(reply: Any) -> int:
    """How many forwards an answer took."""
    match reply:
        case None | PartialAnswer():
            return 0
        case Written(tokens, rounds=rounds, forwards=forwards):
            return forwards or len(rounds or tokens)
        case Drew(tree):
            return len(tree)
    return 1 if isinstance(reply, UnspoolError) else int(rows_of(reply) > 0)


def refuse_endless(job: Job) -> None:
    """Fail a decoder that has gone on for so long without asking a model that it would never end."""
    if job.silent >= SILENT or job.given >= GIVEN:
        raise BadRequest(
            f"the method went on for {job.silent + job.given} asks in a row without a look at the model, so it would "
            "never end. This is a fault of the method together with these settings; choose another, or other options."
        )
