"""The probe: which way of running a model gives the numbers of its own plain forward is measured, not assumed.

Tree masks come in the forms that model families of the transformers library take.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...core.errors import BadModel
from ..network.network import Batch, Row
from .hf_network import HFModel, HFNetwork, TreeMask

PARENTS = (-1, -1, 0, 0, 1, 2, 3)  # two siblings, their three kids, two grandkids; −1 is the end of the text
_WINDOWS = ("sliding_window", "attention_chunk_size")
_NARROW = 5
_SHORT, _LONG = 12, 1024
_COPIED = 2**29  # weights that are copied to float32 for the probe, at most
FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


class RunPlan(NamedTuple):
    """How to run a model: with a cache or without, its trees with a mask or branch by branch, and why."""

    cached: bool
    mask: TreeMask | None
    note: str


def find_way(model: HFModel) -> RunPlan:
    """The fastest way whose logits agree with plain forwards of every path from scratch."""
    probe = Probe(_sharp(model))
    reasons: list[str] = []
    ways = [*zip(_masks(model, reasons), _masks(probe.model, []), strict=True), (None, None)]
    for mask, probed in ways:
        name = "branch by branch" if mask is None else f"in one forward ({type(mask).__name__})"
        try:
            error = probe.error(HFNetwork(probe.model, probe.room, probed))
        except Exception as failure:  # a model's forward is code of others: it can fail in any way
            reasons.append(f"{name}: {type(failure).__name__}: {str(failure).splitlines()[0] if str(failure) else ''}")
            continue
        if error <= probe.noise:
            note = f"trees run {name}, off by {error:.1e} (noise is up to {probe.noise:.1e})"
            return RunPlan(True, mask, "; ".join([note, *reasons]))
        reasons.append(f"{name}: off by {error:.1e}, more than noise ({probe.noise:.1e})")
    return RunPlan(False, None, "; ".join(["every text is read from its first token, nothing is cached", *reasons]))


def _sharp(model: HFModel) -> HFModel:
    """The same model in float32, if it is in half precision and small: no mistake then hides behind rounding."""
    weights = sum(parameter.numel() for parameter in model.model.parameters())
    if model.dtype not in (torch.float16, torch.bfloat16) or weights > _COPIED:
        return model
    try:
        # The bare method, as the library's refuses whatever came from a quantised file, dequantised or not.
        return HFModel(torch.nn.Module.float(deepcopy(model.model)))
    except Exception:  # packed weights may refuse to be copied or cast
        return model


def _masks(model: HFModel, reasons: list[str]) -> list[TreeMask]:
    kernel = getattr(model.config, "_attn_implementation", None)
    wide = [f"{name}={width}" for name, width in fixed_windows(model.config).items() if width > _LONG]
    if kernel not in ("eager", "sdpa", None):
        reasons.append(f"{kernel} takes no tree mask: load the model with attn_implementation='sdpa' for faster trees")
    elif wide:
        reasons.append(f"tree masks were not tried, as a text that passes {wide[0]} is too long to measure them")
    else:
        return likely_masks(model.config)
    return []


class Probe:
    """A small tree after a text, with the logits that plain forwards give at each of its nodes.

    The text is longer than every window of the model; windows that masks read from the config are narrowed for a
    moment instead, because a text longer than those would cost too much.
    """

    def __init__(self, model: HFModel) -> None:
        self.model = model
        widths = [width for width in fixed_windows(model.config).values() if width <= _LONG]
        longest = (model.context or _LONG + _SHORT + 4) - 4
        self.length = min(_SHORT + max(widths, default=0), longest)
        usual = min(model.vocab, 1000)
        drawn = [(17 + 31 * i * i + 7 * i) % usual for i in range(self.length + len(PARENTS))]
        self.text, self.nodes = drawn[: self.length], drawn[self.length :]
        self.room = self.length + len(PARENTS)
        self.noise = noise(model.dtype, model.layers)
        try:
            with narrowed(model.config):
                self.truth = self._truth()
        except BadModel:
            raise
        except Exception as failure:
            raise BadModel(
                f"{type(model.model).__name__} cannot read a text of {self.length} tokens in {model.dtype} on "
                f"{model.device}: {type(failure).__name__}: {failure}. Try another dtype or device; "
                "if it needs more than tokens (images, sounds, an encoder), it is not a causal text model."
            ) from failure

    def _truth(self) -> Tensor:
        """The logits after the text and after every node, read from scratch along each path."""
        at = self.length - 1
        found: dict[int, Tensor] = {}
        for node in reversed(range(len(PARENTS))):
            if node in found:
                continue
            path = line(node)
            whole = torch.tensor([[*self.text, *(self.nodes[i] for i in path)]])
            logits = self.model.read(whole, torch.arange(at, at + len(path) + 1)).logits
            found.update(zip(path, logits[1:], strict=True))
            if -1 in found and relative(logits[:1], found[-1][None]) > max(self.noise, 0.2):
                raise BadModel(
                    f"{type(self.model.model).__name__} is not causal: its logits after a text change with what "
                    "follows it. Load a model that was trained to continue text (for BERT-like ones, is_decoder=True)."
                )
            found[-1] = logits[0]
        return torch.stack([found[i] for i in range(-1, len(PARENTS))])

    def error(self, network: HFNetwork) -> float:
        """How far a network is from the truth, as a part of the spread of the logits; the worst node counts."""
        slots = network.slots.take(self.room)
        first, last = self.length - 1, list(range(self.length, self.room))
        places = [*range(self.length), *(self.length + len(line(i)) - 1 for i in range(len(PARENTS)))]
        hidden = torch.ones(len(PARENTS) + 1, self.room, dtype=torch.bool)
        hidden[:, : self.length] = False
        for node in range(len(PARENTS)):
            hidden[node + 1, [last[i] for i in line(node)]] = False
        with narrowed(self.model.config):
            text = Row(0, first, slots[:first], places[:first])
            network.forward(_batch(self.text[:first], places[:first], slots[:first], text, [first - 1]))
            tree = Row(0, len(PARENTS) + 1, slots, places, hidden)
            tokens = [self.text[-1], *self.nodes]
            found = network.forward(_batch(tokens, places[first:], slots[first:], tree, range(len(tokens)))).logits
        network.slots.drop(slots)
        return relative(found, self.truth)


def _batch(tokens: Sequence[int], places: Sequence[int], slots: Sequence[int], row: Row, read: Sequence[int]) -> Batch:
    return Batch(torch.tensor(tokens), torch.tensor(places), slots, [row], torch.tensor(list(read)))


def line(node: int) -> list[int]:
    """The probe's nodes from below the text down to `node`."""
    return [] if node < 0 else [*line(PARENTS[node]), node]


def relative(found: Tensor, truth: Tensor) -> float:
    """The largest root-mean-square difference of any row, as a part of the row's own spread; infinite for NaN."""
    found, truth = found.double(), truth.to(found.device).double()
    error = (found - truth).square().mean(-1).sqrt() / truth.std(-1).clamp_min(1e-30)
    return float(error.nan_to_num(nan=torch.inf).max())


def noise(dtype: torch.dtype, layers: int) -> float:
    """How far right answers may be from the truth by rounding, which grows with the root of the depth.

    In float32 a wrong mask does a hundred times more. In half precision SmolLM2-135M is off by 0.09 where it is right
    and by 0.24 where it sees siblings, so the line is drawn between; smaller mistakes need the copy in float32.
    """
    # Norms and softmaxes are in float32 at best, and products in float32 may be allowed ten bits (TF32).
    coarse = torch.float32 if torch.get_float32_matmul_precision() == "highest" else torch.float16
    epsilon = max(torch.finfo(dtype).eps, torch.finfo(coarse).eps)
    return float(min(256 * epsilon * layers**0.5, 0.12))


def fixed_windows(config: Any) -> dict[str, int]:
    """Widths that the config names but that cannot be narrowed from outside, such as GPT-Neo's `window_size`."""
    return {
        name: value
        for name, value in config.to_dict().items()
        if ("window" in name or "chunk" in name or name == "floor_scale")  # the last: Llama 4 scales by key count
        and name not in _WINDOWS
        and isinstance(value, int)
    }


@contextmanager
def narrowed(config: Any) -> Iterator[None]:
    """For a moment, windows so narrow that a short text passes them."""
    old = {name: getattr(config, name, None) for name in _WINDOWS}
    wide = [name for name, width in old.items() if isinstance(width, int) and width > _NARROW]
    try:
        for name in wide:
            setattr(config, name, _NARROW)
        yield
    finally:
        for name in wide:
            setattr(config, name, old[name])


@dataclass(frozen=True)
class OneMask:
    """The same mask for every layer, cut to what a layer of this kind reaches."""

    config: Any
    kind: str

    def __call__(self, seen: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> Tensor:
        """An additive mask [1, 1, queries, keys], which both eager and SDPA attention take."""
        return additive(reach(self.config, self.kind, seen, queries, keys), dtype)


@dataclass(frozen=True)
class MaskByKind:
    """One mask per kind of layer, in a dict."""

    config: Any
    kinds: tuple[str, ...]

    def __call__(self, seen: Tensor, queries: Tensor, keys: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
        return {kind: additive(reach(self.config, kind, seen, queries, keys), dtype) for kind in self.kinds}


def reach(config: Any, kind: str, seen: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """What is seen and within reach: the last `sliding_window` positions, or the chunk the query stands in."""
    # Read from the config at every call, as the model does: the probe narrows them for a moment.
    if kind == SLIDING:
        window: int = config.sliding_window
        return seen & (queries[:, None] - keys < window)
    if kind == CHUNKED:
        size: int = config.attention_chunk_size
        return seen & (queries[:, None] // size == keys // size)
    return seen


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where something is seen, the lowest number where not."""
    blank = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return blank.masked_fill(~seen, torch.finfo(dtype).min)[None, None]


def likely_masks(config: Any) -> list[TreeMask]:
    """The forms a model with this config may take, the likeliest first; which one is right has to be measured."""
    kinds = set(getattr(config, "layer_types", None) or ())
    known = tuple(kind for kind in (FULL, SLIDING, CHUNKED) if kind in kinds)
    windowed = isinstance(getattr(config, "sliding_window", None), int)
    masks: list[TreeMask] = []
    if known:
        masks.append(MaskByKind(config, known))
    if windowed:
        masks.append(OneMask(config, SLIDING))
    masks.append(OneMask(config, FULL))
    # A model of one kind seldom wants a dict.
    return masks if len(known) != 1 else [*masks[1:], masks[0]]
