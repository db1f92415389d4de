"""Every setting, and the only reader of environment and settings files.

Rule: a setting has one name `a.b`: so in `runstone.yaml`, as `--set a.b=value`, and as `RUNSTONE_A_B` in the environment.
Later ones win: defaults, file, environment, command line. An unknown name or a wrong value stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from runstone.errors import ConfigError


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ServerConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP side.

    `keys`: API key -> user, required when `host` is not loopback. `hosts`: names accepted in the Host header beside loopback
    and `host`. `origins`: browser origins that may call (CORS off otherwise). Sizes in bytes, times in seconds.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: dict[str, str] = {}
    hosts: list[str] = []
    origins: list[str] = []
    root_path: str = ""
    max_body_bytes: int = 64 * 1024 * 1024
    max_upload_bytes: int = 64 * 1024 * 1024
    max_json_depth: int = 100
    ping_after: float = 15.0
    drain_timeout: float = 20.0


class StorageConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where runs are kept: `memory` (gone with the process), a path, or a `sqlite:///` URL. Files lie beside the database."""

    url: str = ".runstone/runstone.db"
    synchronous: Literal["NORMAL", "FULL"] = "NORMAL"


class AgentPolicies(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one agent's runs do where the request does not say it; None leaves it to the server's own words."""

    busy: Literal["reject", "queue", "steer", "stop"] | None = None
    disconnect: Literal["continue", "stop"] | None = None
    recovery: Literal["interrupted", "resume", "retry"] | None = None


class EngineConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How runs are driven. Times in seconds.

    `agents`: policies by agent, which come before the server's own `busy`, `disconnect` and `recovery`.
    `stop_after`: how long a stopped agent may take to unwind before the outcome is recorded anyway. `run_timeout`: the longest
    a run may take, None for no limit. `backlog_*`: how far an agent may be ahead of the log. `ring_*`: how much of a live run
    stays in memory for readers. `slice_events`: events after which an agent that never waits lets others run.
    `unstored_grace`: how long after its end a run with `store: false` can still be read; `unstored_ttl`: the same while somebody
    is reading it. `events_ttl`: how long after its end a run can be streamed again.
    """

    busy: Literal["reject", "queue", "steer", "stop"] = "reject"
    disconnect: Literal["continue", "stop"] = "continue"
    recovery: Literal["interrupted", "resume", "retry"] = "interrupted"
    agents: dict[str, AgentPolicies] = {}
    stop_after: float = 0.8
    run_timeout: float | None = None
    approval_timeout: float = 24 * 3600.0
    idempotency_ttl: float = 24 * 3600.0
    unstored_grace: float = 60.0
    unstored_ttl: float = 600.0
    events_ttl: float = 24 * 3600.0
    sweep_every: float = 5.0
    storage_patience: float = 10.0
    storage_retry_after: float = 0.1
    max_blocking_calls: int = 64
    max_runs: int = 10_000
    backlog_events: int = 2_000
    backlog_bytes: int = 4 * 1024 * 1024
    ring_events: int = 2_000
    ring_bytes: int = 4 * 1024 * 1024
    page_events: int = 1_000
    slice_events: int = 128


class ResponsesConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Responses surface (docs/protocols/responses.md)."""

    dialect: Literal["auto", "openai", "ksadk"] = "auto"
    tools: Literal["mcp_call", "function_pair", "hidden"] = "mcp_call"
    reasoning: Literal["summary", "text"] = "summary"


class ChatConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Chat Completions surface (docs/protocols/chat.md)."""

    dialect: Literal["openai", "steps"] = "openai"


class AttachmentsConfig(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of text extraction from attached files (docs/howto/attachments.md). Sizes in bytes, `timeout` in seconds."""

    max_bytes: int = 20 * 1024 * 1024
    max_text_chars: int = 200_000
    max_pages: int = 200
    max_entries: int = 2_000
    max_inflated_bytes: int = 200 * 1024 * 1024
    timeout: float = 20.0
    memory_bytes: int = 1024 * 1024 * 1024
    max_parallel: int = 2
    excerpt_chars: int = 2_000


class Config(_Section, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a server."""

    server: ServerConfig = ServerConfig()
    storage: StorageConfig = StorageConfig()
    engine: EngineConfig = EngineConfig()
    responses: ResponsesConfig = ResponsesConfig()
    chat: ChatConfig = ChatConfig()
    attachments: AttachmentsConfig = AttachmentsConfig()


def setting_names() -> dict[str, Any]:
    """Each setting's name and its default."""
    return {
        f"{section.name}.{field.name}": getattr(getattr(Config(), section.name), field.name)
        for section in msgspec.structs.fields(Config)
        for field in msgspec.structs.fields(section.type)
    }


def config_from(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    settings: Iterable[str] = (),
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """The settings of a file, the environment and `a.b=value` words together.

    `environment` None means the process's own; `overrides` are values by name that win over all.

    Raises:
        ConfigError: an unknown name, or a value that the setting cannot take.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values.update(_from_file(file))
    values.update(_from_environment(os.environ if environment is None else environment))
    for word in settings:
        name, sign, value = word.partition("=")
        if not sign:
            raise ConfigError(f"{word!r} is not a setting; expected a.b=value", option=word)
        values[name.strip()] = _from_word(value)
    values.update(overrides or {})
    return _config(values)


def _config(values: Mapping[str, Any]) -> Config:
    known = setting_names()
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{name!r} is not a setting; see docs/reference/settings.md", option=name)
        section, _, key = name.partition(".")
        try:
            msgspec.convert({section: {key: value}}, Config, strict=False)
        except msgspec.ValidationError as e:
            raise ConfigError(f"{name} cannot be {value!r}: {str(e).split(' - at')[0]}", option=name) from e
        tree.setdefault(section, {})[key] = value
    return msgspec.convert(tree, Config, strict=False)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except OSError as e:
        raise ConfigError(f"The settings file {file.name!r} cannot be read.", option="config") from e
    except yaml.YAMLError as e:
        raise ConfigError(f"The settings file {file.name!r} is not YAML: {e}", option="config") from e
    if not isinstance(content, dict):
        raise ConfigError(f"The settings file {file.name!r} must hold a mapping.", option="config")
    sections = {field.name for field in msgspec.structs.fields(Config)}
    values: dict[str, Any] = {}
    for section, content_of in content.items():
        if section in _PROJECT_KEYS:
            continue
        if section not in sections or not isinstance(content_of, dict):
            raise ConfigError(
                f"{section!r} is not a section of settings; expected one of {sorted(sections)}", option=section
            )
        values.update({f"{section}.{key}": value for key, value in content_of.items()})
    return values


#: Words of a project file that say what is served, not how (runners.load).
_PROJECT_KEYS = frozenset({"name", "description", "agent", "agents", "version"})


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    names = {f"RUNSTONE_{name.replace('.', '_').upper()}": name for name in setting_names()}
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if variable.startswith("RUNSTONE_"):
            if variable not in names:
                raise ConfigError(f"{variable!r} in the environment is not a setting.", option=variable)
            values[names[variable]] = _from_word(text)
    return values


def _from_word(text: str) -> Any:
    """A list or mapping is written as JSON; everything else as it is."""
    if text[:1] in "[{":
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as e:
            raise ConfigError(f"{text!r} is not JSON", option=text) from e
    return None if text == "null" else text
