"""The pages that list rules: one for each family, and one for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module

from docstring import cell, marked
from measured import Table
from rulepage import badge, models, paper, title

from unspool.core.claim import Claim, Entry

GUIDES = {
    "draft": "[Speculation](../../speculation.md)",
    "verify": "[Speculation](../../speculation.md)",
    "unmask": "[Filling holes](../../denoise.md) and [How many tokens at once?](../../parallel.md)",
    "constrain": "[Texts that must have a form](../../constrain.md)",
    "search": "[Search](../../search.md)",
}
PREFACE = """# Methods

Every rule of the registry has a page: what it does, what it claims, what it costs, when it loses, how to run it, and
what was measured of it. These pages are made from the code and from `bench/results/`; `unspool methods` prints the
same list.

Not sure where to begin? [`auto`](draft/auto.md) drafts what pays on your machine, and leaves the text as it is.

"""
PROMISES = "\n## What the claims promise\n"
ALL = "\n[What exact means here](../exact.md) says how each is enumerated.\n\n## All rules\n"


def family_page(family: str, rules: Sequence[Entry], measured: dict[str, list[Table]]) -> str:
    """The rules of one family."""
    guide = f" The guide: {GUIDES[family]}." if family in GUIDES else ""
    lines = ["| rule | claim | what it does | needs | measured |", "|---|---|---|---|---|"]
    for entry in rules:
        said_so = f"[yes]({entry.name}.md#measured)" if measured.get(entry.name) else "not yet"
        lines.append(
            f"| [`{entry.name}`]({entry.name}.md) | {badge(entry.claim)} | {cell(marked(entry.summary))} "
            f"| {models(entry) or '–'} | {said_so} |"
        )
    note = "\n\nA rule whose page has no `unspool run` is a part that methods are made of."
    parts = note if any(entry.build is None for entry in rules) else ""
    return f"# {title(family)}\n\n{_about(family)}{guide}\n\n" + "\n".join(lines) + parts + "\n"


def overview(families: dict[str, list[Entry]]) -> str:
    """Every family in a line, and every rule in a table."""
    lines = ["| family | rules | what they are |", "|---|---|---|"]
    for family, rules in families.items():
        lines.append(f"| [{title(family)}]({family}/index.md) | {len(rules)} | {cell(_about(family))} |")
    counted = Counter(entry.claim for rules in families.values() for entry in rules)
    promises = ["| claim | promises | rules |", "|---|---|---|"]
    promises += [f"| {badge(claim)} | {claim.value} | {counted[claim]} |" for claim in Claim]
    rows = ["| rule | family | claim | systems | paper |", "|---|---|---|---|---|"]
    for family, rules in families.items():
        for entry in rules:
            rows.append(
                f"| [`{entry.name}`]({family}/{entry.name}.md) | {title(family)} | {badge(entry.claim)} "
                f"| {cell(marked(', '.join(entry.systems)))} | {paper(entry)} |"
            )
    return PREFACE + "\n".join([*lines, PROMISES, *promises, ALL, *rows]) + "\n"


def _about(family: str) -> str:
    """The first sentence of the family's own docstring."""
    return marked((import_module(f"unspool.rules.{family}").__doc__ or "").split("\n\n")[0].replace("\n", " "))
