"""Targets become runners; what is wrong with one is said in words, with file and line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from runstone.errors import ConfigError
from runstone.runners import modules
from runstone.runners.function import FunctionRunner
from runstone.runners.hooks import RunnerOptions
from runstone.runners.load import LoadedAgent, load, load_all, runner_of, split_name
from runstone.testing import drive

AGENT = 'async def agent(messages):\n    return "{0}"\n'
GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def say(state):
    return {"messages": [AIMessage(content="graph")]}

graph = StateGraph(MessagesState).add_node("say", say).add_edge(START, "say").compile()

def make(config):
    return graph
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file below a working directory of its own, and forgets what was imported from there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before: dict[str, ModuleType] = dict(sys.modules)

    def write_file(name: str, text: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    yield write_file
    modules._roots.clear()
    for name in set(sys.modules) - set(before):
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


async def text_of(loaded: LoadedAgent) -> str:
    """What an agent says."""
    return (await drive(loaded.runner)).text


def the_one(target: str) -> LoadedAgent:
    """The only agent of a target."""
    (loaded,) = load(target)
    return loaded


# -- targets


async def test_a_file_names_its_agent(write: Write) -> None:
    """The usual names are found; the agent is called like the file."""
    write("hello.py", AGENT.format("hi"))
    loaded = the_one("hello.py")
    assert (loaded.name, loaded.source) == ("hello", "hello.py:agent")
    assert await text_of(loaded) == "hi"


async def test_a_file_with_a_name_picks_that_one(write: Write) -> None:
    """`file.py:name`, also dotted; the agent is called like the name."""
    write(
        "two.py", AGENT.format("a") + "\nclass Box:\n    @staticmethod\n    def other(messages):\n        return 'b'\n"
    )
    loaded = the_one("two.py:Box.other")
    assert loaded.name == "other"
    assert await text_of(loaded) == "b"


async def test_a_module_is_found_from_the_working_directory(write: Write) -> None:
    """`package.module:name` as `python -m` would find it."""
    write("shop/__init__.py", "")
    write("shop/seller.py", AGENT.format("buy"))
    loaded = the_one("shop.seller:agent")
    assert (loaded.name, loaded.source) == ("seller", "shop.seller:agent")
    assert await text_of(loaded) == "buy"


async def test_files_of_one_name_do_not_clash(write: Write) -> None:
    """Two projects with the same file names, helpers included, each get their own."""
    for place in ("a", "b"):
        write(f"{place}/helper.py", f"WORD = {place!r}\n")
        write(f"{place}/agent.py", "from helper import WORD\n\nasync def agent(messages):\n    return WORD\n")
    loaded = load_all(["a/agent.py", "b/agent.py"])
    assert [one.name for one in loaded] == ["agent", "agent-2"]
    assert [await text_of(one) for one in loaded] == ["a", "b"]


async def test_a_file_of_a_package_may_import_its_neighbours(write: Write) -> None:
    """Relative imports work as they do inside a package."""
    write("pack/__init__.py", "")
    write("pack/words.py", "WORD = 'rel'\n")
    write("pack/agent.py", "from .words import WORD\n\nasync def root_agent(messages):\n    return WORD\n")
    assert await text_of(the_one("pack/agent.py")) == "rel"


def test_names_can_be_given(write: Write) -> None:
    """`NAME=TARGET` names an agent, and so does the agent itself."""
    write("x.py", AGENT.format("x"))
    write(
        "y.py", "from runstone.runners.function import agent as declare\n\n@declare(name='why')\n" + AGENT.format("y")
    )
    assert [one.name for one in load_all(["first=x.py", "y.py"])] == ["first", "why"]
    assert split_name("a.b=c") == (None, "a.b=c")


# -- projects


async def test_a_folder_with_the_usual_file(write: Write) -> None:
    """The agent is called like the folder, or as runstone.yaml says."""
    write("weather-bot/agent.py", AGENT.format("sun"))
    assert the_one("weather-bot").name == "weather-bot"
    write("weather-bot/runstone.yaml", "name: meteo\nserver:\n  port: 1\n")
    loaded = the_one("weather-bot")
    assert loaded.name == "meteo"
    assert await text_of(loaded) == "sun"


async def test_runstone_yaml_names_agents_and_how_they_run(write: Write) -> None:
    """Targets by name; options of an agent reach its runner."""
    write("p/one.py", AGENT.format("1"))
    write("p/two.py", GRAPH)
    write("p/runstone.yaml", "agents:\n  a: one.py\n  b: {target: 'two.py:graph', memory: framework, models: [big]}\n")
    a, b = load("p")
    assert [a.name, b.name] == ["a", "b"]
    assert await text_of(a) == "1"
    assert b.runner.capabilities.model_names == ["big"]
    assert getattr(b.runner, "memory") == "framework"  # noqa: B009


@pytest.mark.parametrize("file", ["agentengine.yaml", "ksadk.yaml", "ksadk.yml"])
async def test_a_project_of_the_other_system(write: Write, file: str) -> None:
    """Name, entry point and variable are read; what is about a cloud is not."""
    write("p/bots/main.py", AGENT.format("kb").replace("agent", "my_agent"))
    write(
        f"p/{file}", "name: bot\nframework: langgraph\nentry_point: bots/main.py\nagent_variable: my_agent\nregion: x\n"
    )
    loaded = the_one("p")
    assert loaded.name == "bot"
    assert await text_of(loaded) == "kb"


async def test_langgraph_json_gives_all_its_graphs(write: Write) -> None:
    """Graphs and functions that make them, under the names of the file."""
    pytest.importorskip("langgraph")
    write("p/g.py", GRAPH)
    graphs = {"one": "./g.py:graph", "two": {"path": "./g.py:make"}}
    write("p/langgraph.json", json.dumps({"dependencies": ["."], "graphs": graphs}))
    loaded = load("p")
    assert [one.name for one in loaded] == ["one", "two"]
    assert [await text_of(one) for one in loaded] == ["graph", "graph"]


async def test_hooks_beside_the_agent_are_found(write: Write) -> None:
    """`prepare_state` of the agent's module makes the graph's first state."""
    pytest.importorskip("langgraph")
    write(
        "h.py",
        """
from typing import TypedDict
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph

class State(TypedDict):
    question: str
    messages: list

def say(state):
    return {"messages": [AIMessage(content=state["question"])]}

graph = StateGraph(State).add_node("say", say).add_edge(START, "say").compile()

def ksadk_prepare_state(payload, session_context):
    return {"question": payload["input"]}
""",
    )
    assert await text_of(the_one("h.py")) == "hello"


# -- what is wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nraise ValueError('no key')\n", r"bad.py cannot be loaded: ValueError: no key \(bad.py:2\)"),
        ("import os\ndef f(:\n", r"bad.py cannot be loaded: it is not valid Python: .* \(bad.py:2\)"),
        ("import not_there_at_all\n", r"the module 'not_there_at_all' is not installed \(bad.py:1\)"),
        ("import sys\nsys.exit(3)\n", r"it ends the program when it is imported \(bad.py:2\)"),
        ("def mine(messages): ...\n", r"bad.py has none of root_agent, agent, app, graph; it has mine. Say which"),
        ("agent = 7\n", r"bad.py:agent is a 'int', which is no agent"),
        ("def agent(a, b, c): ...\n", r"bad.py:agent: the agent takes 3 arguments; expected \(messages\)"),
        ("def kb_context(payload): ...\nasync def agent(messages): ...\n", "the hook 'kb_context' is not `async def`"),
    ],
)
def test_a_broken_file_says_why_and_where(write: Write, text: str, words: str) -> None:
    """The cause in words, the line of the user's code, and no path to it."""
    file = write("bad.py", text)
    with pytest.raises(ConfigError, match=words) as caught:
        load("bad.py")
    assert str(file.parent) not in caught.value.message


def test_an_error_deep_in_a_helper_names_the_helpers_line(write: Write) -> None:
    """The innermost line of the user's own code counts, not the library's, and the cause is chained."""
    write("helper.py", "import json\n\ndef read():\n    return json.loads('nope')\n")
    write("deep.py", "from helper import read\n\nread()\n")
    with pytest.raises(ConfigError, match=r"JSONDecodeError: .* \(helper.py:4\)") as caught:
        load("deep.py")
    assert isinstance(caught.value.__cause__, json.JSONDecodeError)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("https://example.org/v1", "is the address of a server; such targets are served through runstone.adapters"),
        ("nowhere.py", "there is no file nowhere.py"),
        ("nomodule:agent", "there is no module 'nomodule'"),
        ("no.package:agent", "there is no module 'no.package'"),
        ("what", "expected module:name, a .py file, or a project folder"),
        ("json:nothing", "the module 'json' has no 'nothing'; it has"),
        (".", "has no agent; looked for runstone.yaml"),
    ],
)
def test_a_wrong_target_says_what_was_expected(write: Write, target: str, words: str) -> None:
    """Nothing there, or nothing of the kind."""
    with pytest.raises(ConfigError, match=words):
        load(target)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"runstone.yaml": "agents: [a]\n"}, "is not a mapping of names to targets"),
        ({"runstone.yaml": "agents: {a: {target: a.py, colour: red}}\n"}, "the agent 'a' in p/runstone.yaml cannot be"),
        ({"runstone.yaml": "agents: {a: nothing}\n"}, "is neither a file nor module:name"),
        ({"runstone.yaml": "a: [\n"}, "p/runstone.yaml:2 is not YAML"),
        ({"agentengine.yaml": "framework: codex\n"}, "framework 'codex', which is not supported"),
        ({"agentengine.yaml": "runner_class: a.B\n"}, "runner_class, which is not supported"),
        ({"agentengine.yaml": "name: x\n"}, "names no entry_point"),
        ({"langgraph.json": "{}"}, "has no 'graphs'"),
        ({"langgraph.json": '{"graphs": {"a": "./a.py"}}'}, "expected file.py:name"),
    ],
)
def test_a_wrong_project_file_stops_the_start(write: Write, files: dict[str, str], words: str) -> None:
    """A project file is never ignored because it is wrong."""
    for name, text in files.items():
        write(f"p/{name}", text)
    with pytest.raises(ConfigError, match=words):
        load("p")


def test_one_name_is_not_enough_for_two_agents(write: Write) -> None:
    """A name for a target of several agents is refused."""
    write("p/one.py", AGENT.format("1"))
    write("p/runstone.yaml", "agents: {a: one.py, b: one.py}\n")
    with pytest.raises(ConfigError, match="has 2 agents"):
        load_all(["x=p"])


def test_frameworks_are_not_imported_for_plain_agents(write: Write) -> None:
    """A function is known without any framework."""

    async def agent(messages: list[object]) -> None: ...

    assert isinstance(runner_of(agent), FunctionRunner)
    assert runner_of(7, RunnerOptions()) is None


def test_the_decorator_is_no_agent(write: Write) -> None:
    """`from runstone import agent` leaves the decorator in the module; the one function it was used on is the agent."""
    write("mine.py", 'from runstone import agent\n\n@agent(steers=True)\nasync def helper(messages):\n    return "x"\n')
    assert load("mine.py")[0].name == "helper"
    write("two.py", "from runstone import agent\n\n@agent\ndef a(messages): ...\n\n@agent\ndef b(messages): ...\n")
    with pytest.raises(ConfigError, match="a, b"):
        load("two.py")
