"""Targets to runners.

A target is `module:name`, a file (`agent.py`, `agent.py:name`) or a project folder. What it names may be of any framework: each
runner file is asked whether it is its own, but for frameworks that the user's code did not import.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import yaml

from runstone.errors import ConfigError
from runstone.runners import function
from runstone.runners.base import Runner
from runstone.runners.hooks import Memory, RunnerOptions, hooks_in
from runstone.runners.modules import attribute, module_in, module_named, names_in, shown

#: Names that an agent has by custom, the first that is there wins.
ATTRIBUTES: Final = ("root_agent", "agent", "app", "graph")
FILES: Final = ("agent.py", "main.py", "app.py")
#: A framework's module, and the runner file that knows its objects; asked in this order, plain functions last.
FRAMEWORKS: Final = (("langgraph", "runstone.runners.langgraph"),)
_VENDOR_FILES: Final = ("agentengine.yaml", "ksadk.yaml", "ksadk.yml")
#: Frameworks of the other system that are programs of their own, not objects in Python.
_NOT_OBJECTS: Final = frozenset({"codex", "hermes", "openclaw", "fastmcp"})

_log = logging.getLogger(__name__)


class LoadedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent by name. `source` says where it came from, fit to be shown."""

    name: str
    runner: Runner
    source: str


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the user's, before it has a runner."""

    name: str
    source: str
    module: ModuleType
    obj: Any
    options: RunnerOptions
    is_factory: bool = False


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent of `runstone.yaml`: its target and how it is run."""

    target: str
    memory: Memory = "run"
    models: list[str] = []
    model_override: bool = False
    client_tools: bool = False


def load(target: str, *, options: RunnerOptions | None = None) -> list[LoadedAgent]:
    """The agents of a target: one, or all graphs of a `langgraph.json`, or all `agents` of a `runstone.yaml`.

    Raises:
        ConfigError: nothing can be loaded from it; the message says why, and where in the user's code.
    """
    found = _found(target, options or RunnerOptions())
    names = unique_names(one.name for one in found)
    return [_loaded(one, name) for one, name in zip(found, names, strict=True)]


def load_all(targets: Sequence[str], *, options: RunnerOptions | None = None) -> list[LoadedAgent]:
    """The agents of several targets, `NAME=TARGET` names the agent of one; names that repeat get `-2`, `-3` ...

    Raises:
        ConfigError: see `load`; or a name was given to a target of several agents.
    """
    loaded: list[LoadedAgent] = []
    for word in targets:
        name, target = split_name(word)
        agents = load(target, options=options)
        if name is not None and len(agents) != 1:
            raise ConfigError(f"{target!r} has {len(agents)} agents, so one name is not enough", option="agents")
        loaded += [msgspec.structs.replace(one, name=name or one.name) for one in agents]
    names = unique_names(one.name for one in loaded)
    return [msgspec.structs.replace(one, name=name) for one, name in zip(loaded, names, strict=True)]


def split_name(word: str) -> tuple[str | None, str]:
    """Name and target of `NAME=TARGET`, no name when there is none."""
    name, sign, target = word.partition("=")
    has_name = sign and name and not any(mark in name for mark in "/\\:.")
    return (name, target) if has_name else (None, word)


def unique_names(names: Iterable[str]) -> list[str]:
    """`names`, with `-2`, `-3` ... behind those that were there before."""
    seen: set[str] = set()
    unique = []
    for name in names:
        candidate, count = name, 1
        while candidate in seen:
            count += 1
            candidate = f"{name}-{count}"
        seen.add(candidate)
        unique.append(candidate)
    return unique


def runner_of(obj: Any, options: RunnerOptions | None = None) -> Runner | None:
    """A runner for an agent of any framework; None when nobody knows it.

    Raises:
        ConfigError: it is known, and cannot be served as it is.
    """
    options = _with_declared(options or RunnerOptions(), obj)
    for framework, runner_file in FRAMEWORKS:
        if framework in sys.modules:
            runner: Runner | None = importlib.import_module(runner_file).runner_for(obj, options)
            if runner is not None:
                return runner
    return function.runner_for(obj, options)


def name_of(obj: Any) -> str | None:
    """What an agent calls itself with `runstone.agent(name=...)`."""
    return function.declared_by(obj).name


def _with_declared(options: RunnerOptions, obj: Any) -> RunnerOptions:
    declared = function.declared_by(obj)
    return msgspec.structs.replace(
        options,
        models=options.models or declared.models,
        model_override=options.model_override or declared.model_override,
        client_tools=options.client_tools or declared.client_tools,
    )


def _loaded(found: _Found, name: str) -> LoadedAgent:
    try:
        hooks = hooks_in(vars(found.module))
        if found.is_factory and callable(found.obj) and not _is_graph(found.obj):
            hooks = msgspec.structs.replace(hooks, graph_factory=hooks.graph_factory or found.obj)
        runner = runner_of(found.obj, msgspec.structs.replace(found.options, hooks=hooks))
    except ConfigError as e:
        raise ConfigError(f"{found.source}: {e.message}", option="agents") from e
    if runner is None:
        raise ConfigError(
            f"{found.source} is a {type(found.obj).__name__!r}, which is no agent; expected a function, a graph, "
            "or an agent of a framework that is installed",
            option="agents",
        )
    return LoadedAgent(name=name, runner=runner, source=found.source)


def _is_graph(obj: Any) -> bool:
    """A graph object can be called too, but it is no factory."""
    return hasattr(obj, "nodes") and hasattr(obj, "channels")


# -- targets


def _found(target: str, options: RunnerOptions) -> list[_Found]:
    if "://" in target:
        raise ConfigError(
            f"{target!r} is the address of a server; such targets are served through runstone.adapters", option="agents"
        )
    path, attr = _path_and_name(target)
    if path.is_dir():
        return _in_project(path, options)
    if path.suffix == ".py":
        return [_in_file(path, attr, options)]
    if attr is not None and path.parent == Path():
        return [_in_module(str(path), attr, options)]
    raise ConfigError(f"{target!r} is no agent; expected module:name, a .py file, or a project folder", option="agents")


def _path_and_name(target: str) -> tuple[Path, str | None]:
    if Path(target).exists():
        return Path(target), None
    before, sign, name = target.rpartition(":")
    # `C:\\agent.py` has a colon, too.
    return (Path(before), name) if sign and name.replace(".", "").isidentifier() else (Path(target), None)


def _in_module(name: str, attr: str, options: RunnerOptions) -> _Found:
    module = module_named(name)
    obj = attribute(module, attr, of=f"the module {name!r}")
    called = name_of(obj) or (name.rpartition(".")[2] if attr in ATTRIBUTES else attr.rpartition(".")[2])
    return _Found(name=called, source=f"{name}:{attr}", module=module, obj=obj, options=options)


def _in_file(file: Path, attr: str | None, options: RunnerOptions, *, name: str | None = None) -> _Found:
    module = module_in(file)
    attr = attr or _attribute_of(module, shown(file))
    obj = attribute(module, attr, of=shown(file))
    called = name or name_of(obj) or (file.stem if attr in ATTRIBUTES else attr.rpartition(".")[2])
    return _Found(name=called, source=f"{shown(file)}:{attr}", module=module, obj=obj, options=options)


def _attribute_of(module: ModuleType, of: str) -> str:
    """The usual attribute that is there, else the one function that is declared an agent."""
    for name in ATTRIBUTES:
        # `from runstone import agent` leaves the decorator in the module.
        if hasattr(module, name) and getattr(module, name) is not function.agent:
            return name
    declared = [name for name in names_in(module) if function.is_declared(getattr(module, name))]
    if len(declared) == 1:
        return declared[0]
    there = ", ".join(sorted(names_in(module))) or "nothing"
    raise ConfigError(
        f"{of} has none of {', '.join(ATTRIBUTES)}; it has {there}. Say which one with {of}:name", option="agents"
    )


# -- projects


def _in_project(folder: Path, options: RunnerOptions) -> list[_Found]:
    """What a project folder serves: what its files say, in a fixed order, else its usual file."""
    own = folder / "runstone.yaml"
    if own.is_file() and (entries := _entries(own)):
        return [_of_entry(folder, name, entry, options) for name, entry in entries.items()]
    for vendor in _VENDOR_FILES:
        if (folder / vendor).is_file():
            return [_of_vendor_file(folder, folder / vendor, options)]
    if (folder / "langgraph.json").is_file():
        return _of_langgraph_file(folder, folder / "langgraph.json", options)
    name = _project_name(folder, own)
    for place in (folder, folder / name.replace("-", "_"), folder / "src"):
        for file in FILES:
            if (place / file).is_file():
                return [_in_file(place / file, None, options, name=name)]
    looked_for = ", ".join(("runstone.yaml", *_VENDOR_FILES, "langgraph.json", *FILES))
    raise ConfigError(f"{shown(folder)!r} has no agent; looked for {looked_for}", option="agents")


def _project_name(folder: Path, own: Path) -> str:
    declared = _yaml(own).get("name") if own.is_file() else None
    return str(declared or folder.resolve().name)


def _entries(file: Path) -> dict[str, _Entry]:
    """The agents that `runstone.yaml` names: `agent: TARGET`, or `agents: {NAME: TARGET or {target: ...}}`."""
    content = _yaml(file)
    agents = content.get("agents")
    if agents is None and content.get("agent") is not None:
        agents = {str(content.get("name") or file.parent.resolve().name): content["agent"]}
    if agents is None:
        return {}
    if not isinstance(agents, Mapping):
        raise ConfigError(f"'agents' in {shown(file)} is not a mapping of names to targets", option="agents")
    entries = {}
    for name, entry in agents.items():
        fields = {"target": entry} if isinstance(entry, str) else entry
        try:
            entries[str(name)] = msgspec.convert(fields, _Entry)
        except msgspec.ValidationError as e:
            raise ConfigError(f"the agent {name!r} in {shown(file)} cannot be read: {e}", option="agents") from e
    return entries


def _of_entry(folder: Path, name: str, entry: _Entry, options: RunnerOptions) -> _Found:
    options = msgspec.structs.replace(
        options,
        memory=entry.memory,
        models=entry.models,
        model_override=entry.model_override,
        client_tools=entry.client_tools,
    )
    path, attr = _path_and_name(entry.target)
    if path.suffix == ".py":
        found = _in_file(folder / path, attr, options)
    elif attr is not None:
        found = _in_module(str(path), attr, options)
    else:
        raise ConfigError(f"the target {entry.target!r} of {name!r} is neither a file nor module:name", option="agents")
    return msgspec.structs.replace(found, name=name)


def _of_vendor_file(folder: Path, file: Path, options: RunnerOptions) -> _Found:
    """The project of another system: its name, entry point and variable; what is about its cloud has no meaning here."""
    content = _yaml(file)
    if (framework := str(content.get("framework") or "")) in _NOT_OBJECTS or content.get("runner_class"):
        what = f"framework {framework!r}" if framework in _NOT_OBJECTS else "runner_class"
        raise ConfigError(f"{shown(file)} asks for {what}, which is not supported", option="agents")
    name = str(content.get("name") or folder.resolve().name)
    models = content.get("models") or content.get("model")
    names = [models] if isinstance(models, str) else [str(m) for m in models] if isinstance(models, list) else []
    options = msgspec.structs.replace(options, models=names)
    attr = content.get("agent_variable")
    entry = content.get("entry_point")
    if entry is None:
        package = folder / str(content.get("package") or ".")
        entry = next((package / usual for usual in FILES if (package / usual).is_file()), None)
        if entry is None:
            raise ConfigError(f"{shown(file)} names no entry_point, and there is none of {', '.join(FILES)}")
        return _in_file(entry, attr, options, name=name)
    path, in_entry = _path_and_name(str(entry))
    return _in_file(folder / path, attr or in_entry, options, name=name)


def _of_langgraph_file(folder: Path, file: Path, options: RunnerOptions) -> list[_Found]:
    """All graphs of a `langgraph.json`."""
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
        graphs = dict(content["graphs"])
    except (ValueError, KeyError, TypeError) as e:
        raise ConfigError(f"{shown(file)} has no 'graphs', a mapping of names to file.py:name", option="agents") from e
    if content.get("env"):
        _log.warning("%s: 'env' is not read; set the environment before the start", shown(file))
    found = []
    for name, target in graphs.items():
        place = target.get("path") if isinstance(target, dict) else target
        path, attr = _path_and_name(str(place))
        if attr is None:
            raise ConfigError(
                f"the graph {name!r} in {shown(file)} is {place!r}, expected file.py:name", option="agents"
            )
        is_file = path.suffix == ".py"
        one = _in_file(folder / path, attr, options) if is_file else _in_module(str(path), attr, options)
        found.append(msgspec.structs.replace(one, name=str(name), is_factory=True))
    return found


def _yaml(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        line = getattr(getattr(e, "problem_mark", None), "line", None)
        where = f"{shown(file)}:{line + 1}" if line is not None else shown(file)
        raise ConfigError(f"{where} is not YAML", option="agents") from e
    if not isinstance(content, dict):
        raise ConfigError(f"{shown(file)} is not a mapping", option="agents")
    return content
