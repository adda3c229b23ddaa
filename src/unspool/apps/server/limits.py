"""Limits: what one request may ask for, and how many there may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...core.option import expect, real, whole


@dataclass(frozen=True)
class Limits:
    """What the server lends to its clients; limits that make no sense cannot be made.

    `tokens` and `texts` hold for one request, `parallel` counts texts that are written at the same time, `queue`
    requests that wait for that, `connections` those that are open, `body` bytes, `seconds` the time of one request from
    its first byte to its last, and `patience` the seconds of it in which a client may keep the server waiting: for a
    head, for a body, or to read what it asked for. `rows` are those of the model that one text of a request may take in
    one step (each gives scores for the whole vocabulary), `share` is the part of the cache and of the `parallel` places
    that one request may hold, and all large ones together (see `Shares`), `address` counts connections of one client's
    address, and `stalled` is after how many seconds a worker that does not come round counts as one that hangs.

    The rest holds for the form that a request gives its texts (`response_format` or `tools`), before it is compiled:
    bytes of it as JSON, properties of all objects in it, values of all its enums or choices, levels of nesting, and
    characters of one regular expression. Compiling it may take `compile_seconds` of processor time.

    Prompts in the cache are found by those who sent them, unless clients `share_prefixes`.
    """

    tokens: int = 1 << 31  # the model's context is less
    texts: int = 16
    parallel: int = 16
    queue: int = 256
    connections: int = 1000
    address: int = 256
    rows: int = 4096
    share: float = 0.5
    body: int = 1 << 20
    seconds: float = 300.0
    patience: float = 60.0
    form_bytes: int = 1 << 17
    form_properties: int = 2000
    form_values: int = 4000
    form_depth: int = 100
    form_pattern: int = 8192
    compile_seconds: float = 2.0
    stalled: float = 60.0
    share_prefixes: bool = False

    @property
    def longest(self) -> int:
        """How many of the longest texts a cache must hold for one to fit into the share of a request."""
        return math.ceil(1 / self.share)

    def __post_init__(self) -> None:
        forms = ("form_bytes", "form_properties", "form_values", "form_depth", "form_pattern")
        for name in ("tokens", "texts", "parallel", "queue", "connections", "address", "rows", "body", *forms):
            given = getattr(self, name)
            expect(whole(given, 1), f"the limit of {name}", given, "a whole number from 1 on")
        expect(real(self.share, 0.01, 1), "the share", self.share, "a number from 0.01 to 1")
        for name in ("seconds", "patience", "stalled", "compile_seconds"):
            given = getattr(self, name)
            expect(real(given, 0) and given > 0, f"the limit of {name}", given, "a finite number above 0")
