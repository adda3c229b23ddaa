"""llama.cpp by its Python bindings, on the same file and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import llama_cpp
import torch

from unspool.api.lm import LM
from unspool.api.settings import Settings

from .contender import Sample


class LlamaCpp:
    """llama.cpp by its Python bindings, with the same file: its own 4-bit arithmetic, so texts may differ."""

    name, exact = "llama.cpp", False

    def __init__(self, file: Path, lm: LM, context: int) -> None:
        self.lm = lm
        self.model = llama_cpp.Llama(str(file), n_ctx=context, n_threads=torch.get_num_threads(), verbose=False)

    def write(self, prompts: Sequence[tuple[int, ...]], settings: Settings) -> Sample:
        """One text after another."""
        texts, firsts, began = [], [], perf_counter()
        for prompt in prompts:
            self.model.reset()
            row: list[int] = []
            start = perf_counter()
            for token in self.model.generate(list(prompt), temp=settings.temperature, top_k=0, top_p=1.0, min_p=0.0):
                firsts += [] if row else [perf_counter() - start]
                row.append(token)
                if token in self.lm.vocabulary.eos or len(row) == settings.max_tokens:
                    break
            texts.append(tuple(row))
        spent = perf_counter() - began
        decoded = tuple(self.lm.vocabulary.decode(row) for row in texts)
        return Sample(tuple(texts), decoded, spent, sum(map(len, texts)), sum(firsts) / len(firsts))
