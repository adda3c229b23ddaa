"""Turns of reading: bodies of one client are read one after the other, and a client rests after a long one."""

from __future__ import annotations

import asyncio
import threading

import pytest
from patience import PATIENCE
from serving import CHAT, folder, lm, serving, told  # noqa: F401

from unspool.apps.server import asking
from unspool.apps.server.asking import LEAD, ReadingTurns
from unspool.apps.server.response_stream import Left
from unspool.apps.server.server_request import Busy


async def nobody_left():
    pass


def test_bodies_of_one_client_are_read_one_after_the_other_and_others_beside_them():
    order, other = [], threading.Event()

    def held():
        order.append("first")
        assert other.wait(PATIENCE)
        order.append("first is done")

    async def main():
        turns = ReadingTurns()
        own = [asyncio.create_task(turns.run("a", held, PATIENCE, nobody_left))]
        own.append(asyncio.create_task(turns.run("a", lambda: order.append("second"), PATIENCE, nobody_left)))
        await turns.run("b", lambda: order.append("other"), PATIENCE, nobody_left)
        other.set()
        await asyncio.gather(*own)

    asyncio.run(main())
    assert sorted(order[:2]) == ["first", "other"]
    assert order[2:] == ["first is done", "second"]


@pytest.mark.parametrize(("taken", "rest"), [(1.0, LEAD), (asking.BRIEF / 2, None)])
def test_a_client_rests_after_what_took_long(taken, rest, monkeypatch):
    """Three times as long; the next one is not read before that."""
    clock, asked = iter([0.0, taken, 0.0, 0.0]), []
    monkeypatch.setattr(asking, "thread_time", lambda: next(clock))

    async def main():
        turns, loop = ReadingTurns(), asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda seconds, done: asked.append((seconds, done)))
        assert await turns.run("a", lambda: 1, PATIENCE, nobody_left) == 1
        assert [seconds for seconds, _ in asked] == ([] if rest is None else [rest])
        next_one = asyncio.create_task(turns.run("a", lambda: 2, PATIENCE, nobody_left))
        for _ in range(5):
            await asyncio.sleep(0)
        if rest is not None:
            assert not next_one.done()
            asked[0][1]()
        assert await next_one == 2

    monkeypatch.setattr(asyncio, "wait_for", lambda awaited, seconds: awaited)  # which would set a clock as well
    asyncio.run(main())


def test_whoever_waits_too_long_or_has_left_is_not_read():
    async def main():
        turns, go = ReadingTurns(), threading.Event()
        held = asyncio.create_task(turns.run("a", lambda: go.wait(PATIENCE), PATIENCE, nobody_left))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match=r"takes longer to read than the 0\.01 seconds"):
            await turns.run("a", pytest.fail, 0.01, nobody_left)

        async def left():
            raise Left("the client hung up")

        late = asyncio.create_task(turns.run("a", pytest.fail, PATIENCE, left))
        await asyncio.sleep(0)
        go.set()
        assert await held
        with pytest.raises(Left):
            await late
        assert await turns.run("a", lambda: 3, PATIENCE, left) == 3  # nobody is asked who need not wait

    asyncio.run(main())


def test_a_server_reads_bodies_in_turns(lm, monkeypatch):  # noqa: F811
    """All that write text, by whoever sends them."""
    asked = []

    async def run(self, client, work, seconds, gone):
        asked.append(client)
        return work()

    monkeypatch.setattr(ReadingTurns, "run", run)
    with serving(lm) as served:
        for path in ("/v1/completions", "/window/decode"):
            assert served.post(path, prompt="a", max_tokens=1).status_code == 200
        answer = served.post("/v1/chat/completions", messages=CHAT, max_tokens=1)
        assert answer.status_code == 200
    assert asked == ["127.0.0.1"] * 3
