"""Triton's interpreter where there is no GPU, made to work with today's numpy; without Triton its tests are skipped."""

import os

import pytest

pytest.importorskip("triton", reason="Triton is not installed here")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if INTERPRETED:
    from triton.runtime import interpreter

    _patched = interpreter._patch_lang_tensor

    def _with_index(tensor, scope):
        # Triton's interpreter makes loop bounds of arrays of one number, which numpy no longer does since 2.4.
        _patched(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = _with_index
