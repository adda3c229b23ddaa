"""vLLM's side of bench/beside.py, in a process and with packages of its own: it imports nothing of unspool.

python bench/beside_vllm.py FOLDER          FOLDER has task.json and the model; found.json is written there
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BEGAN = time.perf_counter()  # before vLLM is imported, which is a part of its start

import vllm  # noqa: E402
from vllm.sampling_params import StructuredOutputsParams  # noqa: E402

Ask = Callable[[Sequence[Sequence[int]]], int]


def start(folder: Path, speculative: dict[str, Any] | None, dummy: bool = False) -> Any:
    """An engine over the same weights, or made-up ones; without a cache of prefixes, as prompts are asked again."""
    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    return vllm.LLM(
        model=str(folder / "model"),
        dtype="bfloat16",
        max_model_len=4096,
        gpu_memory_utilization=0.4 if dummy else 0.3,
        enable_prefix_caching=False,
        max_num_seqs=128,
        compilation_config={"cudagraph_capture_sizes": sizes},
        **({"speculative_config": speculative} if speculative else {}),
        **({"load_format": "dummy", "skip_tokenizer_init": True} if dummy else {}),
    )


def asker(llm: Any, given: dict[str, Any], most: int, spelt: bool = True) -> Ask:
    """Writes texts under these settings, named as in OpenAI's protocol; gives the number of tokens."""
    given = {"temperature": 0.0, **given}
    schema = given.pop("schema", None)
    if "logit_bias" in given:
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    form = {} if schema is None else {"structured_outputs": StructuredOutputsParams(json=schema)}
    params = vllm.SamplingParams(max_tokens=most, ignore_eos=schema is None, detokenize=spelt, **form, **given)

    def ask(prompts: Sequence[Sequence[int]]) -> int:
        out = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in prompts], params, use_tqdm=False)
        return sum(len(each.outputs[0].token_ids) for each in out)

    return ask


def speed(ask: Ask, prompts: Sequence[Sequence[int]], tries: int = 3) -> float:
    """Tokens per second of one batch: the best of some tries."""
    best = 0.0
    for _ in range(tries):
        began = time.perf_counter()
        tokens = ask(prompts)
        best = max(best, tokens / (time.perf_counter() - began))
    return best


def main() -> None:
    """Every row of the task, written down one by one, so that a run that is cut short tells something."""
    folder = Path(sys.argv[1])
    task = json.loads((folder / "task.json").read_text())
    found: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        found[name] = value
        (folder / "found.json").write_text(json.dumps(found, indent=1))
        print(name, value, flush=True)

    dummy = bool(task.get("dummy"))
    llm = start(folder, None, dummy)
    note("version", vllm.__version__)
    note("start_seconds", round(time.perf_counter() - BEGAN, 1))
    for crowd, name, given in task["rows"]:
        prompts = [task["prompts"][i % len(task["prompts"])] for i in range(crowd)]
        try:
            note(f"{crowd} {name}", round(speed(asker(llm, given, task["most"], not dummy), prompts), 1))
        except Exception as error:  # one row that it cannot do
            note(f"{crowd} {name}", repr(error)[:200])
    first = asker(llm, {}, 1, not dummy)
    note("first_token_ms", round(1e3 / speed(first, [task["long"]], 7), 2))
    if task["speculative"]:
        llm.llm_engine.engine_core.shutdown()
        llm = start(folder, task["speculative"])
        ask = asker(llm, {}, task["most"])
        for family, prompts in task["families"].items():
            ask(prompts[:1])
            note(f"family {family}", round(speed(lambda each: sum(ask([p]) for p in each), prompts, 2), 1))


if __name__ == "__main__":
    main()
