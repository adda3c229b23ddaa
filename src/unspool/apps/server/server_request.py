"""One request as the worker holds it, and what is told about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ...api.lm import LM, SMOOTH, Prompt
from ...api.settings import Settings
from ...api.writer import Event, Writer
from ...core.canvas import HOLE
from ...core.claim import Method, fit
from ...core.errors import as_error
from ...core.trace import Trace
from ...models.chat_template import Dialogue, spells_more
from ...models.vocabulary import LONG
from ...rules.constrain.form import Form
from ...runtime.engine.engine import Engine
from ...runtime.engine.job import ENDED, WAITING, Account


@dataclass(frozen=True)
class Began:
    """All that was asked for can be done; the prompts have so many tokens together."""

    prompt: int


@dataclass(frozen=True)
class Wrote:
    """One of the texts went on: this is certain now, by these tokens."""

    index: int
    text: str
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Showed:
    """Somebody looks at a text while it is written, and this is what there is to see."""

    record: dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """One of the texts is finished; `reason` is that of `Output`."""

    index: int
    reason: str
    trace: Trace


@dataclass(frozen=True)
class Failed:
    """Nothing more will come of the request."""

    error: Exception


WorkerEvent: TypeAlias = Began | Wrote | Showed | Ended | Failed


@dataclass(eq=False)
class ServerRequest:
    """What a request wants, whom to tell, and what is being written for it.

    `tell` is called by the worker's thread with what is new; it must not block.
    """

    prompts: Sequence[Prompt]
    settings: Settings
    method: Method  # and never its name: ServerConfig.made and LineDefaults.made know what strangers may name
    tell: Callable[[list[WorkerEvent]], None]
    patience: float = SMOOTH  # seconds after which somebody wants to see what was written
    client: str = ""  # who sent it, as far as is known
    owner: str = ""  # whose prompts it may find in the cache
    predicted: str = ""  # what its texts are expected to be, if that is their draft
    fitted: Future[None] | None = None  # done when its form is, where that is compiled beside the worker
    writers: list[Writer] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # characters told of each text
    open: set[int] = field(default_factory=set)  # texts that have not ended

    def __post_init__(self) -> None:
        if isinstance(self.method, str):
            raise TypeError(f"a request takes a method, not the name {self.method[:80]!r}: see methods.requested")

    @property
    def texts(self) -> int:
        """How many texts it asks for."""
        return len(self.prompts) * self.settings.n

    @property
    def bound(self) -> bool:
        """Whether a form has yet to be fitted to the model's tokens, or much text to be put into them."""
        return isinstance(self.settings.constraint, Form) or self._long

    @property
    def _long(self) -> bool:
        """Whether there is much to read, all told: prompts, what stands behind the texts, what they should be."""
        said: list[Any] = [self.predicted, *(part for part in self.settings.suffix if isinstance(part, str))]
        for prompt in self.prompts:
            said += [prompt.messages, prompt.tools] if isinstance(prompt, Dialogue) else [prompt]
        return spells_more([part for part in said if not _tokens(part)], LONG)

    @property
    def size(self) -> int:
        """How much there is to fit, in characters."""
        return len(repr(self.settings.constraint))

    def fit(self, lm: LM) -> None:
        """Fit the form and read what is long; it may take long, and any thread may do it."""
        if self._long:
            self.prompts = [lm.encode(prompt) for prompt in self.prompts]
            self.settings = replace(self.settings, suffix=self.settings.behind(lm.vocabulary))
            self.method = fit(self.method, lm.vocabulary)
        made = self.settings.constraint
        if isinstance(made, Form):
            self.settings = replace(self.settings, constraint=made.fit(lm.vocabulary))

    def begin(self, lm: LM, engine: Engine) -> None:
        """Queue all its texts, or none and raise why."""
        before = len(engine.waiting)
        try:
            account = Account(self.client, self.owner)
            self.writers = lm.writers(engine, self.prompts, self.settings, self.method, self.patience, account)
        except BaseException:
            for job in list(engine.waiting)[before:]:  # of prompts before the one that cannot be used
                engine.cancel(job)
            raise
        self.sent, self.open = [0] * len(self.writers), set(range(len(self.writers)))

    @property
    def entered(self) -> bool:
        """Whether one of its texts has been let in, or has ended already."""
        return any(writer.job.state != WAITING for writer in self.writers)

    def enter(self) -> None:
        """Tell that it has begun."""
        self.tell([Began(sum(len(writer.job.text) for writer in self.writers[:: self.settings.n]))])

    def return_to_queue(self, engine: Engine) -> None:
        """Take back all its texts, none of which has been let in, from an engine that is given up."""
        self.drop(engine)
        self.writers = []

    def look(self, engine: Engine) -> None:
        """Tell what came since the last time; a text that failed ends the whole request."""
        news: list[WorkerEvent] = []
        for index in sorted(self.open):
            try:
                news += self._new(index)
            except BaseException as error:
                self.drop(engine)
                news.append(Failed(as_error(error)))
                break
        if news:
            self.tell(news)

    def drop(self, engine: Engine) -> None:
        """End what is still being written and free all that it holds."""
        for writer in self.writers:
            engine.cancel(writer.job)
        self.open.clear()

    def _new(self, index: int) -> list[WorkerEvent]:
        writer = self.writers[index]
        events = tuple(event for event in writer.read() if event.token != HOLE)
        text = "".join(event.text for event in events)
        ended = writer.job.state == ENDED
        if ended:  # what was held back until the end was known
            output = writer.output()
            text = output.text[self.sent[index] :]
        self.sent[index] += len(text)
        news: list[WorkerEvent] = [Wrote(index, text, events)] if text or events else []
        if ended:
            self.open.discard(index)
            news.append(Ended(index, output.reason, output.trace))
        return news


def _tokens(prompt: Any) -> bool:
    """Whether there is nothing to read, as it is tokens already."""
    return not isinstance(prompt, str) and len(prompt) > 0 and isinstance(prompt[0], int)
