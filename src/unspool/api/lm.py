"""A loaded language model: text in, text out, by any method; and a word for all that people try as a prompt."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import api, rules, runtime
from ..core.asks import TARGET
from ..core.chance import Philox
from ..core.claim import Method, overheard, texts_of
from ..core.cost import Cost
from ..core.errors import BadRequest, ContextExceeded
from ..core.reported_law import MOST
from ..models.chat import Dialogue
from ..models.vocabulary import Vocabulary
from ..recipes.methods import fitted
from ..runtime.engine.contracts import Causal
from ..runtime.engine.engine import Engine
from ..runtime.engine.job import Account
from .settings import Settings
from .writer import Event, Interrupted, Output, SearchResult, Writer, best

if TYPE_CHECKING:
    from ..models.align import Alignment
    from ..runtime.drafter.drafter_model import TrainedDrafter


Prompt: TypeAlias = str | Sequence[int] | Sequence[Mapping[str, str]] | Dialogue
KINDS = "a text, a list of messages {role, content}, or a list of tokens"
SCRATCH = 64  # slots a request may need for drafts besides its text
SMOOTH = 0.02  # seconds between what arrives of a stream, if the model is faster than that


def understood(given: Any) -> str | Dialogue | tuple[int, ...]:
    """A prompt as a text, a dialogue or tokens; refuses what is none of them, and says which call takes it."""
    if isinstance(given, (str, Dialogue)):
        return given
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise _refused("the prompt is bytes; decode them first, as in data.decode('utf-8')")
    if isinstance(given, Mapping):
        raise _refused(f"the prompt is one mapping; give {KINDS}, as in [{{'role': 'user', 'content': 'Hello'}}]")
    if hasattr(given, "tolist"):
        raise _refused(f"the prompt is a {type(given).__name__}; give its tokens as a list: .tolist()")
    if not isinstance(given, Sequence):
        raise _refused(f"the prompt is {given!r:.80} ({type(given).__name__}); expected {KINDS}")
    return _listed(given)


def several(given: Any) -> list[Any]:
    """The prompts of a batch; refuses what is one prompt, or none."""
    one = isinstance(given, (str, bytes, bytearray, Mapping, Dialogue))
    if one or not isinstance(given, Iterable):
        found = f"a {type(given).__name__}" if one else f"{given!r:.80} ({type(given).__name__})"
        raise _refused(f"the prompts of a batch are {found}; give a list of them, or one prompt to `generate`")
    return list(given)


def _listed(given: Sequence[Any]) -> Dialogue | tuple[int, ...]:
    if not given:
        raise _refused("the prompt is empty: give some text to go on from")
    if all(isinstance(part, int) and not isinstance(part, bool) for part in given):
        return tuple(given)
    if all(isinstance(part, Mapping) for part in given):
        return Dialogue(given)
    if all(isinstance(part, (str, Sequence, Dialogue)) and not isinstance(part, bytes) for part in given):
        raise _refused("the prompt is a list of prompts; `batch` answers each of them, `generate` and `stream` one")
    odd = [part for part in given if not isinstance(part, (str, int, Mapping)) or isinstance(part, bool)]
    about = f"{odd[0]!r:.80} ({type(odd[0]).__name__}) in it" if odd else "parts of different kinds"
    raise _refused(f"the prompt is a list with {about}; expected {KINDS}")


def _refused(why: str) -> BadRequest:
    return BadRequest(why, param="prompt")


@dataclass
class LM:
    """A model with its vocabulary.

    A prompt is a text, a list of messages {role, content} for the chat template (with tools: a `Dialogue`), or tokens.
    `draft` is another model for methods that ask one; the draft's own draft is what cascades call the small model.
    Where tokens differ, drafts are made of those that both have, or by their strings if those are too few:
    `alignments` tells which, by the names of the models. `key` names model and machine for what is measured once and
    kept. `drafter` is a trained drafter in place of a draft model: it reads this model's hidden states.
    """

    name: str
    model: Causal
    vocabulary: Vocabulary
    draft: LM | None = None
    key: str | None = None
    drafter: TrainedDrafter | None = None

    alignments: dict[str, Alignment] = field(init=False, default_factory=dict)
    _drafts: dict[str, Causal] = field(init=False, default_factory=dict)
    _costs: dict[str, Cost] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.draft is not None:
            self.alignments = api.drafting.alignments_of(self)
            self._drafts = api.drafting.drafts_of(self)
        if self.drafter is not None:
            self._drafts["draft"] = api.drafting.following(self.drafter)

    def generate(self, prompt: Prompt, settings: Settings = Settings(), method: str | Method = "plain") -> Output:  # noqa: B008
        """One text after a prompt, by the name of a method (`unspool methods`) with its options, or by a method."""
        return self.batch([prompt], replace(settings, n=1), method)[0]

    def samples(self, prompt: Prompt, settings: Settings = Settings(), method: str | Method = "plain") -> list[Output]:  # noqa: B008
        """`settings.n` texts for one prompt, which is read once."""
        return self.batch([prompt], settings, method)

    def batch(
        self,
        prompts: Sequence[Prompt],
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
    ) -> list[Output]:
        """Texts for many prompts in one batch, each the same as alone; `settings.n` in a row for each."""
        engine = Engine(self.models(), self.price)
        writers = self.writers(engine, prompts, settings, method)
        try:
            looked_at = [writer for writer in writers if writer.job.laws]  # which are not to pile up
            while engine.step():
                for writer in looked_at:
                    writer.read()
            return [writer.output() for writer in writers]
        except KeyboardInterrupt:
            raise Interrupted([writer.broken_off(engine) for writer in writers]) from None
        finally:
            for writer in writers:
                engine.cancel(writer.job)

    def stream(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
    ) -> Generator[Event, None, Output]:
        """One text, event by event; the generator's return value is the `Output`. Closing it frees everything."""
        engine = Engine(self.models(), self.price)
        (writer,) = self.writers(engine, [prompt], replace(settings, n=1), method, SMOOTH)
        try:
            while True:
                more = engine.step()
                yield from writer.read()
                if not more:
                    return writer.output()
        except KeyboardInterrupt:
            raise Interrupted([writer.broken_off(engine)]) from None
        finally:
            engine.cancel(writer.job)

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt."""
        match understood(prompt):
            case str(text):
                self._refuse_far_too_long(text, "prompt")
                tokens = self.vocabulary.encode(text)
            case Dialogue() as dialogue:
                look = partial(self._refuse_far_too_long, given="messages")
                tokens = self.vocabulary.encode_chat(dialogue, look=look)
            case tokens:
                self._refuse_unknown(tokens)
        if not tokens:
            raise BadRequest("the prompt is empty: give some text to go on from", param="prompt")
        return tokens

    def models(self) -> dict[str, Causal]:
        """The models by the names that methods ask for."""
        return {TARGET: self.model, **self._drafts}

    @property
    def priced(self) -> bool:
        """Whether some method has asked what a forward costs."""
        return TARGET in self._costs

    def price(self, name: str = TARGET) -> Cost:
        """What a forward of a model costs by the number of rows; measured when first asked for, which takes seconds."""
        if name not in self._costs and name == "draft" and self.drafter is not None:
            self._costs[name] = runtime.engine.price.measure(self.drafter.alone())
        if name not in self._costs:
            lm = {TARGET: self, "draft": self.draft, "small": self.draft.draft if self.draft else None}[name]
            assert lm is not None  # only models that are there are priced
            self._costs[name] = runtime.engine.price.price(lm.model, lm.key)
        return self._costs[name]

    def writers(
        self,
        engine: Engine,
        prompts: Sequence[Prompt],
        settings: Settings,
        spec: str | Method,
        patience: float = math.inf,
        account: Account | None = None,
    ) -> list[Writer]:
        """Queue texts in an engine that somebody else steps: `settings.n` in a row for each prompt.

        `patience` is after how many seconds somebody wants to see what was written, `account` whose texts they are.
        """
        settings.validate()
        decoder = fitted(spec, self.vocabulary)
        warp, stop = settings.warp(self.vocabulary), settings.stop_rule(self.vocabulary)
        logprobs = settings.logprobs
        looks = logprobs is not None and logprobs > MOST  # more than is reported: then it is the laws that are kept
        texts = texts_of(decoder)
        writers: list[Writer] = []
        for prompt in several(prompts):
            tokens = self.encode(prompt)
            given = "messages" if isinstance(understood(prompt), Dialogue) else "prompt"
            most, room = self._most(tokens, settings.max_tokens, texts, given, engine.most)
            limit = replace(stop, most=most, spare=room - len(tokens) - most)
            for stream in range(settings.n):
                chance = Philox(settings.seed, stream)
                found: list[SearchResult] = []
                heard = overheard(decoder, lambda texts, found=found: found.extend(best(texts)))  # type: ignore[misc]
                if settings.seconds is not None and heard is not decoder:  # it tells what it has found
                    heard = rules.search.CutShort(heard)
                job = engine.submit(heard, tokens, chance, warp, limit, room, looks, patience, account, logprobs)
                writers.append(Writer(job, self.vocabulary.stream(settings.stop), settings.logprobs, found))
        return writers

    def _refuse_unknown(self, tokens: tuple[int, ...]) -> None:
        known = self.model.vocab
        if (bad := next((x for x in tokens if not 0 <= x < known), None)) is not None:
            told = (
                f"token {bad:d}" if abs(bad) < 10**30 else "a token"
            )  # Python prints no number of thousands of digits
            raise BadRequest(f"{told} of the prompt is none of the model's, which are 0 to {known - 1}", "prompt")

    def _refuse_far_too_long(self, text: str, given: str) -> None:
        """Refuse a text that cannot fit, however it is spelt, before it is read: that takes a second per megabyte."""
        least = self.vocabulary.at_least(text)
        if least > self._longest:
            raise ContextExceeded(
                f"This model's maximum context length is {self._longest:.0f} tokens. However, you requested at least "
                f"{least} tokens in the {given}. Please reduce the length of the {given}.",
                given,
            )

    @property
    def _longest(self) -> float:
        return min((limit for limit in (self.model.context, self.model.room) if limit is not None), default=math.inf)

    def _most(self, tokens: tuple[int, ...], most: int, texts: int, given: str, held: float) -> tuple[int, int]:
        """How many tokens may follow these, and how many slots that may take with so many texts at a time.

        `given` is what the prompt is called in a request, `held` how much of the cache one request may hold.
        """
        longest = self._longest
        if len(tokens) >= min(longest, held):
            raise ContextExceeded(_overlong(self.model.context, longest, held, len(tokens), most, given), given)
        most = int(min(most, longest - len(tokens), held - len(tokens)))
        return most, int(min(len(tokens) + most * texts + SCRATCH, self.model.room or math.inf, held))


def _overlong(context: int | None, longest: float, held: float, prompt: int, most: int, given: str) -> str:
    """OpenAI's sentence for a prompt that leaves no room for an answer, by which clients know what to do."""
    why = "" if context is not None and longest >= context else " (what its cache holds: --kv-cache-tokens)"
    if held < longest:
        why = " (what one request may hold of its cache: --share of --kv-cache-tokens)"
    return (
        f"This model's maximum context length is {min(longest, held):.0f} tokens{why}. However, you requested "
        f"{prompt + most} tokens ({prompt} in the {given}, {most} in the completion). Please reduce the length of the "
        f"{given} or completion."
    )
