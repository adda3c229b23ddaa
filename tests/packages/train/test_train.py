"""Adapting a model to block diffusion: what is packed, what sees what, what is learnt, what is stored."""

import json
from dataclasses import replace

import pytest
import torch

np = pytest.importorskip("numpy")

from adapted import END, MASK, PROMPTS, SHAPE, Small, alone, decoder_of  # noqa: E402

from unspool.apps.cli.root import root  # noqa: E402
from unspool.core.errors import BadRequest  # noqa: E402
from unspool_train import objective, training_network  # noqa: E402
from unspool_train.adapt import AdaptRun, AdaptSettings, adapt  # noqa: E402
from unspool_train.decoder import filled, greedy, judged  # noqa: E402
from unspool_train.delta_compression import Delta, Factors, chosen_ranks, factorised, lost, read_delta, write_delta  # noqa: E402
from unspool_train.framing import Framing, of_documents  # noqa: E402
from unspool_train.noisy_rows import Recipe, masks, pack, weights  # noqa: E402
from unspool_train.objective import TEMPERATURE, Objective, slopes  # noqa: E402
from unspool_train.speak import save, unlooped  # noqa: E402
from unspool_train.token_corpus import TokenCorpus  # noqa: E402
from unspool_train.trained import Trained  # noqa: E402
from unspool_train.training_network import Frozen, TrainingNetwork, is_matrix, names, tiles, visible  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
RECIPE = Recipe(rows=2, width=160, blocks=(4, 8), shares=(0.5, 0.5), lead=3)


@pytest.fixture(scope="module")
def frozen():
    return Frozen.load(Small(), "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Counting conversations: after the prompt every answer goes on in steps of one."""
    rng = np.random.default_rng(0)
    written = []
    for _ in range(120):
        first, length = int(rng.integers(17, 24)), int(rng.integers(9, 16))
        prompt = [1, 5, first, 6, 7]
        written.append(([*prompt, *range(first, first + length), END], len(prompt), 1 + int(rng.integers(2))))
    path = tmp_path_factory.mktemp("corpus")
    save(str(path / "corpus_0.npz"), written)
    return path


@pytest.fixture(scope="module")
def batch(folder):
    corpus = TokenCorpus.read([folder])
    rng = np.random.default_rng(1)
    return pack(corpus, corpus.stream(rng, corpus.split(0.1)[0], 0.8), rng, RECIPE)


def test_two_streams_mask_every_token_exactly_once_or_else_in_reading_order():
    both = masks(np.random.default_rng(0), 500, 8, 0.0)
    assert (both[0] ^ both[1])[:, 1:].all()
    assert not both[:, :, 0].any()  # the first token is read from the clean stream
    assert sorted(set(both[0].sum(1))) == list(range(8))
    ordered = masks(np.random.default_rng(0), 500, 8, 1.0)
    assert (ordered.sum(2) > 0).all()
    late = ordered.reshape(-1, 8).mean(0)
    assert late[7] > late[4] > late[1] > late[0]
    assert (ordered[0, ordered[0, :, 0]]).all()  # a first token is masked where all are


def test_weights_follow_the_formula():
    masked = np.array([[0, 1, 1, 0, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 0]], bool)
    d = 0.5
    got = weights(masked, 3.0, d)
    w = 8 / 6
    assert got[0] == pytest.approx([0, w, w * d, 0, w, w * d, w * d**2, w * d**3])
    assert got[1] == pytest.approx([0, 3 * d, 0, 0, 0, 0, 0, 0])  # 8/2 is clipped to 3; a block's first has no loss
    assert not got[2].any()


def test_a_batch_reads_the_right_targets(batch):
    flat, places = batch.tokens.ravel(), batch.places.ravel()
    causal = batch.block == 0
    assert (flat[batch.read[causal] + 1] == batch.target[causal]).all()
    masked = batch.read[~causal] + 1
    assert (flat[masked] == MASK).all()
    # The answers count up, so that a token follows from its place alone: first + place − 5.
    real = batch.real[~causal] & (batch.target[~causal] != END)
    row, at = np.divmod(masked[real], RECIPE.width)
    start = batch.past[row, at]
    first = batch.tokens[row, start + 2]
    assert (batch.target[~causal][real] == first + places[masked[real]] - 5).all()
    assert batch.weight[causal].sum() == pytest.approx(RECIPE.causal, rel=1e-4)
    assert batch.weight[~causal].sum() == pytest.approx(1.0, rel=1e-4)
    assert batch.fill > 0.8


def test_padding_weighs_less_and_is_the_end_token(batch):
    padding = ~batch.real
    assert padding.any()
    assert (batch.target[padding] == END).all()


def test_tokens_see_what_they_may_and_nothing_else(frozen, batch):
    """Change one token anywhere: a state changes if and only if it sees that token, through any number of layers."""
    net = TrainingNetwork(frozen, torch.float32, RECIPE.rows, RECIPE.width, MASK, compiled=False)
    start = {**frozen.base, "mask": torch.full((SHAPE.dim,), 0.1)}
    before = net.hidden(start, batch).view(RECIPE.rows, RECIPE.width, -1)
    sees = visible(net.spans)
    reach = (sees.float() @ sees.float()) > 0  # two layers
    for column in (2, 7, 12, 25, 40, 63):
        tokens = batch.tokens.copy()
        tokens[0, column] = 3 if tokens[0, column] != 3 else 4
        after = net.hidden(start, replace(batch, tokens=tokens)).view(RECIPE.rows, RECIPE.width, -1)
        changed = (after != before).any(-1)
        assert changed[0].tolist() == reach[0, :, column].tolist()
        assert not changed[1].any()


def test_streams_are_causal_or_blocks(batch):
    """The rule itself, spelt out for the first document of the first row."""
    net = TrainingNetwork(Frozen.load(Small(), "cpu"), torch.float32, RECIPE.rows, RECIPE.width, MASK, compiled=False)
    net.hidden({**net.frozen.base, "mask": torch.zeros(SHAPE.dim)}, batch)
    sees = visible(net.spans)[0]
    length = int((batch.past_end[0] - batch.past[0] == np.arange(RECIPE.width) + 1).argmin())
    assert sees[:length, :length].equal(torch.ones(length, length, dtype=torch.bool).tril())
    size = int(batch.own_end[0, length] - batch.own[0, length])
    for index in range(2 * size):
        block, at = index // size, length + index
        seen = sees[at].nonzero().flatten().tolist()
        assert seen == [*range(5 + block * size), *range(length + block * size, length + (block + 1) * size)]


def test_tiles_are_those_of_the_dense_mask(batch):
    spans = tuple(torch.from_numpy(x) for x in (batch.past, batch.past_end, batch.own, batch.own_end))
    some, every = tiles(spans, 32)
    dense = visible(spans).view(2, 5, 32, 5, 32)
    assert some.equal(dense.any(4).any(2))
    assert not (every & ~dense.all(4).all(2)).any()  # what is called full must be full


def test_slopes_are_the_gradient():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 12, generator=generator, dtype=torch.float32).requires_grad_()
    weight, certainty = torch.rand(6, generator=generator), torch.rand(6, generator=generator)
    banned = 4
    z = logits.clone()
    z[:, banned] = -30000.0
    target = torch.tensor([int(z[0].argmax()), 3, int(z[2].argmax()), 5, 7, 1])
    log_p = z.log_softmax(-1)
    ce = -log_p[torch.arange(6), target]
    right = z.argmax(-1) == target
    q = (z / TEMPERATURE).log_softmax(-1)
    loss = (weight * ce).sum() + (certainty * right * -(q.exp() * q).sum(-1)).sum()
    (wanted,) = torch.autograd.grad(loss, logits)
    slope, each, found, sure = slopes(logits.detach(), target, weight, certainty, banned)
    wanted[:, banned] = 0
    torch.testing.assert_close(slope, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(each, ce.detach())
    assert found.equal(right)
    assert bool(found.any())
    assert not bool(found.all())
    torch.testing.assert_close(sure, log_p.exp().amax(-1).detach())


def test_a_teachers_law_is_a_share_of_the_target_at_the_first_read_outs(monkeypatch):
    monkeypatch.setattr(objective, "CHUNK", 4)
    generator = torch.Generator().manual_seed(0)
    head, teacher = torch.randn(12, 5, generator=generator), torch.randn(6, 5, generator=generator)
    hidden = torch.randn(11, 5, generator=generator).requires_grad_()
    target, weight = torch.randint(0, 12, (11,), generator=generator), torch.rand(11, generator=generator)
    banned, share = 4, 0.75
    target[target == banned] = 3
    z, told = hidden @ head.T, teacher @ head.T
    z, told = (torch.cat([part[:, :banned], part[:, banned + 1 :]], 1) for part in (z, told))
    wanted = torch.nn.functional.one_hot(target - (target > banned).long(), 11).float()
    wanted[:6] = (1 - share) * wanted[:6] + share * told.softmax(1)
    (slope,) = torch.autograd.grad(-(weight[:, None] * wanted * z.log_softmax(1)).sum(), hidden)
    rule = Objective(head, banned, compiled=False)
    none = torch.zeros(11)
    loss, answer = rule(hidden, target, weight, none, teacher, share)
    torch.testing.assert_close(torch.autograd.grad(loss, hidden)[0], slope, atol=1e-5, rtol=1e-4)
    plain, same = rule(hidden, target, weight, none)
    assert answer.loss.equal(same.loss)  # what is told is the cross-entropy of tokens, with a teacher or without
    assert not torch.autograd.grad(plain, hidden)[0].allclose(slope, atol=1e-3)


def test_a_model_that_reads_as_it_did_has_nothing_to_learn_from_its_own_laws(folder, batch, tmp_path, monkeypatch):
    monkeypatch.setattr(training_network, "open_checkpoint", lambda path: Small())
    run = AdaptRun(AdaptSettings(model=str(folder), out=str(tmp_path), rows=2, width=160, device="cpu"))
    first = int((batch.block == 0).sum())
    assert (batch.block[:first] == 0).all()
    assert (batch.block[first:] > 0).all()
    reading = replace(batch, weight=np.where(batch.block == 0, batch.weight, np.float32(0.0)))
    steep = {}
    for share in (0.0, 1.0):
        own = {name: value.clone().requires_grad_() for name, value in run.origin.items()}
        run.forward(own, reading, 0.0, share)[0].backward()
        steep[share] = max(float(each.grad.abs().max()) for each in own.values() if each.grad is not None)
    assert steep[1.0] < 1e-5 < 1e-3 < steep[0.0]


def test_what_is_learnt_so_far_is_written_before_the_end(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(training_network, "open_checkpoint", lambda path: Small())
    written = []

    def write(path, *told):
        written.append(path)
        return write_delta(path, *told)

    monkeypatch.setattr("unspool_train.adapt.write_delta", write)
    adapt(
        AdaptSettings(
            model=str(folder), corpus=str(folder), out=str(tmp_path), minutes=5.0, steps=4, fold_at=0.0, rows=2,
            width=160, warmup=1, workers=1, held=0.2, validation=1, budget=200_000, device="cpu", faithful=0.5,
        )
    )  # fmt: skip
    assert len(written) > 3  # when it was cut to size, at every validation, and at the end


def test_a_delta_comes_back_as_it_was_stored(frozen, tmp_path):
    generator = torch.Generator().manual_seed(0)
    changed = {
        name: value + 0.01 * torch.randn(value.shape, generator=generator) for name, value in frozen.base.items()
    }
    changed["mask"] = torch.randn(SHAPE.dim, generator=generator)
    whole = factorised(changed, frozen.base, 10**7)
    stored = write_delta(tmp_path / "d.safetensors", whole, "small", MASK)
    back = read_delta(tmp_path).applied({**frozen.base, "mask": torch.zeros(SHAPE.dim)})
    assert max(lost(stored, changed, frozen.base).values()) < 1e-3
    assert back["mask"].equal(changed["mask"])
    assert back["layers.1.norm2"].equal(changed["layers.1.norm2"])
    torch.testing.assert_close(back["layers.0.down"], changed["layers.0.down"], atol=1e-3, rtol=0)
    # Written again it is the same file: rounding what is rounded changes nothing.
    again = write_delta(tmp_path / "again.safetensors", stored, "small", MASK)
    assert again.factors["layers.0.q"].product().equal(stored.factors["layers.0.q"].product())


def test_ranks_take_the_most_energy_the_bytes_allow():
    spectra = {"small": (torch.tensor([3.0, 1.0]), 10), "large": (torch.tensor([4.0, 2.0]), 100)}
    assert chosen_ranks(spectra, 14) == {"small": 1, "large": 0}
    assert chosen_ranks(spectra, 14 + 104) == {"small": 1, "large": 1}
    assert chosen_ranks(spectra, 14 + 14 + 104) == {"small": 2, "large": 1}
    assert chosen_ranks(spectra, 10**6) == {"small": 2, "large": 2}


def test_a_change_of_low_rank_is_held_whole(frozen):
    u, v = torch.randn(48, 3), torch.randn(32, 3)
    changed = {**frozen.base, "layers.0.up": frozen.base["layers.0.up"] + u @ v.T, "mask": torch.zeros(32)}
    delta = factorised(changed, frozen.base, 10**7)
    torch.testing.assert_close(delta.factors["layers.0.up"].product(), u @ v.T, atol=1e-4, rtol=1e-4)


def test_an_adaptation_learns_and_what_it_stores_is_as_good(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(training_network, "open_checkpoint", lambda path: Small())
    settings = AdaptSettings(
        model=str(folder), corpus=str(folder), out=str(tmp_path), minutes=5.0, steps=60, lr=3e-3, fold_lr=1e-3,
        rows=2, width=160, warmup=5, workers=1, held=0.2, validation=1, budget=200_000, device="cpu",
    )  # fmt: skip
    figures = adapt(settings)
    log = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    first = next(line["figures"] for line in log if line["kind"] == "start")
    assert [line["kind"] for line in log if line["kind"] == "fold"] == ["fold"]
    for name in ("causal", "block 16 masked 0.5"):
        assert figures["stored"][name]["ce"] < first[name]["ce"] - 0.5
        assert figures["stored"][name]["ce"] == pytest.approx(figures["free"][name]["ce"], abs=0.05)
    assert (tmp_path / "delta.safetensors").stat().st_size == figures["bytes"] <= 200_000


def test_training_goes_on_from_a_delta(frozen):
    factors = {"layers.0.q": Factors(torch.randn(32, 2), torch.randn(32, 2))}
    trained = Trained({**frozen.base, "mask": torch.zeros(SHAPE.dim)})
    trained.fold(frozen.base, Delta(factors, {}))
    found = trained.weights()
    assert set(found) == {name for name, _ in names(SHAPE)} | {"mask"}
    assert found["layers.0.q"].equal(frozen.base["layers.0.q"] + factors["layers.0.q"].product())
    assert found["layers.1.q"] is frozen.base["layers.1.q"]
    found["layers.0.q"].sum().backward()
    assert all(p.grad is not None for p in trained.parameters()[-2:])
    assert not any(is_matrix(name) for name in trained.free)


def test_greedy_texts_are_the_likeliest_tokens(frozen):
    decoder = decoder_of(frozen, 3)
    texts = greedy(decoder, PROMPTS, 12).tokens
    base = {**frozen.base, "mask": torch.zeros(SHAPE.dim)}
    for prompt, text in zip(PROMPTS, texts, strict=True):
        logits = alone(frozen, base, [*prompt, *text])
        assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == text
    scores = judged(decoder, PROMPTS, texts)
    whole = alone(frozen, base, [*PROMPTS[1], *texts[1]], ban=True).log_softmax(-1)
    wanted = [float(whole[len(PROMPTS[1]) - 1 + i, token]) for i, token in enumerate(texts[1])]
    assert scores[1].tolist() == pytest.approx(wanted, abs=1e-4)


def test_blocks_are_filled_as_the_definition_says(frozen):
    """One text after the other, each forward computed from scratch with the network of training."""
    size, most, threshold = 4, 12, 0.08
    got = filled(decoder_of(frozen, 3), PROMPTS, size, threshold, most)
    weights_ = {**frozen.base, "mask": torch.full((SHAPE.dim,), 0.1)}
    for line, prompt in enumerate(PROMPTS):
        text, forwards = _by_definition(frozen, weights_, prompt, size, threshold, most)
        assert got.tokens[line] == text
        assert int(got.forwards[line]) == forwards
    one = filled(decoder_of(frozen, 3), PROMPTS, size, 2.0, most)
    assert one.forwards.tolist() >= [len(text) for text in one.tokens]
    assert int(got.forwards.sum()) < int(one.forwards.sum())


def _by_definition(frozen, weights_, prompt, size, threshold, most):
    text, forwards = list(prompt), 0
    for _ in range(most // size):
        block = [MASK] * size
        while True:
            ended = block.index(END) if END in block else size
            holes = [i for i in range(ended) if block[i] == MASK]
            if not holes:
                break
            logits = alone(frozen, weights_, [*text, *block], block=size, ban=True)[len(text) - 1 : -1]
            sure, chosen = logits.softmax(-1).max(-1)
            surest = 0 if 0 in holes else max(holes, key=lambda i: float(sure[i]))
            for i in holes:
                if sure[i] > threshold or i == surest:
                    block[i] = int(chosen[i])
            forwards += 1
        text += block
        if END in block:
            break
    answer = text[len(prompt) :]
    return (answer[: answer.index(END) + 1] if END in answer else answer), forwards


def test_loops_are_cut_and_other_texts_are_not():
    assert unlooped([*range(5), *[7, 8, 9] * 9]) == [0, 1, 2, 3, 4, 7, 8, 9]
    assert unlooped(list(range(50))) == list(range(50))
    assert unlooped([1, 2, 1, 2]) == [1, 2, 1, 2]


def test_the_frame_of_conversations_is_what_they_share(folder):
    assert of_documents(TokenCorpus.read([folder])) == Framing([1, 5], [6, 7], END)


def test_the_command_says_what_is_missing(capsys):
    with pytest.raises(BadRequest, match="--corpus"):
        root.main(args=["train", "adapt"], standalone_mode=False)
    assert root.main(args=["train", "evaluate", "--help"], standalone_mode=False) == 0
    assert "--thresholds" in capsys.readouterr().out
