"""An errand: one request as the worker holds it, from hand-over to its last text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...api.lm import LM, SMOOTH, Prompt
from ...api.settings import Settings
from ...api.writer import Writer
from ...core.canvas import HOLE
from ...core.claim import Method
from ...models.dialogue import Dialogue
from ...models.vocabulary import LONG
from ...rules.constrain.form import Form
from ...runtime.engine.engine import Engine
from ...runtime.engine.job import ENDED, WAITING, Account
from .worker_events import Began, Ended, Failed, News, Wrote


@dataclass(eq=False)
class ServerRequest:
    """What a request wants, whom to tell, and what is being written for it.

    `tell` is called by the worker's thread with what is new; it must not block.
    """

    prompts: Sequence[Prompt]
    settings: Settings
    method: Method  # and never its name: ServerConfig.made and LineDefaults.made know what strangers may name
    tell: Callable[[list[News]], None]
    patience: float = SMOOTH  # seconds after which somebody wants to see what was written
    client: str = ""  # who sent it, as far as is known
    writers: list[Writer] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # characters told of each text
    open: set[int] = field(default_factory=set)  # texts that have not ended

    def __post_init__(self) -> None:
        if isinstance(self.method, str):
            raise TypeError(f"an errand takes a method, not the name {self.method[:80]!r}: see methods.requested")

    @property
    def texts(self) -> int:
        """How many texts it asks for."""
        return len(self.prompts) * self.settings.n

    @property
    def bound(self) -> bool:
        """Whether a form has yet to be fitted to the model's tokens, or a long prompt to be put into them."""
        return isinstance(self.settings.constraint, Form) or any(_letters(prompt) > LONG for prompt in self.prompts)

    @property
    def size(self) -> int:
        """How much there is to fit, in characters."""
        return len(repr(self.settings.constraint))

    def fit(self, lm: LM) -> None:
        """Fit the form and read long prompts; it may take long, and any thread may do it."""
        self.prompts = [lm.encode(prompt) if _letters(prompt) > LONG else prompt for prompt in self.prompts]
        made = self.settings.constraint
        if isinstance(made, Form):
            self.settings = replace(self.settings, constraint=made.fit(lm.vocabulary))

    def begin(self, lm: LM, engine: Engine) -> None:
        """Queue all its texts, or none and raise why."""
        before = len(engine.waiting)
        try:
            account = Account(self.client)
            self.writers = lm.writers(engine, self.prompts, self.settings, self.method, self.patience, account)
        except Exception:
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
        news: list[News] = []
        for index in sorted(self.open):
            try:
                news += self._new(index)
            except Exception as error:
                self.drop(engine)
                news.append(Failed(error))
                break
        if news:
            self.tell(news)

    def drop(self, engine: Engine) -> None:
        """End what is still being written and free all that it holds."""
        for writer in self.writers:
            engine.cancel(writer.job)
        self.open.clear()

    def _new(self, index: int) -> list[News]:
        writer = self.writers[index]
        events = tuple(event for event in writer.read() if event.token != HOLE)
        text = "".join(event.text for event in events)
        ended = writer.job.state == ENDED
        if ended:  # what was held back until the end was known
            output = writer.output()
            text = output.text[self.sent[index] :]
        self.sent[index] += len(text)
        news: list[News] = [Wrote(index, text, events)] if text or events else []
        if ended:
            self.open.discard(index)
            news.append(Ended(index, output.reason, output.trace))
        return news


def _letters(prompt: Prompt) -> int:
    """How many characters a prompt has, about; none if it is tokens already."""
    if isinstance(prompt, str):
        return len(prompt)
    messages = prompt.messages if isinstance(prompt, Dialogue) else prompt
    return sum(len(str(message.get("content"))) for message in messages if isinstance(message, Mapping))
