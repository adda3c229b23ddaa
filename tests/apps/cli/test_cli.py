"""The command line, as a user meets it: what it prints, where, and with which exit status."""

import io
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import fields

import click
import pytest
from patience import PATIENCE
from processes import started
from repository import ROOT

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.apps.cli import proving
from unspool.apps.cli.examples import PROMPTS
from unspool.apps.cli.group import SamplingOptions
from unspool.apps.cli.root import root
from unspool.apps.cli.terminal import table, visible
from unspool.apps.cli.which import ADVICE, WANTS
from unspool.core.claim import ARGMAX, LAW, SEED
from unspool.recipes.method_listing import INDEX, written
from unspool.recipes.methods import entries
from unspool.recipes.names import known, parts_of

PROMPT = "Count from 1 to 20."
ALL_TOKENS = 49152

WRONG = """
from unspool import Speculate, Verdict
from unspool.core.chance import Role
from unspool.rules.draft import Chain
from unspool.core.tree import ROOT
from unspool.rules.verify import rejection

def forgetful(scored, chance):  # draws anew from the target after a rejection: the residual is forgotten
    tree, node = scored.tree, ROOT
    while kids := tree.kids(node):
        x, q = tree.drawn[kids[0]]
        if not chance.coin(min(1.0, scored.law(node)[x] / q[x]), scored.at(Role.ACCEPT, node)):
            break
        node = kids[0]
    return Verdict(node, scored.law(node).draw(chance, scored.at(Role.RESIDUAL, node)).token)

wrong, right = Speculate(Chain(depth=2), forgetful), Speculate(Chain(depth=2), rejection)
"""


def environment(**more):
    # One thread, since threads that wait for each other on a busy machine are ten times slower.
    return {**os.environ, "OMP_NUM_THREADS": "1", "UNSPOOL_DEBUG": "", **more}


def unspool(*arguments, stdin=b"", **more):
    """A run of the command in a process of its own."""
    command = [sys.executable, "-m", "unspool", *arguments]
    done = subprocess.run(
        command, input=stdin, capture_output=True, env=environment(**more), timeout=PATIENCE, check=False
    )
    assert b"Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def home(smollm2_path):
    return {"UNSPOOL_HOME": str(smollm2_path.parents[2])}


# ---- starting


def imports_torch(*arguments):
    code = (
        "import sys\nfrom unspool.apps.cli import main\ntry: main(sys.argv[1:])\nfinally: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.endswith("True\n")


LIGHT = (["--help"], ["run", "--help"], ["compare", "--help"], ["--version"], ["pull", "--list"])


@pytest.mark.parametrize("arguments", LIGHT, ids=" ".join)
def test_help_does_not_import_torch(arguments):
    assert not imports_torch(*arguments)


@pytest.mark.slow
def test_the_check_for_torch_can_fail():
    assert imports_torch("prove", "--quick", "plain")


def test_every_command_has_help(here):
    code, out, _ = here("--help")
    assert code == 0
    for name in ("run", "chat", "trace", "methods", "prove", "compare", "plan", "pull"):
        assert name in out
        assert here(name, "--help")[0] == 0


@pytest.mark.parametrize("group", ["bench", "train"])
def test_a_group_alone_tells_its_help(here, group):
    code, out, err = here(group)
    assert (code, err) == (0, "")
    assert out == here(group, "--help")[1]


def test_every_setting_is_an_option():
    given = {f.name for f in fields(SamplingOptions)} | {
        "n",
        "logprobs",
        "constraint",
        "suffix",
    }  # these are options of `run` alone
    assert given == {f.name for f in fields(Settings)}


def test_settings_come_from_options_and_defaults_from_settings():
    several = ("logit_bias", "bad_words", "stop", "stop_tokens")
    nothing = SamplingOptions(**{f.name: () if f.name in several else None for f in fields(SamplingOptions)})
    assert nothing.settings() == Settings()
    assert nothing.settings(max_tokens=7, n=2, logprobs=0) == Settings(max_tokens=7, n=2, logprobs=0)


# ---- run


def test_argument_file_and_stdin_give_the_same_text(home, loaded, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT + "\n")
    code, streamed, told = loaded("run", PROMPT, "--max-tokens", "8")
    assert code == 0
    assert streamed
    assert "8 tokens" in told
    asked = ("--max-tokens", "8", "--method", "lookup", "--json", "--logprobs", "1")
    record = json.loads(loaded("run", "--file", str(file), *asked)[1])
    assert record["text"] == streamed
    assert len(record["tokens"]) == len(record["logprobs"]) == record["trace"]["tokens"] == 8
    assert (record["reason"], record["method"], record["model"], record["seed"]) == ("length", "lookup", "smollm2", 0)
    assert record["settings"]["max_tokens"] == 8
    piped = unspool("run", "-q", "--max-tokens", "8", stdin=(PROMPT + "\n").encode(), **home)
    assert (piped.returncode, piped.stdout, piped.stderr) == (0, streamed.encode(), b"")


def test_several_samples(loaded):
    code, out, err = loaded("run", PROMPT, "-n", "2", "-t", "1", "--max-tokens", "3")
    assert code == 0
    assert "--- sample 1 of 2 ---\n" in out
    assert "--- sample 2 of 2 ---\n" in out
    assert err.count("3 tokens in") == 2
    record = json.loads(loaded("run", PROMPT, "-n", "2", "-t", "1", "--max-tokens", "3", "--json")[1])
    texts = [sample["text"] for sample in record["samples"]]
    assert out == "".join(f"--- sample {i} of 2 ---\n{text}\n" for i, text in enumerate(texts, 1))


def test_the_chat_template_is_used_unless_raw(loaded):
    def prompt_tokens(*more):
        return json.loads(loaded("run", "Hello", "--max-tokens", "1", "--json", *more)[1])["trace"]["prompt_tokens"]

    assert prompt_tokens("--raw") == 1
    assert prompt_tokens() > 10
    assert prompt_tokens("--system", "Be very brief, please, and very kind.") != prompt_tokens()
    assert "--system needs a chat template" in loaded("run", "Hello", "--raw", "--system", "x")[2]


REFUSED = {
    "an empty prompt": (["run", ""], "the prompt is empty"),
    "a blank prompt": (["run", " \n"], "the prompt is empty"),
    "an unknown method": (["run", "x", "--method", "lokup"], "Did you mean 'lookup'?"),
    "an unknown option of a method": (
        ["run", "x", "--method", "lookup:size=3"],
        "its options are: ngram=3, least=2, depth=5",
    ),
    "a method that lacks a model": (["run", "x", "--method", "chain"], "--draft MODEL"),
    "a method that lacks a third model": (["run", "x", "--method", "escalate", "--draft", "smollm2"], "--small MODEL"),
    "a third model without a second": (["run", "x", "--small", "smollm2"], "name that too, with --draft MODEL"),
    "an unknown model": (["run", "x", "--model", "smolm2"], "Did you mean 'smollm2'?"),
    "a missing file": (["run", "--file", "no/such/file"], "no/such/file: No such file"),
    "a prompt twice": (["run", "x", "--file", "y"], "give one of them"),
    "top-p above 1": (["run", "x", "--top-p", "2"], "top_p is 2.0; expected a number from 0"),
    "a temperature that is no number": (["run", "x", "-t", "nan"], "temperature is nan"),
    "no number at all": (["run", "x", "--top-k", "many"], "'many' is not a valid integer"),
    "a bias without number": (["run", "x", "--logit-bias", "3"], "as in 42=-1.5"),
    "logprobs in a text": (["run", "x", "--logprobs", "2"], "add --json"),
    "an unknown device": (["run", "x", "--device", "abacus"], "the device 'abacus' cannot be used"),
    "an unknown command": (["rum"], "Did you mean 'run'?"),
    "an unknown option": (["run", "x", "--top-j", "1"], "'--top-k'"),
    "an option by its old name": (["run", "x", "--room", "1"], "--room is now called --kv-cache-tokens"),
    "an unknown rule to prove": (["prove", "sample_mtach"], "Did you mean 'sample_match'"),
    "a claim for a registered rule": (["prove", "sample_match", "--claim", "LAW"], "held to their own claims"),
    "a file of prompts that is missing": (["compare", "--prompts", "no.jsonl"], "no.jsonl: No such file"),
    "a plan without context": (["plan", "--context", "0"], "context is 0; expected at least 1"),
    "nothing to pull": (["pull"], "--list"),
    "an unknown model to pull": (["pull", "gemma"], "Known models"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_requests_exit_with_2_and_say_what_to_do(case, here, smollm2_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(smollm2_path.parents[2]))
    arguments, expected = REFUSED[case]
    code, out, err = here(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("unspool: ")
    assert expected in err
    assert err.count("\n") == 1


def test_a_prompt_longer_than_the_context(loaded, tmp_path):
    long = tmp_path / "long.txt"
    long.write_text("word " * 9000)
    code, out, err = loaded("run", "--file", str(long))
    assert (code, out) == (2, "")
    assert "maximum context length is 8192 tokens" in err


def test_all_tokens_forbidden(loaded):
    code, out, err = loaded("run", PROMPT, *(f"--logit-bias={token}=-inf" for token in range(ALL_TOKENS)))
    assert (code, out) == (1, "")
    assert "every token is forbidden" in err


def test_bytes_that_are_not_utf8(tmp_path, here):
    done = unspool("run", stdin=b"caf\xe9 au lait")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is not UTF-8: byte 0xe9 at offset 3" in done.stderr
    file = tmp_path / "latin1.txt"
    file.write_bytes(b"\xff")
    assert "byte 0xff at offset 0" in here("run", "--file", str(file))[2]


def test_an_unforeseen_failure_is_one_line_too(loaded, monkeypatch, smollm2):
    def broken(self, *arguments):
        raise ZeroDivisionError("something is off")

    monkeypatch.setattr(type(smollm2), "stream", broken)
    code, _, err = loaded("run", "x")
    assert code == 1
    assert err.startswith("unspool: ZeroDivisionError: something is off. ")
    monkeypatch.setenv("UNSPOOL_DEBUG", "1")
    assert "Traceback" in loaded("run", "x")[2]


def writing(home):
    command = [sys.executable, "-m", "unspool", "run", PROMPT, "--max-tokens", "400", "--ignore-eos"]
    return started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(**home))


def test_an_interrupt_and_a_reader_that_leaves(home):
    with writing(home) as first, writing(home) as second:
        assert first.stdout.read(1)
        first.send_signal(signal.SIGINT)
        assert b"Traceback" not in first.communicate(timeout=PATIENCE)[1]
        assert first.returncode == 130
        assert second.stdout.read(1)
        second.stdout.close()
        assert second.stderr.read() == b""
        assert second.wait(timeout=PATIENCE) == 141


def test_a_locale_without_utf8():
    done = unspool("methods", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert "₊" in done.stdout.decode()


class Screen:
    def isatty(self):
        return True


def test_control_characters_do_not_reach_a_terminal():
    text = "a\x1b[2J\rb\x9b\x7f\n\té✓"
    assert visible(text, Screen()) == "a\\x1b[2J\\x0db\\x9b\\x7f\n\té✓"
    assert visible(text, io.StringIO()) == text


def test_a_terminal_without_a_prompt_does_not_wait():
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "unspool", "run"]
    done = subprocess.run(command, stdin=theirs, capture_output=True, timeout=PATIENCE, check=False)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 2
    assert b"no prompt was given" in done.stderr


def test_chat_reads_a_pipe(home):
    turns = b"Hello.\n/system You are a pirate.\n\nWho are you?\n/nonsense\n/reset\n/help\n/quit\nnever said\n"
    done = unspool("chat", "--max-tokens", "3", "--trace", stdin=turns, **home)
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == done.stderr.count(b"[length] 3 tokens") == 2
    for expected in (b"The system message is set.", b"/nonsense is no command", b"forgotten", b"/reset"):
        assert expected in done.stderr


# ---- methods, prove, compare, plan, pull


def test_methods_are_the_registry(here):
    found = json.loads(here("methods", "--json")[1])
    known = entries()
    assert [row["name"] for row in found] == list(known)
    for row in found:
        entry = known[row["name"]]
        assert row["claim"] == entry.claim.name
        assert (row["family"], row["paper"], row["summary"]) == (entry.family, entry.paper, entry.summary)
        assert (row["systems"], row["needs"]) == (list(entry.systems), list(entry.needs))
        assert row["runnable"] == (entry.build is not None)
    assert next(row for row in found if row["name"] == "lookup")["options"] == {"ngram": 3, "least": 2, "depth": 5}
    assert written(list(known.values())) == INDEX.read_text("utf-8"), "run scripts/methods"
    shown = here("methods")[1]
    flat = " ".join(shown.split())
    assert all(f" {name} " in flat and " ".join(entry.summary.split()) in flat for name, entry in known.items())


def test_methods_fit_a_terminal_and_need_no_torch(here):
    for arguments in (("methods",), ("methods", "--family", "draft")):
        assert max(map(len, here(*arguments)[1].splitlines())) <= 80
    assert not imports_torch("methods")
    assert not imports_torch("methods", "lookup")
    assert not imports_torch("which")


def test_methods_by_name_word_and_property(here):
    for name in ("heads", "medusa", "2401.10774"):
        page = here("methods", name)[1]
        assert page.startswith("heads · draft · SEED")
        for part in ("nodes", "a whole number from 1 to 512", "unspool prove heads", "Claim:", "arxiv.org"):
            assert part in page

    def listed(*arguments):
        code, out, _ = here("methods", *arguments, "--json")
        assert code == 0
        return {row["name"] for row in json.loads(out)}

    known = entries()
    assert listed("--family", "search") == {name for name, e in known.items() if e.family == "search"}
    assert listed("--claim", "law") == {name for name, e in known.items() if e.claim is LAW}
    assert listed("--needs", "draft", "--family", "draft") == {
        name for name, e in known.items() if "draft" in e.needs and e.build and e.family == "draft"
    }
    assert "lookup" in listed("--needs", "nothing")
    assert not listed("--needs", "nothing") & listed("--needs", "filling")
    assert {"copy", "lookup"} <= listed("prompt")
    assert listed("tree", "draft") < listed("draft")
    assert "mcts" in listed("--needs", "file")
    code, _, err = here("methods", "lokup")
    assert code == 2
    assert "Did you mean 'lookup'" in err


def test_which_gives_commands_that_there_are(here):
    context = click.Context(root)
    for each in ADVICE:
        words = shlex.split(each.command)
        command = root.get_command(context, words[1])
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert all(word in flags for word in words[2:] if word.startswith("-")), each.command
        named = [words[i + 1] for i, word in enumerate(words) if word == "--method"]
        methods = words[2:] if words[1] == "compare" else []
        named += [word for word in methods if word.islower() and word != "smollm2-diffusion"]
        assert all(known(parts_of(name)[0].said) for name in named if not name.startswith("-")), each.command
        assert each.wants in WANTS
        if each.exact:
            claims = [entries()[known(parts_of(name)[0].said)].claim for name in named if not name.startswith("-")]
            assert all(claim in (SEED, LAW, ARGMAX) for claim in claims), each.command
    out = here("which", "json")[1]
    assert "--json-schema" in out
    assert "--draft" not in here("which", "speed", "--no-draft")[1]
    assert "confident" not in here("which", "diffusion", "--exact")[1]
    assert "on_device" not in here("which", "--cpu")[1]
    assert json.loads(here("which", "--json")[1])[0]["command"] == ADVICE[0].command
    assert {each.wants for each in ADVICE} == set(WANTS)


def test_the_first_page_of_the_site_says_the_same():
    page = (ROOT / "docs/index.md").read_text("utf-8")
    for each in ADVICE:
        assert f"| {each.have} | `{each.command}` | {each.why}" in page, "docs/index.md does not say what `which` does"


def check_proofs(code, out, names):
    proofs = json.loads(out)
    assert code == 0
    assert [proof["method"] for proof in proofs] == names
    for proof in proofs:
        assert proof["ok"]
        assert proof["branches"] >= proof["cases"] > 0
        if entries()[proof["method"]].claim is LAW:
            assert proof["tv"] <= 1e-12


def test_prove_a_few(here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["plain", "chain", "lookup", "one", "confident"]
    code, out, _ = here("prove", "--quick", "--json", *names)
    check_proofs(code, out, names)


def test_without_names_everything_that_claims_something_is_to_be_proved():
    assert [name for name, _ in proving.jobs((), True, None)] == list(entries())
    parts = [name for name, entry in entries().items() if entry.build is None]
    assert parts, "there is no rule that is only a part of methods"
    assert [name for name, _ in proving.jobs(tuple(parts), True, None)] == parts


@pytest.mark.slow
def test_prove_all(here):
    code, out, _ = here("prove", "--quick", "--json")
    check_proofs(code, out, list(entries()))


def test_prove_a_rule_of_ones_own(here, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(WRONG)
    code, out, _ = here("prove", "--quick", f"{file}:wrong", f"{file}:right")
    assert code == 1
    assert "FAILS" in out
    assert "wrong does not keep its claim (LAW). The smallest case found:" in out
    assert "target weights:" in out
    assert "texts that differ most:" in out
    record = json.loads(here("prove", "--quick", "--json", f"{file}:right")[1])
    assert record[0]["ok"]
    code, _, err = here("prove", f"{file}:forgetful")
    assert code == 2
    assert "takes (scored, chance)" in err
    assert "Speculate(Chain(depth=2), rule)" in err
    file.write_text("1 / 0")
    assert "mine.py, line 1: ZeroDivisionError" in here("prove", f"{file}:wrong")[2]


def test_compare(loaded, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "Say: one two one two"}\n\n{"turns": ["Say: hello", "Again"]}\n')
    rows = json.loads(loaded("compare", "lookup:least=1", "--prompts", str(file), "--max-tokens", "4", "--json")[1])
    assert [row["method"] for row in rows] == ["plain", "lookup:least=1"]
    assert rows[0]["speed_up"] == 1
    assert rows[1]["prompts"] == rows[1]["same_text"] + len(rows[1]["divergences"]) == 2
    assert rows[1]["drafted"] > 0
    code, out, err = loaded("compare", "lookup:depth=2", "-p", "Say: a b c", "--max-tokens", "4")
    assert (code, err) == (0, "")
    assert "\nlookup:depth=2: " in out
    assert "a round must bring" in out
    file.write_text('{"question": 1}\n')
    assert 'expected an object with "prompt"' in loaded("compare", "--prompts", str(file))[2]
    assert len(PROMPTS) == 6


def test_draft_models_are_named_with_how_their_tokens_are_related(loaded, smollm2, monkeypatch):
    def load(name, draft=None, small=None, **options):
        third = None if small is None else LM(small, smollm2.model, smollm2.vocabulary)
        second = None if draft is None else LM(draft, smollm2.model, smollm2.vocabulary, third)
        return LM(name, smollm2.model, smollm2.vocabulary, second)

    monkeypatch.setattr(sys.modules["unspool.api.loader"], "load", load)
    models = ("-m", "large", "--draft", "middle", "--small", "little", "--method", "escalate:depth=1")
    code, out, err = loaded("run", "Hi", *models, "--max-tokens", "2")
    assert code == 0
    alike = "the same tokens (49,152 shared: 100% of the target's, 100% of the draft's)"
    assert err.startswith(f"middle drafts for large: {alike}\nlittle drafts for large: {alike}\n")
    assert loaded("run", "Hi", *models, "--max-tokens", "2", "--quiet") == (0, out, "")
    found = json.loads(loaded("run", "Hi", *models, "--max-tokens", "2", "--json")[1])
    assert (found["draft"], found["small"]) == ("middle", "little")
    assert found["trace"]["forwards"]["small"] > 0


def test_plan_and_pull(here, smollm2_path, monkeypatch, tmp_path):
    monkeypatch.setenv("UNSPOOL_HOME", str(smollm2_path.parents[2]))
    plan = json.loads(here("plan", "--context", "100", "--json")[1])
    parts = ("weights", "kv", "logits", "activations")
    assert plan["total"] == sum(plan[part] for part in parts) > 0
    ways = plan["choices"]
    assert list(ways) == ["packed", "llama.cpp", "int4", "int8", "bf16", "fp32"]  # the file has blocks
    assert ways["llama.cpp"]["weights"] == ways["packed"]["weights"] < ways["int8"]["weights"] < ways["fp32"]["weights"]
    assert 2 * ways["llama.cpp"]["kv"] == ways["packed"]["kv"]
    assert ways["fp32"]["per_token"] == 2 * ways["bf16"]["per_token"] > 4 * ways["packed"]["per_token"]
    shown = here("plan")[1]
    assert "  as packed " in shown
    assert max(map(len, shown.splitlines())) <= 80
    both = json.loads(here("plan", "--context", "100", "--draft", "smollm2", "--json")[1])
    assert both["total"] == 2 * plan["total"]
    assert "keys and values" in here("plan")[1]
    listed = {row["name"]: row for row in json.loads(here("pull", "--list", "--json")[1])}
    assert listed["smollm2"]["fetched"]
    assert listed["smollm2"]["path"] == str(smollm2_path)
    assert here("pull", "smollm2")[1] == f"{smollm2_path}\n"
    assert json.loads(here("pull", "smollm2", "--check", "--json")[1])["checked"]

    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path))
    code, out, err = here("plan")
    assert (code, out) == (2, "")
    assert "92.9 MB to download" in err
    assert here("pull", "smollm2", "--check")[0] == 2
    brought = here("pull", "smollm2", "--from", str(smollm2_path))[1]
    assert brought == f"{tmp_path / 'models/smollm2' / smollm2_path.name}\n"


def test_tables_are_aligned():
    assert table(("a", "n"), [("x", "1"), ("文字", "100")], right="n") == "a       n\nx       1\n文字  100"
