"""One call of transformers' `generate`, as it reaches a `custom_generate` function: what it asks for, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.errors import BadRequest

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
