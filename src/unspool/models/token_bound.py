"""How many tokens a text has at the least, told by its size alone: what cannot fit need not be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer, models


class TokenBound:
    """A bound for vocabularies that spell a text byte by byte; for others nobody can tell, and it is 0.

    A token covers no more bytes than the longest one, and a byte that is a token by itself is never left out.
    """

    def __init__(self, tokenizer: Tokenizer, pieces: Sequence[bytes], special: Iterable[int]) -> None:
        names = (str(tokenizer.id_to_token(token)).encode("utf-8", "replace") for token in special)
        self._longest = max(map(len, (*pieces, *names)), default=1)
        alone = {piece for piece in pieces if len(piece) == 1}
        self._left_out = bytes(byte for byte in range(256) if bytes([byte]) not in alone)
        before = str(tokenizer.pre_tokenizer).lower()
        spelt = isinstance(tokenizer.model, models.BPE) and tokenizer.normalizer is None
        self._known = spelt and "bytelevel" in before and "removed" not in before

    def at_least(self, text: str) -> int:
        """So many tokens, or more."""
        if not self._known:
            return 0
        return -(-len(text.encode("utf-8", "replace").translate(None, self._left_out)) // self._longest)
