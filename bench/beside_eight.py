"""The shape of Llama-3-8B with random weights, beside vLLM on one GPU: greedy texts, one and many at a time.

    python bench/beside_eight.py --site FOLDER [--most 128] [--json FILE]

`--site` as for bench/beside.py. Both sides make up their weights, so that only shapes are compared and no text; prompts
are the same tokens. Tokens per second by the wall, prompts and engine included, the best of three tries.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from beside import table, theirs
from gpu import EIGHT, Noise
from record import save

from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.models.shape import Shape
from unspool.recipes.methods import method
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import DenseLinear

CROWDS = (1, 32)
PROMPT = 290  # tokens, as many as a prompt of Spec-Bench has on the mean
BAR = 1.0


def config(shape: Shape) -> dict[str, Any]:
    """The shape as transformers describes it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.dim,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.hidden,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def ours(prompts: list[list[int]], most: int) -> dict[str, float]:
    """Greedy texts of the first so many prompts at a time."""
    model = graph_model(Fused.load(Noise(EIGHT), torch.bfloat16, "cuda", 40_000, DenseLinear), sequences=64)
    found: dict[str, float] = {}
    for crowd in CROWDS:
        best = 0.0
        for _ in range(3):
            model.forget()
            engine, began = Engine({"target": model}), time.perf_counter()
            for i, prompt in enumerate(prompts[:crowd]):
                engine.submit(method("plain"), prompt, Philox(i), Temperature(0), Stop(most=most), laws=False)
            engine.run()
            best = max(best, crowd * most / (time.perf_counter() - began))
        found[f"{crowd} greedy"] = round(best, 1)
        print(crowd, found[f"{crowd} greedy"], flush=True)
    return found


def main() -> None:
    """Measure both sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", required=True)
    parser.add_argument("--most", type=int, default=128)
    parser.add_argument("--json")
    given = parser.parse_args()
    prompts = [[(r * 31 + i * 7) % 1000 + 3 for i in range(PROMPT)] for r in range(max(CROWDS))]
    mine = ours(prompts, given.most)
    gc.collect()
    torch.cuda.empty_cache()
    rows = [(crowd, "greedy", {}) for crowd in CROWDS]
    task = {"rows": rows, "prompts": prompts, "families": {}, "most": given.most, "long": prompts[0], "dummy": True}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(config(EIGHT)))
        (folder / "task.json").write_text(json.dumps(task | {"speculative": None}))
        found = theirs(folder, given.site)
    lines = table(mine, found)
    print("\n".join(lines))
    if given.json:
        save(given.json, {"shape": "llama-3-8b", "most": given.most, "unspool": mine, "vllm": found, "bar": BAR})
        Path(given.json).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
