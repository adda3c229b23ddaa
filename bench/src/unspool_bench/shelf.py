"""Schemas with instances that are known to be valid or not, read from a folder."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from unspool.core.errors import BadRequest

DRAFTS = {
    "draft3": "http://json-schema.org/draft-03/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
"""What a schema of the JSON Schema test suite is written in, where it does not say so itself."""


class Instance(NamedTuple):
    """A value, and whether the schema accepts it."""

    data: Any
    valid: bool


@dataclass(frozen=True)
class SchemaCase:
    """A schema, the part of the collection it belongs to, and its instances."""

    name: str
    split: str
    schema: Any
    tests: tuple[Instance, ...]


def cases(folder: Path, splits: Sequence[str] = (), limit: int | None = None) -> list[SchemaCase]:
    """The schemas of a folder, at most `limit`, in an order that has nothing to do with what is in them.

    Read are `*.jsonl`, `*.jsonl.gz` and `*.jsonl.zst` with an object per line (id, split or file, schema, tests), and
    `*.json` with one schema and its tests each, as MaskBench has them (`SPLIT---NAME.json`).
    """
    if not folder.is_dir():
        raise BadRequest(f"{folder} is not a folder; give one with schemas and their tests, as docs/constrain.md says")
    found = [case for path in sorted(folder.iterdir()) for case in _cases(path)]
    if not found:
        raise BadRequest(f"{folder} has no schemas: expected .jsonl, .jsonl.gz, .jsonl.zst or .json files with tests")
    known = sorted({case.split for case in found})
    if absent := [split for split in splits if split not in known]:
        raise BadRequest(f"{folder} has no split {absent[0]!r}; there are: {', '.join(known)}")
    chosen = [case for case in found if not splits or case.split in splits]
    return sorted(chosen, key=lambda case: hashlib.sha256(case.name.encode()).digest())[:limit]


def _cases(path: Path) -> Iterator[SchemaCase]:
    try:
        if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
            for line in _unpacked(path).splitlines():
                record = json.loads(line)
                if isinstance(record, dict) and "tests" in record:
                    yield _case(record, str(record.get("id")), _split(record))
        elif path.suffix == ".json":
            record = json.loads(path.read_bytes())
            if isinstance(record, dict) and "schema" in record:
                yield _case(record, path.stem, path.stem.split("---")[0])
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"{path} cannot be read as schemas with tests: {error!r}") from None


def _split(record: dict[str, Any]) -> str:
    """The part of a collection; in the test suite the keyword that a file is about, whatever the draft."""
    return str(record.get("split") or str(record.get("file")).split("/", 1)[-1].removesuffix(".json"))


def _case(record: dict[str, Any], name: str, split: str) -> SchemaCase:
    schema = record["schema"]
    if record.get("draft") in DRAFTS and isinstance(schema, dict) and "$schema" not in schema:
        schema = {"$schema": DRAFTS[record["draft"]], **schema}
    tests = tuple(Instance(test["data"], bool(test["valid"])) for test in record.get("tests", ()))
    return SchemaCase(name, split, schema, tests)


def _unpacked(path: Path) -> bytes:
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    if path.suffix != ".zst":
        return path.read_bytes()
    if shutil.which("zstd") is None:
        raise BadRequest(f"{path} needs the program zstd to be unpacked; install it, or unpack the file yourself")
    return subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
