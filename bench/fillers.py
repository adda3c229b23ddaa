"""What small models that were trained here do: python bench/fillers.py --molecules … → bench/results/fillers-cpu.json.

The folders are those of `unspool train filler` (docs/denoise.md, "Trained here"); any of them may be left out.
--molecules: GenMol's loop for an oracle, once, with fragments of one text, and with a population.
--certain: dParallel, `peaked` on the model before (--molecules) and after.
--inserter: POINTER, sentences round words, all gaps of a round at once and by beams.
--corrector: AR2Diff, `resample` after the first look and after ten.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from itertools import pairwise
from statistics import mean
from typing import Any

import record
import torch

import unspool
from unspool import LM, Settings
from unspool_bench.molecule import druglike, molecule

ORACLE = "bench/src/unspool_bench/molecule.py:druglike"


def written(lm: LM, spec: str, tries: int, most: int, temperature: float = 1.0) -> list[Any]:
    """Texts after nothing, by as many seeds."""
    return [
        lm.generate("", Settings(max_tokens=most, temperature=temperature, seed=seed), spec, raw=True)
        for seed in range(tries)
    ]


def told(outputs: Sequence[Any]) -> dict[str, Any]:
    """What texts have in common."""
    texts = [output.text.strip() for output in outputs]
    forwards = mean(output.trace.forwards["target"] for output in outputs)
    tokens = mean(len(output.tokens) for output in outputs)
    return {"forwards": forwards, "tokens_per_forward": round(tokens / forwards, 3), "texts": texts}


def molecules(folder: str, tries: int, rounds: int, population: int, places: int) -> dict[str, Any]:
    """GenMol: how good the best text is, with as many texts judged by the oracle in the last two."""
    lm, rows = unspool.load(folder, device="cpu"), {}
    shared = f"signs=(),reward={ORACLE},least=3,most=12,size={places}"
    methods = {
        "one text": f"cooling:randomness=0.5,size={places}",
        "fragments of one text": f"fragments:rounds={rounds + population - 1},{shared}",
        "a population": f"fragments:rounds={rounds},population={population},{shared}",
    }
    for name, spec in methods.items():
        found = told(written(lm, spec, tries, places))
        worths = [druglike(text) for text in found["texts"]]
        rows[name] = {"method": spec, "worth": round(mean(worths), 3), "valid": valid(found["texts"]), **found}
    return rows


def valid(texts: Sequence[str]) -> float:
    """The share of texts that are molecules."""
    return round(mean(molecule(text) is not None for text in texts), 3)


def certain(before: str, after: str, tries: int, places: int) -> dict[str, Any]:
    """dParallel: tokens per forward of one model before and after its training for certainty."""
    rows = {}
    for name, folder in (("before", before), ("after", after)):
        lm = unspool.load(folder, device="cpu")
        for spec in (f"peaked:nats=0.5,block=16,size={places}", f"one:block=16,size={places}"):
            found = told(written(lm, spec, tries, places))
            rows[f"{name}, {spec.partition(':')[0]}"] = {"method": spec, "valid": valid(found["texts"]), **found}
    return rows


def inserter(folder: str, words: str, tries: int) -> dict[str, Any]:
    """POINTER: looks per sentence, and how often a word stands beside itself."""
    lm, rows = unspool.load(folder, device="cpu"), {}
    lines = gzip.decompress(open(words, "rb").read()).decode().splitlines()[:tries]  # noqa: SIM115
    sets = [json.loads(line)["concepts"] for line in lines]
    for beam in (1, 4):
        outputs = [
            lm.generate("", Settings(max_tokens=40), f"insert:words={'+'.join(some)},beam={beam}", raw=True)
            for some in sets
        ]
        found = told(outputs)
        said = [text.split() for text in found["texts"]]
        twice = mean(any(a == b for a, b in pairwise(sentence)) for sentence in said)
        kept = mean(all(word in text for word in some) for some, text in zip(sets, found["texts"], strict=True))
        rows[f"beam {beam}"] = {"all words": kept, "a word twice in a row": twice, **found}
    return rows


def corrector(folder: str, tries: int, places: int) -> dict[str, Any]:
    """AR2Diff: whether correcting makes texts better, which its oracle is the share of molecules for."""
    lm, rows = unspool.load(folder, device="cpu"), {}
    for looks in (0, 10):
        spec = f"resample:looks={looks},size={places}"
        found = told(written(lm, spec, tries, places, 0.5))
        rows[f"{looks} looks more"] = {"method": spec, "valid": valid(found["texts"]), **found}
    return rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name in ("molecules", "certain", "inserter", "corrector"):
        options.add_argument(f"--{name}", default="", metavar="FOLDER")
    options.add_argument("--words", default="shared/data/commongen/dev.jsonl.gz", help="Sets of words, .jsonl.gz.")
    options.add_argument("--tries", type=int, default=8, help="Texts of each method.")
    options.add_argument("--rounds", type=int, default=48)
    options.add_argument("--population", type=int, default=16)
    options.add_argument("--places", type=int, default=48)
    options.add_argument("--out", default="bench/results/fillers-cpu.json")
    given = options.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    if given.molecules:
        found["molecules"] = molecules(given.molecules, given.tries, given.rounds, given.population, given.places)
    if given.molecules and given.certain:
        found["certain"] = certain(given.molecules, given.certain, 4 * given.tries, given.places)
    if given.inserter:
        found["inserter"] = inserter(given.inserter, given.words, 4 * given.tries)
    if given.corrector:
        found["corrector"] = corrector(given.corrector, 4 * given.tries, given.places)
    for kind, rows in found.items():
        for name, row in rows.items():
            figures = {key: value for key, value in row.items() if key not in ("texts", "method")}
            print(kind, "|", name, "|", figures, "|", row["texts"][0], flush=True)
    record.save(given.out, {"command": f"python bench/fillers.py --tries {given.tries} …", "fillers": found})


if __name__ == "__main__":
    main()
