"""Every block format decodes to the same bits as the reference decoder of the format's own package."""

from __future__ import annotations

import pytest
import torch

from unspool.models.quant import CHUNK, FORMATS, UNREADABLE, dequantise

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")


def random_blocks(form, count, seed):
    """Random bytes, with every float16 scale made finite: a NaN has many spellings, and none is a weight."""
    blocks = torch.randint(
        0, 256, (count, form.width), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed)
    )
    scales = {
        "Q4_0": (0,),
        "Q8_0": (0,),
        "Q5_0": (0,),
        "Q6_K": (208,),
        "Q2_K": (80, 82),
        "Q3_K": (108,),
        "IQ4_NL": (0,),
        "IQ4_XS": (0,),
        "MXFP4": (),
    }.get(form.name, (0, 2))
    if form.name == "MXFP4":
        blocks[:, 0] = blocks[:, 0] & 0xBF  # the largest exponents overflow
    elif form.name in ("F32", "BF16"):
        blocks[:, -1] = blocks[:, -1] & 0xBF
    else:
        for at in scales if form.name != "F16" else (0,):
            blocks[:, at + 1] = blocks[:, at + 1] & 0xBF
    return blocks


@pytest.mark.parametrize("number", sorted(FORMATS), ids=lambda number: FORMATS[number].name)
def test_blocks_decode_bit_for_bit(number):
    form = FORMATS[number]
    blocks = random_blocks(form, 513, seed=number)
    ours = form.decode(blocks).reshape(-1)
    reference = gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType(number))
    assert ours.dtype == torch.float32
    assert torch.equal(
        ours.view(torch.int32), torch.from_numpy(np.ascontiguousarray(reference)).reshape(-1).view(torch.int32)
    )


@pytest.mark.parametrize("number", sorted(FORMATS), ids=lambda number: FORMATS[number].name)
def test_sizes_are_those_of_the_format(number):
    form = FORMATS[number]
    assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (form.size, form.width)
    assert gguf.GGMLQuantizationType(number).name == form.name


def test_unreadable_formats_are_named_and_measured_rightly():
    for number, form in UNREADABLE.items():
        assert gguf.GGMLQuantizationType(number).name == form.name
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (form.size, form.width)
    assert not set(UNREADABLE) & set(FORMATS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_chunks_change_nothing(dtype):
    form = FORMATS[3]
    blocks = random_blocks(form, CHUNK // form.size + 77, seed=1)
    assert torch.equal(dequantise(blocks, form, dtype), form.decode(blocks).reshape(-1).to(dtype))
