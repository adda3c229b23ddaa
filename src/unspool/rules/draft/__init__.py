"""Drafters: one file per idea of what might come next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from ...loops.drafter import Draft as Draft, Memoryless as Memoryless, Nothing as Nothing, Proposing as Proposing
    from ...loops.drafter import Source as Source, possible as possible
    from .adaedl import AdaEDL as AdaEDL
    from .aligned import Aligned as Aligned
    from .auto import Auto as Auto
    from .bigram_recycling import BigramRecycling as BigramRecycling
    from .bild import BiLD as BiLD
    from .blocks import JacobiBlocks as JacobiBlocks
    from .cascade import Cascade as Cascade
    from .chain import Chain as Chain
    from .copy import Copy as Copy
    from .coupled import Coupled as Coupled
    from .denoised import Denoised as Denoised
    from .device_first import DeviceFirst as DeviceFirst
    from .dyspec import DySpec as DySpec
    from .dyspec_threshold import DySpecThreshold as DySpecThreshold
    from .either import Either as Either
    from .escalate import Escalate as Escalate, Surest as Surest
    from .forced import Forced as Forced
    from .heads import Heads as Heads
    from .jacobi import Jacobi as Jacobi, Slide as Slide
    from .likeliest import Likeliest as Likeliest
    from .lookahead import Lookahead as Lookahead
    from .lookup import Lookup as Lookup
    from .masks import Masks as Masks
    from .merge import Merge as Merge
    from .ngram_pool import NgramPool as NgramPool
    from .on_device import OnDevice as OnDevice
    from .paced import Paced as Paced
    from .pearl import Pearl as Pearl
    from .phrase import Phrase as Phrase, PooledChain as PooledChain
    from .prefilled import Prefilled as Prefilled
    from .raced import Raced as Raced
    from .recycle import Recycle as Recycle, Successors as Successors
    from .retrieve import Retrieve as Retrieve
    from .rsd_c import RSDC as RSDC
    from .rsd_s import RSDS as RSDS
    from .sequoia import Sequoia as Sequoia
    from .slem import SLEM as SLEM
    from .slrs import SLRS as SLRS
    from .specdecpp import AcceptanceHead as AcceptanceHead, SpecDecPP as SpecDecPP
    from .spechub import SpecHub as SpecHub
    from .specinfer import SpecInfer as SpecInfer
    from .stand import NgramLaws as NgramLaws, Stand as Stand
    from .retrieve import Store as Store
    from .suffix import Corpus as Corpus, Suffix as Suffix
    from .suffixtree import SuffixTree as SuffixTree, SuffixTreeMemory as SuffixTreeMemory
    from .svip import SVIP as SVIP
    from .tetris import Tetris as Tetris
    from .trigram import Rollout as Rollout, Trigram as Trigram, best_first_rollout as best_first_rollout
    from .trigram import drawn_rollout as drawn_rollout, trigrams as trigrams

__getattr__, __dir__ = lazily(__name__)
