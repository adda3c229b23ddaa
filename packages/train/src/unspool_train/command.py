"""Settings as a command line: a frozen dataclass whose fields carry their own help, read without any other package."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import torch

BASE = "smollm2"


def setting(default: Any, about: str) -> Any:
    """A field of the settings, with what the command line says of it."""
    return field(default=default, metadata={"help": about})


@dataclass(frozen=True)
class ModelSettings:
    """What all commands are told: which model, and where it runs."""

    model: str = setting(BASE, "A catalogue name, a .gguf file, or a folder of safetensors.")
    device: str = setting("auto", "cpu or cuda; auto takes a GPU if there is one.")


@dataclass(frozen=True)
class TrainingSettings(ModelSettings):
    """What those are told that train: on which documents, and how long."""

    corpus: str = setting("", "Files or folders of documents (.npz, .npz.gz), separated by commas.")
    steps: int = setting(0, "Stop after so many steps; 0: by time alone.")
    greedy: float = setting(0.5, "Share of greedy answers among the documents.")
    held: float = setting(0.01, "Share of the documents held out.")
    seed: int = setting(0, "The seed of the order of documents, and of all else that is drawn.")


def device_of(name: str) -> str:
    """The device of this name; auto is a GPU if there is one."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def command(settings: type[Any], about: str, run: Callable[[Any], object], argv: list[str] | None = None) -> int:
    """Run `run(settings)` with the options of a command line; every field of the settings is one."""
    parser = argparse.ArgumentParser(description=about)
    for own in fields(settings):
        flag, text = "--" + own.name.replace("_", "-"), own.metadata["help"].replace("%", "%%")
        if isinstance(own.default, bool):
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, type=type(own.default), default=own.default, help=f"{text} [{own.default}]")
    run(settings(**vars(parser.parse_args(argv))))
    return 0
