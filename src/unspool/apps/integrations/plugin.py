"""A plugin of Simon Willison's `llm`: `llm -m unspool/smollm2 "…" -o method suffix`.

It is found by its entry point wherever both are installed. Nothing heavy is imported before a model is asked.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import llm
from pydantic import Field

from ... import api, recipes
from ...core.errors import UnspoolError
from ...models.catalog import CATALOG
from ...rules import constrain

if TYPE_CHECKING:
    from ...api.lm import LM
    from ...api.lm import Prompt as Asked
    from ...api.settings import Settings
    from ...api.writer import Event, Output
    from ...rules.constrain import Form


@llm.hookimpl  # type: ignore[untyped-decorator]  # llm is skipped by the type checker
def register_models(register: Callable[..., None]) -> None:
    """Every model of the catalogue, and one by the name `unspool` for any other, named by an option."""
    register(PluginModel("unspool", None))
    for name in CATALOG:
        register(PluginModel(f"unspool/{name}", name))


class PluginOptions(llm.Options):  # type: ignore[misc]
    """What can be set with `-o name value`."""

    model: str | None = Field(default=None, description="Another model: a .gguf file, a folder, or a Hub id")
    method: str = Field(default="plain", description="How to decode; `unspool methods` lists what there is")
    draft: str | None = Field(default=None, description="A second model, for methods that ask one")
    small: str | None = Field(default=None, description="A third one, which drafts for the second")
    temperature: float = Field(default=0.0, description="0 is greedy")
    top_p: float | None = Field(default=None, description="Keep the likeliest tokens that together have this much")
    top_k: int | None = Field(default=None, description="Keep so many of the likeliest tokens")
    min_p: float | None = Field(default=None, description="Keep tokens with this share of the likeliest one's")
    repetition_penalty: float = Field(default=1.0, description="Above 1 makes tokens that stood before less likely")
    max_tokens: int = Field(default=512, description="The longest answer")
    within: int | None = Field(default=None, description="Close an answer that has a schema within so many tokens")
    stop: str | None = Field(default=None, description="End before this string")
    seed: int | None = Field(default=None, description="The same seed gives the same text, by any method")
    dtype: str = Field(default="auto", description="fp32, bf16 or fp16")
    device: str = Field(default="auto", description="cpu, cuda or cuda:N")
    quantization: str = Field(default="auto", description="auto, packed, none, int8 or int4")


class PluginModel(llm.Model):  # type: ignore[misc]
    """A model of unspool as `llm` sees it; loaded when it is first asked, and kept."""

    can_stream = True
    supports_schema = True
    Options = PluginOptions

    def __init__(self, model_id: str, name: str | None) -> None:
        self.model_id, self.name = model_id, name
        self._loaded: dict[tuple[str, ...], LM] = {}

    def execute(self, prompt: Any, stream: bool, response: Any, conversation: Any) -> Generator[str, None, None]:
        """The answer, piece by piece."""
        try:
            made = recipes.methods.requested(
                prompt.options.method
            )  # options may come from a template that somebody else wrote
            lm = self.load(prompt.options)
            asked, settings = _asked(lm, prompt.messages), _settings(prompt.options, prompt.schema)
            if stream:
                events = lm.stream(asked, settings, made)
                output = yield from _texts(events)
            else:
                output = lm.generate(asked, settings, made)
                yield output.text
        except UnspoolError as error:
            raise llm.ModelError(str(error)) from error
        response.set_usage(input=output.trace.prompt, output=output.trace.tokens)
        response.response_json = {"reason": output.reason, "trace": output.trace.record()}
        if api.finished.cut_short(output, settings, lm.vocabulary):
            raise llm.ModelError(
                f"the answer was cut after {len(output.tokens)} tokens, before it had its form; raise -o max_tokens, "
                "or close it in time with -o within N"
            )

    def load(self, chosen: Any) -> LM:
        """The model that these options mean."""
        name = chosen.model or self.name
        if name is None:
            raise llm.ModelError(
                "unspool does not know which model to load: name one with -o model FILE, or use unspool/smollm2."
            )
        how = {"dtype": chosen.dtype, "device": chosen.device, "quantization": chosen.quantization}
        key = (name, chosen.draft or "", chosen.small or "", *how.values())
        if key not in self._loaded:
            self._loaded = {key: api.loader.load(name, **how, draft=chosen.draft or None, small=chosen.small or None)}
        return self._loaded[key]


def _texts(events: Generator[Event, None, Output]) -> Generator[str, None, Output]:
    """The texts of events, for the same value in the end."""
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            output: Output = end.value
            return output
        if event.text:
            yield event.text


def _asked(lm: LM, messages: list[Any]) -> Asked:
    """The conversation for the chat template; the text itself for a model that has none."""
    told: list[dict[str, str]] = [{"role": message.role, "content": _text(message)} for message in messages]
    if lm.vocabulary.chat_template is not None:
        return told
    if [message["role"] for message in told] != ["user"]:
        raise llm.ModelError(
            f"{lm.name} has no chat template: it continues one text, without a system prompt or turns."
        )
    return told[0]["content"]


def _text(message: Any) -> str:
    other = [type(part).__name__ for part in message.parts if not hasattr(part, "text")]
    if other:
        raise llm.ModelError(f"a message holds a {other[0]}; unspool reads text alone.")
    return "".join(part.text for part in message.parts)


def _settings(chosen: Any, schema: dict[str, Any] | None) -> Settings:
    shaped = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens")
    form: Form | None = None if schema is None else constrain.json_schema(schema)
    if chosen.within is not None and form is None:
        raise llm.ModelError("-o within closes an answer that has a schema; give one with --schema")
    if chosen.within is not None and form is not None:
        form = form.within(min(chosen.within, chosen.max_tokens))
    return api.settings.Settings(
        **{name: getattr(chosen, name) for name in shaped},
        stop=() if chosen.stop is None else (chosen.stop,),
        seed=secrets.randbits(63) if chosen.seed is None else chosen.seed,
        constraint=form,
    )
