"""`runstone runs` and `runstone sessions`: beside a running server, and against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from runstone.cli import main
from runstone.cli.asking import Server as Asked
from runstone.cli.printing import plain, short, table
from runstone.cli.timeline import timeline
from tests.interop.serving import running


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of the agents `plain` and `endless` on a database in `tmp_path`."""
    with running(tmp_path, ["plain", "endless"]) as address:
        yield address


def start(address: str, **body: Any) -> str:
    """A run; its id."""
    answer = httpx.post(f"{address}/v1/runs", json={"input": "hi", "model": "plain", **body})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def looked(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    """What a command prints."""
    capsys.readouterr()
    assert main(words) == status
    return capsys.readouterr().out


@pytest.mark.timeout(60)
def test_looking_at_runs_beside_a_server(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs and sessions of a running server's database are listed and shown, as lines and as JSON, and replayed."""
    db = ["--db", str(tmp_path / "runs.db")]
    start(address, run_id="r1", session_id="s1")
    assert looked(capsys, "runs", "follow", "r1", "--url", address)
    listed = looked(capsys, "runs", "list", *db)
    assert [line.split()[0] for line in listed.splitlines()] == ["run", "r1"]
    assert "completed" in listed
    (record,) = [json.loads(line) for line in looked(capsys, "runs", "list", "--json", *db).splitlines()]
    assert (record["id"], record["session_id"], record["status"]) == ("r1", "s1", "completed")
    assert looked(capsys, "runs", "list", "--status", "failed", "--json", *db) == ""
    shown = looked(capsys, "runs", "show", "r1", *db)
    assert "You said: hi" in shown and "status   completed" in shown
    assert json.loads(looked(capsys, "runs", "show", "r1", "--json", *db))["run"]["id"] == "r1"
    lines = looked(capsys, "runs", "replay", "r1", *db).splitlines()
    assert "run created" in lines[0] and "user: hi" in lines[0]
    assert "run ended" in lines[-1] and "outcome=completed" in lines[-1]
    events = [json.loads(line) for line in looked(capsys, "runs", "replay", "r1", "--json", *db).splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    sessions = looked(capsys, "sessions", "list", *db)
    assert sessions.splitlines()[1].split()[:3] == ["s1", "hi", "completed"]
    history = looked(capsys, "sessions", "show", "s1", *db)
    assert "user" in history and "  You said: hi" in history
    assert json.loads(looked(capsys, "sessions", "show", "s1", "--json", *db))["session"]["id"] == "s1"
    assert json.loads(looked(capsys, "sessions", "list", "--json", "--search", "HI", *db))["id"] == "s1"


@pytest.mark.timeout(60)
def test_following_and_stopping(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`follow` prints a run's events to its end, from any event on; `stop` ends it; the exit status is the outcome."""
    start(address, run_id="r2", model="endless")
    asked = ["--url", address]
    assert json.loads(looked(capsys, "runs", "stop", "r2", "--reason", "enough", "--json", *asked))["run_id"] == "r2"
    lines = looked(capsys, "runs", "follow", "r2", *asked, status=1).splitlines()
    assert "outcome=cancelled" in lines[-1] and "reason=enough" in lines[-1]
    events = [
        json.loads(line) for line in looked(capsys, "runs", "follow", "r2", "--json", *asked, status=1).splitlines()
    ]
    rest = looked(capsys, "runs", "follow", "r2", "--json", "--after", str(events[2]["seq"]), *asked, status=1)
    assert [json.loads(line) for line in rest.splitlines()] == events[3:]
    assert "cancelled" in looked(capsys, "runs", "stop", "r2", *asked)


@pytest.mark.timeout(60)
def test_a_socket_of_a_real_server(address: str) -> None:
    """A WebSocket client follows a session of a real server, and hears when it is deleted."""
    httpx.post(f"{address}/api/sessions", json={"id": "s"})
    with connect(f"{address.replace('http', 'ws')}/api/sessions/s/events?format=hermes", compression=None) as socket:
        start(address, run_id="r3", session_id="s")
        names: list[str] = []
        while not names or names[-1] != "run.completed":
            names.append(json.loads(socket.recv(timeout=10))["event"])
        assert names[:3] == ["run.started", "message.started", "assistant.delta"]
        httpx.delete(f"{address}/api/sessions/s")
        with pytest.raises(ConnectionClosedOK):
            socket.recv(timeout=10)


def test_what_the_user_can_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No database, no such run, no server, no address: one sentence each, without a traceback."""
    for words, status, said in (
        (["runs", "list", "--db", str(tmp_path / "none.db")], 2, "no database"),
        (["runs", "list", "--db", "memory"], 2, "memory"),
        (["runs", "stop", "r", "--url", "http://127.0.0.1:9"], 1, "No server answers"),
        (["runs", "follow", "r", "--url", "nowhere"], 2, "'nowhere'"),
    ):
        assert main(words) == status
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1, error


@pytest.mark.timeout(60)
def test_unknown_ids(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An id that nobody has is one sentence and status 1, in the database and at the server."""
    db = ["--db", str(tmp_path / "runs.db")]
    for words in (
        ["runs", "show", "nobody", *db],
        ["runs", "replay", "nobody", *db],
        ["sessions", "show", "nobody", *db],
        ["runs", "stop", "nobody", "--url", address],
        ["runs", "follow", "nobody", "--url", address],
    ):
        assert main(words) == 1
        assert "nobody" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_a_reader_that_has_enough(address: str, tmp_path: Path) -> None:
    """A pipe that is closed early ends the command without a traceback."""
    for n in range(3):
        start(address, run_id=f"r{n}")
    command = f"{sys.executable} -m runstone runs list --json --db {tmp_path / 'runs.db'} | head -c 1"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RUNSTONE_")}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, env=environment)
    assert (done.stdout, done.stderr) == ("{", "")


class _Cutting(BaseHTTPRequestHandler):
    """A server whose streams are cut after each event, until the end."""

    asked: list[str | None] = []  # noqa: RUF012

    def do_GET(self) -> None:
        """One event after the one that the client has; then the connection ends."""
        after = self.headers["last-event-id"]
        self.asked.append(after)
        seq = int(after or 0) + 1
        self.send_response(200)
        self.end_headers()
        event = {"type": "run_ended" if seq == 3 else "run_started", "seq": seq, "at": 1.0, "outcome": "completed"}
        self.wfile.write(b": ping\nid: %d\nevent: x\ndata: %b\n\n" % (seq, json.dumps(event).encode()))
        if seq == 3:
            self.wfile.write(b"event: done\ndata: {}\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.timeout(60)
def test_a_cut_stream_is_taken_up_again() -> None:
    """`follow` reads on after the last event that it has, each event once."""
    server = HTTPServer(("127.0.0.1", 0), _Cutting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        asked = Asked(f"http://127.0.0.1:{server.server_port}", None)
        assert [event["seq"] for event in asked.events("v1", "runs", "r", "events", query="")] == [1, 2, 3]
        assert _Cutting.asked == [None, "1", "2"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_nothing_is_printed_that_a_terminal_obeys() -> None:
    """Escapes, line ends and marks that turn text around are shown, not sent; long texts are cut."""
    assert plain("a\x1b[2Jb\nc\u202ed\ud800") == "a\\x1b[2Jb\\nc\\u202ed\\ud800"
    assert short("x" * 200, 5) == "xxxxx..."
    assert table(["a", "b"], [["1", "22"], ["333", "4"]]) == "a    b\n1    22\n333  4"


def test_a_timeline_joins_words() -> None:
    """Neighbouring words of one item are one line, at the time and number of the first."""
    events = [
        {"type": "run_created", "seq": 1, "at": 10.0, "agent": "a", "input": []},
        {"type": "text_delta", "seq": 2, "at": 10.5, "item_id": "i1", "text": "one "},
        {"type": "text_delta", "seq": 3, "at": 10.6, "item_id": "i1", "text": "two\x1b"},
        {"type": "text_delta", "seq": 4, "at": 10.7, "item_id": "i2", "text": "three"},
    ]
    lines = [line.split(maxsplit=3) for line in timeline(events)]
    assert lines[1:] == [["0.500s", "2", "text", "one two\\x1b"], ["0.700s", "4", "text", "three"]]
