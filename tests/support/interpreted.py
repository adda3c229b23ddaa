"""Triton's interpreter where there is no GPU, made to work with today's numpy; without Triton its tests are skipped."""

import math
import os
from functools import lru_cache
from types import SimpleNamespace

import pytest

pytest.importorskip("triton", reason="Triton is not installed here")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if INTERPRETED:
    import numpy
    from triton import language
    from triton.language import core
    from triton.runtime import interpreter

    # ---- what it computes

    _patched = interpreter._patch_lang_tensor

    def _with_index(tensor, scope):
        # Triton's interpreter makes loop bounds of arrays of one number, which numpy no longer does since 2.4.
        _patched(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _with_index

    def _dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        # A GPU computes every row of a tile the same way. numpy's BLAS does not on every machine, and what a row's bits
        # depend on is what is tested; `einsum` sums the products of every cell in one order.
        product = numpy.einsum("...ik,...kj->...ij", a.data, b.data, dtype=d.data.dtype, casting="unsafe")
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    interpreter.InterpreterBuilder.create_dot = _dot

    # ---- how long it takes: two thirds of it went into the following, and none of that changes a number

    # It looks through all of its language at every call of a device function, to put interpreted functions in place of
    # those that compile. Here nothing compiles, so they are put there once and stay.
    interpreter._patch_lang(SimpleNamespace(__globals__={"language": language, "core": core}))
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()

    # It computes every sum and product of integers once more in 64 bits, and looks at the outcome only when debugging.
    object.__setattr__(interpreter.interpreter_builder.options, "sanitize_overflow", False)

    # It makes the sizes and the name of a type anew for every tensor. There are few that differ.
    _np_dtype, _np_dtypes = interpreter._get_np_dtype, {}

    def _np_dtype_of(dtype):
        scalar = dtype.scalar
        if scalar.name not in _np_dtypes:
            _np_dtypes[scalar.name] = _np_dtype(scalar)
        return _np_dtypes[scalar.name]

    interpreter._get_np_dtype = _np_dtype_of

    @lru_cache(None)
    def _shape(sizes):
        return core.tuple(map(core.constexpr, sizes)), core.constexpr(math.prod(sizes))

    def _tensor(self, handle, type):
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = _shape(tuple(type.shape.values) if type.is_block() else ())

    core.tensor.__init__ = _tensor

    _block_type, _blocks = core.block_type.__init__, {}

    def _block_type_of(self, element_ty, shape):
        sizes = tuple(core._unwrap_if_constexpr(size) for size in shape)
        known = _blocks.get((element_ty.name, sizes))
        if known is None:
            _block_type(self, element_ty, list(sizes))
            _blocks[element_ty.name, sizes] = vars(self).copy()
        else:
            vars(self).update(known)

    core.block_type.__init__ = _block_type_of
