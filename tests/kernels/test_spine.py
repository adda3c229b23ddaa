"""The levels of a drafted tree against a few plain lines: which paths go on, and whose keys each node then sees."""

import interpreted
import pytest
import torch

from unspool.kernels.spine import expand

DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
NAN = float("nan")
ROWS, WIDTH = 2, 8  # texts, and guesses below a node


def whole(*size):
    return torch.zeros(size, dtype=torch.int32, device=DEVICE)


@pytest.mark.parametrize(("kids", "depth"), [(1, 3), (4, 4)])
def test_a_node_sees_the_keys_of_its_own_line_and_the_likeliest_paths_go_on(kids, depth):
    dice = torch.Generator().manual_seed(depth)
    rows = ROWS * kids
    past = torch.tensor([4, 1], dtype=torch.int32, device=DEVICE)
    nodes = (torch.arange(depth * rows, dtype=torch.int32) + 100).view(depth, rows).to(DEVICE)
    keys, reached = whole(rows, 8 + depth), None
    paths = [[(0.0, ())] for _ in range(ROWS)]  # how likely each node of a level is, and its line
    for level in range(depth - 1):
        values = torch.randn(rows, WIDTH, generator=dice).to(DEVICE)
        values[0, 3] = NAN  # which no path goes on with
        guesses = torch.randint(50, (rows, WIDTH), generator=dice, dtype=torch.int32).to(DEVICE)
        follow, above, tokens = whole(rows, WIDTH), whole(rows), whole(rows)
        reached = expand(level, values, guesses, None, None, nodes, past, keys, reached, follow, above, tokens)
        for row in range(ROWS):
            base = row * kids
            below = [
                (
                    likely + float(values[base + node, guess]),
                    base + node,
                    guess,
                    (*line, int(nodes[level, base + node])),
                )
                for node, (likely, line) in enumerate(paths[row])
                for guess in range(WIDTH)
                if not values[base + node, guess].isnan()
            ]
            best = sorted(below, reverse=True)[:kids]
            paths[row] = [(likely, line) for likely, _, _, line in best]
            read_on = {(node, guess): (level + 1) * kids + i for i, (_, node, guess, _) in enumerate(best)}
            for node in range(base, base + kids):
                assert follow[node].tolist() == [read_on.get((node, guess), -1) for guess in range(WIDTH)]
            for i, (likely, node, guess, line) in enumerate(best, base):
                assert float(reached[0][i]) == pytest.approx(likely, abs=1e-5)
                assert (int(above[i]), int(tokens[i])) == (node, int(guesses[node, guess]))
                before = int(past[row]) - 1
                assert tuple(keys[i, before : before + level + 1].tolist()) == line
