"""SQLite: the embedded store."""

from runstone.storage.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
