"""Packed weights: the kernels multiply the numbers of the file, rows do not feel each other, and kernels may lack."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import PACKED, random_blocks
from patience import until

from unspool.core.law import Law, best_of
from unspool.models.quant import QuantBlocks
from unspool.runtime.cpu import compiled as build
from unspool.runtime.cpu import kernel_outputs, packed
from unspool.runtime.cpu.compiled import Kernels, NoKernels
from unspool.runtime.cpu.packed import PAGE, REGION, DecodedLinear, HugePages, PackedLinear, table_of

X86 = platform.machine().lower() in ("x86_64", "amd64")
LEVELS = {
    "native": None,
    "avx2 vnni": ("-march=x86-64-v3", "-mavxvnni", "-O1"),
    "avx2": ("-march=x86-64-v3", "-O1"),
    "portable": ("-O1", "-U__SSE2__"),
}


@pytest.fixture(scope="module", params=LEVELS)
def native(request: pytest.FixtureRequest) -> Kernels:
    """The kernels as this machine compiles them, and those of machines that can do less."""
    options = LEVELS[request.param]
    if options is None:
        found = build.kernels()
    elif request.param == "avx2" and not (X86 and torch.backends.cpu.get_cpu_capability().startswith("AVX")):
        pytest.skip("this machine has no AVX2")
    elif request.param == "avx2 vnni" and "avx_vnni" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no VNNI beside AVX2")
    else:
        try:
            found = Kernels(build.compiled(options))
        except NoKernels as why:
            pytest.skip(str(why))
    if found is None:
        pytest.skip(f"no kernels: {build.missing()}")
    assert request.param in ("native", found.level)
    return found


def in_eight_bits(x: torch.Tensor) -> torch.Tensor:
    """What the kernels make of their inputs: 32 numbers share a scale, and the largest of them is 127 of it."""
    blocks = x.view(len(x), -1, 32)
    most = blocks.abs().amax(2, keepdim=True)
    inverse = torch.where(most > 0, 127 / most, 0.0)
    return ((blocks * inverse).round().double() * (most / 127)).view(x.shape)


@pytest.mark.parametrize("name", PACKED)
def test_a_row_of_a_table_is_decoded_to_the_last_bit(native, name):
    blocks, found = random_blocks(name, 5, 512, seed=8), torch.empty(512)
    table = table_of(blocks)
    assert table is not None
    for row, want in enumerate(blocks.whole()):
        native.decode(table.kind, table.rows + row * table.bytes, 512, found.data_ptr())
        assert torch.equal(found, want)
    assert table_of(blocks.whole()) is None
    assert table_of(QuantBlocks(blocks.format, blocks.data.t())) is None


@pytest.mark.parametrize("name", PACKED)
def test_a_product_is_that_of_the_decoded_matrix_and_inputs_in_eight_bits(native, name):
    made = torch.Generator().manual_seed(3)
    shapes = [(40, 512, 9), (7, 256, 1), (16, 768, 4), (97, 256, 3), (33, 256, 2), (20, 512, 21)]
    if not name.endswith("_K"):  # as wide as small models are: no whole number of 128
        shapes += [(18, 576, 5), (9, 96, 2), (33, 160, 1), (16, 32, 4)]
    for rows, columns, count in shapes:
        blocks = random_blocks(name, rows, columns, seed=rows)
        x = torch.randn(count, columns, generator=made) * torch.rand(count, 1, generator=made) * 30
        x[0, :32] = 0  # a block without a scale
        bias = torch.randn(rows, generator=made)
        want = in_eight_bits(x) @ blocks.whole().double().T + bias
        off = (PackedLinear([blocks], bias, native)(x) - want).abs().max()
        size = (x.abs().double() @ blocks.whole().double().abs().T).max()
        assert off <= 1e-6 * size
        # and the rounding explains how far it is from the product of the inputs themselves
        steps = x.view(count, -1, 32).abs().amax(2) / 127
        room = (steps.double() @ blocks.whole().double().abs().view(rows, -1, 32).sum(2).T) / 2 + 1e-6 * size
        assert ((want - (x.double() @ blocks.whole().double().T + bias)).abs() <= room).all()


@given(st.lists(st.sampled_from(PACKED), min_size=1, max_size=3), st.integers(1, 20), st.integers(1, 3), st.data())
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_row_gives_is_its_own_affair(native, names, count, threads, data):
    parts = [random_blocks(name, data.draw(st.integers(1, 40)), 256, seed=7) for name in names]
    linear, x = PackedLinear(parts, None, native), torch.randn(count, 256)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        together = linear(x)
        torch.set_num_threads(1)
        alone = torch.cat([linear(row[None]) for row in x])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(together, alone)
    assert torch.equal(together, torch.cat([PackedLinear([part], None, native)(x) for part in parts], 1))


def test_what_is_not_a_number_is_told_on(native):
    linear, x = PackedLinear([random_blocks("Q4_1", 20, 256)], None, native), torch.randn(3, 256)
    for bad in (float("nan"), float("inf")):
        spoilt = x.clone()
        spoilt[1, 100] = bad
        y = linear(spoilt)
        assert not y[1].isfinite().any()
        assert torch.equal(y[[0, 2]], linear(x)[[0, 2]])


@given(st.integers(1, 90), st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_best_tokens_are_the_largest_logits_and_of_equals_the_first(native, size, rows, k, seed):
    made = torch.Generator().manual_seed(seed)
    logits, k = torch.randint(-4, 5, (rows, size), generator=made).float(), min(k, size)  # many are equal
    values, tokens = torch.empty(rows, k), torch.empty(rows, k, dtype=torch.int32)
    native.best(logits.data_ptr(), rows, size, k, values.data_ptr(), tokens.data_ptr())
    order = sorted(range(size), key=lambda token: -logits[0, token])  # which leaves equals in their order
    assert tokens[0].tolist() == order[:k]
    assert torch.equal(values, logits.sort(1, descending=True).values[:, :k])
    for bad in (float("nan"), float("inf"), -float("inf")):
        spoilt = logits.clone()
        spoilt[-1, seed % size] = bad
        native.best(spoilt.data_ptr(), rows, size, k, values.data_ptr(), tokens.data_ptr())
        assert set(tokens[-1].tolist()) == {-1}
        assert rows == 1 or tokens[0].tolist() == order[:k]


@pytest.mark.parametrize("size", [5, 16, 1000, 49152])
def test_the_best_tokens_and_their_probabilities_are_those_of_pytorch(size):
    if build.kernels() is None:
        pytest.skip(f"no kernels: {build.missing()}")
    logits = torch.randn(4, size, generator=torch.Generator().manual_seed(size))
    for found, want in zip(kernel_outputs.best_of(logits, 8), best_of(logits, 8), strict=True):
        assert [token for token, _ in found] == [token for token, _ in want]
        assert [p for _, p in found] == pytest.approx([p for _, p in want], abs=1e-6)
    for found, row in zip(kernel_outputs.likeliest(logits, 8), logits, strict=True):
        law = Law(row)
        assert [token for token, _ in found] == law.top(8)
        assert [p for _, p in found] == pytest.approx([law[token] for token, _ in found], rel=1e-5)
    for bad in (float("nan"), float("inf")):
        logits[2, size // 2] = bad
        assert kernel_outputs.likeliest(logits, 8) is None
    forbidden = torch.full((1, size), -float("inf"))
    forbidden[0, 3] = 1.5
    assert kernel_outputs.best_of(forbidden, 2)[0][0] == (3, 1.0)


SANITISED = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from packing import PACKED, random_blocks
from unspool.runtime.cpu.compiled import Kernels
from unspool.runtime.cpu.packed import PackedLinear
torch.set_num_threads(1)
native = Kernels(Path(sys.argv[1]))
for name in PACKED:
    blocks = random_blocks(name, 20, 256)
    for data in (blocks.data, torch.full_like(blocks.data, 255), torch.zeros_like(blocks.data)):
        linear = PackedLinear([type(blocks)(blocks.format, data)], None, native)
        for bad in (0.0, 1.0, 1e-40, 3e38, float("inf"), float("nan")):
            x = torch.randn(9, 256)
            x[3, 5], x[4] = bad, bad
            y = linear(x).contiguous()
            values, tokens = torch.empty(9, 20), torch.empty(9, 20, dtype=torch.int32)
            for k in (1, 8, 20):
                native.best(y.data_ptr(), 9, 20, k, values.data_ptr(), tokens.data_ptr())
            most, totals = y.amax(1).contiguous(), torch.empty(9, dtype=torch.float64)
            native.sums(y.data_ptr(), 9, 20, most.data_ptr(), totals.data_ptr())
"""


@pytest.mark.slow
def test_no_number_of_a_file_or_a_text_is_undefined_behaviour(tmp_path: Path):
    options = ("-march=native", "-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all", "-static-libubsan")
    try:
        library = build.compiled(options, tmp_path / "kept")
    except NoKernels as why:
        pytest.skip(str(why))
    call = [sys.executable, "-c", SANITISED, str(library), str(Path(random_blocks.__code__.co_filename).parent)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_several_threads_may_call_at_once_and_a_fork_has_threads_of_its_own(native):
    linear, x = PackedLinear([random_blocks("Q4_0", 400, 256)], None, native), torch.randn(5, 256)
    torch.set_num_threads(2)
    want, wrong = linear(x), []
    callers = [
        threading.Thread(target=lambda: wrong.extend(i for i in range(30) if not torch.equal(linear(x), want)))
        for _ in range(3)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a child that waits for its parent's threads would wait for ever
        for _ in range(3):
            if not torch.equal(linear(x), want):
                os._exit(1)
            time.sleep(0.02)  # its own threads fall asleep in between
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("threads", [2, 3])
def test_a_large_matrix_is_put_into_tiles_by_all_threads(native, monkeypatch, threads):
    blocks = [random_blocks(name, 300, 256) for name in ("Q4_1", "Q6_K")]
    torch.set_num_threads(1)
    alone = PackedLinear(blocks, None, native)
    monkeypatch.setattr(packed, "SMALL", 1000)
    torch.set_num_threads(threads)
    together = PackedLinear(blocks, None, native)
    torch.set_num_threads(1)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(together.tiles, alone.tiles, strict=True))


def test_without_kernels_blocks_are_decoded():
    blocks, bias, x = random_blocks("Q4_K", 20, 256), torch.randn(20), torch.randn(3, 256)
    assert torch.equal(DecodedLinear([blocks], bias)(x), torch.nn.functional.linear(x, blocks.whole(), bias))


def test_a_library_that_cannot_be_loaded_is_none(tmp_path: Path, monkeypatch):
    stub = tmp_path / "bin" / "cc"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\nexit 0\n")  # and leaves an empty file
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:/usr/bin:/bin")
    monkeypatch.setattr(build, "home_folder", lambda: tmp_path / "kept")
    found = build._native.__wrapped__()
    assert isinstance(found, str)
    assert "has written nothing" in found
    assert not list((tmp_path / "kept").iterdir())  # a compiler that is mended later is asked again
    stub.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho code > "$2"\n')
    found = build._native.__wrapped__()
    assert isinstance(found, str)
    (damaged,) = (tmp_path / "kept").iterdir()
    assert found.startswith("they cannot be loaded")
    assert f"without {damaged} they are compiled anew" in found


def test_a_compiler_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path, monkeypatch):
    stub, number = tmp_path / "cc", tmp_path / "number"
    stub.write_text(f"#!/bin/sh\n/bin/sleep 1000 &\necho $! > {number}\nwait\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(build, "SECONDS", 0.5)
    with pytest.raises(NoKernels, match=r"has not compiled them after 0\.5 seconds"):
        build.compiled((), tmp_path / "kept")

    def gone() -> bool:
        try:
            os.kill(int(number.read_text()), 0)
        except ProcessLookupError:
            return True
        return Path(f"/proc/{number.read_text().strip()}/stat").read_text().split()[2] == "Z"

    until(gone)


def test_what_is_compiled_is_loaded_again_whatever_the_umask(tmp_path: Path, monkeypatch):
    stub = tmp_path / "cc"
    stub.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nrm "$2"\necho code > "$2"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    before = os.umask(0)
    try:
        assert build.compiled((), tmp_path / "kept") == build.compiled((), tmp_path / "kept")
    finally:
        os.umask(before)


def test_nobody_can_put_another_folder_in_its_place(tmp_path: Path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(NoKernels, match="everybody may put another folder in place"):
        build.compiled((), tmp_path / "open" / "home" / "native")


def test_a_compiler_is_called_once_and_only_where_nobody_else_writes(tmp_path: Path, monkeypatch):
    calls = tmp_path / "calls"
    stub = tmp_path / "bin" / "cc"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\necho x >> {calls}\nwhile [ "$1" != -o ]; do shift; done\necho code > "$2"\n')
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub.parent}:/usr/bin:/bin")
    folder = tmp_path / "kept"
    assert build.compiled(("-x",), folder) == build.compiled(("-x",), folder)
    assert build.compiled(("-y",), folder) != build.compiled(("-x",), folder)
    assert calls.read_text().count("x") == 2
    assert not list(folder.glob("*.part"))
    folder.chmod(0o777)
    with pytest.raises(NoKernels, match="others may write"):
        build.compiled(("-x",), folder)


def test_a_compiler_that_is_missing_or_fails_is_no_error_but_a_reason(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoKernels, match="no C compiler"):
        build.compiled((), tmp_path / "kept")
    stub = tmp_path / "cc"
    stub.write_text("#!/bin/sh\necho it is broken >&2\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(NoKernels, match="it is broken"):
        build.compiled((), tmp_path / "kept")
    assert not list((tmp_path / "kept").iterdir())
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path))
    build._native.cache_clear()
    try:
        assert build.kernels() is None
        assert "it is broken" in build.missing()
    finally:
        build._native.cache_clear()


def test_memory_in_huge_pages_is_nobody_elses():
    memory = HugePages()
    sizes = (1, 100, REGION - 64, 7, REGION + PAGE, 64)
    pieces = [memory.take(size) for size in sizes]
    assert [len(piece) for piece in pieces] == list(sizes)
    spans = sorted((piece.data_ptr(), piece.data_ptr() + len(piece)) for piece in pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert not any(start % 64 for start, _ in spans)
    for number, piece in enumerate(pieces):
        piece[0] = piece[-1] = number  # and it may be written, to its last byte
    del memory
    assert [int(piece[-1]) for piece in pieces] == list(range(len(pieces)))
