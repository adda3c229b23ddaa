"""A little server for tests: its model, its fixtures, and the chunks of its streams."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from littlemodel import chatting_model, loaded
from patience import PATIENCE

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

from unspool.apps.server import Limits, ServerConfig, Worker, application  # noqa: E402

LIMITS = Limits(tokens=4000, texts=4, body=40_000)
ENDLESS = {"temperature": 0, "max_tokens": 4000, "logit_bias": {"1": -100}}  # the token 1 would end the text
LONG = {"prompt": "Once", "stream": True, **ENDLESS}
CHAT = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return chatting_model(tmp_path_factory.mktemp("serve") / "little")


@pytest.fixture(scope="module", autouse=True)
def told():
    """What the servers of this process log; else it would come between the lines of pytest."""
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unspool.apps.server.handler.log", lambda event, record: lines.append(record))
        yield lines


@pytest.fixture(scope="module")
def lm(folder):
    with loaded(folder, kv_cache_tokens=20_000) as made:  # several long texts fit
        yield made


@dataclass
class Served:
    worker: Worker
    server: uvicorn.Server
    thread: threading.Thread
    http: httpx.Client

    def post(self, path, **body):
        return self.http.post(path, json=body)

    def text(self, **body):
        answer = self.post("/v1/completions", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]

    def until(self, condition, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come to pass"
            time.sleep(0.005)

    def empty(self):
        """Whether nothing is left of any request; finished texts stay in the cache until it is cleared."""
        return not (self.worker.live or self.worker.waiting or self.worker.engine.live or self.worker.engine.waiting)

    def slots(self):
        self.worker.lm.model.forget()
        return self.worker.lm.model.slots.in_use


@contextmanager
def serving(lm, limits=LIMITS, grace=10.0, **config):
    worker = Worker(lm, limits)
    app = application(worker, ServerConfig("little", grace=grace, **config))
    wait = max(1, round(grace))
    options = {"log_config": None, "proxy_headers": False, "timeout_graceful_shutdown": wait}
    server = uvicorn.Server(uvicorn.Config(app, port=0, **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as http:
            yield Served(worker, server, thread, http)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def served(lm):
    with serving(lm) as made:
        yield made


def events(answer):
    """The chunks of a stream, which must end as OpenAI's do."""
    *lines, last = [line for line in answer.iter_lines() if line]
    assert last == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]
