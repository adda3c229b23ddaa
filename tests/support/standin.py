"""A stand-in for a device: all of the GPU runtime's bookkeeping over buckets that answer at once, without kernels."""

import torch

from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.kv_pool import GatherPool
from unspool.runtime.cuda.cuda_graph_executor import CudaGraphExecutor
from unspool.runtime.cuda.graph_bucket import BEST, Bucket
from unspool.runtime.cuda.graph_model import on_device
from unspool.runtime.cuda.packing import Kind


class Blank:
    """A network without layers: nothing but slots."""

    layers, placed, recurrent = 0, False, None

    def __init__(self, vocab: int, room: int, context: int) -> None:
        self.vocab, self.context, self.device = vocab, context, torch.device("cpu")
        self.slots = GatherPool(room, [], torch.float32, self.device)

    def shown(self, tokens):
        """Holes stand behind the last token."""
        return [self.vocab if token < 0 else token for token in tokens]


def token_at(seed, place, vocab):
    """The token that a text of this seed has at a place."""
    return (seed * 31 + place * 7919) % vocab


class Instant(Bucket):
    """A bucket whose rows write what only seed and place decide."""

    def run(self, turns=1, want=(), masks=None):
        size, on, vocab = self.size, self.staging.on, self.network.vocab
        self.staging.send()
        if size.kind is Kind.WRITE:
            places = on["places"][:, None] + 1 + torch.arange(turns)
            self.written[:, :turns] = token_at(on["seed"][:, None], places, vocab)
        elif size.kind is Kind.TREE:
            last = torch.arange(size.rows) * size.tokens + on["roots"]
            self.logits = torch.zeros(1, 1).expand(size.rows * size.tokens, vocab)
            self.best = torch.zeros(size.rows * size.tokens, 2 * BEST)
            tokens = token_at(on["seed"], on["places"][last] + 1, vocab)
            self.verdicts = torch.stack((on["roots"], tokens), 1)

    def turn(self, shaping, fill):
        on = self.staging.on
        turn = int(on["turn"])
        self.written[:, turn] = token_at(on["seed"], on["places"] + 1 + turn, self.network.vocab)
        on["turn"] += 1


def standin(vocab=512, room=400_000, context=4096, prefix_cache=0, sequences=4096, bucket=Instant) -> CachedModel:
    """The GPU runtime on the stand-in."""
    network = Blank(vocab, room, context)
    return on_device(
        CachedModel(network, prefix_cache, CudaGraphExecutor(network, sequences, bucket)), speculates=False
    )
