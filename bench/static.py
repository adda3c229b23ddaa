"""What a step under a set of items costs: STATIC against a trie in Python and a binary search, in one run.

    python bench/static.py [--device cpu cuda] [--items N …] [--vocab V …] [--rows 140] [--large] [--json FILE]

A step takes the scores [rows, vocab] where they are, gives them back with −∞ for what may not follow, and goes on by
one given token per row. Before anything is timed, all ways must give the same masks at every depth. The ways:

- `trie`: dicts of dicts, and one mask per row, made on the host and copied, as a constraint of a decoder does it;
- `tuned`: the same, but equal rows share a mask, and all masks are one pinned tensor, filled and copied at once;
- `pairs`: only the positions of what may follow are copied, and scattered on the device;
- `binary`: on the device, every token of the vocabulary is searched for in the sorted items, by one sorted column of
  numbers per depth or by halving each row's range in the item matrix, whichever is faster at a depth;
- `static`: ItemSet.masked and ItemSet.step;
- `sparse`: ItemSet.candidates at depths where few tokens may follow: the same scores as a list with the nodes after
  them, and nothing as wide as the vocabulary; at other depths it is `static`.

Times are medians over repeats of the whole step, host included, until the device is done; the table has their means
over all depths, in the first of which all rows are at the root. `graph` is static's step replayed as a captured graph,
`binary graph` the search's: what the device alone takes, which is what is left where a decoder's step is a graph. The
bars are static's against the trie, which needs the host at every step, and graph against graph.
"""

from __future__ import annotations

import argparse
import gc
from array import array
from collections.abc import Callable
from functools import partial
from statistics import mean, median
from time import perf_counter
from typing import Any, Protocol

import torch
from record import save
from torch import Tensor

from unspool.rules.constrain.itemset import ROOT, ItemSet
from unspool.rules.constrain.listing import Listing

LENGTH = 5  # tokens per item
DEEP = 2  # the depth from which on few tokens may follow
SECONDS = 0.2  # for which a step is repeated, at least thrice
BARS = {"trie": 100.0, "binary graph": 10.0}  # how many times faster static is to be on a GPU, from a million items on
NEVER = float("-inf")


class Way(Protocol):
    """One way to keep rows to a set of items; its states are whatever it likes."""

    def start(self, rows: int) -> Any: ...
    def masked(self, states: Any, scores: Tensor, depth: int) -> Tensor: ...
    def step(self, states: Any, tokens: Tensor, depth: int) -> Any: ...


class Static:
    """The sparse matrix."""

    def __init__(self, items: ItemSet) -> None:
        self.items = items

    def start(self, rows: int) -> Tensor:
        return torch.full((rows,), ROOT, device=self.items.device)

    def masked(self, states: Tensor, scores: Tensor, depth: int) -> Tensor:
        return self.items.masked(states, scores)

    def step(self, states: Tensor, tokens: Tensor, depth: int) -> Tensor:
        return self.items.step(states, tokens)


class Trie:
    """Dicts of dicts, a mask per row."""

    def __init__(self, root: dict[int, Any], stop: int, device: str) -> None:
        self.root, self.stop, self.device = root, stop, device

    def start(self, rows: int) -> list[dict[int, Any]]:
        return [self.root] * rows

    def masked(self, states: list[dict[int, Any]], scores: Tensor, depth: int) -> Tensor:
        masks = []
        for node in states:
            mask = torch.zeros(scores.shape[1], dtype=torch.bool)
            mask[self._below(node)] = True
            masks.append(mask)
        return scores.masked_fill(~torch.stack(masks).to(self.device), NEVER)

    def step(self, states: list[dict[int, Any]], tokens: Tensor, depth: int) -> list[dict[int, Any]]:
        return [node[token] for node, token in zip(states, tokens.tolist(), strict=True)]

    def _below(self, node: dict[int, Any]) -> Tensor:
        # as numbers of C, since a list of Python's would take longer to read than all the rest
        return torch.frombuffer(array("q", node or (self.stop,)), dtype=torch.int64)

    def _distinct(self, states: list[dict[int, Any]]) -> tuple[Tensor, Tensor, Tensor]:
        """Which rows share a mask, and rows and tokens of all that is allowed in these."""
        place: dict[int, int] = {}
        which, nodes = [], []
        for node in states:
            if id(node) not in place:
                place[id(node)] = len(nodes)
                nodes.append(node)
            which.append(place[id(node)])
        tokens = array("q")
        for node in nodes:
            tokens.extend(node or (self.stop,))
        counts = torch.tensor([len(node) or 1 for node in nodes])
        return torch.tensor(which), torch.repeat_interleave(counts), torch.frombuffer(tokens, dtype=torch.int64)


class Tuned(Trie):
    """The trie with one mask per different node, in one pinned tensor."""

    def masked(self, states: list[dict[int, Any]], scores: Tensor, depth: int) -> Tensor:
        which, row, token = self._distinct(states)
        pinned = self.device != "cpu"
        mask = torch.zeros(int(row[-1]) + 1, scores.shape[1], dtype=torch.bool, pin_memory=pinned)
        mask[row, token] = True
        mask = mask.to(self.device, non_blocking=True)
        if len(mask) < len(which):
            mask = mask[which.to(self.device)]
        return torch.where(mask, scores, NEVER)


class Pairs(Trie):
    """The trie with nothing but positions copied."""

    def masked(self, states: list[dict[int, Any]], scores: Tensor, depth: int) -> Tensor:
        which, row, token = self._distinct(states)
        out = torch.full_like(scores, NEVER)
        row, token = row.to(self.device), token.to(self.device)
        if int(which[-1]) + 1 == len(which):
            out[row, token] = scores[row, token]
            return out
        mask = torch.zeros(int(which.max()) + 1, scores.shape[1], dtype=torch.bool, device=self.device)
        mask[row, token] = True
        return torch.where(mask[which.to(self.device)], scores, NEVER)


class Columns:
    """Binary search in one sorted column per depth: the number of an item's beginning, times V, plus its next token."""

    def __init__(self, matrix: Tensor, vocab: int, device: str) -> None:
        self.vocab, self.keys, self.ranks = vocab, list[Tensor](), list[Tensor]()
        self.every = torch.arange(vocab, device=device)
        matrix = matrix.to(device)
        rank = torch.zeros(len(matrix), dtype=torch.int64, device=device)
        other = torch.zeros(len(matrix), dtype=torch.bool, device=device)
        for depth in range(matrix.shape[1]):
            key = rank * vocab + matrix[:, depth]
            other[1:] |= key[1:] != key[:-1]
            rank = other.cumsum(0)
            self.keys.append(key)
            self.ranks.append(rank)

    def start(self, rows: int) -> Tensor:
        return torch.zeros(rows, dtype=torch.int64, device=self.every.device)

    def masked(self, states: Tensor, scores: Tensor, depth: int) -> Tensor:
        keys, wanted = self.keys[depth], states[:, None] * self.vocab + self.every
        at = torch.searchsorted(keys, wanted, out_int32=True).clamp_max_(len(keys) - 1)
        return torch.where(keys[at] == wanted, scores, NEVER)

    def step(self, states: Tensor, tokens: Tensor, depth: int) -> Tensor:
        return self.ranks[depth][torch.searchsorted(self.keys[depth], states * self.vocab + tokens)]


class Ranges:
    """Binary search in each row's own range of the sorted matrix, in as many rounds as the longest range needs."""

    def __init__(self, matrix: Tensor, vocab: int, device: str) -> None:
        self.columns = matrix.to(device).T.contiguous()
        self.every = torch.arange(vocab, device=device, dtype=torch.int32)
        self.rounds, new = list[int](), torch.zeros(matrix.shape[0], dtype=torch.bool, device=device)
        new[0] = True
        for column in self.columns:
            starts = torch.cat((new.nonzero().flatten(), torch.tensor([len(new)], device=device)))
            self.rounds.append(int(starts.diff().max()).bit_length())
            new[1:] |= column[1:] != column[:-1]

    def start(self, rows: int) -> tuple[Tensor, Tensor]:
        low = torch.zeros(rows, dtype=torch.int32, device=self.every.device)
        return low, torch.full_like(low, self.columns.shape[1])

    def masked(self, states: tuple[Tensor, Tensor], scores: Tensor, depth: int) -> Tensor:
        begin, end = states[0][:, None], states[1][:, None]
        at = self._lower(begin.expand(-1, len(self.every)), end, self.every, depth)
        column = self.columns[depth]
        return torch.where((at < end) & (column[at.clamp_max(len(column) - 1)] == self.every), scores, NEVER)

    def step(self, states: tuple[Tensor, Tensor], tokens: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        low = self._lower(*states, tokens, depth)
        return low, self._lower(low, states[1], tokens + 1, depth)

    def _lower(self, low: Tensor, end: Tensor, wanted: Tensor, depth: int) -> Tensor:
        column, high = self.columns[depth], end
        for _ in range(self.rounds[depth]):
            middle = (low + high) >> 1
            below = (low < high) & (column[middle.clamp_max(len(column) - 1)] < wanted)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        return low


def made(number: int, vocab: int) -> Tensor:
    """Items in order, of tokens of which few are frequent and many rare, as in names; the last token ends a text."""
    rare = torch.rand(number, LENGTH, generator=torch.Generator().manual_seed(number)) ** 3
    matrix = (rare * (vocab - 1)).int()
    return matrix[Listing.of(matrix).order(vocab)]


def dicts(matrix: Tensor) -> dict[int, Any]:
    """The trie, as quickly as Python makes one."""
    gc.disable()  # millions of dicts, none of them garbage
    root: dict[int, Any] = {}
    for part in matrix.split(100_000):
        for item in part.tolist():
            node = root
            for token in item:
                below = node.get(token)
                if below is None:
                    below = node[token] = {}
                node = below
    return root


def seconds(run: Callable[[], object], device: str) -> float:
    """The median time of a step, host included."""
    times, spent = list[float](), 0.0
    while spent < SECONDS or len(times) < 3:
        if device != "cpu":
            torch.cuda.synchronize()
        start = perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(perf_counter() - start)
        spent += times[-1]
        if spent > 10 * SECONDS:
            break
    return median(times)


def compare(ways: dict[str, Way], items: ItemSet, texts: Tensor, device: str) -> dict[str, list[float]]:
    """Check all ways against each other at every depth, then time a step of each; seconds by way and depth."""
    rows, vocab = len(texts), items.vocab
    scores = torch.randn(rows, vocab, device=device, generator=torch.Generator(device).manual_seed(0)).log_softmax(1)
    states = {name: way.start(rows) for name, way in ways.items()}
    found: dict[str, list[float]] = {name: [] for name in (*ways, "sparse", "graph", "columns graph", "ranges graph")}
    for depth in range(LENGTH):
        tokens = texts[:, depth].contiguous()
        want = ways["static"].masked(states["static"], scores, depth)
        assert bool((want.gather(1, tokens[:, None].long()) > NEVER).all()), "an item is not allowed"
        for name, way in ways.items():
            if not torch.equal(way.masked(states[name], scores, depth), want):
                raise SystemExit(f"{name} gives another mask at depth {depth}, {len(items)} items, {vocab} tokens")
        nodes, width = states["static"], items.widths[depth]
        some = items.candidates(nodes, scores, width)
        spread = torch.full_like(scores, NEVER).scatter_reduce_(1, some.tokens.clamp_min(0), some.scores, "amax")
        if not torch.equal(spread, want):
            raise SystemExit(f"candidates differ at depth {depth}, {len(items)} items, {vocab} tokens")
        for name, way in ways.items():
            run = partial(both, way, states[name], scores, tokens, depth)
            found[name].append(seconds(run, device))
            if name in ("static", "columns", "ranges") and device != "cpu":
                from unspool.kernels.tune import microseconds  # here: Triton is not there without a GPU

                found["graph" if name == "static" else f"{name} graph"].append(microseconds([run] * 20) / 1e6)
        if 32 * width > vocab:
            found["sparse"].append(found["static"][-1])
        else:
            found["sparse"].append(seconds(partial(items.candidates, nodes, scores, width), device))
        states = {name: way.step(states[name], tokens, depth) for name, way in ways.items()}
    for kind in ("", " graph"):
        pairs = zip(found.pop(f"columns{kind}"), found.pop(f"ranges{kind}"), strict=True)
        found[f"binary{kind}"] = [min(pair) for pair in pairs]
    return found


def both(way: Way, states: Any, scores: Tensor, tokens: Tensor, depth: int) -> None:
    """A step."""
    way.masked(states, scores, depth)
    way.step(states, tokens, depth)


def faster(found: dict[str, list[float]], since: int) -> dict[str, float]:
    """How many times the mean of static's steps from a depth on each way takes, graphs against its graph."""
    others = {name: each for name, each in found.items() if each and name not in ("static", "graph")}
    own = {name: mean(found["graph" if "graph" in name else "static"][since:]) for name in others}
    return {name: round(mean(each[since:]) / own[name], 1) for name, each in others.items()}


def measured(number: int, vocab: int, rows: int, devices: list[str]) -> list[dict[str, Any]]:
    """One set on all devices."""
    matrix = made(number, vocab)
    shuffled = matrix[torch.randperm(number, generator=torch.Generator().manual_seed(1))]
    start = perf_counter()
    items = ItemSet.of(shuffled, vocab, (vocab - 1,))
    build = perf_counter() - start
    root = dicts(matrix) if number <= 1_000_000 else None
    texts = shuffled[:rows]
    results = []
    for device in devices:
        there = items.to(device)
        ways: dict[str, Way] = {"static": Static(there)}
        if root is not None:
            ways |= {kind.__name__.lower(): kind(root, vocab - 1, device) for kind in (Trie, Tuned, Pairs)}
        ways |= {"columns": Columns(matrix, vocab, device), "ranges": Ranges(matrix, vocab, device)}
        found = compare(ways, there, texts.to(device), device)
        times = {name: round(mean(each) * 1e6, 1) for name, each in found.items() if each}
        result = {
            "device": device, "vocab": vocab, "items": number, "rows": rows, "nodes": len(items.ends),
            "mb": round(items.bytes / 1e6, 1), "build_s": round(build, 2), "step_us": times,
            "depth_us": {name: [round(t * 1e6, 1) for t in each] for name, each in found.items() if each},
            "times_faster": faster(found, 0), "times_faster_deep": faster(found, DEEP),
        }  # fmt: skip
        results.append(result)
        print(line(result), flush=True)
        del ways, there
    return results


NAMES = ("trie", "tuned", "pairs", "binary", "static", "sparse", "graph", "binary graph")
HEAD = f"{'':4}{'vocab':>8}{'items':>11}{'build':>8}{'MB':>8}" + "".join(f"{name:>13}" for name in NAMES)


def line(result: dict[str, Any]) -> str:
    times = "".join(f"{result['step_us'].get(name, '–'):>13}" for name in NAMES)
    sizes = f"{result['vocab']:>8}{result['items']:>11}{result['build_s']:>7.1f}s{result['mb']:>8.1f}"
    return f"{result['device']:4}{sizes}{times}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", nargs="+", default=["cpu"], choices=["cpu", "cuda"])
    parser.add_argument("--items", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--vocab", nargs="+", type=int, default=[49_152, 150_000])
    parser.add_argument("--rows", type=int, default=140, help="beams × batch; 2 × 70 by default")
    parser.add_argument("--large", action="store_true", help="ten million items too, with the first vocabulary")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if "cuda" in args.device and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here; leave --device cuda out")
    cases = [(number, vocab) for vocab in args.vocab for number in args.items]
    cases += [(10_000_000, args.vocab[0])] if args.large else []
    print(f"{HEAD}   (μs per step of {args.rows} rows)")
    results = [result for case in cases for result in measured(*case, args.rows, args.device)]
    print(f"\n{HEAD}")
    for result in results:
        print(line(result))
    print(f"\ntimes static's step; in brackets, of steps behind the first {DEEP} tokens alone")
    for result in results:
        deep = result["times_faster_deep"]
        ratios = ", ".join(f"{name} {ratio} ({deep[name]})" for name, ratio in result["times_faster"].items())
        print(f"{result['device']} {result['vocab']} tokens, {result['items']:,} items: {ratios}")
    held = [r for r in results if r["device"] == "cuda" and r["items"] >= 1_000_000]
    missed = [
        f"{name} {r['times_faster'][name]}× at {r['items']:,} items, {r['vocab']} tokens (wanted {bar}×)"
        for r in held
        for name, bar in BARS.items()
        if r["times_faster"].get(name, bar) < bar
    ]
    if held:
        print("bars: " + ("all met" if not missed else "; ".join(missed)))
    if args.json:
        save(args.json, {"length": LENGTH, "bars": BARS, "missed": missed, "results": results})


if __name__ == "__main__":
    main()
