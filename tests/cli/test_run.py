"""`runstone run`: settings, banner, errors in words, a real server and its end."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runstone import __version__
from runstone.app import App
from runstone.cli import main, parser
from runstone.cli.run import banner, config_of, keys_of
from runstone.config import Config
from runstone.errors import ConfigError

AGENT = """
import asyncio

async def agent(messages):
    yield "hello "
    if messages[-1]["content"] == "stay":
        await asyncio.sleep(60)
    yield "there"
"""


def options(*words: str) -> argparse.Namespace:
    """A command line, read."""
    return parser().parse_args(["run", *words])


def test_settings_of_the_command_line(tmp_path: Path) -> None:
    """Flags win over `--set`, that over the file; keys are by user."""
    file = tmp_path / "settings.yaml"
    file.write_text("server: {port: 1, ping_after: 3}\nchat: {dialect: steps}\n")
    words = ["x.py", "--config", str(file), "--set", "server.port=2", "--set", "engine.busy=queue", "--port", "3"]
    config = config_of(options(*words, "--db", "memory", "--key", "ann=sk-1", "--key", "bob=sk-2", "--host", "0.0.0.0"))
    assert (config.server.port, config.server.ping_after, config.server.host) == (3, 3.0, "0.0.0.0")
    assert (config.chat.dialect, config.engine.busy, config.storage.url) == ("steps", "queue", "memory")
    assert config.server.keys == {"sk-1": "ann", "sk-2": "bob"}


def test_the_settings_file_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`runstone.yaml` in the working directory is used when no other is named."""
    monkeypatch.chdir(tmp_path)
    assert config_of(options("x.py")).server.port == Config().server.port
    (tmp_path / "runstone.yaml").write_text("name: shop\nserver: {port: 7}\n")
    assert config_of(options("x.py")).server.port == 7


@pytest.mark.parametrize("words", [["ann"], ["=sk"], ["ann="], ["ann=k", "bob=k"]])
def test_keys_in_words(words: list[str]) -> None:
    """A key that is not USER=KEY, or is another user's, is refused."""
    with pytest.raises(ConfigError):
        keys_of(words)


@pytest.mark.parametrize(
    "words",
    [
        ["nowhere.py"],
        ["no_such_module:agent"],
        ["agent.py", "--set", "server.nonsense=1"],
        ["agent.py", "--set", "server.port=many"],
        ["agent.py", "--host", "0.0.0.0"],
        ["agent.py", "--db", "postgresql://x"],
        ["agent.py", "--config", "nowhere.yaml"],
        ["broken.py"],
    ],
    ids=" ".join,
)
def test_what_the_user_can_mend_is_one_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong target or setting is said in words on stderr, with exit status 2 and no traceback."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "broken.py").write_text("import no_such_library\n")
    db = [] if "--db" in words else ["--db", "memory"]
    assert main(["run", *words, *db]) == 2
    said = capsys.readouterr().err
    assert said.startswith("runstone: ")
    assert "Traceback" not in said


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` says the version."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"runstone {__version__}\n"


def test_the_banner_says_what_is_served() -> None:
    """Agents with what they can, the database, who may call, and a command to try; never a key."""
    app = App({"shop": lambda messages: "x"}, storage="memory", keys={"sk-secret": "ann"})
    text = banner(app, "http://127.0.0.1:8080")
    for words in ("http://127.0.0.1:8080", "shop (function): stop", "memory", "keys of ann", "curl -N"):
        assert words in text
    assert "sk-secret" not in text
    body = re.search(r"-d '(.*)'", text)
    assert body is not None
    assert json.loads(body[1])["model"] == "shop"


class Server:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        (folder / "agent.py").write_text(AGENT)
        command = [sys.executable, "-m", "runstone", "run", "agent.py", "--port", "0", *words]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RUNSTONE_")}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        self.address = first.split()[-1]
        assert self.address.startswith("http://127.0.0.1:"), first

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Send the signal; exit status and what was said on stderr."""
        self.process.send_signal(with_signal)
        _, said = self.process.communicate(timeout=15)
        return self.process.returncode, said


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with a database in a folder."""
    server = Server(tmp_path, "--set", "server.drain_timeout=0.2")
    yield server
    if server.process.poll() is None:
        server.process.kill()
    server.process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_server_ends_well(server: Server, tmp_path: Path) -> None:
    """On SIGTERM an open stream gets its conclusion before its end; after a restart the run is there, with its outcome."""
    body = {"model": "agent", "messages": [{"role": "user", "content": "stay"}], "stream": True, "session_id": "s"}
    lines: list[str] = []
    with httpx.stream("POST", f"{server.address}/v1/chat/completions", json=body, timeout=30) as answer:
        assert "server" not in answer.headers
        run_id = answer.headers["runstone-run-id"]
        for line in answer.iter_lines():
            lines.append(line)
            if "hello " in line:
                server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(15) in (0, -signal.SIGTERM)
    told = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert json.loads(told[-2])["error"]["reason"] == "shutdown"
    assert told[-1] == "[DONE]"
    again = Server(tmp_path)
    page = httpx.get(f"{again.address}/v1/chat/sessions/s/messages").json()
    assert (page["runs"][0]["id"], page["runs"][0]["status"]) == (run_id, "interrupted")
    assert page["messages"][-1]["content"] == "hello "
    status, said = again.end()
    assert status in (0, -signal.SIGTERM)
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, kind: signal.Signals) -> None:
    """While the server waits for a run to end, a second signal does not."""
    server = Server(tmp_path, "--set", "server.drain_timeout=30")
    body = {"model": "agent", "messages": [{"role": "user", "content": "stay"}], "stream": True}
    with httpx.stream("POST", f"{server.address}/v1/chat/completions", json=body, timeout=30) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        server.process.send_signal(kind)
        while httpx.get(f"{server.address}/readyz").status_code == 200:
            pass
        server.process.send_signal(kind)
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
        assert server.process.wait(5) != 0
    server.process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_what_a_client_saw_survives_a_kill(server: Server, tmp_path: Path) -> None:
    """o-sto-01: after `kill -9` every event that the client saw is in the log, and the run is interrupted."""
    body = {"model": "agent", "messages": [{"role": "user", "content": "stay"}], "stream": True, "session_id": "s"}
    lines: list[str] = []
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream("POST", f"{server.address}/v1/chat/completions", json=body, timeout=30) as answer,
    ):
        run_id = answer.headers["runstone-run-id"]
        for line in answer.iter_lines():
            lines.append(line)
            if "hello " in line:
                server.process.kill()
    server.process.wait(15)
    again = Server(tmp_path)
    resumed = httpx.get(f"{again.address}/v1/chat/completions/{run_id}?stream=true").text
    seen = [line for line in lines if line.startswith(("id: ", "data: "))]
    assert resumed.splitlines()[: len(lines)] == lines
    assert seen
    assert '"code":"interrupted","reason":"worker_lost"' in resumed
    assert resumed.endswith("data: [DONE]\n\n")
    again.end(signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_second_server_on_the_database_names_the_first(server: Server, tmp_path: Path) -> None:
    """Two servers on one file: the second says who has it and ends with status 2; the first goes on."""
    second = subprocess.run(
        [sys.executable, "-m", "runstone", "run", "agent.py", "--port", "0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 2
    assert str(server.process.pid) in second.stderr
    assert "Traceback" not in second.stderr
    assert httpx.get(f"{server.address}/readyz").status_code == 200


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_port_that_is_taken(server: Server, tmp_path: Path) -> None:
    """A port that somebody has is one sentence and status 2."""
    port = server.address.rpartition(":")[2]
    second = subprocess.run(
        [sys.executable, "-m", "runstone", "run", "agent.py", "--port", port, "--db", "memory"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 2
    assert port in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("port", ["99999", "-1"])
def test_a_port_that_is_none(tmp_path: Path, port: str) -> None:
    """A number that no port has is one sentence and status 2."""
    (tmp_path / "agent.py").write_text("def agent(messages):\n    return 'hi'\n", encoding="utf-8")
    started = subprocess.run(
        [sys.executable, "-m", "runstone", "run", "agent.py", "--port", port, "--db", "memory"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert started.returncode == 2
    assert "expected a port from 0 to 65535" in started.stderr
    assert "Traceback" not in started.stderr
