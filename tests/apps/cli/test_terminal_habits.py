"""The terminal: help in groups, completion, the user's own defaults, and a word while something takes long."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from time import monotonic
from types import SimpleNamespace

import click
import pytest
from click.shell_completion import ShellComplete
from patience import PATIENCE

from unspool.apps.cli.group import methods_like
from unspool.apps.cli.loading import _models_like
from unspool.apps.cli.root import root
from unspool.apps.cli.terminal import table


def test_alone_it_prints_help_and_all_is_well(here):
    code, out, err = here()
    assert (code, err) == (0, "")
    assert out.startswith("Usage: unspool")
    assert here("--help")[1] == out


def commands(group, *path):
    """Every command by what is typed."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        yield (*path, name)
        if isinstance(found, click.Group):
            yield from commands(found, *path, name)


def test_help_is_whole_in_eighty_columns_and_lists_commands_under_headings(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = here()[1]
    assert "..." not in shown.split("Options:")[1]  # no sentence is cut
    assert shown.index("Write:") < shown.index("  run ") < shown.index("Models and stores:") < shown.index("  pull ")
    every = list(commands(root))
    assert ("run",) in every
    for path in every:
        shown = here(*path, "--help")[1]
        assert max(map(len, shown.splitlines()), default=0) <= 80, path
        assert not re.search(r"^  \[?[A-Z][A-Z.]*\w*\]?(\.\.\.)?$", shown, re.MULTILINE), (
            path
        )  # an argument without a word


def test_an_option_that_there_is_not_is_answered_by_the_nearest(here):
    code, _, err = here("run", "--metod", "lookup", "hi")
    assert (code, err) == (
        2,
        "unspool: there is no option '--metod'. Did you mean '--method'? See: unspool run --help\n",
    )
    assert "no option '--zzz'. See" in here("run", "--zzz", "hi")[2]


def test_options_stand_under_headings(here):
    shown = here("run", "--help")[1]
    heads = re.findall(r"^([A-Z][\w ]+):$", shown, re.MULTILINE)
    assert heads == ["Options", "Structured output", "Infilling", "Model", "Sampling and stopping"]
    places = {name: shown.index(f"{name}:\n") for name in heads}
    assert places["Structured output"] < shown.index("--json-schema") < places["Model"]
    assert places["Model"] < shown.index("--kv-cache-tokens") < places["Sampling and stopping"] < shown.index("--top-p")
    assert "Limits:" in here("serve", "--help")[1]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_table_fits_the_terminal_and_loses_no_column(monkeypatch, columns):
    heads = ("method", "tokens/s", "speed-up", "accepted", "what it is", "licence")
    rows = [(f"method {i}", "123.45", "1.02×", "0.55", "a sentence of words " * 3, "Apache-2.0") for i in range(3)]
    whole = table(heads, rows, right="tokens/s")
    monkeypatch.setattr("sys.stdout", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = table(heads, rows, right="tokens/s")
    assert max(map(len, shown.splitlines())) <= columns
    assert all(head in shown for head in heads)
    assert shown.count("Apache-2.0") == shown.count("1.02×") == 3
    assert shown.count("method 2") == shown.count("\n\n") + 1
    assert (shown == whole) is (columns == 200)


@pytest.mark.parametrize(
    "typed",
    ["compare loo", "prove loo", "methods loo", "run --method loo", "batch --method loo", "bench spec --method loo"],
)
def test_methods_are_completed_wherever_one_is_named(typed):
    words = ["unspool", *typed.split()]
    assert [item.value for item in ShellComplete(root, {}, "unspool", "X").get_completions(words[1:-1], words[-1])] == [
        "lookahead",
        "lookup",
    ]


def test_methods_and_models_are_completed():
    assert [item.value for item in methods_like(None, None, "looku")] == ["lookup"]
    assert [item.value for item in _models_like(None, None, "smollm2-")] == ["smollm2-diffusion"]
    words = {"_UNSPOOL_COMPLETE": "bash_complete", "COMP_WORDS": "unspool run --method medus", "COMP_CWORD": "3"}
    words |= {"COMP_WORDS": "unspool trace --method jac"}
    done = subprocess.run(
        [sys.executable, "-m", "unspool"], env={**os.environ, **words}, capture_output=True, text=True, check=False
    )
    assert "plain,jacobi" in done.stdout


@pytest.fixture
def config(tmp_path, monkeypatch):
    def write(text):
        (tmp_path / "config.toml").write_text(text)
        monkeypatch.setenv("UNSPOOL_CONFIG", str(tmp_path / "config.toml"))

    return write


def test_own_defaults_hold_where_nothing_is_typed(loaded, config):
    config('[defaults]\nmax_tokens = 5\nmodel = "no such model"\n[run]\nmax-tokens = 3\nstop = ["zzz"]\n')
    assert "[length] 3 tokens" in loaded("run", "Count to twenty.", "--model", "smollm2")[2]
    assert "[length] 4 tokens" in loaded("run", "Count to twenty.", "--model", "smollm2", "--max-tokens", "4")[2]
    config("[trace]\nmax-tokens = 3\n")
    assert "[length] 4 tokens" in loaded("run", "Count to twenty.", "--max-tokens", "4")[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [("model = 3", "put options into a table"), ("[[[", "cannot be read"),
     ("[run]\nmodle = 'a'", "unspool run has no option --modle. Did you mean --model?"),
     ("[rum]\nmodel = 'a'", "[rum] is no command, nor [defaults]. Did you mean [run]?"),
     ("[defaults]\ndtyp = 'a'", "no command has an option --dtyp. Did you mean --dtype?"),
     ("[run]\nmethod = 'lokup'", "Did you mean 'lookup'"), ("[run]\nmax-tokens = 'many'", "max-tokens")],
)  # fmt: skip
def test_a_wrong_file_of_defaults_is_told(here, config, text, said):
    config(text)
    code, _, err = here("run", "Hello")
    assert code == 2
    assert said in err
    assert "config.toml" in err  # nobody has typed what is wrong


def test_own_defaults_hold_for_commands_of_a_group_and_for_those_that_have_them(here, config):
    pytest.importorskip("unspool_bench")
    config("[defaults]\njson = true\n[bench.spec]\nlimit = 0\n")
    assert "'--limit'" in here("bench", "spec")[2]
    config("[defaults]\ntop-p = 0.5\njson = true\n")  # `which` has the second and not the first
    assert here("which", "serve")[1].startswith("[")
    config("[bench]\nlimit = 3\n")
    assert "[bench.spec]" in here("bench", "spec")[2]


def on_a_terminal(*arguments, until):
    """What a command shows on a terminal up to some words; then it is ended as by Ctrl-C."""
    process, screen = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-m", "unspool", *arguments])
    shown, end = b"", monotonic() + PATIENCE
    while until not in shown and monotonic() < end:
        if select.select([screen], [], [], 0.2)[0]:
            try:
                shown += os.read(screen, 4096)
            except OSError:
                break
    os.kill(process, signal.SIGINT)
    while select.select([screen], [], [], 0.2)[0] or os.waitpid(process, os.WNOHANG)[0] == 0:
        try:
            os.read(screen, 4096)
        except OSError:
            break
    os.close(screen)
    return shown


MEETING = """
import signal, sys
class Met:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            held = signal.getsignal(signal.SIGINT) is not signal.default_int_handler
            print("torch is imported", "after" if held else "before", "the line that says so", flush=True)
            if held:
                signal.raise_signal(signal.SIGINT)
            sys.exit(9)
sys.meta_path.insert(0, Met())
from unspool.apps.cli import main
main(sys.argv[1:])
"""
IMPORTING = (
    ["run", "a"], ["chat"], ["compare"], ["trace", "a"], ["prove", "lookup"], ["plan"], ["store", ".", "-o", "s"],
    ["serve"], ["batch", "a", "b"], ["bench", "spec"], ["bench", "denoise"], ["auto-tune"], ["train", "heads"],
)  # fmt: skip


@pytest.mark.parametrize("typed", IMPORTING, ids=" ".join)
def test_a_line_is_there_before_torch_is_and_then_an_interrupt_ends_all(typed, tmp_path):
    """Code below Python swallows a KeyboardInterrupt: the command went on, or failed over modules imported by half."""
    if typed[0] == "serve":
        pytest.importorskip("uvicorn")
    done = subprocess.run(
        [sys.executable, "-c", MEETING, *typed], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("torch is imported after the line that says so\n", 130)


def test_a_line_is_shown_while_torch_is_imported():
    shown = on_a_terminal("run", "Hello", until=b"loading")
    assert 0 <= shown.find(b"PyTorch takes a few seconds") < shown.find(b"loading")


def test_a_server_on_a_terminal_says_where_it_is(smollm2_path, monkeypatch):
    pytest.importorskip("uvicorn")
    monkeypatch.setenv("UNSPOOL_HOME", str(smollm2_path.parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown = on_a_terminal("serve", "--port", "18747", until=b"Ctrl-C ends it")
    assert b"Ready: http://127.0.0.1:18747/ (window), http://127.0.0.1:18747/v1 (API)" in shown
