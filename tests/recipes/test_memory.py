"""Memories with a scope: who shares what a drafter has learnt, how it is kept, and for whom it is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from littlemodel import chatting_model, little_model, loaded

from unspool import Settings
from unspool.core.errors import BadRequest
from unspool.loops.speculate import Speculate
from unspool.recipes import memory as memories
from unspool.recipes.memory import SCOPES, Remembering, stamp_of
from unspool.recipes.methods import NotOffered, entries, method, needs, requested
from unspool.recipes.names import canonical
from unspool.rules.draft import Store
from unspool.rules.draft.suffixtree import Page

REMEMBER = ("auto", "bigram_recycling", "either", "forced", "masks", "merge", "phrase", "prefilled", "recycle", "stand")
REMEMBER += ("suffixtree",)
FREE = [name for name in REMEMBER if not needs(name) and name not in ("masks", "forced")]
LOOP = Settings(max_tokens=24, temperature=0.0, seed=1, n=2, ignore_eos=True)


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    with loaded(chatting_model(tmp_path_factory.mktemp("memory") / "little")) as made:
        yield made


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    memories._memories.clear()
    memories._files.clear()


def forwards(lm, spec, settings=LOOP, prompt="abc"):
    for model in lm.models().values():
        model.forget()
    outputs = lm.samples(prompt, settings, spec)
    return sum(output.trace.forwards["target"] for output in outputs), outputs


def test_drafters_say_whether_they_have_anything_to_remember():
    needs = {"retrieve", "specdecpp"}  # a file
    drafters = [entry.name for entry in entries().values() if entry.family == "draft" and entry.name not in needs]
    assert tuple(name for name in drafters if method(name).draft.memory(4) is not None) == REMEMBER


@pytest.mark.parametrize("name", FREE)
def test_what_a_process_remembers_saves_forwards_and_changes_no_text(lm, name):
    settings = replace(LOOP, n=1)
    cold, first = forwards(lm, f"{name}@process + sample_match", settings)
    warm, second = forwards(lm, f"{name}@process + sample_match", settings)
    plain = forwards(lm, "plain", settings)[1]
    assert first[0].tokens == second[0].tokens == plain[0].tokens
    assert warm < cold
    assert (first[0].trace.warm, plain[0].trace.warm) == (0, 0)
    assert second[0].trace.record()["warm_entries"] > 0
    assert "warm: " in str(second[0].trace)
    assert "warm: " not in str(first[0].trace)


def test_the_texts_of_one_call_share_a_batch_and_no_others_do(lm):
    """The second text of a call is written beside the first, so that only `stand`'s own scope helps it."""
    settings = replace(LOOP, n=6, temperature=0.6)
    alone, together = forwards(lm, "stand@request", settings)[0], forwards(lm, "stand", settings)[0]
    assert together < alone
    assert forwards(lm, "stand@batch", settings)[0] == together  # nothing is left of the call before


def test_a_session_is_as_long_as_the_method(lm):
    settings = replace(LOOP, n=1)
    kept = method("recycle@session")
    cold, warm = forwards(lm, kept, settings)[0], forwards(lm, kept, settings)[0]
    assert warm < cold
    assert forwards(lm, "recycle@session", settings)[0] == cold


def test_a_memory_in_a_file_is_read_by_the_next_process(lm, tmp_path):
    spec, settings = f"recycle:memory={tmp_path / 'kept.pt'}", replace(LOOP, n=1)
    cold = forwards(lm, spec, settings)[0]
    memories.save()
    memories._files.clear()
    warm, outputs = forwards(lm, spec, settings)
    assert warm < cold
    assert outputs[0].trace.warm > 0


@pytest.mark.parametrize("name", [name for name in REMEMBER if name != "masks"])
def test_every_memory_is_the_same_after_it_was_kept(lm, name, tmp_path):
    draft = method(name).draft
    made, other = draft.memory(64), draft.memory(64)
    texts = [lm.vocabulary.encode(text) for text in ("abcabcabd", "abcabe")]
    fill(made, texts)
    other.restore(made.state())
    assert len(other) == len(made) > 0
    assert other.state() == made.state()


def fill(memory, texts):
    """Have a memory learn something, whatever it is."""
    for part in getattr(memory, "parts", ()):
        if part is not None:
            fill(part, texts)
    for text in texts:
        match type(memory).__name__:
            case "NgramPool":
                memory.read(text)
            case "Successors":
                memory.put(text, [[(x, 0.5)] for x in text])
            case "BigramLaws":
                memory.put([*pairwise(text)], [[(x, 0.5)] for x in text[1:]])
            case "NgramLaws":
                memory.see(text, {1: 0.5, 2: 0.5})
            case "SuffixTreeMemory":
                memory.write(Page(memory._young, 0), text)


def test_a_memory_or_store_of_another_tokenizer_is_refused_in_words(lm, tmp_path, smollm2):
    kept, store = tmp_path / "kept.pt", tmp_path / "store.pt"
    forwards(lm, f"recycle:memory={kept}")
    memories.save()
    Store([(1, 2, 40000)]).save(tmp_path / "plain.pt")
    Store([smollm2.vocabulary.encode("def add(a, b):")]).save(store, stamp_of(smollm2.vocabulary))
    few = Settings(max_tokens=2)
    with pytest.raises(BadRequest, match=r"the memory .* was made with another tokenizer"):
        smollm2.generate("a", few, f"recycle:memory={kept}")
    memories._files.clear()
    with pytest.raises(BadRequest, match=r"the memory .* was made with another tokenizer"):
        smollm2.generate("a", few, f"recycle:memory={kept}")
    with pytest.raises(BadRequest, match="is a memory of Recycle, and BigramRecycling has others"):
        lm.generate("a", few, f"bigram_recycling:memory={kept}")
    for spec in (f"retrieve:store={store}", f"suffix:corpus={store}", f"trigram:corpus={store}"):
        smollm2.generate("def add(a, b", few, spec)
        with pytest.raises(BadRequest, match=r"the store .* was made with another tokenizer"):
            lm.generate("a", few, spec)
    with pytest.raises(BadRequest, match="it has the token 40000, and this model's are 0 to"):
        lm.generate("a", few, f"retrieve:store={tmp_path / 'plain.pt'}")
    kept.write_bytes(b"nonsense")
    memories._files.clear()
    with pytest.raises(BadRequest, match="cannot be read as a memory of Recycle"):
        lm.generate("a", few, f"recycle:memory={kept}")


def test_a_store_is_made_of_a_folder_and_drafted_from(here, tmp_path, lm):
    folder, out, model = tmp_path / "texts", tmp_path / "store.pt", little_model(tmp_path / "model")
    folder.mkdir()
    written = lm.generate("abc", replace(LOOP, n=1)).text
    (folder / "a.txt").write_text("abc" + written)
    (folder / "b.bin").write_bytes(b"\xff\xfe\x00")
    (folder / ".hidden").write_text("no")
    code, _, err = here("store", str(folder), "-o", str(out), "-m", str(model))
    assert code == 0
    assert "of 1 texts" in err
    settings = replace(LOOP, n=1)
    plain = forwards(lm, "plain", settings)
    for spec in ("retrieve:store", "suffix:corpus", "trigram:corpus"):
        took, outputs = forwards(lm, f"{spec}={out}", settings)
        assert took < plain[0]
        assert outputs[0].tokens == plain[1][0].tokens
    assert forwards(lm, f"suffix:corpus={out}", settings)[0] < forwards(lm, "suffix", settings)[0]
    assert here("store", str(tmp_path / "none"), "-o", str(out), "-m", str(model))[0] == 2


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("lookup@process", "it remembers nothing that a process could share"),
        ("stand@world", "has the scope 'world'; expected one of request, batch, session, process"),
        ("stand@", "has no scope behind its @"),
        ("stand@:nodes=4", "has no scope behind its @"),
        ("chain + block@batch", "verifiers remember nothing; write @batch after the drafter"),
        ("recycle@process:memory=x", "its memory is in a file, so leave @process out"),
        ("recycle:memory=/nowhere/at/all.pt", "its folder does not exist"),
    ],
)
def test_what_cannot_be_shared_is_said(lm, spec, why):
    with pytest.raises(BadRequest, match=why):
        lm.generate("a", Settings(max_tokens=2), spec)


def test_a_scope_goes_with_options_and_verifiers():
    assert canonical("Token Recycling@process:nodes=4 + SpecTr") == "recycle@process:nodes=4 + kseq"
    made = method("stand@process:nodes=4 + block")
    assert isinstance(made, Remembering)
    assert (made.scope, made.budget, made.verify.__name__) == ("process", 4, "block")
    assert type(method("stand@request")) is Speculate


@pytest.mark.parametrize("scope", SCOPES)
def test_a_request_shares_with_other_requests_only_if_the_operator_offers_it_and_then_by_client(lm, scope):
    spec = f"recycle@{scope}"
    if scope in ("request", "batch"):
        requested(spec)
        return
    for offered in ((), (f"{spec}:nodes=8",)):
        with pytest.raises(NotOffered, match="shares what was written between requests"):
            requested(spec, offered)
    if scope == "session":
        with pytest.raises(BadRequest, match=r"every request has a method of its own. Write @process"):
            requested(spec, (spec,))
        return
    settings = replace(LOOP, n=1)
    cold = forwards(lm, requested(spec, (spec,), "one"), settings)[0]
    again = forwards(lm, requested(spec, (spec,), "one"), settings)[0]
    other = forwards(lm, requested(spec, (spec,), "two"), settings)[0]
    assert other == cold
    assert again < cold


class Words:
    """A vocabulary of three tokens, of which one is this."""

    size = 3

    def __init__(self, last):
        self._last = last

    def piece(self, token):
        return (b"a", b"b", self._last)[token]


@pytest.mark.parametrize("scope", ["session", "process"])
def test_what_is_remembered_of_one_vocabulary_is_not_drafted_in_another(scope):
    """Tokens are numbers, and mean something else there."""
    made = method(f"recycle@{scope}")
    first, same, other = (made.fit(Words(last)).draft.shared for last in (b"c", b"c", b"d"))
    assert first is same
    assert first is not other


def test_a_process_has_so_many_memories_and_no_more(lm):
    for number in range(memories.MEMORIES + 3):
        requested("recycle@process", ("recycle@process",), f"client {number}").fit(lm.vocabulary)
    assert len(memories._memories) == memories.MEMORIES
