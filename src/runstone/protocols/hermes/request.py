"""Hermes' request bodies as starts of turns; what else is asked for is in `commands` and `sessions`.

Rule: what is wrong is refused with the field in `param` and Hermes' code where it has one; fields that mean nothing here are
listed in docs/protocols/hermes.md as ignored, the rest is refused.
Source: the Hermes agent API server, as measured.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final, Literal, get_args
from urllib.parse import unquote_to_bytes

import msgspec

from runstone.core.commands import Start
from runstone.core.content import ImagePart, Part, TextPart
from runstone.core.ids import checked_run_id, checked_session_id
from runstone.core.items import Item, Message, Role
from runstone.core.runs import (
    BusyPolicy,
    DisconnectPolicy,
    RecoveryPolicy,
    Settings,
)
from runstone.errors import InvalidRequest, Unsupported
from runstone.protocols.hermes.types import ANY_AGENT, NAME

Json = dict[str, Any]

# -- readers; null counts as absent


def need_body(body: Any) -> Json:
    """The body, which has to be a JSON object."""
    if not isinstance(body, dict):
        raise InvalidRequest("Request body must be a JSON object.")
    return body


def wrong_type(value: object, key: str, expected: str, code: str | None = None) -> InvalidRequest:
    """The error for a value that is not what was expected."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
    return InvalidRequest(f"{key!r} is {shown}; expected {expected}.", param=key, code=code)


def opt_str(body: Json, key: str, *, code: str | None = None) -> str | None:
    """The text at `key`, None when it is absent; `code` is Hermes' word for another type."""
    value = body.get(key)
    if value is None or isinstance(value, str):
        return value
    raise wrong_type(value, key, "a string", code)


def opt_bool(body: Json, key: str, *, code: str | None = None) -> bool | None:
    """The boolean at `key`, None when it is absent; texts such as `"false"` are refused, not guessed."""
    value = body.get(key)
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(value, key, "true or false", code)


def opt_object(body: Json, key: str) -> Json:
    """The object at `key`, an empty one when it is absent."""
    value = body.get(key)
    if value is None or isinstance(value, dict):
        return value or {}
    raise wrong_type(value, key, "an object")


def opt_word(body: Json, key: str, words: tuple[str, ...]) -> Any:
    """One of `words` at `key`, None when it is absent."""
    word = opt_str(body, key)
    if word is None or word in words:
        return word
    raise wrong_type(word, key, f"one of {', '.join(words)}")


def first_of(body: Json, *keys: str) -> tuple[str, Any]:
    """The first of `keys` that has a value; the first key and None when none has."""
    return next(((key, body[key]) for key in keys if body.get(key) is not None), (keys[0], None))


# -- content


def parts_of(value: Any, param: str) -> list[Part]:
    """A message's content: text, or parts of text and images; empty when it is neither, or has parts of other kinds only.

    Raises:
        InvalidRequest: a part is malformed or of another kind than those beside it, or an image is neither at an http(s) URL
            nor a data URL of an image.
    """
    if isinstance(value, str):
        return [TextPart(text=value)]
    if not isinstance(value, list):
        return []
    parts = [_part(part, f"{param}[{n}]", param) for n, part in enumerate(value)]
    known = [part for part in parts if part is not None]
    if known and len(known) < len(parts):
        raise InvalidRequest(
            f"{param!r} has parts that are neither text nor images.", param=param, code="unsupported_content_type"
        )
    return known


def _part(value: Any, at: str, param: str) -> Part | None:
    match value:
        case str():
            return TextPart(text=value)
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return TextPart(text=text)
        case {"type": "image_url" | "input_image", "image_url": str(url) | {"url": str(url)}}:
            return _image(url, param)
        case {"type": "text" | "input_text" | "output_text" | "image_url" | "input_image"}:
            raise InvalidRequest(f"{at!r} is a malformed content part.", param=param, code="invalid_content_part")
        case _:
            return None


_REMOTE: Final = re.compile(r"https?://[^\s\x00-\x20\x7f]+", re.IGNORECASE)


def _image(url: str, param: str) -> Part:
    """Remote images stay references; those in a data URL are taken out of it."""
    if url[:11].lower() == "data:image/":
        head, comma, payload = url[5:].partition(",")
        if comma and head.lower().endswith(";base64"):
            return ImagePart(media_type=head[:-7], content=_bytes(payload, param))
        if comma:
            return ImagePart(media_type=head, content=unquote_to_bytes(payload))
    elif _REMOTE.fullmatch(url):
        return ImagePart(url=url)
    raise InvalidRequest(
        f"{param!r} has the image {url[:80]!r}; expected an http, https or data:image URL.",
        param=param,
        code="unsupported_content_type",
    )


def _bytes(text: str, param: str) -> bytes:
    compact = "".join(text.split())
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidRequest(f"{param!r} has broken base64.", param=param, code="unsupported_content_type") from e


def is_blank(parts: list[Part]) -> bool:
    """Whether nothing is said: no parts, or spaces only."""
    return all(isinstance(part, TextPart) and not part.text.strip() for part in parts)


def user_message(parts: list[Part], body: Json) -> Message:
    """What the user says, as the only item of a request; Hermes' `author` is its author."""
    return Message(item_id="in1", role="user", parts=parts, author=opt_str(body, "author"))


def numbered_items(items: list[Item]) -> list[Item]:
    """`items` with the ids `in1`, `in2` ... of a request."""
    return [msgspec.structs.replace(item, item_id=f"in{n}") for n, item in enumerate(items, 1)]


# -- starting a turn


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A start. `history`: what came before, for a session that has nothing yet (`with_history`).

    `accepted_only`: answer with the receipt alone; the output goes to those who subscribe.
    """

    start: Start
    history: list[Item] = []
    accepted_only: bool = False


def turn_from_chat(body: Any, session_id: str) -> TurnRequest:
    """What `/api/sessions/{id}/chat` and `/chat/stream` ask for. The session has to exist.

    Raises:
        InvalidRequest: a field is wrong; there is no message (code `missing_message`).
        Unsupported: attachments beside the message.
    """
    fields = need_body(body)
    key, value = first_of(fields, "message", "input")
    parts = parts_of(value, key)
    if is_blank(parts):
        raise InvalidRequest("Missing 'message' field", param="message", code="missing_message")
    if fields.get("attachments"):
        raise Unsupported(
            "'attachments' is not read; send images as parts of 'message'.",
            capability="attachments",
            param="attachments",
        )
    route = {"route": "chat", "session_id": session_id}
    start = start_of(fields, [user_message(parts, fields)], route, instructions="system_message", session_id=session_id)
    return TurnRequest(
        start=msgspec.structs.replace(start, session_must_exist=True),
        accepted_only=opt_bool(fields, "accepted_only") or False,
    )


HistoryPolicy = Literal["keep", "check", "replace"]


def turn_from_runs(body: Any) -> TurnRequest:
    """What `POST /v1/runs` asks for. The session is created when it is new.

    Of a message array, the last one is the input and those before it are history, as is `conversation_history`. `history`
    says what that means for a session that has one of its own: `keep` (default) leaves it aside, `check` refuses a
    difference, `replace` makes a branch of it.

    Raises:
        InvalidRequest: a field is wrong.
        Unsupported: `previous_response_id`: responses are chained on their own route.
    """
    fields = need_body(body)
    if fields.get("previous_response_id") is not None:
        raise Unsupported(
            "'previous_response_id' is not taken here; name the session, or the run with 'continues'.",
            capability="previous_response_id",
            param="previous_response_id",
        )
    said = _messages(fields.get("input"), "input") if isinstance(fields.get("input"), list) else []
    value = fields.get("input")
    last = said[-1].parts if said and said[-1].role == "user" else parts_of(value, "input") if not said else []
    if is_blank(last):
        raise InvalidRequest("Missing 'input' field", param="input", code="missing_input")
    earlier = _messages(fields.get("conversation_history"), "conversation_history") + said[:-1]
    session_id = opt_str(fields, "session_id")
    policy = opt_word(fields, "history", get_args(HistoryPolicy)) or "keep"
    start = start_of(fields, [user_message(last, fields)], {"route": "runs"}, session_id=session_id or None)
    request = TurnRequest(start=start, history=list(earlier), accepted_only=True)
    if policy == "keep":
        return request
    if not session_id:
        raise InvalidRequest("'history' needs a 'session_id'.", param="history")
    start = with_history(request)
    return TurnRequest(
        start=msgspec.structs.replace(start, reuses_history=True, replaces_history=policy == "replace"),
        accepted_only=True,
    )


def with_history(request: TurnRequest) -> Start:
    """The start with its history before its input: for a start without a session, or in one that has no run yet."""
    items = numbered_items([*request.history, *request.start.input])
    return msgspec.structs.replace(request.start, input=items)


_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "developer",
}


def _messages(value: Any, param: str) -> list[Message]:
    """An array of `{role, content}`; strings in it are the user's."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidRequest(f"{param!r} must be an array of message objects", param=param)
    messages = []
    for n, entry in enumerate(value):
        match entry:
            case str():
                role, parts = "user", parts_of(entry, param)
            case {"role": "tool" | "function"} | {"role": str(), "content": None}:
                # The machinery of earlier turns: whose tools these were, nobody can say.
                continue
            case {"role": str(role), "content": str() | list() as content}:
                parts = parts_of(content, f"{param}[{n}].content")
            case {"type": "text" | "input_text" | "image_url" | "input_image"} if param == "input":
                # An array of parts is one message.
                return [Message(item_id="in1", role="user", parts=parts_of(value, param))]
            case _:
                raise InvalidRequest(f"{param}[{n}] must have 'role' and 'content' fields", param=param)
        if role not in _ROLES:
            raise InvalidRequest(f"{param}[{n}].role is {role[:80]!r}; expected {', '.join(_ROLES)}.", param=param)
        messages.append(Message(item_id=f"in{n + 1}", role=_ROLES[role], parts=parts))
    return messages


def start_of(
    fields: Json, items: list[Item], route: Json, *, session_id: str | None = None, instructions: str = "instructions"
) -> Start:
    """The start of a turn with what all routes read alike.

    `route` is what the address says and the body does not; with the body it is the fingerprint. `instructions` is another
    name of that field.
    """
    run_id, continues = opt_str(fields, "run_id"), opt_str(fields, "continues")
    asked = {key: value for key, value in fields.items() if key != "accepted_only"} | route
    instructions, _ = first_of(fields, instructions, "instructions")
    store = opt_bool(fields, "store")
    return Start(
        surface=NAME,
        input=items,
        agent=_agent(fields),
        session_id=None if session_id is None else checked_session_id(session_id),
        continues=None if continues is None else checked_run_id(continues, param="continues"),
        settings=Settings(
            instructions=opt_str(fields, instructions) or None,
            model_options=_options(fields),
            model_metadata=opt_object(fields, "model_metadata"),
            user=opt_str(fields, "author"),
        ),
        metadata=opt_object(fields, "metadata"),
        store=True if store is None else store,
        busy=_busy(fields),
        disconnect=_disconnect(fields),
        recovery=_recovery(fields),
        run_id=None if run_id is None else checked_run_id(run_id),
        body=msgspec.json.encode(asked, order="deterministic"),
    )


def _agent(fields: Json) -> str | None:
    word = opt_str(fields, "model")
    return None if word in ("", ANY_AGENT) else word


def _options(fields: Json) -> Json:
    """`model_options`, with Hermes' `provider` beside them."""
    provider = opt_str(fields, "provider")
    return {**({"provider": provider} if provider else {}), **opt_object(fields, "model_options")}


#: Our words, and LangGraph's where they mean the same.
_BUSY: Final[dict[str, BusyPolicy]] = {
    "reject": "reject",
    "queue": "queue",
    "steer": "steer",
    "stop": "stop",
    "enqueue": "queue",
    "interrupt": "stop",
}
_DISCONNECT: Final[dict[str, DisconnectPolicy]] = {"continue": "continue", "stop": "stop", "cancel": "stop"}


def _busy(fields: Json) -> BusyPolicy | None:
    word = opt_word(fields, "busy", tuple(_BUSY))
    return None if word is None else _BUSY[word]


def _disconnect(fields: Json) -> DisconnectPolicy | None:
    word = opt_word(fields, "disconnect", tuple(_DISCONNECT))
    return None if word is None else _DISCONNECT[word]


def _recovery(fields: Json) -> RecoveryPolicy | None:
    word: RecoveryPolicy | None = opt_word(fields, "recovery", get_args(RecoveryPolicy))
    return word


_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")


def checked_idempotency_key(text: str) -> str:
    """The value of the header `Idempotency-Key`.

    Raises:
        InvalidRequest: it is not 1 to 255 visible ASCII characters.
    """
    if _KEY.fullmatch(text) is None:
        raise InvalidRequest("Idempotency-Key must be 1-255 visible ASCII characters", code="invalid_idempotency_key")
    return text
