"""The contracts between the engine and whatever owns tensors.

A causal model opens sessions and scores many of them in one forward. Every implementation passes the same property
tests: tree = each path scored as a chain; keep = recompute from scratch; batch = alone; warm prefix = cold prefix;
fork = copy.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from ...core.asks import Check, Checked, Draw, Drew, Look, Scores, Write, Written
from ...core.canvas import Field
from ...core.errors import BadRequest, UnspoolError
from ...core.tree import Tree
from ...models.shape import DiffusionSpec

if TYPE_CHECKING:
    from ..drafter.drafter_network import DrafterNetwork

LAST = -1  # the number of what leaves the last norm, which heads read


class Session(Protocol):
    """One request's texts inside a model: the kept leaves, and what is cached of them."""

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        """Make the texts that end in these nodes (each with its extra token, if any) the new leaves."""

    def fork(self) -> Session:
        """Another session with the same leaves, sharing whatever is stored."""

    def close(self) -> None:
        """Free everything that no other session uses. Closing twice is fine."""


class ScoreRequest(NamedTuple):
    """One session's question to a causal model."""

    session: Session
    tree: Tree
    want: tuple[str, ...] = ()


def layer_of(name: str) -> int:
    """The number in "hidden:i", which names what enters layer i; −1 names what leaves the last norm."""
    kind, _, number = name.partition(":")
    if kind != "hidden" or not number.removeprefix("-").isdigit():
        raise BadRequest(
            f"cannot give {name!r}: hidden states are named 'hidden:LAYER', as in 'hidden:12' or 'hidden:-1'; the best "
            "tokens of the prompt 'prompt:COUNT', as in 'prompt:8', and those of the model's heads 'heads:COUNT'"
        )
    return int(number)


@lru_cache
def tops_of(want: tuple[str, ...]) -> int:
    """The number in "prompt:k", 0 if it is not wanted."""
    return _number(want, "prompt:")


@lru_cache
def guesses_of(want: tuple[str, ...]) -> int:
    """The number in "heads:k", 0 if they are not wanted."""
    return _number(want, "heads:")


@lru_cache
def hidden_of(want: tuple[str, ...]) -> tuple[str, ...]:
    """The names of hidden states among what is wanted."""
    return tuple(name for name in want if not (tops_of((name,)) or guesses_of((name,))))


@lru_cache
def named(wants: frozenset[tuple[str, ...]]) -> tuple[int, ...]:
    """The layers whose hidden states are wanted by their names, in any of these."""
    return tuple(sorted({layer_of(name) for want in wants for name in hidden_of(want)}))


@lru_cache
def layers_of(wants: frozenset[tuple[str, ...]]) -> tuple[int, ...]:
    """The layers whose hidden states are wanted, by their names or for heads to read."""
    return tuple(sorted({*named(wants), LAST})) if any(map(guesses_of, wants)) else named(wants)


def _number(want: tuple[str, ...], kind: str) -> int:
    found = [name.removeprefix(kind) for name in want if name.startswith(kind)]
    return max((int(number) for number in found if number.isdigit()), default=0)


class Reader(Protocol):
    """Whatever reads texts and scores what may follow."""

    @property
    def vocab(self) -> int:
        """Number of tokens it gives scores to."""

    @property
    def context(self) -> int | None:
        """The longest text it can read; None if there is no limit."""


@runtime_checkable
class Causal(Reader, Protocol):
    """A model that reads left to right."""

    @property
    def room(self) -> int | None:
        """How many tokens can be stored for all sessions together; None if there is no limit."""

    def open(self, text: Sequence[int], owner: str = "") -> Session:
        """A session whose only leaf is `text`, which must not be empty. Nothing is computed before it is scored.

        Of what was computed before, it goes on from nothing that was read for another `owner`.
        """

    def forget(self) -> None:
        """Drop whatever is still cached of closed sessions."""

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        """Answer all these in one forward: the law after every node and every leaf of each."""


@runtime_checkable
class LooksAhead(Protocol):
    """A model that may have heads (`Score` knows them as "heads:k")."""

    @property
    def guesses(self) -> bool:
        """Whether it has, and their guesses take a small part of a forward."""


@runtime_checkable
class SupportsChunkedPrefill(Causal, Protocol):
    """A causal model that can read a long text in chunks, so that others need not wait for all of it."""

    @property
    def chunk(self) -> int:
        """How many tokens it reads at a time without waste."""

    def owed(self, session: Session) -> int:
        """How many tokens of a session's text must still be read before it can be answered."""

    def read(self, chunks: Sequence[tuple[Session, int]]) -> None:
        """Read so many of them now, from the first on, and answer nothing: fewer than are owed, at least one."""


@runtime_checkable
class SupportsPartialScoring(Causal, Protocol):
    """A causal model that can compute a large answer in several forwards, so that others need not wait for all of it.

    What a part has computed is kept with its session until the rest is, and the answer is the same as in one forward.
    """

    def rows(self, ask: ScoreRequest) -> int:
        """How many rows are still to be computed before this can be answered."""

    def score_beside(self, asked: Sequence[ScoreRequest], parts: Sequence[tuple[ScoreRequest, int]]) -> list[Scores]:
        """Answer all of `asked`, and compute so many rows of the others in the same forward: fewer than they need."""
        ...


@runtime_checkable
class CountsSlots(Causal, Protocol):
    """A causal model that can tell how much of its cache a session holds."""

    def holds(self, session: Session) -> int:
        """For how many tokens it has stored something; what several of its texts share counts once."""


class SlotPool(Protocol):
    """Where a model keeps what it has computed of texts."""

    @property
    def in_use(self) -> int:
        """Slots that some text holds."""


@runtime_checkable
class HasSlots(Protocol):
    """A model with a pool of slots."""

    @property
    def slots(self) -> SlotPool:
        """The pool."""


@runtime_checkable
class HasHeads(Protocol):
    """A model that may have heads which look further ahead than it does."""

    @property
    def heads(self) -> object | None:
        """The heads, or None."""


class NotesStates(Protocol):
    """A model that keeps hidden states of the tokens it has read, for a drafter that reads them."""

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> Tensor | None:
        """Those of all tokens of `text` from `first` on but the last, [tokens, width].

        None if there is no session, or its leaf `number` is another text, or not read so far.
        """
        ...


@runtime_checkable
class PlacedModel(Protocol):
    """A model that says on which device it computes."""

    @property
    def place(self) -> torch.device:
        """That device."""


@runtime_checkable
class FollowsTarget(Causal, Protocol):
    """A draft model that reads the target's hidden states: its sessions go beside the target's."""

    def follow(self, session: Session, target: Session) -> None:
        """Take note of the target's session of the same request, which keeps the same texts."""


class SupportsDeviceDecoding(Protocol):
    """Verification and sampling on the device that runs the model, without a copy of the scores to the host.

    `check` and `write` give None where they cannot; then the host asks for scores and runs the rule itself. A text
    whose scores are broken is answered with an error, which ends that request alone.
    """

    @property
    def max_sequences(self) -> int:
        """How many texts it can go on with at the same time."""

    @property
    def speculates(self) -> bool:
        """Whether it drafts for itself when a `Write` lets it."""

    @property
    def drafts(self) -> bool:
        """Whether a trained drafter is part of that."""

    def draft_with(self, network: DrafterNetwork) -> str | None:
        """Have a trained drafter draft where the model runs; why not, where it cannot."""

    def can_write(self, write: Write) -> bool:
        """Whether it can sample these tokens: it has kernels for their warps and their noise."""

    def check(self, asked: Sequence[ScoreRequest], checks: Sequence[Check]) -> Sequence[Checked | UnspoolError] | None:
        """Answer all these in one forward: the verdict on every tree."""

    def write(
        self, asked: Sequence[ScoreRequest], writes: Sequence[Write], turns: int, logprobs: int | None = None
    ) -> Sequence[Written | UnspoolError] | None:
        """Write on, in at most `turns` forwards, and keep what was written.

        With `logprobs`, the laws of what was written are reports that name the token and so many best.
        """
        ...


class SupportsDeviceDrafting(Protocol):
    """What draws whole chains of drafts on a device."""

    def draw(self, asked: Sequence[ScoreRequest], draws: Sequence[Draw]) -> Sequence[Drew | None] | None:
        """Draw all these; None where it cannot, and then they are drawn from scores."""


@runtime_checkable
class HasDevice(Causal, Protocol):
    """A causal model that may have a device which decides some things by itself."""

    @property
    def device(self) -> SupportsDeviceDecoding | None:
        """Verifies and writes on there; None where only the host can."""

    @property
    def drafting(self) -> SupportsDeviceDrafting | None:
        """Draws drafts there; None where only the host can."""


@runtime_checkable
class DefersCapture(Protocol):
    """A device whose steps are captured as CUDA graphs: when first needed, or in advance while no request waits."""

    def defer_capture(self, texts: int) -> None:
        """Capture steps in `capture_next` from now on, first those for so many texts; until then wider ones serve."""

    def capture_next(self) -> int:
        """Capture the step that is wanted most; how many are still to be captured."""


def device_of(model: object) -> SupportsDeviceDecoding | None:
    """The device that verifies and writes for a model, if it has one."""
    return model.device if isinstance(model, HasDevice) else None


def drafting_of(model: object) -> SupportsDeviceDrafting | None:
    """The device that draws chains of drafts for a model, if it has one."""
    return model.drafting if isinstance(model, HasDevice) else None


class LookRequest(NamedTuple):
    """One request's look at a canvas, with its session where the model has sessions."""

    session: Session | None
    look: Look


@runtime_checkable
class Infill(Protocol):
    """A model that sees a canvas as a whole, or all of it up to the end of the window."""

    @property
    def vocab(self) -> int:
        """Number of tokens it gives scores to."""

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        """Answer all these in one forward: the law at every place that each asks about."""


@runtime_checkable
class FillsBlocks(Infill, Protocol):
    """A model that says how it was made to fill holes."""

    @property
    def filling(self) -> DiffusionSpec:
        """The layout that it was trained with."""

    @property
    def keeps_keys(self) -> bool:
        """Whether it caches keys of places that are not `fresh`; if not, every look computes all of them anew."""


@runtime_checkable
class SupportsStagedLooks(Infill, Protocol):
    """A model that can pause in the middle of a look, so that others need not wait for all of it."""

    def looking(self, ask: LookRequest) -> Generator[None, None, Field]:
        """Answer this in stages, between which others are answered; closing it gives back all that it holds."""
        ...


Model = Causal | Infill
