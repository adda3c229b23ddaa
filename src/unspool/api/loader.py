"""Load a model by name, path or Hub id, ready to decode."""

from __future__ import annotations

import logging
import platform
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .. import api, models
from .. import runtime as runtimes
from ..core.errors import BadRequest, NotNative
from ..core.option import expect, whole
from ..core.version import VERSION
from ..models.address import heads_of, path
from ..models.quant import QuantBlocks
from ..models.weights import Checkpoint, open_checkpoint
from ..runtime.cache.cached_model import CachedModel
from ..runtime.network.linear import EmbeddingAndHead, fastest
from ..runtime.network.llama import Llama, usual_room
from ..runtime.network.quantised import AUTO, PACKED, WHOLE
from .lm import LM
from .native_models import PREFIX_CACHE, cached, packed_model, packed_on_graphs, whole_model

if TYPE_CHECKING:
    from ..runtime.network.lookahead_heads import MedusaHeads

_LOG = logging.getLogger("unspool")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NATIVE, TRANSFORMERS, LLAMACPP = "native", "transformers", "llama.cpp"
RUNTIMES = {"auto", NATIVE, TRANSFORMERS, LLAMACPP}


def load(
    name: str | Path | torch.nn.Module = "smollm2",
    tokenizer: Any = None,
    *,
    dtype: str = "auto",
    quantization: str | None = "auto",
    device: str = "auto",
    runtime: str = "auto",
    kv_cache_tokens: int | None = None,
    longest: int = 1,
    batch_invariant: bool | int | None = None,
    ranks: int = 1,
    draft: LM | str | Path | None = None,
    small: LM | str | Path | None = None,
    heads: str | Path | None = None,
    adapter: str | Path | None = None,
) -> LM:
    """A language model from the catalogue, a .gguf file, a folder of safetensors, or the Hub.

    A model of the Hub is org/name, with @revision behind it for another than the newest; org/name:Q4_K_M is the .gguf
    file of it that has this part in its name.

    - `tokenizer` comes with a causal model that transformers has loaded, given itself as `name`; such a model keeps
      its dtype and device unless they are named.
    - `dtype` is fp32, bf16 or fp16; auto is fp32 on the CPU and bf16 on a GPU; fast is what this CPU is faster in.
    - `runtime` is native, transformers or llama.cpp; auto is native, and transformers for what native does not know.
      llama.cpp opens .gguf files alone, whose weights stay as they are; there `dtype` is that of the cache, auto is
      fp16.
    - `kv_cache_tokens` is how many tokens the cache holds for all texts; unless told, as many as `longest` texts of
      the model's context have, of which 8,192 tokens each count at most.
    - `quantization` is none, or int8 or int4: the layers' matrices are then rounded to a byte or half a byte a
      weight, on a CPU in fp32 all matrices, to blocks that its kernels multiply as they are; or packed: they stay in
      the blocks of their .gguf file, and numbers between them are rounded to int8 in every product; on a GPU in the
      few bits of their file, where the kernels know them. auto is packed on a CPU that has kernels for it, if `dtype`
      is auto or fast, else none.
    - `batch_invariant` makes a token's numbers depend on its text alone, bit for bit, so that no text depends on what
      was drafted or batched. Unless told, that holds for whole weights on a GPU of the Hopper kind, where it costs
      little. A number N computes N rows at a time elsewhere, 8 unless told.
    - `ranks` is how many processes share the model: each has some of its heads, on the CPU or on a GPU of its own.
    - `draft` is another model for methods that ask one, or its name; layers:N makes one of the model's own first N
      layers, which share its weights, NAME:int4 or self:int4 one in another precision (fp32, bf16, fp16, packed,
      int8, int4). The folder of a trained drafter (EAGLE, DFlash, MTP, Medusa, …) is read for this model, and mtp is
      the module inside its own checkpoint.
    - `small` is a third one, which drafts for the draft model.
    - `heads` is a file of heads that look ahead, for methods that ask for their guesses; smollm2 has its own.
    - `adapter` is the folder of a LoRA adapter as PEFT saves it, which is added to the weights; they are then not
      packed.
    """
    rounding, room = WHOLE if quantization is None else quantization, kv_cache_tokens
    if room is not None:
        expect(whole(room, 1), "kv_cache_tokens", room, "a whole number of tokens from 1 on, or None")
    expect(whole(ranks, 1), "ranks", ranks, "a whole number of processes from 1 on")
    if (draft, small) != (None, None):
        api.draft_models.expect_drafts(draft, small)
    expect(heads is None or isinstance(heads, (str, Path)), "heads", heads, "the path of a file of heads, or None")
    expect(adapter is None or isinstance(adapter, (str, Path)), "adapter", adapter, "the folder of an adapter, or None")
    asked = LoadOptions(dtype, rounding, device, runtime, room, longest, batch_invariant, ranks, adapter)
    if isinstance(name, torch.nn.Module):
        only = {"quantization": rounding in (AUTO, WHOLE), "batch_invariant": not batch_invariant, "ranks": ranks == 1}
        only["adapter"] = adapter is None
        if lost := [option for option, absent in only.items() if not absent]:
            raise BadRequest(
                f"{lost[0]} needs a model that is loaded by its name; this one was loaded by transformers."
            )
        lm = api.by_transformers.given(name, tokenizer, dtype, device, room, longest)
    else:
        expect(tokenizer is None, "tokenizer", tokenizer, "None: it goes with a loaded model, a name brings its own")
        lm = _alone(name, asked)
    _attach_heads(lm, heads)

    def beside(name: str | Path, kind: str | None, rounded: str | None) -> LM:
        own = adapter if str(name) == lm.name else None  # of the model itself, in another precision
        other = replace(asked, dtype=kind or dtype, quantization=rounded or rounding, adapter=own)
        return _alone(name, replace(other, batch_invariant=False, ranks=1))

    return lm if draft is None else api.draft_models.attached(lm, draft, small, beside)


@dataclass(frozen=True)
class LoadOptions:
    """How one model is to be loaded: the options of `load` that are about no other model."""

    dtype: str
    quantization: str
    device: str
    runtime: str
    room: int | None
    longest: int
    batch_invariant: bool | int | None = False
    ranks: int = 1
    adapter: str | Path | None = None


def _alone(name: str | Path, asked: LoadOptions) -> LM:
    """The model without one that drafts for it, in the runtime that was asked for or that knows it."""
    where = device_of(asked.device)
    kind = dtype_of(asked.dtype, where)
    if asked.runtime not in RUNTIMES:
        raise BadRequest(f"the runtime {asked.runtime!r} is not known; choose one of: {', '.join(sorted(RUNTIMES))}")
    rows = _rows(asked.batch_invariant)
    if asked.adapter is not None:
        _check_adapter(asked)
    if asked.ranks != 1:
        return _on_ranks(name, kind, where, asked)
    if asked.runtime == LLAMACPP:
        return _by_llamacpp(name, kind, rows, asked)
    if asked.runtime == TRANSFORMERS:
        _refuse_native_options(
            asked, rows, "transformers chooses its kernels", "transformers has its own ways to round"
        )
        return api.by_transformers.named(name, kind, where, asked.room, asked.longest)
    file = path(str(name))
    try:
        checkpoint = open_checkpoint(file)
    except NotNative as why:
        only_native = rows is not None or asked.quantization not in (WHOLE, AUTO) or asked.adapter is not None
        if asked.runtime == NATIVE or only_native or file.suffix == ".safetensors":
            raise
        lm = api.by_transformers.named(name, kind, where, asked.room, asked.longest)
        told = f"{why.problem}, which the native runtime does not do.{api.by_transformers.cost(lm.model)}"
        _LOG.warning("note: transformers runs this model. %s", told)
        return lm
    if asked.adapter is not None:
        checkpoint = models.adapter.AdaptedCheckpoint(checkpoint, asked.adapter)
    return _native(name, file, checkpoint, kind, where, rows, asked)


def _check_adapter(asked: LoadOptions) -> None:
    """Refuse an adapter beside options under which nobody could add it to the weights."""
    if asked.runtime in (TRANSFORMERS, LLAMACPP) or asked.ranks != 1:
        raise BadRequest(
            f"adapter={str(asked.adapter)!r} needs the native runtime and one rank; give a catalogue name, a .gguf "
            "file or a folder, or merge it into the weights first, with PEFT's merge_and_unload."
        )
    if asked.quantization == PACKED:
        raise BadRequest("an adapter changes the weights, so they cannot stay packed; use int8 or int4 to round them.")


def _refuse_native_options(asked: LoadOptions, rows: int | None, kernels: str, rounding: str) -> None:
    """Refuse what only the native runtime can do, with what another one does instead."""
    if rows is not None:
        raise BadRequest(f"batch_invariant needs the native runtime; {kernels} by itself.")
    if asked.quantization not in (AUTO, WHOLE):
        raise BadRequest(f"quantization={asked.quantization!r} needs the native runtime; {rounding}.")


def _native(
    name: str | Path,
    file: Path,
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device: str,
    rows: int | None,
    asked: LoadOptions,
) -> LM:
    """A checkpoint in the native runtime, packed where that is asked for or fastest."""
    quantization, note = runtimes.cpu.packed.chosen(asked.quantization, asked.dtype, device, asked.ranks, checkpoint)
    room = asked.room or asked.longest * usual_room(checkpoint.shape)
    added = "" if asked.adapter is None else f", {Path(asked.adapter).resolve()}"
    if quantization == PACKED and device != "cpu":
        made, how = packed_on_graphs(checkpoint, dtype, device, room, rows), "free shapes, packed weights"
    elif quantization == PACKED or runtimes.cpu.packed.rounds_in_blocks(quantization, asked.dtype, device):
        made = packed_model(checkpoint, room, rows, quantization)
        native = runtimes.cpu.compiled.kernels()  # other kernels, other times
        how = f"{quantization} weights, {native.name if native else 'no kernels'}{added}"
        if quantization != PACKED:
            note = runtimes.cpu.rounded_blocks.described_rounding(checkpoint, quantization)
        beside = runtimes.cpu.packed_llama.unpacked(checkpoint.shape)
        note = f"{note}; PyTorch does the rest: {beside}" if beside else note
    else:
        made, shapes = whole_model(
            checkpoint, dtype, device, room, quantization, rows, may_fix=asked.batch_invariant is None
        )
        how = f"{shapes} shapes, {quantization} weights{added}"
        note = note if asked.adapter is None else f"{checkpoint}; not packed"
    key = key_of(file, dtype, device, f"{NATIVE}, {how}")
    return LM(str(name), made, checkpoint.vocabulary(), key=key, note=note)


def _by_llamacpp(name: str | Path, dtype: torch.dtype, rows: int | None, asked: LoadOptions) -> LM:
    """The model as llama.cpp computes it, with its weights as the file has them; `dtype` is that of its cache."""
    _refuse_native_options(
        asked, rows, "llama.cpp chooses its kernels", "llama.cpp keeps the weights as the file has them"
    )
    cache, file = torch.float16 if asked.dtype in ("auto", "fast") else dtype, path(str(name))
    load_llamacpp = runtimes.llamacpp.open_gguf.load_llamacpp
    model, words = load_llamacpp(file, cache, asked.device, asked.room, PREFIX_CACHE, asked.longest)
    return LM(str(name), model, words, key=key_of(file, cache, "cpu", LLAMACPP))


def _attach_heads(lm: LM, heads: str | Path | None) -> None:
    """Give the model the heads of a file, or the way to those that came with it, if somebody should want them."""
    file, model = heads_of(lm.name, heads), lm.model
    if file is None:
        return
    if isinstance(model, CachedModel) and isinstance(model.network, Llama) and model.network.shape.filling is None:
        model.load_heads = partial(_loaded_heads, file, model.network.ends)
        model.guesses = isinstance(model.network.ends.table, QuantBlocks)
        if heads is not None:
            model.heads = model.load_heads()  # what is wrong with a file is said at once
    elif heads is not None:
        raise BadRequest(f"heads={str(heads)!r} needs the native runtime, one rank, and a model that only reads.")


def _loaded_heads(file: Path, ends: EmbeddingAndHead) -> MedusaHeads:
    """Heads are loaded by who wants any; beside packed weights they are packed too."""
    if isinstance(ends.table, QuantBlocks):
        return runtimes.cpu.packed_heads.PackedHeads.load(file, ends)
    return runtimes.network.lookahead_heads.MedusaHeads.load(file, ends)


def _on_ranks(name: str | Path, dtype: torch.dtype, device: str, asked: LoadOptions) -> LM:
    """The model on several ranks, without graphs and fused kernels."""
    ranks = asked.ranks
    if asked.runtime in (TRANSFORMERS, LLAMACPP):
        raise BadRequest(
            f"ranks={ranks} needs the native runtime; leave runtime={asked.runtime!r} away, or use one rank."
        )
    rounding = WHOLE if asked.quantization == AUTO else asked.quantization
    for option, given, only in (("quantization", rounding, WHOLE), ("batch_invariant", asked.batch_invariant, False)):
        if given not in (only, None):
            raise BadRequest(f"{option}={given!r} is not there on ranks={ranks}; use {option}={only!r}, or one rank.")
    file = path(str(name))
    checkpoint = open_checkpoint(file)
    room = asked.room or asked.longest * usual_room(checkpoint.shape)
    model = cached(runtimes.parallel.ranks.ranked(file, checkpoint, dtype, device, room, ranks))
    return LM(str(name), model, checkpoint.vocabulary(), key=key_of(file, dtype, device, f"{NATIVE}, {ranks} ranks"))


def key_of(source: str | Path, dtype: torch.dtype, device: str, runtime: str) -> str:
    """What the time of a forward depends on."""
    chip = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or device
    threads, version = torch.get_num_threads(), VERSION
    return (
        f"{source} · {dtype} · {runtime} · {chip} · {threads} threads · torch {torch.__version__} · unspool {version}"
    )


def _rows(batch_invariant: bool | int | None) -> int | None:
    """The rows that are computed at a time, 0 for as many as suit the device; None for any number."""
    if batch_invariant is None or isinstance(batch_invariant, bool):
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
