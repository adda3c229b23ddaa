"""What mkdocs calls while it builds the site: pages for every family and rule, and the results that pages link to."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from listing import family_page, overview
from measured import measured
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from origins import origins
from rulepage import TITLES, rule_page, title

import unspool
from unspool.core.claim import Claim, Entry
from unspool.recipes.methods import entries

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
INSIDE = {"../bench/results": "results", "methods.md": "methods/index.md"}
REFERENCE, FIGURES = "api/use.md", "benchmarks.md"


def families() -> dict[str, list[Entry]]:
    """The rules by family, in the order of the menu."""
    found: dict[str, list[Entry]] = {family: [] for family in TITLES}
    for entry in entries().values():
        found.setdefault(entry.family, []).append(entry)
    return {family: rules for family, rules in found.items() if rules}


def on_config(config: MkDocsConfig) -> None:
    """Put the rules into the menu."""
    menu: list[Any] = ["methods/index.md"]
    for family, rules in families().items():
        own: list[Any] = [{entry.name: f"methods/{family}/{entry.name}.md"} for entry in rules]
        menu.append({title(family): [f"methods/{family}/index.md", *own]})
    for item in config.nav or ():
        if "Methods" in item:
            item["Methods"] = menu


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made, and what was measured."""
    found, grouped = measured(RESULTS), families()
    made = {"methods/index.md": overview(grouped)}
    for family, rules in grouped.items():
        made[f"methods/{family}/index.md"] = family_page(family, rules, found)
        for entry in rules:
            made[f"methods/{family}/{entry.name}.md"] = rule_page(entry, found.get(entry.name, []))
    for place, text in made.items():
        files.append(File.generated(config, place, content=text))
    for path in sorted(RESULTS.iterdir()):
        if path.suffix in (".json", ".jsonl"):
            files.append(File.generated(config, f"results/{path.name}", abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links that lead out of docs/ in the repository lead to the copies in the site; two pages are made whole."""
    here = posixpath.dirname(page.file.src_uri) or "."
    for outside, inside in INSIDE.items():
        markdown = markdown.replace(f"]({outside}", f"]({posixpath.relpath(inside, here)}")
    if page.file.src_uri == FIGURES:
        return markdown + origins(RESULTS)
    return markdown + _rest(Path(config.docs_dir) / "api") if page.file.src_uri == REFERENCE else markdown


def _rest(folder: Path) -> str:
    """The public names that no page of the reference tells of yet."""
    told = " ".join(path.read_text(encoding="utf-8") for path in folder.glob("*.md")).split()
    things = (getattr(unspool, name) for name in unspool.__all__ if not name.startswith("_"))
    names = [f"{x.__module__}.{x.__qualname__}" for x in things if not isinstance(x, Claim)]  # told of at their class
    rest = "\n\n".join(f"::: {name}" for name in names if name not in told)
    return f"\n\n## More\n\n{rest}\n" if rest else ""
