"""`unspool store`: the texts of files and folders as one file to draft from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ... import models, recipes, rules
from ...core.errors import BadRequest
from .root import starting
from .terminal import dump, note, size

LARGEST = 1 << 24  # bytes of one file; larger ones are data, not text


@click.command(short_help="Make a store to draft from: the texts of files and folders.")
@click.argument("source", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Where it goes.")
@click.option("-m", "--model", default="smollm2", show_default=True, help="Whose tokens the texts are cut into.")
@click.option("--glob", "pattern", default="*", show_default=True, help="Which files of folders, as in '*.py'.")
@click.option("--most", default=1 << 22, show_default=True, type=click.IntRange(1), help="Tokens; the last ones stay.")
@click.option("--json", "as_json", is_flag=True, help="What was made, as JSON.")
def store(source: tuple[Path, ...], out: Path, model: str, pattern: str, most: int, as_json: bool) -> None:
    """Cut the texts of SOURCEs, files and folders, into MODEL's tokens, and keep them where drafters find them.

    Then `--method retrieve:store=FILE` drafts what followed the same words there (REST, CodeSwift),
    `suffix:corpus=FILE` copies the longest match (SAM-Decoding), and `trigram:corpus=FILE` begins with its trigrams
    (ADED). What is not UTF-8, hidden or larger than 16 MiB is left out. A store works for models with the same
    tokenizer and no others.
    """
    if not out.absolute().parent.is_dir():
        raise BadRequest(f"{out} cannot be written: its folder does not exist; create it or give another place.")
    with starting():
        opened = models.weights.open_checkpoint
    vocabulary = opened(models.address.path(model)).vocabulary()
    texts = [vocabulary.encode(text, special=False) for text in _texts(source, pattern)]
    if not any(texts):
        raise BadRequest(f"no texts were found in {', '.join(map(str, source))}; --glob says which files count")
    made = rules.draft.Store(texts, most=most)
    made.save(out, recipes.memory.stamp_of(vocabulary))
    held = out.stat().st_size
    if as_json:
        dump({"file": str(out), "tokens": len(made), "texts": len(texts), "bytes": held})
    else:
        note(f"{out}: {len(made):,} tokens of {len(texts)} texts, {size(held)}")


def _texts(sources: Iterable[Path], pattern: str) -> Iterator[str]:
    for source in sources:
        if not source.exists():
            raise BadRequest(f"{source}: there is no such file or folder.")
        files = sorted(source.rglob(pattern)) if source.is_dir() else [source]
        for file in files:
            hidden = any(part.startswith(".") for part in file.relative_to(source).parts)
            if file.is_file() and not hidden and file.stat().st_size <= LARGEST:
                try:
                    yield file.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue
