"""Prompts of the kinds that people send, for `unspool train speak --asked`: what drafts or fills learns from answers.

    python bench/asked.py --data FOLDER --out asked.jsonl [--held held.jsonl] [--count 2000] [--against FILE …]
    python bench/asked.py --data FOLDER --out asked.jsonl --families chat qa tasks talk --most tasks=12000 chat=12000

Six families, from the training parts of public sets that lie in FOLDER (gsm8k, mbpp 601–974, corpus_instruct, scitldr,
long_context, tatoeba, commongen, corpus_tech, corpus_prose, wikitext2); a set that is not there is left out. Two more
are taken when they are named: `tasks`, what is to be written or played about what those sets name, and `talk`, how
people open a conversation (corpus_dialogue). Every line is a prompt as a string of JSON. A prompt that repeats one of
--against (JSON lines with `turns`, such as Spec-Bench's question.jsonl), word for word or by a run of words as long as
--run, is left out too: what is measured is not learnt.
With --held some prompts of each family go there instead, as `{"family": …, "text": …}`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from asked_tasks import told

WORD = re.compile(r"\w+")
TRANSLATED = {"deu": "German", "fra": "French", "spa": "Spanish", "ces": "Czech", "nld": "Dutch"}
TO_ENGLISH = (
    "Translate {name} to English: {text}",
    "Translate {name} to English: {text}",
    "Translate this {name} sentence into English: {text}",
    "What does this mean in English? {text}",
    "Please translate the following text from {name} to English.\n\n{text}",
)
SUMMARISE = (
    "Summarize: {text}",
    "Summarize: {text}",
    "Summarize the following text in a few sentences.\n\n{text}",
    "{text}\n\nWrite a short summary of the text above.",
    "Give me the main points of this article:\n{text}",
)
READ = (
    "{text}\n{question}",
    "{text}\n{question}",
    "Answer the question with the help of these passages.\n\n{text}\n\nQuestion: {question}",
    "{text}\n\nUsing only what is said above: {question}",
)
SOLVE = ("{text}", "{text}", "{text}", "Solve this step by step. {text}")
Family = Callable[[Path, random.Random], Iterator[str]]


def rows(file: Path) -> Iterator[dict[str, Any]]:
    """The records of a file of JSON lines, packed or not; none if there is no such file."""
    if not file.exists():
        return
    if file.suffix == ".zst":
        text = subprocess.run(["zstd", "-dc", str(file)], check=True, capture_output=True).stdout.decode()
    else:
        text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text("utf-8")
    for line in text.split("\n"):
        if line.strip():
            yield json.loads(line)


def shuffled(found: Iterable[str], chance: random.Random) -> list[str]:
    """Each once, in a random order."""
    once = sorted(set(found))
    chance.shuffle(once)
    return once


def asks(question: str) -> str:
    """A question as one writes it: a capital, and a mark at its end."""
    return question[:1].upper() + question[1:].rstrip(" ?") + "?"


def chat(data: Path, chance: random.Random) -> Iterator[str]:
    """Instructions with what they are about, programs, and sentences of given words."""
    told = (
        "\n".join(filter(None, (row["instruction"], row["input"])))
        for row in rows(data / "corpus_instruct" / "instruct.jsonl.gz")
        if "toolformer" not in row["instruction"]
    )
    programs = [row["text"] for row in rows(data / "mbpp" / "mbpp.jsonl.gz") if row["task_id"] > 600]
    words = [
        f"Write a sentence with these words: {', '.join(row['concepts'])}."
        for row in rows(data / "commongen" / "train.jsonl.gz")
    ]
    yield from shuffled([*told, *programs, *chance.sample(words, min(len(words), 400))], chance)


def maths(data: Path, chance: random.Random) -> Iterator[str]:
    """Word problems."""
    found = (row["question"] for row in rows(data / "gsm8k" / "train.jsonl.gz"))
    yield from (chance.choice(SOLVE).format(text=text) for text in shuffled(found, chance))


def qa(data: Path, chance: random.Random) -> Iterator[str]:
    """Short questions about facts."""
    known = (row["question"] for row in rows(data / "long_context" / "nq_open_oracle.jsonl.gz"))
    told = (row["instruction"] for row in rows(data / "corpus_instruct" / "instruct.jsonl.gz") if not row["input"])
    short = (text for text in told if text.endswith("?") and len(text) < 90)
    yield from shuffled(map(asks, (*known, *short)), chance)


def translation(data: Path, chance: random.Random) -> Iterator[str]:
    """One to three sentences of another language, half of them German."""
    pairs: list[tuple[str, list[str]]] = []
    for file in sorted((data / "tatoeba").glob("*.tsv.gz")):
        names, *lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        column = [name != "eng" for name in names.lstrip("#").split("\t")].index(True)
        language = TRANSLATED[names.lstrip("#").split("\t")[column]]
        found = [line.split("\t")[column] for line in lines if line.count("\t") == 1]
        pairs += [(language, shuffled((text for text in found if len(text) > 25), chance))]
    german = [pair for pair in pairs if pair[0] == "German"]
    while pairs:
        language, texts = chance.choice(german if german and chance.random() < 0.5 else pairs)
        wanted = chance.choice((1, 1, 2, 3))
        if len(texts) < wanted:
            return
        text = " ".join(texts.pop() for _ in range(wanted))
        yield chance.choice(TO_ENGLISH).format(name=language, text=text)


def passages(data: Path, chance: random.Random) -> list[str]:
    """Pieces of articles, documents and books of about 300 to 4,500 characters."""
    found = [row["source"] for row in rows(data / "scitldr" / "train.jsonl.gz")]
    files = [*sorted((data / "corpus_tech").glob("*-00*.zst")), *sorted((data / "corpus_prose").glob("*-02*.zst"))]
    for row in (row for file in files for row in rows(file)):
        first = chance.randrange(max(len(row["text"]) - 6000, 1))
        found.append(row["text"][first : first + chance.randrange(1200, 4500)].partition("\n")[2])
    wiki = data / "wikitext2" / "valid.txt.gz"
    if wiki.exists():
        lines = [line for line in gzip.decompress(wiki.read_bytes()).decode().splitlines() if len(line) > 200]
        found += ["\n".join(lines[i : i + 5])[:4500] for i in range(0, len(lines), 5)]
    return shuffled((text.strip() for text in found if len(text) > 300), chance)


def summarization(data: Path, chance: random.Random) -> Iterator[str]:
    """A passage to be made short."""
    yield from (chance.choice(SUMMARISE).format(text=text) for text in passages(data, chance))


def rag(data: Path, chance: random.Random) -> Iterator[str]:
    """A question behind the passage that answers it and some that do not."""
    known = list(rows(data / "long_context" / "nq_open_oracle.jsonl.gz"))
    for _ in range(2):
        chance.shuffle(known)
        for number, row in enumerate(known):
            others = [known[number - 1 - i] for i in range(chance.randrange(1, 6))]
            told = [f"{each['title']} {each['context']}" for each in (row, *others)]
            chance.shuffle(told)
            yield chance.choice(READ).format(text="\n".join(told), question=asks(row["question"]))


def tasks(data: Path, chance: random.Random) -> Iterator[str]:
    """What is to be written, played, explained or planned."""
    titles = shuffled((row["title"] for row in rows(data / "long_context" / "nq_open_oracle.jsonl.gz")), chance)
    words = {tuple(row["concepts"]) for row in rows(data / "commongen" / "train.jsonl.gz")}
    yield from told(titles, sorted(words), list(qa(data, chance)), chance)


def talk(data: Path, chance: random.Random) -> Iterator[str]:
    """What a user says first."""
    files = sorted((data / "corpus_dialogue").glob("shard-*"))
    first = (row["text"].partition("\n")[0] for file in files for row in rows(file))
    yield from shuffled((line[6:] for line in first if line.startswith("User: ") and len(line) > 30), chance)


FAMILIES: dict[str, Family] = {
    "chat": chat,
    "translation": translation,
    "summarization": summarization,
    "qa": qa,
    "math_reasoning": maths,
    "rag": rag,
}
MORE: dict[str, Family] = {"tasks": tasks, "talk": talk}


class Measured:
    """What is measured on, and must not have been learnt."""

    def __init__(self, files: Iterable[Path], run: int) -> None:
        self.run, self.whole, self.runs = run, set[str](), set[str]()
        for row in (row for file in files for row in rows(file)):
            for turn in row["turns"]:
                words = WORD.findall(turn.lower())
                self.whole.add(" ".join(words))
                self.whole.add(" ".join(WORD.findall(turn.lower().rstrip().rpartition("\n")[2])))  # behind passages
                self.runs |= {" ".join(words[i : i + run]) for i in range(len(words) - run + 1)}

    def has(self, prompt: str) -> bool:
        """Whether a prompt, or its last line, is one of them or shares a run of words with one."""
        words = WORD.findall(prompt.lower())
        last = " ".join(WORD.findall(prompt.lower().rpartition("\n")[2]))
        if " ".join(words) in self.whole or last in self.whole:
            return True
        return any(" ".join(words[i : i + self.run]) in self.runs for i in range(len(words) - self.run + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held", type=Path, help="where some prompts of each family are kept apart")
    parser.add_argument("--apart", type=int, default=32, help="how many")
    parser.add_argument("--count", type=int, default=2000, help="prompts of a family at most")
    parser.add_argument("--characters", type=int, default=4800, help="of a prompt at most")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="prompts that must not be repeated")
    parser.add_argument("--run", type=int, default=10, help="words in a row that make a prompt a repetition")
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=(*FAMILIES, *MORE))
    parser.add_argument("--most", nargs="*", default=[], metavar="FAMILY=COUNT")
    args = parser.parse_args()
    counts = {name: int(number) for name, number in (each.split("=") for each in args.most)}
    measured, kept = Measured(args.against, args.run), dict[str, list[str]]()
    for family in args.families:
        chance, found, left = random.Random(1), dict[str, None](), 0
        for prompt in (FAMILIES | MORE)[family](args.data, chance):
            if len(found) >= counts.get(family, args.count) + (args.apart if args.held else 0):
                break
            if not 8 <= len(prompt) <= args.characters:
                continue
            if measured.has(prompt):
                left += 1
                continue
            found[prompt] = None
        kept[family] = list(found)
        size = sum(map(len, found))
        print(f"{family}: {len(found):,} prompts, {size:,} characters; {left:,} repeat what is measured", flush=True)
    if args.held:
        lines = [
            json.dumps({"family": f, "text": text}, ensure_ascii=False) for f in kept for text in kept[f][: args.apart]
        ]
        args.held.write_text("\n".join(lines) + "\n", encoding="utf-8")
        kept = {family: found[args.apart :] for family, found in kept.items()}
    texts = [json.dumps(text, ensure_ascii=False) for found in kept.values() for text in found]
    args.out.write_text("\n".join(texts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
