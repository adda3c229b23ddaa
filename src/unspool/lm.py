"""A loaded language model: text in, text out, by any method."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from .asks import TARGET, Emit
from .chance import Philox
from .claim import Method
from .errors import BadRequest, OutOfRoom
from .law import Law
from .methods import method as named
from .models.align import Alignment, Kinship, align
from .models.text import TextStream
from .models.vocabulary import Vocabulary
from .run.engine import Engine, Job
from .run.session import Asked, Causal, Session
from .run.translated import Translated
from .settings import Settings
from .trace import Trace
from .tree import NOTHING

Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]]
SCRATCH = 64  # slots a request may need for drafts besides its text


@dataclass(frozen=True)
class Event:
    """One token as it arrives.

    `text` is what became certain with it. `logprob` is under the law after all warps, `raw_logprob` under the model's
    own, both None unless asked for; `top` are the most probable tokens of the model's own law. `round` counts forwards
    that emitted something, and `drafted` says whether the token had been drafted.
    """

    token: int
    text: str
    round: int
    drafted: bool
    logprob: float | None = None
    raw_logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Output:
    """A finished text: its tokens, why it ended, every event, and the trace."""

    text: str
    tokens: tuple[int, ...]
    reason: str
    events: tuple[Event, ...]
    trace: Trace

    def record(self) -> dict[str, Any]:
        """The output as plain data."""
        data: dict[str, Any] = {"text": self.text, "tokens": list(self.tokens), "reason": self.reason}
        if any(event.logprob is not None for event in self.events):
            data["logprobs"] = [
                {"token": e.token, "logprob": e.logprob, "raw_logprob": e.raw_logprob, "top": [list(t) for t in e.top]}
                for e in self.events
            ]
        return {**data, "trace": self.trace.record()}


@dataclass
class LM:
    """A model with its vocabulary.

    A prompt is a text, a list of messages {role, content} for the chat template, or tokens. `draft` is another model
    for methods that ask one; the draft's own draft is what cascades call the small model. Where tokens differ, drafts
    are made of those that both have: `alignments` tells how many, by the names of the models.
    """

    name: str
    model: Causal
    vocabulary: Vocabulary
    draft: LM | None = None

    alignments: dict[str, Alignment] = field(init=False, default_factory=dict)
    _drafts: dict[str, Causal] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        small = None if self.draft is None else self.draft.draft
        for name, lm in (("draft", self.draft), ("small", small)):
            if lm is None:
                continue
            try:
                found = self.alignments[name] = align(self.vocabulary, lm.vocabulary)
            except BadRequest as error:
                raise BadRequest(f"{lm.name} cannot draft for {self.name}: {error}") from None
            same = found.kinship is Kinship.SAME
            self._drafts[name] = lm.model if same else Translated(lm.model, found)

    def generate(self, prompt: Prompt, settings: Settings = Settings(), method: str | Method = "plain") -> Output:  # noqa: B008
        """One text."""
        return self.batch([prompt], replace(settings, n=1), method)[0]

    def samples(self, prompt: Prompt, settings: Settings = Settings(), method: str | Method = "plain") -> list[Output]:  # noqa: B008
        """`settings.n` texts for one prompt, which is read once."""
        return self.batch([prompt], settings, method)

    def batch(
        self,
        prompts: Sequence[Prompt],
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
    ) -> list[Output]:
        """Texts for many prompts in one batch, each the same as alone; `settings.n` in a row for each."""
        engine = Engine(self.models())
        writers = [w for prompt in prompts for w in self._writers(engine, prompt, settings, method)]
        try:
            while engine.step():
                for writer in writers:
                    writer.read()
            return [writer.output() for writer in writers]
        finally:
            for writer in writers:
                engine.cancel(writer.job)

    def stream(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
    ) -> Generator[Event, None, Output]:
        """One text, event by event; the generator's return value is the `Output`. Closing it frees everything."""
        engine = Engine(self.models())
        (writer,) = self._writers(engine, prompt, replace(settings, n=1), method)
        try:
            while True:
                more = engine.step()
                yield from writer.read()
                if not more:
                    return writer.output()
        finally:
            engine.cancel(writer.job)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt."""
        if isinstance(prompt, str):
            tokens = self.vocabulary.encode(prompt)
        elif all(isinstance(part, int) for part in prompt):
            tokens = tuple(part for part in prompt if isinstance(part, int))
        else:
            tokens = self.vocabulary.encode(self.vocabulary.chat([m for m in prompt if isinstance(m, Mapping)]))
        if not tokens:
            raise BadRequest("the prompt is empty: give some text to go on from")
        return tokens

    def models(self) -> dict[str, Causal]:
        """The models by the names that methods ask for."""
        return {TARGET: self.model, **self._drafts}

    def _writers(self, engine: Engine, prompt: Prompt, settings: Settings, spec: str | Method) -> list[Writer]:
        settings.validate()
        tokens = self.encode(prompt)
        decoder = named(spec)
        context = self.model.context
        if context is not None and len(tokens) >= context:
            raise OutOfRoom(
                f"the prompt has {len(tokens)} tokens, but {self.name} reads at most {context} and needs room for an "
                "answer. Shorten the prompt or choose a model with a longer context."
            )
        most = settings.max_tokens if context is None else min(settings.max_tokens, context - len(tokens))
        room = len(tokens) + most + SCRATCH
        if self.model.room is not None:
            room = min(room, max(self.model.room, len(tokens) + most))
        warp, stop = settings.warp(self.vocabulary), replace(settings.stop_rule(self.vocabulary), most=most)
        chances = [Philox(settings.seed, stream) for stream in range(settings.n)]
        warm = self._read_once(tokens, settings.n)
        jobs = [engine.submit(decoder, tokens, c, warp, stop, room, w) for c, w in zip(chances, warm, strict=True)]
        return [Writer(job, self.vocabulary.stream(settings.stop), settings.logprobs) for job in jobs]

    def _read_once(self, tokens: tuple[int, ...], n: int) -> list[dict[str, Session]]:
        """Sessions for n samples: one reads the prompt, the others share what it computed."""
        if n == 1:
            return [{}]
        first = self.model.open(tokens)
        try:
            self.model.score([Asked(first, NOTHING)])
            return [{TARGET: first.fork()} for _ in range(n)]
        finally:
            first.close()


@dataclass
class Writer:
    """Turns what a job emits into events and text."""

    job: Job
    stream: TextStream
    logprobs: int | None
    events: list[Event] = field(default_factory=list)
    rounds: int = 0
    ended: bool = False

    def read(self) -> list[Event]:
        """The events since the last time; when the text has ended, its last event brings what was still held back."""
        new: list[Event] = []
        while self.job.emitted:
            self.rounds += 1
            new += self._written(self.job.emitted.popleft())
        last = new or self.events
        if last and self.job.done is not None and not self.ended:
            last[-1] = replace(last[-1], text=last[-1].text + self.stream.end(self.job.done.trim))
            self.ended = True
        self.events += new
        return new

    def output(self) -> Output:
        """The finished text, or the error that ended it."""
        done = self.job.result()
        self.read()
        text = "".join(event.text for event in self.events)
        return Output(text, tuple(e.token for e in self.events), done.reason, tuple(self.events), self.job.trace)

    def _written(self, emit: Emit) -> list[Event]:
        laws = zip(emit.tokens, emit.before, emit.after, strict=True)
        return [self._event(token, before, after, i < emit.accepted) for i, (token, before, after) in enumerate(laws)]

    def _event(self, token: int, before: Law, after: Law, drafted: bool) -> Event:
        event = Event(token, self.stream.push(token), self.rounds, drafted)
        if self.logprobs is None:
            return event
        top = tuple((x, before.logprob(x)) for x in before.top(self.logprobs)) if self.logprobs else ()
        return replace(event, logprob=after.logprob(token), raw_logprob=before.logprob(token), top=top)
