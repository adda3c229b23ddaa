"""`unspool trace`: which token came from where, round by round, as text, data or a picture."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ... import api, recipes
from ...core.errors import BadRequest
from .group import Grouped, SamplingOptions, method_option, options
from .loading import Loading
from .terminal import dump, note, read_prompt, table, write

if TYPE_CHECKING:
    from ...api.origin import Origin
    from ...models.vocabulary import Vocabulary

_MOST = 64  # tokens unless told otherwise: as many as can be taken in


@click.command(cls=Grouped, short_help="Which token came from where, round by round; with --svg as a picture.")
@click.argument("prompt", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file; - is stdin.")
@method_option("jacobi")
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@click.option("--svg", metavar="FILE", help="Draw the picture into this file.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the table.")
@options(Loading, "loading")
@options(SamplingOptions, "drawing")
def trace(
    prompt: str | None,
    file: str | None,
    method: str,
    system: str | None,
    svg: str | None,
    as_json: bool,
    loading: Loading,
    drawing: SamplingOptions,
) -> None:
    """Continue or answer PROMPT, and show for every token the round that made it certain.

    The table has a line per round: how many drafted tokens stood, and what was written; the last token of a round is
    the target's own, unless the text ended before. The picture has a row per token, and also shows what had been
    guessed in its place in earlier rounds: so it tells which tokens did not need all of those before them.
    """
    text = read_prompt(prompt, file, loading.raw)
    settings = drawing.settings(max_tokens=_MOST)
    loading.check((method,))
    if svg is not None and not Path(svg).absolute().parent.is_dir():
        raise BadRequest(f"{svg} cannot be written: its folder does not exist; create it or give another place.")
    lm = loading.load()
    loading.prepare(lm, (method,))
    verified = recipes.composition.verifier_of(recipes.methods.method(method))
    output, origins = api.origin.trace(lm, loading.prompt(lm, text, system), settings, method)
    if svg is not None:
        drawn = api.picture.picture(origins, lm.vocabulary.name, f"{method} · {loading.model}")
        Path(svg).write_text(drawn, encoding="utf-8")
        note(f"{svg}: {api.picture.said(origins)}")
    if as_json:
        about = {
            "model": loading.model,
            "draft": loading.draft,
            "small": loading.small,
            "method": method,
            "verify": verified,
            "seed": settings.seed,
        }
        tokens = [_record(origin, lm.vocabulary) for origin in origins]
        dump({**about, "text": output.text, "reason": output.reason, "tokens": tokens, "trace": output.trace.record()})
    elif svg is None:
        write((f"verified by {verified}: " if verified else "") + _report(origins, lm.vocabulary) + "\n")


def _report(origins: list[Origin], vocabulary: Vocabulary) -> str:
    shown, rows = api.picture.shown, []
    for number, group in groupby(origins, key=lambda origin: origin.round):
        new = list(group)
        stood = sum(origin.drafted for origin in new)
        rows.append((str(number), str(stood), " ".join(shown(vocabulary.name(origin.token)) for origin in new)))
    return api.picture.said(origins) + "\n" + table(("round", "stood", "tokens"), rows, right="round, stood")


def _record(origin: Origin, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "token": origin.token,
        "text": vocabulary.name(origin.token),
        "round": origin.round,
        "drafted": origin.drafted,
        "stood": origin.stood,
        "guesses": {str(number): list(tokens) for number, tokens in sorted(origin.guesses.items())},
    }
