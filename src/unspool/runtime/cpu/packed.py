"""Packed weights: matrices that stay in the blocks of their GGUF file, in memory and in the product.

The kernels round what is multiplied to int8, 32 numbers with one scale of their own, and sum whole numbers: the
weights are the file's to the last bit, the products are not those of float32. Without kernels the blocks are decoded
for every product, which is slow and rounds nothing.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from threading import Thread

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.errors import BadRequest, OutOfRoom
from ...models.quant import FORMATS, QuantBlocks
from ...models.weights import Checkpoint, GGUFCheckpoint
from ..network.layer import Loader
from ..network.linear import EmbeddingAndHead, Linear
from ..network.quantised import AUTO, PACKED, ROUNDED, WHOLE
from .compiled import Kernels, MatrixStruct, TableStruct, kernels, missing

FAST = ("auto", "fast")  # precisions that leave the choice to us
WIDE = (*FAST, "fp32")
PAGE = 1 << 21
REGION = 1 << 25  # bytes that are mapped at a time; what of them is never written takes no memory
ALIGNED = 64
SMALL = 1 << 20  # bytes of a matrix that one thread puts into tiles; of larger ones each has a share
AT_ONCE = 16  # rows of a tile
KINDS = {FORMATS[number].name: number for number in (2, 3, 6, 7, 8, 12, 13, 14)}  # formats that the kernels read


class PackedLinear:
    """x ↦ x·Wᵀ + b by the kernels, for x in float32 [n, in] and matrices [out, in] side by side.

    What a row gives does not depend on how many there are. Cost: each weight is read once for every 8 rows.
    """

    def __init__(
        self, parts: Sequence[QuantBlocks], bias: Tensor | None, native: Kernels, memory: HugePages | None = None
    ) -> None:
        self._native, self.bias = native, None if bias is None else bias.float().contiguous()
        self.tiles = [_tiled(part, native, memory) for part in parts]
        self.out, self.inputs = sum(part.shape[0] for part in parts), parts[0].shape[1]
        self.count = len(parts)
        self.matrices = (MatrixStruct * len(parts))()
        first = 0
        for matrix, part, tiles in zip(self.matrices, parts, self.tiles, strict=True):
            rows = part.shape[0]
            at = None if self.bias is None else self.bias.data_ptr() + first * self.bias.itemsize
            matrix.kind, matrix.out, matrix.inputs = KINDS[part.format.name], rows, self.inputs
            matrix.tiles, matrix.bias = tiles.data_ptr(), at
            first += rows

    def first(self, out: int) -> PackedLinear:
        """The first `out` outputs of one matrix alone, in the same memory; all of them if there are no more."""
        part, (whole,) = copy(self), self.matrices
        part.out = min(out, self.out)
        part.matrices = (MatrixStruct * 1)(MatrixStruct(whole.kind, part.out, whole.inputs, whole.tiles, whole.bias))
        return part

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.float().contiguous()
        y = torch.empty(len(rows), self.out)
        if len(rows) and not self._native.multiply(
            self.matrices, self.count, rows.data_ptr(), y.data_ptr(), len(rows), torch.get_num_threads()
        ):
            raise OutOfRoom(f"no memory to multiply {len(rows)} rows of {self.inputs} numbers")
        return y.to(x.dtype)


def table_of(table: Tensor | QuantBlocks) -> TableStruct | None:
    """A table of embeddings for kernels that decode its rows, for as long as the table lives; None if they cannot."""
    if not isinstance(table, QuantBlocks) or table.format.name not in KINDS or not table.data.is_contiguous():
        return None
    rows, size = table.data.shape
    return TableStruct(table.data.data_ptr(), size, KINDS[table.format.name], rows)


class DecodedLinear:
    """The same without kernels: all blocks are decoded for every product."""

    def __init__(self, parts: Sequence[QuantBlocks], bias: Tensor | None) -> None:
        self._parts = [QuantBlocks(part.format, part.data.clone()) for part in parts]
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        weight = torch.cat([part.whole(x.dtype) for part in self._parts])
        return F.linear(x, weight, self.bias)


class PackedLoader(Loader):
    """Reads a GGUF file and leaves matrices in their blocks; those that are stored whole are laid out as ever."""

    def matrix(self, names: Sequence[str], has_bias: bool) -> Linear:
        weights = [f"{name}.weight" for name in names]
        parts = [found for name in weights if (found := self._blocks(name)) is not None]
        if len(parts) < len(names):
            return super().matrix(names, has_bias)
        bias = self._stacked([f"{name}.bias" for name in names]) if has_bias else None
        made = self._linear(parts, bias)
        for name in weights:
            self._file.release(name)
        return made

    def ends(self) -> EmbeddingAndHead:
        """Embedding and head; the embedding is read from the file, row by row, where it has blocks."""
        shape = self.checkpoint.shape
        table = self._blocks("model.embed_tokens.weight")
        head = table if shape.tied else self._blocks("lm_head.weight")
        if table is None or head is None or shape.filling is not None:
            return super().ends()
        made = self._linear([head], None)
        self._file.release("model.embed_tokens.weight" if shape.tied else "lm_head.weight")  # rows are read again
        return EmbeddingAndHead(table, self.scale(), self.norm("model.norm"), made)

    @property
    def _file(self) -> GGUFCheckpoint:
        assert isinstance(self.checkpoint, GGUFCheckpoint)
        return self.checkpoint

    def _blocks(self, name: str) -> QuantBlocks | None:
        return self._file.blocks(name) if self._file.format_of(name).name in KINDS else None

    def _linear(self, parts: Sequence[QuantBlocks], bias: Tensor | None) -> Linear:
        native = kernels()
        return DecodedLinear(parts, bias) if native is None else PackedLinear(parts, bias, native, self._memory)

    @cached_property
    def _memory(self) -> HugePages:
        """Where all matrices of the model lie one behind the other."""
        return HugePages()


def packs(checkpoint: Checkpoint) -> bool:
    """Whether a model has matrices in blocks."""
    return isinstance(checkpoint, GGUFCheckpoint) and any(formats(checkpoint).values())


def formats(checkpoint: GGUFCheckpoint) -> dict[str, bool]:
    """The matrices of a model, and whether each is in blocks."""
    sizes = checkpoint.shape.tensors()
    return {name: checkpoint.format_of(name).name in KINDS for name, size in sizes.items() if len(size) == 2}


def resolved(quantization: str, dtype: str, device: str, ranks: int, checkpoint: Checkpoint) -> str:
    """What `auto` means here: packed where a CPU has kernels for the file's blocks and no precision was asked for."""
    if quantization == PACKED and device.startswith("cuda") and dtype != "fp32":
        return PACKED  # in tiles, see `runtime.cuda.tiled`
    if quantization == PACKED and not packs(checkpoint):
        raise BadRequest(
            "quantization='packed' keeps the blocks of a quantised .gguf file, and this model has none; "
            "use int8 or int4 to round it, or none."
        )
    if quantization == PACKED and (device != "cpu" or dtype not in WIDE):
        raise BadRequest(
            f"quantization='packed' is for the CPU, between numbers in fp32; here it is {device} and {dtype}. "
            "Use device='cpu' and dtype='auto', or another quantization."
        )
    if quantization != AUTO:
        return quantization
    fast = device == "cpu" and dtype in FAST and ranks == 1 and packs(checkpoint) and kernels() is not None
    return PACKED if fast else WHOLE


def chosen(quantization: str, dtype: str, device: str, ranks: int, checkpoint: Checkpoint) -> tuple[str, str | None]:
    """What a quantization means here, and a line about it where it is packed or would be without the precision."""
    found = resolved(quantization, dtype, device, ranks, checkpoint)
    if found == PACKED:
        return found, described(checkpoint) if device == "cpu" else None
    if dtype in FAST or resolved(quantization, "auto", device, ranks, checkpoint) != PACKED:
        return found, None
    return (
        found,
        f"weights widened to {dtype}, as asked; with dtype auto they stay packed as in the file, and are faster",
    )


def rounds_in_blocks(quantization: str, dtype: str, device: str) -> bool:
    """Whether weights that are rounded so are multiplied by the kernels, between numbers in float32."""
    rounds = quantization in ROUNDED and device == "cpu" and dtype in WIDE
    return rounds and kernels() is not None


def described(checkpoint: Checkpoint) -> str:
    """The weights that stay packed, in a line."""
    assert isinstance(checkpoint, GGUFCheckpoint)
    known = sorted({checkpoint.format_of(name).name for name, blocks in formats(checkpoint).items() if blocks})
    native, size = kernels(), sum(map(checkpoint.packed_bytes, checkpoint.names()))
    how = f"no kernels: {missing()}" if native is None else f"{native.level} kernels"
    return f"weights packed as in the file ({', '.join(known)}), {size / 1e6:,.0f} MB, {how}"


def _tiled(part: QuantBlocks, native: Kernels, memory: HugePages | None) -> Tensor:
    """A copy of the blocks in the order in which the kernels read them."""
    kind, (rows, columns) = KINDS[part.format.name], part.shape
    size, data = native.tiled_bytes(kind, rows, columns), part.data.contiguous()
    assert size, f"{part.format.name} blocks do not fill {columns} columns"  # the file's directory was checked
    tiles = torch.empty(size, dtype=torch.uint8) if memory is None else memory.take(size)
    share = -(-rows // (torch.get_num_threads() if size > SMALL else 1) // AT_ONCE) * AT_ONCE  # of each thread
    wide, tall = data.nbytes // rows, native.tiled_bytes(kind, AT_ONCE, columns) // AT_ONCE  # bytes of a row

    def tile(first: int) -> None:
        source, target = data.data_ptr() + first * wide, tiles.data_ptr() + first * tall
        native.tile(kind, ctypes.c_void_p(source), min(share, rows - first), columns, ctypes.c_void_p(target))

    others = [Thread(target=tile, args=(first,)) for first in range(share, rows, share)]
    for other in others:
        other.start()
    tile(0)
    for other in others:
        other.join()
    return tiles


class HugePages:
    """Hands out memory in huge pages, piece behind piece, that is written once and kept as long as anybody holds it.

    A forward reads every weight once. In pages of 4 kB it asks for the address of a page 25,000 times for 100 MB, and
    what the processor fetches ahead ends with each of them; in pages of 2 MB neither is felt.
    """

    def __init__(self) -> None:
        self._region, self._taken = torch.empty(0, dtype=torch.uint8), 0

    def take(self, size: int) -> Tensor:
        """So many bytes, with anything in them."""
        if self._taken + size > len(self._region):
            self._region, self._taken = _mapped(max(size, REGION)), 0
        start = self._taken
        self._taken += -(-size // ALIGNED) * ALIGNED
        return self._region[start : start + size]


def _mapped(size: int) -> Tensor:
    """At least so many bytes, from the start of a huge page on."""
    space = mmap.mmap(-1, -(-size // PAGE) * PAGE + PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system that has none
            space.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(space, dtype=torch.uint8)
    return whole[-whole.data_ptr() % PAGE :]
