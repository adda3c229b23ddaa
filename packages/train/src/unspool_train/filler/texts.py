"""Lines of a file as tokens: letters, or pairs of them that occur often."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from unspool.core.errors import BadRequest

BEGIN, END, MASK, NONE = range(4)
NAMES = ("<s>", "</s>", "<mask>", "<none>")
_LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def lines_of(files: str, most: int) -> list[str]:
    """The lines of these files that are not empty, at most so many; files are separated by commas and may be .gz."""
    found: list[str] = []
    for name in filter(None, files.split(",")):
        path = Path(name.strip()).expanduser()
        if not path.is_file():
            raise BadRequest(f"{path} is no file; expected texts, one a line (.gz is read too).")
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found += (text for line in data.decode("utf-8", "replace").splitlines() if (text := line.strip()))
    if len(found) < 2:
        raise BadRequest(f"--texts {files!r} has {len(found)} lines; expected files of texts, one a line.")
    return found[:most]


def tokenizer_of(lines: Sequence[str], size: int) -> Tokenizer:
    """A tokenizer of bytes, joined to at most `size` tokens by what these lines have most; 0 leaves them alone."""
    made = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate([*NAMES, *_LETTERS])}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=bool(size))
    made.decoder = decoders.ByteLevel()
    if size:
        teach = trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(NAMES), initial_alphabet=_LETTERS, show_progress=False
        )
        made.train_from_iterator(lines, teach)
    made.add_special_tokens(list(NAMES))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    return made


def encoded(made: Tokenizer, lines: Sequence[str], longest: int) -> list[list[int]]:
    """The tokens of every line without those that begin and end it; lines that are longer than told are left out."""
    found = (each.ids for each in made.encode_batch(list(lines), add_special_tokens=False))
    return [ids for ids in found if 0 < len(ids) <= longest]


def batches(texts: Sequence[list[int]], size: int, dice: Sequence[int]) -> Iterator[list[list[int]]]:
    """Texts in this order, so many at a time."""
    for first in range(0, len(dice) - size + 1, size):
        yield [texts[i] for i in dice[first : first + size]]
