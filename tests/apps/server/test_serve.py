"""The server: the library's texts through OpenAI's interface, one engine for all, and nobody's mistake is another's."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE, until
from serving import (  # noqa: F401
    CHAT,
    LIMITS,
    LONG,
    Served,
    events,
    folder,
    httpx,
    lm,
    served,
    serving,
    told,
    uvicorn,
)

from unspool import Settings, choices
from unspool.apps.server import Limits, ServerConfig, Worker, application
from unspool.core.errors import RankLost
from unspool.rules.constrain import Form
from unspool.rules.decode import plain


def test_greedy_text_is_the_librarys_by_every_method(served, lm):
    prompt = "the cat and the cat and the "
    for method in ("beam:width=3", "plain", "lookup", "suffix:depth=8"):
        expected = lm.generate(prompt, Settings(max_tokens=24), method, raw=True).text
        answer = served.post(
            "/v1/completions", prompt=prompt, max_tokens=24, temperature=0, decoding={"method": method}
        ).json()
        assert answer["choices"][0]["text"] == expected
        assert answer["usage"]["unspool"]["method"] == method
    assert answer["usage"]["unspool"]["drafted"] >= answer["usage"]["unspool"]["accepted"]
    assert answer["usage"]["prompt_tokens"] == len(lm.encode(prompt))


def test_a_seed_and_n_give_the_librarys_samples(served, lm):
    expected = lm.samples("Once", Settings(temperature=0.8, top_p=0.9, seed=7, n=3, max_tokens=12), raw=True)
    asked = {"prompt": "Once", "temperature": 0.8, "top_p": 0.9, "seed": 7, "n": 3, "max_tokens": 12}
    choices = served.post("/v1/completions", **asked).json()["choices"]
    assert [c["text"] for c in choices] == [output.text for output in expected]
    assert [c["index"] for c in choices] == [0, 1, 2]
    assert served.text(prompt="Once", max_tokens=12) != served.text(prompt="Once", max_tokens=12)  # no seed: chance


def test_several_prompts_and_tokens_as_prompts(served, lm):
    texts = [lm.generate(p, Settings(max_tokens=8), raw=True).text for p in ("ab", "xyz")]
    for prompt in (["ab", "xyz"], [list(lm.encode("ab")), list(lm.encode("xyz"))]):
        choices = served.post("/v1/completions", prompt=prompt, max_tokens=8, temperature=0).json()["choices"]
        assert [c["text"] for c in choices] == texts


@pytest.mark.parametrize("stop", [None, "e", ["zz", "o"]])
def test_the_chunks_of_a_stream_join_to_the_whole(served, stop):
    asked = {"messages": CHAT, "temperature": 0.9, "seed": 3, "n": 2, "max_tokens": 40, "stop": stop}
    whole = served.post("/v1/chat/completions", **asked).json()
    asked |= {"stream": True, "stream_options": {"include_usage": True}}
    with served.http.stream("POST", "/v1/chat/completions", json=asked) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        chunks = events(answer)
    *parts, last = chunks
    assert last["choices"] == []
    for usage in (last["usage"], whole["usage"]):
        del usage["prompt_tokens_details"]  # the second finds its prompt in the cache
    assert last["usage"] == whole["usage"]
    for index, choice in enumerate(whole["choices"]):
        own = [c["choices"][0] for c in parts if c["choices"][0]["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
        assert own[-1]["finish_reason"] == choice["finish_reason"]
        assert all(c["finish_reason"] is None for c in own[:-1])


def test_reasons_to_finish(served, lm):
    text = lm.generate("Once", Settings(max_tokens=30), raw=True).text
    answer = served.post("/v1/completions", prompt="Once", max_tokens=30, temperature=0, stop=[text[4:6]]).json()
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["text"] == text[: text.index(text[4:6])]
    ended = served.post("/v1/completions", prompt="Once", logit_bias={"1": 100}).json()["choices"][0]
    assert (ended["text"], ended["finish_reason"]) == ("", "stop")
    assert served.post("/v1/completions", prompt="Once", max_tokens=1, logit_bias={"1": -100}).json()["choices"][0][
        "finish_reason"
    ] == "length"  # fmt: skip


def test_logprobs_are_the_models_own(served, lm):
    output = lm.generate("Once", Settings(max_tokens=5, logprobs=2), raw=True)
    asked = {"prompt": "Once", "max_tokens": 5, "temperature": 0, "logprobs": 2}
    found = served.post("/v1/completions", **asked).json()["choices"][0]["logprobs"]
    assert found["token_logprobs"] == pytest.approx([e.raw_logprob for e in output.events], abs=1e-4)
    assert [len(top) for top in found["top_logprobs"]] == [2] * 5
    assert found["text_offset"][0] == 0
    assert max(found["text_offset"]) <= len(output.text)


def test_what_json_requires_of_a_text(served):
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
    asked = {"messages": CHAT, "max_tokens": 60, "seed": 1}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = served.post("/v1/chat/completions", **asked, response_format=wanted).json()["choices"][0]
    assert json.loads(answer["message"]["content"])["a"] in (1, 2)
    for wanted, pattern in (
        ({"type": "regex", "regex": "[ab]{3}"}, "[ab]{3}"),
        ({"type": "grammar", "grammar": 'start: "x" | "yy"'}, "x|yy"),
        ({"type": "choices", "choices": ["no", "yes"]}, "no|yes"),
    ):
        text = served.post("/v1/chat/completions", **asked, response_format=wanted).json()["choices"][0]["message"]
        assert re.fullmatch(pattern, text["content"])


@pytest.mark.parametrize("depth", [50, 300, 800])
def test_deep_schemas_are_the_clients_mistake(served, depth):
    pytest.importorskip("llguidance")
    schema = '{"properties":{"a":' * depth + "{}" + "}}" * depth
    wanted = f'{{"type": "json_schema", "json_schema": {{"schema": {schema}}}}}'
    body = f'{{"prompt": "a", "max_tokens": 2, "response_format": {wanted}}}'
    answer = served.http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400), answer.text


def test_the_official_client(served):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{served.http.base_url}/v1", api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["little"]
        asked = {"model": "little", "messages": CHAT, "temperature": 0, "max_tokens": 12}
        whole = client.chat.completions.create(**asked, user="me", metadata={"a": "b"}, store=False)
        with client.chat.completions.create(**asked, stream=True) as stream:
            assert "".join(c.choices[0].delta.content or "" for c in stream) == whole.choices[0].message.content
        seen = client.chat.completions.create(**asked, logprobs=True, top_logprobs=3).choices[0].logprobs.content
        assert [len(token.top_logprobs) for token in seen] == [3] * 12
        assert all(token.logprob == token.top_logprobs[0].logprob for token in seen)  # greedy takes the best
        other = client.chat.completions.create(**asked, extra_body={"decoding": {"method": "lookup"}})
        assert other.choices[0].message.content == whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError, match="no model 'gpt'"):
            client.chat.completions.create(model="gpt", messages=CHAT)
        with pytest.raises(openai.BadRequestError, match="no method is called"):
            client.chat.completions.create(**asked, extra_body={"decoding": {"method": "magic"}})
        if sys.modules.get("llguidance"):
            wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["yes"]}}}
            made = client.chat.completions.create(**asked, response_format=wanted)
            assert made.choices[0].message.content == '"yes"'


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "a", "temperature": "hot"}, "temperature"),
        ("/v1/completions", {"prompt": "a", "temperature": True}, "temperature"),
        ("/v1/completions", {"prompt": "a", "n": 0}, "n"),
        ("/v1/completions", {"prompt": "a", "repetition_penalty": 1e-99}, "repetition_penalty"),
        ("/v1/completions", {"prompt": {"a": 1}}, "prompt"),
        ("/v1/completions", {"prompt": "a", "stop": [1]}, "stop"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
        ("/v1/completions", {"prompt": "a", "echo": True}, "echo"),
        ("/v1/completions", {"prompt": "a", "n": 5}, "n"),
        ("/v1/completions", {"prompt": [999_999]}, "prompt"),
        ("/v1/completions", {"prompt": ["good", [999_999]]}, "prompt"),
        ("/v1/completions", {"prompt": ["good", "\ud800"]}, "prompt[1]"),
        ("/v1/completions", {"prompt": "a", "decoding": {"method": "magic"}}, "decoding.method"),
        (
            "/v1/completions",
            {"prompt": "a", "decoding": {"method": "chain"}},
            "decoding.method",
        ),  # there is no draft model
        ("/v1/completions", {"prompt": "a", "decoding": {"name": "lookup"}}, "decoding"),
        ("/v1/completions", {"prompt": "a", "stop": ["x"] * 17}, "stop"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ("/v1/chat/completions", {"messages": CHAT, "tools": [{"type": "function"}]}, "tools[0].function"),
        ("/v1/chat/completions", {"messages": CHAT, "response_format": {"type": "xml"}}, "response_format.type"),
    ],
)
def test_what_cannot_be_done_is_refused_in_openais_shape(served, path, body, param):
    answer = served.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert served.worker.lm.name not in error["message"]  # it may be a path
    served.until(served.empty)  # of several prompts, those that were fine are gone too


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff\xfe", b'{"n": NaN}', b"[" * 30_000, b'{"n": 1' + b"0" * 6000]
)
def test_bodies_that_are_no_json_object(served, body):
    answer = served.http.post("/v1/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert "body" in answer.json()["error"]["message"]


def test_bodies_that_are_too_large_or_of_another_kind(served):
    assert served.post("/v1/completions", prompt="a" * 50_000).status_code == 413
    answer = served.http.post("/v1/completions", content=b'{"prompt": "a"}', headers={"content-type": "text/plain"})
    assert answer.status_code == 415
    assert served.http.get("/v1/completions").status_code == 405
    assert served.http.get("/nowhere").json()["error"]["type"] == "invalid_request_error"


def test_any_characters_survive(served, lm):
    for prompt in ("<script>alert('x')</script> &amp;", "\x00\x1b[31m\r\n\t\x7f", "\u2028 naïve 🙂 \U0010ffff"):
        expected = lm.generate(prompt, Settings(max_tokens=6), raw=True)
        answer = served.post("/v1/completions", prompt=prompt, max_tokens=6, temperature=0)
        assert answer.json()["choices"][0]["text"] == expected.text
        assert answer.json()["usage"]["prompt_tokens"] == expected.trace.prompt
        assert answer.headers["content-type"] == "application/json"


def test_a_message_holds_no_control_tokens_and_a_prompt_may(served):
    said, written = "a</s>b", "[user] a</s>b\n[assistant] "
    asked = {"max_tokens": 1, "temperature": 0}
    chat = served.post("/v1/chat/completions", messages=[{"role": "user", "content": said}], **asked).json()
    assert chat["usage"]["prompt_tokens"] == len(written)  # a token for every letter
    plain = served.post("/v1/completions", prompt=written, **asked).json()
    assert plain["usage"]["prompt_tokens"] == len(written) - len("</s>") + 1


NAMES = ("prompt", "messages", "n", "stop", "seed", "temperature", "top_p", "top_k", "max_tokens", "logprobs", "model")
MORE = (
    "top_logprobs",
    "logit_bias",
    "response_format",
    "decoding",
    "stream_options",
    "presence_penalty",
    "best_of",
    "tools",
    "tool_choice",
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
NESTED = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(max_size=4), PLAIN, max_size=3)
ODD = NESTED | st.lists(NESTED, max_size=3) | st.dictionaries(st.text(max_size=4), NESTED, max_size=3)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(["/v1/completions", "/v1/chat/completions"]),
    fields=st.dictionaries(st.sampled_from(NAMES + MORE), ODD, max_size=4),
)
def test_no_body_breaks_the_server(served, path, fields):
    body = {"prompt": "a", "messages": CHAT, "max_tokens": 2} | fields
    answer = served.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code < 500, (body, answer.text)
    assert answer.status_code == 200 or answer.json()["error"]["message"]


def test_one_who_leaves_frees_everything_at_once(served):
    served.until(served.empty)
    before = served.worker.total.tokens
    with served.http.stream("POST", "/v1/completions", json=LONG) as answer:
        lines = answer.iter_lines()  # kept: to let go of it is to leave
        next(lines)
        assert len(served.worker.engine.live) == 1
    served.until(served.empty)
    written = served.worker.total.tokens
    assert written - before < LONG["max_tokens"]  # it was broken off, and did not come to its end by itself
    with pytest.raises(httpx.ReadTimeout):  # without a stream there is nothing to write to; it is noticed all the same
        served.http.post("/v1/completions", json={**LONG, "stream": False}, timeout=httpx.Timeout(30, read=0.05))
    served.until(served.empty)
    assert served.worker.total.tokens - written < LONG["max_tokens"]
    assert served.slots() == 0
    assert served.worker.reserved == 0


def test_one_who_reads_nothing_has_left():
    from unspool.apps.server.handler import TrackedResponse
    from unspool.apps.server.response_stream import Left

    async def never(message):
        await asyncio.Event().wait()

    with pytest.raises(Left):
        asyncio.run(TrackedResponse(never, stall=0.01).push(b"x"))


def test_many_at_once_each_as_alone_while_others_leave(served, lm):
    prompts = [f"the {i} and the {i} and the " for i in range(12)]

    def ask(i):
        if i % 3 == 2:
            with served.http.stream("POST", "/v1/completions", json={**LONG, "prompt": prompts[i]}) as answer:
                lines = answer.iter_lines()
                next(lines)
            return None
        method = ("plain", "lookup")[i % 2]
        return served.text(prompt=prompts[i], max_tokens=16, temperature=0, decoding={"method": method})

    with ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(ask, range(12)))
    served.until(served.empty)
    for prompt, text in zip(prompts, texts, strict=True):
        assert text in (None, lm.generate(prompt, Settings(max_tokens=16), raw=True).text)
    assert texts.count(None) == 4
    assert served.slots() == 0


def test_a_full_queue_is_told_to_come_back(lm):
    with serving(lm, Limits(tokens=4000, parallel=1, queue=1)) as served:
        with served.http.stream("POST", "/v1/completions", json=LONG) as first:
            lines = first.iter_lines()
            next(lines)
            second = threading.Thread(target=served.text, kwargs={"prompt": "Two", "max_tokens": 2, "temperature": 0})
            second.start()
            served.until(lambda: len(served.worker.waiting) == 1)
            third = served.post("/v1/completions", prompt="Three")
            assert third.status_code == 429
            assert third.json()["error"]["type"] == "rate_limit_error"
            assert int(third.headers["retry-after"]) > 0
        second.join(PATIENCE)  # the first has left, so that the second gets its turn
        assert not second.is_alive()
        served.until(served.empty)
        counted = served.http.get("/metrics").text
        assert 'unspool_requests_total{outcome="busy"} 1' in counted
        assert 'unspool_requests_total{outcome="left"} 1' in counted


def test_time_is_up_for_one_request_and_not_for_the_next(lm):
    with serving(lm, Limits(tokens=4000, seconds=0.5)) as served:
        late = served.post("/v1/completions", **{**LONG, "stream": False})
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        with served.http.stream("POST", "/v1/completions", json=LONG) as answer:
            *_, last = [line for line in answer.iter_lines() if line]
        assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
        served.until(served.empty)
        served.until(lambda: served.post("/v1/completions", prompt="a", max_tokens=2).status_code == 200)


def test_which_methods_may_be_chosen(lm):
    with serving(lm, methods=("lookup:ngram=2",)) as served:
        for method, status in (("plain", 200), ("lookup:ngram=2", 200), ("lookup:ngram=3", 400), ("suffix", 400)):
            answer = served.post("/v1/completions", prompt="a", max_tokens=2, decoding={"method": method})
            assert answer.status_code == status, answer.text


def test_a_page_whose_name_leads_here_is_not_let_in(lm):
    with serving(lm, hosts=("127.0.0.1", "localhost")) as served:
        for host, status in (
            ("localhost:80", 200),
            ("127.0.0.1", 200),
            ("evil.example:8000", 403),
            ("127.0.0.1.a", 403),
        ):
            assert served.http.get("/v1/models", headers={"host": host}).status_code == status
        assert served.http.get("/healthz", headers={"host": "evil.example"}).status_code == 200


def test_keys_and_origins(lm):
    with serving(lm, keys=("first", "sécond"), origins=("https://page.example",)) as served:
        for given, status in ((None, 401), ("Bearer wrong", 401), ("Basic first", 401), ("Bearer first", 200)):
            answer = served.http.get("/v1/models", headers={} if given is None else {"authorization": given})
            assert answer.status_code == status
        assert answer.json()["data"][0]["id"] == "little"
        assert served.http.get("/v1/models", headers={"authorization": "Bearer sécond".encode()}).status_code == 200
        refused = served.post("/v1/completions", prompt="a")
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert [served.http.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]
        asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        for origin, allowed in (("https://page.example", True), ("https://evil.example", False)):
            answer = served.http.options("/v1/models", headers={"origin": origin, **asks})
            assert ("access-control-allow-origin" in answer.headers) is allowed


def test_a_failure_is_the_requests_own(served, monkeypatch):
    model = served.worker.lm.model
    score = model.score
    assert model.device is None  # else this test would have to break that too

    def failing(asked):
        if any(ask.session.leaves[0].tokens[:3] == [67, 67, 67] for ask in asked):
            raise ZeroDivisionError("planted")
        return score(asked)

    with served.http.stream("POST", "/v1/completions", json=LONG) as other:
        lines = other.iter_lines()
        next(lines)
        monkeypatch.setattr(model, "score", failing)
        broken = served.post("/v1/completions", prompt=[67, 67, 67, 5])
        assert (broken.status_code, broken.json()["error"]["code"]) == (500, "internal_error")
        assert "planted" not in broken.text
        assert "error" not in next(line for line in lines if line)
        served.until(lambda: len(served.worker.live) == 1)  # it goes on
    served.until(served.empty)
    monkeypatch.setattr(served.worker.engine, "step", failing)  # the engine itself: a new one takes its place
    assert served.post("/v1/completions", prompt="a").status_code == 500
    assert served.text(prompt="a", max_tokens=2) is not None
    served.until(served.empty)
    assert served.slots() == 0


def test_a_server_whose_model_has_lost_a_rank_is_not_ready_any_more(lm, monkeypatch):
    def lost(asked):
        raise RankLost("The ranks of this model have ended: rank 1 was killed. Load the model again.")

    with serving(lm) as served:
        assert served.http.get("/readyz").status_code == 200
        monkeypatch.setattr(lm.model, "score", lost)
        for _ in range(2):  # the second one is not let in
            answer = served.post("/v1/completions", prompt="a")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "rank_lost")
        told = served.http.get("/readyz")
        assert (told.status_code, "rank 1 was killed" in told.text) == (503, True)
        assert served.http.get("/healthz").status_code == 200


def test_the_event_loop_waits_for_no_forward(served, monkeypatch):
    model, entered, go = served.worker.lm.model, threading.Event(), threading.Event()
    score = model.score

    def slow(asked):
        entered.set()
        assert go.wait(PATIENCE)
        return score(asked)

    monkeypatch.setattr(model, "score", slow)
    asking = threading.Thread(target=served.text, kwargs={"prompt": "a", "max_tokens": 2})
    asking.start()
    assert entered.wait(PATIENCE)
    assert served.http.get("/healthz").text == "ok\n"
    assert "unspool_live_requests 1" in served.http.get("/metrics").text
    go.set()
    asking.join(PATIENCE)


class Slow(Form):
    """A form that takes as long to be fitted as the test wants."""

    def __init__(self):
        self.entered, self.go = threading.Semaphore(0), threading.Event()

    def fit(self, words):
        self.entered.release()
        assert self.go.wait(PATIENCE)
        return choices("yes").fit(words)


def test_nobody_waits_for_anothers_grammar(lm, monkeypatch):
    slow, answers = Slow(), []
    monkeypatch.setattr("unspool.apps.server.asking.form", lambda given: slow if given else None)
    bound = {"prompt": "a", "max_tokens": 9, "response_format": {"type": "regex", "regex": "slow"}}
    with serving(lm, Limits(tokens=4000, queue=3)) as served:
        threads = [threading.Thread(target=lambda: answers.append(served.text(**bound))) for _ in range(3)]
        with served.http.stream("POST", "/v1/completions", json=LONG) as other:
            lines = other.iter_lines()
            next(lines)
            for thread in threads:
                thread.start()
            assert all(slow.entered.acquire(timeout=PATIENCE) for _ in range(2))  # the third waits for them
            served.until(lambda: len(served.worker.fitting) == 3)
            assert sum(1 for _, line in zip(range(40), lines, strict=False) if line) == 20  # it goes on
            assert served.text(prompt="a", max_tokens=2) is not None  # and others begin
            assert served.post("/v1/completions", **bound).status_code == 429  # but there is an end to it
        slow.go.set()
        for thread in threads:
            thread.join(PATIENCE)
        served.until(lambda: served.empty() and len(served.worker.fitting) == 0)
    assert answers == ["yes"] * 3


def test_time_is_up_while_a_grammar_is_compiled(lm, monkeypatch):
    slow = Slow()
    monkeypatch.setattr("unspool.apps.server.asking.form", lambda given: slow if given else None)
    with serving(lm, Limits(tokens=4000, seconds=0.3)) as served:
        late = served.post("/v1/completions", prompt="a", response_format={"type": "regex", "regex": "slow"})
        assert (late.status_code, late.json()["error"]["code"]) == (504, "timeout")
        slow.go.set()
        served.until(lambda: len(served.worker.fitting) == 0)
        assert served.empty()  # what nobody wants any more is not begun


def test_metrics_parse_and_count(served):
    def figures():
        return _metrics(served.http.get("/metrics").text)

    def counted():  # once all who were answered are
        return sum(value for name, value in figures().items() if name.startswith("unspool_requests_total"))

    served.until(served.empty)
    before, asked = figures(), counted()
    served.text(prompt="cat cat cat cat ", max_tokens=8, temperature=0, decoding={"method": "lookup"})
    served.until(lambda: served.empty() and counted() > asked)
    after = figures()
    more = {name: value - before[name] for name, value in after.items()}
    assert more["unspool_tokens_total"] == 8
    assert more["unspool_forwards_total"] > 0
    assert after["unspool_queue_length"] == after["unspool_live_requests"] == 0
    assert after["unspool_accepted_total"] <= after["unspool_drafted_total"]
    for name in ("first_token", "token", "request"):
        buckets = [value for key, value in after.items() if key.startswith(f"unspool_{name}_seconds_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == after[f"unspool_{name}_seconds_count"]
    assert more["unspool_first_token_seconds_count"] == more["unspool_request_seconds_count"] == 1
    assert more["unspool_token_seconds_count"] <= 7  # those that come together with the first are no interval
    assert more["unspool_request_seconds_sum"] >= more["unspool_first_token_seconds_sum"] > 0


def _metrics(text):
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = dict(re.fullmatch(r'([a-z_]+(?:\{[a-z]+="[^"]+"\})?) ([0-9.e+-]+)', line).groups() for line in lines)
    types = dict(re.findall(r"# TYPE (\w+) (counter|gauge|histogram)", text))
    parts = "|".join(name for name, kind in types.items() if kind == "histogram")
    names = {re.sub(rf"^({parts})_(bucket|sum|count)$", r"\1", name.partition("{")[0]) for name in found}
    assert names == set(types)
    return {name: float(value) for name, value in found.items()}


def test_shutdown_lets_requests_finish_and_gives_up_those_that_do_not(lm):
    texts = []
    with serving(lm, grace=PATIENCE) as served:
        asked = {"prompt": "Once", "max_tokens": 200, "temperature": 0, "logit_bias": {"1": -100}}
        asking = threading.Thread(target=lambda: texts.append(served.text(**asked)))
        asking.start()
        served.until(lambda: served.worker.live)
        served.server.should_exit = True
        asking.join(PATIENCE)
        served.thread.join(PATIENCE)
        assert not served.worker.ready
    assert texts == [lm.generate("Once", Settings(max_tokens=200, logit_bias={1: -100}), raw=True).text]


def test_a_worker_that_stops_gives_up_what_is_left(lm):
    from unspool.apps.server.server_request import Failed, ServerRequest
    from unspool.apps.server.worker import ShuttingDown

    worker, told, began = Worker(lm, LIMITS), [], threading.Event()
    worker.start()
    errand = ServerRequest(
        ["Once"], Settings(max_tokens=4000, ignore_eos=True), plain(), lambda n: (told.extend(n), began.set())
    )
    worker.submit(errand)
    assert began.wait(PATIENCE)
    worker.stop(0)
    assert isinstance(told[-1], Failed)
    assert isinstance(told[-1].error, ShuttingDown)
    assert not worker.engine.live
    with pytest.raises(ShuttingDown):
        worker.submit(errand)


@pytest.mark.parametrize(
    ("given", "told"),
    [(["--api-key", " "], "empty"), (["--raw"], "--raw"), (["--queue", "0"], "queue"), (["--allow", "magic"], "magic")],
)
def test_options_that_make_no_server(given, told, folder):
    from click.testing import CliRunner

    from unspool.apps.cli.root import root

    ran = CliRunner().invoke(root, ["serve", "-m", str(folder), *given], standalone_mode=False)
    assert told in str(ran.exception)
    assert "starting" not in ran.output


def test_without_the_packages_it_says_what_to_install(monkeypatch):
    from click.testing import CliRunner

    from unspool.apps.cli.root import root

    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = CliRunner().invoke(root, ["serve"], standalone_mode=False)
    assert "pip install 'unspool[serve]'" in str(ran.exception)


def test_before_it_has_started_it_is_not_ready(lm):
    async def status():
        transport = httpx.ASGITransport(application(Worker(lm, LIMITS), ServerConfig("little")))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return [(await http.get(path)).status_code for path in ("/healthz", "/readyz", "/v1/models/other")]

    assert asyncio.run(status()) == [200, 503, 404]


def answers(http):
    """Whether somebody listens."""
    try:
        return http.get("/healthz").status_code
    except httpx.TransportError:
        return None


@contextmanager
def command(folder, *options):
    """`unspool serve` as a process that takes requests, with a client for it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "unspool", "serve", "-m", str(folder), "--port", str(port), *options]
    environment = {**os.environ, "UNSPOOL_API_KEY": "key"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert json.loads(process.stderr.readline())["host"] == "127.0.0.1"
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"authorization": "Bearer key"}) as http:
                until(lambda: answers(http))
                assert http.get("/readyz").status_code == 200
                yield process, http
        finally:
            process.kill()


def test_the_command_listens_here_alone_and_logs_no_prompt(folder):
    with command(folder) as (process, http):
        answer = http.post("/v1/completions", json={"model": "little", "prompt": "a secret", "max_tokens": 3})
        assert answer.status_code == 200, answer.text
        process.send_signal(signal.SIGTERM)
        told = process.stderr.read()
        assert process.wait(PATIENCE) == 0
    assert "secret" not in told
    record = json.loads(told.splitlines()[0])
    assert record["event"] == "request"
    assert (record["status"], record["outcome"], record["method"]) == (200, "completed", "plain")
    assert record["id"] == answer.json()["id"]


@pytest.mark.parametrize(
    ("signals", "most", "code"),
    [([signal.SIGTERM], 60, 0), ([signal.SIGINT], 60, 0), ([signal.SIGINT, signal.SIGINT], 4000, 130)],
)
def test_what_a_process_ends_with(lm, signals, most, code, monkeypatch):
    from unspool.apps.server.running import Server, run

    handle, heard = Server.handle_exit, []

    def handled(server, *signal):
        handle(server, *signal)
        heard.append(signal)

    monkeypatch.setattr(Server, "handle_exit", handled)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        taken = uvicorn.Config(application(Worker(lm, LIMITS), ServerConfig("little")), port=port, log_config=None)
        assert run(taken) == 1
    worker, last = Worker(lm, LIMITS), []

    def interrupt():
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http:
            until(lambda: answers(http))
            with http.stream("POST", "/v1/completions", json={**LONG, "max_tokens": most}) as answer:
                lines = answer.iter_lines()
                next(lines)
                for count, kind in enumerate(signals, 1):
                    os.kill(os.getpid(), kind)
                    until(lambda count=count: len(heard) == count)  # two of a kind at the same time are one
                with suppress(httpx.HTTPError):
                    last[:] = [line for line in lines if line][-1:]

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.getsignal(signal.SIGINT)
    config = uvicorn.Config(application(worker, ServerConfig("little")), port=port, log_config=None)
    assert run(config) == code
    assert signal.getsignal(signal.SIGINT) is before
    thread.join(PATIENCE)
    assert not worker._thread.is_alive()  # under which a process could not end well
    assert (last == ["data: [DONE]"]) is (code == 0)
