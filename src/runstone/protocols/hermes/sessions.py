"""Sessions as Hermes' bodies and queries name them.

Hermes' own fields of a session (`source`, `model`, `system_prompt`, flags, the end's reason) live in its metadata under
`hermes_*`, as text.
Source: the Hermes agent API server, as measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from runstone.core.commands import Start
from runstone.core.ids import checked_session_id
from runstone.core.runs import Session
from runstone.errors import InvalidRequest
from runstone.protocols.base import Cursor, cursor_from_text
from runstone.protocols.hermes.request import Json, first_of, need_body, opt_bool, opt_object, opt_str, wrong_type
from runstone.protocols.hermes.types import ANY_AGENT, SOURCE

#: Keys of a session's metadata that are Hermes' own fields and are shown as those.
HIDDEN_PREFIX: Final = "hermes_"
_FLAGS: Final = ("pinned", "archived", "unread", "hidden")


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to create; `id` and `title` are chosen by us when None. `metadata` holds Hermes' own fields too.

    `until`: of a fork, the id of the newest message that is copied; all are when it is None.
    """

    id: str | None = None
    title: str | None = None
    metadata: Json = {}
    until: int | None = None

    @property
    def model(self) -> str | None:
        """The model or agent that it is created with."""
        return self.metadata.get(f"{HIDDEN_PREFIX}model")


def session_from_body(body: object) -> NewSession:
    """What `POST /api/sessions` asks for; the body may be empty.

    Raises:
        InvalidRequest: codes `invalid_session_id`, `invalid_title`, `invalid_system_prompt`.
    """
    fields = need_body({} if body is None else body)
    metadata = _metadata(fields)
    own = {
        "source": opt_str(fields, "source"),
        "model": opt_str(fields, "model"),
        "system_prompt": opt_str(fields, "system_prompt", code="invalid_system_prompt"),
    }
    metadata = {**metadata, **{f"{HIDDEN_PREFIX}{key}": value for key, value in own.items() if value}}
    return NewSession(id=_new_id(fields), title=_title(fields), metadata=metadata)


def fork_from_body(body: object) -> NewSession:
    """What `/api/sessions/{id}/fork` asks for; the body may be empty. `message_id` (ours) is the newest that is copied.

    Raises:
        InvalidRequest: codes `invalid_session_id`, `invalid_title`; `message_id` is no id of a message.
    """
    fields = need_body({} if body is None else body)
    _, until = first_of(fields, "message_id")
    if until is not None and (not isinstance(until, int) or isinstance(until, bool) or until < 0):
        raise wrong_type(until, "message_id", "the id of a message")
    return NewSession(id=_new_id(fields), title=_title(fields), until=until)


def _new_id(fields: Json) -> str | None:
    key, value = first_of(fields, "id", "session_id")
    if value is None:
        return None
    return checked_session_id(opt_str(fields, key, code="invalid_session_id") or "", param=key)


def _title(fields: Json) -> str | None:
    title = opt_str(fields, "title", code="invalid_title")
    if title is None:
        return None
    title = title.strip()
    if not title or len(title) > 500 or not title.isprintable():
        raise wrong_type(title, "title", "1 to 500 printable characters", "invalid_title")
    return title


def title_taken(title: str, session_id: str) -> InvalidRequest:
    """The error for a title that another session of the owner has: Hermes' titles are unique."""
    return InvalidRequest(
        f"Title {title[:80]!r} is already in use by session {session_id}", param="title", code="invalid_title"
    )


def forked_title(title: str | None, taken: set[str]) -> str | None:
    """`<title> #2` or the next number that is free; None when the source has no title."""
    if title is None:
        return None
    base = re.sub(r" #\d+$", "", title)
    n = 2
    while f"{base} #{n}" in taken:
        n += 1
    return f"{base} #{n}"


class SessionPatch(msgspec.Struct, frozen=True, kw_only=True):
    """What changes; what is not named stays. `title` None with `has_title` takes it away."""

    has_title: bool = False
    title: str | None = None
    metadata: Json | None = None
    flags: dict[str, bool] = {}
    end_reason: str | None = None


def patch_from_body(body: object) -> SessionPatch:
    """What `PATCH /api/sessions/{id}` asks for; `metadata` (ours) replaces all but Hermes' own fields.

    Raises:
        InvalidRequest: codes `unsupported_session_field`, `invalid_title`, `invalid_session_field`.
    """
    fields = need_body(body)
    unknown = sorted(set(fields) - {"title", "end_reason", "metadata", *_FLAGS})
    if unknown:
        raise InvalidRequest(
            f"Unsupported session fields: {', '.join(unknown)[:200]}",
            param=unknown[0][:80],
            code="unsupported_session_field",
        )
    code = "invalid_session_field"
    flags = {key: opt_bool(fields, key, code=code) for key in _FLAGS}
    return SessionPatch(
        has_title="title" in fields,
        title=_title(fields),
        metadata=_metadata(fields) if "metadata" in fields else None,
        flags={key: value for key, value in flags.items() if value is not None},
        end_reason=opt_str(fields, "end_reason", code=code),
    )


def patched(session: Session, patch: SessionPatch, *, now: float) -> Session:
    """The session with the patch applied; flags and the end's reason live in its metadata, as text."""
    own = {key: "true" if value else "false" for key, value in patch.flags.items()}
    if patch.end_reason is not None:
        own |= {"end_reason": patch.end_reason, "ended_at": repr(now)}
    return msgspec.structs.replace(
        session,
        title=patch.title if patch.has_title else session.title,
        metadata={
            **(session.metadata if patch.metadata is None else with_metadata(session, patch.metadata)),
            **{f"{HIDDEN_PREFIX}{key}": value for key, value in own.items()},
        },
    )


def _metadata(fields: Json) -> Json:
    metadata = opt_object(fields, "metadata")
    if any(key.startswith(HIDDEN_PREFIX) for key in metadata):
        raise InvalidRequest(
            f"Keys that begin with {HIDDEN_PREFIX!r} are for the server to set.",
            param="metadata",
            code="invalid_session_field",
        )
    return metadata


def shown_metadata(session: Session) -> Json:
    """The session's metadata without Hermes' own fields: what other surfaces show of it."""
    return {key: value for key, value in session.metadata.items() if not key.startswith(HIDDEN_PREFIX)}


def with_metadata(session: Session, metadata: Json) -> Json:
    """What the session's metadata becomes when a client replaces what it is shown."""
    own = {key: value for key, value in session.metadata.items() if key.startswith(HIDDEN_PREFIX)}
    return {**metadata, **own}


def is_hidden(session: Session) -> bool:
    """Whether a client hid the session from lists."""
    return session.hidden or own_field(session, "hidden") == "true"


def own_field(session: Session, key: str) -> str | None:
    """One of Hermes' own fields that the session's metadata holds, None when it has none."""
    value = session.metadata.get(f"{HIDDEN_PREFIX}{key}")
    return value if isinstance(value, str) else None


def source_of(session: Session) -> str:
    """Where the session came from, in Hermes' words."""
    return own_field(session, "source") or SOURCE


def with_session_defaults(start: Start, session: Session) -> Start:
    """The start with the model and the system prompt that the session was created with; the turn's own come on top."""
    prompt, asked = own_field(session, "system_prompt"), start.settings.instructions
    instructions = "\n\n".join(text for text in (prompt, asked) if text) or None
    model = own_field(session, "model")
    return msgspec.structs.replace(
        start,
        agent=start.agent or (None if model == ANY_AGENT else model),
        settings=msgspec.structs.replace(start.settings, instructions=instructions),
    )


# -- query strings

Query = Mapping[str, str]


class SessionsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list. `title` is matched exactly, hidden ones only with it; `search` (ours) anywhere in the title."""

    limit: int = 50
    offset: int = 0
    search: str | None = None
    title: str | None = None
    source: str | None = None
    include_hidden: bool = False


def sessions_query(query_params: Query) -> SessionsQuery:
    """The query of `GET /api/sessions`. As in Hermes, what is no number becomes the default; the limit is 200 at most."""
    limit, offset = (_count(query_params.get(key)) for key in ("limit", "offset"))
    title = query_params.get("title") or None
    return SessionsQuery(
        limit=50 if limit is None else min(limit, 200),
        offset=offset or 0,
        search=query_params.get("search") or None,
        title=title,
        source=query_params.get("source") or None,
        include_hidden=title is not None and query_params.get("include_hidden", "") in ("1", "true"),
    )


def matches(session: Session, query: SessionsQuery) -> bool:
    """Whether the list has the session, `search` aside."""
    if query.title is not None and session.title != query.title:
        return False
    if query.source is not None and source_of(session) != query.source:
        return False
    return query.include_hidden or not is_hidden(session)


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else None


class MessagesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages to give: the newest, the first, or (ours) those before another page's `cursor` or from its `newer` on."""

    limit: int = 500
    offset: int = 0
    order: Literal["latest", "oldest"] = "latest"
    before: str | None = None
    start: tuple[int, int] | None = None

    @property
    def items(self) -> int:
        """How many items of history to read: a row may be made of several (reasoning, text, calls)."""
        return 4 * (self.limit + self.offset) + 8


def messages_query(query_params: Query) -> MessagesQuery:
    """The query of `GET /api/sessions/{id}/messages`: newest first without parameters, oldest first with a `limit`.

    Raises:
        InvalidRequest: code `invalid_pagination`.
    """
    limit, offset = (_exact(query_params.get(key), key) for key in ("limit", "offset"))
    is_plain = limit is None and offset is None
    before = query_params.get("before") or None
    start = _place(query_params.get("after") or None)
    if start is not None and (before is not None or offset or query_params.get("order") == "latest"):
        raise InvalidRequest(
            "after goes with limit only, not with before, offset or order=latest",
            param="after",
            code="invalid_pagination",
        )
    is_plain = is_plain and start is None
    order = query_params.get("order") or ("latest" if is_plain or before is not None else "oldest")
    if order not in ("oldest", "latest"):
        raise InvalidRequest("order must be one of: oldest, latest", param="order", code="invalid_pagination")
    if before is not None and (order == "oldest" or offset):
        raise InvalidRequest(
            "before goes with limit only, not with offset or order=oldest", param="before", code="invalid_pagination"
        )
    return MessagesQuery(
        limit=500 if limit is None else min(limit, 500),
        offset=offset or 0,
        order="oldest" if order == "oldest" else "latest",
        before=before,
        start=start,
    )


def _place(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15})\.([0-9]{1,9})", text)
    if match is None:
        raise InvalidRequest(
            f"'after' is {text[:80]!r}; expected the `newer` of a page", param="after", code="invalid_pagination"
        )
    return int(match[1]), int(match[2])


def _exact(text: str | None, param: str) -> int | None:
    count = _count(text)
    if text is not None and count is None:
        raise InvalidRequest("limit and offset must be non-negative integers", param=param, code="invalid_pagination")
    return count


class FrameCount(msgspec.Struct, frozen=True):
    """A reader's place on a runs stream by the newest `data.seq` it has."""

    seq: int


def place_from_request(last_event_id: str | None, query_params: Query) -> Cursor | FrameCount:
    """Where a stream goes on: the header `Last-Event-ID` (or `?last_event_id=`), else `?last_seq=`, else the beginning.

    The header holds the `id:` of a frame, `last_seq` its `data.seq`.

    Raises:
        CursorUnknown: it is no cursor.
        InvalidRequest: `last_seq` is no number.
    """
    text = last_event_id or query_params.get("last_event_id")
    if text:
        return cursor_from_text(text)
    number = query_params.get("last_seq")
    if not number:
        return Cursor(0)
    count = _count(number)
    if count is None:
        raise InvalidRequest(f"'last_seq' is {number[:80]!r}; expected a number from 0.", param="last_seq")
    return FrameCount(count)
