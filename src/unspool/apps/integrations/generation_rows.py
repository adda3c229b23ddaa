"""The rows of a batch as they are written: cut by stopping criteria, shown to a streamer column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.law import NEVER, Law
from ...core.warp.warp import Warp
from ...runtime.engine.engine import Engine
from ...runtime.engine.job import ENDED, Job

# What `generate` itself adds to the arguments of a forward, and what a runtime of ours works out by itself.
USUAL = frozenset(
    ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep", "cache_position")
)


@dataclass(frozen=True)
class Prompt:
    """A row of a batch: its tokens, and the padding on their left."""

    padding: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class GenerateCall:
    """What is to be written after which prompts, and what of it is to be returned.

    `criteria` are the stopping criteria besides lengths and ends of text; `pad` fills rows that ended before others,
    None where rows go on until all have ended, as they do where no token ends a text.
    """

    prompts: tuple[Prompt, ...]
    most: int
    ends: frozenset[int]
    pad: int | None
    criteria: tuple[Any, ...]
    sampled: bool
    as_dict: bool
    scores: bool
    logits: bool

    @property
    def laws(self) -> bool:
        """Whether anybody looks at the laws of what is written."""
        return self.scores or self.logits


def read_call(model: Any, rows: Tensor, criteria: Any, config: Any, extra: Mapping[str, Any]) -> GenerateCall:
    """What the arguments of a `custom_generate` function ask for; BadRequest where that cannot be had."""
    _refuse(model, config, extra)
    prompts = tuple(_prompts(rows, extra.get("attention_mask"), extra.get("position_ids")))
    ends = [int(token) for rule in criteria if hasattr(rule, "eos_token_id") for token in rule.eos_token_id.flatten()]
    lengths = [int(rule.max_length) for rule in criteria if hasattr(rule, "max_length")]
    most = min([*lengths, config.max_length]) - rows.shape[1]
    if most < 1:
        raise BadRequest(f"the prompt has {rows.shape[1]} tokens and max_length leaves no room; raise max_new_tokens.")
    as_dict = bool(config.return_dict_in_generate)
    return GenerateCall(
        prompts=prompts,
        most=most,
        ends=frozenset(ends),
        pad=_pad(config) if ends else None,
        criteria=tuple(r for r in criteria if not hasattr(r, "eos_token_id") and not hasattr(r, "max_length")),
        sampled=bool(config.do_sample),
        as_dict=as_dict,
        scores=as_dict and bool(config.output_scores),
        logits=as_dict and bool(config.output_logits),
    )


def _refuse(model: Any, config: Any, extra: Mapping[str, Any]) -> None:
    if model.config.is_encoder_decoder:
        raise BadRequest(f"{type(model).__name__} has an encoder; unspool decodes models that read text left to right.")
    if (config.num_beams or 1) > 1:
        raise BadRequest(
            f"num_beams={config.num_beams} is transformers' own search; use custom_generate('beam:width=4')"
        )
    for name in ("output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise BadRequest(
                f"{name} cannot be had from a custom_generate of unspool; ask for scores or logits, or none."
            )
    cache = extra.get("past_key_values")
    if cache is not None and int(cache.get_seq_length()) > 0:
        raise BadRequest("past_key_values holds a text already; give the whole text as input_ids and no cache.")
    for name, value in extra.items():
        if name not in USUAL and isinstance(value, Tensor):
            raise BadRequest(f"{name} was given, but unspool reads tokens alone; give input_ids and attention_mask.")


def _prompts(rows: Tensor, mask: Tensor | None, places: Tensor | None) -> list[Prompt]:
    seen = torch.ones_like(rows) if mask is None else mask
    if seen.shape != rows.shape:
        raise BadRequest(
            f"attention_mask is {list(seen.shape)}, input_ids {list(rows.shape)}; expected the same shape."
        )
    counted = (seen.long().cumsum(-1) - 1).clamp_min(0).to(rows.device)
    if places is not None and (places.shape != rows.shape or bool(((places != counted) & (seen != 0)).any())):
        raise BadRequest("position_ids are not those of the attention mask; leave them out, they are worked out here.")
    prompts: list[Prompt] = []
    for tokens, shown in zip(rows.tolist(), seen.tolist(), strict=True):
        first = next((i for i, one in enumerate(shown) if one), len(shown))
        if first == len(shown) or not all(shown[first:]):
            raise BadRequest("attention_mask has holes, or padding on the right; pad on the left: padding_side='left'.")
        prompts.append(Prompt(tuple(tokens[:first]), tuple(tokens[first:])))
    return prompts


def _pad(config: Any) -> int:
    """What fills a row that has ended: the pad token, as `generate` has chosen one if none was given."""
    chosen = getattr(config, "_pad_token_tensor", None)
    given = config.pad_token_id if chosen is None else int(chosen)
    if given is None:
        raise BadRequest("there is no pad token for rows that end before others; set pad_token_id.")
    return int(given)


@dataclass
class GenerationRow:
    """One row: its tokens so far, the model's own laws if anybody looks, and the length at which it is to end."""

    job: Job
    prompt: Prompt
    shaped: Warp
    looks: bool
    tokens: list[int] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    end: int | None = None

    def read(self, criteria: Sequence[Any]) -> None:
        """Take what was emitted; the row ends with the first token after which some criterion holds."""
        while self.job.emitted:
            emit = self.job.emitted.popleft()
            for i, token in enumerate(emit.tokens):
                self.tokens.append(token)
                if self.looks:
                    self.laws.append(emit.before[i])
                if self.end is None and any(self._meets(rule) for rule in criteria):
                    self.end = len(self.tokens)
        if self.job.state == ENDED:
            self.job.result()  # raises what went wrong
            self.end = len(self.tokens) if self.end is None else self.end

    def _meets(self, rule: Any) -> bool:
        row = torch.tensor([[*self.prompt.padding, *self.prompt.tokens, *self.tokens]])
        return bool(torch.as_tensor(rule(row, None)).all())

    def raw(self, place: int) -> Tensor:
        """The model's own scores of the token at a place."""
        return self.laws[place].scores

    def processed(self, place: int) -> Tensor:
        """The scores of the token at a place after all processors."""
        state = self.shaped.start((*self.prompt.tokens, *self.tokens[:place]))
        return self.shaped(state, self.laws[place]).scores


@dataclass
class GenerationRows:
    """All rows of a call, until the last has ended; those that ended before wait behind padding, if there is any."""

    call: GenerateCall
    engine: Engine
    rows: list[GenerationRow]
    streamer: Any
    shown: int = 0

    def run(self) -> None:
        """Write them, and cut them where they end."""
        try:
            more = True
            while more and not self._over:
                more = self.engine.step()
                for row in self.rows:
                    if row.end is None or self.call.pad is None:
                        row.read(self.call.criteria)
                    if row.end is not None and self.call.pad is not None:
                        self.engine.cancel(row.job)
                        del row.tokens[row.end :]
                self._stream()
        finally:
            for row in self.rows:
                self.engine.cancel(row.job)
        for row in self.rows:
            del row.tokens[self.length :]
        if self.streamer is not None:
            self.streamer.end()

    @property
    def length(self) -> int:
        """How long the longest row is; right once all have an end."""
        return max(row.end or 0 for row in self.rows)

    @property
    def _ended(self) -> bool:
        return all(row.end is not None for row in self.rows)

    @property
    def _over(self) -> bool:
        """Where nothing pads, rows go on until all have ended, as in transformers."""
        return self._ended and (self.call.pad is not None or min(len(r.tokens) for r in self.rows) >= self.length)

    def _stream(self) -> None:
        """Show every column in which all rows have a token, or padding for those that have ended."""
        if self.streamer is None:
            return
        padded = self.call.pad is not None
        sure = min(math.inf if padded and row.end is not None else len(row.tokens) for row in self.rows)
        columns = int(min(sure, self.length if self._ended else math.inf))
        for column in range(self.shown, columns):
            self.streamer.put(torch.tensor([self._at(row, column) for row in self.rows]))
        self.shown = max(self.shown, columns)

    def _at(self, row: GenerationRow, column: int) -> int:
        return row.tokens[column] if column < len(row.tokens) else self.call.pad or 0

    def sequences(self, given: Tensor) -> Tensor:
        """The rows as they were given with what was written, [rows, tokens]."""
        new = [[self._at(row, column) for column in range(self.length)] for row in self.rows]
        return torch.cat((given, torch.tensor(new, device=given.device, dtype=given.dtype)), 1)

    def columns(self, of: Callable[[GenerationRow, int], Tensor]) -> tuple[Tensor, ...]:
        """Scores as transformers gives them: one [rows, vocabulary] per new token; padding is certain of itself."""
        found: list[Tensor] = []
        for column in range(self.length):
            here = [of(row, column) if column < len(row.tokens) else None for row in self.rows]
            like = next(scores for scores in here if scores is not None)
            padding = torch.full_like(like, NEVER).index_fill(
                0, torch.tensor(self.call.pad or 0, device=like.device), 0.0
            )
            found.append(torch.stack([padding if scores is None else scores.float() for scores in here]))
        return tuple(found)
