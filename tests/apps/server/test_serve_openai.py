"""OpenAI's ways: what its clients send and look for in answers, errors and headers."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import json

import pytest
from serving import CHAT, LIMITS, Limits, events, folder, lm, served, serving, told  # noqa: F401

from unspool import Settings
from unspool.apps.server.handler import HEADER

openai = pytest.importorskip("openai")

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.http.base_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def error(answer, status=400):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


# ---- what does not fit


def test_a_prompt_longer_than_the_context(client, served):
    long = [{"role": "user", "content": "word " * 1000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="little", messages=long, max_tokens=7)
    assert (caught.value.code, caught.value.param, caught.value.type) == (
        "context_length_exceeded",
        "messages",
        "invalid_request_error",
    )
    assert "This model's maximum context length is 4096 tokens. However, you requested" in str(caught.value)
    assert "7 in the completion" in str(caught.value)
    plain = error(served.post(COMPLETIONS, prompt="word " * 1000))
    assert (plain["code"], plain["param"]) == ("context_length_exceeded", "prompt")


def test_a_cache_that_is_smaller_than_the_context(folder):
    from littlemodel import loaded

    with loaded(folder, kv_cache_tokens=100) as small, serving(small, Limits(share=1.0)) as served:
        full = served.post(COMPLETIONS, prompt="a" * 90, max_tokens=4096, temperature=0, logit_bias={"1": -100}).json()
        assert (full["usage"]["completion_tokens"], full["choices"][0]["finish_reason"]) == (10, "length")
        refused = error(served.post(COMPLETIONS, prompt="a" * 100))
        assert (refused["code"], "context length is 100 tokens" in refused["message"]) == (
            "context_length_exceeded",
            True,
        )


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_more_tokens_than_there_can_be_are_as_many_as_there_can(lm, field):
    asked = {"prompt": "Once", "temperature": 0, "logit_bias": {"1": -100}}
    with serving(lm, Limits(tokens=20)) as limited:
        cut = limited.post(COMPLETIONS, **asked, **{field: 4096}).json()
        assert (cut["usage"]["completion_tokens"], cut["choices"][0]["finish_reason"]) == (20, "length")
    with serving(lm, Limits()) as free:  # no limit but the model's own: 4096 for both
        long = free.post(COMPLETIONS, prompt=[5] * 4090, temperature=0, logit_bias={"1": -100}, **{field: 4096}).json()
        assert long["usage"]["total_tokens"] == 4096


def test_how_long_a_text_is_unless_told(lm):
    with serving(lm) as served:
        chat = served.post(CHATS, messages=CHAT, temperature=0, logit_bias={"1": -100}).json()
        assert chat["usage"]["completion_tokens"] == 1024  # of the 4000 that it might have
        short = served.post(COMPLETIONS, prompt="a", temperature=0, logit_bias={"1": -100}).json()
        assert short["usage"]["completion_tokens"] == 16


# ---- names of requests


def test_every_answer_has_a_request_id(lm, told):
    with serving(lm, keys=("key",)) as served:
        key = {"authorization": "Bearer key"}
        seen = [
            served.http.get("/healthz"),
            served.http.get("/nowhere", headers=key),
            served.http.get("/v1/models"),  # 401
            served.http.get("/v1/models", headers=key),
            served.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2}, headers=key),
            served.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 2, "stream": True}, headers=key),
            served.http.post(COMPLETIONS, json={"prompt": 5}, headers=key),
            served.http.post(COMPLETIONS, content=b"", headers=key),
            served.http.put(COMPLETIONS, headers=key),
        ]
        assert [answer.status_code for answer in seen] == [200, 404, 401, 200, 200, 200, 400, 415, 405]
        names = [answer.headers[HEADER] for answer in seen]
        assert len(set(names)) == len(names)
        assert all(name.startswith("req_") and len(name) == 36 for name in names)
        served.until(lambda: told[-1].get("status") == 415)
        assert {record.get("request_id") for record in told[-4:]} == set(names[4:8])


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        (["mine-1/2:3"], True),
        (["x" * 128], True),
        (["x" * 129], False),
        ([""], False),
        (["a b"], False),
        (["é".encode()], False),
        (["a\tb"], False),
        (["a", "b"], False),
    ],
)
def test_a_clients_own_request_id(served, told, given, echoed):
    headers = [(HEADER, name) for name in given] + [("content-type", "application/json")]
    answer = served.http.post(COMPLETIONS, content=b'{"prompt": "a", "max_tokens": 1}', headers=headers)
    assert answer.status_code == 200, answer.text
    assert len(answer.headers.get_list(HEADER)) == 1
    name = answer.headers[HEADER]
    assert (name == given[0]) is echoed
    served.until(lambda: told[-1].get("request_id") == name)


def test_the_official_client_finds_the_id(client):
    made = client.chat.completions.create(model="little", messages=CHAT, max_tokens=2)
    assert made._request_id.startswith("req_")
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt")
    assert caught.value.request_id.startswith("req_")


def test_replies_say_what_made_them(served, lm):
    marks = {
        served.post(CHATS, messages=CHAT, max_tokens=2).json()["system_fingerprint"],
        served.post(COMPLETIONS, prompt="a", max_tokens=2).json()["system_fingerprint"],
    }
    with served.http.stream("POST", CHATS, json={"messages": CHAT, "max_tokens": 2, "stream": True}) as answer:
        marks |= {chunk["system_fingerprint"] for chunk in events(answer)}
    assert len(marks) == 1
    assert marks.pop().startswith("fp_")


# ---- errors


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        (COMPLETIONS, {}, "prompt", "missing_required_parameter"),
        (CHATS, {}, "messages", "missing_required_parameter"),
        (CHATS, {"messages": [{"content": "a"}]}, "messages[0].role", "missing_required_parameter"),
        (CHATS, {"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
        (CHATS, {"messages": CHAT, "response_format": {}}, "response_format.type", "missing_required_parameter"),
        (CHATS, {"messages": CHAT, "temperature": 3}, "temperature", "decimal_above_max_value"),
        (CHATS, {"messages": CHAT, "temperature": -1}, "temperature", "decimal_below_min_value"),
        (CHATS, {"messages": CHAT, "temperature": "hot"}, "temperature", "invalid_type"),
        (CHATS, {"messages": CHAT, "max_tokens": 0}, "max_tokens", "integer_below_min_value"),
        (CHATS, {"messages": CHAT, "max_tokens": 1.5}, "max_tokens", "invalid_type"),
        (CHATS, {"messages": CHAT, "n": 5}, "n", "integer_above_max_value"),
        (CHATS, {"messages": CHAT, "n": "two"}, "n", "invalid_type"),
        (CHATS, {"messages": CHAT, "stop": ["a"] * 17}, "stop", "array_above_max_length"),
        (CHATS, {"messages": CHAT, "stop": ""}, "stop", "invalid_value"),
        (CHATS, {"messages": CHAT, "stop": 5}, "stop", "invalid_type"),
        (CHATS, {"messages": CHAT, "logit_bias": {"99999": 1}}, "logit_bias", "invalid_value"),
        (CHATS, {"messages": CHAT, "logit_bias": {"5": 101}}, "logit_bias.5", "decimal_above_max_value"),
        (CHATS, {"messages": CHAT, "functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        (CHATS, {"messages": CHAT, "response_format": {"type": "regex", "regex": "("}}, "response_format", None),
        (CHATS, {"messages": CHAT, "response_format": {"type": "choices", "choices": []}}, "response_format", None),
        (COMPLETIONS, {"prompt": "a", "n": 5}, "n", "integer_above_max_value"),
        (COMPLETIONS, {"prompt": ["a", "b"], "n": 3}, "n", "integer_above_max_value"),
        (COMPLETIONS, {"prompt": ["a"] * 5}, "prompt", "array_above_max_length"),
        (COMPLETIONS, {"prompt": [999_999]}, "prompt", "invalid_value"),
        (COMPLETIONS, {"prompt": []}, "prompt", "invalid_value"),
    ],
)
def test_errors_name_field_and_kind(served, path, body, param, code):
    told = error(served.post(path, **body))
    assert (told["type"], told["param"]) == ("invalid_request_error", param)
    assert code in (None, told["code"])
    assert "None" not in told["message"]


def test_who_has_no_key_or_asks_for_another_model(lm):
    with serving(lm, keys=("key",)) as served:
        refused = error(served.post(CHATS, messages=CHAT), 401)
        assert (refused["type"], refused["code"]) == ("invalid_request_error", "invalid_api_key")
        served.http.headers["authorization"] = "Bearer key"
        missing = error(served.post(CHATS, messages=CHAT, model="gpt"), 404)
        assert (missing["type"], missing["code"], missing["param"]) == (
            "invalid_request_error",
            "model_not_found",
            "model",
        )


@pytest.mark.parametrize("name", ["method", "within", "heal", "regex", "grammar", "choices", "json_schema"])
def test_what_is_ours_in_the_wrong_place_is_not_ignored(served, name):
    told = error(served.post(CHATS, messages=CHAT, **{name: "lookup"}))
    assert told["param"] == name
    assert ("decoding" if name in ("method", "within", "heal") else "response_format") in told["message"]


def test_what_is_not_ours_is_ignored(served):
    unknown = {"user": "me", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "best": 1, "seed_": 2}
    assert served.post(CHATS, messages=CHAT, max_tokens=1, **unknown).status_code == 200


LONE = "a\ud800b"


def bodies(path):
    """A body with a lone surrogate at each place where one may have a string."""
    kinds = {
        "json_schema": {"schema": {"enum": [LONE]}},
        "regex": LONE,
        "grammar": f'start: "{LONE}"',
        "choices": [LONE],
    }
    yield {"model": LONE}
    yield {"stop": LONE}
    yield {"stop": ["a", LONE]}
    yield {"decoding": {"method": LONE}}
    yield {"logit_bias": {LONE: 1}}
    yield {"prediction": {"type": "content", "content": LONE}}
    yield {"user": LONE}  # even where nobody reads it
    yield {"metadata": {LONE: [[{"a": LONE}]]}}
    yield {LONE: 1}
    for kind, value in kinds.items():
        yield {"response_format": {"type": kind, kind: value}}
    if path == COMPLETIONS:
        yield {"prompt": LONE}
        yield {"prompt": ["a", LONE]}
        return
    function = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}
    for change in (
        {"name": LONE},
        {"description": LONE},
        {"parameters": {"type": "object", "properties": {LONE: {"type": "string"}}}},
        {"parameters": {"type": "object", "properties": {"a": {"enum": [LONE]}}}},
    ):
        yield {"tools": [{"type": "function", "function": function | change}], "tool_choice": "required"}
    yield {"tool_choice": {"type": "function", "function": {"name": LONE}}}
    for message in (
        {"role": LONE, "content": "a"},
        {"role": "user", "content": LONE},
        {"role": "user", "content": [{"type": "text", "text": LONE}]},
        {"role": "user", "content": "a", "name": LONE},
        {"role": "tool", "content": "a", "tool_call_id": LONE},
    ):
        yield {"messages": [message]}
    for call in (
        {"name": LONE, "arguments": "{}"},
        *({"name": "f", "arguments": json.dumps(a)} for a in ({"a": LONE}, {LONE: 1})),
    ):
        yield {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": call}]}]}
    yield {"messages": [{"role": "assistant", "tool_calls": [{"id": LONE, "function": {"name": "f"}}]}]}


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS, "/window/decode"])
def test_a_lone_surrogate_anywhere_is_the_clients_mistake(served, path):
    for body in bodies(path):
        whole = {"max_tokens": 3, "prompt" if path == COMPLETIONS else "messages": "a" if path == COMPLETIONS else CHAT}
        content = json.dumps(whole | body)
        answer = served.http.post(path, content=content, headers={"content-type": "application/json"})
        assert (answer.status_code, body) == (400, body), answer.text
    served.until(served.empty)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": 1e-300}, "temperature"),
        ({"decoding": {"method": "chain"}}, "decoding.method"),
        ({"decoding": {"method": "confident"}}, "decoding.method"),
    ],
)
def test_what_is_found_out_late_names_its_field_too(served, body, param):
    answer = served.post(COMPLETIONS, prompt="a", max_tokens=2, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


# ---- messages


@pytest.mark.parametrize("content", [None, "", [], [{"type": "text", "text": ""}]])
def test_an_assistant_that_said_nothing(served, lm, content):
    before = [*CHAT, {"role": "assistant", "content": content}, {"role": "user", "content": "Well?"}]
    answer = served.post(CHATS, messages=before, temperature=0, max_tokens=8).json()
    plain = [*CHAT, {"role": "assistant", "content": ""}, {"role": "user", "content": "Well?"}]
    assert answer["choices"][0]["message"]["content"] == lm.generate(plain, Settings(max_tokens=8)).text
    assert answer["usage"]["prompt_tokens"] == len(lm.encode(plain))


def test_parts_of_text_are_one_text(served, lm):
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    answer = served.post(CHATS, messages=parts, temperature=0, max_tokens=8).json()
    assert answer["choices"][0]["message"]["content"] == lm.generate(CHAT, Settings(max_tokens=8)).text


# ---- predictions and usage


@pytest.fixture(scope="module")
def ascii_alone(lm):
    """A bias against bytes that are no characters, which a text with them could not be predicted by, and the end."""
    words = lm.vocabulary
    return {str(x): -100 for x in range(words.size) if not (words.piece(x).isascii() and words.piece(x))}


@pytest.mark.parametrize("temperature", [0, 0.9])
@pytest.mark.parametrize("parts", [False, True])
def test_a_prediction_makes_no_text_another(client, ascii_alone, temperature, parts):
    asked = {"model": "little", "messages": CHAT, "temperature": temperature, "seed": 3, "max_tokens": 60}
    asked |= {"logit_bias": ascii_alone}
    plain = client.chat.completions.create(**asked, n=2)
    text = plain.choices[0].message.content
    for content in (text, text[:20] + "other" + text[20:], "nothing of it", ""):
        given = [{"type": "text", "text": content[:5]}, {"type": "text", "text": content[5:]}] if parts else content
        made = client.chat.completions.create(**asked, n=2, prediction={"type": "content", "content": given})
        assert [c.message.content for c in made.choices] == [c.message.content for c in plain.choices]
        details, usage = made.usage.completion_tokens_details, made.usage
        assert made.usage.unspool["method"] == "copy"
        assert usage.completion_tokens == plain.usage.completion_tokens
        assert details.accepted_prediction_tokens == usage.unspool["accepted"]
        assert details.accepted_prediction_tokens + details.rejected_prediction_tokens == usage.unspool["drafted"]
        assert (usage.unspool["drafted"] > 0) is bool(content)
    assert plain.usage.completion_tokens_details.accepted_prediction_tokens == 0


def test_a_right_prediction_takes_few_forwards(served, ascii_alone):
    asked = {"messages": CHAT, "temperature": 0, "max_tokens": 64, "logit_bias": ascii_alone}
    text = served.post(CHATS, **asked).json()["choices"][0]["message"]["content"]
    for more in ({}, {"decoding": {"method": "copy:depth=32"}}):
        right = served.post(
            CHATS, **asked, prediction={"type": "content", "content": text + " and more"}, **more
        ).json()
        assert right["choices"][0]["message"]["content"] == text
        assert right["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 40
        assert right["usage"]["unspool"]["forwards"]["target"] < 20


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ("text", "prediction"),
        ({"content": "a"}, "prediction.type"),
        ({"type": "tokens", "content": "a"}, "prediction.type"),
        ({"type": "content"}, "prediction.content"),
        ({"type": "content", "content": 5}, "prediction.content"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "prediction.content"),
    ],
)
def test_predictions_that_are_none(served, given, param):
    assert error(served.post(CHATS, messages=CHAT, prediction=given))["param"] == param


def test_predictions_that_are_too_long_or_for_another_method(lm):
    with serving(lm, Limits(tokens=4000, texts=4)) as served:
        long = {"type": "content", "content": "a" * 65_537}
        refused = error(served.post(CHATS, messages=CHAT, prediction=long))
        assert (refused["param"], refused["code"]) == ("prediction.content", "string_above_max_length")
        both = {"prediction": {"type": "content", "content": "a"}, "decoding": {"method": "lookup"}}
        assert error(served.post(CHATS, messages=CHAT, **both))["param"] == "prediction"


def test_a_prediction_is_left_unused_where_copying_would_change_the_text(lm):
    asked = {"messages": CHAT, "temperature": 0, "max_tokens": 20}
    predicted = {**asked, "prediction": {"type": "content", "content": "Hello"}}
    for config in ({"method": "beam:width=3"}, {"method": "plain", "methods": ("lookup",)}):
        with serving(lm, **config) as served:
            plain, made = (served.post(CHATS, **body).json() for body in (asked, predicted))
            assert made["choices"] == plain["choices"]
            assert made["usage"]["unspool"]["method"] == config["method"]
            assert made["usage"]["completion_tokens_details"]["rejected_prediction_tokens"] == 0


@pytest.mark.parametrize("method", ["plain", "lookup", "suffix", "jacobi"])
def test_usage_counts_tokens_and_not_rounds(served, lm, method):
    prompt = "the cat and the cat and the cat and the "
    asked = {"prompt": prompt, "max_tokens": 40, "temperature": 0, "decoding": {"method": method}, "n": 2}
    tokens = len(lm.generate(prompt, Settings(max_tokens=40), method, raw=True).tokens)
    usage = served.post(COMPLETIONS, **asked).json()["usage"]
    assert usage["completion_tokens"] == 2 * tokens
    assert usage["total_tokens"] == usage["prompt_tokens"] + 2 * tokens
    assert (usage["unspool"]["rounds"] < usage["completion_tokens"]) is (method != "plain")
    streamed = asked | {"stream": True, "stream_options": {"include_usage": True}}
    with served.http.stream("POST", COMPLETIONS, json=streamed) as answer:
        assert events(answer)[-1]["usage"]["completion_tokens"] == 2 * tokens


def test_tokens_that_were_found_in_the_cache(served, lm):
    lm.model.forget()

    def cached(**body):
        usage = served.post(COMPLETIONS, max_tokens=4, temperature=0, **body).json()["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(prompt="It was a dark night", n=3) == 0  # the same prompt among its own texts does not count
    assert cached(prompt="It was a dark night") == len("It was a dark nigh")  # the last one is computed anew
    assert cached(prompt="It was a dark day") == len("It was a dark ")
    assert cached(prompt=["It was", "Something else"]) == len("It wa")
    assert cached(prompt=["It was", "It was"]) == 2 * len("It wa")
