"""A model of the transformers library as a network: its cache is our pool of slots, its masks are our trees."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from ...core.errors import BadRequest
from ...core.extra import brought_by
from ..cache.kv_pool import KVPool
from ..network.network import Batch, NetworkOutputs, Row


class TreeMask(Protocol):
    """How a model family is told what each token of a tree sees."""

    def __call__(self, seen: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor | dict[str, Tensor]:
        """What goes in as `attention_mask`, from bool [queries, keys] and the positions of both."""


class HFModel:
    """One call of a loaded causal model: tokens in, logits and hidden states of chosen tokens out.

    Whole texts are read with the model's own masks and no cache; that is the truth every other way is measured by.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.config = model.config.get_text_config(decoder=True)
        parameters = inspect.signature(model.forward).parameters
        self._takes = frozenset(parameters)
        self._open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        head = model.get_output_embeddings()
        self.vocab = int(head.weight.shape[0] if head is not None else self.config.vocab_size)
        self.layers = int(self.config.num_hidden_layers)
        self.context = _longest(self.config)

    @property
    def device(self) -> torch.device:
        """Where tokens go in."""
        return torch.device(self.model.device)

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    def takes(self, name: str) -> bool:
        """Whether its forward has this parameter by name."""
        return name in self._takes

    def read(self, texts: Tensor, at: Tensor, want: tuple[int, ...] = ()) -> NetworkOutputs:
        return self(texts, at, want, {"use_cache": False} if self.takes("use_cache") else {})

    @torch.no_grad()  # not inference mode: what it stores is moved and overwritten outside
    def __call__(
        self, tokens: Tensor, at: Tensor, want: tuple[int, ...], given: Mapping[str, object]
    ) -> NetworkOutputs:
        self._refuse_unknown(want)
        at = at.to(self.device)
        extra: dict[str, object] = dict(given)
        sliced = self.takes("logits_to_keep")
        if sliced:
            extra["logits_to_keep"] = at
        if want:
            extra["output_hidden_states"] = True
        if self._open or self.takes("return_dict"):
            extra["return_dict"] = True
        out = self.model(input_ids=tokens.to(self.device), **extra)
        logits: Tensor = out.logits if sliced else out.logits[:, at.to(out.logits.device)]
        states: dict[int, Tensor] = {layer: out.hidden_states[layer] for layer in want}
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return NetworkOutputs(
            logits.flatten(0, 1), {layer: rows[:, at.to(rows.device)].flatten(0, 1) for layer, rows in states.items()}
        )

    def _refuse_unknown(self, want: tuple[int, ...]) -> None:
        bad = [layer for layer in want if not -1 <= layer <= self.layers]
        if bad:
            raise BadRequest(
                f"hidden states of layer {bad[0]} were asked for; this model has 0 (embeddings) to {self.layers}, "
                "and -1 for the last, after its norm."
            )


class HFNetwork:
    """The `Network` of a transformers model.

    Rows are run one after the other. A text without branches is run with the model's own masks. A tree is run in one
    forward with a `TreeMask`, or without one as its branches: one forward per branch, each with the keys of its own
    line only, which is right for whatever attends to a plain cache (ALiBi, relative positions, windows, flash kernels).
    `note` says why it is run the way it is.
    """

    def __init__(self, model: HFModel, room: int, mask: TreeMask | None, note: str = "") -> None:
        self.model, self.mask, self.slots, self.note = model, mask, KVPool(room), note
        self.vocab, self.layers = model.vocab, model.layers
        self.context = _longest_cached(model.config)

    def forward(self, batch: Batch) -> NetworkOutputs:
        read: list[int] = batch.read.tolist()
        order: list[int] = []  # the wanted tokens as rows give them
        outputs: list[NetworkOutputs] = []
        for row in batch.rows:
            for part in [row] if self.mask is not None else branches(row):
                wanted = [i for i in read if part.first <= i < part.first + part.count]
                order += wanted
                outputs.append(self._run(batch, part, wanted))
        back = {token: n for n, token in enumerate(order)}
        index = torch.tensor([back[token] for token in read], dtype=torch.long)
        logits = torch.cat([out.logits for out in outputs])
        hidden = {i: torch.cat([out.hidden[i] for out in outputs]) for i in batch.want}
        return NetworkOutputs(
            logits[index.to(logits.device)], {i: rows[index.to(rows.device)] for i, rows in hidden.items()}
        )

    def _run(self, batch: Batch, row: Row, wanted: list[int]) -> NetworkOutputs:
        span = slice(row.first, row.first + row.count)
        given: dict[str, object] = {"past_key_values": row_cache(self.slots, row, self.layers)}
        if self.model.takes("use_cache"):
            given["use_cache"] = True
        if self.model.takes("position_ids"):
            given["position_ids"] = batch.places[span][None].to(self.model.device)
        if not _plain(row):
            given["attention_mask"] = self._tree_mask(row, batch.places[span])
        at = torch.tensor([i - row.first for i in wanted], dtype=torch.long)
        return self.model(batch.tokens[span][None], at, batch.want, given)

    def _tree_mask(self, row: Row, queries: Tensor) -> Tensor | dict[str, Tensor]:
        assert self.mask is not None, "branches are plain rows"
        device = self.model.device
        hidden = row.hidden_from
        if hidden is None:  # some of the text is gone, so keys stand where the model does not expect them
            hidden = torch.ones(row.count, len(row.slots), dtype=torch.bool).triu(len(row.slots) - row.count + 1)
        keys = torch.tensor(list(row.places), device=device)
        return self.mask(~hidden.to(device), queries.to(device), keys, self.model.dtype)


def _plain(row: Row) -> bool:
    """True if the keys are a whole text in order, so that the model's own masks are right."""
    return row.hidden_from is None and row.places[0] == 0 and row.places[-1] == len(row.places) - 1


def branches(row: Row) -> list[Row]:
    """The row cut where a token does not follow the one before it: rows of plain texts, parents before their kids."""
    if row.hidden_from is None:
        return [row]
    seen: list[list[int]] = [(~hidden).nonzero().flatten().tolist() for hidden in row.hidden_from.cpu()]
    starts = [j for j in range(row.count) if j == 0 or seen[j][:-1] != seen[j - 1]]
    parts: list[Row] = []
    for start, end in zip(starts, [*starts[1:], row.count], strict=True):
        keys = seen[end - 1]
        slots, places = [row.slots[k] for k in keys], [row.places[k] for k in keys]
        parts.append(Row(row.first + start, end - start, slots, places))
    return parts


class SlotLayer:
    """One layer of a transformers `Cache` that keeps a row's keys and values in our slots."""

    is_compileable = False
    is_sliding = False  # windows are the masks' business; the pool keeps every key
    is_initialized = True
    is_croppable = False
    supports_early_init = False
    layer_type = "full_attention"

    def __init__(self, slots: KVPool, layer: int, row: Row) -> None:
        self._slots, self._layer, self._row = slots, layer, row
        self._length = len(row.slots) - row.count

    def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        """Store the new tokens' keys and values, [1, heads, new, width]; those of the whole row."""
        if keys.shape[0] != 1 or keys.shape[2] != self._row.count:
            raise ValueError(f"expected keys [1, heads, {self._row.count}, width], but got {tuple(keys.shape)}")
        where = self._row.slots
        self._slots.write(self._layer, where[len(where) - self._row.count :], keys[0], values[0])
        self._length = len(where)
        all_keys, all_values = self._slots.read(self._layer, where)
        return all_keys[None], all_values[None]

    def get_seq_length(self) -> int:
        """How many tokens it holds."""
        return self._length

    def get_mask_sizes(self, query_length: object) -> tuple[int, int]:
        """How many keys `update` will give back, and the position of the first."""
        return len(self._row.slots), 0

    def get_max_length(self) -> int:
        """No limit of its own."""
        return -1

    get_max_cache_shape = get_max_length  # its name before transformers 5.10 or so


def row_cache(slots: KVPool, row: Row, layers: int) -> Any:
    """The `past_key_values` of a row."""
    cache_utils = brought_by("hf", "transformers.cache_utils", "The transformers runtime")
    # Since the library asks isinstance: ours is such a layer by what it does, with nothing inherited.
    cache_utils.CacheLayerMixin.register(SlotLayer)
    cached: Sequence[SlotLayer] = [SlotLayer(slots, layer, row) for layer in range(layers)]
    return cache_utils.Cache(layers=list(cached))


def _longest(config: Any) -> int | None:
    longest = getattr(config, "max_position_embeddings", None)
    return longest if isinstance(longest, int) and longest > 0 else None


def _longest_cached(config: Any) -> int | None:
    """The longest text for which keys that were stored earlier stay right."""
    limits = [_longest(config)]
    rope = getattr(config, "rope_parameters", None) or {}
    for group in (rope, *(value for value in rope.values() if isinstance(value, dict))):
        # These two change all frequencies, of old keys too, as soon as a text grows past its original length.
        if group.get("rope_type") in ("dynamic", "longrope"):
            limits += [group.get("original_max_position_embeddings")]
            limits += [getattr(config, "original_max_position_embeddings", None)]
    return min((limit for limit in limits if limit), default=None)
