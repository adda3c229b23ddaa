"""The pupil: a small any-order model that learnt the list tasks from examples, so that its laws are nearly right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Field
from unspool.core.errors import BadRequest
from unspool.runtime.engine.contracts import LookRequest

from .alphabet import VOCAB

WEIGHTS = Path(__file__).parent / "pupil.safetensors"
MASK, PAD = VOCAB, VOCAB + 1
WIDTH, HEADS, LAYERS = 64, 4, 3
LONGEST = 24  # places of a prompt, and of an answer


class PupilLayer(nn.Module):
    """Attention to all places, then a two-layer net, each on normed inputs and added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        """`seen` [texts, 1, 1, places] is False where there is only padding."""
        texts, places, _ = x.shape
        heads = self.qkv(self.norm(x)).view(texts, places, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(heads[0], heads[1], heads[2], seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(texts, places, WIDTH))
        told: Tensor = self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return x + told


class PupilNetwork(nn.Module):
    """A bidirectional transformer; a place is numbered within the prompt or within the answer, wherever that begins."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCAB + 2, WIDTH)
        self.places = nn.Embedding(2 * LONGEST, WIDTH)
        self.layers = nn.ModuleList(PupilLayer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Log-weights [texts, places, vocab]."""
        x = self.tokens(tokens) + self.places(places)
        seen = (tokens != PAD)[:, None, None]
        for layer in self.layers:
            x = layer(x, seen)
        logits: Tensor = self.head(self.norm(x))
        return logits


class Pupil:
    """The network behind the interface of every any-order model."""

    vocab = VOCAB

    def __init__(self, network: PupilNetwork) -> None:
        self.network = network.eval()

    @staticmethod
    def load(path: Path = WEIGHTS) -> Pupil:
        """The pupil that comes with the package, or another one."""
        network = PupilNetwork()
        try:
            network.load_state_dict({name: weight.float() for name, weight in load_file(path).items()})
        except (OSError, RuntimeError) as error:
            raise BadRequest(f"{path} does not hold a pupil's weights: {error}".splitlines()[0]) from None
        return Pupil(network)

    @torch.inference_mode()
    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        """The law at every place that each asks about, all in one forward; a place never sees its own token."""
        veils = [_veils(ask.look) for ask in asked]
        texts = [_text(ask.look, veil) for ask, own in zip(asked, veils, strict=True) for veil in own]
        prompts = [ask.look.canvas.prompt for ask, own in zip(asked, veils, strict=True) for _ in own]
        logits = self.network(*stacked(texts, prompts)).double()
        fields, first = [], 0
        for ask, own in zip(asked, veils, strict=True):
            places = ask.look.places
            rows = [logits[first + n % len(own), place] for n, place in enumerate(places)]
            scores = torch.stack(rows) if rows else logits[0, :0]
            fields.append(Field.of(places, scores, rows=len(own) * len(ask.look.canvas)))
            first += len(own)
        return fields


def _veils(look: Look) -> list[frozenset[int]]:
    """What is hidden in each text that answers a look: one text for all holes, one for every place that is filled."""
    if look.along:
        return [frozenset(look.along[n:]) for n in range(len(look.along))]
    if all(look.canvas.tokens[i] == HOLE for i in look.places):
        return [frozenset()]
    return [frozenset({i}) for i in look.places]


def _text(look: Look, veil: frozenset[int]) -> list[int]:
    return [MASK if x == HOLE or i in veil else x for i, x in enumerate(look.canvas.tokens)]


def stacked(texts: Sequence[Sequence[int]], prompts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Texts of several lengths as tokens and places, padded on the right."""
    wide = max(map(len, texts))
    if max(prompts) > LONGEST or max(len(t) - p for t, p in zip(texts, prompts, strict=True)) > LONGEST:
        raise BadRequest(f"the pupil reads prompts and answers of up to {LONGEST} places each")
    tokens = torch.tensor([[*text, *(PAD,) * (wide - len(text))] for text in texts])
    index = torch.arange(wide)
    start = torch.tensor(prompts)[:, None]
    places = torch.where(index < start, index, LONGEST + index - start)
    return tokens, places.clamp_max(2 * LONGEST - 1)  # padding may run on
