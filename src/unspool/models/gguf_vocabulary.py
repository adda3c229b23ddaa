"""The vocabulary inside a GGUF file: byte-level BPE ("gpt2") or SentencePiece BPE ("llama"), rebuilt from metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast, overload

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import NFC, Normalizer, Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from ..core.errors import BadModel
from .config_fields import ConfigFields
from .vocabulary import ENDINGS, Vocabulary, byte_level, sentence_piece

_NORMAL, UNKNOWN, CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

# How the words of Llama 3 and Qwen 2 are cut; they differ in how many digits stay together.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CUTS: Mapping[str, str] = {
    "smollm": "digits",
    "codeshell": "digits",
    "starcoder": "digits",
    "refact": "digits",
    "command-r": "digits",
    "gpt-2": "plain",
    "gpt2": "plain",
    "default": "plain",
    "phi-2": "plain",
    "qwen2": "qwen2",
    "deepseek-r1-qwen": "qwen2",
    "llama-bpe": "llama3",
    "llama3": "llama3",
    "llama-v3": "llama3",
}
_BEGINS_WITH_BOS = ("llama3",)


def read_vocabulary(metadata: Mapping[str, object], size: int, source: str) -> Vocabulary:
    """Rebuild the vocabulary of a GGUF file for a model with `size` logits."""
    fields = ConfigFields(metadata, source, "tokenizer.ggml.")
    kind = fields.text("model")
    names = _strings(fields, "tokens")
    types = _numbers(fields, "token_type", len(names), _NORMAL)
    if len(names) > size:
        raise BadModel(
            f"{source}: has {len(names)} tokens but only {size} logits. The file is damaged; download it again."
        )
    if kind == "gpt2":
        cut = _cut(fields)
        tokenizer, spell, wants_bos = _byte_level_bpe(fields, names, cut), byte_level, cut in _BEGINS_WITH_BOS
    elif kind == "llama":
        scores = _numbers(fields, "scores", len(names), 0.0)
        tokenizer, spell, wants_bos = _sentence_piece_bpe(fields, names, types, scores), sentence_piece, True
    else:
        raise BadModel(
            f"{source}: its tokenizer is {kind!r}; known: 'gpt2' (byte-level BPE) and 'llama' (SentencePiece BPE). "
            "Use a folder with tokenizer.json instead."
        )
    tokenizer.add_tokens(
        [
            AddedToken(name, special=type != _USER, normalized=_after_spaces(fields, kind, name))
            for name, type in zip(names, types, strict=True)
            if type in (CONTROL, _USER, UNKNOWN)
        ]
    )
    special = [token for token, type in enumerate(types) if type in (CONTROL, UNKNOWN)]
    bos = _token(fields, "bos_token_id", len(names))
    ends = [_token(fields, f"{end}_token_id", len(names)) for end in ("eos", "eot", "eom")]
    template = metadata.get("tokenizer.chat_template")
    return Vocabulary(
        tokenizer,
        SpeltTokens(names, types, spell, size),
        special=special,
        eos=[end for end in ends if end is not None] + [token for token in special if names[token] in ENDINGS],
        bos=bos,
        add_bos=fields.flag("add_bos_token", wants_bos),
        chat_template=template if isinstance(template, str) else None,
        names=_names(fields, names),
    )


def _byte_level_bpe(fields: ConfigFields, names: Sequence[str], cut: str) -> Tokenizer:
    parts = [merge.partition(" ") for merge in _strings(fields, "merges")]
    merges = [(left, right) for left, _, right in parts if left and right]
    if len(merges) != len(parts):
        bad = next("".join(part) for part in parts if not (part[0] and part[2]))
        raise fields.fail("merges", f"pairs like 'a b', not {bad!r}")
    tokenizer = _build(fields, names, merges, ignore_merges=cut == "llama3")
    normalizer, pre_tokenizer = _cutter(cut)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    return tokenizer


def _sentence_piece_bpe(
    fields: ConfigFields, names: Sequence[str], types: Sequence[float], scores: Sequence[float]
) -> Tokenizer:
    tokenizer = _build(fields, names, _merges(names, types, scores), byte_fallback=True)
    spaces = Replace(" ", "▁")
    tokenizer.normalizer = Normalizers([Prepend("▁"), spaces]) if fields.flag("add_space_prefix", True) else spaces
    return tokenizer


def _build(
    fields: ConfigFields,
    names: Sequence[str],
    merges: list[tuple[str, str]],
    ignore_merges: bool = False,
    byte_fallback: bool = False,
) -> Tokenizer:
    ids = dict(zip(names, range(len(names)), strict=True))
    if len(ids) != len(names):
        raise fields.fail("tokens", "names that differ from each other")
    try:
        model = BPE(ids, merges, ignore_merges=ignore_merges, byte_fallback=byte_fallback, fuse_unk=byte_fallback)
    except Exception as error:  # tokenizers raises the bare class
        raise BadModel(
            f"{fields.source}: its merges do not fit its tokens ({error}). Download the file again."
        ) from error
    return Tokenizer(model)


def _merges(names: Sequence[str], types: Sequence[float], scores: Sequence[float]) -> list[tuple[str, str]]:
    """List every join of two tokens into a third, best-scored result first: SentencePiece's rule as BPE merges."""
    scored = {name: score for name, type, score in zip(names, types, scores, strict=True) if type == _NORMAL}
    ranks = {name: rank for rank, name in enumerate(scored)}
    merges: list[tuple[str, str]] = []
    # sorted() is stable, so equal scores keep the order of the ids
    for name in sorted(scored, key=scored.__getitem__, reverse=True):
        halves = [(name[:at], name[at:]) for at in range(1, len(name))]
        pairs = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        if len(pairs) > 1:
            pairs.sort(key=lambda pair: (-len(pair[0]), ranks[pair[0]]))
        merges += pairs
    return merges


def _after_spaces(fields: ConfigFields, kind: str, name: str) -> bool:
    """Tell whether a token is a run of spaces, matched after spaces become ▁ (unless one is put in front)."""
    return kind == "llama" and not name.strip(" ") and not fields.flag("add_space_prefix", True)


def _cut(fields: ConfigFields) -> str:
    kind = fields.text("pre", "default")
    if kind not in _CUTS:
        raise BadModel(
            f"{fields.source}: its text is cut into words in the way {kind!r}; known: {', '.join(sorted(_CUTS))}. "
            "Use a folder with tokenizer.json instead."
        )
    return _CUTS[kind]


def _cutter(cut: str) -> tuple[Normalizer | None, PreTokenizer]:
    if cut == "plain":
        return None, ByteLevel(add_prefix_space=False)
    if cut == "digits":
        return None, PreTokenizers([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    words = Regex(_WORDS.replace("DIGITS", "{1,3}" if cut == "llama3" else ""))
    letters = ByteLevel(add_prefix_space=False, use_regex=False)
    # Qwen's own tokenizer.json composes characters first; the GGUF format has no key for it.
    normalizer = NFC() if cut == "qwen2" else None
    return normalizer, PreTokenizers([Split(words, "isolated"), letters])


class SpeltTokens(Sequence[bytes]):
    """The bytes of every token, each spelt when it is first asked for: a text has few of them.

    Padding of the output layer, up to `size`, has none.
    """

    def __init__(self, names: Sequence[str], types: Sequence[float], spell: Callable[[str], bytes], size: int) -> None:
        self._names, self._types, self._spell = names, types, spell
        self._found: list[bytes | None] = [None] * len(names) + [b""] * (size - len(names))

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...

    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        if isinstance(at, slice):
            return [self[token] for token in range(*at.indices(len(self)))]
        at = at if at >= 0 else at + len(self)
        found = self._found[at]
        if found is None:
            found = self._found[at] = self._spelt(self._names[at], self._types[at])
        return found

    def _spelt(self, name: str, type: float) -> bytes:
        if type in (CONTROL, UNKNOWN, _UNUSED):
            return b""
        if type == _USER and self._spell is not sentence_piece:
            return name.encode("utf-8")
        return self._spell(name)


def _names(fields: ConfigFields, names: Sequence[str]) -> dict[str, str]:
    """Return the token names that chat templates speak of."""
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    found = {key: _token(fields, f"{name}_token_id", len(names)) for key, name in keys.items()}
    return {key: names[token] for key, token in found.items() if token is not None}


def _token(fields: ConfigFields, name: str, size: int) -> int | None:
    token = fields.get(name)
    if token is None:
        return None
    if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < size:
        raise fields.fail(name, f"a token from 0 to {size - 1}")
    return token


def _strings(fields: ConfigFields, name: str) -> list[str]:
    found = fields.get(name)
    if not isinstance(found, list) or set(map(type, found)) != {str}:
        raise fields.fail(name, "a list of strings")
    return cast("list[str]", found)


def _numbers(fields: ConfigFields, name: str, count: int, default: float) -> list[float]:
    found = fields.get(name)
    if found is None:
        return [default] * count
    if not isinstance(found, list) or len(found) != count or not set(map(type, found)) <= {int, float, bool}:
        raise fields.fail(name, f"a list of {count} numbers")
    return cast("list[float]", found)
