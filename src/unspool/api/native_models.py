"""What the native runtime makes of a checkpoint on a machine: fused kernels, packed matrices, or PyTorch's products."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache
from typing import TYPE_CHECKING

import torch

from .. import runtime as runtimes
from ..core.errors import BadRequest
from ..models.weights import Checkpoint
from ..runtime.cache.cached_model import CachedModel
from ..runtime.network.attention import Planner
from ..runtime.network.linear import DenseLinear, MakeLinear, dense
from ..runtime.network.llama import Llama
from ..runtime.network.quantised import PACKED, WHOLE, TiledInt8Linear, rounded

if TYPE_CHECKING:
    from ..runtime.diffusion.full_diffusion import FullDiffusionModel
    from ..runtime.parallel.ranks import ParallelNetwork  # which loads torch.distributed

_LOG = logging.getLogger("unspool")
FUSED = (torch.bfloat16, torch.float16)  # what the kernels are made for; float32 stays with PyTorch's own
PREFIX_CACHE = 4  # finished texts whose cache stays, so that the next turn of a chat reads only what is new
HOPPER = 9, 0  # the compute capability of an H100 and H200


def whole_model(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: str,
    room: int,
    quantization: str,
    rows: int | None,
    may_fix: bool,
) -> tuple[CachedModel | FullDiffusionModel, str]:
    """The model with whole or rounded weights, and whether its shapes are free or fixed.

    They are fixed if `rows` says so, and where they may be (`may_fix`) and cost little on this device.
    """
    if may_fix and adds_in_order(device):
        steady = on_invariant_graphs(checkpoint, dtype, device, room, quantization)
        if steady is not None:
            return steady, "fixed"
    make = rounded(quantization, dense, checkpoint.shape.vocab)
    if rows is None:
        free = on_graphs(checkpoint, dtype, device, room, quantization)
        return free or cached(Llama.load(checkpoint, dtype, device, room, make)), "free"
    model = on_invariant_graphs(checkpoint, dtype, device, room, quantization) or padded_model(
        checkpoint, dtype, device, room, make, rows
    )
    check_fixed(model)
    return model, "fixed"


def padded_model(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, make: MakeLinear, rows: int
) -> CachedModel | FullDiffusionModel:
    """The model with fixed shapes on PyTorch's own kernels."""
    fixed = runtimes.network.batch_invariant
    rows = rows or fixed.ROWS
    wide, head = fixed.padded(make, rows), fixed.padded(dense, rows)
    return cached(Llama.load(checkpoint, dtype, device, room, wide, fixed.PerTokenPlanner, head))


def packed_model(checkpoint: Checkpoint, room: int, rows: int | None, kind: str) -> CachedModel | FullDiffusionModel:
    """The model with its matrices in the blocks of its file (`kind` packed), or rounded to blocks of their kind."""
    make: MakeLinear = dense
    planner: type[Planner] = Planner
    if rows is not None:
        fixed = runtimes.network.batch_invariant
        make, planner = fixed.padded(dense, rows or fixed.ROWS), fixed.PerTokenPlanner
    if kind == PACKED:
        made = runtimes.cpu.packed_llama.load_packed(checkpoint, room, make, planner)
    else:
        made = runtimes.cpu.rounded_blocks.load_rounded(checkpoint, room, kind, make, planner)
    if rows is not None:
        model = cached(made)
        check_fixed(model)
        return model
    if isinstance(made, runtimes.cpu.packed_llama.PackedLlama):
        return CachedModel(made, PREFIX_CACHE, runtimes.cpu.packed_llama.PackedExecutor(made))
    return cached(made)


def packed_on_graphs(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int, rows: int | None
) -> CachedModel | FullDiffusionModel:
    """The model on fused kernels, with the matrices that they know left in the few bits of their file."""
    tiled = runtimes.cuda.tiled
    tiled.check_packed(checkpoint)
    if rows is not None or checkpoint.shape.filling is not None or not _fuses(checkpoint, dtype, device, PACKED):
        raise BadRequest(
            "quantization='packed' on a GPU needs the fused kernels with free shapes: Triton, a model that only reads, "
            "no experts or latents, and no batch_invariant. Use quantization='none'."
        )
    made = runtimes.cuda.fused.Fused.load(checkpoint, dtype, device, room, DenseLinear, loader=tiled.TiledLoader)
    return runtimes.cuda.graph_model.graph_model(made, PREFIX_CACHE)


def check_fixed(model: CachedModel | FullDiffusionModel) -> None:
    """Refuse a model whose numbers depend on what is computed beside them on this machine."""
    fills = runtimes.diffusion.block_diffusion.BlockDiffusionModel, runtimes.diffusion.full_diffusion.FullDiffusionModel
    if isinstance(model, fills) and not model.filling.reads:
        runtimes.network.batch_invariant.check_looks(model)
    else:
        runtimes.network.batch_invariant.check(model)


def cached(made: Llama | ParallelNetwork) -> CachedModel | FullDiffusionModel:
    """The network with sessions, as one that reads, fills holes, or does both."""
    filling = made.shape.filling
    if filling is None:
        return CachedModel(made, PREFIX_CACHE)
    if filling.layout == "full":
        return runtimes.diffusion.full_diffusion.FullDiffusionModel(made, filling)
    return runtimes.diffusion.block_diffusion.BlockDiffusionModel(made, filling, PREFIX_CACHE)


def on_graphs(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, quantization: str
) -> CachedModel | None:
    """The model on fused kernels, where there is a GPU and Triton for them and they can run its shape."""
    filling = checkpoint.shape.filling
    if not _fuses(checkpoint, dtype, device, quantization):
        return None
    make = rounded(quantization, DenseLinear, checkpoint.shape.vocab, TiledInt8Linear)
    network = runtimes.cuda.fused.Fused.load(checkpoint, dtype, device, room, make)
    if filling is None:
        return runtimes.cuda.graph_model.graph_model(network, PREFIX_CACHE)
    return runtimes.diffusion.graph_denoiser.graph_diffusion(network, filling, PREFIX_CACHE)


def on_invariant_graphs(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, quantization: str
) -> CachedModel | None:
    """The same with fixed shapes, for whole weights of a model that reads."""
    if quantization != WHOLE or checkpoint.shape.filling is not None:
        return None
    if not _fuses(checkpoint, dtype, device, quantization):
        return None
    network = runtimes.cuda.batch_invariant_fused.BatchInvariantFused.load(checkpoint, dtype, device, room)
    return runtimes.cuda.graph_model.graph_model(network, PREFIX_CACHE)


def _fuses(checkpoint: Checkpoint, dtype: torch.dtype, device: str, quantization: str) -> bool:
    if not device.startswith("cuda") or dtype not in FUSED or importlib.util.find_spec("triton") is None:
        return False
    why = runtimes.cuda.fusible.unfused(checkpoint.shape, quantization != WHOLE)
    if why is not None and checkpoint.shape.filling is None:
        _note_unfused(why)
    return why is None


@cache
def _note_unfused(why: str) -> None:
    """Say once why a model runs without CUDA graphs."""
    _LOG.warning("note: no CUDA graphs for this model, PyTorch runs it: %s.", why)


def adds_in_order(device: str) -> bool:
    """True of GPUs whose tensor cores are known to add in one order however a product is cut; others are tried."""
    return device.startswith("cuda") and torch.cuda.get_device_capability(device) == HOPPER
