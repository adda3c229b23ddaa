"""The vocabulary of a Hugging Face folder: tokenizer.json, with the settings files that lie beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from tokenizers import Tokenizer

from ..core.errors import BadModel
from ..core.files import MODEL, read_text
from .vocabulary import ENDINGS, Vocabulary, byte_level, sentence_piece


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Read tokenizer.json and its neighbours for a model with `size` logits."""
    path = folder / "tokenizer.json"
    try:
        raw = read_text(path, MODEL)
        tokenizer, layout = Tokenizer.from_str(raw), json.loads(raw)
    except FileNotFoundError as error:
        raise BadModel(
            f"{path}: is missing. Save the fast tokenizer into the folder (save_pretrained does)."
        ) from error
    except Exception as error:  # tokenizers raises the bare class
        raise BadModel(f"{path}: cannot be read as a tokenizer ({error}). Download it again.") from error
    settings = _optional(folder / "tokenizer_config.json")
    others = [_optional(folder / name) for name in ("config.json", "generation_config.json")]
    added = {entry["id"]: entry for entry in layout.get("added_tokens", ())}
    special = {token for token, entry in added.items() if entry["special"]}
    kinds = ("bos_token", "eos_token", "unk_token", "pad_token")
    names = {key: name for key in kinds if (name := _name(settings.get(key), key, folder))}
    bos = tokenizer.token_to_id(names["bos_token"]) if "bos_token" in names else None
    lead = _lead(tokenizer)
    eos = {token for group in others for token in _tokens(group.get("eos_token_id")) if token < size}
    eos |= {token for token in special if added[token]["content"] in ENDINGS}
    if "eos_token" in names and (end := tokenizer.token_to_id(names["eos_token"])) is not None:
        eos.add(end)
    return Vocabulary(
        tokenizer,
        _pieces(tokenizer, layout, added, size, path),
        special=special,
        eos=eos,
        bos=lead if bos is None else bos,
        add_bos=lead is not None and lead == (lead if bos is None else bos),
        chat_template=_template(folder, settings),
        names=names,
    )


def write_vocabulary(folder: Path, vocabulary: Vocabulary) -> None:
    """Write tokenizer.json and tokenizer_config.json, from which `read_vocabulary` makes the same vocabulary."""
    layout = json.loads(vocabulary.tokenizer.to_str())
    if layout.get("decoder") is None:  # ours decode by the bytes of tokens, so those of GGUF files have none
        by_bytes = '"ByteLevel"' in json.dumps(layout.get("pre_tokenizer"))
        plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        layout["decoder"] = plain if by_bytes else {"type": "ByteFallback"}
    settings = {**vocabulary.named, "chat_template": vocabulary.chat_template}
    (folder / "tokenizer.json").write_text(json.dumps(layout), encoding="utf-8")
    told = {name: value for name, value in settings.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")


def _lead(tokenizer: Tokenizer) -> int | None:
    """Return the token that the tokenizer itself puts before a text, or None."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    full = tokenizer.encode("a", add_special_tokens=True).ids
    return full[0] if len(full) > len(bare) and full[1 : 1 + len(bare)] == bare else None


def _pieces(
    tokenizer: Tokenizer, layout: Mapping[str, object], added: Mapping[int, Mapping[str, object]], size: int, path: Path
) -> list[bytes]:
    decoder = json.dumps(layout.get("decoder"), ensure_ascii=False)
    if '"ByteLevel"' in decoder:
        spell = byte_level
    elif '"ByteFallback"' in decoder or '"Metaspace"' in decoder or "▁" in decoder:
        spell = sentence_piece
    else:
        raise BadModel(
            f"{path}: its decoder is neither byte-level nor SentencePiece, so tokens have no exact bytes. "
            "Use the transformers runtime for this model."
        )
    pieces = [b""] * size
    for name, token in tokenizer.get_vocab(with_added_tokens=True).items():
        if token >= size:
            if token in added:
                continue  # a name without a logit, such as the image token of a text model, is never written
            raise BadModel(
                f"{path}: token {token} has no logit; the model has {size}. The tokenizer is another model's."
            )
        entry = added.get(token)
        if entry is None:
            pieces[token] = spell(name)
        elif not entry["special"]:
            pieces[token] = str(entry["content"]).replace("▁", " " if spell is sentence_piece else "▁").encode("utf-8")
    return pieces


def _optional(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(read_text(path, MODEL))
    except (OSError, ValueError, RecursionError) as error:
        raise BadModel(f"{path}: cannot be read as JSON ({error}). Download it again, or delete it.") from error
    return found if isinstance(found, dict) else {}


def _name(value: object, key: str, folder: Path) -> str | None:
    """Return a token's name, which these files give either plainly or inside a description."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return _text(value, folder / "tokenizer_config.json", key) if isinstance(value, str) else None


def _text(value: str, path: Path, key: str) -> str:
    """A string of a file, refused if it is no Unicode text: JSON can spell half a character."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadModel(f"{path}: {key!r} holds a lone surrogate, which is no text. The file is damaged.") from error
    return value


def _tokens(value: object) -> Iterable[int]:
    found = value if isinstance(value, list) else [value]
    return [token for token in found if isinstance(token, int) and token >= 0]


def _template(folder: Path, settings: Mapping[str, object]) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return read_text(file, MODEL)
        except (OSError, UnicodeDecodeError) as error:
            raise BadModel(f"{file}: cannot be read as text ({error}). Download it again, or delete it.") from error
    found, path = settings.get("chat_template"), folder / "tokenizer_config.json"
    if isinstance(found, list):
        # Several named templates: the one without a purpose of its own is called "default".
        if not all(isinstance(item, Mapping) for item in found):
            raise BadModel(
                f"{path}: 'chat_template' is a list of other things than templates with names; expected those"
            )
        found = next((item.get("template") for item in found if item.get("name") == "default"), None)
    if found is not None and not isinstance(found, str):
        raise BadModel(f"{path}: 'chat_template' is a {type(found).__name__}; expected a text. The file is damaged.")
    return None if found is None else _text(found, path, "chat_template")
