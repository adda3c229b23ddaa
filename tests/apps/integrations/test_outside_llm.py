"""The plugin of `llm`: models, options, system prompts, conversations, schemas, in process and as its command line."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
from patience import PATIENCE

llm = pytest.importorskip("llm")
pytest.importorskip("llguidance")

from unspool.api.settings import Settings  # noqa: E402
from unspool.apps.integrations import plugin  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def model(smollm2, monkeypatch):
    """The plugin's default model, on the one that is loaded already."""
    asked = []

    def load(name, **how):
        asked.append(name)
        return smollm2

    monkeypatch.setattr("unspool.api.loader.load", load)
    made = plugin.PluginModel("unspool/smollm2", "smollm2")
    made.asked = asked
    return made


def test_every_model_of_the_catalogue_is_registered():
    found = []
    plugin.register_models(found.append)
    assert {"unspool", "unspool/smollm2", "unspool/smollm2-diffusion"} <= {model.model_id for model in found}


def test_the_text_is_unspools_own_and_comes_in_pieces(model, smollm2):
    told = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is the sky blue?"}]
    want = smollm2.generate(told, Settings(max_tokens=12))
    response = model.prompt("Why is the sky blue?", system="Be brief.", max_tokens=12, method="suffix")
    pieces = list(response)
    assert "".join(pieces) == want.text
    assert len(pieces) > 3
    assert response.input_tokens == len(smollm2.encode(told))
    assert response.output_tokens == 12
    assert response.response_json["trace"]["tokens"] == 12
    whole = model.prompt("Why is the sky blue?", system="Be brief.", max_tokens=12, stream=False)
    assert whole.text() == want.text
    assert model.asked == ["smollm2"]  # loaded once


def test_a_conversation_remembers_its_turns(model, smollm2):
    talk = model.conversation()
    first = talk.prompt("Name a colour.", max_tokens=4).text()
    told = [{"role": "user", "content": "Name a colour."}, {"role": "assistant", "content": first}]
    told.append({"role": "user", "content": "Another."})
    want = smollm2.generate(told, Settings(max_tokens=6)).text
    assert talk.prompt("Another.", max_tokens=6).text() == want


def test_a_seed_decides_a_drawn_text_by_any_method(model):
    def drawn(**options):
        return model.prompt("Tell me a story.", temperature=1.0, top_p=0.9, max_tokens=10, **options).text()

    assert drawn(seed=5) == drawn(seed=5, method="lookup")
    assert drawn(seed=5) != drawn(seed=6)


def test_a_schema_is_met(model):
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    schema["additionalProperties"] = False
    found = json.loads(model.prompt("Is water wet?", schema=schema, max_tokens=40).text())
    assert isinstance(found["ok"], bool)
    with pytest.raises(llm.ModelError, match="-o within N"):
        model.prompt("Is water wet?", schema=schema, max_tokens=2).text()
    assert "ok" in json.loads(model.prompt("Is water wet?", schema=schema, max_tokens=16, within=16).text())


def test_mistakes_are_told_as_llm_tells_them(model):
    with pytest.raises(llm.ModelError, match="no method is called 'fast'"):
        model.prompt("hi", method="fast").text()
    with pytest.raises(llm.ModelError, match="temperature"):
        model.prompt("hi", temperature=-1).text()
    with pytest.raises(llm.ModelError, match="-o model"):
        plugin.PluginModel("unspool", None).prompt("hi").text()


def test_the_command_line_finds_the_plugin_and_answers(tmp_path, smollm2, smollm2_path):
    if "unspool" not in {entry.name for entry in entry_points(group="llm")}:
        pytest.skip("unspool was installed before it had this entry point; install it again")
    command = [sys.executable, "-m", "llm", "-m", "unspool", "-o", "model", str(smollm2_path), "-o", "max_tokens", "6"]
    done = subprocess.run(
        [*command, "Why is the sky blue?"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "LLM_USER_PATH": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    asked = [{"role": "user", "content": "Why is the sky blue?"}]
    assert done.stdout.strip() == smollm2.generate(asked, Settings(max_tokens=6)).text.strip()
