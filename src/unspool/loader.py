"""Load a model by name, path or Hub id, ready to decode."""

from __future__ import annotations

from pathlib import Path

import torch

from .errors import BadRequest
from .lm import LM
from .models.address import is_hub_id, path
from .models.weights import open_checkpoint
from .run.llama import Llama
from .run.slotted import Slotted

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NATIVE, TRANSFORMERS = "native", "transformers"
SHELF = 4  # finished texts whose cache stays, so that the next turn of a chat reads only what is new


def load(
    name: str | Path = "smollm2",
    *,
    dtype: str = "auto",
    device: str = "auto",
    runtime: str = "auto",
    room: int | None = None,
    draft: LM | None = None,
) -> LM:
    """A language model from the catalogue, a .gguf file, a folder of safetensors, or a Hub id through transformers.

    `dtype` is fp32, bf16 or fp16; auto is fp32 on the CPU and bf16 on a GPU. `runtime` is native or transformers; auto
    is transformers for Hub ids and native for the rest. `room` is how many tokens the cache holds for all texts.
    """
    where = device_of(device)
    kind = dtype_of(dtype, where)
    known = {"auto", NATIVE, TRANSFORMERS}
    if runtime not in known:
        raise BadRequest(f"the runtime {runtime!r} is not known; choose one of: {', '.join(sorted(known))}")
    if runtime == TRANSFORMERS or (runtime == "auto" and is_hub_id(str(name))):
        from .run.hf import hf_vocabulary, load_hf

        source = str(name) if is_hub_id(str(name)) else str(path(str(name)))
        model = load_hf(source, kind, where, room, shelf=SHELF)
        return LM(str(name), model, hf_vocabulary(source, model.vocab), draft)
    checkpoint = open_checkpoint(path(str(name)))
    network = Llama.load(checkpoint, kind, where, room)
    return LM(str(name), Slotted(network, shelf=SHELF), checkpoint.vocabulary(), draft)


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
    if name not in DTYPES:
        raise BadRequest(f"the precision {name!r} is not known; choose one of: auto, {', '.join(DTYPES)}")
    return DTYPES[name]
