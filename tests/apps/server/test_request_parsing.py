"""How requests are parsed: a slice at a time, within a bound of chunks, and not beyond a refusal."""

import asyncio
import json
from itertools import pairwise

import pytest

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from unspool.apps.server.connection_limits import limited_connections  # noqa: E402 (after what it needs)
from unspool.apps.server.limits import Limits  # noqa: E402
from unspool.apps.server.request_parsing import CHUNKS, SLICE  # noqa: E402
from unspool.apps.server.running import configured  # noqa: E402

HEAD = b"POST /%s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CRUMB = b"1\r\n \r\n"
PATIENCE = 30.0


async def app(scope, receive, send):
    """Reads a body and tells its length; under /early it refuses before it has come."""
    size, more = 0, scope["path"] != "/early"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    told = b"%d" % size
    status = 401 if scope["path"] == "/early" else 200
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(told))]})
    await send({"type": "http.response.body", "body": told})


def served(talk):
    """What a client hears, who talks to a server in this loop."""

    async def both():
        config = configured(app, Limits(), 1.0)
        config.lifespan = "off"
        config.load()
        state = uvicorn.server.ServerState()
        made = []

        def connection():
            made.append(limited(config, state, {}))
            return made[-1]

        limited = limited_connections(Limits())
        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        try:
            return await asyncio.wait_for(talk(reader, writer, made), PATIENCE)
        finally:
            writer.close()
            server.close()

    return asyncio.run(both())


@pytest.mark.parametrize("path", [b"read", b"early"])
def test_one_reading_of_many_chunks_is_parsed_in_many_turns(path, monkeypatch):
    monkeypatch.setattr("unspool.apps.server.request_parsing.CHUNKS", 10**9)
    monkeypatch.setattr("unspool.apps.server.request_parsing.TURN", 0.0)
    parsed = []

    async def talk(reader, writer, made):
        writer.write(HEAD % path)
        await writer.drain()
        while not made or made[0].cycle is None:
            await asyncio.sleep(0)
        one = made[0]
        one.data_received(CRUMB * 20_000)  # as the transport does
        while one._held:
            parsed.append(one.conn.chunks)
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        return await reader.read(1 << 16)

    answer = served(talk)
    steps = [after - before for before, after in pairwise(parsed)]
    assert len(parsed) > 10
    assert max(steps) <= 3 * SLICE // len(CRUMB)
    assert answer.startswith(b"HTTP/1.1 401" if path == b"early" else b"HTTP/1.1 200")


def test_a_body_of_tiny_chunks_is_refused():
    async def talk(reader, writer, made):
        writer.write(HEAD % b"read" + CRUMB * 3 * CHUNKS)
        return await reader.read(1 << 16)

    head, _, body = served(talk).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head.lower()
    assert json.loads(body)["error"]["code"] == "tiny_chunks"


@pytest.mark.parametrize(("chunk", "count"), [(CRUMB, CHUNKS - 1), (b"40\r\n" + b"a" * 64 + b"\r\n", 4 * CHUNKS)])
def test_few_or_fair_chunks_are_read(chunk, count):
    async def talk(reader, writer, made):
        writer.write(HEAD % b"read" + chunk * count + b"0\r\n\r\n")
        return await reader.read(1 << 16)

    answer = served(talk)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"%d" % (count * (1 if chunk is CRUMB else 64)))


def test_a_long_body_is_read_whole():
    async def talk(reader, writer, made):
        writer.write(b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"a" * 3_000_000)
        return await reader.read(1 << 16)

    assert served(talk).endswith(b"3000000")


@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked", b"Content-Length: 100000"])
def test_a_refusal_before_the_body_has_come_closes_the_connection(length, monkeypatch):
    monkeypatch.setattr("unspool.apps.server.request_parsing.LINGER", 0.1)

    async def talk(reader, writer, made):
        writer.write(b"POST /early HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")
        return await reader.read()  # to the end: it would wait for the rest of the body otherwise

    answer = served(talk)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer.lower()


def test_crumbs_behind_a_refusal_end_the_connection(monkeypatch):
    monkeypatch.setattr("unspool.apps.server.request_parsing.LINGER", PATIENCE)

    async def talk(reader, writer, made):
        writer.write(HEAD % b"early")
        told = await reader.readuntil(b"\r\n\r\n")
        writer.write(CRUMB * 3 * CHUNKS)
        while not made[0].transport.is_closing():
            await asyncio.sleep(0.01)
        return told

    assert served(talk).startswith(b"HTTP/1.1 401")
