"""The record of slow tests keeps the date of a pass, through failures and other tests' runs."""

from lastpassed import LastPassed, read


def test_a_pass_is_noted_and_a_failure_keeps_its_date(tmp_path):
    file = tmp_path / "more" / "slow.json"
    LastPassed(file).note("tests/test_x.py::test_a", "passed", 12.34)
    first = read(file)["tests/test_x.py::test_a"]
    assert len(first["passed"]) == len("2026-01-01")
    assert first["seconds"] == 12.3
    again = LastPassed(file)
    again.seen["tests/test_x.py::test_a"]["passed"] = "2000-01-01"
    again.note("tests/test_x.py::test_a", "failed", 1.0)
    again.note("tests/test_x.py::test_b", "failed", 1.0)
    told = read(file)
    assert told["tests/test_x.py::test_a"]["passed"] == "2000-01-01"
    assert told["tests/test_x.py::test_a"]["failed"] > "2000-01-01"
    assert told["tests/test_x.py::test_b"]["passed"] is None
    again.note("tests/test_x.py::test_a", "passed", 1.0)
    assert "failed" not in read(file)["tests/test_x.py::test_a"]
