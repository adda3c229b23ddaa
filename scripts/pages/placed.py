"""Where speculation stands: what runs each system and which test shows it, and rules in the surveys' terms."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import tomllib

FILE = Path(__file__).with_name("systems.toml")


class System(NamedTuple):
    """A system of a paper: what runs it, the test that fails without it, options besides, and what it lacks."""

    name: str
    spec: str
    test: str
    options: str = ""
    lacks: str = ""  # what the paper has besides
    train: str = ""  # the kind of `unspool train drafter` that makes it, or the command that does
    figure: str = ""  # where another result than that of bench/rules.py has its tokens per forward: FILE/KEY/…
    ran: str = ""  # and what was run for it


def _read(file: Path) -> tuple[System, ...]:
    return tuple(System(**each) for each in tomllib.loads(file.read_text("utf-8"))["system"])


SYSTEMS = _read(FILE)
CANVASES = _read(FILE.with_name("canvases.toml"))
TRAINED = _read(FILE.with_name("trained.toml"))

_SELF, _OTHER = "the target itself", "an independent model"
_MODEL, _DRAFT, _LENGTH = "the model", "the draft: tree", "the draft: length"
_NGRAM, _KEPT, _READ, _AR = "n-grams", "its own laws, kept", "retrieval", "an autoregressive drafter"
_CHAIN, _TREE, _PATHS = "chain", "tree", "paths"
_CHOSEN, _DRAWN = "chosen", "drawn"
DRAFTERS = {
    "adaedl": (_OTHER, _LENGTH, _AR, _CHAIN, _DRAWN),
    "aligned": (_SELF, "the draft: selection", f"{_NGRAM}, {_KEPT}", _TREE, _CHOSEN),
    "auto": (_SELF, "the draft: selection", f"{_NGRAM}, {_KEPT}, a drafter if it pays", _TREE, _CHOSEN),
    "bigram_recycling": (_SELF, "the draft: selection", _KEPT, _TREE, _CHOSEN),
    "bild": (_OTHER, _LENGTH, _AR, _CHAIN, _CHOSEN),
    "blocks": (_SELF, _MODEL, "fill tokens, by iteration", _CHAIN, _CHOSEN),
    "cascade": (_OTHER, _MODEL, "an autoregressive drafter that is sped up", _CHAIN, _DRAWN),
    "chain": (_OTHER, _MODEL, f"{_AR}, or layers of the target", _CHAIN, _DRAWN),
    "copy": (_SELF, "the draft: selection", _READ, _CHAIN, _CHOSEN),
    "coupled": (_OTHER, _MODEL, _AR, _CHAIN, "drawn with the target's noise"),
    "denoised": (_SELF, _MODEL, "fill tokens, in one look", _CHAIN, _DRAWN),
    "dyspec": (_OTHER, _DRAFT, _AR, _TREE, _DRAWN),
    "dyspec_threshold": (_OTHER, _DRAFT, _AR, _TREE, _DRAWN),
    "either": (_SELF, "the draft: selection", f"{_NGRAM}, {_KEPT}", _TREE, _CHOSEN),
    "escalate": (_OTHER, _MODEL, "autoregressive drafters of several sizes", _CHAIN, _DRAWN),
    "forced": (_SELF, "the draft: selection", "a grammar", _TREE, _CHOSEN),
    "heads": (_SELF, _MODEL, "heads for several tokens", _TREE, _CHOSEN),
    "jacobi": (_SELF, _MODEL, "fill tokens, by iteration", _CHAIN, _CHOSEN),
    "likeliest": (_OTHER, _DRAFT, _AR, _TREE, _CHOSEN),
    "lookahead": (_SELF, _MODEL, "fill tokens, by iteration; n-grams of them", _TREE, _CHOSEN),
    "lookup": (_SELF, "the draft: selection", _NGRAM, _CHAIN, _CHOSEN),
    "masks": (_SELF, _MODEL, "fill tokens, in one look", _TREE, _CHOSEN),
    "merge": (_SELF, "the draft: selection", f"{_NGRAM}, {_KEPT}", _TREE, _CHOSEN),
    "on_device": (_SELF, "the draft: selection", f"{_NGRAM}, {_KEPT}", _TREE, _CHOSEN),
    "paced": (_OTHER, _LENGTH, _AR, _CHAIN, _DRAWN),
    "pearl": (_OTHER, _MODEL, _AR, _CHAIN, "drawn with the target's noise"),
    "phrase": (_OTHER, _MODEL, "an autoregressive drafter, n-grams of the target", _TREE, "drawn, then chosen"),
    "prefilled": (_SELF, "the draft: selection", _KEPT, _TREE, _CHOSEN),
    "raced": (_OTHER, _MODEL, _AR, _CHAIN, "drawn with the target's noise"),
    "recycle": (_SELF, "the draft: selection", _KEPT, _TREE, _CHOSEN),
    "retrieve": (_SELF, "the draft: selection", _READ, _TREE, _CHOSEN),
    "rsd_c": (_OTHER, _DRAFT, _AR, _TREE, _DRAWN),
    "rsd_s": (_OTHER, _DRAFT, _AR, _TREE, _DRAWN),
    "sequoia": (_OTHER, _DRAFT, _AR, _TREE, _DRAWN),
    "slem": (_OTHER, _MODEL, "an autoregressive drafter of another tokenizer", _CHAIN, _CHOSEN),
    "slrs": (_OTHER, _MODEL, "an autoregressive drafter of another tokenizer", _CHAIN, _DRAWN),
    "spechub": (_OTHER, _DRAFT, _AR, _TREE, "chosen, and one drawn"),
    "specinfer": (_OTHER, _DRAFT, _AR, _PATHS, _DRAWN),
    "stand": (_SELF, "the draft: selection", f"{_NGRAM} with laws", _TREE, _DRAWN),
    "suffix": (_SELF, "the draft: selection", f"{_NGRAM}, {_READ}", _CHAIN, _CHOSEN),
    "suffixtree": (_SELF, "the draft: selection", _NGRAM, _TREE, _CHOSEN),
    "surest": (_OTHER, _MODEL, "autoregressive drafters of several sizes", _CHAIN, _CHOSEN),
    "specdecpp": (_OTHER, _LENGTH, _AR, _CHAIN, _DRAWN),
    "svip": (_OTHER, _LENGTH, _AR, _CHAIN, _DRAWN),
    "tetris": (_OTHER, "the draft: budget over a batch", _AR, _CHAIN, _DRAWN),
    "trigram": (_SELF, _DRAFT, f"{_NGRAM}, {_READ}", _TREE, _CHOSEN),
}
_SAMPLING, _ONCE = "speculative sampling", "one pass"
VERIFIERS = {
    "blended": ("approximate sampling", "a chain", _ONCE),
    "block": (_SAMPLING, "a chain as a whole", _ONCE),
    "conditional": ("approximate, by a threshold", "a tree", _ONCE),
    "greedy": ("greedy", "a tree", _ONCE),
    "judged": ("approximate, by a trained head", "a tree", _ONCE),
    "kseq": (_SAMPLING, "paths", _ONCE),
    "lenient": ("approximate sampling", "a tree", _ONCE),
    "mixture": ("approximate sampling", "a tree", _ONCE),
    "multipath": (_SAMPLING, "paths as a whole", _ONCE),
    "race": ("sample matching", "a tree", _ONCE),
    "rejection": (_SAMPLING, "a tree", _ONCE),
    "rollback": ("approximate, by a threshold", "a chain", _ONCE),
    "sample_match": ("sample matching; greedy at temperature 0", "a tree", "one pass, or iteration under `jacobi`"),
    "synthetic": ("none: for planning", "a tree", _ONCE),
    "top_beta": ("approximate, by a threshold", "a tree", _ONCE),
    "traversal": (_SAMPLING, "a tree as a whole", _ONCE),
    "typical": ("approximate, by a threshold", "a tree", _ONCE),
    "zeroing": (_SAMPLING, "a tree", _ONCE),
}
