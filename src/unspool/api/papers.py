"""Results for papers: tables as Markdown, LaTeX (booktabs) and CSV, and BibTeX of the methods in them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

Rows = Sequence[Sequence[str]]
FORMATS = ("markdown", "latex", "csv")
_LATEX = {"\\": r"\textbackslash{}", "×": r"$\times$", "…": r"\dots{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
_LATEX |= {letter: "\\" + letter for letter in "&%$#_{}"}


def table(kind: str, heads: Sequence[str], rows: Rows) -> str:
    """Cells as a table of one of the `FORMATS`; the first column is text, the others are figures."""
    return {"markdown": _markdown, "latex": _latex, "csv": _csv}[kind](heads, rows)


def bibtex(papers: Iterable[tuple[str, str, Sequence[str]]]) -> str:
    """An entry for every paper, from (method, arXiv id, what systems call it); without an id there is nothing to cite.

    Titles and authors are not known here; the number is, and reference managers complete an entry by it.
    """
    entries: dict[str, list[str]] = {}
    for method, paper, systems in papers:
        if paper:
            called = f"{method} ({', '.join(systems)})" if systems else method
            entries.setdefault(paper, []).append(called)
    return "\n".join(
        f"@misc{{arxiv:{paper},\n  eprint = {{{paper}}},\n  archiveprefix = {{arXiv}},\n"
        f"  url = {{https://arxiv.org/abs/{paper}}},\n  note = {{in unspool: {escaped('; '.join(methods))}}}\n}}\n"
        for paper, methods in entries.items()
    )


def escaped(text: str) -> str:
    """A text as LaTeX prints it."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _markdown(heads: Sequence[str], rows: Rows) -> str:
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _latex(heads: Sequence[str], rows: Rows) -> str:
    lines = [" & ".join(map(escaped, line)) + r" \\" for line in (heads, *rows)]
    kinds = "l" + "r" * (len(heads) - 1)
    begin, end = rf"\begin{{tabular}}{{{kinds}}}", r"\end{tabular}"
    return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", end]) + "\n"


def _csv(heads: Sequence[str], rows: Rows) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows([heads, *rows])
    return made.getvalue()
