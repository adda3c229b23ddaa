"""The queue: who waits to be let in, in the order of their coming, and how long that takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from ...core.errors import UnspoolError
from .server_request import ServerRequest

SOONEST, LATEST = 1.0, 60.0  # seconds after which one who was sent away is told to come back
LATE = 1.1  # who comes back too late finds room still, who comes too early is sent away again


class Busy(UnspoolError):
    """As many requests wait as may; there will be room in about `wait` seconds."""

    def __init__(self, message: str, wait: float = SOONEST) -> None:
        super().__init__(message)
        self.wait = min(max(wait, SOONEST), LATEST)


@dataclass
class _Waiting:
    """One who waits: since when, behind how many, and whether somebody who came later was let in before."""

    errand: ServerRequest
    came: float
    behind: int
    passed: bool = False


class Queue:
    """At most so many errands; one that has sent somebody away takes nobody until half of it is gone.

    Otherwise a place that comes free would always go to those who were just served and ask again at once, and never to
    those who were sent away and come back when they were told. Those are told to come when half of the queue will be
    gone, as many as fit then; the next ones when half is gone once more, and so on.

    Small requests may be let in before large ones (see `Shares`): those who were passed say nothing about how long the
    next one will wait, as it will pass them too.
    """

    def __init__(self, most: int) -> None:
        self._most, self._half = most, most // 2
        self._line: deque[_Waiting] = deque()
        self._shut = False
        self._away: deque[float] = deque(maxlen=4 * most)  # when those will come back who were sent away last
        self._pace = 0.0  # seconds that one place in the queue takes, of late

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[ServerRequest]:
        return (place.errand for place in list(self._line))

    @property
    def wait(self) -> float:
        """Seconds that somebody who comes now may have to wait, as far as can be told."""
        return self._pace * sum(not place.passed for place in list(self._line))

    def add(self, errand: ServerRequest) -> None:
        """Take one in; Busy if it cannot be."""
        waiting, now = len(self), monotonic()
        self._shut = self._shut and waiting > self._half
        if self._shut or waiting >= self._most:
            raise self._sent_away(now)
        self._line.append(_Waiting(errand, now, sum(not place.passed for place in self._line)))

    def _sent_away(self, now: float) -> Busy:
        self._shut = True
        while self._away and self._away[0] <= now:
            self._away.popleft()
        rounds = len(self._away) // max(self._half, 1)
        ahead = len(self) - self._half + rounds * self._half
        told = f"{len(self)} requests wait already, and this server lets at most {self._most}; try again later"
        busy = Busy(told, LATE * self._pace * ahead)
        self._away.append(now + busy.wait)
        return busy

    def take(self, errand: ServerRequest) -> None:
        """One was let in."""
        for place in self._line:
            if place.errand is errand:
                break
            place.passed = True
        else:
            return
        self._line.remove(place)
        if not place.passed:
            self._pace += ((monotonic() - place.came) / (place.behind + 1) - self._pace) / 8

    def remove(self, errand: ServerRequest) -> bool:
        """Let one go who waits no longer; False if it does not stand here."""
        found = next((place for place in self._line if place.errand is errand), None)
        if found is not None:
            self._line.remove(found)
        return found is not None

    def clear(self) -> list[ServerRequest]:
        """Let everybody go."""
        left = list(self)
        self._line.clear()
        return left
