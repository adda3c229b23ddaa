"""Recipes of ways to decode that are neither drafting, unmasking nor search."""

from __future__ import annotations

from typing import Annotated

from .. import recipes
from ..core.claim import Method
from ..core.option import (
    Choice,
    Depth,
    Few,
    FileName,
    FreeText,
    Holes,
    Level,
    Product,
    Range,
    Share,
    Span,
    Steps,
    Texts,
    Weight,
    part,
)
from ..loops.denoise import Denoise
from ..loops.speculate import Speculate
from ..rules import decode, search, unmask


def anyorder(
    depth: Few = 5,
    guess: Annotated[str, Choice(("alike", "copied"))] = "alike",
    order: Annotated[str, Choice(("left", "mixed"))] = "left",
    size: Holes = 0,
) -> Method:
    """Draft `depth` holes by one look (`alike`) or from the canvas (`copied`), in the order `left` or `mixed`."""
    guesses: dict[str, decode.HoleDrafter] = {"alike": decode.Alike(), "copied": decode.Copied()}
    orders: dict[str, decode.HoleOrder] = {"left": decode.left, "mixed": decode.mixed}
    return decode.AnyOrder(depth, size, part("guess", guess, guesses), part("order", order, orders))


def capped_jacobi(
    size: Depth = 8,
    cap: Annotated[int, Range(0, 256)] = 4,
    start: Annotated[str, Choice(("last_chunk", "bigrams"))] = "last_chunk",
) -> Method:
    """Chunks of `size` tokens in at most `cap` forwards each, 0 for as many as it takes."""
    starts: dict[str, decode.Start] = {"last_chunk": decode.last_chunk, "bigrams": decode.from_bigrams}
    return decode.CappedJacobi(size, cap, part("start", start, starts))


def early_answer(
    rounds: Steps = 24, window: Annotated[int, Range(0, 256)] = 8, cue: Annotated[str, FreeText(200)] = ""
) -> Method:
    """Thoughts of `rounds` forwards, the guesses of a window, and an answer after the words of `cue`."""
    return decode.EarlyAnswer(cue, rounds, window) if cue else decode.EarlyAnswer(rounds=rounds, window=window)


def deliberate(
    doubt: Annotated[str, Choice(("least", "scattered", "chunks"))] = "least",
    share: Share = 0.3,
    chunks: Span = 4,
    draft: Level = 0.5,
    threshold: Level = 0.9,
    size: Holes = 0,
) -> Method:
    """A quick text with the threshold `draft`; then a `share` of it (least, scattered) or its `chunks` again."""
    doubts: dict[str, decode.Doubt] = {
        "least": decode.Least(share),
        "scattered": decode.Scattered(share),
        "chunks": decode.Chunks(chunks),
    }
    quick = Denoise(unmask.Confident(draft), size)
    return decode.Deliberate(quick, part("doubt", doubt, doubts), unmask.Confident(threshold))


def fragments(
    rounds: Annotated[int, Range(0, 1024)] = 10,
    least: Span = 5,
    most: Span = 15,
    randomness: Weight = 0.5,
    population: Texts = 1,
    signs: Annotated[str, FreeText(16)] = ".",
    reward: FileName = "",
    size: Holes = 0,
) -> Method:
    """Fragments between `signs` in a population of texts, by a reward that is FILE.py:NAME or the model's own taste."""
    rule, oracle = unmask.Cooling(randomness), search.reward_of(reward) if reward else None
    return decode.Fragments(
        Denoise(rule, size),
        rounds=rounds,
        least=least,
        most=most,
        unmask=rule,
        signs=signs,
        population=population,
        reward=oracle,
    )


def insert(
    none: Annotated[int, Range(-1, 2**31 - 1)] = -1,
    words: Annotated[str, FreeText(512)] = "",
    prevent: Annotated[str, FreeText(512)] = "",
    reduce: Annotated[str, FreeText(512)] = "",
    promote: Annotated[str, FreeText(512)] = "",
    rounds: Few = 10,
    decay: Annotated[int, Range(0, 64)] = 1,
    beam: Annotated[int, Range(1, 8)] = 1,
) -> Method:
    """Insert round words, as in words=dog+river; lists of words that come never, late or rather; beams in a round.

    `none` is the token that says that a gap stays closed, −1 for the one that is called so.
    """
    lists = (tuple(filter(None, listed.split("+"))) for listed in (words, prevent, reduce, promote))
    first, never, late, rather = lists
    return decode.Insert(none, first, rounds, decay, prevent=never, reduce=late, promote=rather, beam=beam)


def slots(
    size: Holes = 0, beam: Annotated[int, Range(1, 32)] = 8, warm: Annotated[int, Range(0, 1024)] = 1, together: Few = 2
) -> Annotated[Method, Product(1024, "beam", "beam", "together")]:
    """So many slots, as many beams."""
    return decode.Slots(size, beam, warm, together)


def steps(
    threshold: Annotated[float, Range(0, 100)] = 7.0,
    longest: Steps = 512,
    first: Annotated[int, Range(0, 4096)] = 0,
    inside: Annotated[str, Choice(("plain", *recipes.names.INNER))] = "plain",
) -> Method:
    """Steps that end with a blank line, judged by the ready-made question; `inside` drafts for the base model's own."""
    own = Speculate() if inside == "plain" else recipes.methods.method(inside)
    assert isinstance(own, Speculate)  # as all drafters by name are
    return decode.Steps(None, threshold, longest, first, inside=own)


def template(words: Annotated[str, FreeText(512)] = "", longest: Steps = 24, weave: Level = 0.02) -> Method:
    """A template of words, as in words=dog+ball; at most `longest` tokens between two, a word where it is likely."""
    return decode.Template(tuple(words.split("+")) if words else (), longest, weave)
