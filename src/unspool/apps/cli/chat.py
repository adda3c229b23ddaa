"""`unspool chat`: a conversation in a terminal, or line by line from a pipe."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from ... import recipes
from ...core.errors import BadRequest, OutOfRoom, UnspoolError
from ...core.files import TEXT
from .group import Grouped, SamplingOptions, method_option, options
from .loading import Loading
from .terminal import Sketch, note, utf8, write

if TYPE_CHECKING:
    from ...api.lm import LM
    from ...api.settings import Settings
    from ...core.claim import Method

_PROMPT = "> "
_HELP = """/exit, /quit  leave (also Ctrl-D)
/reset        forget the conversation
/system TEXT  set the system message and forget the conversation; without TEXT, take it away
/help         this list
Ctrl-C stops the answer that is being written; twice in a row, it leaves."""


@dataclass
class Talk:
    """A conversation so far. Its cache stays with the model, so that a turn reads only what is new."""

    lm: LM
    settings: Settings
    method: Method
    system: str | None
    messages: list[dict[str, str]] = field(default_factory=list)

    def answer(self, text: str, trace: bool) -> bool:
        """Say something and print the answer as it arrives; False if it was interrupted, and then it stays as it is."""
        said: list[str] = []
        user = {"role": "user", "content": text}
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        events = self.lm.stream([*before, *self.messages, user], self.settings, self.method)
        done, sketch = False, Sketch(self.lm.vocabulary.piece)
        try:
            while True:
                event = next(events)
                said.append(event.text)
                sketch.event(event)
        except StopIteration as end:
            done = True
            report = f"[{end.value.reason}] {end.value.trace}"
        except KeyboardInterrupt:
            report = "[stopped]"
        finally:
            events.close()
            sketch.clear()
        write("\n")
        self.messages += [user, {"role": "assistant", "content": "".join(said)}]
        if trace or not done:
            note(report)
        return done


@click.command(cls=Grouped)
@method_option("plain")
@click.option("--system", metavar="TEXT", help="A system message.")
@click.option("--trace", is_flag=True, help="After each answer, say on stderr what it took.")
@options(Loading, "loading")
@options(SamplingOptions, "drawing")
def chat(method: str, system: str | None, trace: bool, loading: Loading, drawing: SamplingOptions) -> int:
    """Talk with a model. Lines that begin with / are commands; /help lists them.

    Where stdin is not a terminal, each of its lines is one turn, and stdout gets the answers, one after another.
    """
    settings = drawing.settings()
    loading.check((method,))
    lm = loading.load()
    loading.prepare(lm, (method,))
    if loading.raw or lm.vocabulary.chat_template is None:
        why = "--raw was given" if loading.raw else f"{loading.model} has no chat template"
        raise BadRequest(f"chat needs a chat template, but {why}; use `unspool run --raw` to continue a text.")
    talk, live, interrupted = Talk(lm, settings, recipes.methods.method(method), system), sys.stdin.isatty(), False
    if live:
        _edit_lines()
        note(f"{loading.model}. /help for commands, Ctrl-D to leave.")
    while True:
        try:
            line = _line(live)
            if line is None or line.strip() in ("/exit", "/quit"):
                return 0
            if line.startswith("/"):
                _command(talk, line)
            elif line.strip():
                interrupted = not talk.answer(line, trace)
                continue
            interrupted = False
        except KeyboardInterrupt:
            if interrupted or not live:
                raise
            interrupted = True
            note("\nCtrl-C again, Ctrl-D or /exit to leave.")
        except UnspoolError as error:
            if not live:
                raise
            more = " /reset forgets the conversation." if isinstance(error, OutOfRoom) else ""
            note(f"unspool: {error}{more}")


def _edit_lines() -> None:
    """Give `input` arrow keys and a history, where the system has them."""
    with suppress(ImportError):
        import readline  # noqa: F401  (importing it is what does it, to every `input` from then on)


def _line(live: bool) -> str | None:
    if live:
        try:
            if not sys.stdout.isatty():  # the answers go to a file, where no prompt belongs
                print(_PROMPT, end="", file=sys.stderr, flush=True)
            line = input(_PROMPT if sys.stdout.isatty() else "")
            return utf8(line.encode("utf-8", "surrogateescape"), "this line")
        except EOFError:
            note("")
            return None
    data = sys.stdin.buffer.readline(TEXT + 1)
    if len(data) > TEXT:
        raise BadRequest(f"a line of stdin is too long; expected at most {TEXT} bytes")
    return utf8(data, "a line of stdin").removesuffix("\n").removesuffix("\r") if data else None


def _command(talk: Talk, line: str) -> None:
    name, _, rest = line.strip().partition(" ")
    if name == "/help":
        note(_HELP)
    elif name == "/reset":
        talk.messages.clear()
        note("The conversation is forgotten.")
    elif name == "/system":
        talk.system = rest.strip() or None
        talk.messages.clear()
        note("The system message is set." if talk.system else "There is no system message now.")
    else:
        note(f"{name} is no command; /help lists them.")
