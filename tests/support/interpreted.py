"""Triton's interpreter where there is no GPU, made to work with today's numpy; without Triton its tests are skipped."""

import os

import pytest

pytest.importorskip("triton", reason="Triton is not installed here")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if INTERPRETED:
    import numpy
    from triton.runtime import interpreter

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
