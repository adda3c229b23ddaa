"""The queue: who waits to be begun, in the order of their coming, and how long that takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from time import monotonic

from ...core.errors import UnspoolError
from .errand import Errand

SOONEST, LATEST = 1.0, 60.0  # seconds after which one who was sent away is told to come back
LATE = 1.1  # who comes back too late finds room still, who comes too early is sent away again


class Busy(UnspoolError):
    """As many requests wait as may; there will be room in about `wait` seconds."""

    def __init__(self, message: str, wait: float = SOONEST) -> None:
        super().__init__(message)
        self.wait = min(max(wait, SOONEST), LATEST)


class Queue:
    """At most so many errands; one that has sent somebody away takes nobody until half of it is gone.

    Otherwise a place that comes free would always go to those who were just served and ask again at once, and never to
    those who were sent away and come back when they were told. Those are told to come when half of the queue will be
    gone, as many as fit then; the next ones when half is gone once more, and so on.
    """

    def __init__(self, most: int) -> None:
        self._most, self._half = most, most // 2
        self._line: deque[tuple[Errand, float, int]] = deque()  # with when it came, and behind how many
        self._shut = False
        self._away: deque[float] = deque(maxlen=4 * most)  # when those will come back who were sent away last
        self._pace = 0.0  # seconds that one place in the queue takes, of late

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Errand]:
        return (errand for errand, _, _ in list(self._line))

    @property
    def wait(self) -> float:
        """Seconds that somebody who comes now may have to wait, as far as can be told."""
        return self._pace * len(self)

    def add(self, errand: Errand) -> None:
        """Take one in; Busy if it cannot be."""
        waiting, now = len(self), monotonic()
        self._shut = self._shut and waiting > self._half
        if self._shut or waiting >= self._most:
            raise self._sent_away(now)
        self._line.append((errand, now, waiting))

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

    def first(self) -> Errand:
        """Who comes next."""
        return self._line[0][0]

    def take(self) -> Errand:
        """Let the first one go to be begun."""
        errand, came, behind = self._line.popleft()
        self._pace += ((monotonic() - came) / (behind + 1) - self._pace) / 8
        return errand

    def remove(self, errand: Errand) -> bool:
        """Let one go who waits no longer; False if it does not stand here."""
        found = next((place for place in self._line if place[0] is errand), None)
        if found is not None:
            self._line.remove(found)
        return found is not None

    def clear(self) -> list[Errand]:
        """Let everybody go."""
        left = list(self)
        self._line.clear()
        return left
