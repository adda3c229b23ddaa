"""Load a model by name, path or Hub id, ready to decode."""

from __future__ import annotations

import importlib.util
import platform
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..core.errors import BadRequest
from ..core.version import VERSION
from ..models.address import heads_of, is_hub_id, path
from ..models.weights import Checkpoint, open_checkpoint
from ..runtime.cache.cached_model import Slotted
from ..runtime.cuda.batch_invariant_fused import Steady
from ..runtime.cuda.device_speculation import Leaping
from ..runtime.cuda.fused import Fused
from ..runtime.cuda.fusible import unfused
from ..runtime.diffusion.block_diffusion import Canvased
from ..runtime.diffusion.full_diffusion import Sheeted
from ..runtime.diffusion.gpu_block_diffusion import Painted
from ..runtime.engine.contracts import Causal
from ..runtime.hf.load import hf_vocabulary, load_hf
from ..runtime.network.batch_invariant import ROWS, Alone, check, check_looks, padded
from ..runtime.network.linear import Dense, MakeLinear, dense
from ..runtime.network.llama import Llama
from ..runtime.network.lookahead_heads import Heads
from ..runtime.network.precision import fastest
from ..runtime.network.quantised import WHOLE, rounded
from ..runtime.parallel.ranks import ranked
from .lm import LM
from .self_draft import is_shortcut, shortcut

if TYPE_CHECKING:
    from ..runtime.parallel.ranks import Ranked  # which loads torch.distributed

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FUSED = (torch.bfloat16, torch.float16)  # what the kernels are made for; float32 stays with PyTorch's own
NATIVE, TRANSFORMERS = "native", "transformers"
SHELF = 4  # finished texts whose cache stays, so that the next turn of a chat reads only what is new


def load(
    name: str | Path = "smollm2",
    *,
    dtype: str = "auto",
    weights: str = WHOLE,
    device: str = "auto",
    runtime: str = "auto",
    room: int | None = None,
    shapes: str = "free",
    ranks: int = 1,
    draft: LM | str | None = None,
    heads: str | Path | None = None,
) -> LM:
    """A language model from the catalogue, a .gguf file, a folder of safetensors, or a Hub id through transformers.

    `dtype` is fp32, bf16 or fp16; auto is fp32 on the CPU and bf16 on a GPU; fast is what this CPU is faster in.
    `runtime` is native or transformers; auto is transformers for Hub ids and native for the rest. `room` is how many
    tokens the cache holds for all texts.
    `weights` is whole, or int8 or int4: the layers' matrices are then rounded to a byte or half a byte a weight.
    `shapes` is free, which is fast, or fixed: a token's numbers then depend on its text alone, bit for bit, so that no
    text depends on what was drafted or batched; fixed:N computes N rows at a time, 8 unless told; on a GPU's fused
    kernels 16, 32 or 64, which is theirs unless told.
    `ranks` is how many processes share the model: each has some of its heads, on the CPU or on a GPU of its own.
    `draft` is another model for methods that ask one, or its name; layers:N makes one of the model's own first N
    layers, which share its weights (see `shortcut`).
    `heads` is a file of heads that look ahead, for methods that ask for their guesses; smollm2 has its own.
    """
    lm = _alone(name, dtype, weights, device, runtime, room, shapes, ranks)
    _crown(lm, heads)
    if isinstance(draft, str) and is_shortcut(draft):
        draft = shortcut(lm, draft)
    elif isinstance(draft, str):
        draft = _alone(draft, dtype, weights, device, runtime, room)
    return lm if draft is None else replace(lm, draft=draft)


def _alone(
    name: str | Path,
    dtype: str,
    weights: str,
    device: str,
    runtime: str,
    room: int | None,
    shapes: str = "free",
    ranks: int = 1,
) -> LM:
    """The model without one that drafts for it."""
    where = device_of(device)
    kind = dtype_of(dtype, where)
    known = {"auto", NATIVE, TRANSFORMERS}
    if runtime not in known:
        raise BadRequest(f"the runtime {runtime!r} is not known; choose one of: {', '.join(sorted(known))}")
    rows = _rows(shapes)
    if ranks != 1:
        return _on_ranks(name, kind, weights, where, runtime, room, shapes, ranks)
    if runtime == TRANSFORMERS or (runtime == "auto" and is_hub_id(str(name))):
        if rows is not None:
            raise BadRequest("shapes='fixed' needs the native runtime; transformers chooses its kernels by itself.")
        if weights != WHOLE:
            raise BadRequest(f"weights={weights!r} needs the native runtime; transformers has its own ways to round.")
        source = str(name) if is_hub_id(str(name)) else str(path(str(name)))
        if source.endswith(".safetensors"):
            raise BadRequest(f"{name} is read by the native runtime alone; transformers opens folders and .gguf files.")
        model: Causal = load_hf(source, kind, where, room, shelf=SHELF)
        return LM(str(name), model, hf_vocabulary(source, model.vocab), key=_key(source, kind, where, TRANSFORMERS))
    file = path(str(name))
    checkpoint = open_checkpoint(file)
    vocab = checkpoint.shape.vocab
    make = rounded(weights, dense, vocab)
    if rows is None:
        model = _graphed(checkpoint, kind, where, room, rounded(weights, Dense, vocab)) or _model(
            Llama.load(checkpoint, kind, where, room, make)
        )
    else:
        model = _steady(checkpoint, kind, where, room, weights, rows) or _model(
            Llama.load(checkpoint, kind, where, room, padded(make, rows or ROWS), Alone, padded(dense, rows or ROWS))
        )
        if isinstance(model, (Canvased, Sheeted)) and not model.filling.reads:
            check_looks(model)
        else:
            check(model)
    key = _key(file, kind, where, f"{NATIVE}, {shapes} shapes, {weights} weights")
    return LM(str(name), model, checkpoint.vocabulary(), key=key)


def _crown(lm: LM, heads: str | Path | None) -> None:
    """Give the model the heads of a file, or the way to those that came with it, if somebody should want them."""
    file, model = heads_of(lm.name, heads), lm.model
    if file is None:
        return
    if isinstance(model, Slotted) and isinstance(model.network, Llama) and model.network.shape.filling is None:
        model.crown = partial(Heads.load, file, model.network.ends)
        if heads is not None:
            model.heads = model.crown()  # what is wrong with a file is said at once
    elif heads is not None:
        raise BadRequest(f"heads={str(heads)!r} needs the native runtime, one rank, and a model that only reads.")


def _on_ranks(
    name: str | Path,
    dtype: torch.dtype,
    weights: str,
    device: str,
    runtime: str,
    room: int | None,
    shapes: str,
    ranks: int,
) -> LM:
    """The model on several ranks, without graphs and fused kernels."""
    if runtime == TRANSFORMERS or (runtime == "auto" and is_hub_id(str(name))):
        raise BadRequest(f"ranks={ranks} needs the native runtime; give a catalogue name, a .gguf file or a folder.")
    for option, given, only in (("weights", weights, WHOLE), ("shapes", shapes, "free")):
        if given != only:
            raise BadRequest(f"{option}={given!r} is not there on ranks={ranks}; use {option}={only!r}, or one rank.")
    file = path(str(name))
    checkpoint = open_checkpoint(file)
    model = _model(ranked(file, checkpoint, dtype, device, room, ranks))
    return LM(str(name), model, checkpoint.vocabulary(), key=_key(file, dtype, device, f"{NATIVE}, {ranks} ranks"))


def _model(network: Llama | Ranked) -> Slotted | Sheeted:
    """The network with sessions, as one that reads, fills holes, or does both."""
    filling = network.shape.filling
    if filling is None:
        return Slotted(network, SHELF)
    return Sheeted(network, filling) if filling.layout == "full" else Canvased(network, filling, SHELF)


def _key(source: str | Path, dtype: torch.dtype, device: str, runtime: str) -> str:
    """What the time of a forward depends on."""
    chip = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or device
    threads, version = torch.get_num_threads(), VERSION
    return (
        f"{source} · {dtype} · {runtime} · {chip} · {threads} threads · torch {torch.__version__} · unspool {version}"
    )


def _graphed(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, make: MakeLinear
) -> Slotted | None:
    """The model on fused kernels, where there is a GPU and Triton for them and they can run its shape."""
    filling = checkpoint.shape.filling
    if not _fuses(checkpoint, dtype, device):
        return None
    network = Fused.load(checkpoint, dtype, device, room, make)
    return Leaping(network, SHELF) if filling is None else Painted(network, filling, SHELF)


def _steady(
    checkpoint: Checkpoint, dtype: torch.dtype, device: str, room: int | None, weights: str, rows: int
) -> Slotted | None:
    """The same with fixed shapes, for whole weights of a model that reads."""
    if not _fuses(checkpoint, dtype, device) or weights != WHOLE or checkpoint.shape.filling is not None:
        return None
    return Leaping(Steady.load(checkpoint, dtype, device, room, Dense).of(rows), SHELF)


def _fuses(checkpoint: Checkpoint, dtype: torch.dtype, device: str) -> bool:
    if unfused(checkpoint.shape) is not None or importlib.util.find_spec("triton") is None:
        return False
    return device.startswith("cuda") and dtype in FUSED


def _rows(shapes: str) -> int | None:
    """The rows of fixed shapes, 0 for as many as suit the device; None for free ones."""
    kind, _, number = shapes.partition(":")
    if shapes == "free":
        return None
    if kind == "fixed" and (not number or (number.isdecimal() and int(number) > 0)):
        return int(number) if number else 0
    raise BadRequest(
        f"shapes={shapes!r} is not known; choose free, fixed, or fixed:N for N rows at a time, as in fixed:16"
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
