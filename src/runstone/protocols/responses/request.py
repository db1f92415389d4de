"""A request to create a response -> a start.

Rule: a field of the wrong type is refused, with its path; a field that nobody knows is ignored, as a newer client's. What the
response has to repeat is put into the start's echo, and what a model may heed into its settings too.
Source: OpenAI API reference, "Create a model response"; the second dialect's table of request fields.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from runstone.core.commands import Start
from runstone.core.ids import checked_run_id, checked_session_id
from runstone.core.items import Item
from runstone.core.runs import RecoveryPolicy, Run, Settings, ToolSpec
from runstone.errors import CursorUnknown, InvalidRequest, NotFound, Unsupported
from runstone.protocols.fields import (
    Json,
    need_object,
    need_str,
    opt_bool,
    opt_busy,
    opt_disconnect,
    opt_int,
    opt_list,
    opt_object,
    opt_str,
    wrong_type,
)
from runstone.protocols.responses.body import DEFAULTS, PROTOCOL
from runstone.protocols.responses.ids import LegRef, legs_from_response_id
from runstone.protocols.responses.input import Input, Place, Reference, input_from_wire, named

_NUMBERS: Final = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_COUNTS: Final = ("max_output_tokens", "max_tool_calls", "top_logprobs")
_WORDS: Final = ("service_tier", "safety_identifier", "prompt_cache_key")
_OBJECTS: Final = ("text", "reasoning")
_RECOVERY: Final[dict[str, RecoveryPolicy]] = {"interrupted": "interrupted", "resume": "resume", "retry": "retry"}
_SOURCES: Final = ("input", "previous_response_id", "conversation", "prompt")
#: How the answer travels; the same request with and without them asks for the same run.
_TRANSPORT: Final = frozenset({"stream", "stream_options"})


class ResponsesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: the start, how its answer travels, and what has to be looked up before.

    `previous`: what `previous_response_id` may stand for, in the order to try; the run found there becomes
    `start.continues`. `references`: items that have to be looked up (`with_referenced`). `decided_at`: where the decisions of
    the start stand.
    """

    start: Start
    stream: bool = False
    background: bool = False
    previous_response_id: str | None = None
    previous: list[LegRef] = []
    references: list[Reference] = []
    decided_at: list[Place] = []

    @property
    def is_answer(self) -> bool:
        """Whether a decision is the last thing that it says."""
        return self.decided_at[-1:] == [Place(len(self.start.input), len(self.references))]


def start_from_responses(body: Any) -> ResponsesRequest:
    """What the decoded JSON `body` asks for; headers are the server's to add (`msgspec.structs.replace`).

    Raises:
        InvalidRequest: a field is missing, of the wrong type, or contradicts another; `param` names it.
        NotFound: `previous_response_id` is the id of no response.
        Unsupported: it names a stored prompt.
    """
    fields = need_object(body, "")
    model = need_str(fields, "model")
    store, background = opt_bool(fields, "store") is not False, opt_bool(fields, "background") is True
    if background and not store:
        raise InvalidRequest("'background' needs 'store': nobody could fetch the response.", param="background")
    opt_object(fields, "stream_options")
    session_id, conversation, previous = _place(fields)
    said = _input(fields)
    echo = {**_echo(fields), "model": model, "conversation": conversation, "previous_response_id": previous}
    start = Start(
        surface=PROTOCOL,
        agent=model,
        input=named(said.items),
        decisions=said.decisions,
        session_id=session_id,
        settings=_settings(fields),
        metadata=echo["metadata"],
        store=store,
        background=background,
        busy=opt_busy(fields),
        disconnect=opt_disconnect(fields),
        recovery=_recovery(fields),
        run_id=_run_id(fields),
        echo={PROTOCOL: echo},
        body=_fingerprint(fields),
    )
    return ResponsesRequest(
        start=start,
        stream=opt_bool(fields, "stream") is True,
        background=background,
        previous_response_id=previous,
        previous=_legs(previous),
        references=said.references,
        decided_at=said.decided_at,
    )


def answering(request: ResponsesRequest, run: Run) -> ResponsesRequest:
    """`request` as the answer to what `run` waits for: what stands before its decisions repeats what that run knows."""
    pending = {asked.approval_id for asked in run.approvals}
    given = zip(request.start.decisions, request.decided_at, strict=True)
    decided = [(decision, place) for decision, place in given if decision.approval_id in pending]
    last = max((place for _, place in decided), default=Place(0, 0))
    start = msgspec.structs.replace(
        request.start,
        continues=run.id,
        decisions=[decision for decision, _ in decided],
        input=named(request.start.input[last.items :]),
    )
    references = [
        msgspec.structs.replace(reference, at=reference.at - last.items)
        for reference in request.references[last.references :]
    ]
    return msgspec.structs.replace(request, start=start, references=references, decided_at=[])


def without_decisions(request: ResponsesRequest) -> ResponsesRequest:
    """`request` without decisions: they belong to a conversation that it repeats."""
    start = msgspec.structs.replace(request.start, decisions=[])
    return msgspec.structs.replace(request, start=start, decided_at=[])


def with_referenced(request: ResponsesRequest, found: dict[str, list[Item]]) -> ResponsesRequest:
    """`request` with its references replaced by the items that they name; `found` has them by their id on the wire.

    Raises:
        NotFound: one is not among `found`.
    """
    items = list(request.start.input)
    for reference in reversed(request.references):
        if reference.id not in found:
            raise NotFound("item", reference.id, param="input")
        items[reference.at : reference.at] = found[reference.id]
    return msgspec.structs.replace(
        request, start=msgspec.structs.replace(request.start, input=named(items)), references=[]
    )


# -- where: session or previous response


def _place(fields: Json) -> tuple[str | None, dict[str, str] | None, str | None]:
    """Session id, conversation to echo, previous response."""
    conversation = _conversation(fields)
    session_id = opt_str(fields, "session_id")
    previous = opt_str(fields, "previous_response_id")
    if session_id is not None:
        checked_session_id(session_id)
    if conversation is not None and previous is not None:
        raise InvalidRequest(
            "'conversation' and 'previous_response_id' cannot be used together.", param="previous_response_id"
        )
    if conversation is not None and session_id not in (None, conversation):
        raise InvalidRequest(
            f"'conversation' ({conversation!r}) and 'session_id' ({session_id!r}) name different sessions; "
            "use 'conversation' alone.",
            param="session_id",
        )
    shown = None if conversation is None else {"id": conversation}
    return conversation or session_id, shown, previous


def _conversation(fields: Json) -> str | None:
    value = fields.get("conversation")
    match value:
        case None:
            return None
        case str():
            return checked_session_id(value, param="conversation")
        case {"id": str(id)}:
            return checked_session_id(id, param="conversation.id")
        case _:
            raise wrong_type(value, "conversation", "a string or an object with 'id'")


def _legs(previous: str | None) -> list[LegRef]:
    if previous is None:
        return []
    legs = legs_from_response_id(previous)
    if not legs:
        raise NotFound("response", previous, param="previous_response_id", code="previous_response_not_found")
    return legs


# -- what: input, settings, echo


def _input(fields: Json) -> Input:
    given = [key for key in _SOURCES if fields.get(key) is not None]
    if "prompt" in given:
        raise Unsupported("Stored prompts are not supported; send 'input'.", capability="prompts", param="prompt")
    if not given:
        raise InvalidRequest("'input' is missing.", param="input", code="missing_required_parameter")
    said = input_from_wire(fields.get("input"))
    is_empty = not (said.items or said.decisions or said.references)
    if is_empty and given == ["input"] and "session_id" not in fields:
        raise InvalidRequest("'input' is empty, and there is nothing to go on from.", param="input", code="empty_input")
    return said


def _settings(fields: Json) -> Settings:
    options = opt_object(fields, "model_options") or {}
    heeded = (*_NUMBERS, *_COUNTS, *_WORDS, *_OBJECTS, "truncation", "parallel_tool_calls")
    official = {key: fields[key] for key in heeded if fields.get(key) is not None}
    return Settings(
        instructions=opt_str(fields, "instructions"),
        model_options={**official, **options},
        model_metadata=opt_object(fields, "model_metadata") or {},
        tools=[_tool_spec(tool) for tool in _tools(fields) if tool["type"] == "function"],
        tool_choice=_tool_choice(fields),
        user=opt_str(fields, "user"),
    )


def _echo(fields: Json) -> Json:
    """What the response repeats, defaults where the request said nothing."""
    opt_list(fields, "include")
    echo = dict(DEFAULTS)
    for key in _NUMBERS:
        echo[key] = _number(fields, key, DEFAULTS[key])
    for key in _COUNTS:
        count = opt_int(fields, key)
        echo[key] = DEFAULTS[key] if count is None else count
    for key in ("instructions", *_WORDS):
        word = opt_str(fields, key)
        echo[key] = DEFAULTS[key] if word is None else word
    for key in ("metadata", *_OBJECTS):
        echo[key] = {**DEFAULTS[key], **(opt_object(fields, key) or {})}
    echo["truncation"] = _word(fields, "truncation", ("auto", "disabled")) or DEFAULTS["truncation"]
    echo["parallel_tool_calls"] = opt_bool(fields, "parallel_tool_calls") is not False
    echo["tools"] = _tools(fields)
    echo["tool_choice"] = _tool_choice(fields) or DEFAULTS["tool_choice"]
    user = opt_str(fields, "user")
    return echo if user is None else {**echo, "user": user}


def _number(fields: Json, key: str, default: float) -> float:
    value = fields.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(value, key, "a number")
    return value


def _word(fields: Json, key: str, words: tuple[str, ...]) -> str | None:
    word = opt_str(fields, key)
    if word is not None and word not in words:
        raise InvalidRequest(f"{key!r} is {word[:80]!r}; expected {', '.join(words)}.", param=key, code="invalid_value")
    return word


def _tools(fields: Json) -> list[Json]:
    """The tools as the response repeats them: a function has all of its four fields."""
    tools = []
    for n, value in enumerate(opt_list(fields, "tools") or []):
        at = f"tools[{n}]"
        tool = need_object(value, at)
        if need_str(tool, "type", at=at) == "function":
            need_str(tool, "name", at=at)
            opt_str(tool, "description", at=at)
            opt_object(tool, "parameters", at=at)
            opt_bool(tool, "strict", at=at)
            tool = {"description": None, "parameters": None, "strict": None, **tool}
        tools.append(tool)
    return tools


def _tool_spec(tool: Json) -> ToolSpec:
    return ToolSpec(
        name=tool["name"], description=tool["description"], parameters=tool["parameters"], strict=tool["strict"]
    )


def _tool_choice(fields: Json) -> Any:
    choice = fields.get("tool_choice")
    if isinstance(choice, dict):
        need_str(choice, "type", at="tool_choice")
        return choice
    return _word(fields, "tool_choice", ("none", "auto", "required"))


# -- how


def _recovery(fields: Json) -> RecoveryPolicy | None:
    word = _word(fields, "recovery", tuple(_RECOVERY))
    return None if word is None else _RECOVERY[word]


def _run_id(fields: Json) -> str | None:
    run_id = opt_str(fields, "run_id")
    return None if run_id is None else checked_run_id(run_id)


def _fingerprint(fields: Json) -> bytes:
    asked = {key: value for key, value in fields.items() if key not in _TRANSPORT}
    return msgspec.json.encode(asked, order="sorted")


def starting_after_from_query(text: str | None) -> int:
    """The number of the last frame that a reader has, -1 for none.

    Raises:
        CursorUnknown: it is no whole number from 0.
    """
    if text is None:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise CursorUnknown(text[:80], expected="a sequence number such as 17")
    return int(text)
