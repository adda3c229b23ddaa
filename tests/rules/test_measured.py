"""Every rule's page shows figures that came from a result, or says why there are none; bench/rules.py makes them."""

import json

import pytest
from repository import ROOT

from unspool.core.claim import SEED
from unspool.core.errors import BadRequest
from unspool.recipes.methods import entries, method

MACHINE = {"cpu": "chip", "cores": 2, "threads": 1, "gpu": None, "torch": "2", "commit": "abc"}
RUN = {
    "label": "`lookup`",
    "models": "reads",
    "heat": 0.0,
    "against": 0.0,
    "texts": 3,
    "compared": 3,
    "tokens": 30,
    "tokens_per_forward": 1.5,
    "rows_per_token": 2.0,
    "draft_forwards_per_token": 0.0,
    "mean_acceptance_length": 1.4,
    "draft_acceptance_rate": 0.25,
    "same": 3,
    "equal_tokens": 1.0,
    "nats": -0.5,
    "plain_nats": -0.5,
    "near_ties": 0,
    "unexplained": [],
}
ABOUT = {
    "models": {"reads": "smollm2"},
    "source": "own",
    "device": "cpu",
    "dtype": "auto",
    "times": None,
}
SIZE = {"prompts": 3, "families": "chat, qa, rag", "max_tokens": 10, "texts": 1}


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "scripts/pages")
    from measured import measured  # type: ignore[import-not-found]

    return measured


@pytest.fixture
def rules(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import rules  # type: ignore[import-not-found]

    return rules


def tables(measured, folder, found):
    """The tables that a result of bench/rules.py makes for `lookup`."""
    row = {"family": "draft", "claim": "SEED", "machine": {**MACHINE, "commit": "def"}, "size": SIZE, **found}
    data = {"machine": MACHINE, **ABOUT, "rules": {"lookup": row}}
    (folder / "rules.json").write_text(json.dumps(data))
    return measured(folder)["lookup"]


def cells(table):
    return {row[0]: row[1:] for row in table.rows}


def test_every_rule_has_figures_of_a_model_or_says_why_not_and_was_enumerated(measured):
    found = measured(ROOT / "bench/results")
    for name in entries():
        titles = [table.title for table in found.get(name, ())]
        assert any("Enumerated" in title for title in titles), f"{name}: python bench/proofs.py --json bench/results/…"
        assert any("Enumerated" not in title for title in titles), f"{name}: python bench/rules.py --no-times …"
        assert all(table.rows for table in found[name])


def test_a_rule_is_shown_with_what_it_saves_and_the_commit_of_its_own_run(measured, tmp_path):
    warm = {**RUN, "heat": 0.8, "against": 0.8, "draft_acceptance_rate": 0.75}
    (table,) = tables(measured, tmp_path, {"runs": [RUN, warm]})
    assert list(table.heads) == ["", "`lookup`, greedy", "`lookup`, temperature 0.8"]
    shown = cells(table)
    assert shown["tokens per forward"] == ["1.50", "1.50"]
    assert shown["drafted tokens that stood"] == ["25%", "75%"]
    assert shown["same text as plain"] == ["3 of 3", "3 of 3"]
    assert "commit def" in table.where
    assert not table.timed


def test_a_difference_that_rounding_does_not_explain_is_shown_as_such(measured, tmp_path):
    runs = [{**RUN, "same": 1, "equal_tokens": 0.9, "near_ties": 1, "unexplained": ["position 3"]}]
    (table,) = tables(measured, tmp_path, {"runs": runs})
    assert cells(table)["same text as plain"] == ["1 of 3, 1 near tie, 1 NOT explained by rounding"]
    assert cells(table)["tokens equal to plain's"] == ["90%"]


def test_texts_drawn_with_other_random_numbers_are_not_compared_word_for_word(measured, tmp_path):
    drawn = {key: value for key, value in RUN.items() if key not in ("near_ties", "unexplained")}
    runs = [{**drawn, "heat": 0.8, "against": 0.8, "same": 0}]
    (table,) = tables(measured, tmp_path, {"runs": runs, "claim": "LAW"})
    assert "same text as plain" not in cells(table)
    assert "nats per token (plain's)" not in cells(table)  # of an exact rule that would be luck
    runs[0] |= {"nats_error": 0.11, "plain_nats_error": 0.12}
    (table,) = tables(measured, tmp_path, {"runs": runs, "claim": "BOUND"})
    assert cells(table)["nats per token (plain's)"] == ["-0.500 ± 0.11 (-0.500 ± 0.12)"]


def test_times_tell_where_a_rule_is_slower(measured, tmp_path):
    (table,) = tables(measured, tmp_path, {"runs": [{**RUN, "seconds": 2.0}, {**RUN, "seconds": 0.5}]})
    assert cells(table)["speed over plain"] == ["0.50×", "2.00×"]
    assert table.timed
    assert len(table.slower) == 1
    assert "0.50×" in table.slower[0]


def test_what_failed_and_what_was_left_out_is_said(measured, tmp_path):
    failed = {"label": "`lookup`", "heat": 0.0, "error": "OutOfRoom: no | room"}
    (table,) = tables(measured, tmp_path, {"runs": [failed]})
    assert cells(table)["failed"] == ["OutOfRoom: no &#124; room"]
    (table,) = tables(measured, tmp_path, {"skipped": "No model can drive it."})
    assert list(map(list, table.rows)) == [["No model can drive it."]]


def test_a_claim_that_fails_is_shown_as_failing(measured, tmp_path):
    proof = {"machine": MACHINE, "claim": "LAW", "tv": 0.25, "branches": 10, "cases": 2, "skipped": 0, "ok": False}
    (tmp_path / "p.json").write_text(json.dumps({"machine": MACHINE, "proofs": {"lookup": proof}}))
    (table,) = measured(tmp_path)["lookup"]
    assert "FAILS" in cells(table)["largest total variation"][0]


def test_every_rule_is_put_to_the_test_by_a_method_that_can_be_made(rules):
    for entry in entries().values():
        for timed in (True, False):
            ways = rules.setups(entry, 64, timed)
            assert ways, entry.name
            for way in () if isinstance(ways, str) else ways:
                if isinstance(way.method, str):
                    method(way.method)


def test_drawn_texts_are_held_to_plain_decodings_where_the_seed_is_promised_and_nowhere_else(rules):
    """`awrs` without a form and `static` draw as plain decoding does, though they claim less in general."""
    for entry in entries().values():
        ways = rules.setups(entry, 64, False)
        held = not isinstance(ways, str) and any(way.exact and way.heat for way in ways)
        assert not held or entry.claim is SEED or entry.name in ("awrs", "static"), entry.name


def test_a_run_goes_on_where_it_was_stopped_and_one_error_ends_nothing_else(rules, tmp_path, monkeypatch, capsys):
    asked = []

    class Fake:
        tokens, timed = 8, False

        def __init__(self, *_):
            pass

        def measured(self, setup):
            asked.append(setup.method)
            if setup.method == "suffix" and asked.count("suffix") <= 2:
                raise RuntimeError("no room")
            if setup.method == "bigram_recycling" and asked.count("bigram_recycling") == 1:
                raise KeyboardInterrupt
            return {**RUN, "label": setup.label, "heat": setup.heat}

    monkeypatch.setattr(rules, "Bench", Fake)
    to = tmp_path / "rules.json"
    given = ["rules", "--rules", "lookup", "suffix", "bigram_recycling", "--no-times", "--json"]
    monkeypatch.setattr("sys.argv", [*given, str(to)])
    with pytest.raises(KeyboardInterrupt):
        rules.main()
    rules.main()
    assert asked.count("lookup") == 2  # greedy and drawn, once: it was on the disk when the run was stopped
    assert asked.count("suffix") == 4  # an error is worth another try
    found = json.loads(to.read_text())["rules"]
    assert list(found) == ["bigram_recycling", "lookup", "suffix"]
    assert not any(map(rules.failed, found.values()))
    assert "no room" in capsys.readouterr().out
    rules.main()
    assert len(asked) == 2 + 4 + 3  # nothing is left to do
    monkeypatch.setattr("sys.argv", ["rules", "--rules", "lookup", "--tokens", "9", "--no-times", "--json", str(to)])
    rules.main()
    assert len(asked) == 9  # it was measured on more text than that
    monkeypatch.setattr("sys.argv", ["rules", "--rules", "lookup", "--tokens", "96", "--no-times", "--json", str(to)])
    rules.main()
    assert len(asked) == 11
    found = json.loads(to.read_text())["rules"]
    assert [found[name]["size"]["max_tokens"] for name in ("lookup", "suffix")] == [96, 64]
    monkeypatch.setattr("sys.argv", [*given, str(to), "--dtype", "float32"])
    with pytest.raises(BadRequest, match="dtype 'auto', now it is 'float32'"):
        rules.main()


def row_of(commit, tokens=96, **found):
    size = {**SIZE, "max_tokens": tokens}
    return {"machine": {**MACHINE, "commit": commit}, "family": "draft", "claim": "SEED", "size": size, **found}


def test_shares_of_a_run_are_joined_unless_they_failed_or_come_from_less_text(rules, tmp_path, monkeypatch):
    ran = {
        **ABOUT,
        "device": "auto",
        "models": rules.MODELS,
        "source": rules.Spec(None, 1, 64).source,
        "machine": MACHINE,
    }
    good, bad = {"runs": [RUN]}, {"runs": [{"label": "", "heat": 0.0, "error": "no room"}]}
    rest = {name: row_of("old-dirty", **good) for name in ("copy", "suffix", "trigram")}
    own = {"lookup": {**row_of("", 32, **good), "commit": "old"}, **rest}
    del own["lookup"]["machine"]  # as rows were before they named their machine
    to, one, two = (tmp_path / name for name in ("rules.json", "one.json", "two.jsonl"))
    to.write_text(json.dumps({**ran, "rules": own}))
    one.write_text(json.dumps({**ran, "rules": {"lookup": row_of("new", **good), "suffix": row_of("new", **bad)}}))
    of_a_stopped_run = [
        {"about": ran},
        {"key": ["copy"], **row_of("new", **good)},
        {"key": ["trigram"], **row_of("new", 32, **good)},
    ]
    two.write_text("".join(json.dumps(line) + "\n" for line in of_a_stopped_run))
    monkeypatch.setattr("sys.argv", ["rules", "--no-times", "--join", str(one), str(two), "--json", str(to)])
    rules.main()
    found = {name: row["machine"]["commit"] for name, row in json.loads(to.read_text())["rules"].items()}
    assert found == {"copy": "new", "lookup": "new", "suffix": "old-dirty", "trigram": "old-dirty"}
    one.write_text(json.dumps({**ran, "dtype": "fp32", "rules": {}}))
    with pytest.raises(BadRequest, match="measured with dtype 'fp32'"):
        rules.main()


@pytest.mark.parametrize(
    ("was", "now", "again"), [("a-dirty", "b", 1), ("a-dirty", "b-dirty", 0), ("a", "b", 0), (None, "b", 1)]
)
def test_what_was_measured_in_a_changed_tree_is_measured_again_in_a_clean_one(rules, monkeypatch, was, now, again):
    monkeypatch.setattr("record.machine", lambda: {"commit": now})
    assert rules.poor(row_of(was, runs=[RUN]), SIZE | {"max_tokens": 96}) == bool(again)


def test_figures_stand_beside_the_machine_of_their_own_row(measured, tmp_path):
    there = {**MACHINE, "cpu": "another chip", "commit": "def"}
    (table,) = tables(measured, tmp_path, {"runs": [RUN], "machine": there})
    assert "another chip" in table.where
