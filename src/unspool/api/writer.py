"""What is written as somebody reads it: event by event, and as a finished text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from .. import api
from ..core.asks import Done, Emit
from ..core.canvas import HOLE, Canvas
from ..core.errors import BadRequest
from ..core.trace import Trace
from ..models.vocabulary import TextStream
from ..runtime.engine.engine import Engine
from ..runtime.engine.job import Job

_SHOWN = 80  # characters of a text in its repr
MOST_FOUND = 64  # texts of a search that are told
LOG_WEIGHT, ROWS = "log_weight", "rows"  # scores of particles; the reason of a text that the budget ended


@dataclass(frozen=True)
class Event:
    """One token as it arrives, or, with the token −1, a canvas on which nothing more is final yet.

    `text` is what became certain with it. `logprob` is under the law after all warps, `raw_logprob` under the model's
    own, both None unless asked for; `top` are the most probable tokens of the model's own law. `round` counts forwards
    that emitted something, or is the look in which a place of a canvas was filled, and `drafted` says whether the
    token had been drafted. `canvas` is what stands so far, where the method fills one.
    """

    token: int
    text: str
    round: int
    drafted: bool
    logprob: float | None = None
    raw_logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    canvas: Canvas | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, repr=False)
class Output:
    """A finished text: its tokens, the trace, and every event, made when somebody looks.

    `reason` is why it ended: eos (the model's own end), token (one of `stop_tokens`), string, length, time, or
    interrupted. Printed, it is its text.
    """

    text: str
    tokens: tuple[int, ...]
    reason: str
    trace: Trace
    writer: Writer = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= _SHOWN else self.text[:_SHOWN] + "…"
        return f"Output({text!r}, {len(self.tokens)} tokens, {self.reason!r})"

    def _repr_html_(self) -> str:
        return api.display.output_html(self)

    @property
    def note(self) -> str | None:
        """What of the method was of no effect, or what to know of a text without any words in it."""
        if self.writer.remark is not None:
            return self.writer.remark
        if self.text or self.reason not in ("token", "eos") or len(self.tokens) > 1:
            return None
        return (
            "the first token ended the text, so there is none. To the model what it was given seems finished: ask it "
            "something, without raw=True (--raw) if it has a chat template, or keep it writing with min_tokens."
        )

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """Every token as it arrived."""
        self.writer.read()
        return tuple(self.writer.events)

    def record(self) -> dict[str, Any]:
        """The output as plain data."""
        data: dict[str, Any] = {"text": self.text, "tokens": list(self.tokens), "reason": self.reason}
        if any(event.logprob is not None for event in self.events):
            data["logprobs"] = [
                {"token": e.token, "logprob": e.logprob, "raw_logprob": e.raw_logprob, "top": [list(t) for t in e.top]}
                for e in self.events
            ]
        if self.writer.remark is not None:
            data["note"] = self.writer.remark
        if self.writer.found is not None and self.writer.found.results and not self.writer.rank:
            data |= self.writer.found.record(self.writer.stream)
        return {**data, "trace": self.trace.record()}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while texts were being written: `outputs` are what there is of each, with the reason `interrupted`.

    That is the text so far or, of a search that has handed out nothing yet, the best that it has found.
    """

    def __init__(self, outputs: list[Output]) -> None:
        super().__init__()
        self.outputs = outputs


class SearchResult(NamedTuple):
    """A text that a search has found: its tokens, the bytes that a stop string takes back of it, and what it is worth.

    `said` are its tokens with their laws, where it is one of several that are handed out.
    """

    tokens: tuple[int, ...]
    trim: int
    score: float = -math.inf
    reason: str = ROWS
    said: Emit | None = None


class Found:
    """What a search has found, best first, once it has told; laws are held on to of as many texts as are handed out."""

    def __init__(self, scores: str, handed: int = 0, ends: frozenset[int] = frozenset()) -> None:
        self.scores, self.results = scores, list[SearchResult]()
        self._handed, self._ends = handed, ends

    def tell(self, texts: Sequence[Any]) -> None:
        """Take note of the best, as many as are ever shown; of two that differ in the sign of their end, of one."""
        some = [text for text in texts if text.tokens]
        if self.scores != LOG_WEIGHT:  # every particle counts in the evidence
            first = dict[tuple[int, ...], tuple[int, ...]]()
            over = [text for text in some if text.tokens[-1] in self._ends]
            same = {x.tokens for x in over if first.setdefault(x.tokens[:-1], x.tokens) != x.tokens}
            some = [text for text in some if text.tokens not in same]
        some = some[:MOST_FOUND]
        self.results = [
            SearchResult(x.tokens, x.trim, self._worth(x), x.reason or ROWS, _said(x) if n < self._handed else None)
            for n, x in enumerate(some)
        ]

    def _worth(self, text: Any) -> float:
        """What it is ranked by; where that is no property of the text, how likely it is."""
        worth: float = text.score if self.scores == LOG_WEIGHT or text.score > -math.inf else text.logp
        return worth

    def record(self, stream: TextStream) -> dict[str, Any]:
        """All of them as plain data; weights of particles with the estimate of the evidence that they are."""
        shown = [{"text": stream.whole(x.tokens, x.trim), self.scores: _finite(x.score)} for x in self.results]
        weights = [x.score for x in self.results if x.score > -math.inf]
        if self.scores != LOG_WEIGHT or not weights:
            return {"found": shown}
        top = max(weights)
        total = sum(math.exp(w - top) for w in weights)
        for one, x in zip(shown, self.results, strict=True):
            one["posterior"] = math.exp(x.score - top) / total
        return {"found": shown, "log_evidence": top + math.log(total / len(self.results))}


def _said(text: Any) -> Emit:
    """The tokens of a text with what is told of their laws."""
    laws = text.told()
    return Emit(text.tokens, [raw for raw, _ in laws], [shaped for _, shaped in laws])


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None


@dataclass
class Writer:
    """Turns what a job emits into events and text."""

    job: Job
    stream: TextStream
    logprobs: int | None
    found: Found | None = None  # what a search tells
    ends: frozenset[int] = frozenset()  # the model's own ends of text
    note: str | None = None  # what of the method the model pays no heed to
    rank: int = 0  # of a search's texts, the one that is written
    events: list[Event] = field(default_factory=list)
    rounds: int = 0
    placed: int = 0  # tokens of a canvas that are final
    ended: bool = False

    def read(self) -> list[Event]:
        """The events since the last time; when the text has ended, its last event brings what was still held back."""
        new: list[Event] = []
        if self.rank:
            if self.job.done is not None and self.job.error is None and not self.ended and not self.events:
                assert self._result.said is not None  # as many are held on to as are handed out
                new += self._written(self._result.said)
        else:
            while self.job.emitted:
                new += self._written(self.job.emitted.popleft())
        last = new or self.events
        if last and self.job.done is not None and not self.ended:
            trim = self._result.trim if self.rank else self.job.done.trim
            last[-1] = replace(last[-1], text=last[-1].text + self.stream.end(trim))
            self.ended = True
        self.events += [event for event in new if event.token != HOLE]
        return new

    def output(self) -> Output:
        """The finished text, or the error that ended it."""
        done = self.job.result()
        if self.rank:
            done = Done(self._result.tokens, self._result.reason, self._result.trim)
            self.read()
        rest = (x for emit in self.job.emitted for x in emit.tokens)
        tokens = done.tokens if self.rank else (*(event.token for event in self.events), *rest)
        reason = "eos" if done.reason == "token" and tokens and tokens[-1] in self.ends else done.reason
        return Output(self.stream.whole(tokens, done.trim), tokens, reason, self.job.trace, self)

    @property
    def remark(self) -> str | None:
        """What is to be known of the text: what of the method was of no effect, or what the method says of it."""
        return self.note if self.note is not None or self.job.done is None else self.job.done.note

    def broken_off(self, engine: Engine) -> Output:
        """End the text now: what was written of it or, if that is nothing, the best that was found."""
        engine.cancel(self.job)
        done = self.job.done
        if done is not None and done.reason != "cancelled":
            return self.output()
        self.read()
        written = SearchResult(tuple(event.token for event in self.events), 0)
        best = written if written.tokens or self.found is None or not self.found.results else self.found.results[0]
        return Output(self.stream.whole(best.tokens, best.trim), best.tokens, "interrupted", self.job.trace, self)

    @property
    def _result(self) -> SearchResult:
        """The text of this rank; BadRequest if the search has found too few."""
        assert self.found is not None  # only a search has ranks
        if self.rank >= len(self.found.results):
            count = len(self.found.results)
            raise BadRequest(
                f"the search found {count} different text{'s' * (count != 1)}, and n is more; widen it (width, groups, "
                f"rollouts), or ask for {count}",
                param="n",
            )
        return self.found.results[self.rank]

    def _written(self, emit: Emit) -> list[Event]:
        before, self.rounds = self.rounds, self.rounds + emit.rounds
        if emit.canvas is not None:
            return self._shown(emit, emit.canvas)
        return [self._event(emit, i, before + min(i + 1, emit.rounds)) for i in range(len(emit.tokens))]

    def _shown(self, emit: Emit, canvas: Canvas) -> list[Event]:
        """What is final of a canvas, or the canvas alone if there is nothing new."""
        first, self.placed = self.placed, self.placed + len(emit.tokens)
        start = canvas.prompt + first
        events = [self._event(emit, i, canvas.filled[start + i] + 1) for i in range(len(emit.tokens))]
        return [replace(event, canvas=canvas) for event in events] or [
            Event(HOLE, "", self.rounds, True, canvas=canvas)
        ]

    def _event(self, emit: Emit, i: int, number: int) -> Event:
        token = emit.tokens[i]
        event = Event(token, self.stream.push(token), number, i < emit.accepted)
        if self.logprobs is None:
            return event
        before, after = emit.before[i], emit.after[i]
        top = tuple((x, before.logprob(x)) for x in before.top(self.logprobs)) if self.logprobs else ()
        return replace(event, logprob=after.logprob(token), raw_logprob=before.logprob(token), top=top)
