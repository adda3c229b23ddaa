"""The engine: many decoders of any kind in one batch, each at its own pace and with the same tokens as alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from ..asks import TARGET, Ask, Check, Decoding, Done, Emit, Keep, Look, Score, Scores
from ..chance import Chance
from ..claim import Method
from ..errors import BadRequest, OutOfRoom
from ..stop import Stop
from ..trace import Trace
from ..warp.warp import Same, Warp
from .session import Asked, Causal, Infill, Model, Session

WAITING, LIVE, ENDED = "waiting", "live", "ended"


@dataclass
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
    sessions: dict[str, Session] = field(default_factory=dict)
    ask: Ask | None = None
    reply: Any = None
    began: float = 0.0

    def result(self) -> Done:
        """How it ended, or the error that ended it."""
        if self.error is not None:
            raise self.error
        if self.done is None:
            raise RuntimeError("this request has not ended yet")
        return self.done


class Engine:
    """Answers the asks of many decoders with one forward per model and step.

    Requests join by `submit` and leave when they end, fail or are cancelled, at any step; a failure is the request's
    own. A request is admitted when the cache has room for all it may need, waits while it has not, and is refused at
    once if it never will.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = dict(models)
        self._causal = {name: model for name, model in models.items() if isinstance(model, Causal)}
        self.waiting: deque[Job] = deque()
        self.live: list[Job] = []

    def submit(
        self,
        method: Method,
        text: Sequence[int],
        chance: Chance,
        warp: Warp | None = None,
        stop: Stop | None = None,
        room: int = 0,
        warm: Mapping[str, Session] | None = None,
    ) -> Job:
        """Queue a request. `room` is how many tokens it may need at most; `warm` gives sessions already at `text`."""
        prompt = tuple(text)
        self._refuse_impossible(prompt, room)
        decoding = method(prompt, chance, warp or Same(), stop or Stop())
        job = Job(decoding, prompt, max(room, len(prompt)), Trace(prompt=len(prompt)), began=perf_counter())
        job.sessions = dict(warm or {})
        self.waiting.append(job)
        return job

    def cancel(self, job: Job) -> None:
        """End a request now and free all it holds. Tokens it has emitted stay with the job."""
        if job.state != ENDED:
            self._end(job, Done((), "cancelled"), None)

    def step(self) -> bool:
        """Advance every request by one forward; False when nothing is left to do."""
        self._admit()
        for job in list(self.live):
            self._advance(job)
        for name, jobs in self._groups().items():
            self._forward(name, jobs)
        return bool(self.live or self.waiting)

    def run(self) -> None:
        """Step until every request has ended."""
        while self.step():
            pass

    # ---- joining and leaving

    def _refuse_impossible(self, text: tuple[int, ...], room: int) -> None:
        for name, model in self._causal.items():
            if not text:
                raise BadRequest("the prompt is empty: give at least one token to go on from")
            bad = [x for x in text if not 0 <= x < model.vocab]
            if bad:
                raise BadRequest(f"token {bad[0]} is outside the vocabulary of the {name} model (0..{model.vocab - 1})")
            if model.context is not None and len(text) >= model.context:
                raise OutOfRoom(
                    f"the prompt has {len(text)} tokens, but the {name} model reads at most {model.context} and needs "
                    "room for an answer. Shorten the prompt or choose a model with a longer context."
                )
            if model.room is not None and max(room, len(text)) > model.room:
                raise OutOfRoom(
                    f"this request may need {max(room, len(text))} tokens of cache, but the {name} model has "
                    f"{model.room}. Ask for fewer new tokens, or load the model with a larger cache."
                )

    def _admit(self) -> None:
        rooms = [model.room for model in self._causal.values() if model.room is not None]
        while self.waiting:
            taken = sum(job.room for job in self.live)
            if any(taken + self.waiting[0].room > room for room in rooms):
                return
            job = self.waiting.popleft()
            for name, model in self._causal.items():
                if name not in job.sessions:
                    job.sessions[name] = model.open(job.text)
            job.state = LIVE
            self.live.append(job)

    def _end(self, job: Job, done: Done | None, error: Exception | None) -> None:
        job.state, job.done, job.error = ENDED, done, error
        job.trace.seconds_total = perf_counter() - job.began
        if job in self.live:
            self.live.remove(job)
        else:
            self.waiting.remove(job)
        job.decoding.close()
        for session in job.sessions.values():
            session.close()
        job.sessions, job.ask, job.reply = {}, None, None

    # ---- asking and answering

    def _advance(self, job: Job) -> None:
        """Run a decoder until it needs a model."""
        trace, after_check = job.trace, isinstance(job.ask, Check)
        began = perf_counter()
        try:
            while True:
                job.ask = job.decoding.send(job.reply)
                trace.asks += 1
                match job.ask:
                    case Keep(tree, nodes, extra, by):
                        for name, session in job.sessions.items():
                            if by is None or by == name:
                                session.keep(tree, nodes, extra)
                        job.reply, after_check = None, False
                    case Emit():
                        self._emit(job, job.ask)
                        job.reply = None
                    case _:
                        break
        except StopIteration as end:
            self._end(job, end.value, None)
        except Exception as error:
            self._end(job, None, error)
        spent = perf_counter() - began
        if after_check:
            trace.seconds_rule += spent
        else:
            trace.seconds_draft += spent

    def _emit(self, job: Job, emit: Emit) -> None:
        if job.trace.seconds_first is None:
            job.trace.seconds_first = perf_counter() - job.began
        job.trace.round(len(emit.tokens), emit.drafted, emit.accepted)
        job.emitted.append(emit)

    def _groups(self) -> dict[str, list[Job]]:
        groups: dict[str, list[Job]] = {}
        for job in list(self.live):
            name = TARGET if isinstance(job.ask, Check) else getattr(job.ask, "by", None)
            if name not in self.models:
                known = ", ".join(self.models) or "none"
                given = f"{job.ask!r:.60}" if name is None else f"a model called {name!r}"
                self._end(job, None, BadRequest(f"the method asks for {given}; this engine has: {known}"))
                continue
            groups.setdefault(name, []).append(job)
        return groups

    def _forward(self, name: str, jobs: list[Job]) -> None:
        model = self.models[name]
        began = perf_counter()
        try:
            replies = self._ask(model, name, jobs)
        except Exception as error:
            if len(jobs) == 1:
                self._end(jobs[0], None, error)
                return
            for job in jobs:  # find the one whose ask cannot be answered; the others go on
                self._forward(name, [job])
            return
        spent = perf_counter() - began
        for job, reply in zip(jobs, replies, strict=True):
            job.trace.forwards[name] += 1
            if name == TARGET:
                job.trace.seconds_forward += spent
            else:
                job.trace.seconds_draft += spent
            self._reply(job, name, reply)

    def _ask(self, model: Model, name: str, jobs: list[Job]) -> Sequence[Any]:
        asks = [job.ask for job in jobs]
        causal = self._causal.get(name)
        trees = [ask for ask in asks if isinstance(ask, (Score, Check))]
        if causal is not None and len(trees) == len(asks):
            sessions = [job.sessions[name] for job in jobs]
            wants = [ask.want if isinstance(ask, Score) else () for ask in trees]
            return causal.score([Asked(s, a.tree, w) for s, a, w in zip(sessions, trees, wants, strict=True)])
        canvases = [ask.canvas for ask in asks if isinstance(ask, Look)]
        if isinstance(model, Infill) and len(canvases) == len(asks):
            return model.look(canvases)
        if canvases:
            raise BadRequest(
                f"the method fills holes, but the {name} model reads left to right; it needs an infilling one"
            )
        raise BadRequest(f"the method reads left to right, but the {name} model only fills holes")

    def _reply(self, job: Job, name: str, reply: Any) -> None:
        if isinstance(reply, Scores):
            job.trace.rows[name] += reply.rows
        if isinstance(job.ask, Check):
            began = perf_counter()
            try:
                reply = job.ask.answer(reply)
            except Exception as error:
                self._end(job, None, error)
                return
            job.trace.seconds_rule += perf_counter() - began
        job.reply = reply
