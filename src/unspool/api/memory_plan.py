"""What a model will need before it is loaded: bytes of weights, cache and buffers, beside what the machine has."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from math import prod

import torch

from .. import runtime as runtimes
from ..core.errors import BadRequest
from ..models.drafters.description import DrafterFile
from ..models.shape import Shape
from ..models.share import RankShare
from ..models.weights import Checkpoint, GGUFCheckpoint
from ..runtime.cache.checkpoint_pool import usual_states
from ..runtime.cpu.packed import packs, rounds_in_blocks
from ..runtime.cuda.footprint import Footprint, footprint
from ..runtime.cuda.fusible import unfused
from ..runtime.network.quantised import KINDS, PACKED, WHOLE, bytes_of, unknown


@dataclass(frozen=True)
class MemoryPlan:
    """A memory budget in bytes; `available` is what the device has free, or None if it does not say."""

    weights: int
    kv: int
    logits: int
    activations: int
    tables: int
    available: int | None
    device: str
    note: str
    states: int = 0  # of recurrent layers
    per_token: int = 0  # bytes of weights that plain decoding reads for every token; 0 if that depends on the token

    @property
    def total(self) -> int:
        """Everything together."""
        return self.weights + self.kv + self.states + self.logits + self.activations + self.tables

    @property
    def fits(self) -> bool | None:
        """Whether it fits, or None if that cannot be known."""
        return None if self.available is None else self.total <= self.available

    def table(self) -> str:
        """Write the plan as aligned lines."""
        rows = [
            ("weights", self.weights),
            ("keys and values", self.kv),
            *([("recurrent states", self.states)] if self.states else []),
            ("logits", self.logits),
            ("activations", self.activations),
            *([("tables and workspaces", self.tables)] if self.tables else []),
            ("total", self.total),
        ]
        if self.available is not None:
            rows.append((f"free on {self.device}", self.available))
        wide = max(len(label) for label, _ in rows)
        amounts = [f"{count / 1e6:,.1f} MB" for _, count in rows]
        far = max(map(len, amounts))
        lines = [f"{label:<{wide}}  {amount:>{far}}" for (label, _), amount in zip(rows, amounts, strict=True)]
        reads = f"Each token reads {self.per_token / 1e6:,.1f} MB of weights."
        verdict = {None: "", True: "It fits.", False: "It does not fit: use a smaller context, batch or dtype."}[
            self.fits
        ]
        return "\n".join([self.note, *lines, *([reads] if self.per_token else []), *([verdict] if verdict else [])])


def plan(
    model: Checkpoint | Shape,
    dtype: torch.dtype,
    context: int | None = None,
    rows: int = 1,
    tree: int = 64,
    device: torch.device | str = "cpu",
    quantization: str = WHOLE,
    ranks: int = 1,
) -> MemoryPlan:
    """Budget `rows` texts of `context` tokens with drafts of up to `tree` nodes, for a model in `dtype`; loads nothing.

    Keys and values are counted for every token of every layer (windows save time, not slots); logits for one tree a
    row in float32, twice, since the law is made beside them; activations for the widest layer of such a step. On a GPU
    what graphs keep to themselves is counted too, see `runtime.cuda.footprint`. `quantization` is none, int8, int4
    or packed. What plain decoding reads for a token is all weights but a table of embeddings that is no head.
    With several `ranks` it is what the first needs, which has the most; those on a CPU share its memory.
    """
    whole = model if isinstance(model, Shape) else model.shape
    if ranks != 1 and quantization != WHOLE:
        raise BadRequest(
            f"quantization={quantization!r} is not there on ranks={ranks}; use quantization={WHOLE!r}, or one rank."
        )
    share = RankShare(0, ranks)
    shape = share.shape(whole)
    context = shape.context if context is None else context
    for what, value in (("context", context), ("rows", rows), ("tree", tree)):
        if value < 1:
            raise BadRequest(f"{what} is {value}; expected at least 1.")
    nodes = rows * (tree + 1)
    inner = 2 * shape.hidden if shape.mixture is None else max(2 * shape.hidden, shape.mixture.width(shape.dim))
    widest = inner + 4 * shape.dim + (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    scores = rows * shape.heads * (tree + 1) * (context + tree + 1) * 4
    place, room = torch.device(device), rows * (context + tree + 1)
    beside = Footprint(2 * nodes * shape.vocab * 4, nodes * widest * dtype.itemsize + scores, 0)
    if place.type == "cuda" and ranks == 1 and unfused(shape) is None:
        beside = footprint(shape, dtype, room, context, rows, tree)
    unheld = 0 if shape.tied else shape.dim * (shape.vocab - len(share.tokens(shape.vocab)))
    free = available_bytes(place)
    idle = 0  # bytes of a table of embeddings that is no head
    if quantization == PACKED and isinstance(model, GGUFCheckpoint):
        weights = sum(map(model.packed_bytes, shape.tensors()))
        idle = 0 if shape.tied else model.packed_bytes("model.embed_tokens.weight")
    elif dtype == torch.float32 and rounds_in_blocks(quantization, "fp32", place.type):
        weights, idle = runtimes.cpu.rounded_blocks.rounded_bytes(shape, quantization)
    else:
        weights = weight_bytes(shape, dtype, quantization) - unheld * dtype.itemsize
        idle = 0 if shape.tied else shape.vocab * shape.dim * dtype.itemsize
    return MemoryPlan(
        weights=weights,
        per_token=weights - idle if shape.mixture is None else 0,
        kv=room * shape.kv_bytes(dtype),
        states=max(nodes, usual_states(shape.state_bytes(dtype), room)) * shape.state_bytes(dtype),
        logits=beside.logits,
        activations=beside.activations,
        tables=beside.tables,
        available=free if free is None or place.type == "cuda" else free // ranks,
        device=str(place) if ranks == 1 else f"{place} for a rank",
        note=f"{whole.family}, {whole.parameters / 1e6:,.0f} M parameters in {str(dtype).removeprefix('torch.')}"
        f"{'' if quantization == WHOLE else f' with {quantization} weights'}, "
        f"{rows} x {context:,} tokens, trees of {tree}{'' if ranks == 1 else f', on each of {ranks} ranks'}",
    )


def choices(
    model: Checkpoint, context: int | None = None, rows: int = 1, tree: int = 64, device: torch.device | str = "cpu"
) -> dict[str, MemoryPlan]:
    """What each way to keep the weights needs: packed and llama.cpp's for .gguf files on a CPU, int4, int8, bf16, fp32.

    llama.cpp reads the file's blocks too, and keeps keys and values in half precision.
    """
    found: dict[str, MemoryPlan] = {}
    if packs(model) and torch.device(device).type == "cpu":
        packed = plan(model, torch.float32, context, rows, tree, device, PACKED)
        found = {"packed": packed, "llama.cpp": replace(packed, kv=packed.kv // 2)}
    for name, dtype, quantization in (
        ("int4", torch.float32, "int4"),
        ("int8", torch.float32, "int8"),
        ("bf16", torch.bfloat16, WHOLE),
        ("fp32", torch.float32, WHOLE),
    ):
        found[name] = plan(model, dtype, context, rows, tree, device, quantization)
    return found


def drafter_plan(file: DrafterFile, beside: MemoryPlan, target: Shape, dtype: torch.dtype) -> MemoryPlan:
    """What a trained drafter needs beside its target: its tensors, its own keys, and the states that it reads."""
    spec, numbers = file.spec, sum(tensor.numel() for tensor in file.tensors.values())
    token = spec.shape.kv_bytes(dtype) + len(spec.states) * spec.wide * dtype.itemsize
    kept = beside.kv // target.kv_bytes(dtype) * token
    return replace(
        beside, weights=numbers * dtype.itemsize, kv=kept, states=0, activations=0, tables=0, note=spec.title
    )


def weight_bytes(shape: Shape, dtype: torch.dtype, quantization: str = WHOLE) -> int:
    """What all weights take; only the matrices of layers are kept in few bits, and routers in 32 or more."""
    if quantization not in KINDS:
        raise unknown(quantization)
    inside = [item for layer in range(shape.layers) for item in shape.layer_tensors(layer).items()]
    whole = shape.parameters - sum(prod(size) for _, size in inside)
    return whole * dtype.itemsize + sum(_bytes(name, size, dtype, quantization) for name, size in inside)


def _bytes(name: str, size: tuple[int, ...], dtype: torch.dtype, quantization: str) -> int:
    if name.startswith("mlp.gate."):
        return prod(size) * torch.promote_types(dtype, torch.float32).itemsize
    return bytes_of(quantization, size[0], size[1], dtype) if len(size) == 2 else prod(size) * dtype.itemsize


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that is free on a device, or None if it does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) if torch.cuda.is_available() else None
    if device.type != "cpu":
        return None
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
