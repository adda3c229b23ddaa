"""Two tiny vocabularies that cut text differently, so that drafts across tokenizers can be enumerated."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer
from tokenizers.models import BPE

from ..models.align import Alignment, align
from ..models.vocabulary import Vocabulary

TARGET, DRAFT = ("a", "b", "ab", "c", "bc"), ("a", "b", "ba", "c")


@cache
def spelling(vocab: int) -> Alignment:
    """The target's tokens are the first `vocab` of a, b, ab, c, bc; the draft's are a, b, ba, and c."""
    return align(_vocabulary(TARGET[:vocab]), _vocabulary(DRAFT if vocab > 3 else DRAFT[:3]))


def _vocabulary(words: tuple[str, ...]) -> Vocabulary:
    merges = [(word[0], word[1]) for word in words if len(word) == 2]
    tokenizer = Tokenizer(BPE({word: i for i, word in enumerate(words)}, merges))
    return Vocabulary(tokenizer, [word.encode() for word in words], special=(), eos=())
