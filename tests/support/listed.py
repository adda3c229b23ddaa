"""A constraint that is a list of texts: small enough to condition on by hand."""

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True)
class Listed:
    """A toy constraint: the text is one of these. Token `end` ends it."""

    texts: frozenset
    vocab: int
    written: tuple = ()

    def start(self):
        return self

    def step(self, token):
        return replace(self, written=(*self.written, token))

    def allows(self, token):
        after = (*self.written, token)
        return any(text[: len(after)] == after for text in self.texts)

    def mask(self):
        return torch.tensor([self.allows(x) for x in range(self.vocab)])

    def forced(self):
        return ()

    def complete(self):
        return self.written in self.texts
