"""The guide to clients: each of its programs runs as it is shown, and prints what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.serving import node_output, running

GUIDE = Path(__file__).parents[2] / "docs" / "howto" / "clients.md"
ADDRESS = "http://127.0.0.1:8080"
#: The last thing that each program prints, in the order of the page.
PYTHON = [
    "You said: Hello again",
    "Your name is Alice.",
    "You said: Tell me a story",
    "It is deleted.",
    "You said: Hello",
    "The tool says: sunny in San Francisco",
    "It is deleted.",
    "You said: Hello",
]
JAVASCRIPT = ["You said: Hello", "You said: Hello", "It is deleted."]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of the guide's agent."""
    with running(tmp_path_factory.mktemp("guide"), ["of_the_guide"]) as address:
        yield address


def programs(language: str) -> list[str]:
    """The programs of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_program_is_run() -> None:
    """The tests below know of as many programs as there are."""
    assert (len(programs("python")), len(programs("javascript"))) == (len(PYTHON), len(JAVASCRIPT))


@pytest.mark.parametrize(("n", "last"), [*enumerate(PYTHON)])
def test_python(address: str, n: int, last: str) -> None:
    """A Python program ends well and prints its answer."""
    code = programs("python")[n].replace(ADDRESS, address)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=18, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.strip().splitlines()[-1] == last


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("n", "last"), [*enumerate(JAVASCRIPT)])
def test_javascript(address: str, node: None, n: int, last: str) -> None:
    """So does a program for Node."""
    code = programs("javascript")[n].replace(ADDRESS, address)
    assert node_output("--input-type=module", "--eval", code).strip().splitlines()[-1] == last
