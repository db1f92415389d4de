"""History as Hermes' message rows, and the page around them.

Rules: what one step said (reasoning, text, calls) is one assistant row. Rows are ordered by `id`, never by time. A failed
tool's content is `{"error": "<reason>"}` as Hermes' own tools write it, and the row says `is_error` beside it.
Source: the Hermes agent API server, `/api/sessions/{id}/messages`; backend contract, "Hermes", "History".
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

import msgspec

from runstone.core.content import DataPart, FilePart, ImagePart, Part, RefusalPart, TextPart, text_of
from runstone.core.items import ApprovalItem, FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Run, RunStatus, Session, Usage, backend_status, session_status
from runstone.core.transcript import HistoryRow, Page
from runstone.protocols.hermes.sessions import MessagesQuery, shown_metadata
from runstone.protocols.hermes.types import (
    ID_STEP,
    HistoryRun,
    MessageRow,
    MessagesPage,
    RunWord,
    SessionState,
    ToolCallWire,
)

Blobs = Mapping[str, bytes]
#: Ordinals of the rows of items that are not finished; no finished row has one.
_OPEN: Final = ID_STEP - 1_000


def message_id(position: int, ordinal: int) -> int:
    """The id of the row whose first item has this place."""
    return position * ID_STEP + ordinal


def place_of(id: int) -> tuple[int, int]:
    """Position and ordinal of the row's first item: the inverse of `message_id`."""
    return divmod(id, ID_STEP)


def run_word(status: RunStatus) -> RunWord:
    """The status in Hermes' words."""
    return "waiting_for_approval" if status == "waiting" else status


def usage_to_wire(usage: Usage | None) -> dict[str, int]:
    """What the usage says; a count that nobody said is absent, never 0."""
    if usage is None:
        return {}
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "cache_read_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return {key: count for key, count in counts.items() if count is not None}


# -- the page


def messages_page(
    page: Page,
    session: Session,
    head: Run | None,
    query: MessagesQuery,
    *,
    is_cut: bool = False,
    blobs: Blobs = {},  # noqa: B006
) -> MessagesPage:
    """The rows that `query` asks for, of a page that holds `query.items` items of the session.

    For `latest` the page has the newest items (or those before the cursor), for `oldest` the session's first ones (or those
    from `start` on), and then `is_cut` says that newer ones exist. `head` is the newest run of the session's chain. `cursor`
    leads to older rows, `newer` to newer ones. `active_run` stands on a page that ends with the newest row: what follows its
    event follows the page.
    """
    rows = rows_of(page.rows, session.id, blobs=blobs)
    beyond: tuple[int, int] | None = None
    if is_cut and len(rows) > 1:
        # A page may begin or end in the middle of a step; the step's row comes whole with the page beside it.
        beyond = place_of(rows.pop()["id"])
    elif query.order == "latest" and page.has_more and len(rows) > 1:
        del rows[0]
    if not is_cut:
        rows += open_rows(page, session.id, blobs=blobs)
    first, end = _window(query, len(rows))
    shown = rows[first:end]
    if end < len(rows):
        beyond = place_of(rows[end]["id"])
    newer = query.before or (None if beyond is None else _cursor(beyond))
    has_more = bool(shown) and (page.has_more or first > 0)
    wire: MessagesPage = {
        "object": "list",
        "session_id": session.id,
        "data": shown,
        "pagination": {
            "limit": query.limit,
            "offset": query.offset,
            "order": query.order,
            "returned": len(shown),
        },
        "runs": [_run(run, page if newer is None else None) for run in page.runs],
        "session": session_state(session, head),
        "cursor": _cursor(place_of(shown[0]["id"])) if has_more else None,
        "has_more": has_more,
        "newer": newer,
    }
    if newer is None:
        active = page.active
        wire["active_run"] = None if active is None else {"run_id": active.run_id, "event_id": str(active.seq)}
    return wire


def _window(query: MessagesQuery, count: int) -> tuple[int, int]:
    """Which of `count` rows the query asks for."""
    if query.order == "oldest":
        return min(query.offset, count), min(query.offset + query.limit, count)
    end = max(count - query.offset, 0)
    return max(end - query.limit, 0), end


def _cursor(place: tuple[int, int]) -> str:
    return "{}.{}".format(*place)


def session_state(session: Session, head: Run | None) -> SessionState:
    """Id, title and status; the status is one of four words, ours is kept beside it."""
    metadata = shown_metadata(session)
    metadata["backendStatus"] = backend_status(head)
    return {"id": session.id, "status": session_status(head), "title": session.title, "metadata": metadata}


def _run(run: Run, page: Page | None) -> HistoryRun:
    wire: HistoryRun = {"id": run.id, "status": run_word(run.status), "created_at": run.created_at}
    if run.ended_at is not None:
        wire["finished_at"] = run.ended_at
    if run.model is not None:
        wire["model"] = run.model
    if usage := usage_to_wire(run.usage):
        wire["usage"] = usage
    if run.reason is not None:
        wire["reason"] = run.reason
    if run.error is not None:
        wire["error"] = {"code": run.error.code, "message": run.error.message}
    if run.approvals:
        wire["approvals"] = [msgspec.to_builtins(approval) for approval in run.approvals]
    if page is not None and page.active is not None and page.active.run_id == run.id:
        wire["last_event_id"] = str(page.active.seq)
    return wire


# -- rows


def rows_of(rows: Iterable[HistoryRow], session_id: str, *, blobs: Blobs = {}) -> list[MessageRow]:  # noqa: B006
    """Message rows of finished items, in order. Approvals have no row in Hermes; they stand with their run."""
    reader = _Reader(session_id, blobs)
    for row in rows:
        is_steer = row.is_input and row.seq > 1
        reader.read(
            row.item, (row.run_id, row.is_input, row.item.step), message_id(row.position, row.ordinal), row.at, is_steer
        )
    return reader.rows


def open_rows(page: Page, session_id: str, *, blobs: Blobs = {}) -> list[MessageRow]:  # noqa: B006
    """Rows of the items that an active run has open, as they stand; their ids are provisional and they have no time."""
    if page.active is None:
        return []
    position = page.rows[-1].position if page.rows else 0
    reader = _Reader(session_id, blobs)
    for n, item in enumerate(page.open_items):
        # A tool that still runs has said nothing; its call is there.
        if not isinstance(item, ToolResult):
            reader.read(item, (page.active.run_id, False, item.step), message_id(position, _OPEN + n), None)
    return reader.rows


_Key = tuple[str | None, bool, str | None]


class _Reader:
    """Items read so far. A key is run, whether the item is the run's input, and step."""

    def __init__(self, session_id: str, blobs: Blobs) -> None:
        self.rows: list[MessageRow] = []
        self._session_id = session_id
        self._blobs = blobs
        self._of_step: dict[_Key, MessageRow] = {}
        self._newest_key: _Key | None = None

    def read(self, item: Item, key: _Key, id: int, at: float | None, is_steer: bool = False) -> None:
        """Add one item; `at` is None for one that is not finished."""
        match item:
            case Message(role="assistant"):
                row = self._takes(key, "content") or self._step(key, id, at)
                self._write(row, item.parts)
                if item.status == "completed" and row["tool_calls"] is None:
                    row["finish_reason"] = "stop"
            case Message():
                row = self._new(key, id, at, item.role)
                self._write(row, item.parts)
                if is_steer:
                    row["display_kind"] = "steer"
            case Reasoning():
                row = self._takes(key, "reasoning", "content", "tool_calls") or self._step(key, id, at)
                row["reasoning"] = row["reasoning_content"] = item.text
            case ToolCall():
                row = self._find(key) or self._step(key, id, at)
                row["tool_calls"] = [*(row["tool_calls"] or []), call_to_wire(item)]
                row["finish_reason"] = "tool_calls" if item.status == "completed" else None
            case ToolResult():
                self._result(item, self._new(key, id, at, "tool"))
            case FileItem():
                self._write(self._new(key, id, at, "assistant"), item.parts)
            case ApprovalItem():
                pass
            case _:
                assert_never(item)

    def _result(self, item: ToolResult, row: MessageRow) -> None:
        self._write(row, item.output)
        row["tool_call_id"] = item.call_id
        row["tool_name"] = item.name
        row["content"] = tool_content(item)
        if item.is_error:
            row["is_error"] = True

    def _write(self, row: MessageRow, parts: list[Part]) -> None:
        row["content"] = text_to_show(parts)
        if any(isinstance(part, ImagePart | FilePart | DataPart) for part in parts):
            row["parts"] = [part_to_wire(part, self._blobs) for part in parts]

    def _find(self, key: _Key) -> MessageRow | None:
        """The row that has this step's words; without steps, the newest one when it is of the same run."""
        if key[2] is not None:
            return self._of_step.get(key)
        return self.rows[-1] if key == self._newest_key else None

    def _takes(self, key: _Key, *fields: str) -> MessageRow | None:
        """The step's row, when nothing came after it and it has none of `fields` yet."""
        row = self._find(key)
        if row is None or row is not self.rows[-1] or any(row[field] for field in fields):  # type: ignore[literal-required]
            return None
        return row

    def _step(self, key: _Key, id: int, at: float | None) -> MessageRow:
        row = self._of_step[key] = self._new(key, id, at, "assistant")
        self._newest_key = key
        return row

    def _new(self, key: _Key, id: int, at: float | None, role: str) -> MessageRow:
        row: MessageRow = {
            "id": id,
            "session_id": self._session_id,
            "role": role,
            "content": "",
            "tool_call_id": None,
            "tool_calls": None,
            "tool_name": None,
            "timestamp": at,
            "token_count": None,
            "finish_reason": None,
            "reasoning": None,
            "reasoning_content": None,
            "display_kind": None,
            "run_id": key[0],
        }
        self.rows.append(row)
        self._newest_key = None
        return row


def last_answer(rows: Iterable[MessageRow]) -> str:
    """The content of the last assistant row that says something, "" when none does: the turn's answer to Hermes."""
    answer = ""
    for row in rows:
        if row["role"] == "assistant" and row["content"]:
            answer = row["content"]
    return answer


# -- parts


def call_to_wire(call: ToolCall) -> ToolCallWire:
    """A tool call as a row carries it."""
    return {
        "id": call.call_id,
        "call_id": call.call_id,
        "response_item_id": call.item_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def text_to_show(parts: Iterable[Part]) -> str:
    """The parts as one text, which is all that Hermes has room for; bytes become a word in brackets."""
    return "".join(_word(part) for part in parts)


def _word(part: Part) -> str:
    match part:
        case TextPart() | RefusalPart():
            return part.text
        case ImagePart():
            return "[image]"
        case FilePart():
            return f"[file: {part.name}]" if part.name else "[file]"
        case DataPart():
            return msgspec.json.encode(part.data).decode()
        case _:
            assert_never(part)


def result_text(result: ToolResult) -> str:
    """What the tool gave, or why it failed, as text."""
    return text_to_show(result.output)


def tool_content(result: ToolResult) -> str:
    """The content of a tool row."""
    text = result_text(result)
    return msgspec.json.encode({"error": text}).decode() if result.is_error else text


def user_content(parts: list[Part]) -> str | list[dict[str, Any]]:
    """A user's message as `run.started` shows it: text, or parts when there is more than text."""
    if all(isinstance(part, TextPart) for part in parts):
        return text_of(parts)
    return [part_to_wire(part, {}) for part in parts]


def part_to_wire(part: Part, blobs: Blobs) -> dict[str, Any]:
    """A part in Chat's spelling. Stored bytes that are not in `blobs` become a word in brackets."""
    match part:
        case ImagePart(file_id=str()):
            return {"type": "file", "file": {"file_id": part.file_id}}
        case ImagePart():
            url = part.url or _data_url(part, blobs)
            return _text(part) if url is None else {"type": "image_url", "image_url": {"url": url}}
        case FilePart():
            address = part.file_id or part.url or _data_url(part, blobs)
            if address is None:
                return _text(part)
            key = "file_id" if part.file_id else "file_url" if part.url else "file_data"
            return {"type": "file", "file": {key: address, **({"filename": part.name} if part.name else {})}}
        case TextPart() | RefusalPart() | DataPart():
            return _text(part)
        case _:
            assert_never(part)


def _text(part: Part) -> dict[str, Any]:
    return {"type": "text", "text": _word(part)}


def _data_url(part: ImagePart | FilePart, blobs: Blobs) -> str | None:
    content = blobs.get(part.blob) if part.blob is not None else part.content
    if content is None:
        return None
    return f"data:{part.media_type or ''};base64,{base64.b64encode(content).decode()}"
