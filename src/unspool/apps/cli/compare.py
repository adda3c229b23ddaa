"""`unspool compare`: methods side by side on the same prompts, and whether they pay."""

from __future__ import annotations

import json
import sys

import click
from tqdm import tqdm

from ... import api
from ...core.errors import BadRequest
from .comparison_table import report
from .examples import PROMPTS
from .group import options
from .loading import Loading
from .reading_input import read_file
from .sampling_options import SamplingOptions
from .terminal import dump, write

_MOST = 64  # tokens per text unless told otherwise: enough for acceptance to settle, quick enough to wait for


@click.command(short_help="Methods side by side: speed, acceptance, and whether they pay here.")
@click.argument("method", nargs=-1)
@click.option("--prompts", "files", multiple=True, metavar="FILE", help="Prompts: one per line, or .jsonl. Repeatable.")
@click.option("-p", "--prompt", "given", multiple=True, metavar="TEXT", help="A prompt. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per method in a list, plain decoding first.")
@options(Loading, "loading")
@options(SamplingOptions, "drawing")
def compare(
    method: tuple[str, ...],
    files: tuple[str, ...],
    given: tuple[str, ...],
    as_json: bool,
    loading: Loading,
    drawing: SamplingOptions,
) -> None:
    """Run plain decoding and each METHOD (lookup, if none is named) on the same prompts, each from a cold cache.

    Shows what each method accepted, where the time went, and how many tokens a round must bring to pay. Texts that
    differ from plain greedy decoding get a verdict: near tie or not. A .jsonl file has objects with "prompt", or with
    "turns", whose first one is used. Without prompts, six built-in ones are used; texts have 64 tokens unless
    --max-tokens says otherwise.
    """
    methods = tuple(dict.fromkeys(spec for spec in method or ("lookup",) if spec != "plain"))
    texts = [text for file in files for text in prompts_of(file)] + list(given) or list(PROMPTS)
    if not all(text.strip() for text in texts):
        raise BadRequest("one of the prompts is empty; give some text to go on from.")
    settings = drawing.settings(max_tokens=_MOST)
    loading.check(methods)
    lm = loading.load()
    loading.prepare(lm, methods)
    steps = len(texts) * (1 + len(methods))
    with tqdm(total=steps, unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:

        def advance() -> None:
            bar.update(1)

        asked = [loading.prompt(lm, text) for text in texts]
        found = api.comparison.compare(lm, methods, asked, settings, advance)
    if as_json:
        dump(found.record())
    else:
        write(report(found, settings.temperature == 0))


def prompts_of(file: str) -> list[str]:
    """The prompts of a file, blank lines left out."""
    lines = [(number, line) for number, line in enumerate(read_file(file).splitlines(), 1) if line.strip()]
    if not lines:
        raise BadRequest(f"{file} has no prompts: every line is empty.")
    if not file.endswith(".jsonl"):
        return [line for _, line in lines]
    return [_prompt(line, f"{file}, line {number}") for number, line in lines]


def _prompt(line: str, where: str) -> str:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{where}: is not JSON ({error}).") from None
    found = data.get("prompt", data.get("turns")) if isinstance(data, dict) else None
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, str):
        raise BadRequest(f'{where}: expected an object with "prompt", a text, or "turns", a list of texts.')
    return found
