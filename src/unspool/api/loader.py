"""Load a model by name, path or Hub id, ready to decode."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .. import api
from .. import runtime as runtimes
from ..core.errors import BadRequest
from ..core.version import VERSION
from ..core.warp.warp_limits import expect, whole
from ..models.address import heads_of, is_hub_id, path
from ..models.weights import Checkpoint, open_checkpoint
from ..runtime.cache.cached_model import CachedModel
from ..runtime.engine.contracts import Causal
from ..runtime.network.linear import DenseLinear, MakeLinear, dense, fastest
from ..runtime.network.llama import Llama, usual_room
from ..runtime.network.quantised import WHOLE, rounded
from .lm import LM

if TYPE_CHECKING:
    from ..runtime.diffusion.full_diffusion import FullDiffusionModel
    from ..runtime.parallel.ranks import ParallelNetwork  # which loads torch.distributed

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FUSED = (torch.bfloat16, torch.float16)  # what the kernels are made for; float32 stays with PyTorch's own
NATIVE, TRANSFORMERS = "native", "transformers"
PREFIX_CACHE = 4  # finished texts whose cache stays, so that the next turn of a chat reads only what is new


def load(
    name: str | Path = "smollm2",
    *,
    dtype: str = "auto",
    quantization: str | None = None,
    device: str = "auto",
    runtime: str = "auto",
    kv_cache_tokens: int | None = None,
    longest: int = 1,
    batch_invariant: bool | int = False,
    ranks: int = 1,
    draft: LM | str | Path | None = None,
    heads: str | Path | None = None,
) -> LM:
    """A language model from the catalogue, a .gguf file, a folder of safetensors, or the Hub (org/name@revision).

    `dtype` is fp32, bf16 or fp16; auto is fp32 on the CPU and bf16 on a GPU; fast is what this CPU is faster in.
    `runtime` is native or transformers; auto is transformers for Hub ids and native for the rest.
    `kv_cache_tokens` is how many tokens the cache holds for all texts; unless told, as many as `longest` texts of the
    model's context have, of which 8,192 tokens each count at most.
    `quantization` is none, or int8 or int4: the layers' matrices are then rounded to a byte or half a byte a weight.
    `batch_invariant` makes a token's numbers depend on its text alone, bit for bit, so that no text depends on what was
    drafted or batched; a number N computes N rows at a time, 8 unless told; on a GPU's fused kernels 16, 32 or 64,
    which is theirs unless told.
    `ranks` is how many processes share the model: each has some of its heads, on the CPU or on a GPU of its own.
    `draft` is another model for methods that ask one, or its name; layers:N makes one of the model's own first N
    layers, which share its weights (see `shortcut`). The folder of a trained drafter (EAGLE, DFlash, MTP, Medusa, …) is
    read for this model, and mtp is the module inside its own checkpoint.
    `heads` is a file of heads that look ahead, for methods that ask for their guesses; smollm2 has its own.
    """
    rounding, room = WHOLE if quantization is None else quantization, kv_cache_tokens
    if room is not None:
        expect(whole(room, 1), "kv_cache_tokens", room, "a whole number of tokens from 1 on, or None")
    expect(whole(ranks, 1), "ranks", ranks, "a whole number of processes from 1 on")
    drafts = draft is None or isinstance(draft, (LM, str, Path))
    expect(drafts, "draft", draft, "a loaded model, the name of one, a drafter's folder, layers:N, mtp, or None")
    expect(heads is None or isinstance(heads, (str, Path)), "heads", heads, "the path of a file of heads, or None")
    lm = _alone(name, dtype, rounding, device, runtime, room, longest, batch_invariant, ranks)
    _attach_heads(lm, heads)
    if isinstance(draft, str) and api.self_draft.is_shortcut(draft):
        draft = api.self_draft.shortcut(lm, draft)
    elif isinstance(draft, (str, Path)) and api.trained_draft.is_trained(draft):
        return replace(lm, drafter=api.trained_draft.trained_for(lm.model, lm.name, draft))
    elif isinstance(draft, (str, Path)):
        draft = _alone(draft, dtype, rounding, device, runtime, room, longest)
    return lm if draft is None else replace(lm, draft=draft)


def _alone(
    name: str | Path,
    dtype: str,
    quantization: str,
    device: str,
    runtime: str,
    room: int | None,
    longest: int,
    batch_invariant: bool | int = False,
    ranks: int = 1,
) -> LM:
    """The model without one that drafts for it."""
    where = device_of(device)
    kind = dtype_of(dtype, where)
    known = {"auto", NATIVE, TRANSFORMERS}
    if runtime not in known:
        raise BadRequest(f"the runtime {runtime!r} is not known; choose one of: {', '.join(sorted(known))}")
    rows = _rows(batch_invariant)
    if ranks != 1:
        return _on_ranks(name, kind, quantization, where, runtime, room, longest, batch_invariant, ranks)
    if runtime == TRANSFORMERS or (runtime == "auto" and is_hub_id(str(name))):
        if rows is not None:
            raise BadRequest("batch_invariant needs the native runtime; transformers chooses its kernels by itself.")
        if quantization != WHOLE:
            raise BadRequest(
                f"quantization={quantization!r} needs the native runtime; transformers has its own ways to round."
            )
        source = str(path(str(name)))
        if source.endswith(".safetensors"):
            raise BadRequest(f"{name} is read by the native runtime alone; transformers opens folders and .gguf files.")
        model: Causal = runtimes.hf.load.load_hf(source, kind, where, room, PREFIX_CACHE, longest)
        words = runtimes.hf.load.hf_vocabulary(source, model.vocab)
        return LM(str(name), model, words, key=_key(source, kind, where, TRANSFORMERS))
    file = path(str(name))
    checkpoint = open_checkpoint(file)
    room = room or longest * usual_room(checkpoint.shape)
    vocab = checkpoint.shape.vocab
    make = rounded(quantization, dense, vocab)
    if rows is None:
        model = _on_graphs(checkpoint, kind, where, room, rounded(quantization, DenseLinear, vocab)) or _model(
            Llama.load(checkpoint, kind, where, room, make)
        )
    else:
        model = _on_invariant_graphs(checkpoint, kind, where, room, quantization, rows) or _padded(
            checkpoint, kind, where, room, make, rows
        )
        _check_fixed(model)
    key = _key(file, kind, where, f"{NATIVE}, {'fixed' if rows is not None else 'free'} shapes, {quantization} weights")
    return LM(str(name), model, checkpoint.vocabulary(), key=key)


def _attach_heads(lm: LM, heads: str | Path | None) -> None:
    """Give the model the heads of a file, or the way to those that came with it, if somebody should want them."""
    file, model = heads_of(lm.name, heads), lm.model
    if file is None:
        return
    if isinstance(model, CachedModel) and isinstance(model.network, Llama) and model.network.shape.filling is None:
        model.load_heads = partial(runtimes.network.lookahead_heads.MedusaHeads.load, file, model.network.ends)
        if heads is not None:
            model.heads = model.load_heads()  # what is wrong with a file is said at once
    elif heads is not None:
        raise BadRequest(f"heads={str(heads)!r} needs the native runtime, one rank, and a model that only reads.")


def _on_ranks(
    name: str | Path,
    dtype: torch.dtype,
    quantization: str,
    device: str,
    runtime: str,
    room: int | None,
    longest: int,
    batch_invariant: bool | int,
    ranks: int,
) -> LM:
    """The model on several ranks, without graphs and fused kernels."""
    if runtime == TRANSFORMERS or (runtime == "auto" and is_hub_id(str(name))):
        raise BadRequest(f"ranks={ranks} needs the native runtime; give a catalogue name, a .gguf file or a folder.")
    for option, given, only in (("quantization", quantization, WHOLE), ("batch_invariant", batch_invariant, False)):
        if given != only:
            raise BadRequest(f"{option}={given!r} is not there on ranks={ranks}; use {option}={only!r}, or one rank.")
    file = path(str(name))
    checkpoint = open_checkpoint(file)
    room = room or longest * usual_room(checkpoint.shape)
    model = _model(runtimes.parallel.ranks.ranked(file, checkpoint, dtype, device, room, ranks))
    return LM(str(name), model, checkpoint.vocabulary(), key=_key(file, dtype, device, f"{NATIVE}, {ranks} ranks"))


def _padded(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, make: MakeLinear, rows: int
) -> CachedModel | FullDiffusionModel:
    """The model with fixed shapes on PyTorch's own kernels."""
    fixed = runtimes.network.batch_invariant
    rows = rows or fixed.ROWS
    wide, head = fixed.padded(make, rows), fixed.padded(dense, rows)
    return _model(Llama.load(checkpoint, dtype, device, room, wide, fixed.PerTokenPlanner, head))


def _check_fixed(model: CachedModel | FullDiffusionModel) -> None:
    """Refuse a model whose numbers depend on what is computed beside them on this machine."""
    fills = runtimes.diffusion.block_diffusion.BlockDiffusionModel, runtimes.diffusion.full_diffusion.FullDiffusionModel
    if isinstance(model, fills) and not model.filling.reads:
        runtimes.network.batch_invariant.check_looks(model)
    else:
        runtimes.network.batch_invariant.check(model)


def _model(made: Llama | ParallelNetwork) -> CachedModel | FullDiffusionModel:
    """The network with sessions, as one that reads, fills holes, or does both."""
    filling = made.shape.filling
    if filling is None:
        return CachedModel(made, PREFIX_CACHE)
    if filling.layout == "full":
        return runtimes.diffusion.full_diffusion.FullDiffusionModel(made, filling)
    return runtimes.diffusion.block_diffusion.BlockDiffusionModel(made, filling, PREFIX_CACHE)


def _key(source: str | Path, dtype: torch.dtype, device: str, runtime: str) -> str:
    """What the time of a forward depends on."""
    chip = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or device
    threads, version = torch.get_num_threads(), VERSION
    return (
        f"{source} · {dtype} · {runtime} · {chip} · {threads} threads · torch {torch.__version__} · unspool {version}"
    )


def _on_graphs(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, make: MakeLinear
) -> CachedModel | None:
    """The model on fused kernels, where there is a GPU and Triton for them and they can run its shape."""
    filling = checkpoint.shape.filling
    if not _fuses(checkpoint, dtype, device):
        return None
    network = runtimes.cuda.fused.Fused.load(checkpoint, dtype, device, room, make)
    if filling is None:
        return runtimes.cuda.graph_model.graph_model(network, PREFIX_CACHE)
    return runtimes.diffusion.graph_denoiser.graph_diffusion(network, filling, PREFIX_CACHE)


def _on_invariant_graphs(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, quantization: str, rows: int
) -> CachedModel | None:
    """The same with fixed shapes, for whole weights of a model that reads."""
    if not _fuses(checkpoint, dtype, device) or quantization != WHOLE or checkpoint.shape.filling is not None:
        return None
    network = runtimes.cuda.batch_invariant_fused.BatchInvariantFused.load(checkpoint, dtype, device, room, DenseLinear)
    return runtimes.cuda.graph_model.graph_model(network.of(rows), PREFIX_CACHE)


def _fuses(checkpoint: Checkpoint, dtype: torch.dtype, device: str) -> bool:
    if not device.startswith("cuda") or dtype not in FUSED or importlib.util.find_spec("triton") is None:
        return False
    return runtimes.cuda.fusible.unfused(checkpoint.shape) is None


def _rows(batch_invariant: bool | int) -> int | None:
    """The rows that are computed at a time, 0 for as many as suit the device; None for any number."""
    if isinstance(batch_invariant, bool):
        return 0 if batch_invariant else None
    if isinstance(batch_invariant, int) and batch_invariant > 0:
        return batch_invariant
    raise BadRequest(
        f"batch_invariant={batch_invariant!r} cannot be used; expected True, False, or rows at a time, as in 16"
    )


def device_of(name: str) -> str:
    """The device that a name means on this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)  # unknown names and devices that this torch or machine lacks all fail here
    except (RuntimeError, AssertionError, NotImplementedError):
        have = "cpu and cuda" if torch.cuda.is_available() else "cpu only"
        raise BadRequest(f"the device {name!r} cannot be used; this machine has {have}.") from None
    return name


def dtype_of(name: str, device: str) -> torch.dtype:
    """The precision that a name means on a device."""
    if name == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if name == "fast":
        return fastest() if device == "cpu" else torch.bfloat16
    if name not in DTYPES:
        raise BadRequest(f"the precision {name!r} is not known; choose one of: auto, fast, {', '.join(DTYPES)}")
    return DTYPES[name]
