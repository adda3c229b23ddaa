"""The engine: many decoders of any kind in one batch, each at its own pace and with the same tokens as alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from ...core.asks import TARGET, Check, Checked, Done, Draw, Emit, Keep, Look, Price, Score, Scores, Write, Written
from ...core.chance import Chance
from ...core.claim import Method
from ...core.cost import FREE, Cost
from ...core.errors import BadRequest, BadScores
from ...core.stop import Stop
from ...core.trace import Trace
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Same, Warp
from .admission import admitted, refuse_impossible
from .bounds import TURN, refuse_endless, refuse_large, rows_asked
from .chunked_prefill import portions
from .contracts import Asked, Causal, Infill, Looking, Model, Patient, Sketching, Swift
from .job import ENDED, LIVE, Account, Job, forwards_of, rows_of
from .multi_step import BRIEF, LONGEST, burst
from .turns import Pace, Turns


class Engine:
    """Answers the asks of many decoders with one forward per model and step.

    Requests join by `submit` and leave when they end, fail or are cancelled, at any step; a failure is the request's
    own. A request is admitted when the cache has room for all it may need, waits while it has not, and is refused at
    once if it never will. `price` tells what a forward of a model costs, for those that ask; drafts of a full batch
    are priced as such, which ends speculation where it no longer pays. A long prompt is read in portions while others
    write, who go on in between. A request ends when its time is over, whatever it does, and fails if it asks for more
    than `rows` rows of a model in one step, or goes on and on without asking any. Where several accounts live together,
    one whose texts take long in every step leaves the others half of the time.
    """

    def __init__(
        self, models: Mapping[str, Model], price: Callable[[str], Cost] = lambda _: FREE, rows: float = math.inf
    ) -> None:
        self.models = dict(models)
        self._price, self._rows = price, rows
        self._prices: dict[tuple[str, int, bool], Cost] = {}
        self._causal = {name: model for name, model in models.items() if isinstance(model, Causal)}
        self._swift = {name: model for name, model in models.items() if isinstance(model, Swift)}
        self._patient = {name: model for name, model in models.items() if isinstance(model, Patient)}
        self._sketching = {name: m for name, m in models.items() if isinstance(m, Sketching) and m.draws}
        self._room = min((m.room for m in self._causal.values() if m.room is not None), default=math.inf)
        self._crowd = min((model.crowd for model in self._swift.values()), default=math.inf)
        self.waiting: deque[Job] = deque()
        self.live: dict[Job, None] = {}  # in the order of their coming
        self._taken = 0  # tokens of cache that live requests may need
        self._held = False  # whether somebody waits for a prompt to be read
        self._longest = LONGEST  # tokens that may be written now before anybody looks
        self._pace = math.inf  # seconds per token of what was written last
        self._turns: Turns | None = None  # as soon as there are accounts
        self._own = Account()
        self._paces = {name: Pace() for name in models}

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
        account: Account | None = None,
    ) -> Job:
        """Queue a request; without an account it shares one with all others that have none.

        `room` is how many tokens it may need at most; without `laws` nobody looks at the laws of what is emitted, so
        that a model may write several tokens before it looks up: as many as it can in `patience` seconds.
        """
        prompt, stop = tuple(text), stop or Stop()
        refuse_impossible(self._causal, prompt, room)
        decoding = method(prompt, chance, warp or Same(), stop)
        job = Job(decoding, prompt, max(room, len(prompt)), Trace(prompt=len(prompt)), began=perf_counter())
        job.laws, job.patience, job.stop, job.account = laws, patience, stop, account or self._own
        if account is not None and self._turns is None:
            self._turns = Turns()
        self.waiting.append(job)
        return job

    def cancel(self, job: Job) -> None:
        """End a request now and free all it holds. Tokens it has emitted stay with the job."""
        if job.state != ENDED:
            self._end(job, Done((), "cancelled"), None)

    def step(self) -> bool:
        """Advance every request whose turn it is by one forward; False when nothing is left to do."""
        self._admit()
        going = self._chosen()
        for job in [job for job in self.live if job.late and job not in going]:
            self._out_of_time(job)
        for job in going:
            if job.answered and not (self._turns and self._turns.over(job.account)):
                self._advance(job)
        parts = {name: self._parts(name) for name in self._patient}
        groups = self._groups(going)
        mixed = any(parts.values()) or len(groups) > len({name for name, _ in groups})
        self._longest = 1 if self._held else BRIEF if mixed else LONGEST
        for (name, _), jobs in groups.items():
            self._forward(name, jobs)
        for name, part in parts.items():
            self._read(name, {job: count for job, count in part.items() if count})
        if self._turns is not None:
            self._turns.end()
        return bool(self.live or self.waiting)

    def run(self) -> None:
        """Step until every request has ended."""
        while self.step():
            pass

    # ---- joining and leaving

    def _admit(self) -> None:
        """Let in what there is room for."""
        came, self._held = admitted(self.waiting, self.live, self._room - self._taken, self._crowd)
        for job in came:
            job.state = LIVE
            self.live[job] = None
            self._taken += job.room
            try:
                for name, model in self._causal.items():
                    job.sessions[name] = model.open(job.text)
                if TARGET in self._patient:
                    job.trace.cached = len(job.text) - self._patient[TARGET].owed(job.sessions[TARGET])
            except Exception as error:  # its own, as every failure of one request
                self._end(job, None, error)

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

    def _out_of_time(self, job: Job) -> None:
        try:
            self._end(job, job.out_of_time(), None)
        except Exception as error:
            self._end(job, None, error)

    # ---- asking and answering

    def _advance(self, job: Job) -> None:
        """Run a decoder until it needs a model, or until others should have their turn."""
        trace, after_check = job.trace, isinstance(job.ask, (Check, Write))
        began = perf_counter()
        job.begin()
        resting = False  # it gives way to others and goes on at the next step, without an answer
        try:
            while not resting:
                job.ask = job.decoding.send(job.reply)
                trace.asks += 1
                refuse_large(job.ask, job.texts, self._rows)
                match job.ask:
                    case Emit():
                        job.emit(job.ask)
                        job.reply = None
                    case Write():
                        break
                    case Keep(tree, nodes, extra, by):
                        for name, session in job.sessions.items():
                            if by is None or by == name:
                                session.keep(tree, nodes, extra)
                        job.texts = len(nodes) if by in (None, TARGET) else job.texts
                        job.reply, after_check = None, False
                    case Price(by):
                        job.reply = self._priced(by, job)
                    case Draw(by=by) if by not in self._sketching or not job.ask.simple:
                        job.reply = None
                    case _:
                        break
                job.silent += 1
                resting = job.silent % TURN == 0
            if resting:
                refuse_endless(job.silent)
                job.ask = None
            else:
                job.silent, job.answered = 0, False
            if job.late:
                self._out_of_time(job)
        except StopIteration as end:
            self._end(job, end.value, None)
        except Exception as error:
            self._end(job, None, error)
        spent, job.seconds = perf_counter() - began, 0.0
        self._charge(job, spent)
        if after_check:
            trace.seconds_rule += spent
        else:
            trace.seconds_draft += spent

    def _priced(self, name: str, job: Job) -> Cost | None:
        if name not in self.models:
            return None
        leaps = not job.laws and name in self._swift and self._swift[name].leaps
        key = name, len(self.live), leaps
        if key not in self._prices:
            self._prices[key] = replace(self._price(name).among(len(self.live)), leaps=leaps)
        return self._prices[key]

    def _chosen(self) -> list[Job]:
        """Whose turn it is, of those who need not read."""
        wanting = [job for job in self.live if not job.reading]
        if self._turns is None:
            return wanting
        parts = {job: job.seconds if job.answered else self._seconds(job) for job in wanting}
        return self._turns.begin(parts, self.live, self._paces[TARGET].start if TARGET in self._paces else 0.0)

    def _groups(self, going: list[Job]) -> dict[tuple[str, str], list[Job]]:
        """Who asks which model for what; those that write on by themselves apart, where the model can let them."""
        groups: dict[tuple[str, str], list[Job]] = {}
        asking = [job for job in going if job.state == LIVE and not (job.answered or job.reading)]
        for job in asking if self._turns is None else self._turns.expected({j: self._seconds(j) for j in asking}):
            name = job.asks
            if name not in self.models:
                known = ", ".join(self.models) or "none"
                given = f"{job.ask!r:.60}" if name is None else f"a model called {name!r}"
                self._end(job, None, BadRequest(f"the method asks for {given}; this engine has: {known}"))
                continue
            kind = "write" if self._bursts(job, name) else {Look: "look", Draw: "draw"}.get(type(job.ask), "score")
            groups.setdefault((name, kind), []).append(job)
        return groups

    def _charge(self, job: Job, seconds: float) -> None:
        if self._turns is not None:
            self._turns.charge(job, seconds)

    def _seconds(self, job: Job) -> float:
        """How much longer a forward takes for what a request asks; who only writes on is in nobody's way."""
        name = job.asks or ""
        bursts = name not in self.models or self._bursts(job, name)
        return 0.0 if bursts else self._paces[name].each * rows_asked(job.ask, job.texts)

    def _unread(self, job: Job, name: str) -> int:
        """How many tokens of its prompt a forward has to read."""
        if job.trace.forwards[name]:
            return 0
        return self._patient[name].owed(job.sessions[name]) if name in self._patient else len(job.text)

    def _bursts(self, job: Job, name: str) -> bool:
        """Whether the model may write several tokens for it in one go."""
        return job.writes and name in self._swift

    def _parts(self, name: str) -> dict[Job, int]:
        """Who has to read before it is answered, and how many tokens now."""
        asking = [job for job in self.live if not job.answered and job.asks == name and not isinstance(job.ask, Look)]
        brief = name in self._swift and not self._held and any(job.writes for job in asking)
        writing = sum(job.trace.forwards[name] > 0 for job in self.live)  # whatever they ask for just now
        part = portions(self._patient[name], name, asking, writing, BRIEF if brief else 1)
        for job in asking:
            job.reading = job in part
        return part

    def _read(self, name: str, part: dict[Job, int]) -> None:
        began = perf_counter()
        try:
            if part:
                self._patient[name].read([(job.sessions[name], count) for job, count in part.items()])
        except Exception as error:
            for job, count in part.items():  # whose prompt it is that cannot be read
                if len(part) == 1:
                    self._end(job, None, error)
                else:
                    self._read(name, {job: count})
            return
        for job, count in part.items():
            job.trace.rows[name] += count
            job.trace.seconds_forward += perf_counter() - began

    def _forward(self, name: str, jobs: list[Job]) -> None:
        model = self.models[name]
        rows = sum(rows_asked(job.ask, job.texts) + self._unread(job, name) for job in jobs) if self._turns else 0
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
        if self._turns is not None and not any(self._bursts(job, name) for job in jobs):
            self._paces[name].add(rows, spent)
            for job in jobs:
                self._turns.charge(job, self._seconds(job))
        for job, reply in zip(jobs, replies, strict=True):
            job.trace.forwards[name] += forwards_of(reply)
            job.trace.rows[name] += rows_of(reply)
            if name == TARGET:
                job.trace.seconds_forward += spent
            else:
                job.trace.seconds_draft += spent
            self._reply(job, name, reply)

    def _ask(self, model: Model, name: str, jobs: list[Job]) -> Sequence[Any]:
        asks = [job.ask for job in jobs]
        draws = [ask for ask in asks if isinstance(ask, Draw)]
        if draws:
            asked = [Asked(job.sessions[name], NOTHING) for job in jobs]
            return self._sketching[name].draw(asked, draws) or [None] * len(jobs)
        causal = self._causal.get(name)
        if causal is not None and all(isinstance(ask, (Score, Check, Write)) for ask in asks):
            asked = [Asked(job.sessions[name], *job.question) for job in jobs]
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

    def _swiftly(self, model: Swift | None, jobs: list[Job], asked: list[Asked]) -> Sequence[Any] | None:
        """What the model can answer by itself, if it can."""
        if model is None:
            return None
        writes = [job.ask for job in jobs if job.writes and isinstance(job.ask, Write)]
        if len(writes) == len(jobs):
            began = perf_counter()
            written = model.write(asked, writes, burst(jobs, self._longest, self._pace))
            if written is not None:
                longest = max((len(reply.tokens) for reply in written if isinstance(reply, Written)), default=1)
                self._pace = (perf_counter() - began) / longest
                return written
        checks = [check for job in jobs if (check := job.check) is not None]
        return model.check(asked, checks) if len(checks) == len(jobs) else None

    def _reply(self, job: Job, name: str, reply: Any) -> None:
        if isinstance(reply, BadScores):
            self._end(job, None, reply)
            return
        if isinstance(reply, Written):  # the model has kept its own
            if len(job.sessions) > 1:
                for session in (s for other, s in job.sessions.items() if other != name):
                    for token in reply.tokens:
                        session.keep(NOTHING, (ROOT,), (token,))
            job.reply, job.answered = reply, True
            return
        check = job.check
        if check is not None and isinstance(reply, Scores):
            began = perf_counter()
            try:
                reply = check.answer(reply)
            except Exception as error:
                self._end(job, None, error)
                return
            spent = perf_counter() - began
            job.trace.seconds_rule += spent
            self._charge(job, spent)
        job.answered = True
        job.reply = self._written(job, reply) if isinstance(job.ask, Write) else reply

    def _written(self, job: Job, checked: Checked) -> Written:
        """Keep the one token that was checked out, for every model of the request."""
        token = checked.verdict.token
        for session in job.sessions.values():
            session.keep(NOTHING, (ROOT,), (token,))
        return Written((token,), [checked.scored.raw(ROOT)], [checked.scored.law(ROOT)])
