"""Clients: who may use a server, by key, with a name for the log and limits of their own; and what is left of these."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from ...core.errors import BadRequest
from ...core.files import read_toml
from ...core.option import expect, whole
from .refusal import Refusal

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Client:
    """One who has a key: how many requests at a time, and how many tokens a minute, read and written; None: any."""

    name: str
    key: str = field(repr=False)  # so that it gets into no message
    parallel: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and NAME.fullmatch(self.name) is not None
        expect(named, "a client's name", self.name, "1 to 64 letters, digits, dots, underscores or dashes")
        if not isinstance(self.key, str) or not self.key.strip() or self.key != self.key.strip():
            raise BadRequest(f"the key of {self.name} is empty, or no text, or has blanks around it; give one as text")
        for limit in ("parallel", "tokens_per_minute"):
            given = getattr(self, limit)
            fits = given is None or whole(given, 1)
            expect(fits, f"{limit} of {self.name}", given, "a whole number from 1 on, or nothing for no limit")


def exposed(path: Path) -> str | None:
    """A warning if others than its owner can read or change a file of keys; None if not."""
    mode = path.stat().st_mode & 0o777
    if os.name == "nt" or not mode & 0o077:
        return None
    return f"{path} has the mode {mode:03o}: others than its owner can get at the keys in it. Run: chmod 600 {path}"


def clients(path: Path) -> tuple[Client, ...]:
    """The clients of a TOML file: a table for each, with `key` and, if there are limits, those."""
    try:
        tables = read_toml(path)
    except OSError as error:
        raise BadRequest(f"the keys cannot be read from {path}: {error.strerror}") from None
    except ValueError:  # whose words may quote a key
        raise BadRequest(f'{path} is not TOML; expected [name], and below it key = "…"') from None
    found = tuple(_client(name, table, path) for name, table in tables.items())
    if not found:
        raise BadRequest(f"{path} has no keys, so nobody could come in; give some, or leave --keys away")
    keys = [client.key for client in found]
    for client in found:
        if keys.count(client.key) > 1:
            raise BadRequest(f"{path}: the key of {client.name} is another's too; each has its own")
    return found


def _client(name: str, table: Any, path: Path) -> Client:
    known = {"key", "parallel", "tokens_per_minute"}
    if not isinstance(table, Mapping) or "key" not in table or table.keys() - known:
        raise BadRequest(f"{path}: [{name}] needs key, and may have parallel and tokens_per_minute; it has other parts")
    return Client(name, table["key"], table.get("parallel"), table.get("tokens_per_minute"))


class RateLimit:
    """Requests at a time, and tokens from a bucket that fills evenly and holds a minute's worth.

    What was begun is finished, even beyond the limit; then the bucket has to fill up again before the next request may
    begin. Used by the event loop's thread alone.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = monotonic) -> None:
        self.client, self._clock = client, clock
        self.inside = self.requests = self.refused = self.tokens = 0
        self._left, self._at = float(client.tokens_per_minute or 0), clock()

    def enter(self) -> None:
        """Begin a request, or refuse it and say when to come back."""
        most, rate = self.client.parallel, self.client.tokens_per_minute
        self.requests += 1
        if most is not None and self.inside >= most:
            self._refuse(f"{self.inside} requests of this key are being answered, which is as many as it may have", 1)
        if rate is not None:
            now = self._clock()
            self._left, self._at = min(rate, self._left + (now - self._at) * rate / 60), now
            if self._left <= 0:
                self._refuse(f"this key has used its {rate} tokens a minute", math.ceil(-self._left * 60 / rate) or 1)
        self.inside += 1

    def leave(self) -> None:
        """End a request."""
        self.inside -= 1

    def spend(self, tokens: int) -> None:
        """Count tokens that a request read or wrote."""
        self.tokens += tokens
        self._left -= tokens

    def _refuse(self, why: str, seconds: int) -> None:
        self.refused += 1
        raise Refusal(429, f"{why}; try again in {seconds} seconds", code="rate_limit_exceeded", retry=seconds)
