"""An executor for packed weights: what a text is asked goes to the kernels in one call, without a tensor in between."""

from __future__ import annotations

import ctypes
from array import array

import torch
from torch import Tensor

from ...core.errors import OutOfRoom
from ...core.law import Law
from ..cache.forward_request import EagerExecutor, ForwardRequest, attach_outputs
from ..cache.sequence import DraftNode
from ..engine.contracts import LAST
from .compiled import Kernels
from .packed import table_of
from .packed_llama import PackedLlama


class KernelLaw(Law):
    """The law of one row of logits, whose best token a kernel finds."""

    def __init__(self, logits: Tensor, row: int, native: Kernels) -> None:
        self._logits, self._row, self._native, self._best = logits, row, native, -1

    @property
    def scores(self) -> Tensor:
        return self._logits[self._row]

    @property
    def size(self) -> int:
        return self._logits.shape[1]

    @property
    def best(self) -> int:
        """The most probable token, kept without the lock that a cached property takes in every round."""
        if self._best < 0:
            token, value, size = ctypes.c_int32(-1), ctypes.c_float(), self.size
            at = self._logits.data_ptr() + 4 * self._row * size
            self._native.best(at, 1, size, 1, ctypes.addressof(value), ctypes.addressof(token))
            self._best = token.value if token.value >= 0 else Law(self.scores).best  # which says what is wrong
        return self._best


class PackedExecutor(EagerExecutor):
    """Runs what one text is asked by a kernel that works out itself what each token sees.

    All else is a batch for the network: several texts, drafts below drafts that were computed before, windows, prompts
    that are to tell their laws, and states of inner layers.
    """

    def __init__(self, network: PackedLlama) -> None:
        super().__init__(network)
        self._packed, self._native = network, network.native
        self._table = table_of(network.ends.table) if network.embeds_plainly else None
        self._states = (ctypes.c_void_p * (network.shape.layers + 1))()

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        request = requests[0]
        if (
            self._table is None
            or len(requests) > 1
            or request.best
            or request.leaf.drafts
            or wants not in ((), (LAST,))
        ):
            super().forward(requests, wants)
            return
        if not self._step(request, wants):
            super().forward(requests, wants)  # which says what is wrong with it

    def _step(self, request: ForwardRequest, wants: tuple[int, ...]) -> bool:
        """Run a request by itself; False, with nothing done, if a token or a place is none of the network's."""
        assert self._table is not None
        leaf, network, owed, count = request.leaf, self._packed, len(request.owed), len(request.added)
        known = len(leaf.slots)
        if known + owed + count > network.context or network.slots.noted:
            return False
        network.turn_up_to(known + owed + count)
        tokens, parents, slots = array("i", request.owed), array("i"), array("i", leaf.slots)
        for token, above in request.added:
            assert not isinstance(above, DraftNode)  # there are no drafts but these
            tokens.append(token)
            parents.append(above)
        slots.extend(request.slots)
        reads, states = count + (owed > 0), dict[int, Tensor]()
        logits = torch.empty(reads, network.vocab)
        if wants:
            states[LAST] = torch.empty(reads, network.shape.dim)
        self._states[network.shape.layers] = states[LAST].data_ptr() if wants else None
        done = self._native.step(
            *(network.struct_at, ctypes.byref(self._table), slots.buffer_info()[0], known, owed, count),
            *(tokens.buffer_info()[0], parents.buffer_info()[0], logits.data_ptr(), self._states),
            torch.get_num_threads(),
        )
        if done == 0:
            raise OutOfRoom(f"no memory for a forward of {owed + count} tokens")
        if done > 0:
            request.logits = logits if owed else None
            attach_outputs(request, lambda row: KernelLaw(logits, row, self._native), states, 0)
        return bool(done > 0)
