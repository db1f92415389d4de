"""The seams to storage. Every key begins with the owner.

`RunStore` holds records, `EventLog` the numbered events, `FileStore` bytes. A backend may implement the first two in one class.
Rules that hold for every backend:

- A method that writes is durable when it returns (when its future is done).
- One `Append`, one `create_run`, is one transaction: all of it or nothing.
- Appends of one run take effect in the order of the calls; a later one never becomes visible before an earlier one.
- A backend that cannot be reached, is locked, full or read-only raises `StorageUnavailable`, never "not found".
- Text is stored as it is, NUL included. (Lone surrogates never get here: the engine replaces them.)
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, Protocol

import msgspec

from runstone.core.events import Event
from runstone.core.runs import Run, Session
from runstone.core.transcript import HistoryRow, RowChange


class Idempotency(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's key for a start. `fingerprint` stands for route, agent and body; the key lives until `expires_at`."""

    key: str
    fingerprint: str
    expires_at: float


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run to be created, with its first event, in one transaction.

    `session` is created when it does not exist; its head becomes the run. `fingerprint` stands for what was asked: a run of
    that id or key with the same fingerprint is attached to, with another one refused.
    `expected_head`: the head that admission saw; another one now means that somebody else was first.
    """

    run: Run
    session: Session
    event: Event
    fingerprint: str
    idempotency: Idempotency | None = None
    expected_head: str | None = None


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The run, and whether this call made it (False: it was there, with the same fingerprint)."""

    run: Run
    is_new: bool


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one run in one transaction.

    `events` continue the log (their seq without gaps); `changes` are what they do to the history rows, in order; `run`, when
    given, replaces the record. The session's `updated_at` becomes `at`.
    """

    owner: str
    session_id: str
    run_id: str
    at: float
    events: list[Event] = []
    changes: list[RowChange] = []
    run: Run | None = None


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with the run it belongs to."""

    run_id: str
    event: Event


class FileRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a client uploaded; `blob` is the reference to its bytes."""

    id: str
    owner: str
    name: str
    purpose: str
    size_bytes: int
    created_at: float
    blob: str
    media_type: str | None = None


class RunStore(Protocol):
    """Sessions, runs, history rows, files' records."""

    async def create_session(self, session: Session, rows: list[HistoryRow]) -> None:
        """Create it, with rows that a client put there.

        Raises:
            Conflict: the owner has a session of that id.
        """
        ...

    async def session(self, owner: str, session_id: str) -> Session | None:
        """The session, None when the owner has none of that id."""
        ...

    async def save_session(self, session: Session) -> None:
        """Replace title, metadata, times, hidden of an existing session; its head is not touched."""
        ...

    async def delete_session(self, owner: str, session_id: str) -> bool:
        """Delete it with its runs, events, rows and idempotency keys; False when there was none."""
        ...

    async def is_title_taken(self, owner: str, title: str) -> bool:
        """Whether a session of the owner that is not hidden has exactly this title."""
        ...

    async def sessions(
        self, owner: str, *, limit: int, offset: int = 0, search: str | None = None, agent: str | None = None
    ) -> list[Session]:
        """Sessions that are not hidden, newest `updated_at` first (ties: id), `search` in the title, case-insensitive."""
        ...

    async def create_run(self, new: NewRun) -> Created:
        """Create the run, its session if missing, its first event and its rows, and move the session's head to it.

        When the run does not continue the head, the rows on the session's page become those of the new head's chain.

        Raises:
            IdempotencyConflict: the id or the key was used with another fingerprint.
            Conflict: the head is not `expected_head` any more (code `head_moved`).
        """
        ...

    async def existing(
        self, owner: str, fingerprint: str, *, run_id: str | None, key: str | None, now: float
    ) -> Run | None:
        """The run that was started with this id or this key (not expired `now`) and the same fingerprint, None when none was.

        Raises:
            IdempotencyConflict: the id or the key was used with another fingerprint.
        """
        ...

    async def run(self, owner: str, run_id: str) -> Run | None:
        """The run, None when the owner has none of that id."""
        ...

    async def save_run(self, run: Run) -> None:
        """Replace the record of an existing run, without an event."""
        ...

    async def delete_run(self, owner: str, run_id: str, *, keep_record: bool = False) -> bool:
        """Delete the run's events and rows, and the record too unless `keep_record`. A head that goes moves to `continues`."""
        ...

    async def runs(
        self,
        owner: str,
        *,
        session_id: str | None = None,
        statuses: list[str] | None = None,
        turn: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> list[Run]:
        """Runs, newest first, of one session or of all; `before` is the id of a run, whose successors in this order come.

        `turn`: only the alternatives of that turn.
        """
        ...

    async def runs_by_id(self, owner: str, run_ids: list[str]) -> list[Run]:
        """Those of the runs that exist, in the given order."""
        ...

    async def unfinished(self) -> list[Run]:
        """All owners' runs without an outcome, oldest first. For recovery."""
        ...

    async def ended(self, *, stored: bool, before: float, limit: int) -> list[Run]:
        """All owners' runs that ended before that time and are not `compacted` yet, oldest first. For retention."""
        ...

    async def chain(self, owner: str, run_id: str) -> list[Run]:
        """The runs that `run_id` continues, oldest first, itself last."""
        ...

    async def rows(
        self,
        owner: str,
        session_id: str,
        *,
        limit: int,
        before: tuple[int, int] | None = None,
        after: tuple[int, int] | None = None,
        newest_first: bool = False,
    ) -> list[HistoryRow]:
        """Rows on the session's page (the head's chain and what clients put there), by (position, ordinal).

        `before` and `after` are exclusive. With neither or with `before`, the newest that fit; with `after`, the oldest.
        Oldest first unless `newest_first`.
        """
        ...

    async def chain_rows(self, owner: str, session_id: str, run_id: str | None) -> list[HistoryRow]:
        """All rows of the chain that ends in `run_id`, oldest first; with None, what clients put there before any run."""
        ...

    async def run_rows(self, owner: str, run_id: str) -> list[HistoryRow]:
        """The rows of one run, its input first."""
        ...

    async def row(self, owner: str, session_id: str, *, run_id: str | None, item_id: str) -> HistoryRow | None:
        """One row of the session by the run that made it (None: a client) and its item id."""
        ...

    async def add_rows(self, owner: str, session_id: str, rows: list[HistoryRow]) -> None:
        """Put a client's rows at the end of the session's page; they belong to the chain of its head."""
        ...

    async def delete_row(self, owner: str, session_id: str, *, position: int, ordinal: int) -> bool:
        """Take one row away, from everybody, the model included."""
        ...

    async def create_file(self, record: FileRecord) -> None:
        """Keep the record of an uploaded file."""
        ...

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        """The record, None when the owner has none of that id."""
        ...

    async def files(
        self, owner: str, *, limit: int, after: str | None = None, purpose: str | None = None, newest_first: bool = True
    ) -> list[FileRecord]:
        """The owner's files by `created_at`; `after` is the id of one of them."""
        ...

    async def delete_file(self, owner: str, file_id: str) -> bool:
        """Forget the record; False when there was none."""
        ...


class EventLog(Protocol):
    """Events appended and replayed."""

    def append(self, batch: Append) -> asyncio.Future[None]:
        """Hand `batch` to the writer. The future is done when it is durable.

        It fails with `AppendConflict` when the events do not continue the log, with `StorageUnavailable` when the store cannot
        write; then nothing of the batch is there. Called on the event loop's thread; never blocks it.
        """
        ...

    async def events(self, owner: str, run_id: str, *, after: int, limit: int) -> list[Event]:
        """Events with a seq above `after`, in order; at least one when there is one, about `limit` at most."""
        ...

    async def session_events(self, owner: str, session_id: str, *, after: int, limit: int) -> list[SessionEvent]:
        """Events of all runs of the session with a position above `after`, in order; about `limit` at most."""
        ...

    async def last_seq(self, owner: str, run_id: str) -> int:
        """The newest seq of the run, 0 when it has no events."""
        ...

    async def first_seq(self, owner: str, run_id: str) -> int:
        """The oldest seq still kept, 0 when none is."""
        ...

    async def last_position(self, owner: str, session_id: str) -> int:
        """The newest position used in the session, by events or rows, 0 when none."""
        ...

    async def compact(self, owner: str, run_id: str) -> int:
        """Take the deltas of an ended run out of the log, the other events keep their numbers; how many events went."""
        ...


class FileStore(Protocol):
    """Bytes, stored once per owner and content, referenced by an opaque word."""

    async def put(self, owner: str, content: bytes) -> str:
        """Store and give the reference; the same content gives the same reference."""
        ...

    async def get(self, owner: str, reference: str) -> bytes | None:
        """The bytes, None when this owner has none under that reference."""
        ...

    async def delete(self, owner: str, reference: str) -> bool:
        """Forget the bytes; False when there were none."""
        ...


class Store(RunStore, EventLog, Protocol):
    """Records and log in one backend."""

    async def open(self) -> None:
        """Migrate and be ready; `StorageUnavailable` or `ConfigError` when that is not possible."""
        ...

    async def close(self) -> None:
        """Write what is pending and let go."""
        ...

    async def check(self) -> None:
        """See that writes are taken, as far as is known; after one that failed, by trying.

        Raises:
            StorageUnavailable, StorageError: they are not.
        """
        ...


CommandKind = Literal["stop", "steer", "decide"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """Something asked of the process that owns a run. `payload` is a value of core.runs or an item list."""

    kind: CommandKind
    owner: str
    run_id: str
    payload: Any = None
    by: str | None = None


class Control(Protocol):
    """Leases and commands between processes. In one process both are trivial (`storage.local`)."""

    async def acquire(self, owner: str, run_id: str) -> bool:
        """Become the one that drives the run; False when another process is."""
        ...

    async def release(self, owner: str, run_id: str) -> None:
        """Stop being it."""
        ...

    async def send(self, command: Command) -> bool:
        """Give the command to the run's owner; False when nobody owns the run."""
        ...

    def listen(self, receive: Receiver) -> None:
        """Call `receive` for each command whose run this process owns."""
        ...


class Receiver(Protocol):
    """Takes commands."""

    def __call__(self, command: Command) -> bool:
        """True when the command was taken."""
        ...
