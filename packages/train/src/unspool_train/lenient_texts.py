"""Texts of a model that another one, made from it to fill holes, foresees: where two tokens are as good, the foreseen.

A window of holes is filled at one look, and the model reads what was filled: a token stands if the model gives it at
least `ratio` times the probability of its likeliest one; the first that has less becomes the likeliest, and a new
window begins behind it. With a ratio of 1 it is the model's greedy text. A filler that learns these texts has less to
guess than one that learns greedy ones, and the model finds them almost as likely. Cost: two forwards per window.

Claim: HEURISTIC. It is typical acceptance (arXiv 2401.10774, 2211.00609) put to the making of a corpus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .decoder import Decoder, Texts, cut


@torch.no_grad()
def lenient(
    reader: Decoder, filler: Decoder, prompts: Sequence[Sequence[int]], size: int, ratio: float, most: int
) -> Texts:
    """Answers of at most so many tokens, in windows of `size`; both decoders hold one text for each prompt."""
    if min(map(len, prompts)) < size:
        raise ValueError(f"a prompt is shorter than the window of {size}; give longer prompts")
    tokens, begin = reader.prefill(prompts)
    filler.prefill(prompts)
    end, place = reader.end, torch.arange(size, device=reader.device)
    start, limit = begin.clone(), begin + most
    forwards = torch.zeros_like(start)
    longest, busy = int(begin.max()) + size, 1
    while busy:
        open_ = start < limit
        drafts = filler.window(tokens, start, size, longest).argmax(-1)
        read = torch.cat([tokens.gather(1, start[:, None] - 1), drafts[:, :-1]], 1)  # each draft is told one before it
        at = start[:, None] + place - 1
        logits = reader.logits(reader.forward(read, at, at + 1, longest))
        best, likeliest = logits.max(-1)
        good = logits.gather(2, drafts[..., None])[..., 0] >= best + math.log(ratio)
        kept = (good & drafts.ne(end)).int().cumprod(1).sum(1)  # an end token stands only as the likeliest
        chosen = torch.where(place < kept[:, None], drafts, likeliest)
        run = torch.minimum((kept + 1).clamp(max=size), limit - start) * open_
        take = place < run[:, None]
        tokens.scatter_(1, at + 1, torch.where(take, chosen, end))
        forwards += 2 * open_
        start = start + run
        start = torch.where((take & chosen.eq(end)).any(1), limit, start)
        longest, busy = torch.stack([start.max() + size, (start < limit).any().long()]).tolist()
    return Texts(cut(reader, tokens, begin, limit), forwards, torch.zeros_like(forwards))
