"""The worker as a process: killed, starved, crowded, alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from runstone.attachments import Extraction, Extractor, Limits
from runstone.attachments.process import _BOOT, worker_command
from runstone.attachments.wire import Job, report_from_bytes, request_bytes
from tests.attachments import files

ANSWER = """b'{"kind":"text","status":"ok","text":"done"}'"""
LOOP = "while True: pass"


def python(script: str, *arguments: str) -> list[str]:
    """The command that runs a script in place of the worker."""
    return [sys.executable, "-I", "-S", "-c", script, *arguments]


async def extract(command: list[str], limits: Limits | None = None, content: bytes = b"x") -> Extraction:
    """One extraction by the command."""
    return await Extractor(limits, command=command).extract(content=content, name="a.txt", media_type=None)


def is_gone(pid: int) -> bool:
    """Whether no process has the id, not even a dead one that nobody waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_hang_ends_in_timeout() -> None:
    """A worker that never ends is killed, and the result says so."""
    found = asyncio.run(extract(python(LOOP), Limits(timeout=0.3)))
    assert (found.kind, found.status, found.text) == ("text", "timeout", "")
    assert found.warnings == ["Reading the file took longer than 0.3 seconds."]


def test_worker_that_reads_nothing_is_killed() -> None:
    """A worker that leaves its input unread does not block the server."""
    found = asyncio.run(extract(python(LOOP), Limits(timeout=0.3), bytes(4 * files.MIB)))
    assert found.status == "timeout"


def test_worker_that_answers_early() -> None:
    """A worker that answers without reading its input is believed."""
    script = f"import os; os.write(1, {ANSWER})"
    found = asyncio.run(extract(python(script), content=b"x" * (4 * files.MIB)))
    assert (found.status, found.text) == ("ok", "done")


@pytest.mark.parametrize(
    "script",
    [
        "import os; os.abort()",
        "raise SystemExit(1)",
        "",
        "print('not a report')",
        """print('{"kind":"text","status":"surprising"}')""",
        "import os\nwhile True: os.write(1, b'x' * 65536)",
    ],
    ids=["abort", "exit", "silent", "garbage", "unknown-status", "endless"],
)
def test_worker_that_misbehaves(script: str) -> None:
    """A worker that crashes, says nothing, something else or too much makes a failed extraction."""
    found = asyncio.run(extract(python(script)))
    assert (found.status, found.text) == ("failed", "")
    assert found.warnings == ["The reader of attached files ended unexpectedly on this file."]


def test_worker_that_cannot_be_started() -> None:
    """A command that does not exist makes a failed extraction that names no path."""
    found = asyncio.run(extract(["/nonexistent/python"]))
    assert (found.status, found.warnings) == ("failed", ["The reader of attached files could not be started."])


def test_cancelling_kills_the_worker(tmp_path: Path) -> None:
    """When the await is cancelled the process is dead and reaped before the cancellation arrives."""
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    script = f"import os, sys\nwith open(sys.argv[1], 'w') as f: f.write(str(os.getpid()))\n{LOOP}"

    async def scenario() -> int:
        extraction = asyncio.create_task(extract(python(script, str(fifo))))
        pid = int(await asyncio.to_thread(fifo.read_text))
        assert not is_gone(pid)
        extraction.cancel()
        with pytest.raises(asyncio.CancelledError):
            await extraction
        assert is_gone(pid)
        return pid

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_cancel_scope_kills_the_worker(tmp_path: Path) -> None:
    """A cancel scope, which cancels every further await too, still leaves no process behind."""
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    script = f"import os, sys\nwith open(sys.argv[1], 'w') as f: f.write(str(os.getpid()))\n{LOOP}"

    async def scenario() -> int:
        pids: list[int] = []
        with anyio.CancelScope() as scope:

            async def cancel_when_started() -> None:
                pids.append(int(await asyncio.to_thread(fifo.read_text)))
                scope.cancel()

            watching = asyncio.create_task(cancel_when_started())
            await extract(python(script, str(fifo)))
        assert scope.cancelled_caught
        await watching
        return pids[0]

    assert is_gone(asyncio.run(asyncio.wait_for(scenario(), 10)))


def test_cancelling_while_waiting_for_a_place(tmp_path: Path) -> None:
    """A cancelled wait frees nothing and takes nothing: the next one in line gets the place."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    script = f"import os, sys\nopen(sys.argv[1]).read()\nos.write(1, {ANSWER})"

    async def scenario() -> list[Extraction]:
        extractor = Extractor(Limits(max_parallel=1), command=python(script, str(fifo)))
        first, second, third = (
            asyncio.create_task(extractor.extract(content=b"x", name="a.txt", media_type=None)) for _ in range(3)
        )
        await asyncio.to_thread(fifo.write_text, "go")
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        found = [await first]
        await asyncio.to_thread(fifo.write_text, "go")
        return [*found, await third]

    assert [found.status for found in asyncio.run(asyncio.wait_for(scenario(), 10))] == ["ok", "ok"]


def test_no_more_workers_than_the_limit() -> None:
    """At no time do more workers live than the limit allows, and every file is read."""
    script = (
        "import os, socket, sys\nwith socket.create_connection(('127.0.0.1', int(sys.argv[1]))) as s:\n"
        f"    s.sendall(b'%d\\n' % os.getpid()); s.recv(1)\nos.write(1, {ANSWER})"
    )

    async def scenario() -> tuple[int, list[Extraction]]:
        pids: list[int] = []
        living: list[int] = []
        waiting: list[asyncio.StreamWriter] = []

        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            pids.append(int(await reader.readline()))
            living.append(sum(not is_gone(pid) for pid in pids))
            waiting.append(writer)
            # The first waits for the second; from then on each newcomer lets one go, the last lets all go.
            for _ in range({1: 0, 6: 2}.get(len(pids), 1)):
                peer = waiting.pop(0)
                peer.write(b"!")
                peer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            extractor = Extractor(Limits(max_parallel=2), command=python(script, str(port)))
            found = await asyncio.gather(
                *(extractor.extract(content=b"x", name="a.txt", media_type=None) for _ in range(6))
            )
        return max(living), found

    peak, found = asyncio.run(asyncio.wait_for(scenario(), 15))
    assert peak == 2
    assert [extraction.text for extraction in found] == ["done"] * 6


def test_worker_inherits_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker sees no variable of the server and does not stand in its directory."""
    monkeypatch.setenv("RUNSTONE_TEST_SECRET", "hush")
    script = (
        "import json, os\ntext = json.dumps([sorted(os.environ), os.getcwd()])\n"
        "print(json.dumps({'kind': 'text', 'status': 'ok', 'text': text}))"
    )
    found = asyncio.run(extract(python(script)))
    assert found.text in ('[["LANG"], "/"]', '[["LANG", "LC_CTYPE"], "/"]')


@pytest.mark.parametrize(
    ("content", "name", "module"),
    [
        (files.pdf_bytes("x"), "a.pdf", "pypdf"),
        (files.docx_bytes("x"), "a.docx", "docx"),
        (files.pptx_bytes(1), "a.pptx", "pptx"),
        (files.xlsx_bytes(), "a.xlsx", "openpyxl"),
        (files.image_bytes("png"), "a.png", "PIL"),
    ],
)
def test_missing_library_is_told(content: bytes, name: str, module: str) -> None:
    """Without its library a kind is unsupported, and the user learns what to install."""
    command = worker_command(f"import sys; sys.modules[{module!r}] = None\n{_BOOT}")
    found = asyncio.run(Extractor(command=command).extract(content=content, name=name, media_type=None))
    assert (found.kind, found.status) == (name[2:].replace("png", "image"), "unsupported")
    assert found.warnings == ["Reading this kind of file needs optional libraries: pip install 'runstone[attachments]'"]


def test_plain_kinds_need_no_library() -> None:
    """Text, Markdown, JSON, CSV, HTML and ZIP are read without any of the optional libraries."""
    missing = ("pypdf", "docx", "pptx", "openpyxl", "PIL", "lxml", "bs4")
    command = worker_command("import sys\n" + "".join(f"sys.modules[{m!r}] = None\n" for m in missing) + _BOOT)

    async def scenario() -> list[str]:
        contents = {
            "a.txt": b"x",
            "a.md": b"x",
            "a.json": b"{}",
            "a.csv": b"x,y",
            "a.html": b"<p>x",
            "a.zip": files.zip_bytes({"x": b""}),
        }
        extractor = Extractor(command=command)
        return [
            (await extractor.extract(content=content, name=name, media_type=None)).status
            for name, content in contents.items()
        ]

    assert asyncio.run(scenario()) == ["ok"] * 6


def test_worker_imports_only_what_the_kind_needs() -> None:
    """A worker for text loads neither a document library, nor the server, nor asyncio."""
    boot = _BOOT.replace("sys.exit(main())", "main(); print(sorted(sys.modules), file=sys.stderr)")
    request = request_bytes(Job(name="a.txt", media_type=None, limits=Limits())) + b"x"
    done = subprocess.run(worker_command(boot), input=request, capture_output=True, timeout=15, check=True)
    loaded = done.stderr.decode()
    for module in ("asyncio", "docx", "pptx", "openpyxl", "pypdf", "PIL", "lxml", "starlette", "runstone.core"):
        assert f"'{module}'" not in loaded


def test_worker_runs_as_a_module() -> None:
    """`python -m runstone.attachments.worker` is the same worker."""
    request = request_bytes(Job(name="a.txt", media_type=None, limits=Limits())) + b"hello"
    source = str(Path(worker_command()[7]).parent)
    done = subprocess.run(
        [sys.executable, "-m", "runstone.attachments.worker"],
        input=request,
        capture_output=True,
        timeout=15,
        check=True,
        cwd=source,
    )
    report = report_from_bytes(done.stdout)
    assert report is not None
    assert (report.status, report.text) == ("ok", "hello")


@pytest.mark.parametrize(
    "statement",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import socket; socket.getaddrinfo('localhost', 80)",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "open('/dev/null', 'w')",
        "import os; os.fork()",
    ],
)
def test_confined_worker_has_no_network_no_processes_no_files(statement: str) -> None:
    """Once confined, the worker cannot connect, start a process or open a file for writing."""
    boot = _BOOT.replace(
        "sys.exit(main())",
        "from runstone.attachments.limits import Limits; from runstone.attachments.sandbox import confine\n"
        f"confine(Limits())\ntry:\n    {statement}\nexcept PermissionError as e: sys.exit(7)",
    )
    assert subprocess.run(worker_command(boot), stdin=subprocess.DEVNULL, timeout=15, check=False).returncode == 7


def test_confined_worker_has_limits() -> None:
    """Memory, processor time, file size and core size are limited inside the process."""
    boot = _BOOT.replace(
        "sys.exit(main())",
        "import resource as r; from runstone.attachments.limits import Limits\n"
        "from runstone.attachments.sandbox import confine; confine(Limits())\n"
        "print([r.getrlimit(n)[0] for n in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_CORE)])",
    )
    done = subprocess.run(worker_command(boot), capture_output=True, timeout=15, check=True)
    assert done.stdout.decode().strip() == str([1024 * files.MIB, 21, 0, 0])
