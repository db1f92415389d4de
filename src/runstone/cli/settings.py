"""The settings that a command line asks for, where it is not all of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from runstone.config import Config, config_from

#: A settings file that is used when it is there.
FILE = "runstone.yaml"


def settings_of(options: argparse.Namespace) -> Config:
    """The settings of `--config` and `--db`.

    Raises:
        ConfigError: an unknown one, or a value that it cannot take.
    """
    file = options.config
    if file is None and Path(FILE).is_file():
        file = Path(FILE)
    overrides = {} if options.db is None else {"storage.url": options.db}
    return config_from(file=file, overrides=overrides)
