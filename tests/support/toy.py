"""A network whose logits are a hash of exactly what each token sees, so that any slip in bookkeeping shows."""

import torch

from unspool.runtime.cache.kv_pool import KVPool
from unspool.runtime.network.network import Batch, NetworkOutputs


def logits_of(text: tuple[int, ...], vocab: int) -> torch.Tensor:
    """The logits after a text: any change of a token or a position changes them."""
    generator = torch.Generator().manual_seed(hash(text) & 0x7FFFFFFF)
    return torch.randn(vocab, generator=generator, dtype=torch.float64)


class Toy:
    """Keys are tokens, values are positions; attention collects what it may see."""

    layers = 1

    def __init__(self, vocab: int = 5, room: int = 64, context: int | None = None) -> None:
        self.vocab, self.context, self.slots = vocab, context, KVPool(room)
        self.forwards, self.computed = 0, 0

    def forward(self, batch: Batch) -> NetworkOutputs:
        self.forwards += 1
        self.computed += len(batch.tokens)
        keys = batch.tokens.to(torch.float64).reshape(1, -1, 1)
        values = batch.places.to(torch.float64).reshape(1, -1, 1)
        self.slots.write(0, batch.slots, keys, values)
        texts: list[tuple[int, ...]] = []
        for row in batch.rows:
            tokens, places = (t.flatten().int().tolist() for t in self.slots.read(0, row.slots))
            assert places == list(row.places)
            for j in range(row.count):
                own = len(row.slots) - row.count + j
                hidden = None if row.hidden_from is None else row.hidden_from[j].tolist()
                seen = range(own + 1) if hidden is None else [i for i, h in enumerate(hidden) if not h]
                seen = sorted(seen, key=places.__getitem__)
                assert [places[i] for i in seen] == list(range(len(seen))), "a text must be seen whole and in order"
                texts.append(tuple(tokens[i] for i in seen))
        read = [texts[i] for i in batch.read.tolist()]
        logits = torch.stack([logits_of(text, self.vocab) for text in read])
        hidden = {layer: torch.stack([logits_of((*text, layer), 3) for text in read]) for layer in batch.want}
        return NetworkOutputs(logits, hidden)
