"""Admission: who may join when, and how much one request may ask for; what exceeds that is refused, with the reason.

Requests stand in two lines, those of small and those of large ones, by what all their texts may need together, and each
in the order of their coming. Large ones hold at most a `share` of the whole, all of them together; the rest is only for
small ones. Small ones may have everything, but while a large one waits those that came after it keep to the rest, so
that its share comes free. So nobody who wants little ever waits for somebody who wants much, and both lines move on.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...core.asks import TARGET, Ask, Check, Draw, Keep, Look, Score
from ...core.errors import BadRequest, OutOfRoom
from .contracts import Causal
from .job import Account, Job

SMALL = 4  # how many small requests fit into the share of the large ones
TURN = 64  # asks without a model after which others get their turn; a round of any method has a handful
# Asks in a row that need no model before a decoder counts as one that never ends. The longest honest rows are those of
# canvases that are only shown, once for every step that changes nothing: hundreds, or thousands if somebody wants so
# many steps. Ten thousand take about a second, during which others have had their turns.
SILENT = 160 * TURN
COPIES = 4  # a row of a copied canvas gives no law, so that many of them count as one that does


@dataclass(frozen=True)
class Shares:
    """How a supply of `whole` is parted; with a `share` of 1 nothing is left for small requests, and all are large."""

    whole: float
    share: float = 1.0

    @property
    def most(self) -> float:
        """What one request may hold, and all large ones together."""
        return max(1, math.floor(self.whole * self.share)) if self.whole < math.inf else self.whole

    @property
    def small(self) -> float:
        """Up to what a request is small; where there is no end of it, all are."""
        if self.whole == math.inf:
            return math.inf
        return min(max(1, self.most // SMALL), self.rest)

    @property
    def rest(self) -> float:
        """What is for small requests alone."""
        return self.whole - self.most if self.whole < math.inf else self.whole


class Ledger:
    """What small and large accounts hold of the cache and of the places, each of them together."""

    def __init__(self, tokens: Shares, places: Shares) -> None:
        self._tokens, self._places = tokens, places
        self._held: dict[bool, tuple[int, int]] = {False: (0, 0), True: (0, 0)}  # tokens and places, by large or not

    def large(self, account: Account) -> bool:
        """Whether an account wants much of one or the other for all its texts that have not ended."""
        return account.room > self._tokens.small or account.texts > self._places.small

    def allows(self, account: Account, room: int, waited: bool) -> bool:
        """Whether an account may have so much room and a place now; `waited` if a large one from before still waits."""
        large = self.large(account)
        (tokens, places), (others, seats) = self._held[large], self._held[not large]
        if tokens + others + room > self._tokens.whole or places + seats + 1 > self._places.whole:
            return False
        if large:
            return tokens + room <= self._tokens.most and places + 1 <= self._places.most
        return not waited or (tokens + room <= self._tokens.rest and places + 1 <= self._places.rest)

    def take(self, account: Account, room: int) -> None:
        """Let an account have so much room, and a place."""
        large = self.large(account)
        tokens, places = self._held[large]
        self._held[large] = tokens + room, places + 1


def admitted(waiting: deque[Job], live: Collection[Job], tokens: Shares, places: Shares) -> tuple[list[Job], bool]:
    """Take those out of the queue who may join now, and tell whether somebody is held back who could.

    `tokens` of cache and `places` are what requests share, by their accounts: see `Shares`. A prompt that another
    request of the same owner is just reading is waited for, and then shared.
    """
    if not waiting:
        return [], False
    came: list[Job] = []
    left: list[Job] = []
    read = {_prompt(job) for job in live if job.trace.forwards[TARGET]}
    reading = set(map(_prompt, live)) - read
    ledger = Ledger(tokens, places)
    for job in live:
        ledger.take(job.account, job.room)
    shut, held = {False: False, True: False}, False  # whether the line of the small, of the large, goes no further
    while waiting and not all(shut.values()):
        job = waiting.popleft()
        large = ledger.large(job.account)
        if shut[large] or not ledger.allows(job.account, job.room, shut[True]):
            shut[large] = True
            left.append(job)
            continue
        ledger.take(job.account, job.room)
        if (prompt := _prompt(job)) in reading:
            held = True
            left.append(job)
            continue
        if prompt not in read:
            reading.add(prompt)
        came.append(job)
    waiting.extendleft(reversed(left))
    return came, held


def _prompt(job: Job) -> tuple[str, int]:
    """The same for those who can share what they read."""
    return job.account.owner, job.key


def refuse_impossible(models: Mapping[str, Causal], text: tuple[int, ...], room: int, most: float) -> None:
    """Refuse a request that one of these models could never answer, or that needs more cache than one may hold."""
    for name, model in models.items():
        if not text:
            raise BadRequest("the prompt is empty: give at least one token to go on from")
        bad = [x for x in text if not 0 <= x < model.vocab]
        if bad:
            raise BadRequest(f"token {bad[0]} is outside the vocabulary of the {name} model (0..{model.vocab - 1})")
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
            f"this request may need {need} tokens of cache, but one request may hold {most:.0f} here. Ask for fewer "
            "new tokens, or let the server have a larger cache."
        )


def rows_asked(ask: Ask | None, texts: int) -> int:
    """How many rows of a model an ask takes, of a request that keeps so many texts; the prompt is not counted."""
    match ask:
        case Score(tree) | Check(tree):
            return len(tree) + texts
        case Keep(tree, nodes):
            return max(len(tree), len(nodes))
        case Draw(depth=depth):
            return depth
        case Look(canvas, along=along):
            low, high = canvas.window
            return max(len(ask.places), len(along) * (high - low) // COPIES)
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


def refuse_endless(silent: int) -> None:
    """Fail a decoder that has gone on for so long without asking a model that it would never end."""
    if silent >= SILENT:
        raise BadRequest(
            f"the method went on for {silent} asks in a row without a look at the model, so it would never end. This "
            "is a fault of the method together with these settings; choose another, or other options."
        )
