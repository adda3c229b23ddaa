"""What fragments.py multiplies, as it is loaded: which words of weights, scales and tokens each thread asks for."""
# mypy: disable-error-code="assignment"
# Tuples of tensors grow while Triton unrolls a loop.

import triton
import triton.language as tl

from .fragments import quads


@triton.jit
def places_of(weight, shared, width, depth, bits: tl.constexpr, warps: tl.constexpr):
    """Where threads begin in the first tile: their weights, and what groups share, or of 8 bits their other lines."""
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    lane, piece = thread % 32, thread // 32
    if bits == 4:
        own = weight + (thread * 4)[:, None] + each[None, :]
        other = shared + (piece * 32 + lane // 4 * 4)[:, None] + each[None, :]
    else:
        column = (piece * 16 + lane % 4 * 4)[:, None] + each[None, :]
        own = weight + tl.minimum(lane // 4, width - 1).to(tl.int64)[:, None] * (depth // 4) + column
        other = shared + tl.minimum(lane // 4 + 8, width - 1).to(tl.int64)[:, None] * (depth // 4) + column
    return own, other


@triton.jit
def row_of(tile, width, bits: tl.constexpr):
    """The first line of a tile; of lines of 8 bits, which are not filled up, the last tile ends with the last one."""
    return tile * 16 if bits == 4 else tl.maximum(tl.minimum(tile * 16, width - 16), 0)


@triton.jit
def weights_of(
    own, other, tile, at, width, depth, total, bits: tl.constexpr, tiles: tl.constexpr, full: tl.constexpr,
    warps: tl.constexpr, even: tl.constexpr,
):  # fmt: skip
    """The piece of every warp from `at` on, tile by tile."""
    thread, each = tl.arange(0, 32 * warps), tl.arange(0, 4)
    here = True
    if not even and bits == 4:
        here = (thread // 32 + at < total)[:, None]
    if not even and bits == 8:
        here = ((thread // 32 + at) * 16 + thread % 4 * 4)[:, None] + each[None, :] < depth // 4
    found = ()
    for r in tl.static_range(full):
        if bits == 4:
            begin = (tile * tiles + (r % tiles + r // tiles * (width // 16))) * tl.cast(total, tl.int64) + at
            found += (tl.load(own + begin * 128, mask=here, other=0), tl.load(other + begin * 32, mask=here, other=0))
        else:
            row = row_of(tile * tiles + r % tiles, width, bits) + r // tiles * width
            begin = row * tl.cast(depth // 4, tl.int64) + at * 16
            found += (tl.load(own + begin, mask=here, other=0), tl.load(other + begin, mask=here, other=0))
    return found


@triton.jit
def tokens_of(
    x, norm, at, n, depth, bits: tl.constexpr, some: tl.constexpr, warps: tl.constexpr, normed: tl.constexpr,
    even: tl.constexpr, packs: tl.constexpr,
):  # fmt: skip
    """What the piece of every warp from `at` on multiplies: of every 8 tokens, twice 8 numbers for each thread.

    Behind them stand the factors of a norm.
    """
    thread = tl.arange(0, 32 * warps)
    found = ()
    for s in tl.static_range(some):
        # There may be fewer tokens; what is computed with another one is not stored.
        token = tl.minimum(tl.program_id(1) * 8 * some + thread % 32 // 4 + 8 * s, n - 1)
        word = thread // 32 * 32 + thread % 4 * (8 if bits == 8 else 4)
        place = token * (depth // 2) + word
        for half in tl.static_range(2):
            ahead = at * 32 + half * (4 if bits == 8 else 16)
            found += (quads(x + place + ahead, depth // 2 - word - ahead, even, packs),)
    if normed:
        word = thread // 32 * 32 + thread % 4 * (8 if bits == 8 else 4)
        for half in tl.static_range(2):
            ahead = at * 32 + half * (4 if bits == 8 else 16)
            found += (quads(norm + word + ahead, depth // 2 - word - ahead, even, packs),)
    return found
