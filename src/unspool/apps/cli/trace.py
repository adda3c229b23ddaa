"""`unspool trace`: which token came from where, round by round, as text, data or a picture."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ... import api, recipes
from .group import Grouped, SamplingOptions, method_option, options
from .loading import Loading
from .terminal import dump, note, read_prompt, table, write

if TYPE_CHECKING:
    from ...api.filling import Filling, Place
    from ...api.origin import Origin
    from ...models.vocabulary import Vocabulary

_MOST = 64  # tokens unless told otherwise: as many as can be taken in


@click.command(cls=Grouped, short_help="Which token came from where, round by round.")
@click.argument("prompt", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file; - is stdin.")
@method_option("jacobi")
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@click.option("--svg", "--figure", "svg", metavar="FILE", help="Draw the picture into this file, .svg or .pdf.")
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
    guessed in its place in earlier rounds: so it tells which tokens did not need all of those before them. Of a method
    that fills a canvas both tell at which look each place was filled, how sure the model was of it, and the blocks.
    """
    text = read_prompt(prompt, file, loading.raw)
    settings = drawing.settings(max_tokens=_MOST)
    loading.check((method,))
    if svg is not None:
        api.figures.check(svg)
    lm = loading.load()
    loading.prepare(lm, (method,))
    verified = recipes.composition.verifier_of(recipes.methods.method(method))
    asked, name, title = loading.prompt(lm, text, system), lm.vocabulary.name, f"{method} · {loading.model}"
    filling: Filling | None = None
    if verified is None:
        output, filling = api.filling.filled(lm, asked, settings, method)
        origins = api.origin.origins(output.events, {}, 0)
    else:
        output, origins = api.origin.trace(lm, asked, settings, method)
    summary = api.picture.said(origins) if filling is None else str(filling)
    if svg is not None:
        drawn = (
            api.picture.picture(origins, name, title)
            if filling is None
            else api.canvas_picture.canvas_picture(filling, name, title)
        )
        api.figures.save(drawn, svg)
        note(f"{svg}: {summary}")
    if as_json:
        about = {
            "model": loading.model,
            "draft": loading.draft,
            "small": loading.small,
            "method": method,
            "verify": verified,
            "seed": settings.seed,
        }
        vocabulary = lm.vocabulary
        tokens = (
            [_record(origin, vocabulary) for origin in origins]
            if filling is None
            else [_filled(place, vocabulary) for place in filling.places]
        )
        dump({**about, "text": output.text, "reason": output.reason, "tokens": tokens, "trace": output.trace.record()})
    elif svg is None and filling is not None:
        write(f"{summary}\n{_looks(filling, lm.vocabulary)}\n")
    elif svg is None:
        write((f"verified by {verified}: " if verified else "") + _report(origins, lm.vocabulary) + "\n")


def _report(origins: list[Origin], vocabulary: Vocabulary) -> str:
    shown, rows = api.picture.shown, []
    for number, group in groupby(origins, key=lambda origin: origin.round):
        new = list(group)
        stood = sum(origin.drafted for origin in new)
        rows.append((str(number), str(stood), " ".join(shown(vocabulary.name(origin.token)) for origin in new)))
    return api.picture.said(origins) + "\n" + table(("round", "stood", "tokens"), rows, right="round, stood")


def _looks(filling: Filling, vocabulary: Vocabulary) -> str:
    """A line per look: how many places were filled, the least sure of them, and the canvas after it."""
    rows = []
    for number, line in enumerate(filling.lines, 1):
        new = [place for place in filling.places if place.look == number]
        known = [place.p for place in new if place.p is not None]
        least = f"{min(known):.2f}" if known else "-"
        stands = "".join("_" if token < 0 else api.picture.shown(vocabulary.name(token)) for token in line)
        rows.append((str(number), str(len(new)), least, stands))
    return table(("look", "filled", "least p", "canvas"), rows, right="look, filled, least p")


def _filled(place: Place, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "token": place.token,
        "text": vocabulary.name(place.token),
        "look": place.look,
        "p": place.p,
        "taken_back": {str(look): vocabulary.name(token) for look, token in place.before.items()},
        "sure": {str(look): p for look, p in place.sure.items()},
    }


def _record(origin: Origin, vocabulary: Vocabulary) -> dict[str, Any]:
    return {
        "token": origin.token,
        "text": vocabulary.name(origin.token),
        "round": origin.round,
        "drafted": origin.drafted,
        "stood": origin.stood,
        "guesses": {str(number): list(tokens) for number, tokens in sorted(origin.guesses.items())},
    }
