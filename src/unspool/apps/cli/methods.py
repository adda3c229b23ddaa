"""`unspool methods`: all rules, those that a word or a property finds, or the page of one; without importing them."""

from __future__ import annotations

import shutil
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from ...api import papers
from ...core.claim import Claim
from ...recipes import names
from ...recipes.method_listing import listings, meaning
from .group import rules_like
from .terminal import dump, write

if TYPE_CHECKING:
    from ...recipes.method_listing import MethodListing

_NEEDS = ("nothing", "draft", "small", "heads", "filling", "file")
_CLAIMS = tuple(claim.name for claim in Claim)
_NARROW, _WIDE = 40, 100  # columns


@click.command(short_help="List and search all rules, or show the page of one.")
@click.argument("words", nargs=-1, metavar="[NAME | WORD…]", shell_complete=rules_like)
@click.option("--family", type=click.Choice(tuple(names.RULES)), help="Only rules of this family.")
@click.option("--claim", type=click.Choice(_CLAIMS, case_sensitive=False), help="Only rules that claim this.")
@click.option("--needs", type=click.Choice(_NEEDS), help="Only methods that need this (filling: a diffusion model).")
@click.option("--bibtex", is_flag=True, help="The papers of these rules as BibTeX.")
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
def methods(
    words: tuple[str, ...], family: str | None, claim: str | None, needs: str | None, bibtex: bool, as_json: bool
) -> None:
    """List all rules, or show the page of NAME, or those in whose names, papers or descriptions every WORD occurs.

    A name is ours, a paper's or a system's (medusa, fast-dllm), or a number on arXiv. Those with a star can be used
    with --method; the others are parts that methods are made of.
    """
    every = listings()
    name = names.known(" ".join(words)) if words else None
    found = [every[name]] if name in every else [each for each in every.values() if all(map(each.has, words))]
    if words and not found:
        raise names.unknown(" ".join(words))
    found = [each for each in found if _fits(each, family, claim, needs)]
    if as_json:
        dump([_record(each) for each in found])
    elif bibtex:
        write(papers.bibtex((each.name, each.paper, each.systems) for each in found))
    elif name in every and len(found) == 1:
        write(page(found[0], _columns()))
    else:
        write(_list(found, _columns()))


def _fits(each: MethodListing, family: str | None, claim: str | None, needs: str | None) -> bool:
    files = any(text.startswith("a file") for text in each.ranges.values())
    has = {"nothing": not each.needs and not each.fills, "filling": each.fills, "file": files}
    needed = needs is None or (each.runnable and has.get(needs, needs in each.needs))
    return needed and family in (None, each.family) and claim in (None, each.claim)


def _columns() -> int:
    return max(_NARROW, min(_WIDE, shutil.get_terminal_size((80, 24)).columns))


def _list(found: list[MethodListing], columns: int) -> str:
    """Rules by family, each with its claim and what it does, within so many columns."""
    if not found:
        return "No rule is like that.\n"
    wide = max(len(each.name) for each in found) + 2
    lines = []
    for family, group in groupby(found, key=lambda each: each.family):
        lines.append(f"{family}:")
        for each in group:
            lead = f"{'*' if each.runnable else ' '} {each.name:{wide}}{each.claim:11}"
            lines += _wrapped(each.summary, lead, len(lead), columns)
        lines.append("")
    claims = [line for claim in Claim for line in _wrapped(claim.value, f"{claim.name:11}", 11, columns)]
    told = "* can be used with --method. `unspool methods NAME` is the page of one. What they claim:"
    return "\n".join([*lines, *textwrap.wrap(told, columns), *claims]) + "\n"


def page(each: MethodListing, columns: int) -> str:
    """All that there is to say of one rule."""
    lines = [f"{each.name} · {each.family} · {each.promise}"]
    lines += [f"https://arxiv.org/abs/{each.paper}"] if each.paper else []
    also = list({names.plainly(said): said for said in (*each.aliases, *each.systems)}.values())
    lines += _wrapped(", ".join(also), "also known as ", 2, columns) if also else []
    for part in each.text.split("\n\n"):
        kept = part.startswith("    ")  # a formula, which keeps its lines
        lines += ["", *(part.split("\n") if kept else textwrap.wrap(" ".join(part.split()), columns))]
    if each.recipe:
        lines += ["", *_wrapped(each.recipe, f"--method {each.name}: ", 2, columns)]
    if each.options:
        lines.append("")
        for name, value in each.options.items():
            told = f"{meaning(each.name, name)} ({each.ranges[name]})"
            lines += _wrapped(told, f"  {name}={_spelt(value)}  ", 6, columns)
        lines += [f"together: {product}" for product in each.together]
    return "\n".join([*lines, "", *_commands(each)]) + "\n"


def _commands(each: MethodListing) -> list[str]:
    if not each.runnable:
        return [f"A part that methods are made of.  unspool prove {each.name}"]
    needed = [f"--{need} {'FILE' if need == 'heads' else 'MODEL'}" for need in each.needs]
    needed += ["--model smollm2-diffusion"] if each.fills else []
    return [f"unspool {what}" for what in (" ".join(['run "…" --method', each.name, *needed]), f"prove {each.name}")]


def _wrapped(text: str, lead: str, indent: int, columns: int) -> list[str]:
    return textwrap.wrap(text, columns, initial_indent=lead, subsequent_indent=" " * indent) or [lead.rstrip()]


def _spelt(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value) or "-"


def _record(each: MethodListing) -> dict[str, Any]:
    return {**vars(each), "aliases": list(each.aliases)}
