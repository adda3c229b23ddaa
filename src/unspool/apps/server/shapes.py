"""Shapes: JSON Schemas of what the server reads and writes, as data."""

from __future__ import annotations

from typing import Any

from .asking import ENDLESS, MOST_STOPS, MOST_TOP
from .house import House
from .limits import Limits
from .messages import ROLES
from .prediction import MOST as LONGEST
from .tools import MOST

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer", "minimum": 0}


def maybe(schema: Schema) -> Schema:
    """The same or null, which means as much as to leave it out."""
    kinds = schema.get("type")
    return {**schema, "type": [kinds, "null"]} if isinstance(kinds, str) else {"anyOf": [schema, {"type": "null"}]}


def numbers(low: float, high: float) -> Schema:
    """Numbers in a range."""
    return {"type": "number", "minimum": low, "maximum": high}


def wholes(low: int, high: int) -> Schema:
    """Whole numbers in a range."""
    return {"type": "integer", "minimum": low, "maximum": high}


def record(required: tuple[str, ...] = (), /, **members: Schema) -> Schema:
    """Objects with these members; of others nothing is said."""
    return {"type": "object", "properties": members, **({"required": list(required)} if required else {})}


def answer(**members: Schema) -> Schema:
    """Objects with all of these members."""
    return record(tuple(members), **members)


def list_of(items: Schema) -> Schema:
    """Lists of these."""
    return {"type": "array", "items": items}


PARTS = list_of(record(("type", "text"), type={"const": "text"}, text=TEXT))


def body(limits: Limits, house: House) -> dict[str, Schema]:
    """The fields that both interfaces read."""
    methods = {"enum": [house.method, *house.methods]} if house.methods else TEXT
    kinds = {
        "json_schema": {"json_schema": record(schema={"type": ["object", "boolean", "null"]})},
        "regex": {"regex": TEXT},
        "grammar": {"grammar": TEXT},
        "choices": {"choices": list_of({**TEXT, "minLength": 1})},
    }
    formats = [record(("type",), type={"enum": ["text", "json_object"]})]
    formats += [record(("type", *inner), type={"const": kind}, **inner) for kind, inner in kinds.items()]
    fields = {
        "model": {"enum": [house.model]},
        "n": wholes(1, limits.texts),
        "seed": wholes(-(2**63), 2**64 - 1),
        "temperature": numbers(0, 2),
        "top_p": numbers(0, 1),
        "top_k": wholes(0, 2**31),
        "min_p": numbers(0, 1),
        "repetition_penalty": numbers(0.01, 100),
        "presence_penalty": numbers(-2, 2),
        "frequency_penalty": numbers(-2, 2),
        "max_tokens": wholes(1, ENDLESS),
        "max_completion_tokens": wholes(1, ENDLESS),
        "stop": {"anyOf": [{**TEXT, "minLength": 1}, {**list_of({**TEXT, "minLength": 1}), "maxItems": MOST_STOPS}]},
        "logit_bias": {
            "type": "object",
            "patternProperties": {"^[0-9]{1,11}$": maybe(numbers(-100, 100))},
            "additionalProperties": False,
        },
        "response_format": {"anyOf": formats},
        "prediction": record(
            ("type", "content"), type={"const": "content"}, content={"anyOf": [{**TEXT, "maxLength": LONGEST}, PARTS]}
        ),
        "decoding": {**record(method=maybe(methods)), "additionalProperties": False},
        "stream": {"type": "boolean"},
        "stream_options": record(include_usage=maybe({"type": "boolean"})),
    }
    return {name: maybe(schema) for name, schema in fields.items()}


def chat_body(limits: Limits, house: House) -> Schema:
    """The body of a chat."""
    said = {"anyOf": [TEXT, PARTS]}
    called = record(("name",), name={**TEXT, "minLength": 1}, arguments=maybe(TEXT))
    calls = list_of(record(("id", "function"), id=TEXT, function=called))
    speakers = [role for role in ROLES if role not in ("assistant", "tool")]
    messages = [
        record(("role", "content"), role={"enum": speakers}, content=said),
        record(("role",), role={"const": "assistant"}, content=maybe(said), tool_calls=maybe(calls)),
        record(("role", "content", "tool_call_id"), role={"const": "tool"}, content=said, tool_call_id=TEXT),
    ]
    name = {**TEXT, "pattern": "^[A-Za-z0-9_-]{1,64}$"}
    about = {"description": maybe(TEXT), "parameters": maybe({"type": "object"}), "strict": maybe({"type": "boolean"})}
    function = record(("type", "function"), type={"const": "function"}, function=record(("name",), name=name, **about))
    named = record(("type", "function"), type={"const": "function"}, function=record(("name",), name=name))
    own = {
        "messages": {"type": "array", "items": {"anyOf": messages}, "minItems": 1},
        "logprobs": maybe({"type": "boolean"}),
        "top_logprobs": maybe(wholes(0, MOST_TOP)),
        "tools": maybe({**list_of(function), "maxItems": MOST}),
        "tool_choice": maybe({"anyOf": [{"enum": ["none", "auto", "required"]}, named]}),
        "parallel_tool_calls": maybe({"type": "boolean"}),
    }
    return record(("messages",), **own, **body(limits, house))


def completion_body(limits: Limits, house: House, size: int) -> Schema:
    """The body of a completion by a model of so many tokens."""
    tokens = {**list_of(wholes(0, size - 1)), "minItems": 1}
    several = {"minItems": 1, "maxItems": limits.texts}
    own = {
        "prompt": {"anyOf": [TEXT, {**list_of(TEXT), **several}, tokens, {**list_of(tokens), **several}]},
        "logprobs": maybe(wholes(0, MOST_TOP)),
        "best_of": maybe(wholes(1, limits.texts)),
    }
    return record(("prompt",), **own, **body(limits, house))


FORWARDS = {"type": "object", "additionalProperties": WHOLE}
USAGE = answer(
    prompt_tokens=WHOLE,
    completion_tokens=WHOLE,
    total_tokens=WHOLE,
    prompt_tokens_details=answer(cached_tokens=WHOLE),
    completion_tokens_details=answer(accepted_prediction_tokens=WHOLE, rejected_prediction_tokens=WHOLE),
    unspool=answer(
        method=TEXT,
        rounds=WHOLE,
        forwards=FORWARDS,
        drafted=WHOLE,
        accepted=WHOLE,
        mean_acceptance_length={"type": ["number", "null"]},
        draft_acceptance_rate={"type": ["number", "null"]},
        tokens_per_forward={"type": ["number", "null"]},
    ),
)
_ALTERNATIVE = answer(token=TEXT, logprob={"type": "number"}, bytes=list_of(wholes(0, 255)))
_SEEN = answer(**_ALTERNATIVE["properties"], top_logprobs=list_of(_ALTERNATIVE))
CHAT_LOGPROBS = maybe(answer(content=list_of(_SEEN), refusal={"type": "null"}))
LOGPROBS = maybe(
    answer(
        tokens=list_of(TEXT),
        token_logprobs=list_of({"type": "number"}),
        top_logprobs=list_of({"type": "object", "additionalProperties": {"type": "number"}}),
        text_offset=list_of(WHOLE),
    )
)
CALL = answer(id=TEXT, type={"const": "function"}, function=answer(name=TEXT, arguments=TEXT))
MESSAGE = record(
    ("role", "content", "refusal"),
    role={"const": "assistant"},
    content=maybe(TEXT),
    refusal={"type": "null"},
    tool_calls={**list_of(CALL), "minItems": 1},
)
FINISH = {"enum": ["stop", "length", "tool_calls"]}


def reply(kind: str, choice: Schema) -> Schema:
    """A whole response of either interface."""
    choice = answer(index=WHOLE, finish_reason=FINISH, **choice)
    named = {"id": TEXT, "object": {"const": kind}, "created": WHOLE, "model": TEXT, "system_fingerprint": TEXT}
    return answer(**named, choices=list_of(choice), usage=USAGE)


CHAT_REPLY = reply("chat.completion", {"message": MESSAGE, "logprobs": CHAT_LOGPROBS})
COMPLETION_REPLY = reply("text_completion", {"text": TEXT, "logprobs": LOGPROBS})
ERROR = answer(error=answer(message=TEXT, type=TEXT, param=maybe(TEXT), code=maybe(TEXT)))
MODEL = answer(id=TEXT, object={"const": "model"}, created=WHOLE, owned_by=TEXT)
MODELS = answer(object={"const": "list"}, data=list_of(MODEL))
