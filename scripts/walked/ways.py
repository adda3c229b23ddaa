"""One request, three ways: on the CPU, through the server, and on the GPU runtime, with every module that ran for it.

A module counts if one of its functions ran while the request was answered. The model is loaded before, and the same
request was answered once before, so that nothing is imported and no class is made while it is watched.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import unspool

ROOT = Path(__file__).parents[2]
SOURCE = str(Path(unspool.__file__).parent) + "/"
METHOD, PROMPT, TOKENS = "lookup", "one two three, one two three, one two", 16
SETTINGS = unspool.Settings(max_tokens=TOKENS, temperature=0.8, seed=7)

# The numbered steps of the picture: where each begins. All ran on the CPU, in this order.
STEPS = (
    ("api/lm", "generate"),
    ("recipes/methods", "fitted"),
    ("recipes/draft", "lookup"),
    ("loops/speculate", "check_composition"),
    ("runtime/engine/engine", "submit"),
    ("runtime/cache/cached_model", "score"),
    ("core/verifier", "sample_match"),
    ("api/writer", "output"),
)

sys.path.insert(0, str(ROOT / "tests" / "support"))  # a model of two layers, a server, and a device without kernels


@dataclass
class Walk:
    """What ran: the functions of each module, in the order in which they were first called."""

    functions: dict[str, dict[str, int]] = field(default_factory=dict)
    watching: bool = False
    _called: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call, as the interpreter tells of it."""
        code = frame.f_code
        if self.watching and event == "call" and code.co_filename.startswith(SOURCE) and code.co_name != "<module>":
            module = code.co_filename.removeprefix(SOURCE).removesuffix(".py")
            self._called += 1
            self.functions.setdefault(module, {}).setdefault(code.co_name, self._called)

    def in_order(self, steps: Sequence[tuple[str, str]]) -> bool:
        """Whether each of these functions ran, first of all after the one before it."""
        called = [self.functions.get(module, {}).get(function, 0) for module, function in steps]
        return 0 not in called and called == sorted(called)

    @property
    def modules(self) -> list[str]:
        """The modules in which something ran."""
        return sorted(self.functions)


@contextmanager
def watched() -> Iterator[Walk]:
    """Watch all threads that are started from here on."""
    walk = Walk()
    threading.setprofile(walk)
    try:
        yield walk
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  (it may be None)


def twice(walk: Walk, lm: unspool.LM, ask: Callable[[], object], ended: Callable[[], object] = bool) -> Walk:
    """Answer a request unseen, forget its keys and values, and watch it being answered once more."""
    ask()
    ended()
    lm.model.forget()
    sys.setprofile(walk)  # this thread
    walk.watching = True
    ask()
    ended()
    walk.watching = False
    sys.setprofile(None)
    return walk


def cpu() -> Walk:
    """`lm.generate` on the CPU, the model loaded."""
    with watched() as walk, model() as (lm, _):
        twice(walk, lm, lambda: lm.generate(PROMPT, SETTINGS, METHOD, raw=True))
    if not walk.in_order(STEPS):
        raise SystemExit("the steps of the picture are not those of a request any more: mend STEPS and the picture")
    return walk


def server() -> Walk:
    """A chat completion over HTTP, on the loopback."""
    from serving import serving  # type: ignore[import-not-found]

    decoding = {"method": METHOD}
    body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": TOKENS, "seed": 7, "decoding": decoding}
    with ExitStack() as held:
        held.enter_context(redirect_stdout(StringIO()))  # its log
        held.enter_context(redirect_stderr(StringIO()))
        walk, (lm, _) = held.enter_context(watched()), held.enter_context(model())
        served = held.enter_context(serving(lm))

        def ended() -> None:  # what is logged and counted comes after the answer
            served.until(lambda: served.empty() and not served.server.server_state.tasks)

        return twice(walk, lm, lambda: served.post("/v1/chat/completions", **body).raise_for_status(), ended)


def gpu() -> Walk:
    """`lm.generate` on the GPU runtime with all graphs captured; a stand-in replays them, without kernels."""
    from standin import standin  # type: ignore[import-not-found]

    with watched() as walk, model() as (lm, _):
        device = unspool.LM("stand-in", standin(lm.model.vocab, 4000, 512, 4, 64), lm.vocabulary)
        return twice(walk, device, lambda: device.generate(PROMPT, SETTINGS, METHOD, raw=True))


def capture() -> Walk:
    """The same where every forward runs its kernels, as when a graph is captured; in Triton's interpreter: minutes."""
    import interpreted  # type: ignore[import-not-found]  # noqa: F401  (Triton, before anything imports kernels)

    from unspool.models.weights import open_checkpoint
    from unspool.runtime.cuda.fused import Fused
    from unspool.runtime.cuda.graph_model import graph_model
    from unspool.runtime.network.linear import DenseLinear

    settings, prompt = replace(SETTINGS, max_tokens=2), "ababab"
    with watched() as walk, model() as (lm, folder):
        network = Fused.load(open_checkpoint(folder), torch.float32, "cpu", 400, DenseLinear)
        device = unspool.LM("interpreted", graph_model(network, 4, 8), lm.vocabulary)
        return twice(walk, device, lambda: device.generate(prompt, settings, METHOD, raw=True))


WAYS = {"cpu": cpu, "server": server, "gpu": gpu}
SLOW = {"capture": capture}


@contextmanager
def model() -> Iterator[tuple[unspool.LM, Path]]:
    """A Llama of two layers, with a chat template, and its folder."""
    from littlemodel import chatting_model, loaded  # type: ignore[import-not-found]

    with tempfile.TemporaryDirectory() as temporary:
        folder = chatting_model(Path(temporary) / "little")
        with loaded(folder) as lm:
            yield lm, folder
