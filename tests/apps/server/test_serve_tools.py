"""Tools: arguments that meet their schemas, streams that join to the whole, and histories with what tools gave."""

# ruff: noqa: F811 (fixtures are asked for by name)

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import CHAT, Limits, folder, lm, served, serving, told  # noqa: F401

from unspool import Settings, json_schema
from unspool.apps.server.tool_calls import ToolCallParser
from unspool.core.law import Law
from unspool.core.warp.warp import Warp
from unspool.models.chat_template import Dialogue
from unspool.rules.constrain import unless
from unspool.rules.constrain.form import spelt

openai = pytest.importorskip("openai")
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

PATH = "/v1/chat/completions"
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Paris"]}, "days": {"$ref": "#/$defs/Days"}},
    "required": ["city", "days"],
    "$defs": {"Days": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 7}, "maxItems": 2}},
}
EMPTY = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool(name, parameters=None, **more):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("weather", CITY, description="The weather of some days."), tool("note", NOTE, strict=True), tool("now")]
SCHEMAS = {"weather": CITY, "note": NOTE, "now": {"maxProperties": 0}}


@pytest.fixture(scope="module")
def client(served):
    with openai.OpenAI(base_url=f"{served.http.base_url}/v1", api_key="none", max_retries=0) as made:
        yield made


def asked(**more):
    return {"model": "little", "messages": CHAT, "tools": TOOLS, "max_tokens": 160, "seed": 1} | more


def check(message):
    """Every call names a tool and meets its schema; strings that the little model would never end are closed."""
    for call in message.tool_calls:
        assert (call.type, call.id[:5]) == ("function", "call_")
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    assert len({call.id for call in message.tool_calls}) == len(message.tool_calls)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("parallel", [None, False, True])
def test_what_is_required_is_called_with_arguments_that_fit(client, seed, parallel):
    answer = client.chat.completions.create(
        **asked(tool_choice="required", seed=seed, n=2, parallel_tool_calls=parallel)
    )
    assert len(answer.choices) == 2
    for choice in answer.choices:
        assert choice.message.content is None
        assert choice.finish_reason == "tool_calls"  # whatever of a further call is cut off
        assert choice.message.tool_calls
        check(choice.message)
        assert parallel or len(choice.message.tool_calls) == 1


CALL_FOR_EVER = [{"type": "function", "function": {"name": "now", "strict": True, "parameters": EMPTY}}]


@pytest.mark.parametrize("parallel", [openai.omit, True])
@pytest.mark.parametrize("most", [60, 64, 160])
def test_the_stream_helper_is_given_complete_calls(client, lm, monkeypatch, parallel, most):
    """By a model that would go on calling until nothing more fits, as small ones do."""
    call = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'  # a token a character
    dictate(monkeypatch, lm, call * 20)
    body = asked(tool_choice="required", tools=CALL_FOR_EVER, max_tokens=most, temperature=0)
    with client.chat.completions.stream(**body, parallel_tool_calls=parallel) as stream:
        choice = stream.get_final_completion().choices[0]
    calls = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls"
    assert all(call.function.parsed_arguments == {} for call in calls)
    assert len(calls) == (1 if parallel is openai.omit else (most + 1) // len(call))


@pytest.mark.parametrize(("name", "most"), [("weather", 160), ("note", 90), ("note", 160), ("now", 160)])
def test_what_is_named_is_called_once(client, name, most):
    wanted = {"type": "function", "function": {"name": name}}
    choice = client.chat.completions.create(**asked(tool_choice=wanted, max_tokens=most)).choices[0]
    check(choice.message)
    assert [call.function.name for call in choice.message.tool_calls] == [name]
    assert choice.finish_reason == "tool_calls"


def test_a_call_that_cannot_be_short_may_be_cut_off(client):
    long = {"type": "object", "properties": {"a": {"type": "string", "minLength": 300}}, "required": ["a"]}
    body = asked(tools=[tool("long", long)], tool_choice="required")
    assert client.chat.completions.create(**{**body, "max_tokens": 300}).choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError, match="no call was found"):
        client.chat.completions.create(**{**body, "max_tokens": 200})


def test_names_of_arguments_that_no_schema_has_are_not_made_up(client):
    wanted = {"type": "function", "function": {"name": "now"}}
    for seed in range(3):
        choice = client.chat.completions.create(**asked(tool_choice=wanted, seed=seed)).choices[0]
        assert json.loads(choice.message.tool_calls[0].function.arguments) == {}


def joined(stream):
    """Messages as a client of OpenAI puts them together from deltas, and why each ended."""
    messages, reasons = {}, {}
    for chunk in stream:
        for choice in chunk.choices:
            message = messages.setdefault(choice.index, {"content": None, "calls": []})
            if choice.delta.content is not None:
                message["content"] = (message["content"] or "") + choice.delta.content
            for delta in choice.delta.tool_calls or ():
                if delta.index == len(message["calls"]):
                    assert delta.id.startswith("call_")
                    assert delta.type == "function"
                    message["calls"].append([delta.function.name, delta.function.arguments])
                else:
                    assert (delta.id, delta.function.name) == (None, None)
                    message["calls"][delta.index][1] += delta.function.arguments
            reasons.setdefault(choice.index, []).append(choice.finish_reason)
    assert all(told[:-1] == [None] * (len(told) - 1) for told in reasons.values())
    return messages, {index: told[-1] for index, told in reasons.items()}


@pytest.mark.parametrize("choice", ["required", "auto"])
def test_deltas_join_to_the_whole(client, choice):
    body = asked(tool_choice=choice, n=2, temperature=0.8, logprobs=True)
    whole = client.chat.completions.create(**body).choices
    messages, reasons = joined(client.chat.completions.create(**body, stream=True))
    for c in whole:
        calls = [[call.function.name, call.function.arguments] for call in c.message.tool_calls or ()]
        assert messages[c.index] == {"content": c.message.content, "calls": calls}
        assert reasons[c.index] == c.finish_reason
        assert (len(calls) > 0) is (choice == "required")


@dataclass(frozen=True)
class Dictated(Warp):
    """Makes some tokens next to certain, one after the other, as far as they may follow."""

    tokens: tuple[int, ...]

    def start(self, text):
        return 0

    def step(self, state, token):
        return state + 1

    def __call__(self, state, law):
        scores = law.scores.clone()
        if state < len(self.tokens):
            scores[self.tokens[state]] += 1000
        return Law(scores)


def dictate(monkeypatch, lm, text):
    """Have the model write a text, as far as it may."""
    tokens, warp = (*spelt(text, lm.vocabulary), 1), Settings.warp
    monkeypatch.setattr(Settings, "warp", lambda self, words: Dictated(tokens) | warp(self, words))


CALL = '<tool_call>\n{"name": "note", "arguments": {"text": "a \\"}\\" <tool_call>"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "content", "names", "finish"),
    [
        ("Just words, 1 < 2 <tool_cal\n", "Just words, 1 < 2 <tool_cal\n", [], "stop"),
        (f"I look it up. \n\n{CALL}", "I look it up.", ["note"], "tool_calls"),
        (CALL, None, ["note"], "tool_calls"),
        (
            f'{CALL}\n<tool_call>\n{{"name": "now", "arguments": {{}}}}\n</tool_call>',
            None,
            ["note", "now"],
            "tool_calls",
        ),
        ('<tool_call>\n{"name": "delete_all", "arguments": {}}\n</tool_call>', None, ["*"], None),
        ("Long " * 80, "Long " * 32, [], "length"),
        (f'{CALL}\n<tool_call>\n{{"name": "note", "arguments": {{"text": "' + "x" * 300, None, ["note"], "tool_calls"),
        ('Hm <tool_call>\n{"name": "note", "arguments": {"text": "' + "x" * 300, "Hm", ["note"], "length"),
    ],
)
def test_a_model_that_may_call(client, lm, monkeypatch, text, content, names, finish):
    dictate(monkeypatch, lm, text)
    body = asked(temperature=0, tool_choice="auto")
    choice = client.chat.completions.create(**body).choices[0]
    said, reason = choice.message.content, choice.finish_reason
    calls = [[c.function.name, c.function.arguments] for c in choice.message.tool_calls or ()]
    if names:
        messages, reasons = joined(client.chat.completions.create(**body, stream=True))
        assert (messages[0], reasons[0]) == ({"content": said, "calls": calls}, reason)
    assert said == content
    if names == ["*"]:  # what it writes is bent to a function that there is
        assert {name for name, _ in calls} <= SCHEMAS.keys()
        return
    assert [name for name, _ in calls] == names
    assert reason == finish
    if CALL in text:
        assert json.loads(calls[0][1]) == {"text": 'a "}" <tool_call>'}
    elif names:
        assert calls[0][1].startswith('{"text": "xxx')


def test_a_stop_string_ends_a_call_too(served, lm, monkeypatch):
    dictate(monkeypatch, lm, CALL)
    before = served.post(PATH, **asked(temperature=0, stop="<tool_call>")).json()["choices"][0]
    assert (before["finish_reason"], before["message"]["content"]) == ("stop", "")
    inside = served.post(PATH, **asked(temperature=0, stop='a \\"')).json()["choices"][0]
    assert inside["finish_reason"] == "stop"  # and not tool_calls, which would say that it can be called
    assert inside["message"]["tool_calls"][0]["function"]["arguments"] == '{"text": "'


def test_who_wants_no_call_gets_text(served, lm, monkeypatch):
    dictate(monkeypatch, lm, CALL)
    answer = served.post(PATH, **asked(tool_choice="none", temperature=0)).json()
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": CALL, "refusal": None}
    assert answer["usage"]["prompt_tokens"] == len(lm.encode(CHAT))  # nor are the tools shown
    shown = served.post(PATH, **asked(tool_choice="auto", temperature=0)).json()
    assert shown["usage"]["prompt_tokens"] > answer["usage"]["prompt_tokens"] + 200


HISTORY = [
    {"role": "user", "content": "Weather in Rome?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": ""}},
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "sunny"}]},
    {"role": "tool", "tool_call_id": "b", "content": "noon"},
]


def test_a_history_with_calls_and_what_they_gave(client, lm):
    answer = client.chat.completions.create(**asked(messages=HISTORY, tools=openai.omit, temperature=0, max_tokens=8))
    calls = [
        {"function": {"name": "weather", "arguments": {"city": "Rome"}}},
        {"function": {"name": "now", "arguments": {}}},
    ]
    turns = [HISTORY[0], {**HISTORY[1], "tool_calls": calls}, {**HISTORY[2], "content": "sunny"}, HISTORY[3]]
    assert answer.choices[0].message.content == lm.generate(Dialogue(turns), Settings(max_tokens=8)).text
    assert answer.usage.prompt_tokens == len(lm.encode(Dialogue(turns)))
    again = client.chat.completions.create(**asked(messages=HISTORY, tool_choice="required"))
    check(again.choices[0].message)


def refused(change):
    """One of the tools, spoilt."""
    return {"tools": [TOOLS[0], change]}


@pytest.mark.parametrize(
    ("body", "param", "told"),
    [
        ({"tools": "weather"}, "tools", "a list"),
        ({"tools": [tool(f"f{i}") for i in range(129)]}, "tools", "at most 128"),
        (refused({"type": "custom", "custom": {"name": "x"}}), "tools[1].type", "function"),
        (refused({"type": "function", "function": {}}), "tools[1].function.name", "letters"),
        (refused(tool('a", "arguments": {')), "tools[1].function.name", "letters"),
        (refused(tool("weather")), "tools[1].function.name", "no other"),
        (refused(tool("a", [])), "tools[1].function.parameters", "an object"),
        (refused(tool("a", {"type": "string"})), "tools[1].function.parameters.type", "object"),
        (refused(tool("a", {"not": {"required": ["b"]}})), "tools[1].function.parameters", "'a'.*not"),
        (refused(tool("a", {"properties": {"b": {"type": "text"}}})), "tools[1].function.parameters", "'a'"),
        ({"tool_choice": "always"}, "tool_choice", "required"),
        ({"tool_choice": {"type": "function"}}, "tool_choice", "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice.function.name", "one of the"),
        ({"tool_choice": "auto", "tools": None}, "tool_choice", "tools beside it"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls", "a boolean"),
        ({"response_format": {"type": "json_object"}}, "response_format", "beside tools"),
        ({"functions": [{"name": "a"}]}, "functions", "tools"),
        ({"tool_choice": "required", "max_tokens": 5}, "max_tokens", "within 5 tokens"),
        ({"messages": [*CHAT, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id", "the id of a call"),
        ({"messages": [HISTORY[1] | {"tool_calls": [{}]}]}, "messages[0].tool_calls[0].id", "the id"),
        ({"messages": [HISTORY[1] | {"tool_calls": "a"}]}, "messages[0].tool_calls", "a list"),
        (
            {"messages": [HISTORY[1] | {"tool_calls": [{"id": "a", "function": {"name": "b", "arguments": "["}}]}]},
            "messages[0].tool_calls[0].function.arguments",
            "a JSON object",
        ),
    ],
)  # fmt: skip
def test_tools_that_make_no_sense(served, body, param, told):
    answer = served.post(PATH, **asked(**body))
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
    assert told.split(".*")[-1] in error["message"]
    assert told.split(".*")[0] in error["message"]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["word", " ", "\n", "<", "<tool", "_call>", CALL, '"', "}"]), max_size=8), st.data())
def test_however_a_text_is_cut_it_reads_the_same(parts, data):
    text = "".join(parts)
    whole, pieces, rest = ToolCallParser(), ToolCallParser(), text
    whole.push(text)
    whole.end()
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.push(rest[:size])
        rest = rest[size:]
    pieces.end()
    assert whole.said == pieces.said
    assert [(c.name, c.arguments) for c in whole.made] == [(c.name, c.arguments) for c in pieces.made]
    if "<tool_call>" not in text:
        assert whole.said == text


NESTED = st.recursive(st.text('\\"{}[]a', max_size=6) | st.integers(), lambda x: st.lists(x, max_size=3), max_leaves=6)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.dictionaries(st.text('\\"}a', max_size=3), NESTED, max_size=3), min_size=1, max_size=3))
def test_arguments_end_where_their_object_does_whatever_their_strings_hold(objects):
    """Brackets and quotes inside of strings close nothing, and a backslash before a quote may be one of two."""
    calls = [f'<tool_call>\n{{"name": "f", "arguments": {json.dumps(given)}}}\n</tool_call>' for given in objects]
    read = ToolCallParser()
    for letter in "\n".join(calls):
        read.push(letter)
    read.end()
    assert [json.loads(call.arguments) for call in read.made] == objects
    assert read.done


def test_free_text_is_bound_behind_the_trigger_alone(lm):
    words = lm.vocabulary
    bound = unless("<<a", json_schema({"enum": [1]})).fit(words)

    def after(text):
        state = bound.start()
        for token in spelt(text, words):
            state = state.step(token)
        return state

    for free in ("", "a<", "<<", "<<<", "1 << a"):
        assert after(free).complete()
        assert after(free).mask().all()  # of single bytes, none writes past the trigger
    assert not after("<<<a").complete()
    assert after("<<<a").mask().nonzero().flatten().tolist() == [words.token("1")]
    assert after("x<<a1").complete()


@pytest.mark.slow
def test_the_default_model_calls_what_it_must(smollm2):
    with serving(smollm2, Limits(tokens=256)) as served, openai.OpenAI(
        base_url=f"{served.http.base_url}/v1", api_key="none", max_retries=0
    ) as client:  # fmt: skip
        question = [{"role": "user", "content": "What will the weather be in Paris, on days 1 and 2?"}]
        body = asked(messages=question, tool_choice="required", temperature=0, max_tokens=120)
        whole = client.chat.completions.create(**body).choices[0].message
        check(whole)
        assert whole.tool_calls[0].function.name == "weather"
        assert json.loads(whole.tool_calls[0].function.arguments)["city"] == "Paris"
        messages, _ = joined(client.chat.completions.create(**body, stream=True))
        assert messages[0]["calls"] == [[c.function.name, c.function.arguments] for c in whole.tool_calls]
        for seed in range(4):
            for choice in ("required", {"type": "function", "function": {"name": "note"}}):
                drawn = asked(messages=question, tool_choice=choice, temperature=1.0, seed=seed, max_tokens=120)
                made = client.chat.completions.create(**drawn).choices[0].message
                assert made.tool_calls
                check(made)
