"""IFEval: instructions that a text follows or does not, each kind a small predicate written from its definition.

A few cannot be told without knowing languages: for those the answer is None, and they are counted apart. Sentences are
found by punctuation, and that a text in capitals is English is not checked, so that single verdicts near a border may
differ from the data set's own program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Given = Mapping[str, Any]
Check = Callable[[str, Given], "bool | None"]
ABBREVIATIONS = ("mr", "mrs", "ms", "dr", "st", "prof", "jr", "sr", "inc", "ltd", "co", "vs", "e.g", "i.e", "etc", "no")
ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
SCRIPTS = {
    "pa": "\u0a00-\u0a7f",
    "kn": "\u0c80-\u0cff",
    "bn": "\u0980-\u09ff",
    "gu": "\u0a80-\u0aff",
    "te": "\u0c00-\u0c7f",
    "th": "\u0e00-\u0e7f",
    "ko": "\uac00-\ud7af\u1100-\u11ff\u3130-\u318f",
    "hi": "\u0900-\u097f",
    "mr": "\u0900-\u097f",
    "fa": "\u0600-\u06ff",
    "ur": "\u0600-\u06ff",
    "bg": "\u0400-\u04ff",
}
LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
ALONE = ("pa", "kn", "bn", "gu", "te", "th", "ko")  # languages that a script is enough to tell


def _against(count: int, relation: str, number: int) -> bool:
    return count < number if relation == "less than" else count >= number


def sentences(text: str) -> int:
    """How many sentences: ends are . ! ? and … before a space or the end, except after abbreviations and numerals."""
    ends = 0
    for found in re.finditer(r"(\S*?)([.!?…]+)[\"'”’)\]]*(?=\s|$)", text):
        word = re.sub(r"^\W+", "", found.group(1)).lower()
        ends += found.group(2) != "." or not (word in ABBREVIATIONS or re.fullmatch(r"\d+|[a-z]", word))
    tail = re.split(r"[.!?…][\"'”’)\]]*(?:\s+|$)", text)[-1]
    return ends + bool(re.search(r"\w", tail))


def words(text: str) -> int:
    """How many words: runs of letters, digits and underscores."""
    return len(re.findall(r"\w+", text))


def _capitals(text: str, given: Given) -> bool:
    found = sum(word.isupper() for word in re.findall(r"[\w'’-]+", text))
    return _against(found, given["capital_relation"], given["capital_frequency"])


def _paragraphs(text: str, given: Given) -> bool:
    parts = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    inner = parts[1:-1]
    return all(inner) and sum(map(bool, parts)) == given["num_paragraphs"]


def _first_word(text: str, given: Given) -> bool:
    parts = [part.strip() for part in text.split("\n\n")]
    full = [part for part in parts if part]
    place = given["nth_paragraph"]
    if len(full) != given["num_paragraphs"] or place > len(parts) or not parts[place - 1]:
        return False
    first = re.match(r"[\"'“‘(*_]*([^\s.,?!\"'”’]+)", parts[place - 1])
    return first is not None and first.group(1).lower() == str(given["first_word"]).lower()


def _two(text: str, given: Given) -> bool:
    parts = [part.strip() for part in text.split("******")]
    full = [part for part in parts if part]
    return all(parts[1:-1]) and len(full) == 2 and full[0] != full[1]


def _json(text: str, given: Given) -> bool:
    inside = re.sub(r"^```(?:json)?|```$", "", text.strip(), flags=re.IGNORECASE).strip()
    try:
        json.loads(inside)
    except (ValueError, RecursionError):
        return False
    return True


def _sections(text: str, given: Given) -> bool:
    marks = re.findall(rf"{re.escape(given['section_spliter'])}\s?\d+", text)
    return len(marks) >= int(given["num_sections"])


def _bullets(text: str, given: Given) -> bool:
    return len(re.findall(r"^\s*(?:\*[^*\n]|-)", text, re.MULTILINE)) == int(given["num_bullets"])


def _highlights(text: str, given: Given) -> bool:
    double = re.findall(r"\*\*([^\n*]+)\*\*", text)
    single = re.findall(r"\*([^\n*]+)\*", re.sub(r"\*\*[^\n*]+\*\*", " ", text))
    return sum(bool(part.strip()) for part in (*double, *single)) >= int(given["num_highlights"])


def _postscript(text: str, given: Given) -> bool:
    letters = [re.escape(letter) for letter in given["postscript_marker"].lower() if letter.isalpha()]
    return re.search(r"\.\s?".join(letters) + r"\b", text.lower()) is not None


def _ends(text: str, given: Given) -> bool:
    return text.strip().strip('"').lower().endswith(given["end_phrase"].strip().lower())


def _quoted(text: str, given: Given) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def _frequent(text: str, given: Given) -> bool:
    found = text.lower().count(given["keyword"].strip().lower())
    return _against(found, given["relation"], given["frequency"])


def _letters(text: str, given: Given) -> bool:
    return _against(text.lower().count(given["letter"].lower()), given["let_relation"], given["let_frequency"])


def _unused(text: str, given: Given) -> bool:
    return not any(re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) for word in given["forbidden_words"])


def _language(text: str, given: Given) -> bool | None:
    """By script where that is enough; False if the script is another; else nobody here can tell."""
    language = given["language"]
    letters = [letter for letter in text if letter.isalpha()]
    if not letters:
        return False
    script = re.compile(f"[{SCRIPTS.get(language, LATIN)}]")
    written = sum(script.match(letter) is not None for letter in letters) * 2 > len(letters)
    return written if language in ALONE or not written else None


CHECKS: Mapping[str, Check] = {
    "change_case:capital_word_frequency": _capitals,
    "change_case:english_capital": lambda text, given: text.isupper(),
    "change_case:english_lowercase": lambda text, given: text.islower(),
    "combination:repeat_prompt": lambda text, given: (
        text.strip().lower().startswith(given["prompt_to_repeat"].strip().lower())
    ),
    "combination:two_responses": _two,
    "detectable_content:number_placeholders": lambda text, given: (
        len(re.findall(r"\[[^\[\]\n]*\]", text)) >= given["num_placeholders"]
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": lambda text, given: any(answer in text for answer in ANSWERS),
    "detectable_format:json_format": _json,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:title": lambda text, given: re.search(r"<<[^\n<>]*\S[^\n<>]*>>", text) is not None,
    "keywords:existence": lambda text, given: all(word.lower() in text.lower() for word in given["keywords"]),
    "keywords:forbidden_words": _unused,
    "keywords:frequency": _frequent,
    "keywords:letter_frequency": _letters,
    "language:response_language": _language,
    "length_constraints:nth_paragraph_first_word": _first_word,
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_sentences": lambda text, given: _against(
        sentences(text), given["relation"], given["num_sentences"]
    ),
    "length_constraints:number_words": lambda text, given: _against(words(text), given["relation"], given["num_words"]),
    "punctuation:no_comma": lambda text, given: "," not in text,
    "startend:end_checker": _ends,
    "startend:quotation": _quoted,
}
"""Every kind of instruction in the data set."""


@dataclass(frozen=True)
class Instructed:
    """A prompt with its instructions: the kind of each, and what it is given."""

    key: int
    prompt: str
    instructions: tuple[tuple[str, Given], ...]

    def strict(self, text: str) -> tuple[bool | None, ...]:
        """For each instruction whether the text follows it, None where that cannot be told; no text follows nothing."""
        return tuple(_followed(text, kind, given) for kind, given in self.instructions)

    def loose(self, text: str) -> tuple[bool | None, ...]:
        """The same, if it also holds without a first or last line, or without the asterisks of markdown."""
        tries = [self.strict(variant) for variant in _variants(text)]
        return tuple(True if any(column) else column[0] for column in zip(*tries, strict=True))


def _followed(text: str, kind: str, given: Given) -> bool | None:
    return CHECKS[kind](text, given) if text.strip() else False


def _variants(text: str) -> Iterable[str]:
    lines = text.split("\n")
    cut = ["\n".join(part).strip() for part in (lines, lines[1:], lines[:-1], lines[1:-1])]
    return [text, *cut[1:], *(part.replace("*", "") for part in (text, *cut[1:]))]


def read_instructed(path: Path) -> list[Instructed]:
    """The prompts of input_data.jsonl."""
    found: list[Instructed] = []
    for record in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        given = [{name: value for name, value in part.items() if value is not None} for part in record["kwargs"]]
        pairs = tuple(zip(record["instruction_id_list"], given, strict=True))
        found.append(Instructed(record["key"], record["prompt"], pairs))
    return found
