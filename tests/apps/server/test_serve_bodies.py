"""The models of request bodies: what they refuse, in which words, and at what cost."""

import json
import tracemalloc

import pytest
from pydantic import ValidationError

from unspool.apps.server.asking import chat, completion
from unspool.apps.server.bodies import MOST_BIASES, ChatRequest, CompletionRequest
from unspool.apps.server.fields import PART, parsed, refuse_surrogates, spells_surrogates
from unspool.apps.server.limits import Limits
from unspool.apps.server.refusal import Refusal
from unspool.rules.constrain.keyword import inside

CHAT = [{"role": "user", "content": "Hello"}]
MANY = 5000


def refused(read, body):
    with pytest.raises(Refusal) as caught:
        read({"messages": CHAT, **body} if read is chat else {"prompt": "a", **body}, Limits(), "plain")
    return caught.value


def surrogate_in(body):
    with pytest.raises(Refusal) as caught:
        refuse_surrogates(body)
    return caught.value


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"temperature": 3}, "temperature is 3; expected a number from 0 to 2.", "decimal_above_max_value"),
        ({"temperature": True}, "temperature is True; expected a number from 0 to 2.", "invalid_type"),
        ({"temperature": 10**400}, "temperature is too large; expected a number", "decimal_above_max_value"),
        ({"temperature": float("-inf")}, "temperature is -inf; expected a number", "decimal_below_min_value"),
        ({"top_logprobs": 1.5}, "top_logprobs is 1.5; expected a whole number from 0 to 20.", "invalid_type"),
        ({"top_k": 10**40}, "top_k is too large; expected a whole number from 0", "integer_above_max_value"),
        ({"stream": 1}, "stream is 1; expected a boolean.", "invalid_type"),
        ({"decoding": {"method": 5}}, "decoding.method is 5; expected a string.", "invalid_type"),
        ({"decoding": {"ngram": 2}}, "decoding is {'ngram': 2}; expected an object with a method", "invalid_value"),
        ({"stop": ["a"] * 17}, "expected a string or a list of at most 16 strings", "array_above_max_length"),
        ({"stop": "a" * 1025}, "or of more than 1024 characters", "string_above_max_length"),
        ({"stop": ["a", "b" * 1025]}, "or of more than 1024 characters", "string_above_max_length"),
        ({"messages": [5]}, "messages[0] is 5; expected an object.", "invalid_type"),
        ({"messages": [{"role": "king"}]}, "messages[0].role is 'king'; expected assistant, dev", "invalid_value"),
        ({"messages": [{"role": None}]}, "messages[0].role is missing; expected", "missing_required_parameter"),
        ({"messages": None}, "messages is missing; expected a list of at", "missing_required_parameter"),
        ({"response_format": {"type": "regex"}}, "response_format.regex is missing; exp", "missing_required_parameter"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type is 'custom'; expected function.", "invalid_value"),
    ],
)
def test_a_refusal_says_what_was_given_and_what_was_expected(body, message, code):
    error = refused(chat, body)
    assert message in error.message
    assert (error.status, error.code) == (400, code)
    assert error.message.startswith(error.param)


@pytest.mark.parametrize(
    ("prompts", "n", "message"),
    [
        (16, 1, ""),
        (17, 1, "prompt is a list of 17; expected at most 16 of them"),
        (3, 5, ""),
        (3, 6, "n is 6; expected at most 5 texts, as there are 3 prompts"),
        (1, 17, "n is 17; expected at most 16 texts;"),
    ],
)
def test_all_texts_of_a_request_count_together(prompts, n, message):
    body = {"prompt": ["a"] * prompts, "n": n}
    if not message:
        assert completion(body, Limits(texts=16), "plain").settings.n == n
        return
    with pytest.raises(Refusal) as caught:
        completion(body, Limits(texts=16), "plain")
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize("number", [2, 2.0])
def test_a_whole_number_may_be_written_with_a_point(number):
    body = {"prompt": [number, 3], "n": number, "seed": number, "max_tokens": number}
    asking = completion(body, Limits(), "plain")
    assert asking.prompts == ((2, 3),)
    assert (asking.settings.n, asking.settings.seed, asking.settings.max_tokens) == (2, 2, 2)
    assert isinstance(asking.settings.n, int)


def test_null_is_as_good_as_nothing():
    optional = {name for kind in (ChatRequest, CompletionRequest) for name in kind.model_fields} - {
        "messages",
        "prompt",
    }
    body = dict.fromkeys(optional) | {"messages": CHAT, "prompt": "a", "seed": 1}
    for read in (chat, completion):
        asked = {name: body[name] for name in ("messages", "prompt", "seed")}
        assert read(body, Limits(), "plain") == read(asked, Limits(), "plain")


@pytest.mark.parametrize(
    "body",
    [
        {"stop": [1] * MANY},
        {"logit_bias": {f"x{i}": 1 for i in range(MOST_BIASES)}},
        {"logit_bias": {str(i): 101 for i in range(MOST_BIASES)}},
        {"prompt": [None] * MANY},
        {"prompt": [[]] * MANY},
        {"messages": [{}] * MANY},
        {"messages": [{"role": "user", "content": [{}] * MANY}]},
        {"messages": [{"role": "assistant", "tool_calls": [{}] * MANY}]},
        {"tools": [{}] * 100},
        {"response_format": {"type": "choices", "choices": [""] * MANY}},
        {f"unknown{i}": i for i in range(MANY)} | {"n": 0},
    ],
    ids=lambda body: next(iter(body)),
)
def test_however_many_mistakes_there_are_few_are_noted(body):
    """Each costs memory and time, and only one is told."""
    kind = CompletionRequest if "prompt" in body else ChatRequest
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({"messages": CHAT, **body})
    assert caught.value.error_count() <= PART


def test_many_biases_are_checked_in_parts_and_none_is_lost():
    biases = {str(token): token % 100 for token in range(MOST_BIASES)}
    found = CompletionRequest.model_validate({"prompt": "a", "logit_bias": biases}).logit_bias
    assert found == biases
    assert list(found) == list(biases)


@pytest.mark.parametrize(
    ("read", "body", "param"),
    [
        (completion, {"prompt": [[1]] * 250_000}, "prompt"),
        (completion, {"prompt": ["a"] * 250_000}, "prompt"),
        (chat, {"messages": CHAT * 30_000}, "messages"),
        (chat, {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}] * 30_000}]}, "messages"),
    ],
)
def test_a_list_that_no_server_takes_is_refused_by_its_length(read, body, param):
    """Before its parts are read: the loop that answers everybody would wait for that."""
    error = refused(read, body)
    assert error.status == 400
    assert error.param.startswith(param)


def peak(done):
    """The bytes that were allocated at most while something was done."""
    tracemalloc.start()
    try:
        done()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


LONG_NAME, WIDE = "k" * 20_000, 2000  # a path for each value would take 40 MB


@pytest.mark.parametrize("held", [[0] * WIDE, dict.fromkeys(map(str, range(WIDE)), 0), [["a"]] * WIDE, ["a"] * WIDE])
@pytest.mark.parametrize("turned", [False, True])
def test_a_long_name_above_many_values_costs_its_own_length_once(held, turned):
    body = {LONG_NAME: held, "z": {"y": ["\ud800"]}}
    body = dict(reversed(body.items())) if turned else body
    assert peak(lambda: surrogate_in(body)) < 2_000_000
    assert surrogate_in(body).param == "z.y[0]"


def test_a_surrogate_below_a_long_name_is_told_by_the_beginning_of_its_path():
    error = surrogate_in({LONG_NAME: [0, {"\ud800": 1}]})
    assert error.param == "k" * 200
    assert len(error.message) < 400


@pytest.mark.parametrize(
    ("spelt", "half"),
    [
        (r"a", False),
        (r"\ud83d\ude00", False),
        (r"\uD83D\uDE00\uD83D\uDE00", False),
        (r"\\ud800", False),  # a backslash, and letters
        (r"\"\\ud800", False),
        (r"\u0041\uD7FF\uE000", False),
        (r"\ud800", True),
        (r"\uDFFF", True),
        (r"\\\ud800", True),  # a backslash, and half a pair
        (r"\ud83d\ud83d\ude00", True),
        (r"\ude00\ud83d", True),
        (r"\ud83d\\\ude00", True),
        (r"\ud83d \ude00", True),
    ],
)
def test_half_a_pair_is_found_in_the_spelling_of_a_body(spelt, half):
    text = f'{{"a": "{spelt}"}}'.encode()
    assert spells_surrogates(text) == half
    assert any("\ud800" <= letter <= "\udfff" for letter in json.loads(text)["a"]) == half


def test_whole_numbers_of_a_prompt_are_asked_all_at_once(monkeypatch):
    asked = []
    monkeypatch.setattr("unspool.apps.server.fields.counted", lambda given: asked.append(given) or int(given))
    assert completion({"prompt": [1] * MANY}, Limits(), "plain").prompts == ((1,) * MANY,)
    assert asked == []
    assert completion({"prompt": [1, 2.0]}, Limits(), "plain").prompts == ((1, 2),)


def test_the_pointers_into_a_schema_do_not_repeat_a_long_name():
    schema = {"properties": {LONG_NAME: {"anyOf": [{"type": "string"} for _ in range(WIDE)]}}}
    assert peak(lambda: list(inside(schema))) < 2_000_000
    assert [at for at, _ in inside({"properties": {"a/b": {"items": {}}}})][-1] == "/properties/a~1b/items"


def call_with(arguments):
    made = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"messages": [*CHAT, {"role": "assistant", "content": None, "tool_calls": [made]}]}


@pytest.mark.parametrize("part", ["[]", "{}", '{"a":[]}'])
def test_a_body_of_very_many_lists_is_refused_before_it_is_read(part, monkeypatch):
    monkeypatch.setattr("unspool.apps.server.fields.CONTAINERS", 100)
    inner = part.count("[") + part.count("{")
    few, many = ('{"a":[' + ",".join([part] * count) + "]}" for count in (98 // inner, 98 // inner + 1))
    assert parsed(few.encode())["a"]
    assert chat(call_with(few), Limits(), "plain")
    monkeypatch.setattr("json.loads", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(Refusal) as caught:
        parsed(many.encode())
    assert (caught.value.status, caught.value.code) == (400, "body_too_complex")
    assert "lists and objects, and 100 are allowed" in caught.value.message
    error = refused(chat, call_with(many))
    assert (error.param, error.code) == ("messages[1].tool_calls[0].function.arguments", "body_too_complex")


def test_brackets_inside_a_text_are_not_counted(monkeypatch):
    monkeypatch.setattr("unspool.apps.server.fields.CONTAINERS", 100)
    text = '[{"a":[\\' * 200 + '"' + "\\\\" * 3
    assert parsed(json.dumps({"prompt": text, "b": [1]}).encode())["prompt"] == text
