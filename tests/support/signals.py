"""Signals as a program started by hand has them, whatever started the tests.

A shell starts a background job with Ctrl-C ignored, and so do `nohup` and many schedulers with other signals. What is
ignored or blocked is inherited by every process below, so that a test which interrupts itself or a command would wait
for ever. unspool itself leaves an ignored SIGINT ignored, as Python does: who starts it so wants it so.
"""

import signal

USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL, signal.SIGCHLD: signal.SIG_DFL}


def restore() -> None:
    """Undo what was inherited; a handler of our own becomes the default in a new program."""
    for number, handler in USUAL.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*USUAL, signal.SIGALRM})
