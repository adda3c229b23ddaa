"""What a drafter begins with: near its target, so that there is little to learn.

Layers are the target's last one, a reading of states passes on the latest of them, and the head is the target's, cut to
the tokens that are guessed. What is added to a state begins with 0, what the target has nothing for small and random.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from unspool.models.drafters.description import DrafterFile, DrafterSpec, needed, selector_tensors

from ..training_network import MATRICES, NORMS, Frozen

SMALL = 0.02  # of random numbers to begin with
SPREAD = ("alone", "add", "cross")  # whose layers read embeddings, and begin as the target's, evenly spread
RANK = 64  # of what a token tells the place behind it
NOTHING = re.compile(  # matrices and biases whose product is added to something that passes
    r"heads\.\d+\.(\d+|bend|down)\.(weight|bias)|heads\.\d+\.pass\.bias|(bend|slots\.down|lift\.down)\.(weight|bias)|cross\.gates"
    r"|trigram\.block\.(weight|bias)|layers\.\d+\.(attention|mlp)_conv\.kernel_projection\.weight|(regress|meet)\.v\.weight|encoder\.(o|down)\.weight|lstm\.\d\.bias"
)
ADDED = re.compile(r"layers\.\d+\.(self_attn\.o_proj|mlp\.down_proj)\.weight|experts\.\d+\.down\.weight")
PASSING = re.compile(
    r"heads\.\d+\.pass\.weight|heads\.\d+\.mix\.weight|(first|later)\.weight"
)  # whose first columns are the state's


def begun(spec: DrafterSpec, frozen: Frozen, ids: Tensor | None, seed: int, blocks: int = 1) -> DrafterFile:
    """The drafter before it has learned anything; `ids` are the tokens that it guesses, none for all.

    `blocks` are those of each head, where there are heads.
    """
    dice = torch.Generator().manual_seed(seed)
    if spec.join == "alone" and spec.block:  # a change of the target, and no network of its own
        return DrafterFile(spec, {}, "the target, changed")
    if spec.join in ("heads", "recurrent"):
        tensors = _heads(spec, frozen, blocks) if spec.join == "heads" else _steps(spec, frozen)
        return DrafterFile(spec, tensors, f"a new {spec.kind} drafter")
    sizes = needed(spec) | _normed(spec)
    if spec.join == "add" and not spec.block:
        dim = spec.shape.dim
        sizes |= {"lift.up.weight": (dim, spec.wide * len(spec.states)), "lift.down.weight": (dim, dim)}
    if spec.markov:
        known = frozen.shape.vocab if ids is None else len(ids)
        sizes |= {"markov.w1": (frozen.shape.vocab, RANK), "markov.w2": (known, RANK)}
        sizes |= {"confidence.weight": (1, spec.shape.dim), "confidence.bias": (1,)}
    if spec.lattice:
        sizes |= selector_tensors(frozen.shape.vocab, RANK, spec.shape.dim)
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
    if not spec.entry_norm:
        return {}
    return {"embed_norm.weight": dim, "state_norm.weight": dim, "norm.weight": dim} if spec.join == "project" else {}


def _first(name: str, size: Sequence[int], spec: DrafterSpec, frozen: Frozen, dice: torch.Generator) -> Tensor:
    device, last, dim = frozen.embedding.device, frozen.shape.layers - 1, spec.shape.dim
    ones = name.endswith("norm.weight") or name in ("encoder.before.weight", "encoder.between.weight")
    made = torch.ones(size) if ones else SMALL * torch.randn(size, generator=dice)
    made = made.to(device)
    if name == "norm.weight":
        norm = frozen.base["norm"]
        return torch.full_like(norm, float(norm.square().mean().sqrt())) if _behind(spec, frozen) else norm.clone()
    if NOTHING.fullmatch(name) or (_behind(spec, frozen) and ADDED.fullmatch(name)):
        return torch.zeros_like(made)
    if PASSING.fullmatch(name):
        made.zero_()[:, :dim] += torch.eye(dim, device=device)
        return made
    if name.endswith("_conv.base_kernel"):  # each place passes alone
        made.zero_()[:, 0] = 1
        return made
    if name.startswith("selector."):  # none of the three tables stands still while the others begin
        return 10 * made
    if name == "trigram.weight":  # the last of the three passes
        made[:, -dim:] += torch.eye(dim, device=device)
        return made
    if name.startswith("experts."):
        return _expert(name, made, frozen)
    if name.startswith("layers."):
        _, number, part = name.split(".", 2)
        source = round(int(number) * last / max(spec.shape.layers - 1, 1)) if spec.join in SPREAD else last
        own = frozen.base.get(f"layers.{source}.{_OURS.get(part.removesuffix('.weight'), '')}")
        if own is not None and own.shape == made.shape and int(number) < spec.shape.layers:
            return own.clone()
        if (
            own is not None and part.startswith("mlp.") and made.numel() > own.numel()
        ):  # wider: more, which adds nothing
            made = made.zero_() if part == "mlp.down_proj.weight" else made
            made[: own.shape[0], : own.shape[1]] = own
            return made
        if own is not None and made.dim() == 2 and made.shape[1] == 2 * own.shape[1]:  # attends with [word; state]
            made[:, own.shape[1] :] = own
        return made
    if name in ("fuse.weight", "join.weight"):  # the latest state passes
        made[:, -dim:] += torch.eye(dim, device=device)
    return made


def _behind(spec: DrafterSpec, frozen: Frozen) -> bool:
    """Whether layers read what has left the target's last norm alone, which no layer of its expects.

    Then they begin with adding nothing, and the head reads what it reads of the target.
    """
    return spec.join in ("project", "cells") and spec.states == (frozen.shape.layers,)


def _expert(name: str, made: Tensor, frozen: Frozen) -> Tensor:
    """A part of the perceptron of the target's last layer, where that is wide enough for all experts."""
    _, number, part, _ = name.split(".")
    own, first = frozen.base[f"layers.{frozen.shape.layers - 1}.{part}"], int(number) * len(made)
    some = slice(first, first + len(made))
    own = own[:, some] * 2 if part == "down" else own[some]  # each counts half at first
    return own.clone() if own.shape == made.shape else made


_OURS = {theirs: ours for ours, theirs in (*MATRICES.items(), *NORMS.items())}
