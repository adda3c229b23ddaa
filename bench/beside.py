"""unspool beside vLLM on one GPU: the same weights, prompts and settings, one after the other in one run.

    python bench/beside.py --site FOLDER [--data FOLDER] [--model smollm2] [--most 128] [--json FILE]

`--site` is a folder with vLLM and what it needs (`pip install --target FOLDER vllm`), or the word `here`. Without a
network: fetch the wheel and its requirements elsewhere for the machine's Python (`pip download --no-deps
--python-version …`), carry them over, and `pip install --no-deps --no-index --target FOLDER *.whl`.

Tokens per second by the wall with everything in it (prompts, engine, text), the best of three tries; no text ends
early, but for those of a schema. Families: one greedy text at a time, vLLM with its n-gram drafts and `auto` here. A
model of 135M parameters flatters whoever has the thinner host: state the size with every ratio.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import tokenizers
import torch
from record import save
from spec import DATA, questions
from warped import FORMS, SETTINGS, speed

from unspool import json_schema
from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool_bench.transformers_peer import mirror

CROWDS = (1, 32, 128)
OURS_ALONE = ("typical", "no_repeat_ngram_size")  # settings that vLLM has not
NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
LIMIT = 360  # seconds that the other side may take
BAR = 1.3


def export(lm: LM, name: str, folder: Path) -> None:
    """The model as a folder of transformers, with the same tensors and tokens."""
    mirror(open_checkpoint(path(name)), torch.bfloat16).save_pretrained(folder)
    words: Any = lm.vocabulary
    copy = tokenizers.Tokenizer.from_str(words._tokenizer.to_str())
    copy.decoder = tokenizers.decoders.ByteLevel()
    copy.save(str(folder / "tokenizer.json"))
    ends = {"eos_token": words._tokenizer.id_to_token(max(words.eos)), "model_max_length": 8192}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **ends}))


def task(prompts: list[list[int]], families: dict[str, list[list[int]]], most: int) -> dict[str, Any]:
    """What both sides are asked."""
    rows: list[tuple[int, str, dict[str, Any]]] = []
    for crowd in CROWDS:
        rows += [(crowd, name, given) for name, given in SETTINGS.items() if not any(x in name for x in OURS_ALONE)]
        rows += [(crowd, form, {"schema": schema}) for form, schema in FORMS.items()]
    long = [token for prompt in prompts for token in prompt][:3800]
    return {"rows": rows, "prompts": prompts, "families": families, "most": most, "long": long, "speculative": NGRAM}


def ours(lm: LM, asked: dict[str, Any]) -> dict[str, Any]:
    """The same rows here, by plain decoding, and by `auto` where families are asked."""
    found: dict[str, Any] = {}
    for crowd, name, given in asked["rows"]:
        prompts = [asked["prompts"][i % len(asked["prompts"])] for i in range(crowd)]
        form = {"constraint": json_schema(given["schema"])} if "schema" in given else {"ignore_eos": True, **given}
        found[f"{crowd} {name}"] = round(speed(lm, prompts, [Settings(max_tokens=asked["most"], **form)] * crowd), 1)
        print(crowd, name, found[f"{crowd} {name}"], flush=True)
    found["first_token_ms"] = round(1e3 / speed(lm, [asked["long"]], [Settings(max_tokens=1)], "plain", 7), 2)
    whole = Settings(max_tokens=asked["most"], ignore_eos=True)
    for family, prompts in asked["families"].items():
        best = 0.0
        for _ in range(3):
            lm.model.forget()
            began = time.perf_counter()
            tokens = sum(len(lm.generate(prompt, whole, "auto").tokens) for prompt in prompts)
            best = max(best, tokens / (time.perf_counter() - began))
        found[f"family {family}"] = round(best, 1)
    return found


def theirs(folder: Path, site: str) -> dict[str, Any]:
    """What vLLM makes of it, in a process of its own that is ended with all it has started."""
    quiet = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    local = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    env = os.environ | quiet | local | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    if site != "here":
        env["PYTHONPATH"] = site
    # away from bench/, whose names it and what it starts would import
    script = shutil.copy(Path(__file__).with_name("beside_vllm.py"), folder)
    line = [sys.executable, str(script), str(folder)]
    process = subprocess.Popen(line, env=env, cwd=folder, process_group=0)
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        print(f"vLLM was ended after {LIMIT} seconds")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
    file = folder / "found.json"
    return json.loads(file.read_text()) if file.exists() else {}


def table(mine: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Every row that both have."""
    lines = ["| texts and settings | unspool | vLLM | ratio |", "|---|---|---|---|"]
    for name, own in mine.items():
        other = found.get(name)
        if isinstance(other, (int, float)) and other:
            ratio = other / own if name.endswith("_ms") else own / other
            lines.append(f"| {name} | {own:,.0f} | {other:,.0f} | {ratio:.2f} |")
        else:
            lines.append(f"| {name} | {own:,.0f} | {other or '–'} | |")
    return lines


def main() -> None:
    """Measure both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", required=True)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--json")
    given = parser.parse_args()
    lm = load(given.model, dtype="bf16", device="cuda", kv_cache_tokens=400_000)
    asked = questions(given.data, 0, 12)
    encoded = {
        family: [list(lm.encode([{"role": "user", "content": each}])) for each in texts]
        for family, texts in asked.items()
    }
    prompts = [prompt for several in encoded.values() for prompt in several]
    job = task(prompts, {family: several[:3] for family, several in encoded.items()}, given.most)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        export(lm, given.model, folder / "model")
        (folder / "task.json").write_text(json.dumps(job))
        gc.collect()
        gc.freeze()
        mine = ours(lm, job)
        del lm
        gc.unfreeze()
        gc.collect()
        torch.cuda.empty_cache()
        found = theirs(folder, given.site)
    lines = table(mine, found)
    print("\n".join(lines))
    if given.json:
        save(given.json, {"model": given.model, "most": given.most, "unspool": mine, "vllm": found, "bar": BAR})
        Path(given.json).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
