"""What one client sends does not keep the others waiting: how requests are begun, and in whose turn."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest
from serving import LIMITS, folder, lm  # noqa: F401

from unspool.api.settings import Settings
from unspool.apps.server.bodies import MOST_BIASES, CompletionRequest
from unspool.apps.server.fields import read
from unspool.apps.server.refusal import Refusal
from unspool.apps.server.server_request import BEYOND, Busy, Queue, ServerRequest
from unspool.apps.server.worker import BEGUN, Worker
from unspool.rules.decode import plain

NUMBERS = count()  # no request finds, or waits for, what another reads


class Ticking:
    """A clock that only moves when it is told to."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def request_of(client):
    given = Settings(max_tokens=4)
    return ServerRequest(["Once"], given, plain(), lambda news: None, client=client, owner=str(next(NUMBERS)))


@contextmanager
def not_started(lm, clients, monkeypatch):  # noqa: F811
    """A worker whose thread does not run, with a request of each of these clients."""
    worker = Worker(lm, replace(LIMITS, queue=64))
    monkeypatch.setattr(worker, "_refuse_unready", lambda: None)
    for client in clients:
        worker.submit(request_of(client))
    yield worker
    for request in [*worker._begun, *worker.live]:
        worker._leave(request, None)
    worker.fitting.close()


def test_one_whose_request_takes_long_to_begin_is_the_only_one_before_the_next_step(lm, monkeypatch):  # noqa: F811
    clock, begin = Ticking(), ServerRequest.begin
    monkeypatch.setattr("unspool.apps.server.worker.perf_counter", clock)
    took = {"mallory": 0.2, "anna": 0.0}

    def slow(self, lm, engine):
        begin(self, lm, engine)
        clock.now += took[self.client]

    monkeypatch.setattr(ServerRequest, "begin", slow)
    with not_started(lm, ["mallory"] * 3, monkeypatch) as worker:
        worker._begin_some()
        assert len(worker._begun) == 1
    with not_started(lm, ["anna"] * 9, monkeypatch) as worker:
        worker._begin_some()
        assert len(worker._begun) == BEGUN  # what takes no time is begun together, so that it shares a forward


def test_requests_are_begun_by_turns_for_their_clients(lm, monkeypatch):  # noqa: F811
    monkeypatch.setattr("unspool.apps.server.worker.perf_counter", Ticking())
    with not_started(lm, ["mallory"] * 9 + ["anna", "berta", "anna"], monkeypatch) as worker:
        worker._begin_some()
        assert [request.client for request in worker._begun] == ["mallory", "anna", "berta", "mallory"]
        worker._begin_some()
        assert [request.client for request in worker._begun][BEGUN:] == ["anna", "mallory", "mallory", "mallory"]


def test_who_took_long_to_begin_waits_until_others_have_gone_on(lm, monkeypatch):  # noqa: F811
    """To begin a request is charged to its client, as the reading of its prompt is."""
    clock = Ticking()
    monkeypatch.setattr("unspool.apps.server.worker.perf_counter", clock)
    with not_started(lm, ["mallory", "anna", "mallory"], monkeypatch) as worker:
        worker._begin_some()
        worker._let_in()
        assert len(worker.live) == 3
        worker.engine.step()  # from now on it is known that there are several clients
        worker.engine.scheduler.has_begun("mallory", 10.0)
        for client in ("mallory", "anna"):
            worker.submit(request_of(client))
        worker._begin_some()
        assert [request.client for request in worker._begun] == ["anna"]
        for request in list(worker.live):  # and who is alone is held back by nobody
            worker._leave(request, None)
        worker._begin_some()
        assert [request.client for request in worker._begun] == ["anna", "mallory"]


def test_the_worker_charges_what_it_took_to_begin(lm, monkeypatch):  # noqa: F811
    clock, begin, charged = Ticking(), ServerRequest.begin, []
    monkeypatch.setattr("unspool.apps.server.worker.perf_counter", clock)

    def slow(self, lm, engine):
        begin(self, lm, engine)
        clock.now += 0.25

    monkeypatch.setattr(ServerRequest, "begin", slow)
    with not_started(lm, ["mallory"], monkeypatch) as worker:
        monkeypatch.setattr(worker.engine.scheduler, "has_begun", lambda *told: charged.append(told))
        worker._begin_some()
    assert charged == [("mallory", 0.25)]


def test_a_bias_has_so_many_entries_at_most():
    most = {str(token): -1 for token in range(MOST_BIASES)}
    assert len(read(CompletionRequest, {"prompt": "a", "logit_bias": most}).logit_bias) == MOST_BIASES
    with pytest.raises(Refusal, match=f"{MOST_BIASES + 1} entries; expected at most {MOST_BIASES}") as refused:
        read(CompletionRequest, {"prompt": "a", "logit_bias": {**most, "99999999999x": None}})  # nobody reads the key
    assert (refused.value.status, refused.value.param) == (400, "logit_bias")


# ---- the queue


def test_a_client_finds_a_place_though_another_has_filled_the_queue():
    queue = Queue(8)
    for _ in range(8):
        queue.add(request_of("mallory"))
    with pytest.raises(Busy, match="8 requests wait already"):
        queue.add(request_of("mallory"))
    for _ in range(4):  # half of the places, as there are two now
        queue.add(request_of("anna"))
    with pytest.raises(Busy, match="lets at most 4"):
        queue.add(request_of("anna"))
    assert len(queue) == len(list(queue)) == 12


def test_all_clients_together_have_no_more_than_twice_the_places():
    queue, took = Queue(8), 0
    for number in range(100):
        try:
            queue.add(request_of(f"client {number}"))
            took += 1
        except Busy:
            pass
    assert took == len(queue) == BEYOND * 8
    gone = list(queue)
    assert all(queue.remove(request) for request in gone)
    assert not any(queue.remove(request) for request in gone)
    for number in range(100):  # and the lines of those who are gone are not kept for ever
        request = request_of(f"another {number}")
        queue.add(request)
        queue.take(request)
    assert len(queue._lines) <= BEYOND * 8


def test_how_long_one_waits_is_told_by_its_own_requests(monkeypatch):
    clock = Ticking()
    monkeypatch.setattr("unspool.apps.server.server_request.monotonic", clock)
    queue, sent = Queue(100), [request_of("mallory") for _ in range(20)]
    for request in sent:
        queue.add(request)
    clock.now = 100.0
    queue.take(sent[0])
    assert queue.wait("mallory") > 100
    assert queue.wait("anna") == 0
