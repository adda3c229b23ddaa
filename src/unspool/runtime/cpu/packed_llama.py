"""The Llama family on packed weights: a forward is one call of the C kernels, from the embedding to the logits.

What one text is asked goes there without a tensor in between.
"""

from __future__ import annotations

import ctypes
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from ...core.errors import BadRequest, OutOfRoom
from ...core.law import unpacked as unpacked_rows
from ...models.layer_shape import TURNS_IN_PART, RopeSpec
from ...models.shape import Shape
from ...models.weights import Checkpoint, GGUFCheckpoint
from .. import cpu
from ..cache.forward_request import NO_STATES, BestTokens, EagerExecutor, ForwardRequest, attach_outputs
from ..cache.kv_pool import GatherPool, UntouchedPool
from ..cache.sequence import DraftNode
from ..engine.contracts import LAST
from ..network.attention import Attention, Planner
from ..network.layer import Layer
from ..network.linear import GatedMLP, Linear, MakeLinear, dense
from ..network.llama import Llama
from ..network.network import Batch, NetworkOutputs, Row, Stages
from .compiled import Kernels, LayerStruct, NetworkStruct, Plan, kernels
from .kernel_outputs import KernelLaw, KernelOutputs, KernelStates
from .packed import PackedLinear, PackedLoader, formats, table_of

LANES = 16  # numbers that the kernels take at a time
MOST_LAYERS = 8192 // 15 - 1  # PHASES and PER_LAYER of the kernels
TOLD = 8  # likeliest tokens of each row that a forward tells by the way, for those who remember them
FIRST_PLACES = 2048  # whose rotary angles are worked out at once


def load_packed(
    checkpoint: Checkpoint, room: int | None, make: MakeLinear = dense, planner: type[Planner] = Planner
) -> Llama:
    """The model with its matrices in their blocks: on the kernels if they can run it, else PyTorch does the rest."""
    assert isinstance(checkpoint, GGUFCheckpoint)
    if unpacked(checkpoint.shape) is None and all(formats(checkpoint).values()):
        return PackedLlama.load(checkpoint, room=room, loader=PackedLoader)
    return Llama.load(checkpoint, room=room, linear=make, planner=planner, loader=PackedLoader)


def unpacked(shape: Shape) -> str | None:
    """Why the kernels cannot run a forward of this shape, None if they can."""
    if kernels() is None:
        return "there are no kernels on this machine"
    odd = shape.oddity(TURNS_IN_PART)
    if odd is not None:
        return f"it has {odd}, which the kernels do not know"
    if shape.filling is not None:
        return "it fills holes, and the kernels' texts are read from left to right"
    if shape.layers > MOST_LAYERS:
        return f"it has {shape.layers} layers, and the kernels count up to {MOST_LAYERS}"
    if shape.head_dim % LANES:
        return f"its heads have {shape.head_dim} numbers, and the kernels take {LANES} at a time"
    return None


class PackedLlama(Llama):
    """The same function as `Llama` over the same matrices, in one call and up to rounding.

    Every token is computed by itself, in one order, from its own numbers and the keys that it sees in the order of the
    text. So its bits depend on its text alone: not on what was drafted or batched beside it, nor on threads.
    """

    _slots: GatherPool
    native: Kernels

    def _pool(self, room: int) -> GatherPool:
        shape, lacking, native = self.shape, unpacked(self.shape), kernels()
        if lacking is not None or not all(map(_is_packed, self._stack)) or not isinstance(self.ends.head, PackedLinear):
            why = lacking or "some of its matrices are not in blocks"
            raise BadRequest(f"this {shape.family} model cannot run on the packed kernels: {why}. Use `Llama`.")
        assert native is not None
        self.native = native
        sizes = [(shape.kv_heads, shape.head_dim, shape.head_dim)] * shape.layers
        return UntouchedPool(room, sizes, torch.float32, torch.device("cpu"))

    def stages(self, batch: Batch) -> Stages[NetworkOutputs]:
        """The forward in one piece: it is one call, and short."""
        yield from ()
        return self.forward(batch)

    @torch.no_grad()
    def forward(self, batch: Batch) -> NetworkOutputs:
        self.turn_up_to(self._check(batch))
        shape, noted = self.shape, self._slots.noted
        read = torch.arange(len(batch.tokens)) if noted else batch.read  # states of all tokens are noted
        reads = len(read)
        x = torch.empty(max(len(batch.tokens), reads), shape.dim)
        x[: len(batch.tokens)] = self._embedded(batch.tokens, batch)
        logits = torch.empty(reads, shape.vocab)
        hidden = {index: torch.empty(reads, shape.dim) for index in {*batch.want, *noted}}
        plans = [_seen(batch.rows, window) for window in self._windows]
        places, into = batch.places.int(), torch.tensor(batch.slots, dtype=torch.int32)
        read = read.int()
        structs = (Plan * len(plans))(*(Plan(*(part.buffer_info()[0] for part in plan)) for plan in plans))
        wanted = (ctypes.c_void_p * (shape.layers + 1))()
        for index, state in hidden.items():
            wanted[index % (shape.layers + 1)] = state.data_ptr()
        if not self.native.forward(
            ctypes.byref(self._struct),
            *(len(batch.tokens), x.data_ptr(), places.data_ptr(), into.data_ptr(), structs),
            max(near + own for _, _, nears, _, owns in plans for near, own in zip(nears, owns, strict=True)),
            *(reads, read.data_ptr(), logits.data_ptr(), wanted, 0, None, torch.get_num_threads()),
        ):
            raise OutOfRoom(f"no memory for a forward of {len(batch.tokens)} tokens")
        for number in noted:
            self._slots.note(number, into.long(), hidden[number])
        if noted:
            logits, hidden = logits[batch.read], {index: hidden[index][batch.read] for index in batch.want}
        return NetworkOutputs(logits, hidden)

    @property
    def embeds_plainly(self) -> bool:
        """Whether tokens enter as the rows of the table and see all that is before them, in every layer."""
        return self.ends.scale is None and self.ends.mask is None and self._windows == [None]

    @cached_property
    def struct_at(self) -> int:
        """Where the kernels find the network."""
        return ctypes.addressof(self._struct)

    @cached_property
    def _windows(self) -> list[int | None]:
        return list(dict.fromkeys(self.shape.windows))

    @cached_property
    def _layers(self) -> Any:
        """The layers as the kernels see them; all tensors that they name are held by the network."""
        found = (LayerStruct * self.layers)()
        for index, (struct, layer) in enumerate(zip(found, self._stack, strict=True)):
            mlp, mixer = layer.mlp, layer.mixer
            assert isinstance(mlp, GatedMLP)
            assert isinstance(mixer, Attention)
            for name in ("before_attention", "qk_norm", "after_attention", "before_mlp", "after_mlp"):
                norm = getattr(mixer if name == "qk_norm" else layer, name)
                setattr(struct, name, None if norm is None else norm.data_ptr())
            for name, matrix in (("qkv", mixer.qkv), ("out", mixer.out), ("gate_up", mlp.gate_up), ("down", mlp.down)):
                setattr(struct, name, ctypes.addressof(_packed(matrix).matrices))
            struct.qkv_count, struct.gate_up_count = _packed(mixer.qkv).count, _packed(mlp.gate_up).count
            struct.keys, struct.values = self._slots.keys[index].data_ptr(), self._slots.values[index].data_ptr()
            struct.plan = self._windows.index(mixer.spec.window)
        return found

    @cached_property
    def _struct(self) -> NetworkStruct:
        shape = self.shape
        head = _packed(self.ends.head)
        return NetworkStruct(
            *(ctypes.addressof(self._layers), self.ends.norm.data_ptr(), ctypes.addressof(head.matrices)),
            *(shape.layers, shape.dim, shape.heads, shape.kv_heads, shape.head_dim, shape.hidden, shape.rotary),
            *(int(shape.activation != "silu"), self._slots.room + 1, shape.norm_eps, shape.query_scale),
        )

    @cached_property
    def _turns(self) -> dict[RopeSpec, tuple[Tensor, Tensor]]:
        return {}

    def turn_up_to(self, furthest: int) -> None:
        """Have cos and sin for all places up to this one."""
        known = next((len(cosine) for cosine, _ in self._turns.values()), 0)
        if furthest < known:
            return
        count = min(self.context, max(FIRST_PLACES, 2 * furthest))
        for rope, rotary in self._rotaries.items():
            self._turns[rope] = rotary.table(max(count, furthest + 1))
        for struct, layer in zip(self._layers, self._stack, strict=True):
            assert isinstance(layer.mixer, Attention)
            assert layer.mixer.spec.rope is not None  # `unpacked` has looked
            cosine, sine = self._turns[layer.mixer.spec.rope]
            struct.cosine, struct.sine = cosine.data_ptr(), sine.data_ptr()


def _packed(matrix: Linear) -> PackedLinear:
    assert isinstance(matrix, PackedLinear)
    return matrix


def _is_packed(layer: Layer) -> bool:
    mlp = layer.mlp
    matrices = (
        (layer.attention.qkv, layer.attention.out, mlp.gate_up, mlp.down) if isinstance(mlp, GatedMLP) else (None,)
    )
    return all(isinstance(matrix, PackedLinear) for matrix in matrices)


def _seen(rows: Sequence[Row], window: int | None) -> tuple[array[int], ...]:
    """What each token sees in layers of a window, as `Plan` has it: slots, start, near, first, own."""
    slots, start, near, first, own = (array("i") for _ in range(5))
    for row in rows:
        base, past = len(slots), len(row.slots) - row.count
        slots.extend(row.slots)
        shared, lines = len(row.slots), None
        if row.hidden_from is not None:
            hidden = row.hidden_from.any(0)
            shared = int(hidden.int().argmax()) if bool(hidden.any()) else shared
            lines = (~row.hidden_from[:, shared:]).tolist()
        for number in range(row.count):
            edge = -1 if window is None else row.places[past + number] - window
            low = 0 if edge < 0 else bisect_right(row.places, edge, 0, min(shared, past + number))
            start.append(base + low)
            near.append((past + number + 1 if lines is None else shared) - low)
            first.append(len(slots))
            if lines is not None:
                line = [shared + key for key, sees in enumerate(lines[number]) if sees]
                slots.extend(row.slots[key] for key in line if row.places[key] > edge)
            own.append(len(slots) - first[-1])
    return slots, start, near, first, own


class PackedExecutor(EagerExecutor):
    """Runs what one text is asked by a kernel that works out itself what each token sees.

    All else is a batch for the network: several texts, drafts below drafts that were computed before, windows, prompts
    that are to tell their laws, and states of inner layers.
    """

    def __init__(self, network: PackedLlama) -> None:
        super().__init__(network)
        self._packed, self._native = network, network.native
        self._table = table_of(network.ends.table) if network.embeds_plainly else None
        self._made = ctypes.c_void_p()

    def forward(self, requests: list[ForwardRequest], wants: tuple[int, ...]) -> None:
        request = requests[0]
        if (
            self._table is None
            or len(requests) > 1
            or (request.best and len(request.owed) > 1)
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
        reads, vocab, k = count + (owed > 0), network.vocab, min(TOLD, network.vocab)
        told = array("f", bytes(8 * reads * k))
        done = self._native.step(
            *(network.struct_at, ctypes.byref(self._table), slots.buffer_info()[0], known, owed, count),
            *(tokens.buffer_info()[0], parents.buffer_info()[0], len(wants), k, told.buffer_info()[0]),
            *(ctypes.addressof(self._made), torch.get_num_threads()),
        )
        if done == 0:
            raise OutOfRoom(f"no memory for a forward of {owed + count} tokens")
        if done > 0:
            best, at = told.tolist(), self._made.value
            assert at is not None
            made = KernelOutputs(at, reads, vocab, network.shape.dim, self._native.give)
            if owed:
                request.likeliest = partial(_likeliest, made, best, k)
            attach_outputs(
                request,
                lambda row: KernelLaw(made, row, int(best[2 * k * row + k])),
                KernelStates(made) if wants else NO_STATES,
                0,
            )
        return bool(done > 0)


def _likeliest(outputs: KernelOutputs, told: list[float], told_of: int, k: int) -> BestTokens:
    """The k best tokens of every row, as the kernel told them if it was so many and all numbers are finite."""
    rows = [told[at : at + 2 * k] for at in range(0, len(told), 2 * k)]
    if k == told_of and min(row[k] for row in rows) >= 0:
        return unpacked_rows(rows)
    return cpu.kernel_outputs.best_of(outputs.logits, k)
