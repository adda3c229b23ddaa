"""A feature drafter inside the graph of a speculative step: a tree per round, without a look of the host."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...core.chance import Role
from ...kernels.attention import attention
from ...kernels.draft_states import Keeps, look_back, pair
from ...kernels.kernel_rows import Rows
from ...kernels.linear import linear
from ...kernels.norm import rms
from ...kernels.philox import uniforms
from ...kernels.pick import pick
from ...kernels.remember import WIDTH, LawTable
from ...kernels.rope import rope
from ...kernels.spine import blend, expand, lay
from ...kernels.top import top
from ..cache.sequence import CachedSequence
from ..drafter.drafter_network import DrafterNetwork
from ..drafter.feature_drafter import FeatureDrafter
from ..network.linear import Bfloat16Linear, DenseLinear, Float32Linear, GatedMLP, Linear
from .block_table import BlockTable
from .fused import Fused

DEEPEST, MOST_ROWS = 8, 16  # levels of a tree, and nodes of a level of all rows together
BRANCHES = 4  # nodes of a level of one row: they are read together, in little more time than one
BEST = int(WIDTH.value)  # tokens that are told of a law
CHUNK = 2048  # tokens of a prompt that are read at a time


def undraftable(network: DrafterNetwork, target: Fused) -> str | None:
    """Why a drafter cannot draft in a graph, None if it can."""
    spec = network.spec
    if type(network) is not FeatureDrafter or spec.block or spec.experts or spec.join == "add":
        return f"a {spec.kind} drafter does not draft token by token in feature space"
    if spec.shape.layers != 1:
        return f"it has {spec.shape.layers} layers, and one is expected"
    if (odd := spec.shape.oddity()) is not None:
        return f"it has {odd}, which its kernels do not know"
    if not isinstance(network.head, (DenseLinear, Float32Linear, Bfloat16Linear)):
        return "its head is quantised"
    if network.head.weight.shape[0] < BEST:
        return f"it guesses fewer than {BEST} tokens"
    if network.embedding.shape[1] != spec.shape.dim or network.embedding.dtype != target.dtype:
        return "its embeddings have another width or type"
    return None


class Matrix(NamedTuple):
    """A weight [out, in] and a bias [out], as `linear` takes them."""

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, given: Linear) -> Matrix:
        """Those of a product of the runtime."""
        assert isinstance(given, (DenseLinear, Float32Linear, Bfloat16Linear))
        return cls(given.weight, given.bias)


class Round(NamedTuple):
    """What a round begins with, of R rows of T tokens: where each row stands, and what is remembered of its text."""

    tokens: Tensor  # [R·T], the first of a row being its root
    lane: Tensor
    past: Tensor
    tally: Tensor
    line: Tensor
    tag: Tensor
    texts: Tensor
    laws: LawTable
    heat: Tensor | None  # [R], temperatures, where some text is drawn
    seed: Tensor
    stream: Tensor


class GraphDrafter:
    """A drafter of one layer over pairs (state of token i, token i + 1), beside a target whose forwards note states.

    The key of a pair stands in the slot that its later token has in the target's cache: a pair is known by the text up
    to that token, as the token's own keys are, so that forks, shared prefixes and release need nothing of their own.
    Drafted tokens have slots behind those, by row and depth.

    1. `catch_up` reads what the target has read of a text outside of speculative steps.
    2. `draft` begins a round: from the state of the last token and the root, a tree of `depth` levels, the likeliest
       paths of each being read on. Where the text is drawn, so is one line of the tree, with the same random numbers:
       laws that are alike then give the same token.
    3. `read` ends it: the pairs of all nodes of the tree, whichever stand. One layer's keys need no attention.
    """

    def __init__(self, network: DrafterNetwork, target: Fused, block_table: BlockTable) -> None:
        assert isinstance(network, FeatureDrafter)
        self.network, self.spec, self.target, self.block_table = network, network.spec, target, block_table
        shape, tensors = network.spec.shape, network.tensors
        (layer,) = network.layers.stack
        assert isinstance(layer.mlp, GatedMLP)
        self._layer, self._attends = layer, network.spec.join == "attend"
        self._qkv, self._out = Matrix.of(layer.attention.qkv), Matrix.of(layer.attention.out)
        self._gate_up, self._down, self._head = (
            Matrix.of(each) for each in (layer.mlp.gate_up, layer.mlp.down, network.head)
        )
        kept = shape.heads * shape.head_dim  # rows of queries, before those of keys and values
        bias = self._qkv.bias
        self._kv = Matrix(self._qkv.weight[kept:], None if bias is None else bias[kept:])
        self._kv_norm = None if layer.attention.qk_norm is None else layer.attention.qk_norm[shape.heads :]
        self._norms = {
            name: tensors.get(f"{name}.weight")
            for name in ("layers.0.input_layernorm", "embed_norm", "state_norm", "norm")
        }
        room = target.slots.trash + 1
        self.keys, self.values = (
            torch.zeros(
                shape.kv_heads, room + DEEPEST * MOST_ROWS, shape.head_dim, dtype=target.dtype, device=target.device
            )
            for _ in range(2)
        )
        self._spare = torch.arange(room, room + DEEPEST * MOST_ROWS, dtype=torch.int32, device=target.device)
        self._ready: WeakKeyDictionary[CachedSequence, tuple[int, int]] = WeakKeyDictionary()

    @cached_property
    def _turns(self) -> tuple[Tensor, Tensor]:
        return self.network.layers.turn_table(self.target.context + 1)

    # ---- what it knows of texts

    @torch.no_grad()
    def catch_up(self, leaf: CachedSequence) -> None:
        """Read the pairs of a text that are not there yet; the target has read all of it but its last token."""
        slots, device = leaf.slots, self.target.device
        count, last = self._ready.get(leaf, (1, -1))
        if 1 < count <= len(slots) and slots[count - 1] != last:  # it has other slots than it had
            count = 1
        for first in range(count, len(slots), CHUNK):
            end = min(first + CHUNK, len(slots))
            states = self.target.slots.states(slots[first - 1 : end - 1])
            tokens, places, own = torch.tensor([leaf.tokens[first:end], range(first - 1, end - 1), slots[first:end]])
            self._note(tokens.int().to(device), states, places.int().to(device), own.int().to(device))
        self.wrote(leaf)

    def wrote(self, leaf: CachedSequence) -> None:
        """Take note that all pairs of a text are there."""
        if leaf.slots:
            self._ready[leaf] = len(leaf.slots), leaf.slots[-1]

    @torch.no_grad()
    def read(self, tokens: Tensor, parents: Tensor, places: Tensor, slots: Tensor, lane: Tensor, past: Tensor) -> None:
        """Read the pairs of all nodes of a batch of trees, which the target has just computed."""
        before = torch.empty_like(places)
        tree = slots, parents, places, before
        states = look_back(self.target.slots.noted_states, self.block_table.table, lane, past, tree)
        self._note(tokens, states, before, slots)

    def _note(self, tokens: Tensor, states: Tensor, places: Tensor, slots: Tensor) -> None:
        """Store the keys and values of pairs of a token and the target's states before it."""
        entering, _, norm = self._entering(tokens, self._fused(states))
        kv = linear(entering, *self._kv, norm=norm, eps=self.network.eps)
        rope(kv, self._kv_norm, self.network.eps, *self._turns, places, slots, self.keys, self.values)

    # ---- what it drafts

    @torch.no_grad()
    def draft(self, on: Round, depth: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """The likeliest tokens below every node that is read, and which of them are read on, as `blend` tells them."""
        rows, ids, table = on.past.shape[0], self.network.ids, self.block_table.table
        kids = branches(rows)
        nodes = self._spare[: depth * rows * kids].view(depth, rows * kids)
        state = self._fused(look_back(self.target.slots.noted_states, table, on.lane, on.past))
        keys, places, pasts, count = lay(table, on.lane, on.past, on.tally, nodes, kids, length, self.target.context)
        values = torch.empty(depth, rows * kids, BEST, dtype=torch.float32, device=keys.device)
        guesses = torch.empty(values.shape, dtype=torch.int32, device=keys.device)
        below = max(depth - 1, 1), rows * kids
        words, above = (torch.empty(below, dtype=torch.int32, device=keys.device) for _ in range(2))
        follow = torch.empty(*below, BEST, dtype=torch.int32, device=keys.device)
        drawn = self._drawing(on, depth)
        tokens, reached = on.tokens.view(rows, -1), None
        for step in range(depth):
            seen = Rows(keys, pasts[step], count, nodes[step], places[step])
            y = self._forward(tokens, state, above[step - 1] if step else None, 1 if step else kids, seen)
            y, logits = self._read_out(y)
            top(logits, BEST, (values[step], guesses[step]), weighed=True)
            picks = None
            if drawn is not None:
                picked, heat, noise, alive = drawn
                first = logits.view(rows, kids, -1)[:, 0]
                picked[step] = pick(first, heat, noise[step * rows : (step + 1) * rows], alive)[0]
                picks = picked[step], heat
            if step < depth - 1:
                level = values[step], guesses[step], picks, ids, nodes, on.past, keys
                reached = expand(step, *level, reached, follow[step], above[step], words[step])
                tokens = words[step]
            state = y
        picks = None if drawn is None else drawn[:2]
        texts = on.laws, on.tokens, on.texts, on.line, on.past, count, on.tag
        return blend(values, guesses, picks, ids, words, above, follow, *texts)

    def _drawing(self, on: Round, depth: int) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """Where picked tokens go [d, R], the temperatures of rows, their random numbers, and ones: all are counted."""
        if on.heat is None:
            return None
        rows, device = on.past.shape[0], on.past.device
        picked = torch.empty(depth, rows, dtype=torch.int32, device=device)
        level = torch.arange(depth, dtype=torch.int32, device=device).repeat_interleave(rows)
        places = (on.past - 1).clamp_(min=0).repeat(depth) + level + 2
        noise = uniforms(on.seed.repeat(depth), on.stream.repeat(depth), places, Role.PICK)
        return picked, on.heat, noise, torch.ones_like(on.past)

    def _read_out(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the next level is paired with, and the logits."""
        norm, eps = self._norms["norm"], self.network.eps
        if self.spec.recycles_normed and norm is not None:
            y = rms(y, norm, eps)
            norm = None
        return y, linear(y, *self._head, norm=norm, eps=eps)

    def _forward(self, tokens: Tensor, states: Tensor, source: Tensor | None, share: int, rows: Rows) -> Tensor:
        """What leaves the layer for a token of every node, as `pair` takes them."""
        layer, shape, eps = self._layer, self.spec.shape, self.network.eps
        entering, x, norm = self._entering(tokens, states, source, share)
        qkv = linear(entering, *self._qkv, norm=norm, eps=eps)
        queries = rope(qkv, layer.attention.qk_norm, eps, *self._turns, rows.places, rows.slots, self.keys, self.values)
        seen = attention(queries, self.keys, self.values, rows, shape.query_scale, layer.attention.spec.window)
        x = linear(seen, *self._out, residual=x)
        bent = linear(x, *self._gate_up, norm=layer.before_mlp, eps=eps, activation=shape.activation)
        return linear(bent, *self._down, residual=x)

    def _entering(
        self, tokens: Tensor, states: Tensor, source: Tensor | None = None, share: int = 1
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the layer attends with, its residual, and the norm that stands between them, if there is one."""
        spec, embedding, norms, eps = self.spec, self.network.embedding, self._norms, self.network.eps
        word_norm = norms["layers.0.input_layernorm" if self._attends else "embed_norm"]
        keeps = Keeps.NOTHING
        if self._attends:
            keeps = Keeps.NORMED if spec.residual_normed else Keeps.GIVEN
        state_norm, first = norms["state_norm"], spec.embedding_first
        both, kept = pair(tokens, states, embedding, word_norm, state_norm, eps, first, keeps, source, share)
        if self._attends:
            return both, kept, None
        x = linear(both, self.network.tensors["join.weight"], self.network.tensors.get("join.bias"))
        return x, x, self._layer.before_attention if spec.entry_norm else None

    def _fused(self, states: Tensor) -> Tensor:
        """States side by side as one of the drafter's own width."""
        tensors = self.network.tensors
        if "fuse.weight" not in tensors or any(name.startswith("fuse_norm") for name in tensors):
            return self.network.fused(states)
        return linear(states, tensors["fuse.weight"], tensors.get("fuse.bias"))


def branches(rows: int) -> int:
    """Nodes of a level of each of so many rows."""
    return max(1, min(BRANCHES, MOST_ROWS // rows))
