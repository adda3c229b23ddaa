"""A model of random weights to adapt, decoders of it, and its laws computed from scratch by the network of training."""

import numpy as np
import torch

from unspool.models.shape import Shape
from unspool_train.decoder import Decoder
from unspool_train.noisy_rows import NoisyBatch
from unspool_train.training_network import TrainingNetwork

MASK, END, VOCAB = 16, 2, 40
SHAPE = Shape(
    "llama", layers=2, dim=32, heads=4, kv_heads=2, head_dim=8, hidden=48, vocab=VOCAB, context=256,
    norm_eps=1e-5, rope_theta=1e4, tied=True,
)  # fmt: skip
PROMPTS = [[1, 5, 20, 6, 7, 9, 11, 3], [1, 4, 22, 6, 8, 5, 5, 30, 31, 8, 9], [1, 8, 8, 8, 9, 10, 30, 5, 4, 3]]


class Small:
    """A checkpoint of random weights."""

    shape, title, bytes, rope_factors = SHAPE, "small", 0, None

    def tensor(self, name, dtype=None):
        generator = torch.Generator().manual_seed(sum(map(ord, name)))
        size = SHAPE.tensors()[name]
        return torch.ones(size) if len(size) == 1 else 0.2 * torch.randn(size, generator=generator)


def decoder_of(frozen, count, weights=None):
    """A decoder of so many texts; of the checkpoint itself unless it is given others' weights."""
    decoder = Decoder(frozen, count, 128, MASK, END, graphs=False)
    decoder.load(weights or {**frozen.base, "mask": torch.full((SHAPE.dim,), 0.1)})
    return decoder


def alone(frozen, weights, text, block=0, ban=False):
    """Logits of one text: causal, but for the last `block` tokens, which see each other."""
    n = len(text)
    net = TrainingNetwork(frozen, torch.float32, 1, n, MASK, compiled=False)
    ends = np.arange(1, n + 1)
    ends[n - block :] = n
    zero = np.zeros((1, n), np.int32)
    empty = np.zeros(0, np.int64)
    batch = NoisyBatch(
        np.array([text], np.int32), np.arange(n, dtype=np.int32)[None], zero, ends[None].astype(np.int32), zero, zero,
        empty, empty, empty, empty, empty, empty, 1, n, 1.0,
    )  # fmt: skip
    with torch.no_grad():
        logits = net.hidden(weights, batch) @ frozen.head.T
    if ban:
        logits[:, MASK] = float("-inf")
    return logits
