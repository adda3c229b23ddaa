"""A stand-in for a device: all of the GPU runtime's bookkeeping over buckets that answer at once, without kernels."""

import torch

from unspool.runtime.cache.gather_pool import Loose
from unspool.runtime.cuda.cuda_graph_model import Graphed
from unspool.runtime.cuda.graph_bucket import BEST, Bucket, Kind


class Blank:
    """A network without layers: nothing but slots."""

    layers, placed = 0, False

    def __init__(self, vocab: int, room: int, context: int) -> None:
        self.vocab, self.context, self.device = vocab, context, torch.device("cpu")
        self.slots = Loose(room, 0, 1, 1, torch.float32, self.device)

    def shown(self, tokens):
        """Holes stand behind the last token."""
        return [self.vocab if token < 0 else token for token in tokens]


def token_at(seed, place, vocab):
    """The token that a text of this seed has at a place."""
    return (seed * 31 + place * 7919) % vocab


class Instant(Bucket):
    """A bucket whose rows write what only seed and place decide."""

    def run(self, turns=1, want=()):
        size, on, vocab = self.size, self.wire.on, self.network.vocab
        self.wire.send()
        if size.kind is Kind.WRITE:
            places = on["places"][:, None] + 1 + torch.arange(turns)
            self.written[:, :turns] = token_at(on["seed"][:, None], places, vocab)
        elif size.kind is Kind.TREE:
            last = torch.arange(size.rows) * size.tokens + on["roots"]
            self.logits = torch.zeros(1, 1).expand(size.rows * size.tokens, vocab)
            self.best = torch.zeros(size.rows * size.tokens, 2 * BEST)
            tokens = token_at(on["seed"], on["places"][last] + 1, vocab)
            self.verdicts = torch.stack((on["roots"], tokens), 1)


def standin(vocab: int = 512, room: int = 400_000, context: int = 4096, shelf: int = 0, lanes: int = 4096) -> Graphed:
    """The GPU runtime on the stand-in."""

    class Standin(Graphed):
        buckets = Instant

    return Standin(Blank(vocab, room, context), shelf, lanes)
