"""The report: what the journals say is what the page says, whatever is in them, in any browser and on any screen."""

# ruff: noqa: F811 (fixtures are asked for by name)

import base64
import csv
import hashlib
import io
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browsing import browser  # noqa: F401
from repository import ROOT

from unspool.apps.cli import main
from unspool.core.cost import Cost
from unspool.core.errors import BadRequest
from unspool.core.trace import Trace
from unspool_bench.journal import Journal
from unspool_bench.report import found, page
from unspool_bench.report.charts import break_even, front
from unspool_bench.report.markup import Html, tag
from unspool_bench.report.sheet import Sheet, SheetCell, SheetColumn, word
from unspool_bench.report.sheets import shade
from unspool_bench.report.spent import accepted, per_round, spent
from unspool_bench.standing import standings

EVIL = '"></td></script><img src=x onerror="document.title=\'caught\'"><svg onload=alert(1)>\u202e=1+1'
ABOUT = {
    "suite": "spec",
    "source": "made up",
    "model": "a-model",
    "device": "cpu",
    "temperature": 0.0,
    "machine": {"cpu": "a cpu", "cores": 2, "gpu": None, "torch": "2.0", "commit": "abc1234"},
    "cost": {"rows": [1, 2, 4, 8], "seconds": [0.01, 0.012, 0.015, 0.03]},
}
TIE = {"position": 3, "ours": 7, "theirs": 3, "gap": 1e-6, "noise": 1e-5, "near_tie": True}
BUG = {"position": 5, "ours": 9, "theirs": None, "gap": math.inf, "noise": 0.0, "near_tie": False}


def traced(rounds, drafted, stood, seconds):
    trace = Trace(prompt=10, seconds_total=seconds, seconds_draft=0.1 * seconds, seconds_forward=0.7 * seconds)
    trace.forwards["target"] = rounds
    trace.rounds, trace.tokens, trace.drafted = rounds, rounds * (1 + stood), rounds * drafted
    trace.accepted[stood] = rounds
    return trace.record()


def measured(family, seconds, forwards=20, marks=None, trace=None, **more):
    return {
        "family": family, "tokens": [list(range(20))], "texts": [EVIL], "prompt_tokens": 10, "seconds": seconds,
        "seconds_first": seconds / 10, "forwards": forwards, "marks": marks, "trace": trace or {}, **more,
    }  # fmt: skip


def written(path, about=ABOUT, evil="a peer", marks=False, families=("chat", "sums")):
    """Three cases a family: plain, one exact and one approximate method of the registry, and a peer without a trace."""
    journal = Journal(path, about)
    for f, family in enumerate(families):
        for i in range(3):
            base, name = 1.0 + 0.1 * i, f"{family}-{i}"
            right = [i > 0] if marks else None
            journal.add((name, "plain", "0"), measured(family, base, 20, right, traced(20, 0, 0, base)))
            quick = base / (1.3 + 0.2 * f + 0.05 * i)
            tie = [TIE] if i == 2 else []
            row = measured(family, quick, 10, right, traced(10, 3, 1, quick), same=[not tie], parted=tie)
            journal.add((name, "lookup", "0"), row)
            rough = [{**TIE, "near_tie": False}] if i else []
            row = measured(family, base / 2, 8, [i > 1] if marks else None, traced(8, 4, 2, base / 2))
            journal.add((name, "typical", "0"), row | {"same": [not rough], "parted": rough})
            row = measured(family, base * 1.4, 20, right, same=[i != 0], parted=[] if i else [BUG])
            journal.add((name, evil, "0"), row)
    return journal


@pytest.fixture
def results(tmp_path):
    written(tmp_path / "spec.jsonl")
    written(tmp_path / "quality.jsonl", {**ABOUT, "suite": "quality", "cost": None}, marks=True, families=("gsm8k",))
    batches = ("batch 1", "batch 4")
    written(tmp_path / "throughput.jsonl", {**ABOUT, "suite": "throughput", "cost": None}, families=batches)
    return tmp_path


def made(folder):
    return page(found([folder]))


class Reader(HTMLParser):
    """What a page holds: tables by the name of their CSV, ids, links, and whether all elements are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.names, self.labels = [], [], [], [], []
        self.tables, self.caption, self.cells, self.inside = {}, "", [], False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        about = dict(attributes)
        self.ids += [about["id"]] if "id" in about else []
        self.labels += about.get("aria-labelledby", "").split()
        self.links += [about[key] for key in ("href", "src") if key in about]
        self.names.append(name)
        if name not in ("meta", "link", "img"):
            self.open.append(name)
        if name == "table":
            self.rows = []
        elif name == "tr":
            self.rows.append([])
        elif name in ("th", "td"):
            self.rows[-1].append("")
            self.inside = True
        elif name == "button" and "data-csv" in about:
            self.tables[about["data-csv"]] = self.rows

    def handle_endtag(self, name):
        assert self.open.pop() == name
        self.inside = self.inside and name not in ("th", "td")

    def handle_data(self, data):
        if self.inside and self.rows:
            self.rows[-1][-1] += data + " "


def tables(text):
    return {name: [[cell.strip() for cell in row] for row in rows] for name, rows in Reader(text).tables.items()}


def csvs(text):
    told = json.loads(re.search(r'<script type="application/json" id="sheets">(.*?)</script>', text)[1])
    return {name: list(csv.DictReader(io.StringIO(sheet))) for name, sheet in told.items()}


# ---- what the page says


def test_the_numbers_of_the_page_are_the_standings(results):
    shown, data = tables(made(results)), csvs(made(results))
    for suite in ("spec", "quality", "throughput"):
        expected = standings(Journal.read(results / f"{suite}.jsonl"))
        heads, *rows = shown[f"{suite}-speed-up"]
        by_name = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
        assert len(data[f"{suite}-speed-up"]) == len(expected)
        for each, told in zip(expected, data[f"{suite}-speed-up"], strict=True):
            assert by_name[each.contender][each.family].startswith(f"{each.speed_up.value:.2f}×")
            if each.contender != "plain":
                interval = f"{each.speed_up.low:.2f}–{each.speed_up.high:.2f}"
                assert by_name[each.contender][each.family].endswith(interval)
            assert (told["contender"], told["family"]) == (each.contender, each.family)
            assert [float(told[f"speed_up{end}"]) for end in ("", "_low", "_high")] == list(each.speed_up)
        whole = [each for each in expected if each.family == expected[-1].family]
        for each, row in zip(whole, shown[f"{suite}-latency"][1:], strict=True):
            assert row[0] == each.contender
            assert f"{each.tokens_per_second:.1f}" in row
            assert f"{1e3 * each.time_to_first_token:.1f}" in row
            assert f"{1e3 * each.time_per_output_token:.2f}" in row


def test_right_answers_come_with_wilsons_intervals(results):
    heads, plain, *_ = tables(made(results))["quality-right"]
    assert heads == ["method", "gsm8k"]
    assert plain == ["plain", "66.7% 21–94%"]  # 2 of 3
    told = csvs(made(results))["quality-right"][2]
    assert told["contender"] == "typical"
    assert float(told["right"]) == pytest.approx(1 / 3)


def test_batches_have_tokens_per_second(results):
    heads, plain, *_ = tables(made(results))["throughput-throughput"]
    assert heads == ["method", "batch 1", "batch 4", "all"]
    assert plain[1:] == [f"{60 / 3.3:.1f}"] * 3


def test_verdicts_are_words_and_bugs_come_first(results):
    rows = tables(made(results))["spec-divergences"][1:]
    verdicts = {row[0]: row[1] for row in rows}
    assert verdicts == {"a peer": "BUG", "lookup": "near tie", "typical": "approximate"}
    assert [row[1] for row in rows] == ["BUG"] * 2 + ["near tie"] * 2 + ["approximate"] * 4
    assert rows[0][3:] == ["5", "9", "–", "∞", "0.00e+00"]
    assert "2 BUGS" in made(results)


def test_a_row_can_say_that_its_method_claims_no_text(tmp_path):
    journal = Journal(tmp_path / "spec.jsonl", ABOUT)
    journal.add(("a", "plain", "0"), measured("chat", 1.0))
    journal.add(("a", "llama.cpp", "0"), measured("chat", 0.5, same=[False], parted=[BUG], exact=False))
    assert [row[1] for row in tables(made(tmp_path))["spec-divergences"][1:]] == ["approximate"]
    assert "BUGS" not in made(tmp_path)


def test_the_fastest_program_beside_us_is_called_no_method(tmp_path):
    journal = Journal(tmp_path / "spec.jsonl", ABOUT)
    journal.add(("a", "plain", "0"), measured("chat", 1.0))
    journal.add(("a", "lookup", "0"), measured("chat", 0.8, same=[True], parted=[]))
    journal.add(("a", "chain:verify=typical", "0"), measured("chat", 0.7, same=[True], parted=[], exact=False))
    journal.add(("a", "mine.py:method", "0"), measured("chat", 0.6, same=[True], parted=[], exact=False))
    journal.add(("a", "transformers, prompt lookup", "0"), measured("chat", 0.4, same=[True], parted=[]))
    journal.add(("a", "llama.cpp", "0"), measured("chat", 0.5, same=[False], parted=[BUG], exact=False))
    text = made(tmp_path)
    for said in ("exact method <code>lookup<", "approximate method <code>mine.py:method<",
                 "program beside <code>transformers, prompt lookup<"):  # fmt: skip
        assert text.count(f"fastest {said}") == 1


def test_same_texts_are_said_in_a_sentence(tmp_path):
    journal = Journal(tmp_path / "spec.jsonl", ABOUT)
    journal.add(("a", "plain", "0"), measured("chat", 1.0))
    journal.add(("a", "lookup", "0"), measured("chat", 0.5, same=[True], parted=[]))
    text = made(tmp_path)
    assert "all 1 texts are plain decoding&#x27;s" in text
    assert "spec-pareto" not in text
    assert tables(text)["spec-speed-up"][2] == ["lookup", "2.00× 1 case"]


def test_drawn_texts_are_not_held_against_plain_ones(tmp_path):
    written(tmp_path / "spec.jsonl", {**ABOUT, "temperature": 1.0})
    assert not {"spec-pareto", "spec-divergences"} & tables(made(tmp_path)).keys()
    assert "texts were drawn" in made(tmp_path)


def test_rounds_are_held_against_the_cost_curve(results):
    rows = {row[1]: row[2:-1] for row in tables(made(results))["spec-cost-rounds"][1:]}
    assert rows == {"lookup": ["4.00", "2.00", "1.50", "1.33"], "typical": ["5.00", "3.00", "1.88", "1.60"]}
    assert float(csvs(made(results))["spec-cost-rounds"][1]["speed_up"]) == pytest.approx(2)
    assert break_even(Cost((1, 2, 4), (1.0, 1.5, 2.0)), 3.5) == pytest.approx(1.875)
    assert tables(made(results))["spec-cost"][-1] == ["8", "30.000", "3.00"]


def test_the_front_is_what_nothing_beats_both_ways():
    assert front([(1, 1.0), (2, 0.5), (1.5, 0.4), (3, 0.2), (0.9, 1.0)]) == [(1, 1.0), (2, 0.5), (3, 0.2)]


def test_shades_are_the_same_distance_above_and_below_one():
    assert [shade(x) for x in (1, 1.01, 1.2, 1 / 1.2, 4, 0.25)] == ["s0", "s0", "u2", "d2", "u6", "d6"]


CSS = (ROOT / "bench/src/unspool_bench/report/page.css").read_text()
PAIRS = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", CSS)
COLOURS = [{name: light for name, light, _ in PAIRS}, {name: dark for name, _, dark in PAIRS}]


def contrast(one, other):
    """As the guidelines for accessible content define it."""

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", COLOURS, ids=["light", "dark"])
def test_all_words_can_be_read_on_their_ground(colours):
    shades = [f"{way}{step}" for way in "ud" for step in range(1, 7)]
    pairs = [("ink", ground) for ground in ("ground", "raised", *shades)]
    pairs += [(kind, ground) for kind in ("faint", "accent", "red") for ground in ("ground", "raised")]
    for words, ground in [*pairs, ("red", "red-ground")]:
        assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
    for part in ("draft", "forward", "rule", "overhead"):
        assert contrast(colours[part], colours["ground"]) >= 2, part


def test_time_is_split_by_shares_and_histograms_add_up():
    rows = [measured("chat", 2.0, trace=traced(5, 2, 1, 8.0)), measured("chat", 1.0, trace=traced(3, 2, 2, 4.0))]
    found = spent(rows)
    assert found.whole == pytest.approx(3 / 40)
    assert sum(found.parts.values()) == pytest.approx(found.whole)
    assert found.parts["forward"] == pytest.approx(0.7 * found.whole)
    assert spent([*rows, measured("chat", 1.0)]).parts is None
    assert per_round(rows) == (3.0, 1 + 11 / 8)
    assert per_round([*rows, measured("chat", 1.0) | {"tokens": [[1], [2]]}]) is None
    assert accepted(json.loads(json.dumps(rows))) == {1: 5, 2: 3}
    assert accepted([measured("chat", 1.0, trace=traced(5, 0, 0, 1.0))]) == {}


def test_an_unfinished_run_says_so_and_leaves_out_what_is_not_whole(results):
    lines = (results / "spec.jsonl").read_text().splitlines(keepends=True)
    (results / "spec.jsonl").write_text("".join(lines[:-1]))
    text = made(results)
    assert "Not finished: 1 measurements are missing" in text
    assert tables(text)["spec-speed-up"][-1][-2:] == ["–", "–"]  # the peer on sums and on all


def test_a_run_that_has_just_begun_has_a_page(tmp_path):
    journal = Journal(tmp_path / "spec.jsonl", ABOUT)
    assert "no method has been through all cases yet" in made(tmp_path)
    journal.add(("a", "plain", "0"), measured("chat", 1.0, trace=traced(20, 0, 0, 1.0)))
    assert tables(made(tmp_path))["spec-speed-up"][1:] == [["plain", "1.00×"]]


def test_the_parallel_benchmark_is_drawn_too(tmp_path):
    rows = json.loads((ROOT / "bench/results/parallel.json").read_text())
    (tmp_path / "parallel.json").write_text(json.dumps({**rows, "rows": rows["rows"][:24]}))
    text = made(tmp_path)
    assert len(tables(text)["parallel-1"]) == 25
    drawn = base64.b64decode(re.search(r"data:image/svg\+xml;base64,([^\"]+)", text)[1]).decode()
    assert drawn.startswith("<svg")
    assert set(csvs(text)["parallel-1"][0]) == set(rows["rows"][0])
    (tmp_path / "parallel.json").write_text(json.dumps(rows["rows"][:24]))  # as `unspool bench parallel --json` has it
    assert made(tmp_path) == text
    (tmp_path / "parallel-other.json").write_text('{"pupil": 1}')
    assert found([tmp_path]).skipped == [tmp_path / "parallel-other.json"]
    (tmp_path / "parallel.json").write_text('{"rows": [{"task": "copy"}]}')
    with pytest.raises(BadRequest, match=r"parallel\.json has no rows"):
        made(tmp_path)


# ---- whatever is in the journals


def test_nothing_of_a_journal_reaches_the_page_as_markup(tmp_path):
    about = {**ABOUT, "suite": EVIL, "source": EVIL, "model": EVIL, EVIL: EVIL, "machine": {EVIL: EVIL}}
    written(tmp_path / "spec.jsonl", about, EVIL, families=(EVIL, "b"))
    text = made(tmp_path)
    seen = Reader(text)
    assert "img" not in seen.names
    assert seen.names.count("script") == 2
    assert 'onerror="' not in text
    assert "<svg onload" not in text
    assert "\u202e" not in text
    assert len(seen.ids) == len(set(seen.ids))
    assert any(row[0].startswith('"></td></script><img') for row in seen.tables.popitem()[1])


def test_a_spreadsheet_computes_nothing_of_a_csv():
    sheet = Sheet("a", "b", [SheetColumn("x")], [[word("=1+1")], [SheetCell("-3", -3)], [word('a,b\n"c"')]])
    assert sheet.csv() == 'x\n\'=1+1\n-3\n"a,b\n""c"""\n'


def test_markup_is_escaped_once():
    assert tag("p", {"title": '"<', "x": None, "r": 1.50}, "<b>", Html("<i></i>")) == (
        '<p title="&quot;&lt;" r="1.5">&lt;b&gt;<i></i></p>'
    )


def test_the_page_is_whole_in_itself_and_trusts_nothing_else(results):
    text = made(results)
    seen = Reader(text)
    assert {link for link in seen.links if not link.startswith("#")} == {"data:,"}
    assert {link[1:] for link in seen.links if link.startswith("#")} <= set(seen.ids)
    assert set(seen.labels) <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert " style=" not in text
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1].replace("&#x27;", "'")
    for name, pattern in (("style-src", r"<style>(.*?)</style>"), ("script-src", r"<script>(.*?)</script>")):
        digest = hashlib.sha256(re.search(pattern, text, re.DOTALL)[1].encode()).digest()
        assert f"{name} 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_same_journals_give_the_same_page(results):
    assert made(results) == made(results)


def test_a_journal_that_is_being_written_is_read_up_to_its_last_line_and_left_alone(results):
    before = made(results)
    with (results / "spec.jsonl").open("a") as file:
        file.write('{"key": ["chat-9", "pl')
    size = (results / "spec.jsonl").stat().st_size
    assert made(results) == before
    assert (results / "spec.jsonl").stat().st_size == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"empty"),
        ('{"about": {}}\n{"key": \n', r"line 2 is no JSON"),
        ('{"about": {}}\n[1]\n', r"line 2 is no object"),
        ('{"about": {}}\n{"key": ["a", "plain", "0"]}\n', r"'family'.*--fresh"),
        ('{"about": {}}\n{"key": ["a", "plain"]}\n', r"unpack.*--fresh"),
        ('{"about": {"cost": {"rows": [2, 1], "seconds": [1, 1]}}}\n', r"rising.*--fresh"),
        ('{"some": "other file"}\n', r"holds no measurements"),
    ],
)
def test_files_that_are_no_journals_are_named(tmp_path, text, said):
    (tmp_path / "bad.jsonl").write_text(text)
    with pytest.raises(BadRequest, match=rf"bad\.jsonl.*{said}"):
        found([tmp_path])


# ---- the command


@pytest.fixture
def report(capsys, tmp_path, monkeypatch):
    """Run `unspool report` in an empty folder; exit status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TQDM_DISABLE", "1")  # the command sets it; so it is taken back afterwards

    def run(*arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main(["report", *arguments])
        return left.value.code, *capsys.readouterr()

    return run


def test_the_command_writes_the_page_and_says_where(report):
    written(Path("results/spec.jsonl"))
    Path("results/other.jsonl").write_text('{"x": 1}\n')
    code, out, err = report()
    assert (code, out) == (0, "report.html\n")
    assert "results/other.jsonl holds no measurements" in err
    assert "<h1><code>a-model</code></h1>" in Path("report.html").read_text("utf-8")
    assert [path.name for path in Path().iterdir() if path.is_file()] == ["report.html"]
    code, out, _ = report("--json")
    (told,) = json.loads(out)["runs"]
    expected = standings(Journal.read(Path("results/spec.jsonl")))
    assert told["about"] == ABOUT
    assert [each["speed_up"] for each in told["standings"]] == [each.speed_up._asdict() for each in expected]
    assert report("results/spec.jsonl", "results", "-o", "two.html")[1] == "two.html\n"
    assert {"spec-speed-up", "spec-2-speed-up"} <= tables(Path("two.html").read_text("utf-8")).keys()


def test_the_command_says_what_is_missing(report):
    code, _, err = report("nowhere")
    assert code == 2
    assert "nowhere is not there" in err
    assert "results is not there" in report()[2]
    Path("results").mkdir()
    assert "results has no journals" in report()[2]
    written(Path("results/spec.jsonl"))
    assert "does not exist" in report("-o", "no/such/page.html")[2]
    assert "is a folder" in report("-o", "results")[2]
    assert "--open" in report("--json", "--open")[2]
    assert not Path("report.html").exists()


def test_a_browser_opens_only_if_asked(report, monkeypatch):
    opened = []
    monkeypatch.setattr("click.launch", opened.append)
    written(Path("results/spec.jsonl"))
    report()
    assert opened == []
    report("--open")
    assert opened == [str(Path("report.html").resolve())]


@pytest.mark.slow
def test_the_command_runs_as_a_program(tmp_path):
    written(tmp_path / "spec.jsonl")
    command = [sys.executable, "-m", "unspool", "report", str(tmp_path), "-o", str(tmp_path / "a.html")]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "a.html").read_text("utf-8") == made(tmp_path)


# ---- in a browser


@pytest.fixture
def shown(browser, tmp_path):
    """Open a page of hostile journals at a width; whatever the browser complains about fails the test."""
    families = ("chat", "translation", "summarization", "qa", EVIL)
    written(tmp_path / "spec.jsonl", {**ABOUT, "model": EVIL}, EVIL, families=families)
    written(tmp_path / "quality.jsonl", {**ABOUT, "suite": "quality"}, marks=True)
    rows = json.loads((ROOT / "bench/results/parallel.json").read_text())["rows"][:24]
    (tmp_path / "parallel.json").write_text(json.dumps({"rows": rows}))
    (tmp_path / "page.html").write_text(made(tmp_path), "utf-8")
    complaints, contexts = [], []

    def opened(width, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme))
        view = contexts[-1].new_page()
        view.on("console", lambda message: complaints.append(message.text))
        view.on("pageerror", lambda error: complaints.append(str(error)))
        view.on("request", lambda asked: complaints.append(asked.url) if asked.url.startswith("http") else None)
        view.goto((tmp_path / "page.html").as_uri())
        return view

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_its_screen_and_nothing_hostile_runs(shown, width, scheme):
    view = shown(width, scheme)
    wide = "document.scrollingElement.scrollWidth <= innerWidth"
    assert view.evaluate(wide)
    view.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true })")
    assert view.evaluate(wide)
    assert view.title().startswith("unspool report: ")
    assert view.locator("[onerror], [onload]").count() == 0
    assert view.evaluate("document.querySelector('img').naturalWidth") > 300
    boxes = "[...document.querySelectorAll('.scroll')].every((b) => b.getBoundingClientRect().right <= innerWidth + 1)"
    assert view.evaluate(boxes)


def brightness(view):
    red, green, blue = map(
        int, re.findall(r"\d+", view.evaluate("getComputedStyle(document.body).backgroundColor"))[:3]
    )
    return (red + green + blue) / 3


def test_light_and_dark_follow_the_system_and_then_the_button(shown):
    view = shown(1280, "dark")
    button = view.locator("#theme")
    assert brightness(view) < 60
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert brightness(view) > 200
    assert button.get_attribute("aria-pressed") == "false"
    view.reload()
    assert brightness(view) > 200  # what was chosen is kept
    view.emulate_media(media="print")
    button.evaluate("(it) => it.click()")
    assert brightness(view) > 200  # paper is white
    assert not view.locator("nav").is_visible()


def test_the_page_can_be_used_with_keys_alone(shown):
    view = shown(1280)
    here = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
    view.keyboard.press("Tab")
    assert view.evaluate(here) == "skip"
    view.keyboard.press("Enter")
    assert view.evaluate(here) == "main"
    view.keyboard.press("Tab")
    assert view.evaluate(here) == "scroll"  # the first table, which then scrolls by arrow keys
    view.keyboard.press("Tab")
    view.keyboard.press("Tab")
    assert view.evaluate("document.activeElement.closest('th').textContent") == "chat"
    view.keyboard.press("Enter")
    table = view.locator("#spec-speed-up table")
    assert table.locator("th[aria-sort=descending]").inner_text() == "chat"
    values = [float(cell.get_attribute("data-value")) for cell in table.locator("tbody td:nth-child(2)").all()]
    assert values == sorted(values, reverse=True)
    view.keyboard.press("Space")
    values = [float(cell.get_attribute("data-value")) for cell in table.locator("tbody td:nth-child(2)").all()]
    assert values == sorted(values)
    assert table.locator("th[aria-sort=ascending]").count() == 1
    assert "sorted by chat, ascending" in view.locator("#said").inner_text()
    summary = view.locator("main summary").first
    summary.focus()
    view.keyboard.press("Enter")
    assert view.locator("main details").first.get_attribute("open") is not None


def test_tables_are_saved_as_csv(shown, tmp_path):
    view = shown(390)
    with view.expect_download() as waiting:
        view.locator("button[data-csv=spec-speed-up]").click()
    assert waiting.value.suggested_filename == "spec-speed-up.csv"
    rows = list(csv.DictReader(io.StringIO(Path(waiting.value.path()).read_text("utf-8"))))
    expected = standings(Journal.read(tmp_path / "spec.jsonl"))
    assert [float(row["speed_up"]) for row in rows] == [each.speed_up.value for each in expected]


def test_without_scripts_all_of_it_can_be_read(browser, tmp_path):
    written(tmp_path / "spec.jsonl")
    (tmp_path / "page.html").write_text(made(tmp_path), "utf-8")
    context = browser.new_context(java_script_enabled=False)
    view = context.new_page()
    view.goto((tmp_path / "page.html").as_uri())
    assert view.locator("#spec-speed-up table").is_visible()
    assert not view.locator("#theme").is_visible()
    assert not view.locator("button[data-csv=spec-speed-up]").is_visible()
    context.close()


@pytest.mark.parametrize(
    ("kind", "sign"), [("latex", "\\toprule"), ("markdown", "| --- |"), ("csv", "contender,family")]
)
def test_standings_as_a_table_for_a_paper_and_as_a_figure(report, kind, sign):
    written(Path("results/spec.jsonl"))
    code, out, _ = report("--format", kind, "--figure", "a.svg")
    assert code == 0
    assert sign in out
    assert "lookup" in out
    drawn = Path("a.svg").read_text("utf-8")
    assert drawn.count('class="whisker"') == 4  # of all families together, one for each contender
    assert [path.name for path in Path().iterdir() if path.is_file()] == ["a.svg"]
    code, _, err = report("--format", kind, "--json")
    assert (code, "exclude each other" in err) == (2, True)
