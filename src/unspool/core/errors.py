"""What can go wrong, as the user sees it: every error says what was given, what was expected, and what to do."""

from __future__ import annotations

SHOWN = 60  # characters of what was given that a message repeats


class UnspoolError(Exception):
    """A mistake a user can act on; the command line prints its message without a traceback."""


class BadModel(UnspoolError):
    """A model file or folder that cannot be read, or an architecture that is not known."""


class NotNative(BadModel):
    """A model that may be sound, but is none for the native runtime, for a `problem`; transformers may know it."""

    def __init__(self, problem: str = "", advice: str = "", known: str = "") -> None:
        super().__init__(f"{problem}{known}, which the native runtime does not do. {advice}")
        self.problem = problem


class FetchFailed(UnspoolError):
    """A download that did not finish; nothing half-written is left behind."""


METHOD = "decoding.method"  # what a request calls the method


class BadRequest(UnspoolError):
    """A prompt, method or option that cannot be used; `param` is the field of a request that it stands in, if known."""

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class EmptyLaw(UnspoolError):
    """Every token has been forbidden, so there is nothing left to draw."""


class BadScores(UnspoolError):
    """A model returned NaN, or nothing but -inf."""


class OutOfRoom(UnspoolError):
    """A text does not fit the context or the cache; raised before any work is done."""


class ContextExceeded(OutOfRoom):
    """A prompt that leaves no room for an answer; `param` is the field of a request that it stands in, if known."""

    def __init__(self, message: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class RankLost(UnspoolError):
    """One of the processes that compute a model together has ended, and the model with it."""


class Panic(RuntimeError):
    """A library below failed in a way that it does not call an exception, as a panic of Rust's is none to Python."""


def as_error(error: BaseException) -> Exception:
    """What ended the work of one request, as an exception that only this request fails with.

    What is no failure is raised again: an interrupt, the end of the process, the end of a generator.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, (KeyboardInterrupt, SystemExit, GeneratorExit)):
        raise error
    return Panic(f"{type(error).__name__}: {error}").with_traceback(error.__traceback__)


class MissingExtra(UnspoolError):
    """An optional package is needed for this."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. Run: pip install 'unspool[{extra}]'"
        )


class MissingDistribution(UnspoolError):
    """A part of unspool that is installed by itself is needed for this."""

    def __init__(self, distribution: str, folder: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {distribution}, which is not installed (it is no part of the package unspool): "
            f"in a checkout of unspool, run pip install ./{folder}"
        )


def cut(text: str) -> str:
    """A text as it is shown in a message: a stranger chooses neither its length nor a line of its own."""
    return spelt_out(text) if len(text) <= SHOWN else spelt_out(text[:SHOWN]) + "…"


def spelt_out(text: str, kept: str = "") -> str:
    """A text on one line that steers no screen: what cannot be printed is spelt as in Python, but for those `kept`.

    That is controls, other line ends, what changes the direction of writing, and halves of surrogate pairs.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)
