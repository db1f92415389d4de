"""From whatever version a database has to this program's."""

from __future__ import annotations

import sqlite3

from runstone.errors import ConfigError
from runstone.storage.sql import migrations


def version_of(connection: sqlite3.Connection) -> int:
    """The number of the last migration applied, 0 for a new database."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
        return 0
    (number,) = connection.execute("SELECT coalesce(max(number), 0) FROM migrations").fetchone()
    return int(number)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to the newest version, in one transaction.

    Raises:
        ConfigError: it has a newer one, or is somebody else's.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = version_of(connection)
        refuse_newer(version)
        if version == 0 and connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is not None:
            raise ConfigError("The database belongs to another program.", option="database")
        for step in migrations("sqlite"):
            if step.number > version:
                for statement in statements(step.script):
                    connection.execute(statement)
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
                )
                connection.execute("INSERT INTO migrations VALUES (?, ?)", (step.number, step.name))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def check_readable(connection: sqlite3.Connection) -> None:
    """Refuse a database that this program does not read as it is.

    Raises:
        ConfigError: it is newer, or older and has to be migrated by a server first.
    """
    version = version_of(connection)
    refuse_newer(version)
    if version < (newest := migrations("sqlite")[-1].number):
        raise ConfigError(
            f"The database has version {version}, expected {newest}: start a server once.", option="database"
        )


def refuse_newer(version: int) -> None:
    """Raise ConfigError when a newer program wrote the database."""
    newest = migrations("sqlite")[-1].number
    if version > newest:
        raise ConfigError(f"The database has version {version}; this program knows up to {newest}.", option="database")


def statements(script: str) -> list[str]:
    """The statements of a script; `executescript` would commit what is open."""
    found, statement = [], ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            found.append(statement)
            statement = ""
    return found
