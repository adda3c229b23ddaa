"""Attackers: clients that mean no good, each bounded in number and time, and only ever to a server on this machine.

Part of bench/attack.py, which sends them. An attacker returns what it was told, in a few words, which begin with HARM
if something happened that must not.
"""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callers import Server

HARM = "HARM"
WAIT = 12.0  # seconds that an attacker waits for an answer before it hangs up
PROPERTIES = 12_000  # of a large schema
READ = 700  # words of a long prompt: bytes enough for a model that reads bytes


@dataclass(frozen=True)
class Attack:
    """What is done to a server, and to a server of which model."""

    name: str
    go: Callable[[Server], Awaitable[str]]
    fills: bool = False  # whether it needs a model that fills canvases


async def told(server: Server, body: dict[str, Any], wait: float = WAIT, path: str = "/v1/completions") -> str:
    """The status and code of the answer to a request, or how it ended without one."""
    try:
        answer = await asyncio.wait_for(_answer(server, json.dumps(body).encode(), path), wait)
    except asyncio.TimeoutError:
        return f"hung up after {wait:g} s"
    except (OSError, EOFError) as error:
        return type(error).__name__
    head, _, rest = answer.decode("utf-8", "replace").partition("\r\n\r\n")
    status = head.split(" ", 2)[1] if head else "cut off"
    with suppress(ValueError, KeyError, TypeError):
        error = json.loads(rest)["error"]
        return f"{status} {error['code'] or error['type']}"
    return status


async def _answer(server: Server, body: bytes, path: str) -> bytes:
    reader, writer = await server.ask("POST", path, body)
    try:
        return await reader.read()
    finally:
        writer.close()


def method(spec: str, **more: Any) -> Callable[[Server], Awaitable[str]]:
    """One request with this method."""

    async def go(server: Server) -> str:
        asked = {"prompt": "Once upon a time", "max_tokens": 32, "decoding": {"method": spec}}
        return await told(server, {**asked, **more})

    return go


def crowd(spec: str, clients: int, **more: Any) -> Callable[[Server], Awaitable[str]]:
    """Several requests at once with a method whose options are as large as they may be."""

    async def go(server: Server) -> str:
        return counted(await asyncio.gather(*(method(spec, **more)(server) for _ in range(clients))))

    return go


def _schema(count: int) -> dict[str, Any]:
    schema = {"type": "object", "properties": {f"property{i}": {"type": "string"} for i in range(count)}}
    return {"type": "json_schema", "json_schema": {"name": "large", "schema": schema}}


async def large_schemas(server: Server) -> str:
    """Two large schemas whose senders hang up, then an innocent one: how long that takes."""
    body = {"prompt": "a", "max_tokens": 8, "response_format": _schema(PROPERTIES)}
    await asyncio.gather(*(told(server, body, 1.0) for _ in range(2)))
    began = asyncio.get_running_loop().time()
    innocent = await told(server, {"prompt": "a", "max_tokens": 8, "response_format": {"type": "json_object"}})
    answer = f"an innocent one: {innocent} after {asyncio.get_running_loop().time() - began:.1f} s"
    return answer if innocent == "200" else f"{HARM}: {answer}"


async def planted_reward(server: Server) -> str:
    """A reward from a file that leaves a sign if it is run."""
    with tempfile.TemporaryDirectory() as folder:
        sign, file = Path(folder) / "sign", Path(folder) / "planted.py"
        file.write_text(f"from pathlib import Path\nPath({str(sign)!r}).touch()\n\ndef zero(text):\n    return 0.0\n")
        answer = await method(f"mcts:rollouts=2,reward={file}:zero")(server)
        return f"{HARM}: the file was run; {answer}" if sign.exists() else answer


async def slow_heads(server: Server) -> str:
    """200 connections that send a head byte by byte; how many were closed."""

    async def drip() -> None:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
            while not reader.at_eof():
                writer.write(b"X")
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(reader.read(100), 0.5)
        finally:
            writer.close()

    async def one() -> str:
        try:
            await asyncio.wait_for(drip(), WAIT)
        except asyncio.TimeoutError:
            return "still open"
        except OSError:
            pass
        return "closed"

    return counted(await asyncio.gather(*(one() for _ in range(200))))


async def never_reading(server: Server) -> str:
    """Eight clients who ask for much with a small window and read nothing of it."""

    async def one() -> str:
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.setblocking(False)
        body = {"prompt": "Once", "max_tokens": 200, "n": 4, "stream": True, "logprobs": 5, "temperature": 1}
        data = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        with made:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(made, (server.host, server.port))
            await loop.sock_sendall(made, head.encode() + data)
            await asyncio.sleep(WAIT)
        return "sent, not read"

    return counted(await asyncio.gather(*(one() for _ in range(8)), return_exceptions=True))


async def wrong_keys(server: Server) -> str:
    """1000 requests with wrong keys, 20 at a time."""
    wrong = Server(server.host, server.port, server.pid, "a-wrong-key")
    found: list[str] = []
    for _ in range(50):
        found += await asyncio.gather(*(told(wrong, {"prompt": "a"}) for _ in range(20)))
    return counted(found)


async def disconnects(server: Server) -> str:
    """100 requests whose senders hang up at once, 10 at a time."""

    async def one() -> str:
        body = {"prompt": "Once upon a time", "max_tokens": 200, "n": 4}
        _, writer = await server.ask("POST", "/v1/completions", json.dumps(body).encode())
        with suppress(OSError):
            await writer.drain()
        writer.close()
        return "hung up"

    found: list[Any] = []
    for _ in range(10):
        found += await asyncio.gather(*(one() for _ in range(10)), return_exceptions=True)
        await asyncio.sleep(0.2)
    return counted(found)


async def long_prompts(server: Server) -> str:
    """Three prompts of 900 KB at a time."""
    body = {"prompt": "word thing " * 81_000, "max_tokens": 2}
    return counted(await asyncio.gather(*(told(server, body, 2 * WAIT) for _ in range(3))))


async def long_calls(server: Server) -> str:
    """Chats in which a function was called with 800 KB, three at a time, four times."""
    called = {"name": "f", "arguments": json.dumps({"x": "word thing " * 72_000})}
    messages = [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": called}]}]
    body, found = {"messages": messages, "max_tokens": 2}, list[str]()
    for _ in range(4):
        found += await asyncio.gather(*(told(server, body, 2 * WAIT, "/v1/chat/completions") for _ in range(3)))
    return counted(found)


async def long_lists(server: Server) -> str:
    """Prompts of as many numbers as a body may have, eight at a time, four times."""
    body, found = {"prompt": [1] * 490_000, "max_tokens": 2}, list[str]()
    for _ in range(4):
        found += await asyncio.gather(*(told(server, body, 2 * WAIT) for _ in range(8)))
    return counted(found)


async def long_predictions(server: Server) -> str:
    """Predictions of as many signs as are allowed, each of several tokens, eight at a time, four times."""
    body = {"prompt": "a", "max_tokens": 2, "prediction": {"type": "content", "content": "\u200d\U0001f600" * 32_000}}
    found: list[str] = []
    for _ in range(4):
        found += await asyncio.gather(*(told(server, body, 2 * WAIT) for _ in range(8)))
    return counted(found)


async def much_to_read(server: Server) -> str:
    """Prompts that fill much of the context, six at a time and each another, for a token each."""

    async def one(client: int) -> list[str]:
        until, found = asyncio.get_running_loop().time() + WAIT, list[str]()
        while asyncio.get_running_loop().time() < until:
            prompt = f"{client} {len(found)} " + "word thing " * (READ // 2)
            found.append(await told(server, {"prompt": prompt, "max_tokens": 1}))
        return found

    return counted([answer for found in await asyncio.gather(*map(one, range(6))) for answer in found])


def counted(found: list[Any]) -> str:
    """Answers with how often each came."""
    names = (one if isinstance(one, str) else type(one).__name__ for one in found)
    return ", ".join(f"{n} × {name}" for name, n in Counter(names).most_common(4))


NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
BOUND = {"response_format": {"type": "json_schema", "json_schema": {"name": "one", "schema": NAME}}}
OPTIONS = (
    "lookup:ngram=99999999999999999999",
    "trigram:rounds=1000000000000",
    "beam:width=100000",
    "smc:particles=100000",
    "several:count=100000",
    "stand:widths=100+100+100+100+100",
    "lookahead:window=100000,ngram=100000",
    "jacobi:window=1000000",
    "mcts:rollouts=1000000000",
)
LARGE = ("beam:width=64", "jacobi:window=256", "blocks:size=256", "smc:particles=64", "mcts:rollouts=64")
LARGE += ("several:count=64",)
ATTACKS = (
    *(Attack(spec, method(spec, temperature=1)) for spec in OPTIONS),
    *(Attack(f"6 × {spec}", crowd(spec, 6, max_tokens=128, temperature=1)) for spec in LARGE),
    Attack("13 texts of beam:width=64", crowd("beam:width=64", 1, n=13, max_tokens=128)),
    Attack("mcts with a reward from a file", planted_reward),
    Attack("retrieve from a file of the server", method("retrieve:store=/etc/hostname")),
    Attack("two large schemas", large_schemas),
    Attack("200 slow heads", slow_heads),
    Attack("8 who never read", never_reading),
    Attack("1000 wrong keys", wrong_keys),
    Attack("100 who hang up", disconnects),
    Attack("3 prompts of 900 KB", long_prompts),
    Attack("12 calls of 800 KB", long_calls),
    Attack("32 lists of 490,000 numbers", long_lists),
    Attack("32 long predictions", long_predictions),
    Attack("6 × long prompts", much_to_read),
    Attack("renoise with a schema", method("renoise", **BOUND), fills=True),
    Attack("edit with a schema", method("edit:block=8,passes=2", **BOUND), fills=True),
    Attack("resample with a schema", method("resample", **BOUND), fills=True),
    Attack("256 tokens by resample with a schema", method("resample", **BOUND, max_tokens=256), fills=True),
    Attack("explore with a schema", method("explore", **BOUND), fills=True),
    Attack("4 × canvases of 1024", crowd("confident:block=1024,size=1024", 4, max_tokens=1024), fills=True),
)
