"""Drafters: one file per idea of what might come next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.drafter import Draft as Draft
    from ...loops.drafter import Memoryless as Memoryless
    from ...loops.drafter import Proposing as Proposing
    from ...loops.drafter import Source as Source
    from ...loops.drafter import possible as possible
    from ...loops.no_draft import Nothing as Nothing
    from .aligned import Aligned as Aligned
    from .auto import Auto as Auto
    from .blocks import Blocks as Blocks
    from .bush import Bush as Bush
    from .cascade import Cascade as Cascade
    from .chain import Chain as Chain
    from .copy import Copy as Copy
    from .coupled import Coupled as Coupled
    from .denoised import Denoised as Denoised
    from .either import Either as Either
    from .escalate import Escalate as Escalate
    from .escalate import Surest as Surest
    from .forced import Forced as Forced
    from .heads import Heads as Heads
    from .iid import Bunch as Bunch
    from .jacobi import Jacobi as Jacobi
    from .jacobi import Slide as Slide
    from .likeliest import Likeliest as Likeliest
    from .little import Little as Little
    from .lookahead import Lookahead as Lookahead
    from .lookup import Lookup as Lookup
    from .masks import Masks as Masks
    from .merge import Merge as Merge
    from .paced import Paced as Paced
    from .phrase import Phrase as Phrase
    from .pool import Pool as Pool
    from .prefilled import Prefilled as Prefilled
    from .prose import Prose as Prose
    from .raced import Raced as Raced
    from .recall import Recall as Recall
    from .recycle import Recycle as Recycle
    from .recycle import Successors as Successors
    from .resident import Resident as Resident
    from .retrieve import Retrieve as Retrieve
    from .shaped import Shaped as Shaped
    from .sprout import Sprout as Sprout
    from .stand import Grams as Grams
    from .stand import Stand as Stand
    from .store import Store as Store
    from .strings import Strings as Strings
    from .suffix import Corpus as Corpus
    from .suffix import Suffix as Suffix
    from .suffixtree import Memory as Memory
    from .suffixtree import SuffixTree as SuffixTree
    from .thicket import Thicket as Thicket
    from .trigram import Trigram as Trigram
    from .trigram import trigrams as trigrams

__getattr__, __dir__ = lazily(
    __name__,
    {
        "aligned": "Aligned",
        "auto": "Auto",
        "blocks": "Blocks",
        "bush": "Bush",
        "cascade": "Cascade",
        "chain": "Chain",
        "copy": "Copy",
        "coupled": "Coupled",
        "denoised": "Denoised",
        "..loops.drafter": "Draft Memoryless Proposing Source possible",
        "either": "Either",
        "escalate": "Escalate Surest",
        "forced": "Forced",
        "heads": "Heads",
        "iid": "Bunch",
        "jacobi": "Jacobi Slide",
        "likeliest": "Likeliest",
        "little": "Little",
        "lookahead": "Lookahead",
        "lookup": "Lookup",
        "masks": "Masks",
        "merge": "Merge",
        "..loops.no_draft": "Nothing",
        "paced": "Paced",
        "phrase": "Phrase",
        "pool": "Pool",
        "prefilled": "Prefilled",
        "prose": "Prose",
        "raced": "Raced",
        "recall": "Recall",
        "recycle": "Recycle Successors",
        "resident": "Resident",
        "retrieve": "Retrieve",
        "shaped": "Shaped",
        "sprout": "Sprout",
        "stand": "Grams Stand",
        "store": "Store",
        "strings": "Strings",
        "suffix": "Corpus Suffix",
        "suffixtree": "Memory SuffixTree",
        "thicket": "Thicket",
        "trigram": "Trigram trigrams",
    },
)
