"""One request as the worker holds it, what is told about it, and the queue: a line for every client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TypeAlias

from ...api.lm import LM, SMOOTH, Prompt
from ...api.settings import Settings
from ...api.writer import Event, Writer
from ...core.canvas import HOLE
from ...core.claim import Method, fit
from ...core.errors import UnspoolError, as_error
from ...core.trace import Trace
from ...models.chat_template import Dialogue, spells_more
from ...models.vocabulary import LONG
from ...rules.constrain.form import Form
from ...runtime.engine.engine import Engine
from ...runtime.engine.job import ENDED, WAITING, Account

SOONEST, LATEST = 1.0, 60.0  # seconds after which one who was sent away is told to come back
LATE = 1.1  # who comes back too late finds room still, who comes too early is sent away again
BEYOND = 2  # times the places of a queue that all clients together may fill, as each that comes has some of its own


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


class Busy(UnspoolError):
    """As many requests wait as may; there will be room in about `wait` seconds."""

    def __init__(self, message: str, wait: float = SOONEST) -> None:
        super().__init__(message)
        self.wait = min(max(wait, SOONEST), LATEST)


@dataclass
class _Waiting:
    """One who waits: since when, behind how many, and whether somebody who came later was let in before."""

    request: ServerRequest
    came: float
    behind: int
    passed: bool = False


class ClientLine:
    """At most so many requests of one client; a line that has sent somebody away takes nobody until half of it is gone.

    Otherwise a place that comes free would always go to those who were just served and ask again at once, and never to
    those who were sent away and come back when they were told. Those are told to come when half of the line will be
    gone, as many as fit then; the next ones when half is gone once more, and so on.

    Small requests may be let in before large ones (see `Shares`): those who were passed say nothing about how long the
    next one will wait, as it will pass them too.
    """

    def __init__(self, most: int) -> None:
        self.most = most  # places, which become fewer while other clients wait
        self._line: deque[_Waiting] = deque()
        self._shut = False
        self._away: deque[float] = deque(maxlen=4 * most)  # when those will come back who were sent away last
        self._pace = 0.0  # seconds that one place in the line takes, of late

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[ServerRequest]:
        return (place.request for place in list(self._line))

    @property
    def wait(self) -> float:
        """Seconds that somebody who comes now may have to wait, as far as can be told."""
        return self._pace * sum(not place.passed for place in list(self._line))

    @property
    def _half(self) -> int:
        return self.most // 2

    def add(self, request: ServerRequest) -> None:
        """Take one in; Busy if it cannot be."""
        waiting, now = len(self), monotonic()
        self._shut = self._shut and waiting > self._half
        if self._shut or waiting >= self.most:
            raise self.sent_away(now)
        self._line.append(_Waiting(request, now, sum(not place.passed for place in self._line)))

    def sent_away(self, now: float) -> Busy:
        """What somebody is told for whom there is no room, and when there will be."""
        self._shut = True
        while self._away and self._away[0] <= now:
            self._away.popleft()
        rounds = len(self._away) // max(self._half, 1)
        ahead = max(0, len(self) - self._half) + rounds * self._half
        told = f"{len(self)} requests wait already, and this server lets at most {self.most}; try again later"
        busy = Busy(told, LATE * self._pace * ahead)
        self._away.append(now + busy.wait)
        return busy

    def take(self, request: ServerRequest) -> None:
        """One was let in."""
        for place in self._line:
            if place.request is request:
                break
            place.passed = True
        else:
            return
        self._line.remove(place)
        if not place.passed:
            self._pace += ((monotonic() - place.came) / (place.behind + 1) - self._pace) / 8

    def remove(self, request: ServerRequest) -> bool:
        """Let one go who waits no longer; False if it does not stand here."""
        found = next((place for place in self._line if place.request is request), None)
        if found is not None:
            self._line.remove(found)
        return found is not None


class Queue:
    """The lines of all clients, who are let in by turns (see `admitted`), with `most` places.

    A client who is alone has all of them. Where several wait, each has its part, and one who comes finds places though
    another has filled the queue before: so it may hold more than `most`, but never `BEYOND` times as many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lines: dict[str, ClientLine] = {}  # of those who wait, and of others who have been here of late

    def __len__(self) -> int:
        return sum(map(len, list(self._lines.values())))

    def __iter__(self) -> Iterator[ServerRequest]:
        return (request for line in list(self._lines.values()) for request in line)

    def wait(self, client: str) -> float:
        """Seconds that a request of this client may have to wait if it comes now, as far as can be told."""
        line = self._lines.get(client)
        return 0.0 if line is None else line.wait

    def add(self, request: ServerRequest) -> None:
        """Take one in; Busy if it cannot be."""
        others = sum(bool(len(line)) for client, line in self._lines.items() if client != request.client)
        line = self._lines.pop(request.client, None) or ClientLine(self._most)
        if len(self._lines) >= BEYOND * self._most:
            self._forget()
        self._lines[request.client] = line  # the last of those who were here of late
        line.most = max(1, self._most // (others + 1))
        if len(self) >= BEYOND * self._most:
            raise line.sent_away(monotonic())
        line.add(request)

    def take(self, request: ServerRequest) -> None:
        """One was let in."""
        if (line := self._lines.get(request.client)) is not None:
            line.take(request)

    def remove(self, request: ServerRequest) -> bool:
        """Let one go who waits no longer; False if it does not stand here."""
        line = self._lines.get(request.client)
        return line is not None and line.remove(request)

    def clear(self) -> list[ServerRequest]:
        """Let everybody go."""
        left = list(self)
        self._lines.clear()
        return left

    def _forget(self) -> None:
        """Forget how fast the lines moved in which nobody waits: there are as many clients as addresses."""
        self._lines = {client: line for client, line in self._lines.items() if len(line)}
