"""The models of an engine: what each of them can do, and one forward for all that is asked of it together.

Multi-step decoding, how many tokens are written before anybody looks, is decided here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from ...core.asks import TARGET, Ask, Check, Draw, Keep, Look, Score, Write, Written
from ...core.cost import Cost
from ...core.errors import METHOD, BadRequest, OutOfRoom, UnspoolError
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import temperature_of
from .. import engine as engines
from .contracts import (
    Causal,
    CountsSlots,
    FollowsTarget,
    HasDevice,
    Infill,
    LookRequest,
    LooksAhead,
    Model,
    ScoreRequest,
    SupportsChunkedPrefill,
    SupportsDeviceDecoding,
    SupportsPartialScoring,
    SupportsStagedLooks,
)
from .job import Job, PartialAnswer

LONGEST = 32  # tokens that a device may write before anybody looks
BRIEF = 4  # and while others wait for a forward of their own
GLANCE = 0.05  # seconds after which the host looks up while it writes for a request that is alone
COPIES = 4  # a row of a copied canvas gives no law, so that many of them count as one that does


class MultiStep:
    """Lets requests go on writing where nobody looks at the laws, and their model has a device that can.

    A device writes up to `LONGEST` tokens at a time; `BRIEF` where others ask the same model for something else or
    read their prompts, and one where somebody waits for a prompt that is just being read. Nobody who looks on is kept
    waiting for longer than the patience it was submitted with, by the pace of the last tokens that were written.

    Without a device the host does so for a greedy request that is alone, for `GLANCE` seconds at a time: a step of the
    engine takes longer than a tenth of a small model's forward.
    """

    def __init__(self, devices: Mapping[str, SupportsDeviceDecoding]) -> None:
        self._devices = devices
        self._alone = False  # whether there is but one request
        self._longest = LONGEST
        self._pace = math.inf  # seconds per token of what was written last

    def begin(self, alone: bool) -> None:
        """Take note of whether there is but one request, and nobody waits to be let in."""
        self._alone = alone

    def takes(self, job: Job, name: str) -> bool:
        """Whether a model can go on writing for a request what it asks for now."""
        if not (job.writes and isinstance(job.ask, Write)):
            return False
        if name in self._devices:
            return self._devices[name].can_write(job.ask)
        return self._alone and job.logprobs is None and temperature_of(job.ask.prefix.warp) == 0

    def forwards(self, name: str, asking: Sequence[Job], held: bool) -> int:
        """How many forwards a model runs before the next step, so that as many chunks of prompts may be read."""
        return BRIEF if name in self._devices and not held and any(job.writes for job in asking) else 1

    def plan(self, held: bool, mixed: bool) -> None:
        """Take note of a step: whether somebody is held back in it, and whether its requests ask for several things."""
        self._longest = 1 if held else BRIEF if mixed else LONGEST

    def tokens(self, jobs: Sequence[Job]) -> int:
        """How many tokens to write now; just one where somebody who looks on still waits for the first."""
        patience = min(job.patience for job in jobs)
        if patience == math.inf:
            return self._longest
        fresh = any(job.trace.seconds_first is None and job.patience < math.inf for job in jobs)
        return 1 if fresh else int(max(1, min(self._longest, patience / self._pace)))

    def took(self, seconds: float, tokens: int) -> None:
        """Note the pace of the tokens that were written last."""
        self._pace = seconds / tokens


class ModelRunner:
    """Answers what requests ask of models; `price` tells what a forward of one costs."""

    def __init__(self, models: Mapping[str, Model], price: Callable[[str], Cost]) -> None:
        self.models = dict(models)
        self.causal = {name: model for name, model in models.items() if isinstance(model, Causal)}
        self.prefilling = {name: model for name, model in models.items() if isinstance(model, SupportsChunkedPrefill)}
        self.following = {name: model for name, model in models.items() if isinstance(model, FollowsTarget)}
        self._guessing = {name for name, model in models.items() if isinstance(model, LooksAhead) and model.guesses}
        self._counting = {name: model for name, model in models.items() if isinstance(model, CountsSlots)}
        own = {name: model for name, model in models.items() if isinstance(model, HasDevice)}
        self._devices = {name: model.device for name, model in own.items() if model.device is not None}
        # What a device computes is never large enough to be worth a second round trip.
        host = {name: model for name, model in models.items() if name not in self._devices}
        self._partial = {name: model for name, model in host.items() if isinstance(model, SupportsPartialScoring)}
        self._pausing = {name: model for name, model in host.items() if isinstance(model, SupportsStagedLooks)}
        self._drafting = {name: model.drafting for name, model in own.items() if model.drafting is not None}
        self.multi_step = MultiStep(self._devices)
        self._price = price
        self._prices: dict[tuple[str, int, bool], Cost] = {}

    @property
    def room(self) -> float:
        """Tokens that the smallest cache holds."""
        return min((model.room for model in self.causal.values() if model.room is not None), default=math.inf)

    @property
    def max_sequences(self) -> float:
        """Texts that every device can go on with at the same time."""
        return min((device.max_sequences for device in self._devices.values()), default=math.inf)

    def refuse_impossible(self, text: tuple[int, ...], room: int, most: float) -> None:
        """Refuse a request that one of the models could never answer, or that needs more cache than one may hold."""
        for name, model in self.causal.items():
            if not text:
                raise BadRequest("the prompt is empty: give at least one token to go on from")
            if min(text) < 0 or max(text) >= model.vocab:
                bad = next(x for x in text if not 0 <= x < model.vocab)
                raise BadRequest(f"token {bad} is outside the vocabulary of the {name} model (0..{model.vocab - 1})")
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
        if (need := max(room, len(text))) > most:
            raise OutOfRoom(
                f"this request may need {need} tokens of cache, but one request may hold {most:.0f} here. Ask for "
                "fewer new tokens, or let the server have a larger cache."
            )

    def open(self, job: Job) -> None:
        """A session of every model for a request."""
        for name, model in self.causal.items():
            job.sessions[name] = model.open(job.text, job.account.owner)
        for name, model in self.following.items():
            model.follow(job.sessions[name], job.sessions[TARGET])
        if TARGET in self.prefilling:
            job.trace.cached = len(job.text) - self.prefilling[TARGET].owed(job.sessions[TARGET])

    def slots(self, job: Job, name: str) -> int | None:
        """For how many tokens a request holds cache of a model; None if that does not say."""
        return self._counting[name].holds(job.sessions[name]) if name in self._counting else None

    def has_device(self, name: str) -> bool:
        """Whether a model has a device that verifies and writes by itself."""
        return name in self._devices

    def cuts(self, job: Job, name: str) -> bool:
        """Whether what a request asks can be computed in parts."""
        if isinstance(job.ask, Look):
            return name in self._pausing
        return name in self._partial and isinstance(job.ask, (Score, Check))

    def rows(self, job: Job, name: str) -> int:
        """How many rows are still to be computed for what a request asks, where it can be computed in parts."""
        return self._partial[name].rows(ScoreRequest(job.sessions[name], *job.question))

    def draws(self, ask: Draw) -> bool:
        """Whether a device can draw what is asked for."""
        return ask.by in self._drafting and ask.simple

    def price(self, name: str, job: Job, live: int) -> Cost | None:
        """What a forward of a model costs a request beside so many others; None if there is no such model."""
        if name not in self.models:
            return None
        speculates = not job.laws and name in self._devices and self._devices[name].speculates
        key = name, live, speculates
        if key not in self._prices:
            drafts = speculates and self._devices[name].drafts
            cost, guesses = self._price(name).among(live), name in self._guessing
            self._prices[key] = replace(cost, speculates=speculates, drafts=drafts, guesses=guesses)
        return self._prices[key]

    def chunks(
        self, name: str, jobs: Sequence[Job], most: float, granted: Callable[[Job, int, bool], int]
    ) -> dict[Job, int]:
        """Which of these who ask a model must read before they can be answered, and how many tokens each reads now.

        All together read `most`, the first of them first, and of so many tokens each as many as it is `granted`. Whose
        prompt ends within that is answered.
        """
        found, first = dict[Job, int](), True
        for job in jobs:
            owed = 0 if job.trace.forwards[name] else self.prefilling[name].owed(job.sessions[name])
            now = granted(job, int(min(owed, most)), first)
            most, first = most - now, first and not owed
            if now < owed:
                found[job] = now
        return found

    def read(self, name: str, chunks: Mapping[Job, int]) -> None:
        """Read so many tokens of these prompts, and answer nothing."""
        self.prefilling[name].read([(job.sessions[name], count) for job, count in chunks.items()])

    def answers(self, name: str, jobs: list[Job]) -> Sequence[Any]:
        """The answers of a model to what these requests ask it, all in one forward."""
        model, asks = self.models[name], [job.ask for job in jobs]
        draws = [ask for ask in asks if isinstance(ask, Draw)]
        if draws:
            asked = [ScoreRequest(job.sessions[name], NOTHING) for job in jobs]
            return self._drafting[name].draw(asked, draws) or [None] * len(jobs)
        causal = self.causal.get(name)
        if causal is not None and all(isinstance(ask, (Score, Check, Write)) for ask in asks):
            asked = [ScoreRequest(job.sessions[name], *job.question) for job in jobs]
            if any(job.cut for job in jobs):
                return self._in_parts(name, jobs, asked)
            ahead = self._written_on(name, causal, jobs, asked) or self._checked(name, jobs, asked)
            return ahead or causal.score(asked)
        if any(job.span for job in jobs):
            return [self._look_on(name, job) for job in jobs]
        looks = [LookRequest(job.sessions.get(name), job.ask) for job in jobs if isinstance(job.ask, Look)]
        if isinstance(model, Infill) and looks:
            return engines.trials.looked(model, looks)
        if looks:
            raise BadRequest(
                f"the method fills holes, but the {name} model reads left to right; it needs one that was trained to "
                "fill them, such as smollm2-diffusion",
                METHOD,
            )
        raise BadRequest(f"the method reads left to right, but the {name} model only fills holes", METHOD)

    def _in_parts(self, name: str, jobs: list[Job], asked: list[ScoreRequest]) -> Sequence[Any]:
        """The answers where only some rows of large asks are computed now."""
        parts = [(ask, job.cut) for job, ask in zip(jobs, asked, strict=True) if job.cut]
        whole = [ask for job, ask in zip(jobs, asked, strict=True) if not job.cut]
        scores = iter(self._partial[name].score_beside(whole, parts))
        return [PartialAnswer(job.cut) if job.cut else next(scores) for job in jobs]

    def _look_on(self, name: str, job: Job) -> Any:
        """Continue a staged look for its time slice; the answer, or a `PartialAnswer`."""
        assert isinstance(job.ask, Look)
        until = perf_counter() + job.span
        stages = job.looking or self._pausing[name].looking(LookRequest(job.sessions.get(name), job.ask))
        job.looking = None
        try:
            next(stages)
            while perf_counter() < until:
                next(stages)
        except StopIteration as end:
            return end.value
        job.looking = stages
        return PartialAnswer(0)

    def _written_on(self, name: str, model: Causal, jobs: list[Job], asked: list[ScoreRequest]) -> Sequence[Any] | None:
        """Several tokens for each of these, if all of them write on."""
        writes = [job.ask for job in jobs if job.writes and isinstance(job.ask, Write)]
        if len(writes) < len(jobs):
            return None
        began, count = perf_counter(), self.multi_step.tokens(jobs)
        written: Sequence[Any] | None = None
        if name in self._devices:
            logprobs = max((job.logprobs for job in jobs if job.logprobs is not None), default=None)
            written = self._devices[name].write(asked, writes, count, logprobs)
        elif len(jobs) == 1 and self.multi_step.takes(jobs[0], name):
            tokens: list[int] = []
            try:
                written = [_greedy(model, asked[0], writes[0], count, tokens)]
            except KeyboardInterrupt:
                if tokens:
                    jobs[0].hand_out(Written(tuple(tokens)))
                raise
        if written is not None:
            longest = max((len(reply.tokens) for reply in written if isinstance(reply, Written)), default=1)
            self.multi_step.took(perf_counter() - began, longest)
        return written

    def _checked(self, name: str, jobs: list[Job], asked: list[ScoreRequest]) -> Sequence[Any] | None:
        """What the model's device says of drafted trees, if it has one and all of these are checks."""
        checks = [check for job in jobs if (check := job.check) is not None]
        if name not in self._devices or len(checks) < len(jobs):
            return None
        return self._devices[name].check(asked, checks)


def _greedy(model: Causal, ask: ScoreRequest, write: Write, most: int, tokens: list[int]) -> Written:
    """The likeliest tokens after a text, one forward each, kept as they come, for as long as nobody need look.

    They are put into `tokens` one by one, where they are found if an interrupt comes in between. A forward that fails
    after others have not is left to the next call, which fails with it.
    """
    rows, until = 0, perf_counter() + GLANCE
    while len(tokens) < min(most, write.most):
        try:
            (scores,) = model.score((ask,))
            token = scores.law(ROOT).best
        except UnspoolError:
            if not tokens:
                raise
            break
        ask.session.keep(NOTHING, (ROOT,), (token,))
        tokens.append(token)
        rows += scores.rows
        if token in write.ends or perf_counter() >= until:
            break
    return Written(tuple(tokens), rows=rows)


def rows_asked(ask: Ask | None, texts: int) -> int:
    """How many rows of a model an ask takes, of a request that keeps so many texts; the prompt is not counted."""
    match ask:
        case Score(tree) | Check(tree):
            return len(tree) + texts
        case Keep(tree, nodes):
            return max(len(tree), len(nodes))
        case Draw(depth=depth):
            return depth
        case Look(canvas, along=along, trials=trials):
            low, high = canvas.window
            return max(len(ask.wanted), max(len(along), len(trials)) * (high - low) // COPIES)
        case _:
            return texts


def refuse_large(ask: Ask | None, texts: int, most: float) -> None:
    """Refuse an ask that takes more rows than one request may have in one step."""
    if (rows := rows_asked(ask, texts)) > most:
        raise BadRequest(
            f"the method wants {rows} rows of the model in one step, but one request may have {most:.0f} here. Choose "
            "smaller options (its width, count, depth, window, …) or ask for fewer tokens."
        )


def refuse_outgrown(slots: int, most: float) -> None:
    """Fail a request whose texts together take more of the cache than one request may hold."""
    if slots > most:
        raise OutOfRoom(
            f"the texts of this request take {slots} tokens of cache by now, but one request may hold {most:.0f} here. "
            "Ask for fewer new tokens, or for a narrower search (its width, count, particles, …)."
        )
