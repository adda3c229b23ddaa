"""How a product is cut into programs: by a table of measured cases, else by a rule."""

from dataclasses import dataclass, replace

import torch

MOST_ROWS = 64  # tokens up to which streaming the weights is all that counts
TILED_ROWS, NARROW = 128, 4096  # tokens up to which narrow products are made of such tiles, and how narrow
TWICE = 264  # programs that give two to every processor
PROGRAMS = 80  # that keep most of an H200's 132 processors at work
PIECE, MOST_PIECES = 128, 16  # terms of a sum that tensor cores add by themselves, and up to how many such pieces
AT_ONCE, MOST_COLUMNS = 8, 256  # tokens whose pieces a program takes at once, and up to how many pieces of all of them
DEEP = 1024  # terms of a sum from which on two such programs are faster than one tile
LINES = 64  # pieces of weights that a program takes then, or twice as many where there are programs enough
PROCESSORS = 132  # of an H200
SHORT = 1024  # terms of a sum up to which many tokens are faster by such tiles than by the library
NORM_ROWS = 16  # tokens up to which every program may norm them anew rather than have a launch of its own for it


@dataclass(frozen=True)
class Tile:
    """A program makes `rows` × `block` results, `step` of the sum at a time; `splits` programs share one sum.

    `rows` is 1 for one token on ordinary cores, else 16, 32 or 64 on tensor cores, unless pieces are taken `at_once`,
    where it may be any power of two, and several programs share many tokens; `turned` there has the weights come
    first in each product, tokens second. `norms`: every program norms the tokens anew, else a launch before it does.
    With `chunks` one program adds up a sum as so many splits would, to the last bit. If `apart`, tensor cores sum the
    terms of each PIECE by themselves, and these sums are added up in order; `at_once`, all of them at the same time.
    If `described`, tiles are copied by the chip, where it can.
    """

    rows: int
    block: int
    step: int
    splits: int = 1
    warps: int = 4
    stages: int = 4
    norms: bool = False
    turned: bool = False
    chunks: int = 1
    apart: bool = False
    at_once: bool = False
    described: bool = False


LIBRARY = Tile(rows=0, block=0, step=0)
"""PyTorch's own product, with launches of their own for what stands around it."""

MANY = Tile(128, 128, 64, warps=8, stages=3, described=True), Tile(128, 64, 64, warps=8, stages=3, described=True)
APART = Tile(64, 128, 64, stages=3, apart=True, described=True), Tile(64, 64, 64, stages=3, apart=True, described=True)
"""Narrow products of many tokens: one chain of terms, of plain and of gated ones; and pieces, many programs and fewer.

As measured at 2,048 and 4,096 tokens."""

TUNED: dict[tuple[int, int, int, bool], Tile] = {
    (960, 576, 1, False): Tile(1, 2, 1024, norms=True),
    (960, 576, 16, False): Tile(64, 16, 128, stages=5),
    (960, 576, 32, False): Tile(64, 16, 128, stages=5),
    (960, 576, 64, False): Tile(64, 16, 128, stages=5),
    (576, 576, 1, False): Tile(1, 2, 1024, norms=True),
    (576, 576, 16, False): Tile(64, 16, 128, stages=5),
    (576, 576, 32, False): Tile(64, 16, 128, stages=5),
    (576, 576, 64, False): Tile(64, 16, 128, stages=5),
    (1536, 576, 1, True): Tile(1, 4, 512, norms=True),
    (1536, 576, 16, True): Tile(64, 16, 128),
    (1536, 576, 32, True): Tile(64, 16, 128),
    (1536, 576, 64, True): Tile(64, 16, 128),
    (576, 1536, 1, False): Tile(1, 2, 1024, warps=8, norms=True),
    (576, 1536, 16, False): Tile(64, 16, 128, stages=5),
    (576, 1536, 32, False): Tile(64, 16, 128, stages=5),
    (576, 1536, 64, False): Tile(64, 16, 128, stages=5),
    (49152, 576, 1, False): Tile(16, 128, 64, warps=8, turned=True),
    (49152, 576, 16, False): Tile(16, 128, 64, warps=8, turned=True),
    (49152, 576, 32, False): Tile(32, 128, 64, warps=8, turned=True),
    (49152, 576, 64, False): Tile(64, 128, 64, warps=8, turned=True),
    (6144, 4096, 1, False): Tile(1, 8, 1024, warps=8, norms=True),
    (6144, 4096, 16, False): Tile(16, 64, 128, turned=True),
    (6144, 4096, 32, False): Tile(64, 64, 128, stages=5),
    (6144, 4096, 64, False): Tile(64, 64, 128, stages=5),
    (4096, 4096, 1, False): Tile(1, 8, 1024, norms=True),
    (4096, 4096, 16, False): Tile(16, 64, 128, splits=4, turned=True),
    (4096, 4096, 32, False): Tile(32, 64, 128, splits=2, turned=True),
    (4096, 4096, 64, False): Tile(64, 32, 128, stages=5),
    (14336, 4096, 1, True): Tile(1, 4, 512, norms=True),
    (14336, 4096, 16, True): Tile(16, 64, 128, stages=3, turned=True),
    (14336, 4096, 32, True): Tile(32, 128, 64, warps=8, turned=True),
    (14336, 4096, 64, True): Tile(64, 128, 64, warps=8, turned=True),
    (4096, 14336, 1, False): Tile(1, 8, 1024, norms=True),
    (4096, 14336, 16, False): Tile(16, 64, 128, splits=4, turned=True),
    (4096, 14336, 32, False): Tile(32, 64, 128, splits=4, turned=True),
    (4096, 14336, 64, False): Tile(64, 64, 128, splits=2),
    (5120, 2048, 1, False): Tile(1, 8, 1024, norms=True),
    (5120, 2048, 16, False): Tile(16, 64, 128, stages=6, turned=True),
    (5120, 2048, 32, False): Tile(32, 64, 128, turned=True),
    (2048, 4096, 1, False): Tile(1, 8, 1024, warps=8, norms=True),
    (2048, 4096, 16, False): Tile(16, 64, 64, splits=4, stages=8, turned=True),
    (2048, 4096, 32, False): Tile(32, 64, 128, splits=4, turned=True),
    (128256, 4096, 1, False): Tile(1, 4, 512, norms=True),
    (128256, 4096, 16, False): Tile(16, 64, 128, stages=3, turned=True),
    (128256, 4096, 32, False): Tile(32, 64, 128, stages=3, turned=True),
    (128256, 4096, 64, False): Tile(64, 128, 64, warps=8),
}
"""The best cuts as measured on an H200 in bfloat16 (bench/tuning.py), by (out, in, 1 or rows, gated)."""


def cut_for(width: int, depth: int, n: int, dtype: torch.dtype, gated: bool) -> Tile:
    """The cut for results [n, width] summed over `depth`; gated ones sum two halves of the weight at once."""
    if n > MOST_ROWS:
        narrow = width < NARROW and dtype != torch.float32
        if n <= TILED_ROWS or not narrow:
            return cut_for(width, depth, MOST_ROWS, dtype, gated) if narrow else LIBRARY
        return MANY[gated] if depth <= SHORT and _programs(MANY[gated], width, n) >= PROGRAMS else LIBRARY
    rows = rows_for(n) if n > 1 else 1
    if dtype == torch.float32:
        return Tile(rows, 32, 32, stages=2, norms=n <= NORM_ROWS) if n > 1 else Tile(1, 4, 512, norms=True)
    if _apart(width, depth) and (few := _at_once(width, depth, n, gated)) is not None:
        return few
    found = TUNED.get((width, depth, rows, gated))
    if found is not None:
        return found
    if n == 1:
        return Tile(1, _pieces(width, 2 if gated else 1), min(1024, _up(depth)), norms=True)
    if width < NARROW:
        return Tile(64, 16, 128, stages=5)  # for few tokens too
    if rows == 64 and not gated:
        return Tile(64, 128, 64, warps=8) if width >= 16384 else Tile(64, 64, 128, stages=5)
    splits = 4 if width < 6144 and depth >= 4096 else 1
    return Tile(rows, 64, 128, splits, turned=True)


def steady_cut(width: int, depth: int, n: int, dtype: torch.dtype, gated: bool) -> Tile:
    """A cut whose sums have one order, whatever n: on tensor cores, which add in order of depth, and split alike.

    Small products sum pieces apart, which lets few tokens have all pieces taken at once. In float32, which tensor cores
    do not take, all cuts are the same one.
    """
    if dtype == torch.float32:
        return Tile(MOST_ROWS, 32, 32, stages=2)
    apart = _apart(width, depth)
    if apart and (few := _at_once(width, depth, n, gated)) is not None:
        return few
    splits = TUNED.get((width, depth, 16, gated), LIBRARY).splits  # which suits few tokens, and then holds for all
    if n <= (TILED_ROWS if width < NARROW else MOST_ROWS):
        found = cut_for(width, depth, max(n, AT_ONCE + 1 if apart else 2), dtype, gated)
        if found.splits != splits:  # as many, by as many programs only where there are few
            found = replace(found, splits=splits) if found.splits > 1 else replace(found, chunks=splits)
        return replace(found, step=PIECE, apart=True) if apart else found
    large, middle = APART if apart else (Tile(128, 128, 64, warps=8, stages=3), Tile(64, 64, 64))
    if apart and (gated or _programs(large, width, n) < TWICE):
        large = middle
    for tile in (large, middle):
        if _programs(tile, width, n) >= PROGRAMS:
            return replace(tile, chunks=splits, apart=apart)
    return Tile(64, 32, PIECE, chunks=splits, apart=apart)


def _programs(tile: Tile, width: int, n: int) -> int:
    return -(-n // tile.rows) * -(-width // tile.block)


def _apart(width: int, depth: int) -> bool:
    """Whether a product is small enough for its pieces to be summed apart."""
    return width < NARROW and depth <= PIECE * MOST_PIECES


def _at_once(width: int, depth: int, n: int, gated: bool) -> Tile | None:
    """The cut that takes all pieces of n tokens at once, if they are few; as measured on an H200 (bench/rounds.py)."""
    lanes, tokens = _up(-(-depth // PIECE)), min(_up(n), AT_ONCE)
    if n > (2 * AT_ONCE if depth > DEEP else AT_ONCE) or lanes * tokens > MOST_COLUMNS:
        return None
    block = max(1, LINES // (lanes * (2 if gated else 1)))
    if -(-width // block) <= (PROCESSORS if n == 1 else PROGRAMS):
        return Tile(tokens, block, PIECE, norms=True, apart=True, at_once=True)
    warps = 4 if gated and n == 1 else 8
    return Tile(tokens, 2 * block, PIECE, warps=warps, norms=True, apart=True, at_once=True)


def cuts(width: int, depth: int, n: int, gated: bool) -> list[Tile]:
    """A short list of cuts worth trying, the rule's own first."""
    rows, most = rows_for(n), max(1, min(4, depth // 1024))
    found = [cut_for(width, depth, n, torch.bfloat16, gated), LIBRARY]
    if n == 1:
        step = min(1024, _up(depth))
        found += [Tile(1, block, step, warps=warps, norms=True) for block in (1, 2, 4, 8) for warps in (4, 8)]
        found += [Tile(1, block, 512, norms=True) for block in (4, 8, 16)]
        return list(dict.fromkeys(found))
    found += [Tile(rows, block, 128, stages=5) for block in (16, 32, 64)]
    found += [Tile(rows, 32, 256, stages=3), Tile(rows, 64, 128, stages=4, turned=True)]
    found += [Tile(rows, 64, 64, stages=6, turned=True), Tile(rows, 128, 64, stages=5, turned=True)]
    found += [Tile(rows, 64, 128, stages=3, turned=True), Tile(rows, 64, 64, 2, stages=6, turned=True)]
    found += [Tile(rows, 64, 128, splits, stages=4, turned=rows < 64) for splits in (2, 4) if splits <= most]
    found += [Tile(rows, 128, 64, stages=4, warps=8, turned=turned) for turned in (False, True)]
    if depth <= 1024:
        found += [Tile(rows, block, 128, stages=4, norms=True) for block in (16, 32)]
    if rows == 64:
        found += [Tile(rows, 128, 128, stages=3, warps=8)]
    if rows == 32:
        found += [TUNED.get((width, depth, 64, gated), LIBRARY)]
    return list(dict.fromkeys(found))


def rows_for(n: int) -> int:
    """The rows of a tile that holds n tokens on tensor cores."""
    return 16 if n <= 16 else 32 if n <= 32 else 64


def _up(x: int) -> int:
    return 1 << (x - 1).bit_length()


def _pieces(width: int, halves: int) -> int:
    """Results per program for one token: enough programs to keep all of the memory busy, then longer ones."""
    block = 8 // halves
    while block > 1 and width // block < 528:
        block //= 2
    return block
