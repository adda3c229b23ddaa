"""Windows of masks behind clean text: how they are packed, how they are filled, and texts that a filler foresees."""

import math
from dataclasses import replace

import pytest
import torch

np = pytest.importorskip("numpy")

from adapted import END, MASK, PROMPTS, SHAPE, Small, alone, decoder_of  # noqa: E402

from unspool.core.errors import BadRequest  # noqa: E402
from unspool_train import training_network  # noqa: E402
from unspool_train.decoder import greedy, led  # noqa: E402
from unspool_train.delta_compression import factorised, write_delta  # noqa: E402
from unspool_train.lenient_texts import lenient  # noqa: E402
from unspool_train.noisy_rows import Recipe, pack  # noqa: E402
from unspool_train.speak import SpeakSettings, save, speak  # noqa: E402
from unspool_train.token_corpus import TokenCorpus  # noqa: E402
from unspool_train.training_figures import exam  # noqa: E402
from unspool_train.training_network import Frozen  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
SIZE, MOST = 4, 14
RECIPE = Recipe(rows=2, width=160, lead=3, sliding=1.0, window=SIZE, fade=0.5)


@pytest.fixture(scope="module")
def frozen():
    return Frozen.load(Small(), "cpu")


@pytest.fixture(scope="module")
def weights(frozen):
    """Those of a filler: the base's, some of them changed."""
    generator = torch.Generator().manual_seed(5)
    changed = frozen.base["layers.1.up"] + 0.1 * torch.randn(48, 32, generator=generator)
    return {**frozen.base, "layers.1.up": changed, "mask": torch.full((SHAPE.dim,), 0.1)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Answers that count up from a number in the prompt, half of them closed."""
    rng = np.random.default_rng(0)
    written = []
    for n in range(60):
        first, length = int(rng.integers(17, 24)), int(rng.integers(9, 16))
        written.append(([1, 5, first, 6, 7, *range(first, first + length), END], 5, 1 + n % 2))
    path = tmp_path_factory.mktemp("corpus") / "corpus.npz"
    save(str(path), written)
    return TokenCorpus.read([path])


@pytest.fixture(scope="module")
def batch(corpus):
    rng = np.random.default_rng(1)
    return pack(corpus, corpus.stream(rng, np.arange(len(corpus)), 1.0), rng, RECIPE)


def test_windows_begin_anywhere_and_see_clean_text_and_themselves(batch):
    windows, begins = 0, set()
    for row in range(RECIPE.rows):
        noisy = np.nonzero(batch.own_end[row] > 0)[0]
        assert (batch.tokens[row, noisy] == MASK).all()
        for at in noisy:
            low, high = batch.own[row, at], batch.own_end[row, at]
            assert high - low == SIZE
            assert low <= at < high
            seen = batch.past_end[row, at] - batch.past[row, at]
            assert batch.places[row, at] == seen + at - low  # nothing is left out between what is seen and the window
            assert (batch.tokens[row, batch.past[row, at] : batch.past_end[row, at]] != MASK).all()
            assert (batch.own_end[row, batch.past[row, at] : batch.past_end[row, at]] == 0).all()  # all of it clean
            begins.add(int(seen - 5) % SIZE)
            windows += at == low
    assert begins == set(range(SIZE))
    assert windows > 20


def test_the_places_of_a_window_weigh_less_and_less_and_count_on(batch):
    noisy = batch.block > 0
    row, at = np.divmod(batch.read[noisy] + 1, RECIPE.width)
    inside = at - batch.own[row, at]
    assert (inside > 0).all()  # the first is read from the clean text
    real = batch.real[noisy]
    share = batch.weight[noisy][real] / 0.5 ** inside[real]
    assert share == pytest.approx(np.full(real.sum(), share[0]), rel=1e-4)
    target, first = batch.target[noisy], batch.tokens[row, batch.past[row, at] + 2]
    text = real & (target != END)
    assert (target[text] == (first + batch.places[row, at] - 5)[text]).all()
    assert (target[~real] == END).all()
    assert (~real).any()


def test_a_share_of_the_documents_has_windows_and_validation_has_both(corpus):
    rng = np.random.default_rng(1)
    mixed = pack(
        corpus,
        corpus.stream(rng, np.arange(len(corpus)), 1.0),
        rng,
        replace(RECIPE, sliding=0.5, blocks=(8,), shares=(1.0,)),
    )
    assert set(mixed.block) == {0, 4, 8}
    assert [set(one.block) for one in exam(corpus, np.arange(len(corpus)), 1, RECIPE)] == [{0, 16}, {0, 32}, {0, 4}]
    assert len(exam(corpus, np.arange(len(corpus)), 1, replace(RECIPE, sliding=0.0))) == 2


def test_a_window_is_led_as_the_definition_says(frozen, weights):
    threshold = 0.1
    got = led(decoder_of(frozen, 3, weights), PROMPTS, SIZE, threshold, MOST)
    for line, prompt in enumerate(PROMPTS):
        text, forwards = list(prompt), 0
        while len(text) < len(prompt) + MOST and END not in text[len(prompt) :]:
            logits = alone(frozen, weights, [*text, *[MASK] * SIZE], block=SIZE, ban=True)[len(text) - 1 : -1]
            sure, chosen = logits.softmax(-1).max(-1)
            run = next((i for i in range(1, SIZE) if sure[i] < threshold or chosen[i - 1] == END), SIZE)
            text, forwards = text + chosen[:run].tolist(), forwards + 1
        assert got.tokens[line] == text[len(prompt) : len(prompt) + MOST]
        assert int(got.forwards[line]) == forwards
    one = led(decoder_of(frozen, 3, weights), PROMPTS, SIZE, 2.0, MOST)
    assert one.tokens == greedy(decoder_of(frozen, 3, weights), PROMPTS, MOST).tokens
    assert one.forwards.tolist() == [len(text) for text in one.tokens]
    assert int(got.forwards.sum()) < int(one.forwards.sum())


@pytest.mark.parametrize("ratio", [1.0, 0.3])
def test_what_a_filler_foresees_stands_if_the_reader_finds_it_good_enough(frozen, weights, ratio):
    base = {**frozen.base, "mask": torch.zeros(SHAPE.dim)}
    got = lenient(decoder_of(frozen, 3, base), decoder_of(frozen, 3, weights), PROMPTS, SIZE, ratio, MOST)
    plain = greedy(decoder_of(frozen, 3, base), PROMPTS, MOST)
    for line, prompt in enumerate(PROMPTS):
        text, forwards = list(prompt), 0
        while len(text) < len(prompt) + MOST and END not in text[len(prompt) :]:
            drafts = alone(frozen, weights, [*text, *[MASK] * SIZE], block=SIZE, ban=True)[len(text) - 1 : -1].argmax(
                -1
            )
            forwards += 2
            for draft in drafts.tolist():
                logits = alone(frozen, base, text, ban=True)[-1]
                good = logits[draft] >= logits.max() + math.log(ratio) and draft != END
                text.append(draft if good else int(logits.argmax()))
                if not good:
                    break
        assert got.tokens[line] == text[len(prompt) : len(prompt) + MOST]
        assert int(got.forwards[line]) == forwards
    assert (got.tokens == plain.tokens) is (ratio == 1.0)


def test_an_answer_that_is_begun_by_drawing_goes_on_greedily(frozen, tmp_path, monkeypatch):
    """Of such a document the question is what was asked with what was drawn, and all behind it is the likeliest."""
    monkeypatch.setattr(training_network, "open_checkpoint", lambda path: Small())
    save(str(tmp_path / "asked.npz"), [([*prompt, 3], len(prompt), 2) for prompt in PROMPTS * 4])
    asked = str(tmp_path / "asked.npz")
    told = SpeakSettings(
        model=str(tmp_path), like=asked, asked=asked, answer=MOST, rows=3, eager=True, device="cpu", drawn=0.5,
        heat=9.0, begun=4, out=str(tmp_path / "out.npz"),
    )  # fmt: skip
    speak(told)
    found = TokenCorpus.read([tmp_path / "out.npz"])
    assert found.greedy.all()
    begins = set()
    for document in (found[i] for i in range(len(found))):
        begins.add(document.prompt - max(len(p) for p in PROMPTS if p == document.tokens[: len(p)].tolist()))
        asked_, answer = document.tokens[: document.prompt].tolist(), document.tokens[document.prompt :].tolist()
        decoder = decoder_of(frozen, 1, {**frozen.base, "mask": frozen.embedding.mean(0)})
        assert greedy(decoder, [asked_], len(answer)).tokens[0] == answer if answer else asked_[-1] == END
    assert len(found) == 2 * len(PROMPTS * 4)
    assert begins == {0, 1, 2, 3, 4}


def test_a_corpus_is_written_with_a_fillers_foresight(frozen, weights, tmp_path, monkeypatch):
    """At a ratio of 1 its documents are those of greedy answers, below it others."""
    monkeypatch.setattr(training_network, "open_checkpoint", lambda path: Small())
    prompts = [[1, 5, 20 + n % 15, 6, 7, 9, 11, 3] for n in range(12)]
    save(str(tmp_path / "asked.npz"), [([*prompt, 3], len(prompt), 2) for prompt in prompts])
    write_delta(tmp_path / "delta.safetensors", factorised(weights, frozen.base, 10**6), "small", MASK)
    asked = str(tmp_path / "asked.npz")
    told = SpeakSettings(model=str(tmp_path), like=asked, asked=asked, answer=MOST, rows=8, eager=True, device="cpu")

    def texts(**how):
        speak(replace(told, out=str(tmp_path / "out.npz"), **how))
        found = TokenCorpus.read([tmp_path / "out.npz"])
        return [found[i].tokens.tolist() for i in range(len(found))]

    foresight = {"filler": str(tmp_path / "delta.safetensors"), "window": SIZE}
    greedily = texts()
    assert len(greedily) == len(prompts)
    assert texts(ratio=1.0, **foresight) == greedily
    assert texts(ratio=0.2, **foresight) != greedily
    with pytest.raises(BadRequest, match="--begun is -1"):
        texts(begun=-1)
    with pytest.raises(BadRequest, match="--ratio is 0"):
        texts(ratio=0.0, **foresight)
    with pytest.raises(BadRequest, match="drawn"):
        texts(drawn=0.5, **foresight)
