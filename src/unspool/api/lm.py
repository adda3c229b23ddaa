"""A loaded language model: text in, text out, by any method."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from .. import api, rules, runtime
from ..core.asks import TARGET
from ..core.chance import Philox
from ..core.claim import Branching, Learning, Method, Watchable, overheard
from ..core.cost import Cost
from ..core.errors import BadRequest, ContextExceeded
from ..core.reported_law import MOST
from ..loops.speculate import Speculate
from ..models.chat_template import Dialogue
from ..models.vocabulary import Vocabulary
from ..recipes.methods import fitted
from ..runtime.engine.contracts import Causal, FillsBlocks
from ..runtime.engine.engine import Engine
from ..runtime.engine.job import Account
from .settings import Prompt as Prompt
from .settings import Settings, for_one, settled, several, understood
from .writer import Event, Found, Interrupted, Output, Writer

if TYPE_CHECKING:
    from typing_extensions import Unpack  # typing has it from Python 3.11 on

    from ..models.align import Alignment
    from ..runtime.drafter.drafter_model import TrainedDrafter
    from .settings import Given


_LOG = logging.getLogger("unspool")
SCRATCH = 64  # slots a request may need for drafts besides its text
SMOOTH = 0.02  # seconds between what arrives of a stream, if the model is faster than that


@dataclass(repr=False)
class LM:
    """A model with its vocabulary.

    A prompt is a text, which is a user's message where the model has a chat template, a list of messages
    {role, content} for that template (with tools: a `Dialogue`), or tokens.
    `draft` is another model for methods that ask one; the draft's own draft is what cascades call the small model.
    Where tokens differ, drafts are made of those that both have, or by their strings if those are too few:
    `alignments` tells which, by the names of the models. `key` names model and machine for what is measured once and
    kept, `note` says what was chosen for this machine. `drafter` is a trained one, which reads this model's states.
    """

    name: str
    model: Causal
    vocabulary: Vocabulary
    draft: LM | None = None
    key: str | None = None
    note: str | None = None
    drafter: TrainedDrafter | None = None

    alignments: dict[str, Alignment] = field(init=False, default_factory=dict)
    _drafts: dict[str, Causal] = field(init=False, default_factory=dict)
    _costs: dict[str, Cost] = field(init=False, default_factory=dict)
    _lock: Lock = field(init=False, default_factory=Lock, compare=False)  # of agenerate and astream

    def __post_init__(self) -> None:
        if isinstance(self.model, FillsBlocks):
            self.vocabulary = self.vocabulary.in_blocks(self.model.filling.together)
        if self.draft is not None:
            self.alignments = api.drafting.alignments_of(self)
            self._drafts = api.drafting.drafts_of(self)
        if self.drafter is not None:
            self._drafts["draft"] = api.drafting.following(self.drafter)

    def generate(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> Output:
        """One text, by a method or its name; a text is put into the chat template, if there is one, unless `raw`."""
        asked = for_one(settings, given)
        output = self.batch([prompt], asked, method, raw=raw)[0]
        if asked.constraint is not None and api.finished.cut_short(output, asked, self.vocabulary):
            output.writer.note = output.note or api.finished.CUT
        if output.note:
            _LOG.warning(output.note)
        return output

    def samples(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> list[Output]:
        """`settings.n` texts for one prompt, which is read once."""
        return self.batch([prompt], settled(settings, given), method, raw=raw)

    def batch(
        self,
        prompts: Sequence[Prompt],
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> list[Output]:
        """Texts for many prompts in one batch, each the same as alone; `settings.n` in a row for each."""
        engine = Engine(self.models(), self.price)
        asked = [self.asked(each, raw) for each in several(prompts)]
        writers = self.writers(engine, asked, settled(settings, given), method)
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
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> Generator[Event, None, Output]:
        """One text, event by event; the generator's return value is the `Output`. Closing it frees everything."""
        engine = Engine(self.models(), self.price)
        (writer,) = self.writers(engine, [self.asked(prompt, raw)], for_one(settings, given), method, SMOOTH)
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

    def chat(
        self,
        messages: str | Sequence[Mapping[str, str]] | Dialogue,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        system: str | None = None,
        **given: Unpack[Given],
    ) -> Output:
        """The answer to a message, or to a conversation; `system` is said before. For models with a chat template."""
        if self.vocabulary.chat_template is None:
            raise BadRequest(f"{self.name} has no chat template; `generate` continues a text", param="messages")
        told = self.asked(messages)
        if system is not None and isinstance(told, list):
            told = [{"role": "system", "content": system}, *told]
        elif system is not None:
            raise BadRequest("a Dialogue has its own system message; put it there", param="system")
        return self.generate(told, settings, method, **given)

    async def agenerate(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> Output:
        """`generate` for programs that use asyncio: forwards run in another thread, for one text at a time."""
        return await api.awaited.generate(
            self._lock, partial(self.generate, prompt, settings, method, raw=raw, **given)
        )

    def astream(
        self,
        prompt: Prompt,
        settings: Settings = Settings(),  # noqa: B008
        method: str | Method = "plain",
        *,
        raw: bool = False,
        **given: Unpack[Given],
    ) -> AsyncGenerator[Event, None]:
        """`stream` for programs that use asyncio; texts that are streamed together take turns."""
        return api.awaited.events(self._lock, self.stream(prompt, settings, method, raw=raw, **given))

    def asked(self, prompt: Prompt, raw: bool = False) -> Prompt:
        """The prompt as the model wants it: a text is a user's message if there is a chat template, unless `raw`."""
        if raw or not isinstance(prompt, str) or self.vocabulary.chat_template is None:
            return prompt
        if not prompt:
            raise BadRequest("the prompt is empty: give some text to go on from", param="prompt")
        return [{"role": "user", "content": prompt}]

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """The tokens of a prompt; of a text, those of the text as it stands (`asked` puts it into the template)."""
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

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of some tokens; control tokens are silent."""
        return self.vocabulary.decode(tokens)

    def __repr__(self) -> str:
        context = "" if self.model.context is None else f", {self.model.context} of context"
        draft = "" if self.draft is None else f", draft={self.draft.name!r}"
        chosen = "" if self.note is None else f", {self.note}"
        return f"LM({self.name!r}, {self.model.vocab} tokens{context}{draft}{chosen})"

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
        """Queue texts in an engine that somebody else steps: `settings.n` in a row for each prompt, as it stands.

        `patience` is after how many seconds somebody wants to see what was written, `account` whose texts they are.
        """
        settings.validate()
        decoder, around = fitted(spec, self.vocabulary, self._drafts), None
        warp, stop = settings.warp(self.vocabulary), settings.stop_rule(self.vocabulary)
        writes, logprobs, behind, skip = settings.max_tokens, settings.logprobs, 0, 0
        if settings.suffix:
            around = api.infill.infill(settings, decoder, self.vocabulary)
            decoder, warp, stop, writes, behind, *_ = around
        top = -1 if logprobs is None else logprobs if logprobs <= MOST else math.inf  # whole laws where more is asked
        texts = decoder.texts if isinstance(decoder, Branching) else 1
        search, found = decoder if isinstance(decoder, Watchable) else None, None
        ranks = search is not None and search.RANKS
        resident = isinstance(decoder, Speculate) and decoder.draft.verifies is not None  # the model drafts, if it can
        note = api.ignored.ignored(decoder, self.model) if resident or isinstance(self.model, FillsBlocks) else None
        writers = list[Writer]()
        for prompt in several(prompts):
            tokens = self.encode(prompt) if around is None else around.around(self.encode(prompt))
            if settings.heal:
                tokens, warp, skip = api.healing.healed(settings, prompt, tokens, self.vocabulary)
            turns = isinstance(prompt, Dialogue) or (prompt and isinstance(prompt[0], Mapping))
            most, room = self._most(tokens, writes, texts, "messages" if turns else "prompt", engine.most, behind)
            end = replace(stop, most=most, spare=room - len(tokens) - most, skip=skip, told=top)
            for stream in range(settings.n):
                chance, ranked = Philox(settings.seed, stream), ranks and stream > 0
                if not ranked:
                    heard = decoder
                    if search is not None:  # it tells what it has found
                        handed = settings.n if ranks and settings.n > 1 else 0
                        found = Found(search.SCORES, handed, self.vocabulary.eos)
                        heard = overheard(decoder, found.tell)
                        heard = heard if settings.seconds is None else rules.search.CutShort(heard)
                    job = engine.submit(heard, tokens, chance, warp, end, room, top > MOST, patience, account, logprobs)
                    job.trace.warm = decoder.draft.warm if isinstance(decoder, Speculate) else 0
                if isinstance(decoder, Learning) and stream and not ranked:
                    job.after = writers[-1].job
                streamed, eos = self.vocabulary.stream(settings.stop, skip), self.vocabulary.eos
                writers.append(Writer(job, streamed, logprobs, found, eos, note, stream if ranked else 0))
        return writers

    def _refuse_unknown(self, tokens: tuple[int, ...]) -> None:
        known, ends = self.model.vocab, (min(tokens), max(tokens)) if tokens else ()  # a tenth of a look at each
        if (bad := next((x for x in ends if not 0 <= x < known), None)) is not None:
            told = f"token {bad:d}" if abs(bad) < 10**30 else "a token"  # Python prints no number of 5000 digits
            raise BadRequest(f"{told} of the prompt is none of the model's, which are 0 to {known - 1}", "prompt")

    def _refuse_far_too_long(self, text: str, given: str) -> None:
        """Refuse a text that cannot fit, however it is spelt, before it is read: that takes a second per megabyte."""
        # there are no more tokens than bytes, and no more than four of those in a character
        if 4 * len(text) > self._longest and (least := self.vocabulary.at_least(text)) > self._longest:
            raise ContextExceeded(
                f"This model's maximum context length is {self._longest:.0f} tokens. However, you requested at least "
                f"{least} tokens in the {given}. Please reduce the length of the {given}.",
                given,
            )

    @property
    def _longest(self) -> float:
        return min((limit for limit in (self.model.context, self.model.room) if limit is not None), default=math.inf)

    def _most(
        self, tokens: tuple[int, ...], most: int, texts: int, given: str, held: float, behind: int = 0
    ) -> tuple[int, int]:
        """How many tokens may follow these, and how many slots that may take with so many texts at a time.

        `given` is what the prompt is called in a request, `held` how much of the cache one request may hold. With
        tokens `behind` the text all of it has to fit.
        """
        longest, size = self._longest, len(tokens)
        if size + behind + (most if behind else 1) > min(longest, held):
            raise ContextExceeded(_overlong(self.model.context, longest, held, size, most + behind, given), given)
        most = int(min(most, longest - size, held - size))
        slots = size + behind + most * texts + SCRATCH
        return most, int(min(slots, self.model.room or math.inf, held))


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
