"""The engine: many decoders of any kind in one batch, each at its own pace and with the same tokens as alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..asks import TARGET, Check, Checked, Done, Emit, Keep, Look, Price, Score, Scores, Write, Written
from ..chance import Chance
from ..claim import Method
from ..errors import BadRequest
from ..field import Field
from ..grow.cost import FREE, Cost
from ..stop import Stop
from ..trace import Trace
from ..tree import NOTHING, ROOT, Tree
from ..warp.warp import Same, Warp
from .admission import refuse_impossible
from .job import ENDED, LIVE, Job
from .session import Asked, Causal, Infill, Looking, Model, Swift

LONGEST = 32  # tokens that a model may write before anybody looks
BRIEF = 4  # and while others wait for a forward of their own


class Engine:
    """Answers the asks of many decoders with one forward per model and step.

    Requests join by `submit` and leave when they end, fail or are cancelled, at any step; a failure is the request's
    own. A request is admitted when the cache has room for all it may need, waits while it has not, and is refused at
    once if it never will. `price` tells what a forward of a model costs, for those that ask; drafts of a full batch
    are priced as such, which ends speculation where it no longer pays.
    """

    def __init__(self, models: Mapping[str, Model], price: Callable[[str], Cost] = lambda _: FREE) -> None:
        self.models = dict(models)
        self._price = price
        self._prices: dict[tuple[str, int], Cost] = {}
        self._causal = {name: model for name, model in models.items() if isinstance(model, Causal)}
        self._swift = {name: model for name, model in models.items() if isinstance(model, Swift)}
        self._rooms = [model.room for model in self._causal.values() if model.room is not None]
        self._crowd = min((model.crowd for model in self._swift.values()), default=math.inf)
        self.waiting: deque[Job] = deque()
        self.live: dict[Job, None] = {}  # in the order of their coming
        self._taken = 0  # tokens of cache that live requests may need
        self._held = False  # whether somebody waits for a prompt to be read
        self._mixed = False  # whether some write on by themselves while others ask
        self._pace = math.inf  # seconds per token of what was written last

    def submit(
        self,
        method: Method,
        text: Sequence[int],
        chance: Chance,
        warp: Warp | None = None,
        stop: Stop | None = None,
        room: int = 0,
        laws: bool = True,
        patience: float = math.inf,
    ) -> Job:
        """Queue a request.

        `room` is how many tokens it may need at most; without `laws` nobody looks at the laws of what is emitted, so
        that a model may write several tokens before it looks up: as many as it can in `patience` seconds.
        """
        prompt = tuple(text)
        refuse_impossible(self._causal, prompt, room)
        decoding = method(prompt, chance, warp or Same(), stop or Stop())
        job = Job(decoding, prompt, max(room, len(prompt)), Trace(prompt=len(prompt)), began=perf_counter())
        job.laws, job.patience = laws, patience
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
        groups = self._groups()
        self._mixed = len(groups) > len({name for name, _ in groups})
        for (name, _), jobs in groups.items():
            self._forward(name, jobs)
        return bool(self.live or self.waiting)

    def run(self) -> None:
        """Step until every request has ended."""
        while self.step():
            pass

    # ---- joining and leaving

    def _admit(self) -> None:
        """Let in what there is room for; a prompt that another request is just reading is waited for, and shared."""
        held: list[Job] = []
        promised = 0  # room for those, as soon as it is read
        if self._fits():
            read = {job.key for job in self.live if job.trace.forwards[TARGET]}
            reading = {job.key for job in self.live} - read
        while self._fits(promised, len(held)):
            job = self.waiting.popleft()
            if job.key in reading:
                held.append(job)
                promised += job.room
                continue
            if job.key not in read:
                reading.add(job.key)
            for name, model in self._causal.items():
                job.sessions[name] = model.open(job.text)
            job.state = LIVE
            self.live[job] = None
            self._taken += job.room
        self._held = bool(held)
        self.waiting.extendleft(reversed(held))

    def _fits(self, promised: int = 0, held: int = 0) -> bool:
        """True if the next request can join, besides those that were promised to."""
        if not self.waiting or len(self.live) + held >= self._crowd:
            return False
        return all(self._taken + promised + self.waiting[0].room <= room for room in self._rooms)

    def _end(self, job: Job, done: Done | None, error: Exception | None) -> None:
        job.state, job.done, job.error = ENDED, done, error
        job.trace.seconds_total = perf_counter() - job.began
        if job in self.live:
            del self.live[job]
            self._taken -= job.room
        else:
            self.waiting.remove(job)
        job.decoding.close()
        for session in job.sessions.values():
            session.close()
        job.sessions, job.ask, job.reply = {}, None, None

    # ---- asking and answering

    def _advance(self, job: Job) -> None:
        """Run a decoder until it needs a model."""
        trace, after_check = job.trace, isinstance(job.ask, (Check, Write))
        began = perf_counter()
        try:
            while True:
                job.ask = job.decoding.send(job.reply)
                trace.asks += 1
                match job.ask:
                    case Emit():
                        self._emit(job, job.ask)
                        job.reply = None
                    case Write():
                        break
                    case Keep(tree, nodes, extra, by):
                        for name, session in job.sessions.items():
                            if by is None or by == name:
                                session.keep(tree, nodes, extra)
                        job.reply, after_check = None, False
                    case Price(by):
                        job.reply = self._priced(by)
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

    def _priced(self, name: str) -> Cost | None:
        if name not in self.models:
            return None
        key = name, len(self.live)
        if key not in self._prices:
            self._prices[key] = self._price(name).among(len(self.live))
        return self._prices[key]

    def _emit(self, job: Job, emit: Emit) -> None:
        if job.trace.seconds_first is None and emit.tokens:
            job.trace.seconds_first = perf_counter() - job.began
        job.trace.round(len(emit.tokens), emit.drafted, emit.accepted, emit.rounds)
        if not job.laws and emit.before:  # laws hold on to all that a forward computed
            emit = replace(emit, before=(), after=())
        job.emitted.append(emit)

    def _groups(self) -> dict[tuple[str, str], list[Job]]:
        """Who asks which model for what; those that write on by themselves apart, where the model can let them."""
        groups: dict[tuple[str, str], list[Job]] = {}
        for job in list(self.live):
            name = TARGET if isinstance(job.ask, (Check, Write)) else getattr(job.ask, "by", None)
            if name not in self.models:
                known = ", ".join(self.models) or "none"
                given = f"{job.ask!r:.60}" if name is None else f"a model called {name!r}"
                self._end(job, None, BadRequest(f"the method asks for {given}; this engine has: {known}"))
                continue
            writes = name in self._swift and isinstance(job.ask, Write) and not job.laws
            kind = "look" if isinstance(job.ask, Look) else "write" if writes else "score"
            groups.setdefault((name, kind), []).append(job)
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
            job.trace.forwards[name] += _rows(reply) != 0
            if name == TARGET:
                job.trace.seconds_forward += spent
            else:
                job.trace.seconds_draft += spent
            self._reply(job, name, reply)

    def _ask(self, model: Model, name: str, jobs: list[Job]) -> Sequence[Any]:
        asks = [job.ask for job in jobs]
        causal = self._causal.get(name)
        trees = [ask for ask in asks if isinstance(ask, (Score, Check, Write))]
        if causal is not None and len(trees) == len(asks):
            sessions = [job.sessions[name] for job in jobs]
            asked = [Asked(s, *_question(ask)) for s, ask in zip(sessions, trees, strict=True)]
            return self._swiftly(self._swift.get(name), jobs, asked) or causal.score(asked)
        looks = [Looking(job.sessions.get(name), job.ask) for job in jobs if isinstance(job.ask, Look)]
        if isinstance(model, Infill) and looks:
            return model.look(looks)
        if looks:
            raise BadRequest(
                f"the method fills holes, but the {name} model reads left to right; it needs one that was trained to "
                "fill them, such as smollm2-diffusion"
            )
        raise BadRequest(f"the method reads left to right, but the {name} model only fills holes")

    def _swiftly(self, model: Swift | None, jobs: list[Job], asked: list[Asked]) -> Sequence[Checked | Written] | None:
        """What the model can answer by itself, if it can."""
        if model is None:
            return None
        writes = [job.ask for job in jobs if isinstance(job.ask, Write) and not job.laws]
        if len(writes) == len(jobs):
            began = perf_counter()
            written = model.write(asked, writes, self._turns(jobs))
            if written is not None:
                self._pace = (perf_counter() - began) / max(len(reply.tokens) for reply in written)
                return written
        checks = [check for job in jobs if (check := job.check) is not None]
        return model.check(asked, checks) if len(checks) == len(jobs) else None

    def _turns(self, jobs: list[Job]) -> int:
        """How many tokens to write before anybody looks: one where somebody waits for the first, or for a prompt."""
        if self._held:
            return 1
        longest = BRIEF if self._mixed else LONGEST
        patience = min(job.patience for job in jobs)
        if patience == math.inf:
            return longest
        fresh = any(job.trace.seconds_first is None and job.patience < math.inf for job in jobs)
        return 1 if fresh else int(max(1, min(longest, patience / self._pace)))

    def _reply(self, job: Job, name: str, reply: Any) -> None:
        if isinstance(reply, Written):  # the model has kept its own
            if len(job.sessions) > 1:
                for session in (s for other, s in job.sessions.items() if other != name):
                    for token in reply.tokens:
                        session.keep(NOTHING, (ROOT,), (token,))
            job.trace.forwards[name] += len(reply.tokens) - 1
            job.trace.rows[name] += reply.rows
            job.reply = reply
            return
        if (rows := _rows(reply)) is not None:
            job.trace.rows[name] += rows
        check = job.check
        if check is not None and isinstance(reply, Scores):
            began = perf_counter()
            try:
                reply = check.answer(reply)
            except Exception as error:
                self._end(job, None, error)
                return
            job.trace.seconds_rule += perf_counter() - began
        job.reply = self._written(job, reply) if isinstance(job.ask, Write) else reply

    def _written(self, job: Job, checked: Checked) -> Written:
        """Keep the one token that was checked out, for every model of the request."""
        token = checked.verdict.token
        for session in job.sessions.values():
            session.keep(NOTHING, (ROOT,), (token,))
        return Written((token,), [checked.scored.raw(ROOT)], [checked.scored.law(ROOT)])


def _rows(reply: Any) -> int | None:
    """How many rows an answer took, 0 if all was known already; None for what is not counted in rows."""
    scores = reply.scores if isinstance(reply, Checked) else reply
    return scores.rows if isinstance(scores, (Scores, Field)) else None


def _question(ask: Score | Check | Write) -> tuple[Tree, tuple[str, ...]]:
    if isinstance(ask, Write):
        return NOTHING, ()
    return ask.tree, ask.want
