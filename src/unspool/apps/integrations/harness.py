"""lm-evaluation-harness with any model and method of unspool: the model `unspool` of its registry.

    python -m unspool.apps.integrations run --model unspool --model_args pretrained=smollm2,method=suffix --tasks …

is `lm_eval run …` after this module was imported, which is how the harness learns of models that it does not bring.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import lm_eval.api.model as api
import lm_eval.utils as windows
from lm_eval.api.registry import register_model
from tqdm import tqdm

from ...api.likelihood import Pair, likelihoods
from ...api.lm import LM
from ...api.loader import load
from ...api.settings import Settings
from ...core.errors import BadRequest
from ...core.trace import Trace
from ...recipes.names import checked

MOST = 256  # tokens of an answer, unless the task says how many
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens")
THEIRS = "cuda:0"  # the device that the harness names if nobody does, even where there is none
DRAWS = ("temperature", "top_p", "top_k", "min_p")


@register_model("unspool")
class HarnessModel(api.LM):  # type: ignore[misc]  # lm_eval is skipped by the type checker
    """A model of unspool as the harness sees it.

    `pretrained` is a name of the catalogue, a file, a folder or a Hub id; `method` is how answers are written, its
    options parted by semicolons, as in lookup:ngram=2;depth=8. Likelihoods are the model's own and know no method.
    """

    def __init__(
        self,
        pretrained: str = "smollm2",
        method: str = "plain",
        draft: str | None = None,
        small: str | None = None,
        dtype: str = "auto",
        device: str | None = None,
        runtime: str = "auto",
        quantization: str = "auto",
        batch_invariant: bool | int | None = None,
        kv_cache_tokens: int | None = None,
        adapter: str | None = None,
        seed: int = 0,
        batch_size: int | str = 8,
        max_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.method, _ = checked(method.replace(";", ","))  # before a model is read
        where = "auto" if device in (None, THEIRS) else device
        self.lm = load(
            pretrained,
            dtype=dtype,
            device=where,
            runtime=runtime,
            quantization=quantization,
            batch_invariant=batch_invariant,
            kv_cache_tokens=kv_cache_tokens,
            draft=draft,
            small=small,
            adapter=adapter,
        )
        self.seed = seed
        self.total = Trace()  # of all texts that were written
        self.together = int(batch_size) if str(batch_size).isdecimal() else max_batch_size or 8  # "auto" is ours

    @staticmethod
    def of(lm: LM, method: str = "plain", seed: int = 0, together: int = 8) -> HarnessModel:
        """The same for a model that is loaded already, to be given to `simple_evaluate(model=…)`."""
        made = object.__new__(HarnessModel)
        api.LM.__init__(made)
        made.lm, made.method, made.seed, made.together = lm, method, seed, together
        made.total = Trace()
        return made

    def get_model_info(self) -> dict[str, Any]:
        """What the harness keeps in its results beside the scores: by which method, how fast, in how many forwards."""
        written = self.total
        return {
            "unspool_model": self.lm.name,
            "unspool_method": self.method,
            "unspool_tokens": written.tokens,
            "unspool_tokens_per_forward": written.tokens_per_forward if written.tokens else None,
            "unspool_draft_acceptance_rate": written.draft_acceptance_rate,
            "unspool_seconds": written.seconds_total,
        }

    # ---- what the harness asks

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """log p of each continuation after its context, and whether greedy decoding would write it."""
        pairs = [self._pair(*request.args) for request in requests]
        found = [(float(one.logprob), one.greedy) for one in likelihoods(self.lm.model, pairs, self.together)]
        for request, one in zip(requests, found, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, one)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """log p of each text as a whole, in windows as long as the model reads, each token once."""
        found: list[float] = []
        for request in requests:
            (text,) = request.args
            tokens = list(self._encode(text))
            longest = self.lm.model.context or len(tokens) + 1
            parts = windows.get_rolling_token_windows(tokens, self._first, longest, 1)
            pairs = [Pair(tuple(a), tuple(b)) for a, b in map(windows.make_disjoint_window, parts)]
            found.append(sum(one.logprob for one in likelihoods(self.lm.model, pairs, self.together)))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """An answer to each, up to the first of its stop strings; requests of the same settings share batches."""
        answers: dict[int, str] = {}
        bar = tqdm(total=len(requests), desc="unspool", unit="text", disable=disable_tqdm)
        groups: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(number)
        for numbers in groups.values():
            settings = settings_of(requests[numbers[0]].args[1], self.seed)
            for start in range(0, len(numbers), self.together):
                part = numbers[start : start + self.together]
                prompts = [self._prompt(requests[number].args[0], settings.max_tokens) for number in part]
                for number, output in zip(part, self.lm.batch(prompts, settings, self.method), strict=True):
                    answers[number] = output.text
                    self.total += output.trace
                    bar.update(1)
                    self.cache_hook.add_partial("generate_until", requests[number].args, output.text)
        bar.close()
        print(f"unspool, {self.method}: {self.total}", file=sys.stderr)  # what a method changes is this, not the scores
        return [answers[number] for number in range(len(requests))]

    # ---- chat

    @property
    def tokenizer_name(self) -> str:
        """What the harness tells caches of requests apart by."""
        return self.lm.name.replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str:
        """The model's own template."""
        return self.lm.vocabulary.chat_template or ""

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Messages as the text that the model was tuned on."""
        return self.lm.vocabulary.chat(chat_history, reply=add_generation_prompt)

    # ---- tokens

    @property
    def _first(self) -> int:
        """What stands before a text of which nothing is known."""
        vocabulary = self.lm.vocabulary
        return vocabulary.bos if vocabulary.bos is not None else min(vocabulary.eos)

    def _encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, without the one that some models put first."""
        tokens = self.lm.vocabulary.encode(text)
        return tokens[1:] if self.lm.vocabulary.add_bos else tokens

    def _pair(self, context: str, continuation: str) -> Pair:
        """Both in tokens, as they are if the text is written in one; spaces between belong to what follows.

        Context that the model has no room for is cut at its beginning.
        """
        bare = context.rstrip()
        if bare:
            continuation, context = context[len(bare) :] + continuation, bare
        whole = self._encode(context + continuation)
        split = min(len(self._encode(context)), len(whole) - 1) if context else 0
        before, after = whole[:split], whole[split:]
        lead = (self._first,) if self.lm.vocabulary.add_bos or not before else ()
        if self.lm.model.context is not None:
            left = self.lm.model.context + 1 - len(after) - len(lead)
            before = before[max(0, len(before) - left) :]
        return Pair((*lead, *before) or (self._first,), after)

    def _prompt(self, text: str, most: int) -> tuple[int, ...]:
        """The end of a context that leaves room for the answer."""
        tokens = self.lm.vocabulary.encode(text) or (self._first,)
        if self.lm.model.context is None:
            return tokens
        return tokens[max(0, len(tokens) - max(1, self.lm.model.context - most)) :]


def settings_of(asked: Mapping[str, Any], seed: int) -> Settings:
    """How a task wants its answers: `until`, how many tokens, and how to draw if `do_sample`."""
    known = {"until", "do_sample", *LENGTHS, *DRAWS}
    unknown = sorted(set(asked) - known)
    if unknown:
        raise BadRequest(f"generation_kwargs has {', '.join(unknown)}; unspool reads {', '.join(sorted(known))}.")
    until = asked.get("until") or ()
    stop = (until,) if isinstance(until, str) else tuple(until)
    lengths = [int(asked[name]) for name in LENGTHS if asked.get(name) is not None]
    drawn = {name: asked[name] for name in DRAWS if asked.get(name) is not None} if asked.get("do_sample") else {}
    if asked.get("do_sample"):
        drawn.setdefault("temperature", 1.0)
    return Settings(stop=tuple(s for s in stop if s), max_tokens=min(lengths, default=MOST), seed=seed, **drawn)
