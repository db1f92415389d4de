"""Streams over real sockets that are cut anywhere, again and again: all that comes is what was to come, byte by byte."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
STREAMS, CUTS = 60, 200
PATIENCE = 10.0
DONE = b"data: [DONE]"


class Server:
    """`runstone run` in a process of its own, on one database all the time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.process: subprocess.Popen[str]

    def start(self) -> None:
        """Begin, and wait until it listens."""
        command = [sys.executable, "-m", "runstone", "run", str(ROOT / "tests/recovery/talker.py"), "--port", "0"]
        command += ["--db", str(self._folder / "runs.db"), "--set", "server.drain_timeout=0"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rpartition(":")[2])

    def end(self, *, kill: bool = False) -> None:
        """End it, well or at once."""
        (self.process.kill if kill else self.process.terminate)()
        self.process.communicate(timeout=PATIENCE)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that listens."""
    running = Server(tmp_path)
    running.start()
    yield running
    running.end(kill=True)


class Surface(msgspec.Struct, frozen=True):
    """One way to start a run, and to read it."""

    name: str
    is_chat: bool
    fields: dict[str, Any] = {}
    headers: dict[str, str] = {}

    def start(self, run_id: str, words: int) -> tuple[str, str, dict[str, Any]]:
        """The request that starts a run."""
        body: dict[str, Any] = {"model": "talker", "stream": True, "run_id": run_id, **self.fields}
        if self.is_chat:
            turn = [{"role": "user", "content": str(words)}]
            return "POST", "/v1/chat/completions", {**body, "messages": turn}
        return "POST", "/v1/responses", {**body, "input": str(words)}

    def rest(self, run_id: str, seen: list[bytes]) -> tuple[str, dict[str, str]]:
        """Where what follows is read, and with which headers; the whole without `seen`."""
        cursors = [cursor for frame in seen if (cursor := self._cursor(frame)) is not None]
        if self.is_chat:
            named = {"Last-Event-ID": cursors[-1]} if cursors else {}
            return f"/v1/chat/completions/{run_id}?stream=true", {**self.headers, **named}
        after = f"&starting_after={cursors[-1]}" if cursors else ""
        return f"/v1/responses/resp_{run_id}?stream=true{after}", self.headers

    def _cursor(self, frame: bytes) -> str | None:
        if frame == DONE:
            return None
        if self.is_chat:
            return frame.partition(b"\n")[0].removeprefix(b"id: ").decode()
        return str(json.loads(frame.partition(b"data: ")[2])["sequence_number"])


SURFACES = [
    Surface("stateless chat", True, {"stream_options": {"include_usage": True}}),
    Surface("chat in a session", True, {"session_id": "talk", "busy": "queue", "history": "replace"}),
    Surface("chat with steps", True, {"dialect": "steps", "store": True}),
    Surface("responses", False),
    Surface("responses of an official client", False, headers={"User-Agent": "OpenAI/Python 3.57.0"}),
]


class Stream:
    """An event stream on a connection of its own."""

    def __init__(
        self, server: Server, method: str, target: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        text = None if body is None else json.dumps(body)
        self._connection.request(method, target, text, {"Content-Type": "application/json", **headers})
        assert self._connection.sock is not None
        self._socket = self._connection.sock
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.read()

    def frames(self) -> Iterator[bytes]:
        """The frames, without keep-alives."""
        left = b""
        while piece := self._answer.read1(4096):
            *whole, left = (left + piece).split(b"\n\n")
            for frame in whole:
                if shown := b"\n".join(line for line in frame.split(b"\n") if not line.startswith(b":")):
                    yield shown

    def to_the_end(self) -> list[bytes]:
        """All frames."""
        found = list(self.frames())
        self.cut()
        return found

    def cut(self) -> None:
        """Reset the connection."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._answer.close()
        self._connection.close()


def started(server: Server, surface: Surface, run_id: str, words: int) -> Stream:
    """The stream of a new run."""
    return Stream(server, *surface.start(run_id, words), surface.headers)


def rest_of(server: Server, surface: Surface, run_id: str, seen: list[bytes]) -> Stream:
    """The stream of what follows."""
    target, headers = surface.rest(run_id, seen)
    return Stream(server, "GET", target, None, headers)


class Talk(msgspec.Struct):
    """A run, what its cut reader saw of it, and how often it was cut."""

    surface: Surface
    run_id: str
    seen: list[bytes] = []
    cuts: int = 0


def cut_and_resumed(server: Server, number: int) -> Talk:
    """A run whose reader is cut off after some frames, again and again, until it has seen the end."""
    rng = random.Random(number)
    talk = Talk(SURFACES[number % len(SURFACES)], f"talk-{number}")
    stream = started(server, talk.surface, talk.run_id, rng.choice([0, 1, 20, 60, 150]))
    while True:
        most = rng.choice([0, 1, 2, rng.randrange(20), rng.randrange(150)])
        for _, frame in zip(range(most), stream.frames(), strict=False):
            talk.seen.append(frame)
        stream.cut()
        if DONE in talk.seen:
            return talk
        talk.cuts += 1
        stream = rest_of(server, talk.surface, talk.run_id, talk.seen)


def check_everywhere(server: Server, talks: list[Talk], rng: random.Random) -> None:
    """See that each run's stream is what was seen, as a whole and after any frame of it."""
    for talk in talks:
        surface, whole = talk.surface, talk.seen
        assert rest_of(server, surface, talk.run_id, []).to_the_end() == whole
        # The end mark has no cursor: who was cut before it, and who has it, are told once more that it is the end.
        place = rng.randrange(len(whole))
        assert rest_of(server, surface, talk.run_id, whole[:place]).to_the_end() == whole[place:]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_streams_that_are_cut_two_hundred_times(server: Server) -> None:
    """o-run-01, o-run-02: resumed after each cut, all of it comes once; also when it is over, after a restart and a kill."""
    with ThreadPoolExecutor(8) as readers:
        talks = list(readers.map(lambda number: cut_and_resumed(server, number), range(STREAMS)))
    more = STREAMS
    while sum(talk.cuts for talk in talks) < CUTS:
        talks.append(cut_and_resumed(server, more))
        more += 1
    rng = random.Random(0)
    check_everywhere(server, talks, rng)
    for kill in (False, True):
        server.end(kill=kill)
        server.start()
        check_everywhere(server, talks, rng)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_streams_of_a_server_that_is_killed(server: Server) -> None:
    """o-sto-01: what clients saw before a `kill -9` is the beginning of what is there, and the rest comes, with an end."""
    rng = random.Random(1)
    talks = [Talk(surface, f"killed-{n}") for n, surface in enumerate(SURFACES)]
    # Those in one session wait for each other, so there is only one.
    streams = [started(server, talk.surface, talk.run_id, 100_000) for talk in talks]
    for talk, stream in zip(talks, streams, strict=True):
        for _, frame in zip(range(rng.randrange(1, 300)), stream.frames(), strict=False):
            talk.seen.append(frame)
    server.end(kill=True)
    for stream in streams:
        stream.cut()
    server.start()
    for talk in talks:
        whole = rest_of(server, talk.surface, talk.run_id, []).to_the_end()
        assert whole[: len(talk.seen)] == talk.seen
        assert whole[-1] == DONE
        assert b"worker_lost" in whole[-2]
        assert rest_of(server, talk.surface, talk.run_id, talk.seen).to_the_end() == whole[len(talk.seen) :]
