"""`model.generate(…, custom_generate=custom_generate("suffix"))`: transformers' own call, any method behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...api.lm import LM, SCRATCH
from ...core.asks import TARGET
from ...core.chance import Philox
from ...core.claim import Fitting, Method, texts_of
from ...core.cost import Cost
from ...core.errors import BadRequest
from ...core.extra import brought_by
from ...core.law import Law
from ...core.stop import Stop
from ...core.trace import Trace
from ...core.warp.warp import Temperature, Warp
from ...recipes.memory import Remembering
from ...recipes.methods import method, needs
from ...runtime.cache.cached_model import CachedModel
from ...runtime.cache.uncached_model import UncachedModel
from ...runtime.draft_bridge.best_effort import BestEffortDraft
from ...runtime.engine.contracts import Causal
from ...runtime.engine.engine import Engine
from ...runtime.engine.price import price
from ...runtime.hf.hf_network import HFModel, HFNetwork
from ...runtime.hf.load import hf_vocabulary
from ...runtime.hf.probe import RunPlan, find_way
from .generation_rows import GenerateCall, GenerationRow, GenerationRows, read_call

# These remember, from one call to the next, a text that only grows; the nodes of a tree are no such text.
STATEFUL = ("UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor")
# These keep the prompts of the whole batch, by row.
BATCHED = ("EncoderNoRepeatNGramLogitsProcessor", "EncoderRepetitionPenaltyLogitsProcessor")
LEAST, MOST = 2**12, 2**16  # tokens of a cache, unless told: with fewer nothing can be measured, for more rows wait


@dataclass(frozen=True)
class Processed(Warp):
    """Scores go through `processors`, called with the row so far, [1, n], and its scores, [1, vocabulary].

    `padding` is what stands before the prompt in a padded batch: transformers shows it to processors, so it is shown
    here. Cost: one call of the list per law that somebody looks at.
    """

    processors: Any
    padding: tuple[int, ...] = ()

    def start(self, text: Sequence[int]) -> tuple[int, ...]:
        return (*self.padding, *text)

    def step(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        return (*state, token)

    def __call__(self, state: tuple[int, ...], law: Law) -> Law:
        """The law of the processed scores, in float32 as `generate` gives them."""
        scores = law.scores.to(torch.float32, copy=True)[None]  # a copy: processors may write into it
        row = torch.tensor([state], device=scores.device)
        return Law(self.processors(row, scores)[0])


def for_row(processors: Any, row: int, rows: int) -> list[Any]:
    """The processors for one row of a batch; BadRequest for one that cannot be called row by row or out of order."""
    return [_for_row(processor, row, rows) for processor in processors]


def _for_row(processor: Any, row: int, rows: int) -> Any:
    name = type(processor).__name__
    if name in STATEFUL:
        raise BadRequest(
            f"{name} remembers the text from call to call, and drafted tokens are no such text. Leave it out "
            "(guidance_scale, watermarking_config), or call generate without custom_generate."
        )
    if name in BATCHED and rows > 1:
        raise BadRequest(f"{name} keeps all prompts of a batch; give one prompt at a time, or leave it out.")
    if name == "PrefixConstrainedLogitsProcessor":  # it counts rows to know which one it is asked about
        allowed = processor._prefix_allowed_tokens_fn
        return type(processor)(lambda _, tokens: allowed(row, tokens), 1)
    return processor


def custom_generate(
    spec: str | Method,
    *,
    draft: Any = None,
    tokenizer: Any = None,
    streamer: Any = None,
    native: LM | None = None,
    room: int | None = None,
) -> Generate:
    """A function for `model.generate(…, custom_generate=…)` that decodes by any method.

    `spec` names the method (`unspool methods`) or is one. The model is run as it is: no weights are copied. `draft` is
    another transformers model with the same tokens, for methods that ask one; `tokenizer` is needed by methods that
    read what they write. `streamer` hears the text as it is written: transformers hands neither its own `streamer=` nor
    `assistant_model=` to a function of others, so give them here. `native` is the same model from `unspool.load`, to be
    run in place of the one that is given. `room` is how many tokens the cache holds.

    Processors and stopping criteria are called row by row, and a text ends where the model's context does. Sampling is
    seeded from torch's own generator, so `torch.manual_seed` decides the text, whatever is drafted.
    """
    if isinstance(spec, str):
        for need in needs(spec):
            if need == "draft" and draft is None and (native is None or native.draft is None):
                raise BadRequest(f"the method {spec!r} asks a draft model; give one: custom_generate(…, draft=model)")
            if need == "small" and (native is None or need not in native.models()):
                raise BadRequest(
                    f"the method {spec!r} asks a third model, which drafts for the second; give all of them: "
                    "custom_generate(…, native=unspool.load(…, draft=…, small=…))"
                )
    return Generate(method(spec), draft, tokenizer, streamer, native, room)


@dataclass
class Runtime:
    """A transformers model, probed once, with a cache that is laid out anew where a larger one is needed."""

    model: Any
    reader: HFModel
    way: RunPlan
    room: int | None
    causal: CachedModel | UncachedModel | None = None

    @staticmethod
    def of(model: Any, room: int | None) -> Runtime:
        """Find out how the model can be run."""
        reader = HFModel(model)
        return Runtime(model, reader, find_way(reader), room)

    def holding(self, tokens: int, longest: int) -> Causal:
        """The model with room for so many tokens, or at least for the longest text: others may have to wait for it."""
        if not self.way.cached:
            self.causal = self.causal or UncachedModel(self.reader, self.way.note)
            return self.causal
        room = self.room or max(longest, min(tokens, MOST), LEAST)
        if not isinstance(self.causal, CachedModel) or self.causal.room < room:
            self.causal = CachedModel(HFNetwork(self.reader, room, self.way.mask, self.way.note))
        return self.causal


class Generate:
    """What `custom_generate` returns: callable as transformers calls it; `traces` are those of the last call's rows."""

    def __init__(
        self, made: Method, draft: Any, tokenizer: Any, streamer: Any, native: LM | None, room: int | None
    ) -> None:
        self.method, self.draft, self.tokenizer, self.streamer = made, draft, tokenizer, streamer
        self.native, self.room = native, room
        self.traces: list[Trace] = []
        self._runtimes: list[Runtime] = []  # of the models that were run last: probing takes some forwards
        self._prices: dict[str, Cost] = {}

    def __call__(  # the names and the open end are those of transformers
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        **model_kwargs: Any,
    ) -> Any:
        """Write after every row, and return what `generate` is to return."""
        if synced_gpus:
            raise BadRequest("synced_gpus is for models spread over processes, which unspool does not run.")
        call = read_call(model, input_ids, stopping_criteria, generation_config, model_kwargs)
        heard = streamer
        if heard is None and self.streamer is not None:  # `generate` shows the prompt to one that it hands on
            heard = self.streamer
            heard.put(input_ids.cpu())
        rows = self._submitted(model, call, logits_processor, heard)
        rows.run()
        self.traces = [row.job.trace for row in rows.rows]
        sequences = rows.sequences(input_ids)
        return _as_dict(call, rows, sequences) if call.as_dict else sequences

    def _submitted(self, model: Any, call: GenerateCall, processors: Any, streamer: Any) -> GenerationRows:
        made = self.method
        spare = SCRATCH + texts_of(made) * call.most
        longest = max(len(prompt.tokens) for prompt in call.prompts) + spare
        models = self._models(model, longest * len(call.prompts), longest)
        own = isinstance(made, Remembering) and made.scope == "batch" and not made.file  # then every row has its own
        if isinstance(made, Fitting) and not (own and self.tokenizer is None):
            if self.tokenizer is None:
                raise BadRequest("this method reads what it writes; give custom_generate(…, tokenizer=tokenizer)")
            made = made.fit(hf_vocabulary(self.tokenizer, models[TARGET].vocab))
        engine = Engine(models, lambda name: self._price(name, models[name]))
        seed = int(torch.randint(2**62, ())) if call.sampled else 0
        context = models[TARGET].context
        rows: list[GenerationRow] = []
        for number, prompt in enumerate(call.prompts):
            listed = _transformers().LogitsProcessorList(for_row(processors, number, len(call.prompts)))
            shaped: Warp = Processed(listed, prompt.padding)
            warp = shaped if call.sampled else shaped | Temperature(0)
            room = min(len(prompt.tokens) + spare, models[TARGET].room or longest)
            most = call.most if context is None else min(call.most, context - len(prompt.tokens))
            stop = Stop(tokens=call.ends, most=most, spare=SCRATCH)
            job = engine.submit(made, prompt.tokens, Philox(seed, number), warp, stop, room, call.laws)
            rows.append(GenerationRow(job, prompt, shaped, call.laws))
        return GenerationRows(call, engine, rows, streamer)

    def _models(self, model: Any, tokens: int, longest: int) -> dict[str, Causal]:
        if self.native is not None:
            if self.native.model.vocab != HFModel(model).vocab:
                raise BadRequest(
                    f"{self.native.name} has other tokens than {type(model).__name__}; load the same model."
                )
            return self.native.models()
        models = {TARGET: self._runtime(model).holding(tokens, longest)}
        if self.draft is not None:
            runtime = self._runtime(self.draft)
            if runtime.reader.vocab != models[TARGET].vocab:
                raise BadRequest(
                    f"the draft model has {runtime.reader.vocab} tokens, the target {models[TARGET].vocab}; give one "
                    "with the same tokenizer, or use unspool.load, which relates different ones."
                )
            models["draft"] = BestEffortDraft(runtime.holding(tokens, longest))
        return models

    def _runtime(self, model: Any) -> Runtime:
        for known in self._runtimes:
            if known.model is model and (known.reader.device, known.reader.dtype) == (model.device, model.dtype):
                return known
        self._runtimes = [*self._runtimes[-1:], Runtime.of(model, self.room)]
        return self._runtimes[-1]

    def _price(self, name: str, model: Causal) -> Cost:
        if name not in self._prices:
            self._prices[name] = price(model, None if self.native is None else self.native.key)
        return self._prices[name]


def _transformers() -> Any:
    return brought_by("hf", "transformers", "custom_generate")


def _as_dict(call: GenerateCall, rows: GenerationRows, sequences: Tensor) -> Any:
    scores = rows.columns(GenerationRow.processed) if call.scores else None
    logits = rows.columns(GenerationRow.raw) if call.logits else None
    return _transformers().generation.GenerateDecoderOnlyOutput(sequences=sequences, scores=scores, logits=logits)
