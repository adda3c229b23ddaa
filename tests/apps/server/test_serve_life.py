"""What keeps a server alive and lets it end: the heart-beat, the shutdown, the door, and what operators see of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

import pytest
from serving import ENDLESS, LIMITS, LONG, folder, httpx, lm, told  # noqa: F401

from unspool.apps.server import Limits, ServerConfig, Worker, application
from unspool.apps.server.clients import Client, exposed
from unspool.apps.server.grammar_process import AskerLeft, Trials
from unspool.apps.server.replies import Reply, body
from unspool.apps.server.running import Server, configured
from unspool.apps.server.server_log import Sparing
from unspool.rules.draft import Copy

WAIT = 100.0  # seconds for what must come; only a hang runs into it


@contextmanager
def running(lm, limits=LIMITS, grace=10.0, **config):  # noqa: F811
    """A server as the command runs it, in a thread, so that what it does can be planted and seen."""
    worker = Worker(lm, limits)
    server = Server(configured(application(worker, ServerConfig("little", grace=grace, **config)), limits, grace))
    thread = threading.Thread(target=server.run)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT) as http:
            yield worker, server, http, thread
    finally:
        server.should_exit = True
        thread.join(WAIT)
    assert not thread.is_alive()


def until(condition):
    end = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)
    return found


@contextmanager
def hanging(worker):
    """The worker's thread hangs in its next step, until this is left."""
    step, entered, go = type(worker.engine).step, threading.Event(), threading.Event()

    def hung(engine):
        entered.set()
        assert go.wait(WAIT)
        return step(engine)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(worker.engine), "step", hung)
        try:
            yield entered
        finally:
            go.set()


def metric(http, name):
    found = re.search(rf"^unspool_{re.escape(name)} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    return None if found is None else float(found[1])


# ---- the heart-beat


def test_a_worker_that_hangs_is_not_ready(lm):  # noqa: F811
    with running(lm, replace(LIMITS, stalled=0.2)) as (worker, _, http, _):
        assert http.get("/readyz").text == "ready\n"
        with hanging(worker) as entered:
            asking = threading.Thread(
                target=http.post, args=["/v1/completions"], kwargs={"json": {"prompt": "a", "max_tokens": 2}}
            )
            asking.start()
            assert entered.wait(WAIT)
            answer = until(lambda: (got := http.get("/readyz")).status_code == 503 and got)
            assert re.fullmatch(
                r"not ready: the worker has not come round for \d+ seconds, more than 0\.2: .*\n", answer.text
            )
            assert metric(http, "worker_last_beat_seconds") > 0.2
            assert http.get("/healthz").text == "ok\n"  # the process itself is well
        asking.join(WAIT)
        until(lambda: http.get("/readyz").status_code == 200)
        until(lambda: metric(http, "worker_last_beat_seconds") == 0)


def test_a_worker_without_work_is_ready_however_long_it_waits(lm):  # noqa: F811
    worker = Worker(lm, replace(LIMITS, stalled=1e-6))
    worker.start()
    until(lambda: worker._idle)
    assert worker.silent == 0
    assert worker.trouble is None
    assert worker.stop(0)
    assert worker.trouble is not None


# ---- shutting down


def test_at_the_end_of_the_grace_clients_are_told_503_in_openais_shape(lm):  # noqa: F811
    with running(lm, grace=0.3) as (worker, server, http, thread):
        answers = []
        whole = threading.Thread(
            target=lambda: answers.append(http.post("/v1/completions", json={"prompt": "Once", **ENDLESS}))
        )
        with http.stream("POST", "/v1/completions", json=LONG) as stream:
            lines = stream.iter_lines()
            next(lines)
            whole.start()
            until(lambda: len(worker.live) == 2)
            server.should_exit = True
            *_, last = [line for line in lines if line]
        whole.join(WAIT)
        thread.join(WAIT)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert answers[0].status_code == 503, answers[0].text
    assert answers[0].json()["error"]["code"] == "shutting_down"
    assert answers[0].headers["retry-after"]


def test_whoever_still_sends_a_body_at_the_end_is_told_503_too(lm, told):  # noqa: F811
    """uvicorn would say 500 in plain text, and write a traceback."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running(lm, grace=0.2) as (_, server, http, thread):
        with socket.create_connection((http.base_url.host, http.base_url.port), WAIT) as sending:
            sending.sendall(head + b"Content-Length: 1000\r\n\r\n{")
            until(lambda: server.server_state.tasks)
            server.should_exit = True
            answer = b""
            while more := sending.recv(4096):
                answer += more
        thread.join(WAIT)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b'"code": "shutting_down"' in answer
    assert [record["status"] for record in told[-1:]] == [503]


def test_whoever_waits_for_a_form_at_the_end_is_told_503(lm, monkeypatch):  # noqa: F811
    begun = threading.Event()

    def trial(self, grammar, asker):
        begun.set()
        until(lambda: asker.gone)
        raise AskerLeft

    monkeypatch.setattr(Trials, "__call__", trial)
    with running(lm, grace=5.0) as (_, server, http, thread):
        answers, asked = [], {"prompt": "a", "max_tokens": 1, "response_format": {"type": "regex", "regex": "abc"}}
        asking = threading.Thread(target=lambda: answers.append(http.post("/v1/completions", json=asked)))
        asking.start()
        assert begun.wait(WAIT)
        server.should_exit = True
        asking.join(WAIT)
        thread.join(WAIT)
    assert answers[0].status_code == 503, answers[0].text
    assert answers[0].json()["error"]["code"] == "shutting_down"


def test_clients_are_told_503_even_if_the_worker_hangs(lm):  # noqa: F811
    with running(lm, grace=0.2) as (worker, server, http, thread), hanging(worker) as entered:
        answers = []

        def ask():
            answers.append(http.post("/v1/completions", json={"prompt": "Once", **ENDLESS}))

        asking, waiting = threading.Thread(target=ask), threading.Thread(target=ask)
        asking.start()
        assert entered.wait(WAIT)
        waiting.start()  # who is never let in
        until(lambda: len(worker.waiting) == 1)
        server.should_exit = True
        asking.join(WAIT)
        waiting.join(WAIT)
        thread.join(WAIT)
        assert not thread.is_alive()  # the server has ended, though the worker has not
        assert worker.alive
        assert any("hung" in place for place in worker.where())
    assert [answer.status_code for answer in answers] == [503, 503]
    assert {answer.json()["error"]["code"] for answer in answers} == {"shutting_down"}
    until(lambda: not worker.alive)


PLANTED = """
import sys, time
from pathlib import Path
from unspool.apps.cli import main
from unspool.runtime.engine.engine import Engine
from unspool.apps.server.running import Server

step, sign, how = Engine.step, Path(sys.argv[1]), sys.argv[2]
heard, count = Server.handle_exit, []

def noted(server, *signal):
    heard(server, *signal)
    count.append(signal)
    sign.with_suffix(f".{len(count)}").touch()

Server.handle_exit = noted

def hung(engine):
    if engine.live or engine.waiting:
        sign.touch()
        while True:
            time.sleep(1000) if how == "sleeps" else None
    return step(engine)

Engine.step = hung
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("how", "signals"),
    [("spins", [signal.SIGTERM]), ("sleeps", [signal.SIGINT, signal.SIGINT])],
    ids=["spins", "sleeps"],
)
def test_a_process_ends_though_a_thread_hangs(folder, tmp_path, how, signals):  # noqa: F811
    script, sign, journal = tmp_path / "planted.py", tmp_path / "sign", tmp_path / "journal"
    script.write_text(PLANTED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, str(script), str(sign), how, "serve", "-m", str(folder), "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("UNSPOOL_API_KEY", None)
    answers = []
    with (
        journal.open("w") as written,
        subprocess.Popen([*words, "--grace", "1"], stderr=written, env=environment) as ran,
    ):
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT) as http:

                def ready():
                    assert ran.poll() is None, journal.read_text()
                    with suppress(httpx.TransportError):
                        return http.get("/readyz").status_code == 200

                def ask():
                    with suppress(httpx.TransportError):  # a second Ctrl-C cuts connections
                        answers.append(http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}))

                until(ready)
                asking = threading.Thread(target=ask)
                asking.start()
                until(sign.exists)
                for number, kind in enumerate(signals, 1):
                    ran.send_signal(kind)
                    until(sign.with_suffix(f".{number}").exists)  # two of a kind at the same time are one
                code = ran.wait(WAIT)
                asking.join(WAIT)
        finally:
            ran.kill()
    last = json.loads(journal.read_text().splitlines()[-1])
    assert last["event"] == "stuck", last
    assert any("planted.py" in place for place in last["where"])
    if signals == [signal.SIGTERM]:
        assert code == 70
        assert answers[0].status_code == 503
        assert answers[0].json()["error"]["code"] == "shutting_down"
    else:
        assert code == 130


# ---- what one request may take


@pytest.mark.parametrize("method", ["beam:width=40", "smc:particles=40", "several:count=40"])
def test_a_request_that_wants_too_many_rows_is_refused_and_others_go_on(lm, method):  # noqa: F811
    with (
        running(lm, replace(LIMITS, rows=32)) as (_, _, http, _),
        http.stream("POST", "/v1/completions", json=LONG) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        asked = {"prompt": "a", "max_tokens": 9, "temperature": 1, "decoding": {"method": method}}
        answer = http.post("/v1/completions", json=asked)
        assert answer.status_code == 400, answer.text
        assert re.search(r"wants \d+ rows of the model in one step, but one request may have 32 here", answer.text)
        assert next(line for line in lines if line)  # it goes on


def test_a_method_that_never_asks_the_model_fails_and_others_go_on(lm, monkeypatch):  # noqa: F811
    from unspool.core.asks import Emit
    from unspool.loops.plain import Plain

    plain = Plain.__call__

    def endless(self, text, chance, warp, stop):
        if stop.most == 77:
            while True:
                yield Emit((), (), ())
        return (yield from plain(self, text, chance, warp, stop))

    monkeypatch.setattr(Plain, "__call__", endless)
    with running(lm) as (_, _, http, _), http.stream("POST", "/v1/completions", json=LONG) as stream:
        lines = stream.iter_lines()
        next(lines)
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 77})
        assert answer.status_code == 400, answer.text
        assert "without a look at the model" in answer.text
        assert next(line for line in lines if line)


def test_a_long_prompt_is_read_off_the_workers_thread(lm, monkeypatch):  # noqa: F811
    names, encode = [], type(lm).encode

    def noted(self, prompt):
        names.append(threading.current_thread().name.rstrip("-_0123456789"))
        return encode(self, prompt)

    monkeypatch.setattr(type(lm), "encode", noted)
    long = "a" * 20_000
    with running(lm) as (_, _, http, _):
        chat = {"messages": [{"role": "user", "content": long}], "max_tokens": 2}
        for path, body in (("completions", {"prompt": long}), ("chat/completions", chat)):
            names.clear()
            answer = http.post(f"/v1/{path}", json={"max_tokens": 2, **body})
            assert answer.status_code == 400  # longer than the model reads
            assert "4096" in answer.text
            assert names[0] == "unspool-fitting"
        names.clear()
        assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
        assert names == ["unspool-worker"]


@pytest.mark.parametrize("where", ["tool_calls", "tools", "suffix", "prediction", "prompts"])
def test_much_text_anywhere_is_read_off_the_workers_thread(lm, monkeypatch, where):  # noqa: F811
    read, encode = [], type(lm.vocabulary).encode

    def noted(self, text, special=True):
        if len(text) > 2000:
            read.append(threading.current_thread().name.rstrip("-_0123456789"))
        return encode(self, text, special)

    monkeypatch.setattr(type(lm.vocabulary), "encode", noted)
    long, hello = "ab" * 6000, {"role": "user", "content": "Hello"}
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"x": long})}}
    tool = {"type": "function", "function": {"name": "f", "description": long}}
    bodies = {
        "tool_calls": {"messages": [hello, {"role": "assistant", "tool_calls": [called]}]},
        "tools": {"messages": [hello], "tools": [tool]},
        "suffix": {"prompt": "a", "suffix": long},
        "prediction": {"prompt": "a", "prediction": {"type": "content", "content": long}},
        "prompts": {"prompt": [long[:3000]] * 4},
    }
    with running(lm) as (_, _, http, _):
        path = "completions" if "prompt" in bodies[where] else "chat/completions"
        answer = http.post(f"/v1/{path}", json={"max_tokens": 2, **bodies[where]})
    assert answer.status_code in (200, 400), answer.text
    assert set(read) == {"unspool-fitting"}, answer.text


def test_of_a_prediction_no_more_tokens_are_drafted_than_anybody_writes(lm, monkeypatch):  # noqa: F811
    found, begin = [], Copy.begin

    def noted(self, prefix):
        found.append(len(self.input))
        return begin(self, prefix)

    monkeypatch.setattr(Copy, "begin", noted)
    with running(lm) as (_, _, http, _):
        for said in ("ab", "\U0001f600" * 9_000):  # which has four tokens for each
            prediction = {"type": "content", "content": said}
            body = {"prompt": "a", "max_tokens": 2, "prediction": prediction}
            assert http.post("/v1/completions", json=body).status_code == 200
    assert found == [2, 1 << 15]


def test_an_answer_with_logprobs_is_put_together_beside_the_loop(lm, monkeypatch):  # noqa: F811
    inside, whole = [], Reply.whole

    def noted(self, choices, prompt):
        inside.append(threading.current_thread())
        return whole(self, choices, prompt)

    monkeypatch.setattr(Reply, "whole", noted)
    with running(lm) as (_, _, http, loop):
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 40, "logprobs": 3, "n": 2})
        assert answer.status_code == 200
        assert len(inside) == 1
        assert loop not in inside
    found = answer.json()
    assert len(found["choices"]) == 2
    assert body(found) == json.dumps(found).encode()  # lists of 40 are written in parts


def test_who_could_not_be_answered_in_time_is_sent_away_at_once(lm, monkeypatch):  # noqa: F811
    with running(lm) as (worker, _, http, _):
        monkeypatch.setattr(type(worker.waiting), "wait", lambda queue, client: LIMITS.seconds + 1)
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1


def test_nothing_is_left_of_prompts_before_one_that_cannot_be_used(lm):  # noqa: F811
    with running(lm) as (worker, _, http, _):
        prompts = {"prompt": ["a", "b", "c" * 9000], **ENDLESS}
        assert http.post("/v1/completions", json=prompts).status_code == 400
        assert not worker.engine.live
        assert not worker.engine.waiting


# ---- the door


@contextmanager
def held(port, count):
    """So many connections that ask for nothing."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), WAIT))
        yield


@pytest.mark.parametrize(
    ("limits", "status"), [({"connections": 5}, 503), ({"address": 5}, 429)], ids=["in all", "of one address"]
)
def test_health_checks_are_answered_when_all_connections_are_taken(lm, limits, status):  # noqa: F811
    with running(lm, replace(LIMITS, **limits)) as (_, server, http, _):
        port = http.base_url.port
        with httpx.Client(base_url=http.base_url) as first:
            assert first.get("/v1/models").status_code == 200  # it keeps its connection, the first of five
            for idle in (4, 90):  # more than there are places for those who are too many
                with held(port, idle):
                    until(lambda: len(server.server_state.connections) >= 5)
                    for path in ("/healthz", "/readyz"):
                        assert httpx.get(f"{http.base_url}{path}").status_code == 200
                    refused = httpx.get(f"{http.base_url}/v1/models")
                    assert refused.status_code == status, refused.text
                    assert refused.json()["error"]["code"] == "too_many_connections"
                    assert refused.headers["connection"] == "close"
                    assert int(refused.headers["retry-after"]) > 0
                    assert len(server.server_state.connections) < 80  # there is an end to it
                    assert first.get("/v1/models").status_code == 200  # who is inside stays inside
                until(lambda: len(server.server_state.connections) == 1)
            assert f'unspool_responses_total{{status="{status}"}} 2' in first.get("/metrics").text
        until(lambda: httpx.get(f"{http.base_url}/v1/models").status_code == 200)


# ---- what operators see


@pytest.fixture
def lines(monkeypatch):
    """What is logged about those who are not let in."""
    found = []
    for place in ("authentication", "handler"):
        monkeypatch.setattr(
            f"unspool.apps.server.{place}.log", lambda event, record: found.append({"event": event, **record})
        )
    return found


def test_who_is_refused_is_logged_and_counted(lm, lines):  # noqa: F811
    clients = (Client("alice", "alices-key", tokens_per_minute=1),)
    with running(lm, clients=clients) as (_, _, http, _):
        body = {"prompt": "a", "max_tokens": 2}
        wrong = {"authorization": "Bearer a-guess"}
        own = {"authorization": "Bearer alices-key"}
        assert http.post("/v1/completions", json=body, headers=wrong).status_code == 401
        assert http.post("/v1/completions", json=body, headers=own).status_code == 200
        assert http.post("/v1/completions", json=body, headers=own).status_code == 429
        counted = http.get("/metrics", headers=own).text
    refused = [line for line in lines if line["event"] == "refused"]
    who = {"path": "/v1/completions", "client": "127.0.0.1"}
    assert refused == [
        {"event": "refused", **who, "status": 401, "code": "invalid_api_key"},
        {"event": "refused", **who, "status": 429, "code": "rate_limit_exceeded", "key": "alice"},
    ]
    assert [line["client"] for line in lines if line["event"] == "request"] == ["127.0.0.1"]
    assert "a-guess" not in str(lines)
    assert "alices-key" not in str(lines)
    for status in (200, 401, 429):
        assert f'unspool_responses_total{{status="{status}"}} 1' in counted


def test_a_flood_writes_few_lines_and_says_how_many_are_missing():
    now = [0.0]
    sparing = Sparing(burst=3, rate=0.5, clock=lambda: now[0])
    assert [sparing.next() for _ in range(1000)] == [{}, {}, {}, *[None] * 997]
    now[0] = 2.0
    assert [sparing.next() for _ in range(3)] == [{"left_out": 997}, None, None]
    now[0] = 1e6
    assert [sparing.next() for _ in range(4)] == [{"left_out": 2}, {}, {}, None]


def test_a_flood_of_wrong_keys_writes_few_lines(lm, lines):  # noqa: F811
    with running(lm, keys=("key",)) as (_, _, http, _):
        for _ in range(300):
            assert http.get("/v1/models").status_code == 401
        counted = http.get("/metrics", headers={"authorization": "Bearer key"}).text
    assert 200 <= len(lines) < 290
    assert 'unspool_responses_total{status="401"} 300' in counted


def test_a_mistake_of_the_server_is_logged_with_its_place(lm, lines, monkeypatch):  # noqa: F811
    def broken(self, *arguments):
        raise KeyError("a secret of the prompt")

    monkeypatch.setattr("unspool.apps.server.server_request.ServerRequest.begin", broken)
    with running(lm) as (_, _, http, _):
        answer = http.post("/v1/completions", json={"prompt": "a"})
    assert answer.status_code == 500
    (line,) = lines
    assert line["error"] == "KeyError"
    assert re.search(r"test_serve_life\.py:\d+ in broken", line["traceback"][-1])
    assert "secret" not in str(line)


@pytest.mark.skipif(os.name == "nt", reason="there are no such modes")
@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o400, False), (0o640, True), (0o604, True)])
def test_a_file_of_keys_that_others_can_read_is_warned_of(tmp_path, mode, warned):
    file = tmp_path / "keys.toml"
    file.write_text('[alice]\nkey = "secret"\n')
    file.chmod(mode)
    warning = exposed(file)
    assert (warning is not None) is warned
    assert warning is None or f"{mode:03o}" in warning


def test_the_command_warns_of_an_exposed_file_of_keys(folder, tmp_path):  # noqa: F811
    file = tmp_path / "keys.toml"
    file.write_text('[alice]\nkey = "secret"\n')
    file.chmod(0o644)
    from click.testing import CliRunner

    from unspool.apps.cli.root import root

    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that it ends by itself
        words = ["serve", "-m", str(folder), "--keys", str(file), "--port", str(taken.getsockname()[1])]
        ran = CliRunner().invoke(root, words, standalone_mode=False)
    warning = json.loads(next(line for line in ran.output.splitlines() if '"keys"' in line))
    assert warning["level"] == "warning"
    assert "chmod 600" in warning["message"]
    assert "secret" not in ran.output


@pytest.mark.parametrize("name", ["stalled", "rows", "address"])
def test_limits_that_make_no_sense(name):
    with pytest.raises(Exception, match=f"the limit of {name}"):
        Limits(**{name: 0})


class PlantedPanic(BaseException):
    """As a panic of Rust's is one to Python."""


@pytest.mark.parametrize("where", ["begin", "advance", "look", "fit"])
def test_a_panic_fails_the_request_it_belongs_to_and_no_other(lm, lines, monkeypatch, where):  # noqa: F811
    place = {
        "begin": "unspool.apps.server.server_request.ServerRequest.begin",
        "look": "unspool.apps.server.server_request.ServerRequest._new",
        "fit": "unspool.apps.server.server_request.ServerRequest.fit",
    }

    def panics(*_, **__):
        raise PlantedPanic("attempt to subtract with overflow")

    form = {"response_format": {"type": "choices", "choices": ["a"]}} if where == "fit" else {}
    asked = {"prompt": "a", "max_tokens": 2, **form}
    with running(lm) as (worker, _, http, _thread):
        if where == "advance":
            monkeypatch.setattr(worker.engine._runner, "answers", panics)
        else:
            monkeypatch.setattr(place[where], panics)
        answer = http.post("/v1/completions", json=asked)
        monkeypatch.undo()
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
        assert http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}).status_code == 200
        assert http.get("/readyz").status_code == 200
        assert worker.alive


def test_a_worker_whose_thread_ends_ends_the_server(lm, monkeypatch):  # noqa: F811
    def panics(*_):
        raise PlantedPanic

    monkeypatch.setattr("unspool.apps.server.worker.log", lambda *_: None)
    with running(lm) as (worker, _, http, thread):
        monkeypatch.setattr(worker, "_let_in", panics)
        answer = http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
        assert answer.status_code == 500
        assert not worker.ready
        assert "PlantedPanic" in worker.trouble
        thread.join(20)
        assert not thread.is_alive()


def test_the_process_is_ended_in_time_under_an_event_loop_that_hangs(lm, monkeypatch):  # noqa: F811
    ended, noted = threading.Event(), []
    monkeypatch.setattr("unspool.apps.server.running.LAST", 0.05)
    monkeypatch.setattr("unspool.apps.server.running.log", lambda event, record: noted.append((event, record)))
    monkeypatch.setattr("os._exit", lambda code: ended.set())
    server = Server(configured(application(Worker(lm, LIMITS), ServerConfig("little", grace=0.05)), LIMITS, 0.05))
    server.owns, server._thread = True, threading.get_ident()
    server.handle_exit(signal.SIGTERM, None)  # and no event loop that comes round to it
    assert ended.wait(10)
    ((event, record),) = noted
    assert event == "stuck"
    assert "the event loop did not end in time" in record["message"]
    assert any("test_serve_life.py" in place for place in record["where"])


BESIDE = """
import atexit, sys, threading, time
from pathlib import Path
from unspool.apps.cli import main

threading.Thread(target=time.sleep, args=(1000,)).start()
atexit.register(Path(sys.argv[1]).touch)
sys.exit(main(sys.argv[2:]))
"""


def test_a_process_that_is_done_waits_for_no_thread_and_calls_what_asked_for_its_end(folder, tmp_path):  # noqa: F811
    script, sign, journal = tmp_path / "beside.py", tmp_path / "sign", tmp_path / "journal"
    script.write_text(BESIDE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, str(script), str(sign), "serve", "-m", str(folder), "--port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("UNSPOOL_API_KEY", None)
    with journal.open("w") as written, subprocess.Popen(words, stderr=written, env=environment) as ran:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT) as http:

                def ready():
                    assert ran.poll() is None, journal.read_text()
                    with suppress(httpx.TransportError):
                        return http.get("/readyz").status_code == 200

                until(ready)
            ran.send_signal(signal.SIGTERM)
            assert ran.wait(WAIT) == 0
        finally:
            ran.kill()
    assert sign.exists()
