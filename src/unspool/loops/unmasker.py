"""The parts of unmasking, and how each is made ready for a vocabulary and a request.

A view looks at a canvas: once, or guided, credited, softened, or with keys that were computed before. A rule chooses
the holes to fill next. A recheck has a second opinion on them before anything stands in them; a remask masks or changes
what is filled already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeGuard, TypeVar, runtime_checkable

from ..core.asks import Ask, Look
from ..core.canvas import Canvas, Field
from ..core.errors import BadRequest
from ..core.option import MODEL
from .denoise_state import DenoiseState

T = TypeVar("T")
USUAL = 32  # places of a block, where neither the request nor the model says how many


class Unmask(Protocol):
    """A choice among the holes that were looked at: at least one of them, if there is one.

    A plain function will do. One that has to know the vocabulary, remembers earlier looks, or contains others that may,
    derives from `Rule`.
    """

    def __call__(self, state: DenoiseState, /) -> Collection[int]:
        """The holes to fill now."""


class Rule:
    """What chooses, views, scores or thinks again, where it is more than a function.

    One that is a dataclass and has rules among its fields passes both on to them, so that a rule inside a rule learns
    of the vocabulary and has a memory of its own for every request.
    """

    def fit(self, vocabulary: Any) -> Any:
        """This rule for a vocabulary; one that has to know the tokens it works with overrides this."""
        return _with_parts(self, lambda part: part.fit(vocabulary))

    def begin(self) -> Any:
        """This rule for one request; one that remembers earlier looks gives a fresh memory here."""
        return _with_parts(self, lambda part: part.begin())


class StatefulRule(Rule):
    """A rule that remembers earlier looks: `begin` gives one with a fresh memory; called by itself it has none."""

    def __call__(self, *seen: Any) -> Any:
        """Its answer at a first look."""
        return self.begin()(*seen)


def begun(rule: T) -> T:
    """A rule with a memory of its own for one request; a plain function is taken as it is."""
    return rule.begin() if _declared(rule) else rule


def suited(rule: T, vocabulary: Any) -> T:
    """A rule that knows the tokens it works with; a plain function is taken as it is."""
    return rule.fit(vocabulary) if _declared(rule) else rule


def _declared(rule: object) -> TypeGuard[Rule]:
    """Whether it is a rule; BadRequest if it has the methods of one but does not say so, as nobody would call them."""
    undeclared = not isinstance(rule, Rule) and (hasattr(rule, "fit") or hasattr(rule, "begin"))
    if undeclared:
        kind = type(rule).__name__
        raise BadRequest(
            f"{kind} has a method fit or begin, which is not called; derive {kind} from unspool.loops.unmasker.Rule"
        )
    return isinstance(rule, Rule)


def _with_parts(rule: Rule, made: Callable[[Rule], Any]) -> Any:
    """The same rule with every rule among its fields replaced."""
    if not is_dataclass(rule):
        return rule
    named = {field.name: value for field in fields(rule) if isinstance(value := vars(rule)[field.name], Rule)}
    return replace(rule, **{name: made(part) for name, part in named.items()}) if named else rule


Checking: TypeAlias = Generator[Ask, Any, Collection[int]]


class Recheck(Protocol):
    """A second opinion on what was chosen: it may look again, change tokens, and choose otherwise."""

    def __call__(self, state: DenoiseState, chosen: Collection[int]) -> Checking:
        """The holes to fill after all."""


class Remask(Protocol):
    """A second thought about drafts. One that remembers is a `Rule`.

    While a request may think again, what it fills are drafts. They become final when the window has no hole left and
    nothing is asked about any more.
    """

    @property
    def looks(self) -> int:
        """How many looks at one window it may take, besides one for each of its places."""

    def asks(self, canvas: Canvas) -> Collection[int]:
        """The filled places of the window whose laws it has to see."""

    def __call__(self, state: DenoiseState, canvas: Canvas, /) -> Canvas:
        """The canvas, just filled after this look, with some drafts changed or turned into holes."""


Viewing: TypeAlias = Generator[Ask, Any, Field]


class View(Protocol):
    """A way to get the laws at places of a canvas; a plain function, or a `Rule`."""

    def __call__(self, canvas: Canvas, places: Sequence[int], /) -> Viewing:
        """Ask for the laws at these places."""


class CachedView(StatefulRule):
    """A view that has some places computed and all others seen as they were: nothing to models that keep no keys."""


def look(canvas: Canvas, places: Sequence[int]) -> Viewing:
    """One look, with everything computed anew."""
    field: Field = yield Look(canvas, tuple(places))
    return field


class Blocks(Protocol):
    """What to look at now: the canvas with its window on the holes to work on; without a hole in it, all is done.

    It may cut off what should not be seen. A plain function will do; one that remembers is a `Rule`, and one that
    settles for less after it has looked is `Narrowing`.
    """

    def __call__(self, canvas: Canvas, /) -> Canvas:
        """The canvas to look at."""


class Cutting:
    """Declared by blocks that cut off what is behind them, so that nothing there is seen."""


class Narrowing(ABC):
    """Blocks that settle for a part of what was looked at."""

    @abstractmethod
    def saw(self, state: DenoiseState) -> DenoiseState:
        """The state of the part that may be filled."""


def narrowed(blocks: Blocks, state: DenoiseState) -> DenoiseState:
    """What may be filled of what was seen."""
    return blocks.saw(state) if isinstance(blocks, Narrowing) else state


def whole(canvas: Canvas) -> Canvas:
    """All that follows the prompt."""
    return canvas.within(canvas.prompt, len(canvas))


def with_holes(blocks: Blocks, canvas: Canvas) -> tuple[int, int]:
    """The window on the first block that has a hole, where drafts may stand that somebody else will revise.

    For rules that have blocks of their own: the loop's are done only when their drafts are.
    """
    return blocks(canvas.fixed(0, len(canvas))).window


@dataclass(frozen=True)
class FixedBlocks:
    """The first block of `size` places that has a hole or a draft, counted from the end of the prompt."""

    size: int = 32

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadRequest(f"block={self.size} cannot be used; expected a block of at least 1")

    def __call__(self, canvas: Canvas) -> Canvas:
        start, end = canvas.prompt, len(canvas)
        first = next((i for i in range(start, end) if canvas.is_open(i)), end)
        low = start + (first - start) // self.size * self.size
        return canvas.within(low, min(low + self.size, end))


@dataclass(frozen=True)
class ModelBlocks(Rule):
    """Blocks of the size that the model was made for; of `usual` places where it does not say."""

    usual: int = USUAL

    def fit(self, vocabulary: Any) -> Blocks:
        return FixedBlocks(sized(MODEL, vocabulary, self.usual))

    def __call__(self, canvas: Canvas) -> Canvas:
        return FixedBlocks(self.usual)(canvas)


@runtime_checkable
class KnowsBlock(Protocol):
    """A vocabulary whose model says how many places it fills together."""

    block: int | None


def sized(size: int, vocabulary: Any = None, usual: int = USUAL) -> int:
    """This size of blocks; if it is `MODEL`, the one that the model says itself, or the usual one if it says none."""
    told = vocabulary.block if isinstance(vocabulary, KnowsBlock) else None
    return size if size != MODEL else usual if told is None else told


def blocks_of(size: int, usual: int = USUAL) -> Blocks:
    """Blocks of this size; 0 for the whole canvas as one, −1 (`MODEL`) for the size that the model was made for."""
    return ModelBlocks(usual) if size == MODEL else whole if size == 0 else FixedBlocks(size)
