"""The shapes of what the server answers, for its OpenAPI document; `replies.py` writes them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

Count = Annotated[int, Field(ge=0)]
Byte = Annotated[int, Field(ge=0, le=255)]
Finish = Literal["stop", "length", "tool_calls"]


class CachedTokens(BaseModel):
    cached_tokens: Count


class PredictedTokens(BaseModel):
    accepted_prediction_tokens: Count
    rejected_prediction_tokens: Count


class MethodUsage(BaseModel):
    method: str
    rounds: Count
    forwards: dict[str, Count]
    drafted: Count
    accepted: Count
    mean_acceptance_length: float | None
    draft_acceptance_rate: float | None
    tokens_per_forward: float | None


class Usage(BaseModel):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: CachedTokens
    completion_tokens_details: PredictedTokens
    unspool: MethodUsage


class Alternative(BaseModel):
    token: str
    logprob: float
    bytes: list[Byte]


class SeenToken(Alternative):
    top_logprobs: list[Alternative]


class ChatLogprobs(BaseModel):
    content: list[SeenToken]
    refusal: None


class CompletionLogprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[Count]


class MadeFunction(BaseModel):
    name: str
    arguments: str


class MadeCall(BaseModel):
    id: str
    type: Literal["function"]
    function: MadeFunction


class AnswerMessage(BaseModel):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[MadeCall] = Field(default=[], min_length=1)


class ChatChoice(BaseModel):
    index: Count
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class CompletionChoice(BaseModel):
    index: Count
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish


class Answer(BaseModel):
    id: str
    created: Count
    model: str
    system_fingerprint: str
    usage: Usage


class ChatAnswer(Answer):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class CompletionAnswer(Answer):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]


class StreamEvent(BaseModel):
    data: str  # a chunk as JSON, or [DONE]


class ErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    error: ErrorBody


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: Count
    owned_by: str


class Models(BaseModel):
    object: Literal["list"]
    data: list[Model]
