"""Claims: what a rule promises, attached to the rule, kept in one registry, and checked by `unspool prove`."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, runtime_checkable

from .option import options

if TYPE_CHECKING:  # for types alone: `unspool methods --help` needs no torch
    from .asks import Decoding
    from .canvas import Frame
    from .chance import Chance
    from .stop import Stop
    from .warp.warp import Warp

F = TypeVar("F", bound=Callable[..., Any])


class Method(Protocol):
    """A way to decode: given a prompt, chance, a warp and a stop, a generator of asks that ends in `Done`."""

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        """Begin decoding."""


def takes(found: Any, count: int) -> bool:
    """Whether an object can be called with so many arguments."""
    try:
        inspect.signature(found).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return callable(found)


def decodes(found: Any) -> bool:
    """Whether an object is called as methods are; a class makes them."""
    return not inspect.isclass(found) and takes(found, 4)


@runtime_checkable
class Fitting(Protocol):
    """A method that has to know the tokens it will decode."""

    def fit(self, vocabulary: Any) -> Method:
        """The method for this vocabulary."""


@runtime_checkable
class Choosing(Protocol):
    """A method that depends on which models there are to draft."""

    def among(self, models: Collection[str]) -> Method:
        """The method where there are these."""


def fit(method: Method, vocabulary: Any) -> Method:
    """A method, made to fit a vocabulary if it asks for that."""
    return method.fit(vocabulary) if isinstance(method, Fitting) else method


@runtime_checkable
class Infilling(Protocol):
    """A method that can write between given texts."""

    def framed(self, frame: Frame) -> Method:
        """The method for a canvas that has these holes and tokens behind the prompt; BadRequest if it cannot."""


class Branching(ABC):
    """Declared by a method that goes on with several texts at the same time."""

    @property
    @abstractmethod
    def texts(self) -> int:
        """How many at most."""


class Learning:
    """Declared by a method whose texts learn from those before: the n texts of a call come one after the other."""


def texts_of(method: Method) -> int:
    """How many texts a method goes on with at the same time, at most."""
    return method.texts if isinstance(method, Branching) else 1


def unwatched(found: Sequence[Any]) -> None:
    """Nobody looks at what else was found."""


@dataclass(frozen=True, kw_only=True)
class Watchable:
    """Declared by a search: `watch` is told all texts found, best first, be it finished, out of budget or cancelled.

    `RANKS` says that these are its answers, so that n texts of it are its n best; `SCORES` what their scores are.
    """

    RANKS: ClassVar[bool] = False
    SCORES: ClassVar[str] = "score"
    watch: Callable[[Sequence[Any]], None] = unwatched


def overheard(method: Method, listen: Callable[[Sequence[Any]], None]) -> Method:
    """The method with one more to whom it tells what it has found, if it is one that tells."""
    if not isinstance(method, Watchable):
        return method
    watch = method.watch

    def both(found: Sequence[Any]) -> None:
        watch(found)
        listen(found)

    return replace(method, watch=both)


class Claim(Enum):
    """The promises a rule can make, strongest first."""

    SEED = "same seed, same text as plain decoding"
    LAW = "the exact output distribution of plain decoding"
    ARGMAX = "the greedy text"
    BOUND = "a stated bound"
    HEURISTIC = "approximate; the gap is measured and printed"


SEED, LAW, ARGMAX, BOUND, HEURISTIC = Claim


@dataclass(frozen=True)
class About:
    """Of which law a claim speaks, where it is another than that of plain decoding under the request's warps.

    `conditioned`: the model's law given that the whole text is allowed. `first`: conditions on scores that hold before
    all warps, each a function of the scores, the prompt and what was written.
    """

    conditioned: bool = False
    first: tuple[Callable[[list[float], tuple[int, ...], tuple[int, ...]], list[float]], ...] = ()


@dataclass(frozen=True)
class Entry:
    """One rule of the registry: what it is, what it claims, whose paper it is, and the methods that put it to the test.

    `trials` gives complete methods that use the rule, small enough to be enumerated. `build` makes the method that a
    user gets by name; its parameters are the options that `--method name:option=value` can set, and say what each may
    be (`unspool.core.option`). For the rules that come with unspool it is the recipe of their name
    (`unspool.recipes.methods`).
    """

    name: str
    family: str
    claim: Claim
    paper: str
    systems: tuple[str, ...]
    rule: Callable[..., Any]
    trials: Callable[[Any], Iterable[Method]]
    build: Callable[..., Method] | None
    needs: tuple[str, ...]
    bound: Callable[[Any], float] | None
    shaped: bool
    about: About | None = None
    note: str = ""  # what the claim is about, or its condition, as words that can follow its name

    @property
    def promise(self) -> str:
        """The claim as it is shown to people: its name, and what there is to say beside it."""
        return f"{self.claim.name} {self.note}".rstrip()

    @property
    def summary(self) -> str:
        """The first sentence of the rule's docstring."""
        text = inspect.getdoc(self.rule) or ""
        return text.split("\n\n")[0].replace("\n", " ")


_entries: dict[str, Entry] = {}

UNWARPED = "at temperature 1, without truncations and penalties"
"""The condition of a claim about a model's own law: every warp shapes another one, and so does temperature 0."""


def claims(
    claim: Claim,
    *,
    trials: Callable[[Any], Iterable[Method]],
    build: Callable[..., Method] | None = None,
    name: str | None = None,
    paper: str = "",
    systems: Sequence[str] = (),
    needs: Sequence[str] = (),
    bound: Callable[[Any], float] | None = None,
    shaped: bool = True,
    about: About | None = None,
    note: str = "",
    family: str = "",
) -> Callable[[F], F]:
    """Register a rule with what it claims. The family is the folder that the rule lives in, unless it is given.

    `needs` names models besides the target, `bound` is what BOUND claims of the total variation in a case, and
    `shaped=False` says that the claim is about the model's own law, without warps; the note of a claim that promises
    something then says so. `about` tells of which law the claim speaks where it is another than plain decoding's, and
    `note` says that, or a condition, in words.
    """

    def register(rule: F) -> F:
        known = name or rule.__name__.lower()
        folder = rule.__module__.split(".")[-2] if rule.__module__.startswith("unspool.") else "yours"
        if known in _entries and _entries[known].rule.__module__ != rule.__module__:
            raise ValueError(f"two rules are called {known!r}: {_entries[known].rule.__module__} and {rule.__module__}")
        builder = rule if build is None and family == "decode" else build
        if builder is not None:
            options(builder)  # refuses a parameter that does not say what it may be
        conditions = [note, UNWARPED if not shaped and claim is not HEURISTIC else ""]
        said = ", ".join(condition for condition in conditions if condition)
        held = tuple(systems), rule, trials, builder, tuple(needs), bound, shaped, about, said
        _entries[known] = Entry(known, family or folder, claim, paper, *held)
        return rule

    return register


def compose(name: str, build: Callable[..., Method], needs: Sequence[str] | None = None) -> Entry:
    """Say how a registered rule is made into a method, and which models that asks, if others than the rule.

    Refused if an option does not say what it may be.
    """
    options(build)
    entry = _entries[name]
    _entries[name] = replace(entry, build=build, needs=entry.needs if needs is None else tuple(dict.fromkeys(needs)))
    return _entries[name]


def registered() -> dict[str, Entry]:
    """The rules that have been imported so far, by name; `unspool.recipes.methods` knows all."""
    return dict(sorted(_entries.items(), key=lambda item: (item[1].family, item[0])))
