"""What the GPU runtime takes beside weights and cache: tables, buffers, graphs and workspaces, in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from ...models.layer_shape import AttentionSpec
from ...models.shape import Shape

if TYPE_CHECKING:
    from ...models.mixer_shape import LatentSpec

WIDEST = 64  # tokens of a row in one step; more of a prompt are read before, without logits
FEW = 4  # rows up to which short prompts go with the step that gives logits for all tokens
PORTION = 4096  # tokens of a row that one forward reads of a prompt
CHUNK = 512  # and those of all prompts together between two tokens of others
FLOCK = 16384  # tokens of one forward over prompts
SHORTEST = 1024  # tokens of the shortest text that graphs are made for
LANES = 4096  # texts at a time
LEAST_LANES, SLOTS_PER_LANE = 64, 16  # texts that a small cache has lanes for
STREAMED = 64  # tokens up to which a product needs no library
LAWS, LAW = 1 << 17, 72  # laws that are remembered for drafts, and the bytes of one
LINES = 64  # texts that drafts can be made for at the same time
WORKSPACE = 32 << 20  # of the library, for every stream that has called it
STREAMS = 3  # the usual one, one to try a step and one to record it
SPLIT = 264 * 128 * 4  # bytes of partial sums of attention, per number of a head


class Footprint(NamedTuple):
    """Bytes of what a step leaves and needs."""

    logits: int
    activations: int
    tables: int


def lanes_for(room: int, most: int = LANES) -> int:
    """How many texts a cache of so many tokens has lanes for."""
    return min(most, max(LEAST_LANES, room // SLOTS_PER_LANE), room)


def step_up(number: int, least: int) -> int:
    """The next power of two from `least` on."""
    return max(least, 1 << (number - 1).bit_length())


def portion(left: int) -> int:
    """How many of so many tokens of a prompt the next forward reads.

    Forwards are padded to a power of two. So the widest one reads what nearly fills it, and else comes one of half its
    width.
    """
    half = PORTION // 2
    return half if half < left < PORTION - PORTION // 8 else min(left, PORTION)


def _attending(shape: Shape) -> list[AttentionSpec | LatentSpec]:
    mixers = (layer.mixer for layer in shape.stack)
    return [mixer for mixer in mixers if mixer is not None and mixer.kind != "recurrent"]


def _width(mixer: AttentionSpec | LatentSpec) -> int:
    """How many numbers a head of it gathers."""
    return mixer.cached if mixer.kind == "latent" else mixer.head_dim


def footprint(shape: Shape, dtype: torch.dtype, room: int, context: int, rows: int, tree: int) -> Footprint:
    """What `rows` texts of `context` tokens with trees of `tree` nodes take on a GPU with a cache of `room` tokens.

    logits: those of a step, and twice a copy that laws look at while the next is made. activations: the widest place of
    a layer, in the step or where prompts are read, once to try it and once in the graphs' own memory, which they share.
    tables: the slots of all texts, those of a step picked out of them, turns, what drafting remembers, and the
    library's workspaces.
    """
    size = dtype.itemsize
    step = step_up(rows, 1) * step_up(tree + 1, 1)
    fill = min(FLOCK, step_up(rows, 1) * step_up(min(context, PORTION), WIDEST))
    widest = max(step, fill)
    widths = [(x.heads, 2 * x.kv_heads if isinstance(x, AttentionSpec) else 1, _width(x)) for x in _attending(shape)]
    mixers = [shape.dim + (3 * heads + shared) * width for heads, shared, width in widths]
    mixers += [2 * shape.dim + mixer.width(shape.dim) for mixer in shape.recurrent]
    thinks = [2 * shape.dim + 3 * layer.hidden for layer in shape.stack]
    thinks += [2 * shape.dim + layer.mixture.width(shape.dim) for layer in shape.stack if layer.mixture is not None]
    layer, head = max(*mixers, *thinks), max((width for _, _, width in widths), default=1)
    length = step_up(shape.context, SHORTEST)
    picked = step_up(rows, 1) * min(step_up(context + tree + 1, SHORTEST), length) * 4
    turns = 2 * shape.context * head * 4
    library = STREAMS * WORKSPACE if widest > STREAMED else 0
    return Footprint(
        logits=3 * step * shape.vocab * size,
        activations=2 * (widest * layer * size + SPLIT * head),
        tables=(lanes_for(room) + 1 + LINES + 1) * length * 4 + LAWS * LAW + 2 * picked + turns + library,
    )
