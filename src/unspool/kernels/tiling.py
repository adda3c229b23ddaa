"""How attention is cut into programs, by the shapes of a bucket alone."""

from dataclasses import dataclass

import torch
import triton

PROCESSORS = 132  # of an H200; more splits than fill them only add work
FULL_CHIP = 4 * PROCESSORS
MOST_SPLITS = 64
STEADY_SPLITS = 32
MANY_TILES = 256  # that keep all processors at work without being split
FEW_TILES = 8  # whose many shares are joined faster by a launch of its own
MOST_TEXTS = 384  # times heads of keys, from which on a program each is faster than two launches
EARLY, SMALL = 16, 1  # shares of the first keys of a text, and how many steps each of them is
FOLDED = 64  # queries of a program that reads prompts
LONG = 4096  # keys of a row from which on narrow heads are read by many small programs


@dataclass(frozen=True)
class Tiling:
    """How the work is cut: `heads` queries (tokens × heads of a group) and `keys` per step, keys in `splits` shares.

    A share grows with what the row holds, unless `share` fixes it at so many keys (a multiple of `keys`), but for the
    first `early` ones, which are of `small` steps. Then a chain's numbers do not depend on where in a forward a token
    stands: drafted and plain decoding agree in every bit. With `Rows.paths` this holds for trees too. If it `joins`,
    one program has all shares of its tile; the bits are those of many programs. If it is `prefixed`, shares that all
    tokens of a row see are read once for all of them, where nothing but the order of keys says what a token sees.
    """

    heads: int
    keys: int
    splits: int
    warps: int = 4
    stages: int = 3
    share: int = 0
    early: int = 0
    small: int = 1
    joins: bool = False
    prefixed: bool = False

    def shares(self, keys: int) -> int:
        """How many shares of fixed size so many keys are cut into."""
        step = self.small * self.keys
        first = self.early * step
        small, large = min(keys, first), max(keys - first, 0)
        return -(-small // step) + (-(-large // self.share) if large else 0)


def tiling(rows: int, tokens: int, kv_heads: int, group: int, width: int, room: int, dtype: torch.dtype) -> Tiling:
    """A tiling for rows × tokens that may read up to `room` keys each, by the shapes of a bucket alone."""
    folded = tokens * group
    exact = dtype == torch.float32  # on ordinary cores, which need the registers
    wide = width > 128 or exact
    heads = 16 if folded <= 32 or exact else 32 if wide else 128 if folded >= 1024 else 64
    programs = rows * triton.cdiv(folded, heads) * kv_heads
    keys, warps, stages = 64, 8 if heads == 128 else 4, 2 if heads <= 32 else 3
    least, waves = (1, 4) if heads == 16 else (2, 2)
    if tokens == 1:
        if programs * triton.cdiv(room, 32) <= FULL_CHIP:
            keys = 32
        elif programs > FULL_CHIP:  # each by itself: the fewer threads wait for each other, the more programs at a time
            keys, warps = 32, 1
        elif programs * MOST_SPLITS <= 2 * PROCESSORS:
            keys, least = 128, 2
        elif width <= 64 and room >= LONG:
            keys, warps, stages, waves = (64, 1, 4, 8) if programs <= PROCESSORS else (32, 1, 4, 16)
        else:
            warps = 2
    if wide:
        keys, warps = (16, 8) if exact and width > 64 else (32, 4)
    # Measured on an H200: no more programs than a few waves of the chip, nor shares of less than one or two steps.
    splits = min(MOST_SPLITS, triton.cdiv(triton.cdiv(room, keys), least), round(waves * PROCESSORS / programs))
    return Tiling(heads, keys, max(1, splits), warps, stages)


def prompt(rows: int, tokens: int, kv_heads: int, group: int, width: int, dtype: torch.dtype) -> Tiling | None:
    """A tiling for the tokens of prompts, by one program each, where they are enough to keep the chip at work."""
    tiles = rows * triton.cdiv(tokens * group, FOLDED) * kv_heads
    fits = width <= 128 and dtype != torch.float32 and tokens > 1
    return Tiling(FOLDED, 64, 1, stages=2, joins=True) if fits and tiles >= PROCESSORS else None


def steady(
    room: int, context: int, group: int, width: int, tiles: int = 1, tokens: int = 1, folds: bool = False
) -> Tiling:
    """A tiling whose shares depend on nothing but the longest text that a model can read.

    Where there are many `tiles`, tokens times heads of keys, each program has all shares of one; if it `folds`, a tile
    has several tokens of a text. Texts of `tokens` each have keys that they share.
    """
    keys = 32 if width > 128 else 64
    first = EARLY * SMALL * keys
    share = keys * triton.cdiv(max(context - first, keys), keys * STEADY_SPLITS)
    splits = triton.cdiv(room, SMALL * keys) if room <= first else EARLY + triton.cdiv(room - first, share)
    heads = max(16, triton.next_power_of_2(group))
    fixed = {"share": share, "early": EARLY, "small": SMALL}
    if folds:
        return Tiling(max(FOLDED, heads), keys, 1, stages=2, joins=True, **fixed)
    prefixed = width <= 128 and tiles // tokens < MOST_TEXTS and (tiles > FEW_TILES or room <= first)
    if tiles >= MANY_TILES:
        stages = 3 if width <= 64 else 2
        return Tiling(heads, keys, 1, warps=2, stages=stages, joins=True, prefixed=prefixed, **fixed)
    warps = 1 if width <= 64 and tiles > PROCESSORS else 2
    return Tiling(heads, keys, max(2, splits), warps, stages=2, prefixed=prefixed, **fixed)
