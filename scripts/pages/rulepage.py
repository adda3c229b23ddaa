"""The page of one rule: everything that the registry, its docstring and the results say of it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from docstring import Said, cell, marked, said
from measured import Table
from running import commands, python, refusal

from unspool.core.claim import BOUND, HEURISTIC, Claim, Entry
from unspool.core.option import options, products
from unspool.recipes.method_listing import meaning
from unspool.recipes.methods import fills

TITLES = {
    "draft": "Drafters",
    "verify": "Verifiers",
    "decode": "Loops",
    "unmask": "Filling holes",
    "constrain": "Constraints",
    "search": "Search",
    "grow": "Tree shapes",
    "warp": "Warps",
    "steer": "Steering",
}


def title(family: str) -> str:
    """A family's name for people."""
    return TITLES.get(family, family.capitalize())


def rule_page(entry: Entry, tables: Sequence[Table]) -> str:
    """Everything that is known of one rule."""
    parts = said(inspect.getdoc(entry.rule) or "")
    about = f"title: {entry.name}\ndescription: {_quoted(entry.summary)}\nsearch: {{boost: 3}}"
    pieces = [
        parts.definition,
        _facts(entry),
        *([f"## How it works\n\n{parts.workings}"] if parts.workings else []),
        _claim(entry, parts),
        f"## Cost\n\n{parts.cost or 'Not stated.'}",
        *([f"## When it loses\n\n{found}"] if (found := _loses(entry, parts, tables)) else []),
        *([f"## Options\n\n{_options(entry)}"] if entry.build is not None else []),
        f"## Run it\n\n{_run(entry)}",
        f"## Measured\n\n{_measured(tables)}",
    ]
    return f"---\n{about}\n---\n\n# `{entry.name}`\n\n" + "\n\n".join(pieces) + "\n"


def badge(claim: Claim) -> str:
    """A claim's name as a coloured label."""
    return f"`{claim.name}`{{ .claim .{claim.name.lower()} }}"


def _facts(entry: Entry) -> str:
    promised = entry.claim.value + (f", {entry.note}" if entry.note else "")
    rows = [
        ("claim", f"{badge(entry.claim)} {promised} ([what exact means here](../../exact.md))"),
        ("family", f"[{title(entry.family)}](index.md)"),
        ("needs", _needs(entry)),
        ("paper", paper(entry)),
        ("systems", cell(marked(", ".join(entry.systems)))),
        ("code", f"`{entry.rule.__module__}.{entry.rule.__name__}`"),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows if text)])


def _needs(entry: Entry) -> str:
    names = {
        "draft": "a draft model (`--draft`)",
        "small": "a third, smaller model (`--small`)",
        "heads": "heads that were trained for the model (`--heads`; smollm2 has its own)",
    }
    parts = [names.get(need, need) for need in entry.needs]
    return ", ".join([*parts, *(["a model that fills holes"] if fills(entry) else [])])


def models(entry: Entry) -> str:
    """The models that it needs besides a causal target, in a few words."""
    names = {"draft": "draft model", "small": "third model", "heads": "trained heads"}
    return ", ".join([*(names.get(need, need) for need in entry.needs), *(["filling model"] if fills(entry) else [])])


def paper(entry: Entry) -> str:
    """A link to it, if there is one."""
    return f"[arXiv {entry.paper}](https://arxiv.org/abs/{entry.paper})" if entry.paper else ""


def _claim(entry: Entry, parts: Said) -> str:
    how = {
        HEURISTIC: f"`unspool prove {entry.name}` prints the largest gap that it finds.",
        BOUND: f"`unspool prove {entry.name}` evaluates the bound for each case and holds the gap against it.",
    }.get(entry.claim, f"`unspool prove {entry.name}` enumerates it.")
    return f"## Claim\n\n{parts.claim or entry.claim.name + '.'}\n\n{how} [What exact means here](../../exact.md)."


def _loses(entry: Entry, parts: Said, tables: Sequence[Table]) -> str:
    """What the docstring says, and what was measured; nothing where neither says anything."""
    pieces = [parts.loses] if parts.loses else []
    slower = [text for table in tables for text in table.slower]
    wrong = [text for table in tables for text in table.wrong]
    if slower:
        pieces.append("Measured slower than plain decoding ([below](#measured)):\n\n" + _listed(slower))
    elif any(table.timed for table in tables) and entry.name != "plain":
        pieces.append("In what was timed ([below](#measured)) it was nowhere slower than plain decoding.")
    if wrong:
        pieces.append(
            "Answers that were wrong although the model's laws were exact, so that the method is to blame "
            "(right answers at tokens per forward, [below](#measured)):\n\n" + _listed(wrong)
        )
    return "\n\n".join(pieces)


def _listed(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _options(entry: Entry) -> str:
    assert entry.build is not None
    found = options(entry.build)
    if not found:
        return "None."
    lines = ["| option | default | what it means | what it may be |", "|---|---|---|---|"]
    for option in found.values():
        default = option.spelt.partition("=")[2]
        means = cell(marked(meaning(entry.name, option.name)))
        shown = f"`{default}`{{ .default }}" if default else "none"
        lines.append(f"| `{option.name}` | {shown} | {means} | {option.expected} |")
    made = " ".join((inspect.getdoc(entry.build) or "").split())
    together = "".join(f" Together: {product}." for product in products(entry.build))
    first = next(iter(found))
    return (
        f"{marked(made)}\n\n"
        + "\n".join(lines)
        + f"\n\nSet them as in `--method {entry.name}:{first}=…`, parted by commas.{together}"
    )


def _run(entry: Entry) -> str:
    pieces = [f"```\n{commands(entry)}\n```", f"```python\n{python(entry)}\n```"]
    if found := refusal(entry):
        pieces.append(f"Without that option it says: {marked(found)}")
    return "\n\n".join(pieces)


def _measured(tables: Sequence[Table]) -> str:
    if not tables:
        return "Not measured yet. [How `unspool bench` measures](../../benchmarks.md)."
    return "\n\n".join(_shown(table) for table in tables)


def _shown(table: Table) -> str:
    lines = [
        "| " + " | ".join(table.heads) + " |",
        "|---|" + "---:|" * (len(table.heads) - 1),
        *("| " + " | ".join(row) + " |" for row in table.rows),
    ]
    source = f"{table.where}, [{table.file}](../../results/{table.file})."
    return f"### {table.title}\n\n" + "\n".join(lines) + f"\n\n<small markdown>{source}</small>"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', "'") + '"'
