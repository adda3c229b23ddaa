"""Quantised safetensors: weights that lie in a file as codes and scales, decoded to float32 when they are read.

`quantization_config` says how they were made: fp8 in blocks, compressed-tensors (int4 and int8, packed or plain, and
fp8), AWQ, GPTQ, bitsandbytes in 4 bits, and MXFP4. A matrix that is stored whole in such a folder is read as ever.
"""

from __future__ import annotations

import json
from math import prod

import torch
from torch import Tensor

from ..core.errors import BadModel
from .codes import Coded, Coding, FloatCodes, GroupedCodes, Reader, Sizes, of_groups
from .config_fields import ConfigFields, elsewhere
from .quant import FP4, half_power

_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_METHODS = ("fp8", "compressed-tensors", "awq", "gptq", "bitsandbytes", "mxfp4")
_NESTED = 256  # scales that share one in bitsandbytes
_WIDEST = 1 << 20  # numbers along a side of a block


def coding(fields: ConfigFields) -> Coding:
    """Read the quantization_config of a folder."""
    for name in ("transform_config", "sparsity_config"):
        if fields.get(name):
            raise elsewhere(fields.source, f"it sets {name}")
    method = fields.text("quant_method")
    if method not in _METHODS:
        raise elsewhere(fields.source, f"its weights are quantised by {method!r} (known: {', '.join(_METHODS)})")
    if method == "mxfp4":
        return _mxfp4
    makers = {"fp8": _fp8, "compressed-tensors": _compressed, "awq": _awq, "gptq": _gptq}
    return makers.get(method, _bitsandbytes)(fields)


def _fit(name: str, found: tuple[int, ...] | None, expected: tuple[int, ...]) -> None:
    if found != expected:
        raise BadModel(
            f"{name!r} has shape {found}; expected {expected}. The file is damaged, or its quantization_config "
            "belongs to another; download both again."
        )


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _spread(scale: Tensor, rows: int, columns: int, high: int, wide: int) -> Tensor:
    """Scales of blocks high x wide, of which the last may be cut, one for each number of a matrix."""
    return scale.float()[torch.arange(rows) // high][:, torch.arange(columns) // wide]


def _fp8(fields: ConfigFields) -> Coding:
    """w = scale·code, with codes of eight bits and a scale for each block of `weight_block_size`."""
    high, wide = _block(fields, "weight_block_size")

    def find(name: str, sizes: Sizes) -> Coded | None:
        scale = f"{name}_scale_inv"
        if scale not in sizes:
            return None
        rows, columns = _matrix(name, sizes)
        _fit(scale, sizes[scale], (-(-rows // high), -(-columns // wide)))

        def codes(read: Reader) -> FloatCodes:
            return FloatCodes(read(name), read(scale)[torch.arange(rows) // high], wide)

        return Coded((rows, columns), (name, scale), lambda read: codes(read).whole(), codes)

    return find


def _block(fields: ConfigFields, name: str) -> tuple[int, int]:
    block = fields.get(name)
    sides = block if isinstance(block, list) and all(isinstance(n, int) and 0 < n <= _WIDEST for n in block) else []
    if len(sides) != 2:
        raise elsewhere(fields.source, f"its weights have no {name} of two numbers")
    return sides[0], sides[1]


def _group(fields: ConfigFields, columns: int) -> int:
    """How many columns share a scale; all of them where nothing, 0 or −1 is told."""
    size = fields.get("group_size")
    return columns if size in (None, 0, -1) else fields.whole("group_size")


def _matrix(name: str, sizes: Sizes) -> tuple[int, int]:
    size = sizes.get(name, ())
    if len(size) != 2 or min(size) < 1:
        raise BadModel(f"{name!r} has shape {size}; expected a matrix of codes. The file is damaged.")
    return size[0], size[1]


def _unpacked(words: Tensor, bits: int, along: int) -> Tensor:
    """Numbers of `bits` bits out of 32-bit words, the lowest first, in place of the dimension `along`."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32)
    moved = words.movedim(along, -1)
    spread = ((moved.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)).flatten(-2)
    return spread.movedim(-1, along)


def _bits(fields: ConfigFields, name: str, known: tuple[int, ...]) -> int:
    bits = fields.whole(name)
    if bits not in known:
        raise elsewhere(fields.source, f"its weights have {bits} bits (known: {', '.join(map(str, known))})")
    return bits


def _compressed(fields: ConfigFields) -> Coding:
    """w = scale·(code − zero) per tensor, row, group or block, with codes packed into words of 32 bits, or as they are.

    All groups of layers must be coded alike; what is left out of them is stored whole.
    """
    groups = fields.within("config_groups")
    found = [groups.within(name) for name in groups.values] if groups is not None else []
    weights = [group.within("weights") for group in found if group is not None]
    kinds = {json.dumps(dict(w.values), sort_keys=True, default=str) for w in weights if w}
    if len(kinds) != 1 or weights[0] is None:
        raise elsewhere(fields.source, f"it codes layers in {len(kinds)} ways (known: one)")
    spec = weights[0]
    kind, bits = spec.text("type", "int"), _bits(spec, "num_bits", (4, 8))
    if kind not in ("int", "float") or (kind == "float" and bits != 8):
        raise elsewhere(fields.source, f"its weights are {kind} {bits} (known: int 4, int 8, float 8)")
    half, way = 1 << (bits - 1), spec.text("strategy", "")
    block = _block(spec, "block_structure") if way == "block" else None
    grouped = way in ("", "group") and spec.get("group_size") is not None

    def find(name: str, sizes: Sizes) -> Coded | None:
        stem = _stem(name)
        packed, scale, zero = (f"{stem}.weight_{part}" for part in ("packed", "scale", "zero_point"))
        order = f"{stem}.weight_g_idx"
        if scale not in sizes:
            return None
        codes = packed if packed in sizes else name
        rows, columns = _matrix(codes, sizes)
        if codes == packed:
            columns *= 32 // bits
        shape, zeros, ordered = sizes[scale], zero in sizes, order in sizes
        if len(shape) < 2:
            shape = (1, 1) if prod(shape) == 1 else (prod(shape), 1)
        if block is not None:
            high, wide = block
            _fit(scale, shape, (-(-rows // high), -(-columns // wide)))
        elif len(shape) != 2 or min(shape) < 1 or rows % shape[0] or columns % shape[1]:
            raise BadModel(f"{scale!r} has shape {sizes[scale]}, which does not divide {rows} x {columns}. Damaged.")
        else:
            high, wide = rows // shape[0], columns // shape[1]
            if grouped and wide != _group(spec, columns):
                _fit(scale, shape, (rows, columns // _group(spec, columns)))
        if zeros and codes == packed:
            _fit(zero, sizes[zero], (-(-rows * bits // 32), shape[1]))
        elif zeros:
            _fit(zero, sizes[zero], sizes[scale])
        if ordered:
            _fit(order, sizes[order], (columns,))
        parts = (codes, scale, *((zero,) if zeros else ()), *((order,) if ordered else ()))

        def decode(read: Reader) -> Tensor:
            scales = read(scale).float().reshape(shape)
            q = _unpacked(read(codes), bits, 1).float() - half if codes == packed else read(codes).float()
            offset = torch.zeros(())
            if zeros:
                offset = (
                    read(zero).float().reshape(shape)
                    if codes != packed
                    else (_unpacked(read(zero), bits, 0)[:rows].float() - half)
                )
            if ordered:
                group = _indices(read(order), shape[1], order)
                scales, offset = scales[:, group], offset[:, group] if zeros else offset
            else:
                scales = _spread(scales, rows, columns, high, wide)
                offset = _spread(offset, rows, columns, high, wide) if zeros else offset
            return (q - offset) * scales

        def in_groups(read: Reader) -> GroupedCodes:
            q = _unpacked(read(codes), bits, 1) if codes == packed else read(codes).int() + half
            offset = torch.full(shape, half)
            if zeros:
                offset = _unpacked(read(zero), bits, 0)[:rows] if codes == packed else read(zero).int() + half
            return GroupedCodes(q, read(scale).reshape(shape), offset.reshape(shape), bits, wide)

        def in_floats(read: Reader) -> FloatCodes:
            return FloatCodes(read(codes), read(scale).reshape(shape)[torch.arange(rows) // high], wide)

        if kind == "float" and not zeros and not ordered:
            return Coded((rows, columns), parts, decode, in_floats)
        alike = kind == "int" and high == 1 and block is None and not ordered
        return Coded((rows, columns), parts, decode, in_groups if alike else None)

    return find


def _indices(found: Tensor, count: int, name: str) -> Tensor:
    """Numbers of groups, each of which there is."""
    found = found.long()
    if bool(((found < 0) | (found >= count)).any()):
        raise BadModel(f"{name!r} names groups beyond the {count} that there are. The file is damaged.")
    return found


def _awq(fields: ConfigFields) -> Coding:
    """w = scale·(code − zero), both of 4 bits and woven in words, with columns first."""
    bits = _bits(fields, "bits", (4,))
    if fields.text("version", "gemm").lower() != "gemm":
        raise elsewhere(fields.source, f"its AWQ version is {fields.get('version')!r} (known: gemm)")
    place = torch.tensor([_AWQ_ORDER.index(n) for n in range(8)])

    def unwoven(words: Tensor) -> Tensor:
        return _unpacked(words, bits, 1).view(len(words), -1, 8)[:, :, place].flatten(1)

    def find(name: str, sizes: Sizes) -> Coded | None:
        stem = _stem(name)
        codes, zeros, scale = f"{stem}.qweight", f"{stem}.qzeros", f"{stem}.scales"
        if codes not in sizes:
            return None
        columns, words = _matrix(codes, sizes)
        size = _group(fields, columns)
        _fit(zeros, sizes.get(zeros), (columns // size, words))
        _fit(scale, sizes.get(scale), (columns // size, 8 * words))

        def in_groups(read: Reader) -> GroupedCodes:
            return GroupedCodes(unwoven(read(codes)).T, read(scale).T, unwoven(read(zeros)).T, bits, size)

        return of_groups((8 * words, columns), (codes, zeros, scale), in_groups)

    return find


def _gptq(fields: ConfigFields) -> Coding:
    """w = scale·(code − zero − 1) per group of columns, with codes packed along them; the second version adds no 1."""
    bits = _bits(fields, "bits", (2, 4, 8))
    form = fields.text("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise elsewhere(fields.source, f"its checkpoint_format is {form[:40]!r} (known: gptq, gptq_v2)")
    one = 0 if form == "gptq_v2" else 1

    def find(name: str, sizes: Sizes) -> Coded | None:
        stem = _stem(name)
        codes, zeros, scale, order = (f"{stem}.{part}" for part in ("qweight", "qzeros", "scales", "g_idx"))
        if codes not in sizes:
            return None
        words, rows = _matrix(codes, sizes)
        columns, (groups, _) = words * 32 // bits, _matrix(scale, sizes)
        _fit(scale, sizes.get(scale), (groups, rows))
        _fit(zeros, sizes.get(zeros), (groups, rows * bits // 32))
        ordered = order in sizes
        if ordered:
            _fit(order, sizes[order], (columns,))
        size = -(-columns // groups) if fields.get("group_size") is None else _group(fields, columns)
        if not ordered:
            _fit(scale, sizes.get(scale), (-(-columns // size), rows))

        def parts(read: Reader) -> tuple[Tensor, Tensor, Tensor]:
            return _unpacked(read(codes), bits, 0), _unpacked(read(zeros), bits, 1) + one, read(scale)

        def in_groups(read: Reader) -> GroupedCodes:
            q, zero, scales = (part.T for part in parts(read))
            return GroupedCodes(q, scales, zero, bits, size)

        def decode(read: Reader) -> Tensor:
            group, (q, zero, scales) = _indices(read(order), groups, order), parts(read)
            return ((q.float() - zero.float()[group]) * scales.float()[group]).T

        if ordered:
            return Coded((rows, columns), (codes, zeros, scale, order), decode)
        return of_groups((rows, columns), (codes, zeros, scale), in_groups)

    return find


def _bitsandbytes(fields: ConfigFields) -> Coding:
    """w = scale·table[code], two codes a byte, the upper first; scales of each block may be coded themselves."""
    if not fields.flag("load_in_4bit"):
        raise elsewhere(fields.source, "its weights are coded by bitsandbytes in other ways than 4 bits")
    kind = fields.text("bnb_4bit_quant_type", "nf4")

    def find(name: str, sizes: Sizes) -> Coded | None:
        state = f"{name}.quant_state.bitsandbytes__{kind}"
        scale, table = f"{name}.absmax", f"{name}.quant_map"
        nested, nested_table = f"{name}.nested_absmax", f"{name}.nested_quant_map"
        if state not in sizes:
            return None
        for needed in (scale, table):
            if needed not in sizes:
                raise BadModel(f"{needed!r} is missing. The file is incomplete; download it again.")
        _fit(table, sizes[table], (16,))
        count = 2 * prod(sizes.get(name, ()))
        twice = nested in sizes

        def decode(read: Reader) -> Tensor:
            told = _state(read(state), state)
            block, size = told.whole("blocksize"), _shape_of(told, count)
            blocks = -(-count // block)
            scales = read(scale)
            if twice:
                _fit(nested_table, sizes.get(nested_table), (_NESTED,))
                _fit(nested, sizes[nested], (-(-blocks // told.whole("nested_blocksize", _NESTED)),))
                outer = read(nested).float()[torch.arange(blocks) // told.whole("nested_blocksize", _NESTED)]
                offset = told.values.get("nested_offset", 0.0)
                if not isinstance(offset, (int, float)):
                    raise told.fail("nested_offset", "a number")
                scales = read(nested_table).float()[scales.long()] * outer + offset
            _fit(scale, tuple(scales.shape), (blocks,))
            bytes_ = read(name).flatten()
            codes = torch.stack((bytes_ >> 4, bytes_ & 15), -1).flatten().long()
            return (read(table).float()[codes] * scales.float()[torch.arange(count) // block]).view(size)

        return Coded((count,), (name, state, scale, table, *((nested, nested_table) if twice else ())), decode)

    return find


def _state(found: Tensor, name: str) -> ConfigFields:
    try:
        told = json.loads(bytes(found.tolist()))
    except (ValueError, RecursionError, TypeError) as error:
        raise BadModel(f"{name!r} cannot be read as JSON ({error}). The file is damaged.") from error
    if not isinstance(told, dict):
        raise BadModel(f"{name!r} holds no group of settings. The file is damaged.")
    return ConfigFields(told, name)


def _shape_of(told: ConfigFields, count: int) -> tuple[int, ...]:
    shape = told.get("shape")
    if not isinstance(shape, list) or not all(isinstance(n, int) and n > 0 for n in shape) or prod(shape) != count:
        raise told.fail("shape", f"a shape of {count} numbers")
    return tuple(shape)


def _mxfp4(name: str, sizes: Sizes) -> Coded | None:
    """w = 2^(e − 127)·code with floats of 4 bits in blocks of 32; all experts in one tensor, with rows first."""
    blocks, scales = f"{name}_blocks", f"{name}_scales"
    if blocks not in sizes:
        return None
    size = sizes[blocks]
    if len(size) != 4 or size[3] != 16:
        raise BadModel(f"{blocks!r} has shape {size}; expected experts x rows x blocks x 16 bytes. It is damaged.")
    _fit(scales, sizes.get(scales), size[:3])
    experts, rows, count, _ = size

    def decode(read: Reader) -> Tensor:
        packed, power = read(blocks), half_power(read(scales))
        codes = torch.stack((packed & 15, packed >> 4), -1).flatten(-2)
        return (FP4[codes.int()] * power.unsqueeze(-1)).flatten(-2).mT

    return Coded((experts, 32 * count, rows), (blocks, scales), decode)
