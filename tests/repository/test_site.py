"""The site builds without a warning, has a page for every rule, no link that leads nowhere, and fetches nothing."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest
from repository import ROOT

import unspool
from unspool.apps.cli.root import root
from unspool.core.claim import Claim
from unspool.recipes.methods import FILLING, entries, method, runnable

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    """What a page has: places to go to, links, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADED.get(tag, "")):
            self.loads.append(given[LOADED[tag]])


def pages(folder: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def broken(found: dict[Path, Page]) -> list[str]:
    """Links between pages, and files they load, that lead nowhere."""
    wrong = []
    for path, page in found.items():
        for link in [*page.links, *page.loads]:
            where = urlsplit(link)
            if where.scheme or where.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(where.fragment)
            if not target.is_file() or (place and target in found and place not in found[target].places):
                wrong.append(f"{path.name}: {link}")
    return wrong


def fetched(found: dict[Path, Page], folder: Path) -> list[str]:
    """What would come from the network when a page is shown."""
    wrong = [f"{path.name}: {load}" for path, page in found.items() for load in page.loads if urlsplit(load).netloc]
    for style in folder.rglob("*.css"):
        wrong += re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^\"')]+", style.read_text(encoding="utf-8"))
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site").resolve()
    # Not --quiet: that silences warnings, and with them --strict.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", folder]
    ran = subprocess.run(build, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture(scope="module")
def found(site):
    return pages(site)


def test_every_rule_has_a_page_that_says_what_the_registry_says(site):
    for entry in entries().values():
        text = (site / "methods" / entry.family / f"{entry.name}.html").read_text(encoding="utf-8")
        for wanted in (entry.claim.name, "exact.html", "Measured", f"unspool prove {entry.name}"):
            assert wanted in text, (entry.name, wanted)
        if entry.paper:
            assert f"https://arxiv.org/abs/{entry.paper}" in text
        if entry.build is not None:
            assert f"--method {entry.name}" in text
        assert "Nothing is stated" not in text
        if entry.name in ("lookup", "suffix", "copy"):
            assert "Repeat word for word" in text  # a drafter that copies gets something to copy


def test_links_lead_to_pages_and_places_that_are_there(found):
    assert broken(found) == []


def test_nothing_is_fetched_from_the_network(found, site):
    assert len(found) > len(runnable())
    assert fetched(found, site) == []


def test_every_public_name_is_in_the_reference(found):
    places = set().union(*(page.places for path, page in found.items() if path.parent.name == "api"))
    for name in unspool.__all__:
        thing = getattr(unspool, name)
        if not name.startswith("_") and not isinstance(thing, Claim):  # claims are told of at their class
            assert f"{thing.__module__}.{thing.__qualname__}" in places, name


def test_figures_are_those_of_the_results(site):
    found = json.loads((ROOT / "bench/results/spec-cpu.json").read_text())
    page = (site / "methods/draft/suffix.html").read_text(encoding="utf-8")
    for family in found["methods"]["suffix"].values():
        assert f">{family['speed_up']:.2f}×<" in page
        assert f">{family['tokens_per_forward']:.2f}<" in page
    assert f"commit {found['machine']['commit']}" in page
    assert (site / "results/spec-cpu.json").is_file()


def test_no_figure_is_without_its_origin(site):
    """Every table of a method names its file, and a commit or that there is none on record; git's -dirty in words."""
    for path in (site / "methods").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "-dirty" not in text, path.name
        for told in re.findall(r"<small[^>]*>(.*?)</small>", text, re.DOTALL):
            assert re.search(r"commit [0-9a-f]{7}|commit not recorded", told), (path.name, told)
            assert ".json</a>" in told, path.name
    page = (site / "benchmarks.html").read_text(encoding="utf-8")
    for path in (ROOT / "bench/results").glob("*.json"):
        if '"machine"' in path.read_text(encoding="utf-8"):
            assert f'href="results/{path.name}"' in page


def test_the_checks_can_fail(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h2 id="here"></h2><a href="#here"></a><a href="b.html"></a><a href="#gone"></a><a href="https://x.org/"></a>'
        '<link rel="stylesheet" href="//fonts.example/f.css"><script src="https://cdn.example/x.js"></script>'
    )
    (tmp_path / "a.css").write_text('@import "a2.css"; body { src: url(https://fonts.example/f.woff2) }')
    found = pages(tmp_path)
    assert broken(found) == ["a.html: b.html", "a.html: #gone"]
    assert len(fetched(found, tmp_path)) == 3


def test_a_docstring_is_parted_where_it_says_so(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts/pages")
    from docstring import said  # type: ignore[import-not-found]

    parts = said(
        "Take x | y.\n\nP(x) < Q_i · `a_b`\nfor all x.\n\n  x = 1\n\n"
        "Claim: LAW. Texts are likelier; it loses where a\nbeats b. Cost: one forward."
    )
    assert parts.definition == "Take x \\| y."
    assert "P(x) &lt; Q\\_i · `a_b` for all x." in parts.workings
    assert "      x = 1" in parts.workings
    assert (parts.claim, parts.loses, parts.cost) == (
        "LAW. Texts are likelier.",
        "It loses where a beats b.",
        "One forward.",
    )


def commands(text: str) -> list[str]:
    blocks = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("unspool ")]


def taken(line: str) -> None:
    """Parse a command line as the command would, without running it."""
    words = shlex.split(line, comments=True)[1:]
    command, context = root, click.Context(root)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, context = found, click.Context(found, parent=context)
        words = words[1:]
    command.make_context(command.name, words)


@pytest.mark.parametrize("page", ["start.md", "benchmarks.md"])
def test_commands_of_the_pages_can_be_given(page):
    found = commands((ROOT / "docs" / page).read_text())
    assert found
    for line in found:
        taken(line)


def imports(code: str) -> None:
    """Run what a piece of Python imports, and nothing else of it."""
    taken = [line for line in ast.parse(code).body if isinstance(line, (ast.Import, ast.ImportFrom))]
    exec(compile(ast.Module(taken, []), code, "exec"), {})


def test_commands_of_every_rule_can_be_given(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts/pages")
    import running  # type: ignore[import-not-found]

    assert {*FILLING, *running.OPTIONS, *running.SETTINGS} <= {entry.name for entry in runnable()}
    for entry in entries().values():
        for line in running.commands(entry).replace("\\\n", "").splitlines():
            taken(line)
        imports(running.python(entry))
        if entry.build is not None and not running.refusal(entry) and "py:" not in running.spec(entry):
            method(running.spec(entry))


def test_the_python_of_the_quick_start_runs(smollm2, capsys, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/start.md").read_text(), re.DOTALL)
    monkeypatch.setattr(unspool, "load", lambda name: smollm2)
    exec(code.replace("max_tokens=24", "max_tokens=6"), {})
    assert "tokens in" in capsys.readouterr().out


def test_the_python_of_the_page_on_measuring_reads_a_journal(tmp_path, capsys, monkeypatch):
    from unspool_bench.journal import Journal

    journal = Journal(tmp_path / "results/spec.jsonl", {"suite": "spec"})
    for name, seconds, forwards in (("plain", 2.0, 8), ("lookup", 1.0, 4)):
        journal.add(
            ("qa-1", name, "0"),
            {
                "family": "qa",
                "tokens": [list(range(8))],
                "seconds": seconds,
                "seconds_first": 0.1,
                "forwards": forwards,
                "marks": None,
                "trace": {},
            },
        )
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/benchmarks.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    plain, lookup = capsys.readouterr().out.splitlines()
    assert plain.startswith("plain qa ConfidenceInterval(value=1.0")
    assert lookup.startswith("lookup qa ConfidenceInterval(value=2.0")
    assert " 2.0 None 0" in lookup
