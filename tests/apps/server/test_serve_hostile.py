"""Clients that mean no good, or do not know better: every one is answered or cut off, and nothing is left of it."""

from __future__ import annotations

import heapq
import json
import math
import os
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littlemodel import chatting_model
from patience import PATIENCE, until
from repository import ROOT

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

STALLED, BODY, IDLE = 3.0, 200_000, 600
ENDLESS = {"prompt": "Once", "temperature": 0, "max_tokens": 3000, "logit_bias": {"1": -100}}  # 1 would end the text
SHORT = {"prompt": "a", "max_tokens": 2}
NOTHING = ("live_requests", "live_texts", "queue_length", "cache_tokens_reserved")


class Server:
    """The command itself, in a process of its own."""

    def __init__(self, port, journal=None):
        self.port, self.journal = port, journal

    def lines(self):
        """What it has logged."""
        return [json.loads(line) for line in self.journal.read_text().splitlines()]

    @contextmanager
    def connected(self, small=False):
        with socket.socket() as made:
            if small:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.settimeout(PATIENCE)
            made.connect(("127.0.0.1", self.port))
            yield made

    def says(self, data):
        """Everything that comes back until the server closes the connection."""
        with self.connected() as made:
            with suppress(ConnectionError):  # it may have heard enough
                made.sendall(data)
            return everything(made)

    def status(self, data):
        return status(self.says(data))

    def get(self, path):
        return self.says(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())

    def ready(self):
        try:
            return b"ready\n" in self.get("/readyz")
        except OSError:
            return False

    def metrics(self):
        told = re.findall(r"^unspool_(\S+) (\S+)$", self.get("/metrics").decode(), re.MULTILINE)
        return {name: float(value) for name, value in told}

    def until(self, condition, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not condition(self.metrics()):
            assert time.monotonic() < end, self.metrics()
            time.sleep(0.02)

    def empty(self):
        self.until(lambda told: not any(told[name] for name in NOTHING))


def everything(made):
    found = b""
    with suppress(ConnectionError):
        while part := made.recv(1 << 16):
            found += part
    return found


def status(answer):
    return int(re.match(rb"HTTP/1\.1 (\d{3}) ", answer)[1])


def post(body, path="/v1/completions", *more):
    """A request with a body, its length and these headers, after which the connection ends."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return headed(path, f"Content-Length: {len(body)}", "Connection: close", *more) + body


def headed(path, *more):
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *more, "", "")
    return "\r\n".join(lines).encode()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = chatting_model(tmp_path_factory.mktemp("hostile") / "little")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    limits = {"--max-tokens": 3000, "--max-body": BODY, "--parallel": 4, "--queue": 8, "--kv-cache-tokens": 20_000}
    limits |= {"--patience": STALLED, "--connections": IDLE, "--port": port, "--grace": 1, "--max-texts": 4}
    limits |= {"--per-address": 2 * IDLE, "--share": 1}  # all these clients are one, and wait in one line
    command = [sys.executable, "-m", "unspool", "serve", "-m", str(folder)]
    command += [str(part) for pair in limits.items() for part in pair]
    journal = folder / "journal"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("UNSPOOL_API_KEY", None)
    with journal.open("w") as told, subprocess.Popen(command, stderr=told, env=environment) as process:
        made = Server(port, journal)
        try:
            until(lambda: process.poll() is not None or made.ready())
            assert process.poll() is None, journal.read_text()
            yield made
            for i in range(6):  # finished texts stay for a next turn, until others take their places
                assert made.status(post({**SHORT, "prompt": "abcdef"[i]})) == 200
            assert made.metrics()["cache_slots_in_use"] <= 6 * 4
            assert made.metrics()['requests_total{outcome="failed"}'] == 0
        finally:
            process.terminate()
            process.wait(PATIENCE)
    lines = journal.read_text().splitlines()  # which ends a line wherever Unicode does
    assert all(json.loads(line).keys() > {"time", "event"} for line in lines)  # whatever was sent, and whoever wrote it
    assert not any(line["event"] == "forged" or "Traceback" in line for line in map(json.loads, lines))


@pytest.fixture(autouse=True)
def _afterwards(server):
    """Whatever came before, nothing is left of it, and the next one is answered."""
    yield
    server.empty()
    assert server.status(post(SHORT)) == 200


# ---- what is in a body

ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)
PLACES = (
    ("messages", 0, "role"),
    ("messages", 0, "content"),
    ("messages", 0, "content", 0),
    ("messages", 0, "content", 0, "text"),
    ("response_format", "type"),
    ("response_format", "json_schema"),
    ("response_format", "json_schema", "schema"),
    ("response_format", "regex"),
    ("response_format", "choices"),
    ("stream_options", "include_usage"),
    ("decoding", "method"),
    ("logit_bias", "5"),
    ("stop", 0),
    ("stream",),
    ("tools",),
    ("tool_choice",),
    ("max_completion_tokens",),
    ("min_p",),
    ("suffix",),
)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(PLACES), odd=ODD, kind=st.sampled_from(["json_schema", "regex", "choices", "text"]))
def test_anything_may_stand_anywhere(server, place, odd, kind):
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        "max_tokens": 2,
        "response_format": {"type": kind, "json_schema": {"schema": {}}, "regex": "a", "choices": ["a"]},
        "decoding": {"method": "plain"},
        "stream_options": {"include_usage": True},
        "logit_bias": {"5": 1},
        "stop": ["x"],
    }
    inner = body
    for name in place[:-1]:
        inner = inner[name]
    if isinstance(inner, (dict, list)):
        inner[place[-1]] = odd
    answer = server.says(post(body, "/v1/chat/completions"))
    assert status(answer) in (200, 400), (body, answer)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(noise=st.binary(max_size=40), at=st.integers(0, 60), path=st.sampled_from(["completions", "chat/completions"]))
def test_any_bytes_may_stand_in_a_body(server, noise, at, path):
    whole = b'{"prompt": "a", "messages": [{"role": "user", "content": "b"}], "max_tokens": 2, "temperature": 0.5}'
    for body in (noise, whole[:at] + noise + whole[at + len(noise) :]):
        answer = server.says(post(body, f"/v1/{path}"))
        assert status(answer) in (200, 400), (body, answer)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"prompt": "' + b"a" * 5000 + b'", "max_tokens": 2}', 400),  # longer than the model reads
        (b'{"prompt": [' + b"5," * 60_000 + b'5], "max_tokens": 2}', 400),
        (b'{"prompt": ["' + b'", "'.join([b"a"] * 20_000) + b'"], "max_tokens": 2}', 400),
        (b'{"prompt": "a\xff\xfeb", "max_tokens": 2}', 400),
        (b'{"prompt": "\xed\xa0\x80", "max_tokens": 2}', 400),  # a surrogate, as some programs write it
        (b'{"prompt": "\\ud83d\\ude00", "max_tokens": 2}', 200),  # two that belong together
        (b'{"prompt": "a", "max_tokens": 2, "stop": "\\ud800"}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "model": "\\udfff"}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "decoding": {"method": "\\udfff"}}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "metadata": ' + b"[" * 900 + b"]" * 900 + b"}", 200),  # nobody looks at it
        (b'{"prompt": ' + b"[" * 900 + b"]" * 900 + b', "max_tokens": 2}', 400),
        (b'{"prompt": "a", "max_tokens": 1e400}', 400),
        (b'{"prompt": "a", "max_tokens": ' + b"9" * 4000 + b"}", 400),
        (b'{"prompt": "a", "max_tokens": 2, "seed": 1' + b"0" * 60 + b"}", 400),
        (b'{"prompt": "a", "max_tokens": 2, "temperature": 1e-320}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "temperature": -0.0}', 200),
        (b'{"prompt": "a", "max_tokens": 2, "logit_bias": {"5": 1e308}}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "logit_bias": {"99999999999": 1}}', 400),
        (b'{"prompt": {}, "prompt": "a", "max_tokens": -1, "max_tokens": 2}', 200),  # the last one counts
        (b'{"prompt": "a", "max_tokens": 2, "__proto__": {"n": 5}, "": null, "\\u0000": 1}', 200),
        (b'{"prompt": "a", "max_tokens": 2, "response_format": {"type": "regex", "regex": "(a{100}){100}"}}', 400),
        (b'{"prompt": "a", "max_tokens": 2, "response_format": {"type": "regex", "regex": "(((("}}', 400),
        (b"\xef\xbb\xbf" + b'{"prompt": "a", "max_tokens": 2}', 400),  # a mark of the byte order is no JSON
        (b'{"prompt": "a", "max_tokens": 2}\x00', 400),
    ],
    ids=lambda given: given if isinstance(given, int) else given[:30].decode("latin-1") + f"… {len(given)}",
)
def test_bodies_at_the_edge(server, body, expected):
    answer = server.says(post(body))
    assert status(answer) == expected, answer[-500:]


def test_text_in_prompts_stays_text_in_streams(server):
    nasty = "</script>\x00\x1b[2J\r\n\r\ndata: [DONE]\r\n\r\n\u2028\u2029"
    asked = {"messages": [{"role": "user", "content": nasty}], "max_tokens": 4, "stream": True, "stop": [nasty]}
    head, _, stream = server.says(post(asked, "/v1/chat/completions")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert stream.count(b"[DONE]") == 1
    assert stream.isascii()


def test_many_megabytes(server):
    with server.connected() as made, suppress(ConnectionError):
        made.sendall(headed("/v1/completions", f"Content-Length: {1 << 34}"))  # said at once, before any of it comes
        assert status(made.recv(1 << 16)) == 413
    much = b'{"prompt": "' + b"a" * (8 << 20)
    assert server.status(post(much)) == 413
    with server.connected() as made:  # without a length it is known only when it comes
        with suppress(ConnectionError):
            made.sendall(headed("/v1/completions", "Transfer-Encoding: chunked", "Connection: close"))
            for _ in range(64):
                made.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
        assert everything(made)[:12] in (b"", b"HTTP/1.1 413")  # nothing, if it was cut off while it still sent


# ---- what is around it


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"GET /healthz HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n", (200, 400)),
        (b"GET /nowhere HTTP/1.1\r\nHost: [::\r\nConnection: close\r\n\r\n", (400, 403, 404)),
        (b"GET /nowhere HTTP/1.1\r\nHost: localhost:99999999\r\nConnection: close\r\n\r\n", (400, 403, 404)),
        (b"GET /%00%ff%2e%2e/%0d%0aSet-Cookie:x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (404,)),
        (b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (200, 404)),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (400, 404, 405)),
        (b"BREW /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", (405,)),
        (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", (400,)),  # HTTP/1.1 asks for a host
        (b"GET /healthz HTTP/1.0\r\n\r\n", (200,)),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n", (400,)),  # TLS
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 403)),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", (400,)),
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 40_000 + b"\r\n", (400,)),
        (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n", (400,)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n", (400,)),
        (headed("/v1/completions", "Content-Length: -5") + b"{}", (400,)),
        (headed("/v1/completions", "Content-Length: 5x") + b"{}", (400,)),
        (headed("/v1/completions", "Content-Length: 2", "Content-Length: 3") + b"{}a", (400,)),
        (headed("/v1/completions", "Transfer-Encoding: gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n", (400, 501)),
        (headed("/v1/completions", "Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n", (400,)),
        (headed("/v1/completions", "Transfer-Encoding: chunked") + b"-2\r\n{}\r\n0\r\n\r\n", (400,)),
        (headed("/v1/completions", "Transfer-Encoding: chunked") + b"2;" + b"x" * 200_000 + b"\r\n", (400,)),
        (
            headed("/v1/completions", "Content-Encoding: gzip", "Connection: close", "Content-Length: 2") + b"\x1f\x8b",
            (400,),
        ),
        (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close, upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
            (200, 400, 403, 404),
        ),
    ],
    ids=lambda given: given[:40].decode("latin-1") + f"… {len(given)}" if isinstance(given, bytes) else "",
)
def test_heads_of_all_kinds(server, data, expected):
    answer = server.says(data)
    assert status(answer) in expected, answer
    assert b"set-cookie" not in answer.lower().partition(b"\r\n\r\n")[0]
    assert b"Traceback" not in answer


FORGED = '\n{"event": "forged"}\r{"event": "forged"}\u2028\u0085\x1b[2J\x7f'
QUOTED = "".join(f"%{byte:02x}" for byte in FORGED.encode())


def test_nothing_that_is_sent_is_a_line_of_the_log(server):
    """The journal is read at the end: every line of it is the server's own."""
    named = {"model": FORGED, "user": FORGED, "decoding": {"method": f"lookup:ngram={FORGED}"}, FORGED: FORGED}
    said = [{**SHORT, name: value} for name, value in named.items()]
    said += [{**SHORT, "response_format": {"type": kind, kind: FORGED}} for kind in ("regex", "grammar", FORGED)]
    schema = {"type": "object", "properties": {FORGED: {"type": FORGED}}, "$ref": FORGED}
    said += [{**SHORT, "response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}]
    said += [
        {"messages": [{"role": FORGED, "content": FORGED}]},
        {**SHORT, "stop": [FORGED], "logit_bias": {FORGED: 1}},
    ]
    for body in said:
        for path in ("/v1/completions", "/v1/chat/completions", "/window/decode"):
            assert server.status(post(body, path)) in (200, 400, 404)
    for path in (f"/{QUOTED}", f"/v1/models/{QUOTED}", f"/v1/completions?{QUOTED}"):
        assert server.status(post(SHORT, path)) in (200, 404, 405)
    for head in ("Authorization: Bearer %s", "X-Request-Id: %s", "X-Forwarded-For: %s", "Host: %s", "X%s: a"):
        for text in (FORGED.replace("\r", " "), FORGED.replace("\n", " "), FORGED.translate({10: " ", 13: " "})):
            assert b" 500 " not in server.says(post(SHORT, "/v1/completions", head % text))


def test_a_flood_of_heads_that_are_none_writes_few_lines(server):
    def told():
        return [line for line in server.lines() if "Invalid HTTP" in line.get("message", "")]

    before = len(told())
    for i in range(300):
        assert server.status(b"GET /%d HTTP/9\r\n\r\n" % i) == 400
    time.sleep(0.5)
    assert server.status(b"\x16\x03\x01\r\n\r\n") == 400
    after = told()[before:]
    assert len(after) < 280
    assert sum(line.get("left_out", 0) for line in after) + len(after) == 301
    assert {line["client"] for line in after} == {"127.0.0.1"}


def test_a_body_in_chunks(server):
    body = json.dumps(SHORT).encode()
    chunks = b"".join(b"1;ext=1\r\n%c\r\n" % byte for byte in body) + b"0\r\nTrailer: 1\r\n\r\n"
    asked = headed("/v1/completions", "Transfer-Encoding: chunked", "Connection: close")
    assert server.status(asked + chunks) == 200
    with server.connected() as made:
        made.sendall(headed("/v1/completions", f"Content-Length: {len(body)}", "Expect: 100-continue"))
        assert made.recv(1 << 16).startswith(b"HTTP/1.1 100 ")
        made.sendall(body)
        assert status(made.recv(1 << 16)) == 200


def test_requests_in_a_row_are_answered_in_a_row(server):
    first, second = ({**SHORT, "temperature": 0, "max_tokens": n} for n in (3, 5))
    row = b"".join(post(body).replace(b"Connection: close\r\n", b"") for body in (first, second)) + post(b"[]")
    answers = server.says(row)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"200", b"400"]
    assert re.findall(rb'"completion_tokens": (\d+)', answers) == [b"3", b"5"]


def test_a_body_that_is_longer_than_it_says_is_no_second_request(server):
    body = json.dumps(SHORT).encode()
    asked = headed("/v1/completions", f"Content-Length: {len(body)}") + body
    answers = server.says(asked + b'{"prompt": "smuggled"}\r\n\r\n')
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"400"]


# ---- slow ones


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_one_who_sends_a_head_slowly_is_cut_off(server, before):
    with server.connected() as made, suppress(ConnectionError):
        made.sendall(before)  # a second request on a connection is no different
        answer = b""
        while before and not answer.endswith(b"ok\n"):
            more = made.recv(1000)
            assert more
            answer += more
        made.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        made.settimeout(0.1)
        for _ in range(int(PATIENCE / 0.1)):  # a byte now and then does not help
            made.sendall(b"X")
            with suppress(TimeoutError):
                assert made.recv(100) == b""
                return
        pytest.fail("it was never cut off")


def test_one_who_sends_a_body_slowly_is_told_so(server):
    body = json.dumps(SHORT).encode()
    with server.connected() as made:
        made.sendall(headed("/v1/completions", f"Content-Length: {len(body) + 1}") + body)  # and one more to come
        assert status(made.recv(1 << 16)) == 408


def test_one_who_stops_reading_is_cut_off(server):
    left = 'requests_total{outcome="left"}'
    before = server.metrics()[left]
    much = {**ENDLESS, "n": 4, "logprobs": 20, "stream": True}
    with server.connected(small=True) as made:
        made.sendall(post(much))
        server.until(lambda told: told["live_texts"] == 4)
        server.until(lambda told: told[left] == before + 1)
        server.empty()
        answer = everything(made)  # what had been sent by then, and not the end of it
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"[DONE]" not in answer


def test_many_who_only_hold_a_connection(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * IDLE:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * IDLE, hard), hard))
    try:
        with ExitStack() as stack:
            held = [stack.enter_context(server.connected()) for _ in range(IDLE - 5)]
            assert server.status(post(SHORT)) == 200
            held += [stack.enter_context(server.connected()) for _ in range(10)]
            answers = {server.status(post(SHORT)) for _ in range(3)}
            assert answers <= {200, 503}  # 200, if the first ones were cut off by now
            assert all(everything(made) == b"" for made in held)
        assert server.status(post(SHORT)) == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- those who leave


def gone(made):
    """Let the connection break instead of end."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    made.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", [gone, socket.socket.close, lambda made: made.shutdown(socket.SHUT_WR)])
def test_one_who_leaves_is_forgotten(server, stream, leave):
    before = server.metrics()["tokens_total"]
    with server.connected() as made:
        made.sendall(post({**ENDLESS, "stream": stream}))
        server.until(lambda told: told["live_texts"] == 1)
        leave(made)
        server.empty()
    assert server.metrics()["tokens_total"] - before < ENDLESS["max_tokens"]  # nobody wrote it to its end


def test_one_who_leaves_the_queue_is_forgotten_and_the_others_move_up(server):
    with ExitStack() as stack:
        writing = [stack.enter_context(server.connected()) for _ in range(4)]
        waiting = [stack.enter_context(server.connected()) for _ in range(3)]
        for made in writing:
            made.sendall(post({**ENDLESS, "stream": True}))
        server.until(lambda told: told["live_texts"] == 4)
        for made in waiting[:2]:
            made.sendall(post(ENDLESS))
        server.until(lambda told: told["queue_length"] == 2)
        waiting[2].sendall(post(SHORT))
        server.until(lambda told: told["queue_length"] == 3)
        for made in waiting[:2]:
            gone(made)
        server.until(lambda told: told["queue_length"] == 1)
        assert server.metrics()["live_texts"] == 4
        writing[0].close()
        assert status(everything(waiting[2])) == 200


def test_one_who_asks_again_and_leaves_is_forgotten(server):
    before = server.metrics()["tokens_total"]
    with server.connected() as made:
        row = post({**ENDLESS, "stream": True}).replace(b"Connection: close\r\n", b"")
        made.sendall(row * 2)
        server.until(lambda told: told["live_texts"] == 1)
    server.empty()
    assert server.metrics()["tokens_total"] - before < ENDLESS["max_tokens"]


def test_a_crowd_that_comes_and_goes(server):
    def visit(i):
        with server.connected() as made:
            asked = post({**ENDLESS, "stream": bool(i % 2), "max_tokens": 40 if i % 3 else 3000})
            made.sendall(asked if i % 5 else asked[:90])
            if i % 3:
                everything(made)
            else:
                time.sleep(0.02)

    threads = [threading.Thread(target=visit, args=(i,)) for i in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)


# ---- everybody at once


def test_those_who_were_sent_away_find_room_when_they_come_back(monkeypatch):
    from unspool.apps.server.server_request import Busy, ClientLine

    now = [0.0]
    monkeypatch.setattr("unspool.apps.server.server_request.monotonic", lambda: now[0])
    queue, came, other = ClientLine(4), [object() for _ in range(4)], object()
    for one in came:
        queue.add(one)
    with pytest.raises(Busy, match="4 requests wait") as sent:
        queue.add(other)
    assert sent.value.wait == 1  # nothing is known yet
    now[0] = 50.0
    queue.take(came[0])
    with pytest.raises(Busy) as sent:  # who was just served asks again at once, and would take that place for ever
        queue.add(came[0])
    assert sent.value.wait > 1  # by now it is known that a place takes long
    queue.take(came[1])
    queue.add(other)
    queue.add(came[0])
    assert list(queue) == [came[2], came[3], other, came[0]]
    assert queue.remove(came[3])
    assert not queue.remove(came[3])


def answers(queue, now, clients, seconds):
    """How many each client gets, of a server that writes four at a time, two seconds or so each, on a clock of its own.

    Whoever has an answer asks again at once; whoever is sent away comes back when told.
    """
    from unspool.apps.server.server_request import Busy

    dice, got, live = random.Random(1), [0] * clients, 0
    coming = [(dice.random(), i, "ask") for i in range(clients)]
    heapq.heapify(coming)
    while coming:
        now[0], i, what = heapq.heappop(coming)
        if what == "end":
            live, got[i] = live - 1, got[i] + 1
            heapq.heappush(coming, (now[0] + 0.001, i, "ask"))  # by then the next one has been begun
        elif now[0] < seconds:
            try:
                queue.add([i])
            except Busy as busy:
                heapq.heappush(coming, (now[0] + math.ceil(busy.wait) + dice.random(), i, "ask"))
        while live < 4 and len(queue):
            live += 1
            first = next(iter(queue))
            queue.take(first)
            heapq.heappush(coming, (now[0] + dice.uniform(0.5, 3.5), first[0], "end"))
    return got


def test_nobody_is_starved_by_those_who_were_just_served(monkeypatch):
    from unspool.apps.server.server_request import ClientLine

    now = [0.0]
    monkeypatch.setattr("unspool.apps.server.server_request.monotonic", lambda: now[0])
    got = answers(ClientLine(32), now, clients=100, seconds=300)
    assert min(got) > 0
    assert max(got) < 4 * sum(got) / len(got)

    class Unfair(ClientLine):
        _half = 32  # never shut: a free place goes to whoever asks first

    assert answers(Unfair(32), now, clients=100, seconds=300).count(0) > 30


def test_a_load_of_clients_all_get_their_answers(server):
    bench = ROOT / "bench" / "load.py"
    command = [sys.executable, str(bench), "--url", f"http://127.0.0.1:{server.port}"]
    ran = subprocess.run(
        [*command, "--clients", "8", "--seconds", "1"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(re.search(r"requests completed \| (\d+)", ran.stdout)[1]) >= 8
    assert re.search(r"completed per client \| min [1-9]", ran.stdout)
    assert re.search(r"first token \| +\d+ \| +\d+", ran.stdout)
