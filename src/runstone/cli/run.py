"""`runstone run`: load agents and serve them."""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runstone.config import Config, config_from
from runstone.errors import ConfigError

if TYPE_CHECKING:
    from runstone.app import App

#: A settings file that is used when it is there.
_FILE = "runstone.yaml"


def add_to(commands: Any) -> None:  # noqa: ANN401
    """Add the command to the grammar."""
    command = commands.add_parser("run", help="serve agents over HTTP", description="Serve agents over HTTP.")
    command.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="an agent: module:name, a file, a project folder; or NAME=TARGET for several",
    )
    command.add_argument("--host", help="address to listen on (server.host, 127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on, 0 for any (server.port, 8080)")
    command.add_argument("--db", help="where runs are kept: memory, a path, a URL (storage.url, .runstone/runstone.db)")
    command.add_argument(
        "--key", action="append", default=[], metavar="USER=KEY", help="an API key and its user; repeat for more"
    )
    command.add_argument("--config", type=Path, metavar="FILE", help=f"settings file ({_FILE} when it is there)")
    command.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", dest="settings", help="any setting by its name"
    )
    command.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve until told to end."""
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("uvicorn", "httpx", "httpx2"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    config = config_of(options)
    from runstone.app import App, run_app

    app = App.load(options.targets, config=config)
    run_app(app, ready=lambda address: print(banner(app, address), flush=True))
    return 0


def config_of(options: argparse.Namespace) -> Config:
    """The settings that the command line asks for.

    Raises:
        ConfigError: an unknown one, or a value that it cannot take.
    """
    file = options.config
    if file is None and Path(_FILE).is_file():
        file = Path(_FILE)
    overrides: dict[str, Any] = {
        name: value
        for name, value in (
            ("server.host", options.host),
            ("server.port", options.port),
            ("storage.url", options.db),
            ("server.keys", keys_of(options.key) or None),
        )
        if value is not None
    }
    return config_from(file=file, settings=options.settings, overrides=overrides)


def keys_of(words: list[str]) -> dict[str, str]:
    """API key -> user, from words `USER=KEY`.

    Raises:
        ConfigError: a word has no `=`, or a key is there twice.
    """
    keys: dict[str, str] = {}
    for word in words:
        user, sign, key = word.partition("=")
        if not sign or not user or not key:
            raise ConfigError("--key is not of the form USER=KEY", option="server.keys")
        if key in keys:
            raise ConfigError(f"the key of {user!r} is the key of {keys[key]!r} too", option="server.keys")
        keys[key] = user
    return keys


def banner(app: App, address: str) -> str:
    """What is said when the server listens."""
    lines = [f"Runstone listens on {address}", ""]
    for name, runner in app.engine.agents.items():
        lines.append(f"  agent     {name} ({runner.name}): {_abilities(runner.capabilities)}")
    lines.append(f"  database  {app.config.storage.url}")
    users = sorted(set(app.config.server.keys.values()))
    lines.append(f"  access    {'keys of ' + ', '.join(users) if users else 'this machine only, no keys'}")
    body = json.dumps({"model": app.engine.default_agent, "input": "Hello", "stream": True})
    auth = " \\\n    -H 'Authorization: Bearer YOUR_KEY'" if users else ""
    lines += [
        "",
        f"  curl -N {address}/v1/responses \\\n    -H 'Content-Type: application/json'{auth} \\\n    -d '{body}'",
        "",
    ]
    return "\n".join(lines)


def _abilities(capabilities: Any) -> str:  # noqa: ANN401
    words = []
    for name in ("stop", "steer", "approvals", "client_tools", "models"):
        level = getattr(capabilities, name).level
        if level != "none":
            words.append(name.replace("_", " ") if level == "native" else f"{name.replace('_', ' ')} (emulated)")
    return ", ".join(words) or "start only"
