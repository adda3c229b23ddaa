"""The queue of those that wait to be let in: a line for every client, so that nobody waits behind all of another's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from ...core.errors import UnspoolError
from .server_request import ServerRequest

SOONEST, LATEST = 1.0, 60.0  # seconds after which one who was sent away is told to come back
LATE = 1.1  # who comes back too late finds room still, who comes too early is sent away again
BEYOND = 2  # times the places of a queue that all clients together may fill, as each that comes has some of its own


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
