"""Callers: clients of a server over plain sockets, cheap enough that hundreds of them leave it the machine.

Part of bench/load.py, which sends them.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WORDS = ("river", "stone", "paper", "window", "garden", "letter", "winter", "music", "bridge", "market", "candle")
LENGTHS = (5, 40, 200)  # words of a prompt
ANSWERS = (8, 16, 32, 64)  # tokens of an answer at most
SHELF = 6  # short requests after which nothing of the load is kept for a next turn any more


@dataclass(frozen=True)
class Server:
    """Where the server listens and which process it is."""

    host: str
    port: int
    pid: int | None
    key: str | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=1 << 20)
        key = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}"
        kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        writer.write((head + kind + "\r\n").encode() + body)
        return reader, writer

    async def get(self, path: str) -> str:
        reader, writer = await self.ask("GET", path)
        try:
            return (await reader.read()).decode().partition("\r\n\r\n")[2]
        finally:
            writer.close()

    async def metrics(self) -> dict[str, float]:
        told = re.findall(r"^unspool_(\w+) (\S+)$", await self.get("/metrics"), re.MULTILINE)
        return {name: float(value) for name, value in told}

    def memory(self) -> float | None:
        """Megabytes that the process holds."""
        with suppress(OSError, AttributeError):
            kilobytes = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.pid}/status").read_text(encoding="ascii"))
            return int(kilobytes[1]) / 1024 if kilobytes else None
        return None


@dataclass
class Seen:
    """What all clients saw together; times in seconds."""

    first: list[float] = field(default_factory=list)  # from the request that was taken to its first text
    first_of_all: list[float] = field(default_factory=list)  # from the first try
    gaps: list[float] = field(default_factory=list)  # between pieces of one text
    paces: list[float] = field(default_factory=list)  # per token after the first, one for each text
    health: list[float] = field(default_factory=list)  # what /healthz took
    tokens: int = 0
    busy: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    completed: list[int] = field(default_factory=list)  # by client
    samples: list[dict[str, float | None]] = field(default_factory=list)


class Told(Exception):
    """The server said something else than an answer."""

    def __init__(self, status: int, wait: float) -> None:
        super().__init__(f"status {status}")
        self.status, self.wait = status, wait


def chat(dice: random.Random) -> bytes:
    """A request that nobody else sends."""
    text = " ".join(dice.choices(WORDS, k=dice.choice(LENGTHS)))
    return json.dumps(
        {
            "messages": [{"role": "user", "content": f"Write about {text}."}],
            "max_tokens": dice.choice(ANSWERS),
            "temperature": 0.7,
            "seed": dice.getrandbits(32),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


async def answer(server: Server, body: bytes, tried: float, seen: Seen) -> None:
    """One request from its first byte to the end of its stream."""
    sent, last, first, tokens = time.perf_counter(), 0.0, 0.0, 0
    reader, writer = await server.ask("POST", "/v1/chat/completions", body)
    gaps: list[float] = []
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if (status := int(head.split(" ", 2)[1])) != 200:
            wait = re.search(r"retry-after: (\d+)", head, re.IGNORECASE)
            raise Told(status, float(wait[1]) if wait else 1.0)
        while b"[DONE]" not in (event := await reader.readuntil(b"\n\n")):
            now = time.perf_counter()
            if b'"error"' in event:
                raise ConnectionError("an error in the stream")
            if b'"completion_tokens"' in event:
                tokens = json.loads(event[event.index(b"{") :])["usage"]["completion_tokens"]
            elif b'"content": ""' not in event and b'"content"' in event:
                if last:
                    gaps.append(now - last)
                first, last = first or now, now
    finally:
        writer.close()
    seen.tokens += tokens
    seen.gaps += gaps
    if first:  # a text may be empty
        seen.first.append(first - sent)
        seen.first_of_all.append(first - tried)
    if tokens > 1:
        seen.paces.append((last - first) / (tokens - 1))


async def client(number: int, server: Server, until: float, seen: Seen) -> None:
    """Ask, read, ask again, until the time is up; a request that was sent away by then was in vain."""
    dice = random.Random(number)
    await asyncio.sleep(dice.random() * max(0.0, min(1.0, until - time.perf_counter()) / 2))  # not in one instant
    while time.perf_counter() < until:
        body, tried = chat(dice), time.perf_counter()
        while True:
            try:
                await answer(server, body, tried, seen)
                seen.completed[number] += 1
            except Told as told:
                if told.status == 429:
                    seen.busy += 1
                    await asyncio.sleep(told.wait + dice.random())
                    if time.perf_counter() < until:
                        continue
                else:
                    seen.errors[str(told)] += 1
            except (OSError, EOFError, ValueError) as error:
                seen.errors[type(error).__name__] += 1
            break


async def watch(server: Server, seen: Seen) -> None:
    """Every half second: memory, what is live, and how long the event loop lets a small question wait."""
    began = time.perf_counter()
    while True:
        asked = time.perf_counter()
        await server.get("/healthz")
        seen.health.append(time.perf_counter() - asked)
        told = await server.metrics()
        kept = {name: told.get(name) for name in ("live_texts", "queue_length", "cache_slots_in_use")}
        seen.samples.append({"seconds": round(asked - began, 1), "rss": server.memory(), **kept})
        await asyncio.sleep(0.5)


async def rest(server: Server) -> dict[str, float]:
    """What is left when all have gone: figures that must be 0, and slots held beyond the last short texts."""
    for _ in range(100):
        told = await server.metrics()
        left = {name: told[name] for name in ("live_requests", "live_texts", "queue_length", "cache_tokens_reserved")}
        if not any(left.values()):
            break
        await asyncio.sleep(0.1)
    if "cache_slots_in_use" in told:
        short = {"max_tokens": 2, "stream": True, "stream_options": {"include_usage": True}}
        most = 0
        for i in range(SHELF):  # finished texts stay for a next turn, until others take their places
            said = {"messages": [{"role": "user", "content": f"{WORDS[i]}?"}], **short}
            reader, writer = await server.ask("POST", "/v1/chat/completions", json.dumps(said).encode())
            usage = re.search(rb'"total_tokens": (\d+)', await reader.read())
            most += int(usage[1]) if usage else 0
            writer.close()
        left["slots_leaked"] = max(0.0, (await server.metrics())["cache_slots_in_use"] - most)
    return left
