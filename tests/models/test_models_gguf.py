"""The GGUF reader: what was written is read, and what is broken is refused with words."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unspool.core.errors import BadModel
from unspool.models.gguf import GGUF


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def written(values=(), tensors=(), version=3, magic=b"GGUF", alignment=32, counts=None):
    """Write a GGUF file: values are (key, type, packed bytes), tensors are (name, dims, type, bytes)."""
    count = counts or (len(tensors), len(values))
    out = magic + struct.pack("<IQQ", version, *count)
    for key, kind, packed in values:
        out += text(key) + struct.pack("<I", kind) + packed
    body = b""
    for name, dims, kind, data in tensors:
        body += b"\0" * (-len(body) % alignment)
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, len(body))
        body += data
    return out + b"\0" * (-len(out) % alignment) + body


SAMPLE = written(
    [
        ("general.architecture", 8, text("llama")),
        ("a.flag", 7, b"\1"),
        ("a.whole", 4, struct.pack("<I", 7)),
        ("a.real", 6, struct.pack("<f", 0.5)),
        ("a.words", 9, struct.pack("<IQ", 8, 2) + text("é") + text("")),
        ("a.numbers", 9, struct.pack("<IQ3i", 5, 3, 1, -2, 3)),
        ("a.nested", 9, struct.pack("<IQ", 9, 1) + struct.pack("<IQ2B", 0, 2, 8, 9)),
    ],
    [
        ("x", (3, 2), 0, struct.pack("<6f", *range(6))),
        ("y", (32,), 8, struct.pack("<e32b", 0.25, *range(-16, 16))),
    ],
)


@pytest.fixture
def saved(tmp_path):
    def save(raw: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(raw)
        return path

    return save


def test_reads_what_was_written(saved):
    file = GGUF(saved(SAMPLE))
    assert file.metadata == {
        "general.architecture": "llama",
        "a.flag": True,
        "a.whole": 7,
        "a.real": 0.5,
        "a.words": ["é", ""],
        "a.numbers": [1, -2, 3],
        "a.nested": [[8, 9]],
    }
    assert torch.equal(file.tensor("x"), torch.arange(6.0).reshape(2, 3))
    assert torch.equal(file.tensor("y", torch.float16), torch.arange(-16, 16).half() / 4)
    assert file.bytes == len(SAMPLE)


def test_agrees_with_the_reference_writer(tmp_path):
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(64)
    writer.add_array("tokenizer.ggml.tokens", ["a", "ü", "😀"])
    weights = np.random.default_rng(0).normal(size=(4, 256)).astype(np.float32)
    kinds = [gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1")]
    for kind in kinds:
        writer.add_tensor(kind.name, gguf.quants.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GGUF(path)
    assert file.metadata["tokenizer.ggml.tokens"] == ["a", "ü", "😀"]
    for kind in kinds:
        expected = gguf.quants.dequantize(gguf.quants.quantize(weights, kind), kind)
        assert torch.equal(file.tensor(kind.name), torch.from_numpy(expected.astype(np.float32)).reshape(4, 256))


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "is empty"),
        (b"GG", "magic number needs 4 bytes"),
        (b"PK\3\4" + b"\0" * 40, "begins with b'PK"),
        (written(version=0x03000000), "big-endian"),
        (written(version=1), "version 1"),
        (written(version=9), "version 9"),
        (written(counts=(HUGE, 0)), "cannot fit"),
        (written(counts=(0, HUGE)), "cannot fit"),
        (written([("k", 8, struct.pack("<Q", HUGE))]), "the file ends after"),
        (written([("k", 9, struct.pack("<IQ", 8, HUGE))]), "cannot fit"),
        (written([("k", 9, struct.pack("<IQ", 4, HUGE))]), "cannot fit"),
        (written([("k", 9, struct.pack("<IQ", 8, 1) + struct.pack("<Q", HUGE) + b"\0" * 64)]), "past the end"),
        (written([("k", 9, struct.pack("<IQ", 9, 1) * 6 + b"\0" * 64)]), "deep"),
        (written([("k", 77, b"")]), "unknown value type 77"),
        (written([("k", 8, text(b"\xff\xfe"))]), "not valid UTF-8"),
        (written([("k", 9, struct.pack("<IQ", 8, 1) + text(b"\xff"))]), "not valid UTF-8"),
        (written([(b"\xff", 4, struct.pack("<I", 1))]), "not valid UTF-8"),
        (written([("k", 4, struct.pack("<I", 1))] * 2), "appears twice"),
        (written([("general.alignment", 4, struct.pack("<I", 3))]), "power of two"),
        (written([("general.alignment", 8, text("x"))]), "power of two"),
        (written(tensors=[("x", (3,), 0, bytes(12))] * 2), "appears twice"),
        (written(tensors=[("x", (), 0, b"")]), "0 dimensions"),
        (written(tensors=[("x", (0,), 0, bytes(12))]), "cannot fill"),
        (written(tensors=[("x", (33,), 8, bytes(64))]), "cannot fill"),
        (written(tensors=[("x", (1 << 40, 1 << 40), 0, bytes(64))]), "cut short"),
        (written(tensors=[("x", (3,), 0, bytes(11))]), "cut short"),
        (written(tensors=[("x", (256,), 16, bytes(66))]), "stored as IQ2_XXS.*these can: BF16"),
        (written(tensors=[("x", (256,), 99, bytes(84))]), "unknown type 99"),
    ],
)
def test_broken_files_are_refused_with_words(saved, raw, words):
    with pytest.raises(BadModel, match=words) as caught:
        GGUF(saved(raw))
    assert "model.gguf" in str(caught.value)


def test_a_missing_file_or_tensor_is_named(tmp_path, saved):
    with pytest.raises(BadModel, match=r"nowhere\.gguf"):
        GGUF(tmp_path / "nowhere.gguf")
    with pytest.raises(BadModel, match="cannot be opened"):
        GGUF(tmp_path)
    with pytest.raises(BadModel, match="no tensor 'z'"):
        GGUF(saved(SAMPLE)).tensor("z")


def loads_or_refuses(path):
    try:
        file = GGUF(path)
        for name in file.directory:
            file.tensor(name)
    except BadModel:
        pass


@pytest.mark.parametrize("size", range(0, len(SAMPLE), 5))
def test_truncated_files_are_refused(saved, size):
    with pytest.raises(BadModel):
        GGUF(saved(SAMPLE[:size]))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_any_flipped_bytes_load_or_are_refused(saved, changes):
    raw = bytearray(SAMPLE)
    for at, byte in changes:
        raw[at] = byte
    loads_or_refuses(saved(bytes(raw)))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_any_bytes_after_the_magic_load_or_are_refused(saved, noise):
    loads_or_refuses(saved(b"GGUF\3\0\0\0" + noise))
