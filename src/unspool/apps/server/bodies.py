"""The bodies of the two interfaces that write text: every field that is read, with its type and its bounds.

The messages of a chat are among them: text, calls of tools, and what those gave back.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from ...rules.constrain import Form, choices, grammar, json_schema, regex
from .fields import ALL_COUNTED, COUNTED, FEW_MISTAKES, Body, refuse_many, refuse_surrogates, wrong
from .item_sets import NamedItems
from .refusal import Refusal
from .tools import CHOICES, MOST, FunctionTool, ToolChoice

Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(fail_fast=True)]
LONGEST = 1 << 16  # characters: the index of a longer one would keep others waiting
ENDLESS = 2**31  # more than any number of tokens or texts
MOST_TOP = 20  # alternatives of a token
MOST_STOPS, LONGEST_STOP = 16, 1024  # strings and characters of each; they cost a little at every token
MOST_BIASES = 1024  # entries of a logit_bias: each is read and checked before the text begins
StopText = Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]
UNSUPPORTED = {
    "functions": "functions are not supported; give them as tools",
    "function_call": "function_call is not supported; give tool_choice",
    "audio": "audio is not supported; this server writes text",
    "echo": "echo is not supported; the prompt is not repeated",
}
MISPLACED = {  # ours, where they would be ignored
    "method": 'give it as "decoding": {"method": …}',
    "within": 'give it as "decoding": {"within": …}',
    "heal": 'give it as "decoding": {"heal": true}',
    "json_schema": 'give it as "response_format": {"type": "json_schema", "json_schema": {"schema": …}}',
    "regex": 'give it as "response_format": {"type": "regex", "regex": …}',
    "grammar": 'give it as "response_format": {"type": "grammar", "grammar": …}',
    "choices": 'give them as "response_format": {"type": "choices", "choices": […]}',
}
MOST_PROMPTS, MOST_MESSAGES = 1024, 4096  # beyond what any server lets through, and read in no time
PARTS = 'a string or a list of parts {"type": "text", "text": …}; this server reads text alone'


class TextPart(Body):
    """A part of what is said."""

    type: Literal["text"]
    text: str


Parts = Annotated[list[TextPart], Field(max_length=1024, fail_fast=True)]
Content = Annotated[str | Parts, Field(description=PARTS)]


class CalledFunction(Body):
    """The function of a call and its arguments, a JSON object written as a string."""

    name: str = Field(min_length=1, description="a name")
    arguments: str | None = None


class MessageToolCall(Body):
    """A call that the assistant made."""

    id: str = Field(description="the id that the call had")
    function: CalledFunction = Field(description="an object with name and arguments")


class SpokenMessage(Body):
    """What somebody says to the assistant."""

    role: Literal["system", "developer", "user"]
    content: Content


class AssistantMessage(Body):
    """What the assistant said, or called; nothing where its answer was cut off or filtered."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[MessageToolCall], Field(fail_fast=True)] | None = Field(
        None, description="a list of calls"
    )


class ToolMessage(Body):
    """What a call gave back."""

    role: Literal["tool"]
    content: Content
    tool_call_id: str = Field(description="the id of a call in an earlier message of the assistant")


Message = Annotated[SpokenMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def text_of(content: str | Sequence[TextPart]) -> str:
    """The text that is given as a string or in parts."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


def as_templates_read(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages as plain data for chat templates; refuses what gives back a call that nobody made."""
    called: dict[str, str] = {}  # names of functions by the ids of calls
    made: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        role = "system" if message.role == "developer" else message.role
        record: dict[str, Any] = {"role": role, "content": text_of(message.content or "")}
        if isinstance(message, AssistantMessage) and message.tool_calls:
            record["tool_calls"] = [
                _call(call, f"messages[{index}].tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
            ]
            called |= {call.id: call.function.name for call in message.tool_calls}
        if isinstance(message, ToolMessage):
            name = message.tool_call_id
            if name not in called:
                expected = "the id of a call in an earlier message of the assistant"
                wrong(f"messages[{index}].tool_call_id", name, expected)
            record |= {"tool_call_id": name, "name": called[name]}
        made.append(record)
    return made


def _call(call: MessageToolCall, at: str) -> dict[str, Any]:
    arguments = _arguments(call.function.arguments, f"{at}.function.arguments")
    return {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": arguments}}


def _arguments(given: str | None, at: str) -> dict[str, Any]:
    """The arguments as an object, since templates write them themselves."""
    refuse_many((given or "").encode(), at)
    try:
        found = json.loads(given or "{}", parse_constant=lambda name: wrong(at, name, "numbers that JSON has"))
    except (ValueError, RecursionError):
        found = None
    refuse_surrogates(found, at)  # which a string inside a string may spell once more
    return found if isinstance(found, dict) else wrong(at, given, "a JSON object, written as a string")


class TextFormat(Body):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Body):
    """Any JSON object."""

    type: Literal["json_object"]


class NamedSchema(Body):
    """A JSON Schema; OpenAI's clients give it a name too, which is not used."""

    schema_: dict[str, Any] | bool | None = Field(None, alias="schema", description="an object, true or false")


class JsonSchemaFormat(Body):
    """JSON that meets a schema."""

    type: Literal["json_schema"]
    json_schema: NamedSchema = Field(description="an object with a schema")


class RegexFormat(Body):
    """Text that a regular expression matches as a whole."""

    type: Literal["regex"]
    regex: Text = Field(description="a regular expression")


class GrammarFormat(Body):
    """Text of a language, by its grammar."""

    type: Literal["grammar"]
    grammar: Text = Field(description="a grammar")


class ChoicesFormat(Body):
    """One of several texts."""

    type: Literal["choices"]
    choices: Text | Texts = Field(description="a list of strings, none of them empty")


class ItemsFormat(Body):
    """One of the items of a set that the operator offers."""

    type: Literal["items"]
    items: Annotated[str, Field(min_length=1, max_length=256)] = Field(description="the name of a set of items")


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat | RegexFormat | GrammarFormat | ChoicesFormat | ItemsFormat,
    Field(discriminator="type"),
]


def form(given: ResponseFormat | None) -> Form | None:
    """The form that a text is to have; None for any."""
    match given:
        case JsonObjectFormat():
            return json_schema({"type": "object"})
        case JsonSchemaFormat(json_schema=NamedSchema(schema_=schema)):
            return json_schema({} if schema is None else schema)
        case RegexFormat(regex=pattern):
            return regex(pattern)
        case GrammarFormat(grammar=rules):
            return grammar(rules)
        case ChoicesFormat(choices=str(text)):
            return choices(text)
        case ChoicesFormat(choices=texts):
            return choices(*texts)
        case ItemsFormat(items=name):
            return NamedItems(name)
    return None


class Prediction(Body):
    """What a client expects the answer to be."""

    type: Literal["content"]
    content: Annotated[str, Field(max_length=LONGEST)] | Parts = Field(
        description=f"{PARTS}; at most {LONGEST} characters"
    )

    def text(self) -> str:
        """The predicted text."""
        text = text_of(self.content)
        if len(text) > LONGEST:  # of all parts together
            wrong("prediction.content", text, f"at most {LONGEST} characters", "string_above_max_length")
        return text


Amount = Annotated[int, Field(ge=1, le=ENDLESS), COUNTED]
Alternatives = Annotated[int, Field(ge=0, le=MOST_TOP), COUNTED]
Bias = Annotated[float, Field(ge=-100, le=100)]
TokenName = Annotated[str, Field(pattern="^[0-9]{1,11}$")]


def _few_biases(given: Any) -> Any:
    """A logit_bias that is not too large, before anybody looks at its entries."""
    if isinstance(given, dict) and len(given) > MOST_BIASES:
        told = f"logit_bias has {len(given)} entries; expected at most {MOST_BIASES}: those that matter most."
        raise Refusal(400, told, param="logit_bias", code="object_above_max_properties")
    return given


Biases = Annotated[
    dict[TokenName, Bias | None],
    FEW_MISTAKES,
    BeforeValidator(_few_biases),
    Field(json_schema_extra={"additionalProperties": False, "maxProperties": MOST_BIASES}),
]
Token = Annotated[int, Field(ge=0)]
Tokens = Annotated[list[Token], Field(min_length=1, fail_fast=True), ALL_COUNTED]


class StreamOptions(Body):
    """Whether a stream ends with what it took."""

    include_usage: bool | None = None


class Decoding(Body):
    """How the text is to be written."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = None
    within: Amount | None = None
    heal: bool | None = None


class TextRequest(Body):
    """What both interfaces read; null means as much as to leave a field out."""

    model: str | None = None
    n: Amount | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**64 - 1), COUNTED] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: Annotated[int, Field(ge=0, le=2**31), COUNTED] | None = None
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    max_tokens: Amount | None = None
    max_completion_tokens: Amount | None = None
    stop: StopText | Annotated[list[StopText], Field(max_length=MOST_STOPS, fail_fast=True)] | None = Field(
        None,
        description=f"a string or a list of at most {MOST_STOPS} strings, none of them empty or of more than "
        f"{LONGEST_STOP} characters",
    )
    logit_bias: Biases | None = Field(
        None, description=f"an object: at most {MOST_BIASES} tokens' numbers as keys, and numbers from -100 to 100"
    )
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = Field(None, description='{"type": "content", "content": …}')
    decoding: Decoding | None = Field(
        None,
        description='an object with a method, as in {"method": "lookup:ngram=2"}, within beside a response_format, or '
        "heal beside a prompt that may end inside a word",
    )
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_would_be_ignored(cls, values: Any) -> Any:
        """Fields that change what a client gets back, so that silence would mislead it."""
        for name, why in UNSUPPORTED.items():
            if values.get(name) not in (None, False, []):
                raise Refusal(400, why, param=name, code="unsupported_parameter")
        for name, where in MISPLACED.items():
            if values.get(name) is not None:
                raise Refusal(400, f"{name} stands where it is not read; {where}", param=name, code="unknown_parameter")
        return values


class ChatRequest(TextRequest):
    """The body of a chat."""

    messages: list[Message] = Field(
        min_length=1, max_length=MOST_MESSAGES, fail_fast=True, description="a list of at least one message"
    )
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: Annotated[list[FunctionTool], Field(max_length=MOST, fail_fast=True)] | None = Field(
        None, description=f"a list of at most {MOST} functions"
    )
    tool_choice: ToolChoice | None = Field(None, description=CHOICES)
    parallel_tool_calls: bool | None = None


class CompletionRequest(TextRequest):
    """The body of a completion."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
        | Tokens
        | Annotated[list[Tokens], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True)]
    ) = Field(description="a string, a list of strings, a list of tokens, or a list of such lists")
    logprobs: Alternatives | None = None
    best_of: Amount | None = None
    suffix: Annotated[str, Field(max_length=LONGEST)] | None = None
