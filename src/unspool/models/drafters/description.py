"""What a trained drafter is: one description, of which the published kinds are settings.

A drafter reads hidden states of its target and the tokens behind them, and guesses what follows. EAGLE, MTP, P-EAGLE,
DFlash, DSpark, Medusa and MLP speculators differ in which states they read, in how a state and a token meet, in what
stands at a drafted place, and in which norms there are; a norm that is absent from the file is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from ...core.errors import BadModel
from ..shape import Shape

Join = Literal["attend", "project", "add", "cross", "trigram", "context", "heads", "recurrent", "cells", "alone"]
Reads = Literal["state", "layers", "token", "met", "lstm"]
Cell = Literal["perceptron", "concat", "regress", "slots", "encoder"]
LSTMS = 2  # layers of the recurrence that Falcon has
_LISTED = 6


@dataclass(frozen=True)
class DrafterSpec:
    """One drafter network.

    `states` are the hidden states of the target that it reads, side by side: 0 are its embeddings, i enters layer i,
    and the last, one for each layer, has left the final norm. They are fused to the drafter's own width where the file
    has `fuse`. `join` says how the state of token i and the embedding of token i + 1 meet:

    - "attend": layer 0 attends with both side by side, and the state is the residual (EAGLE-3, 3.1, P-EAGLE)
    - "project": a matrix makes one vector of both, for plain layers (EAGLE-1, EAGLE-2, MTP)
    - "context": states are keys and values of every layer, and masks behind the last token are the queries (DFlash)
    - "heads": one head for each token ahead reads the last state alone (Medusa)
    - "recurrent": one small step for each token ahead mixes the state so far with a token (MLP speculator)
    - "add": what a matrix makes of the state is added to the embedding, and drafted tokens have none (LLM-to-SLM)
    - "cross": tokens alone enter the layers, the middle one of which attends to states, through gates (DREAM)
    - "trigram": states are keys of a layer, and what stands for a token is made of its last three (Chimera)
    - "cells": heads that follow each other over what `reads` says; `cell` says how (runtime/drafter/cells.py)
    - "alone": there is no state; such a drafter is a whole model, and is read as one

    Without `block` a drafted token is read with the drafter's own output as its state, before or (`recycles_normed`)
    after its last norm. With it, so many places are guessed in one forward: masks stand for tokens not known yet.
    `anchored` says that the last known token's own place guesses too. `depth` is how many tokens it can guess.
    """

    kind: str
    states: tuple[int, ...]
    shape: Shape  # of its own layers
    join: Join
    wide: int  # of one hidden state of the target
    embedding_first: bool = True
    residual_normed: bool = False
    recycles_normed: bool = False
    block: int = 0
    mask: int | None = None
    anchored: bool = True
    causal: bool = False  # whether places of a block see only those before them, in all layers
    causal_windows: bool = False  # the same in layers that have a window
    markov: str | None = None  # "vanilla", "gated" or "rnn": what a block's places are told of the token before them
    lattice: int = 0  # likeliest tokens of a place, which the token before them weighs anew (DFlash2)
    taps: int = 0  # places that a convolution before and behind each part of a layer sees, its own the first
    groups: int = 0  # of numbers that share what such a convolution makes of the state
    embed_scale: float = 1.0
    logit_scale: float = 1.0
    logit_cap: float | None = None
    depth: int | None = None
    scale_input: bool = False  # of a recurrent one
    entry_norm: bool = True  # whether layer 0 has a norm at its entry
    experts: int = 0  # of the last layer, in place of its perceptron; their difference guesses one token further
    reads: Reads = "state"  # of heads that follow each other
    cell: Cell = "concat"
    blocks: int = 0  # that each of them has besides

    @property
    def of_family(self) -> bool:
        """Whether its layer is one of its target's own family, and not a plain one."""
        return bool(self.shape.each)

    @property
    def title(self) -> str:
        """What it is and reads, for people."""
        read = ", ".join(map(str, self.states))
        return f"{self.kind} (hidden states {read}; {self.shape.layers} layers of {self.shape.dim})"


@dataclass(frozen=True)
class DrafterFile:
    """A drafter as it was read: its description, its tensors by our names, and where they came from."""

    spec: DrafterSpec
    tensors: Mapping[str, Tensor]
    source: str

    def reading(self, **changed: object) -> DrafterFile:
        """The same file, read in another way."""
        return replace(self, spec=replace(self.spec, **changed))  # type: ignore[arg-type]  # fields by their names


def needed(spec: DrafterSpec) -> dict[str, tuple[int, ...]]:
    """The name and shape of every tensor that a drafter of this description cannot do without."""
    shape, dim, wide = spec.shape, spec.shape.dim, spec.wide * len(spec.states)
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(shape.layers):
        found.update((f"layers.{layer}.{name}", size) for name, size in shape.layer_tensors(layer).items())
    if spec.join == "attend":
        found |= {"fuse.weight": (dim, wide), "state_norm.weight": (dim,), "norm.weight": (dim,)}
        for part in "qkv":
            name = f"layers.0.self_attn.{part}_proj.weight"
            found[name] = (found[name][0], 2 * dim)
    if spec.join == "project":
        found["join.weight"] = (dim, dim + spec.wide)
        if not spec.entry_norm:
            del found["layers.0.input_layernorm.weight"]
    if spec.join == "context":
        found |= {"fuse.weight": (dim, wide), "state_norm.weight": (dim,), "norm.weight": (dim,)}
        found |= _convolutions(spec)
    if spec.join == "attend" and spec.block:
        found["mask_state"] = (wide,)
    if spec.join == "add":
        found["norm.weight"] = (dim,)
    if spec.join == "cross":
        found |= {"norm.weight": (dim,), "cross.gates": (2,)}
        found |= {f"cross.{part}_norm.weight": (shape.head_dim,) for part in "qk"}
    if spec.join == "trigram":
        found |= {"trigram.block.weight": (3 * dim, 3 * dim), "trigram.block.bias": (3 * dim,)}
        found |= {"trigram.weight": (dim, 3 * dim), "norm.weight": (dim,)}
        found |= {f"heads.{head}.mix.weight": (dim, 2 * dim) for head in range(spec.depth or 0)}
    if spec.experts:
        found |= expert_tensors(spec)
        for part in ("gate", "up", "down"):
            del found[f"layers.{shape.layers - 1}.mlp.{part}_proj.weight"]
    if spec.join == "cells":
        found |= cell_tensors(spec)
    return found


def _convolutions(spec: DrafterSpec) -> dict[str, tuple[int, ...]]:
    """Fixed kernels, one for what enters a part and one for what leaves it, and what adds to both by the state."""
    dim, found = spec.shape.dim, dict[str, tuple[int, ...]]()
    for layer in range(spec.shape.layers if spec.taps else 0):
        for part in ("attention_conv", "mlp_conv"):
            found[f"layers.{layer}.{part}.base_kernel"] = (2, spec.taps, dim)
            found[f"layers.{layer}.{part}.kernel_projection.weight"] = (2 * spec.taps * spec.groups, dim)
    return found


def selector_tensors(vocab: int, rank: int, dim: int) -> dict[str, tuple[int, ...]]:
    """The tables of a lattice: of tokens before and tokens behind, and what brings a place's state to them."""
    return {"selector.before": (vocab, rank), "selector.after": (vocab, rank), "selector.state.weight": (rank, dim)}


def expert_tensors(spec: DrafterSpec) -> dict[str, tuple[int, ...]]:
    """Experts as wide as the state, and what weighs them, once for the next token and once for the one behind it."""
    dim = spec.shape.dim
    each = {f"experts.{e}.{part}.weight": (dim, dim) for e in range(spec.experts) for part in ("gate", "up", "down")}
    return {**each, "route.weight": (2 * spec.experts, dim)}


def cell_tensors(spec: DrafterSpec) -> dict[str, tuple[int, ...]]:
    """The tensors of heads that follow each other, and of what brings a state and a token to them."""
    dim, deep, found = spec.shape.dim, spec.depth or 0, dict[str, tuple[int, ...]]()
    if spec.reads != "state":
        found["norm.weight"] = (dim,)
    if spec.reads == "token":
        found["join.weight"] = (dim, 2 * dim)
    if spec.reads == "met":
        found |= {f"meet.{part}.weight": (dim, dim) for part in "qkv"}
    if spec.reads == "lstm":
        for layer in range(LSTMS):
            found[f"lstm.{layer}.input.weight"] = (4 * dim, dim if layer else 2 * dim)
            found |= {f"lstm.{layer}.state.weight": (4 * dim, dim), f"lstm.{layer}.bias": (4 * dim,)}
    if spec.cell == "slots":
        return {**found, "slots.up.weight": (4 * dim, dim), "slots.down.weight": (deep * dim, 4 * dim)}
    if spec.cell == "regress":
        found |= {f"regress.{part}.weight": (dim, dim) for part in "qkv"}
        if spec.reads == "met":
            return {**found, "first.weight": (dim, dim), "later.weight": (dim, 2 * dim)}
        return {**found, "bend.weight": (dim, dim), "bend.bias": (dim,)}
    for head in range(deep):
        at = f"heads.{head}"
        if spec.cell == "concat":
            for part in ("pass", "bend"):
                found |= {f"{at}.{part}.weight": (dim, (head + 2) * dim), f"{at}.{part}.bias": (dim,)}
        elif spec.cell == "perceptron":
            for part in ("up", "down"):
                found |= {f"{at}.{part}.weight": (dim, dim), f"{at}.{part}.bias": (dim,)}
        for block in range(spec.blocks):
            found |= {f"{at}.{block}.weight": (dim, dim), f"{at}.{block}.bias": (dim,)}
    if spec.cell == "encoder":
        wide = spec.shape.hidden
        found |= {f"encoder.{part}.weight": (dim, dim) for part in "qkvo"}
        found |= {"encoder.gate.weight": (wide, dim), "encoder.up.weight": (wide, dim)}
        found |= {"encoder.down.weight": (dim, wide), "encoder.before.weight": (dim,), "encoder.between.weight": (dim,)}
        found["places"] = (deep, dim)
    return found


def optional(spec: DrafterSpec, vocab: int, drafted: int) -> dict[str, tuple[int, ...]]:
    """The shape of everything else that it may have, for a target of so many tokens, of which it guesses `drafted`."""
    dim, wide = spec.shape.dim, spec.wide * len(spec.states)
    found: dict[str, tuple[int, ...]] = {
        "embed.weight": (vocab, dim),
        "head.weight": (drafted, dim),
        "fuse_norm.weight": (wide,),
        "embed_norm.weight": (dim,),
        "state_norm.weight": (dim,),
        "norm.weight": (dim,),
        "join.bias": (dim,),
        "fuse.bias": (dim,),
        "lift.up.weight": (dim, wide),
        "lift.down.weight": (dim, dim),
    }
    return found | {f"fuse_norm.{n}.weight": (spec.wide,) for n in range(len(spec.states))}


def check_sizes(
    source: str, kind: str, sizes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], all_of: bool
) -> None:
    """Refuse what is missing (if all must be there) or has another shape, naming every difference at once."""
    missing = [name for name in expected if name not in sizes] if all_of else []
    if missing:
        raise BadModel(
            f"{source}: misses {len(missing)} of {len(expected)} tensors of a drafter of the kind {kind}: "
            f"{_listed(missing)}. The file is incomplete, or its config.json belongs to another; download both again."
        )
    wrong = [f"{n} {sizes[n]} (expected {size})" for n, size in expected.items() if sizes.get(n, size) != size]
    if wrong:
        raise BadModel(
            f"{source}: this {kind} drafter does not fit its target or its own settings: {_listed(wrong)}. "
            "It was trained for another model, or the file is damaged."
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
