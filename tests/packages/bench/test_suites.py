"""`unspool bench`: what is measured is kept once and goes on after a kill; figures are sums over sums."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from littlemodel import little_model
from patience import until
from processes import started

from unspool.api.settings import Settings
from unspool.core.errors import BadRequest
from unspool_bench.bench_case import BenchCase
from unspool_bench.bench_race import Race
from unspool_bench.contender import PLAIN, Sample
from unspool_bench.journal import Journal
from unspool_bench.standing import bootstrapped, by_contender, standings, wilson
from unspool_bench.suites import Long, Quality, Spec, Throughput

ABOUT = {"model": "toy", "machine": {"cpu": "this"}}


class Words:
    """A model's vocabulary without a chat template, and no model behind it."""

    chat_template = None
    vocabulary = property(lambda self: self)

    def encode(self, text):
        return tuple(text.encode())


class Pen:
    """Writes the prompt back, so many tokens per forward."""

    exact = True

    def __init__(self, name, per_forward=1, told=None):
        self.name, self.per_forward, self.told = name, per_forward, told if told is not None else []

    def write(self, prompts, how):
        texts = tuple(tuple(prompt[: how.max_tokens]) for prompt in prompts)
        if how.max_tokens > 4:  # not the few that warm up
            self.told.append(self.name)
        forwards = max(len(text) for text in texts) // self.per_forward
        return Sample(texts, tuple(bytes(text).decode() for text in texts), 0.01 * forwards, forwards, 0.005)


CASES = [
    BenchCase("short", "a", ("one two three",), 12),
    BenchCase("long", "a", ("one two three four five six seven eight",), 40),
    BenchCase("pair", "b", ("abcdefgh", "ijklmnop"), 8, mark=lambda text: text.startswith("a")),
]


def race(told, contenders=(PLAIN, "twice")):
    pens = [Pen(name, 1 + (name != PLAIN), told) for name in contenders]
    return Race(Words(), pens, CASES, Settings(temperature=1.0, seed=0), repeats=2)


def without_times(journal):
    return [(key, {k: v for k, v in row.items() if not k.startswith("seconds")}) for key, row in journal.items()]


@settings(max_examples=30, deadline=None)
@given(stops=st.lists(st.integers(1, 11), max_size=4))
def test_a_race_that_is_interrupted_anywhere_goes_on_and_measures_nothing_twice(tmp_path_factory, stops):
    folder = tmp_path_factory.mktemp("race")
    whole = Journal(None, ABOUT)
    race([]).run(whole)
    told = []
    for stop in stops:
        left = stop

        def advance():
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            race(told).run(Journal(folder / "j.jsonl", ABOUT), advance)
    journal = Journal(folder / "j.jsonl", {**ABOUT, "machine": {"cpu": "that"}}, frozenset({"machine"}))
    race(told).run(journal)
    assert without_times(journal) == without_times(whole)
    again = Journal(folder / "j.jsonl", ABOUT, frozenset({"machine"}))
    assert without_times(again) == without_times(whole)
    assert len(told) == len(whole)


def test_a_line_that_was_cut_off_is_measured_again(tmp_path):
    file = tmp_path / "j.jsonl"
    race([]).run(Journal(file, ABOUT))
    lines = file.read_bytes().splitlines(keepends=True)
    for size in (1, 40, len(lines[3]) - 1):
        file.write_bytes(b"".join(lines[:3]) + lines[3][:size])
        assert len(Journal(file, ABOUT)) == 2
        assert file.read_bytes() == b"".join(lines[:3])


def test_a_journal_of_other_settings_is_refused_and_left_alone(tmp_path):
    file = tmp_path / "j.jsonl"
    Journal(file, ABOUT)
    before = file.read_bytes()
    with pytest.raises(BadRequest, match=r"with model 'toy', now it is 'other'.*remove the file"):
        Journal(file, {**ABOUT, "model": "other"})
    (tmp_path / "k.jsonl").write_text("what is this\n")
    with pytest.raises(BadRequest, match="no journal"):
        Journal(tmp_path / "k.jsonl", ABOUT)
    assert file.read_bytes() == before


def test_speed_ups_are_sums_over_sums_and_not_means_of_ratios():
    journal = Journal(None, ABOUT)
    for case, plain, other in (("a", (100, 10.0), (100, 20.0)), ("b", (1, 1.0), (1, 0.1))):
        for name, (tokens, seconds) in ((PLAIN, plain), ("x", other)):
            row = {
                "family": "f",
                "tokens": [[0] * tokens],
                "seconds": seconds,
                "seconds_first": None,
                "forwards": tokens,
            }
            journal.add((case, name, "0"), {**row, "marks": None, "trace": {}})
    found = by_contender(standings(journal))["x"]["f"]
    assert found.speed_up.value == pytest.approx(11.0 / 20.1)  # the mean of 0.5 and 10 would be 5.25
    assert found.speed_up.low <= found.speed_up.value <= found.speed_up.high
    assert by_contender(standings(journal))[PLAIN]["f"].speed_up == (1.0, 1.0, 1.0)


def test_marks_texts_and_intervals_are_told():
    journal = Journal(None, ABOUT)
    race([]).run(journal)
    table = by_contender(standings(journal))
    assert set(table) == {PLAIN, "twice"}
    assert set(table["twice"]) == {"a", "b", "all"}
    assert table["twice"]["b"].right.value == 0.5
    assert table["twice"]["a"].right is None
    assert (table["twice"]["all"].same, table["twice"]["all"].texts) == (8, 8)
    assert table[PLAIN]["all"].same is None
    assert table["twice"]["a"].tokens_per_forward == pytest.approx(2.0, abs=0.1)


def test_wilsons_interval_and_the_bootstrap_are_what_the_books_say():
    low = wilson(0, 10)
    assert low.value == 0
    assert low.low == 0
    assert low.high == pytest.approx(0.2775, abs=1e-3)  # Wilson 1927, by hand
    many = [str(i) for i in range(200)]
    found = bootstrapped(many, lambda chosen: sum(int(x) for x in chosen) / len(chosen), 1)
    spread = math.sqrt((200**2 - 1) / 12 / 200)
    assert found.value == pytest.approx(99.5)
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.12)
    assert math.isnan(bootstrapped(["1"], lambda _: 1.0, 1).low)


def test_suites_have_cases_of_every_family_and_say_what_is_missing(tmp_path):
    assert {case.family for case in Spec(None, 1, 8).cases()} == {
        "chat", "translation", "summarization", "qa", "math_reasoning", "rag",
    }  # fmt: skip
    sizes = [len(case.prompts[0]) for case in Long(3, 8).cases()]
    assert sizes == sorted(sizes)
    assert [len(case.prompts) for case in Throughput(3, 8).cases()] == [1, 4, 16]
    with pytest.raises(BadRequest, match=r"question\.jsonl is not there"):
        Spec(tmp_path, 1, 8).cases()
    with pytest.raises(BadRequest, match=r"test\.jsonl\.gz is not there"):
        Quality(tmp_path, ("gsm8k",), 1, 8).cases()
    with pytest.raises(BadRequest, match="no task 'gms8k'"):
        Quality(tmp_path, ("gms8k",), 1, 8).cases()


def bench(folder, *more):
    run = ["bench", "spec", "--limit", "1", "--max-tokens", "24", "--method", "lookup", "--no-peers"]
    return [sys.executable, "-m", "unspool", *run, "--model", str(folder.parent / "model"), "--out", str(folder), *more]


@pytest.mark.slow
def test_the_command_killed_at_any_moment_goes_on_to_the_same_table(tmp_path):
    little_model(tmp_path / "model")
    whole = json.loads(subprocess.run(bench(tmp_path / "a", "--json"), capture_output=True, check=True).stdout)
    file = tmp_path / "b" / "spec.jsonl"
    with started(bench(tmp_path / "b"), stderr=subprocess.DEVNULL) as killed:
        until(lambda: killed.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= 6))
    again = subprocess.run(bench(tmp_path / "b", "--json"), capture_output=True, check=True)
    assert b"are not made again" in again.stderr
    timed = ("seconds", "speed_up", "tokens_per_second", "time_to_first_token", "time_per_output_token")
    tables = [
        [{k: v for k, v in row.items() if k not in timed} for row in t] for t in (whole, json.loads(again.stdout))
    ]
    assert tables[0] == tables[1]
    assert all(row["bugs"] == 0 for row in whole)
    other = subprocess.run(bench(tmp_path / "b", "--seed", "3"), capture_output=True)
    assert other.returncode == 2
    assert b"with seed 0, now it is 3" in other.stderr
