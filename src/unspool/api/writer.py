"""What is written as somebody reads it: event by event, and as a finished text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from .. import api
from ..core.asks import Emit
from ..core.canvas import HOLE, Canvas
from ..core.trace import Trace
from ..models.vocabulary import TextStream
from ..runtime.engine.engine import Engine
from ..runtime.engine.job import Job

_SHOWN = 80  # characters of a text in its repr


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
        if self.writer.note is not None:
            return self.writer.note
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
        if self.writer.note is not None:
            data["note"] = self.writer.note
        return {**data, "trace": self.trace.record()}


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while texts were being written: `outputs` are what there is of each, with the reason `interrupted`.

    That is the text so far or, of a search that has handed out nothing yet, the best that it has found.
    """

    def __init__(self, outputs: list[Output]) -> None:
        super().__init__()
        self.outputs = outputs


class SearchResult(NamedTuple):
    """The tokens of a text that a search has found, and the bytes that a stop string takes back of it."""

    tokens: tuple[int, ...]
    trim: int


def best(texts: Sequence[Any]) -> list[SearchResult]:
    """The first of these that has any tokens, without the laws that it holds on to."""
    return [SearchResult(text.tokens, text.trim) for text in texts if text.tokens][:1]


@dataclass
class Writer:
    """Turns what a job emits into events and text."""

    job: Job
    stream: TextStream
    logprobs: int | None
    found: list[SearchResult] = field(default_factory=list)  # the best text of a search, once it has told
    ends: frozenset[int] = frozenset()  # the model's own ends of text
    note: str | None = None  # what of the method the model pays no heed to
    events: list[Event] = field(default_factory=list)
    rounds: int = 0
    placed: int = 0  # tokens of a canvas that are final
    ended: bool = False

    def read(self) -> list[Event]:
        """The events since the last time; when the text has ended, its last event brings what was still held back."""
        new: list[Event] = []
        while self.job.emitted:
            new += self._written(self.job.emitted.popleft())
        last = new or self.events
        if last and self.job.done is not None and not self.ended:
            last[-1] = replace(last[-1], text=last[-1].text + self.stream.end(self.job.done.trim))
            self.ended = True
        self.events += [event for event in new if event.token != HOLE]
        return new

    def output(self) -> Output:
        """The finished text, or the error that ended it."""
        done = self.job.result()
        tokens = (*(event.token for event in self.events), *(x for emit in self.job.emitted for x in emit.tokens))
        reason = "eos" if done.reason == "token" and tokens and tokens[-1] in self.ends else done.reason
        return Output(self.stream.whole(tokens, done.trim), tokens, reason, self.job.trace, self)

    def broken_off(self, engine: Engine) -> Output:
        """End the text now: what was written of it or, if that is nothing, the best that was found."""
        engine.cancel(self.job)
        done = self.job.done
        if done is not None and done.reason != "cancelled":
            return self.output()
        self.read()
        written = SearchResult(tuple(event.token for event in self.events), 0)
        best = written if written.tokens or not self.found else self.found[-1]
        return Output(self.stream.whole(*best), best.tokens, "interrupted", self.job.trace, self)

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
