"""The kinds of drafters that can be trained: each a description of a network and the tensors that it begins with.

They begin near the target: layers are its last one, a reading of states passes on the latest of them, and the head is
the target's, cut to the tokens that are guessed. What the target has nothing for begins small and random.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unspool.core.errors import BadRequest
from unspool.models.drafters.description import DrafterFile, DrafterSpec, needed
from unspool.models.drafters.reading import bare_shape
from unspool.models.shape import Shape

from ..network import MATRICES, NORMS, Frozen
from .export import DELTA, LLAMA

SMALL = 0.02  # of random numbers to begin with
RANK = 64  # of what a token tells the place behind it


@dataclass(frozen=True)
class Asked:
    """What is asked of a drafter: how many layers, which states it reads (none: the kind's own), how far it guesses."""

    layers: int
    states: tuple[int, ...]
    depth: int
    mask: int


@dataclass(frozen=True)
class Kind:
    """A kind: its name, what its papers call it, what it is in a line, and its description for a target."""

    name: str
    title: str
    about: str
    spec: Callable[[Shape, Asked], DrafterSpec]
    form: str  # what its folder says it is
    cut: bool = True  # whether it may guess fewer tokens than the target has


def eagle3(target: Shape, asked: Asked) -> DrafterSpec:
    """Three states fused, and one layer that attends with them and the next token side by side; own states recycled."""
    last = target.layers
    own = (2, last // 2, last - 3) if last > 7 else tuple(sorted({last // 4, last // 2, last - 1}))
    states = asked.states or own
    return DrafterSpec("EAGLE-3", states, _layers(target, asked), "attend", target.dim)


def eagle31(target: Shape, asked: Asked) -> DrafterSpec:
    """EAGLE-3 with a norm for each state, and its own states recycled behind the last norm."""
    return replace(eagle3(target, asked), kind="EAGLE-3.1", recycles_normed=True)


def peagle(target: Shape, asked: Asked) -> DrafterSpec:
    """EAGLE-3 that guesses a block in one forward: a mask with a learned state stands for what is not known."""
    return replace(eagle3(target, asked), kind="P-EAGLE", block=asked.depth, mask=asked.mask)


def mtp(target: Shape, asked: Asked) -> DrafterSpec:
    """A matrix joins the last state and the next token for one plain layer (DeepSeek's module)."""
    layers = _layers(target, replace(asked, layers=1))
    return DrafterSpec("MTP", (target.layers,), layers, "project", target.dim, recycles_normed=True)


def dflash(target: Shape, asked: Asked) -> DrafterSpec:
    """Layers of Qwen3's kind; states are keys and values, and a block of masks behind the last token is filled."""
    states = asked.states or eagle3(target, asked).states
    shape, block = replace(_layers(target, asked), family="qwen3", qk_norm=True), asked.depth + 1
    context = DrafterSpec("DFlash", states, shape, "context", target.dim, block=block, mask=asked.mask, anchored=False)
    return replace(context, depth=asked.depth, causal_windows=True)


def dspark(target: Shape, asked: Asked) -> DrafterSpec:
    """DFlash whose every place is told of the token before it by a small matrix, and whose first place guesses too."""
    spec = dflash(target, asked)
    return replace(spec, kind="DSpark", block=asked.depth, anchored=True, markov="vanilla")


def medusa(target: Shape, asked: Asked) -> DrafterSpec:
    """One head for each token ahead, a residual block or more on the last state, read by the target's head."""
    return DrafterSpec("Medusa", (target.layers,), _bare("medusa", target), "heads", target.dim, depth=asked.depth)


def mlp_speculator(target: Shape, asked: Asked) -> DrafterSpec:
    """A state that takes in one token a step; all steps share embeddings, a head and all matrices but the first."""
    bare = _bare("mlp_speculator", target)
    return DrafterSpec("MLP speculator", (target.layers,), bare, "recurrent", target.dim, depth=asked.depth)


def small(target: Shape, asked: Asked) -> DrafterSpec:
    """A whole model of few layers, which begin as some of the target's, evenly spread, with its embeddings and head."""
    return DrafterSpec("small model", (), replace(_layers(target, asked), tied=target.tied), "alone", target.dim)


def consistent(target: Shape, asked: Asked) -> DrafterSpec:
    """The target itself, changed so that Jacobi steps end sooner; `depth` is how long blocks are."""
    return DrafterSpec("CLLM", (), target, "alone", target.dim, block=asked.depth)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("eagle3", "EAGLE-3", "three states, one layer, own states recycled", eagle3, "eagle3"),
        Kind("eagle3.1", "EAGLE-3.1", "EAGLE-3 with normed states", eagle31, "eagle3"),
        Kind("peagle", "P-EAGLE", "EAGLE-3 with masks: all tokens ahead in one forward", peagle, "peagle"),
        Kind("mtp", "MTP", "the last state and the next token joined, as DeepSeek's", mtp, "mtp", cut=False),
        Kind("dflash", "DFlash", "a block of masks that sees the states (give it --layers 3)", dflash, "dflash"),
        Kind("dspark", "DSpark", "DFlash that is told of the token before each place", dspark, "dspark"),
        Kind("medusa", "Medusa", "a head for each token ahead, on the last state", medusa, "medusa", cut=False),
        Kind("mlp", "MLP speculator", "heads that take in a token a step", mlp_speculator, "mlp_speculator", cut=False),
        Kind("small", "small model", "few layers between the target's embeddings and head", small, LLAMA, cut=False),
        Kind("cllm", "CLLM", "the model itself, for Jacobi decoding (blocks of --depth)", consistent, DELTA, cut=False),
    )
}


def kind_of(name: str) -> Kind:
    """The kind of this name."""
    if name not in KINDS:
        raise BadRequest(f"--kind is {name!r}; expected one of {', '.join(KINDS)}.")
    return KINDS[name]


def _layers(target: Shape, asked: Asked) -> Shape:
    return replace(target, layers=asked.layers, windows=(None,) * asked.layers, tied=False)


def _bare(family: str, target: Shape) -> Shape:
    return bare_shape(family, target, target.dim)


def begun(spec: DrafterSpec, frozen: Frozen, ids: Tensor | None, seed: int, blocks: int = 1) -> DrafterFile:
    """The drafter before it has learned anything; `ids` are the tokens that it guesses, none for all.

    `blocks` are those of each head, where there are heads.
    """
    dice = torch.Generator().manual_seed(seed)
    if spec.kind == "CLLM":  # a change of the target, and no network of its own
        return DrafterFile(spec, {}, "the target, changed")
    if spec.join in ("heads", "recurrent"):
        tensors = _heads(spec, frozen, blocks) if spec.join == "heads" else _steps(spec, frozen)
        return DrafterFile(spec, tensors, f"a new {spec.kind} drafter")
    sizes = needed(spec) | _normed(spec)
    if spec.markov:
        known = frozen.shape.vocab if ids is None else len(ids)
        sizes |= {"markov.w1": (frozen.shape.vocab, RANK), "markov.w2": (known, RANK)}
        sizes |= {"confidence.weight": (1, spec.shape.dim), "confidence.bias": (1,)}
    tensors = {name: _first(name, size, spec, frozen, dice) for name, size in sizes.items()}
    if ids is not None:
        tensors |= {"head.weight": frozen.head[ids].clone(), "ids": ids}
    return DrafterFile(spec, tensors, f"a new {spec.kind} drafter")


def _heads(spec: DrafterSpec, frozen: Frozen, blocks: int) -> dict[str, Tensor]:
    """Blocks that do nothing yet, so that every head says what the target's does."""
    names = [f"heads.{head}.{block}" for head in range(spec.depth or 0) for block in range(blocks)]
    dim, like = spec.shape.dim, frozen.embedding
    zeros = {f"{name}.weight": like.new_zeros(dim, dim) for name in names}
    return zeros | {f"{name}.bias": like.new_zeros(dim) for name in names}


def _steps(spec: DrafterSpec, frozen: Frozen) -> dict[str, Tensor]:
    """Embeddings and the head of the target for all steps, and states that pass."""
    dim, like = spec.shape.dim, frozen.embedding
    eye = torch.eye(dim, device=like.device)
    first = {"embed": like, "out": frozen.head, "proj": eye, "norm": like.new_ones(dim), "shift": like.new_zeros(dim)}
    named = {f"steps.0.{name}": tensor.clone() for name, tensor in first.items()}
    return named | ({"steps.1.proj": eye.clone()} if (spec.depth or 0) > 1 else {})


def _normed(spec: DrafterSpec) -> dict[str, tuple[int, ...]]:
    """Norms that a kind has though a file of it could do without."""
    dim = (spec.shape.dim,)
    if spec.join == "alone":
        return {"norm.weight": dim}
    if spec.kind == "EAGLE-3.1":
        return {f"fuse_norm.{n}.weight": (spec.wide,) for n in range(len(spec.states))}
    return {"embed_norm.weight": dim, "state_norm.weight": dim, "norm.weight": dim} if spec.join == "project" else {}


def _first(name: str, size: Sequence[int], spec: DrafterSpec, frozen: Frozen, dice: torch.Generator) -> Tensor:
    device, last, dim = frozen.embedding.device, frozen.shape.layers - 1, spec.shape.dim
    made = torch.ones(size) if name.endswith("norm.weight") else SMALL * torch.randn(size, generator=dice)
    made = made.to(device)
    if name == "norm.weight":
        return frozen.base["norm"].clone()
    if name.startswith("layers."):
        _, number, part = name.split(".", 2)
        source = round(int(number) * last / max(spec.shape.layers - 1, 1)) if spec.join == "alone" else last
        own = frozen.base.get(f"layers.{source}.{_OURS.get(part.removesuffix('.weight'), '')}")
        if own is not None and own.shape == made.shape and int(number) < spec.shape.layers:
            return own.clone()
        if own is not None and made.dim() == 2 and made.shape[1] == 2 * own.shape[1]:  # attends with [word; state]
            made[:, own.shape[1] :] = own
        return made
    if name in ("fuse.weight", "join.weight"):  # the latest state passes
        made[:, -dim:] += torch.eye(dim, device=device)
    return made


_OURS = {theirs: ours for ours, theirs in (*MATRICES.items(), *NORMS.items())}
