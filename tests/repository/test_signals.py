"""Who starts the tests from a background job hands them an ignored Ctrl-C; a server started so keeps it ignored."""

import signal
import subprocess
import sys

import pytest
import uvicorn
from repository import TESTS

from unspool.apps.server.running import Server, heard

SHOWN = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
IGNORING = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c"]


@pytest.mark.parametrize(("before", "status"), [("", 1), ("from signals import restore; restore()", 0)])
def test_a_process_below_the_tests_can_be_interrupted(before, status):
    """Without the restoring line it could not, which shows that the line does it."""
    code = f"import subprocess, sys; {before}\nsys.exit(subprocess.run([sys.executable, '-c', {SHOWN!r}]).returncode)"
    assert subprocess.run([*IGNORING, code], cwd=TESTS / "support").returncode == status


def test_this_process_can_be_interrupted():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize("ignored", [True, False])
def test_a_server_hears_no_signal_that_it_was_started_with_ignored(ignored):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.default_int_handler)
    try:
        server = Server(uvicorn.Config(lambda: None, log_config=None))
        assert (signal.SIGINT in heard()) is not ignored
    finally:
        signal.signal(signal.SIGINT, before)
    server.handle_exit(signal.SIGINT, None)
    assert server.should_exit is not ignored
    server.handle_exit(signal.SIGTERM, None)
    assert server.should_exit
