"""The sandbox: whatever a program does, it ends as a failed sample, and the machine is as it was."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest
from patience import PATIENCE
from repository import ROOT

from unspool.core.errors import BadRequest
from unspool_bench.sandbox import Sandbox, SandboxLimits, descendants

if not sys.platform.startswith("linux"):
    pytest.skip("the walls are Linux's", allow_module_level=True)

LONG, SHORT = Sandbox(SandboxLimits(seconds=PATIENCE)), Sandbox(SandboxLimits(seconds=1.5))


@pytest.fixture(scope="module", autouse=True)
def walls():
    """Skip where the kernel grants no walls: then nothing is run at all, which is tested apart."""
    try:
        return Sandbox().run("").walls
    except BadRequest as error:
        pytest.skip(f"no walls here: {error}")


@pytest.fixture(autouse=True)
def nothing_left():
    before, children = set(os.listdir(tempfile.gettempdir())), set(descendants(os.getpid()))
    yield
    assert set(descendants(os.getpid())) <= children
    left = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in left if name.startswith("cell-")]


def f_of(body: str) -> str:
    return "def f(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())


def tried(program: str, tests: str = "assert f(2) == 3", sandbox: Sandbox = LONG, given: str = ""):
    return sandbox.run(program, tests, given, names=["f"])


# ---- what passes, and what does not


def test_a_right_program_passes_and_a_wrong_one_does_not():
    assert tried("def f(x): return x + 1").outcome == "passed"
    trial = tried("def f(x): return x + 2")
    assert trial.outcome == "failed"
    assert "assert f(2) == 3" in trial.why


@pytest.mark.parametrize(
    "value",
    ["None", "True", "-3", "10**5000", "1.5", "float('-inf')", "2j", "'ä\\ud800'", "b'x'", "[1, (2, {3})]", "{1: [2]}"],
)
def test_plain_values_come_back_as_they_are(value):
    equal = f"assert f(0) == {value} and type(f(0)) is type({value})"
    assert tried(f"def f(x): return {value}", equal).passed


def test_arguments_and_errors_travel():
    tests = "assert f([1, {'a': (2,)}]) == [1, {'a': (2,)}]\n"
    tests += "try:\n    f(None)\n    assert False\nexcept ValueError:\n    pass"
    assert tried("def f(x):\n    if x is None: raise ValueError('no')\n    return x", tests).passed


def test_names_of_trusted_code_are_the_judges_own():
    """A program that redefines what its tests use is not asked about it."""
    program = "def f(x): return 99\ndef near(a, b): return True"
    assert not tried(program, "assert near(f(2), 3)", given="def near(a, b): return abs(a - b) < 1").passed


# ---- faking a pass

FAKES = {
    "exit": "import os; os._exit(0)",
    "exit inside": f_of("import os; os._exit(0)"),
    "system exit": "import sys; sys.exit(0)",
    "equal to all": "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
    "equal int": "class A(int):\n    def __eq__(self, o): return True\ndef f(x): return A(9)",
    "no asserts": "import builtins\nbuiltins.AssertionError = SystemExit\ndef f(x): return 9",
    "writes to every pipe": (
        'import os\nfor fd in range(3, 64):\n    try: os.write(fd, b\'{"outcome":"passed","why":"","walls":[]}\')\n'
        "    except OSError: pass\ndef f(x): return 9"
    ),
    "looks for the tests": (
        "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, dict) and 'tests' in o and 'given' in o]\n"
        "def f(x): return 3 if found else 9"
    ),
    "looks into the judge": (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nparent = os.getppid()\n"
        "within = libc.ptrace(16, parent, 0, 0) == 0\n"
        "if within:\n    os.waitpid(parent, 0x40000000)\n    libc.ptrace(17, parent, 0, 0)\n"
        "def f(x): return 3 if within else 9"
    ),
    "interrupts the judge": "import os, signal\nos.kill(os.getppid(), signal.SIGINT)\ndef f(x): return 9",
    "stops the judge": "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\ndef f(x): return 9",
}


@pytest.mark.parametrize("name", FAKES)
def test_a_pass_cannot_be_faked(name):
    trial = tried(FAKES[name], sandbox=SHORT)  # some of them hang
    assert trial.outcome != "passed", trial


# ---- doing harm


def test_a_fork_bomb_stays_small_and_ends():
    """Every process that it can get forks again; nothing is left of it."""
    trial = tried("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", sandbox=SHORT)
    assert not trial.passed
    assert "processes" in trial.walls


def test_what_was_left_behind_ends_with_the_trial():
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(900)\n"
    program += "    os._exit(0)\ndef f(x): return 3"
    assert tried(program).outcome == "passed"  # and nothing is left, as after every test here


def test_endless_output_is_cut():
    trial = tried("while True: print('x' * 1000)")
    assert trial.outcome == "killed"
    assert "printed more" in trial.why
    assert len(trial.output) <= SHORT.tail


def test_an_endless_loop_and_a_sleep_run_out_of_time():
    assert tried("while True: pass", sandbox=SHORT).outcome == "timeout"
    assert tried(f_of("import time; time.sleep(60)"), sandbox=SHORT).outcome == "timeout"


def test_ten_gigabytes_are_not_to_be_had():
    trial = tried("x = bytearray(10 * 2**30)\ndef f(x): return 3")
    assert trial.outcome == "failed"
    assert "MemoryError" in trial.output


def test_deep_recursion_fails():
    trial = tried("import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return f(x)", sandbox=SHORT)
    assert not trial.passed
    assert tried("def f(x): return f(x)").outcome == "failed"
    deep = "def f(x):\n    y = []\n    for _ in range(10**5): y = [y]\n    return y"
    assert tried(deep).outcome == "failed"


def test_files_outside_are_neither_seen_nor_written(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    os.chmod(tmp_path, 0o777)
    program = (
        f"import os\nseen = os.path.exists({str(secret)!r})\n"
        f"for path in ({str(tmp_path / 'new')!r}, '/usr/new', '/etc/passwd', '/new', os.__file__):\n"
        "    try:\n        open(path, 'a').write('x')\n        seen = True\n    except OSError: pass\n"
        "open('mine', 'w').write('x' * 1000)\nmine = open('mine').read() == 'x' * 1000\n"
        "def f(x): return [seen, mine]"
    )
    assert tried(program, "assert f(0) == [False, True]").passed
    assert not (tmp_path / "new").exists()
    assert not Path("/usr/new").exists()


def test_the_home_is_small():
    program = "def f(x):\n    for i in range(1000):\n        open(f'{i}', 'wb').write(bytes(2**21))"
    trial = tried(program, "f(0)")
    assert trial.outcome == "failed"
    assert "OSError" in trial.why


def test_there_is_no_network():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.1)
    program = (
        "import socket\ndef f(x):\n    try:\n        socket.create_connection(('127.0.0.1', x), 1).send(b'hello')\n"
        "        return True\n    except OSError:\n        return False"
    )
    assert tried(program, f"assert f({listener.getsockname()[1]}) is False").passed
    with listener, pytest.raises(TimeoutError):
        listener.accept()


def test_the_parent_is_out_of_reach(monkeypatch):
    monkeypatch.setenv("SECRET", "hidden")
    me = os.getpid()
    program = (
        f"import os, signal\nseen = 'SECRET' in os.environ or os.path.exists('/proc/{me}')\n"
        f"for pid in ({me}, {os.getppid()}, -1):\n    try:\n        os.kill(pid, signal.SIGTERM if pid > 0 else 0)\n"
        "        seen = seen or pid > 0\n    except OSError: pass\ndef f(x): return seen"
    )
    assert tried(program, "assert f(0) is False").passed


def test_a_program_cannot_become_its_own_master():
    """In a user namespace of its own it could mount memory without end."""
    program = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def f(x): return [libc.unshare(x), libc.unshare(0x20000), libc.mount(b'm', b'/home', b'tmpfs', 0, None)]"
    )
    assert tried(program, "assert f(0x10000000) == [-1, -1, -1]").passed


def test_nothing_of_the_judge_is_open_in_the_program():
    program = (
        "import os, stat\ndef f(x):\n    kinds = []\n    for fd in range(64):\n"
        "        try: kinds.append(os.fstat(fd).st_mode)\n"
        "        except OSError: pass\n"
        "    return [len(kinds), sum(map(stat.S_ISDIR, kinds))]"
    )
    assert tried(program, "assert f(0) == [5, 0]").passed  # nothing to read, two ways to print, requests and replies


def test_a_program_longer_than_a_pipe_is_read():
    assert tried("x = '" + "y" * 300_000 + "'\ndef f(x): return 3").passed


# ---- without walls


def test_without_walls_nothing_is_run_unless_told():
    with pytest.raises(BadRequest, match="no wall for files, network, processes"):
        Sandbox(apart=False).run("")


def test_without_walls_limits_hold_and_leftovers_are_ended():
    weak = Sandbox(SandboxLimits(seconds=PATIENCE), walls=(), apart=False)
    short = Sandbox(SandboxLimits(seconds=1.5), walls=(), apart=False)
    trial = tried("def f(x): return x + 1", sandbox=weak)
    assert trial.passed
    assert not {"files", "network", "processes"} & set(trial.walls)
    left = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(900)\ndef f(x): return 3"
    assert tried(left, sandbox=weak).passed
    assert tried("while True: pass", sandbox=short).outcome == "timeout"
    refused = "import socket\ndef f(x):\n    try: socket.socket()\n    except PermissionError: return 3"
    assert tried(refused, sandbox=weak).passed


def test_the_code_of_the_page_runs():
    page = (ROOT / "docs/elsewhere.md").read_text()
    exec(next(block for block in page.split("```python\n")[1:] if "Sandbox" in block).split("```")[0], {})
