"""Run events as Chat chunks, and a run as a completion."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from runstone.core.content import TextPart
from runstone.core.events import (
    AttemptStarted,
    Body,
    Event,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    TextDelta,
)
from runstone.core.items import Message, user_message
from runstone.core.lifecycle import RunState
from runstone.core.runs import Leg, Run
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame, Header, cursor_from_text
from runstone.protocols.chat.encode import Answer, Encoder, body
from runstone.protocols.sse import json_line
from tests.protocols.strategies import PLAIN, Shape, numbered, runs

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
EXACT = Shape(rewrites=False, attempts=False)


def header(*, first_seq: int = 1, index: int = 0, echo: dict[str, Any] | None = None) -> Header:
    """A leg of a run that Chat began."""
    run = Run(id="run_1", owner="local", session_id="s-1", agent="echo", turn="t1", created_at=1_760_000_000.7)
    leg = Leg(
        first_seq=first_seq, created_at=1_760_000_000.7, echo={"chat": {"model": "my-agent"} if echo is None else echo}
    )
    return Header(run=run, leg=leg, leg_index=index)


def frames_of(events: Iterable[Event], **options: Any) -> list[Frame]:
    """All frames of the first leg with an id."""
    encoder = Encoder(header(), **options)
    frames: list[Frame] = []
    for event in events:
        if encoder.is_over:
            break
        frames += encoder.encode(event)
    return frames


def after(events: Iterable[Event], cursor: str, **options: Any) -> list[Frame]:
    """What a reader with `cursor` gets, by the rule of the design: event `seq` again without its first k + 1 frames."""
    place = cursor_from_text(cursor)
    frames = []
    for frame in frames_of(events, **options):
        own = cursor_from_text(frame.id or "")
        last_k = own.k if own.k is not None else 10**9
        if own.seq > place.seq or (own.seq == place.seq and place.k is not None and last_k > place.k):
            frames.append(frame)
    return frames


def chunks_of(frames: Iterable[Frame]) -> list[dict[str, Any]]:
    """The frames' data."""
    return [json.loads(frame.data) for frame in frames]


def joined(chunks: Iterable[dict[str, Any]], key: str) -> str:
    """The texts of all deltas."""
    return "".join(c["choices"][0]["delta"].get(key) or "" for c in chunks if c.get("choices"))


def calls_of(chunks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool calls put together from their deltas, as clients do."""
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for delta in chunk["choices"][0]["delta"].get("tool_calls", []) if chunk.get("choices") else []:
            if "id" in delta:
                calls[delta["index"]] = {"id": delta["id"], "type": "function", "function": {**delta["function"]}}
            else:
                calls[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return [calls[index] for index in sorted(calls)]


# -- golden files


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_events_give_exactly_these_frames(file: Path) -> None:
    """The events of a case give the frames of the case, byte for byte, and the body beside them."""
    case = json.loads(file.read_text(encoding="utf-8"))
    events = numbered(msgspec.convert(case["bodies"], list[Body]))
    leg = header(first_seq=case.get("first_seq", 1), echo=case.get("echo"))
    encoder = Encoder(leg, **case.get("options", {}))
    frames = [frame for event in events if not encoder.is_over for frame in encoder.encode(event)]
    assert [(frame.id, frame.event, frame.data) for frame in frames] == [
        (id, None, json_line(data)) for id, data in case["frames"]
    ]
    assert encoder.is_over == case["is_over"]
    if "body" in case:
        assert body(leg, events) == case["body"]


def test_a_file_holds_every_end() -> None:
    """The cases have every outcome, a pause and a restart."""
    ends = {
        json.loads(file.read_text(encoding="utf-8"))["frames"][-1][1].get("error", {}).get("code") for file in CASES
    }
    assert {None, "agent_error", "cancelled", "interrupted", "run_restarted"} <= ends


# -- laws


@given(runs(), st.sampled_from(["openai", "steps"]), st.booleans(), st.data())
def test_resuming_at_any_cursor_gives_the_rest(
    events: list[Event], dialect: str, include_usage: bool, data: st.DataObject
) -> None:
    """For every cursor, the frames up to it and the frames after it are all frames, each once."""
    options = {"dialect": dialect, "include_usage": include_usage}
    frames = frames_of(events, **options)
    ids = [frame.id or "" for frame in frames]
    assert len(set(ids)) == len(ids)
    for n, id in enumerate(ids):
        assert after(events, id, **options) == frames[n + 1 :]
    silent = data.draw(st.integers(0, len(events)))
    rest = [frame for frame in frames if cursor_from_text(frame.id or "").seq > silent]
    assert after(events, str(silent), **options) == rest


@given(runs(), st.sampled_from(["openai", "steps"]))
def test_every_frame_is_one_line_and_a_legal_chunk(events: list[Event], dialect: str) -> None:
    """Every frame's data is one line of JSON for any reader, and a strict chunk of the official client or one error."""
    frames = frames_of(events, dialect=dialect)
    for frame in frames:
        assert len(frame.data.decode().splitlines()) == 1
        assert frame.event is None
        chunk = json.loads(frame.data)
        if "error" in chunk:
            assert set(chunk["error"]) >= {"message", "type", "param", "code"}
        else:
            ChatCompletionChunk.model_validate(chunk, strict=True)
    good = [chunk for chunk in chunks_of(frames) if "error" not in chunk]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in good}) == 1
    assert good[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}


@given(runs(Shape(open_end=False, approvals=False)), st.booleans())
def test_a_stream_has_exactly_one_end(events: list[Event], include_usage: bool) -> None:
    """A whole stream has one finish reason, on its last chunk with a choice, or one error at its end, never both."""
    chunks = chunks_of(frames_of(events, include_usage=include_usage))
    ends = [n for n, c in enumerate(chunks) if "error" in c or (c["choices"] and c["choices"][0]["finish_reason"])]
    assert len(ends) == 1
    assert all(chunk.get("choices") == [] and chunk["usage"] for chunk in chunks[ends[0] + 1 :])
    completed = isinstance(events[-1].body, RunEnded) and events[-1].body.outcome == "completed"
    if not any(isinstance(event.body, AttemptStarted) for event in events):
        assert ("error" not in chunks[ends[0]]) is completed


@given(runs(PLAIN))
def test_the_stream_joined_is_the_body(events: list[Event]) -> None:
    """Deltas joined equal the body's content, reasoning and tool calls, and the end is the same."""
    chunks = chunks_of(frames_of(events))
    answer = Answer(header())
    for event in events:
        if not answer.is_over:
            answer.feed(event)
    completion: Any = answer.body()
    message = completion["choices"][0]["message"]
    assert joined(chunks, "content") == (message["content"] or "")
    assert joined(chunks, "reasoning_content") == message.get("reasoning_content", "")
    assert calls_of(chunks) == message.get("tool_calls", [])
    if answer.ended is None or answer.ended.outcome == "completed":
        assert chunks[-1]["choices"][0]["finish_reason"] == completion["choices"][0]["finish_reason"]
        assert chunks[-1].get("runstone") == completion.get("runstone")
        ChatCompletion.model_validate(completion, strict=True)


@given(runs(Shape(parallel=False, attempts=False)))
def test_no_word_follows_one_that_no_longer_counts(events: list[Event]) -> None:
    """What was streamed of a message is, whenever more is streamed, the beginning of that message as it stands."""
    encoder, state = Encoder(header()), RunState()
    told: dict[str, str] = {}
    for event in events:
        if encoder.is_over:
            break
        content = joined(chunks_of(encoder.encode(event)), "content")
        state.advance(event.body)
        match event.body:
            case TextDelta(item_id=item_id):
                text = state.open_items[item_id].text
            case ItemEnded(item=Message(item_id=item_id) as item) | ItemReplaced(item=Message(item_id=item_id) as item):
                text = item.text
            case _:
                assert content == ""
                continue
        if content:
            if told and item_id not in told:
                assert content.startswith("\n\n")
                content = content[2:]
            told[item_id] = told.get(item_id, "") + content
            assert text.startswith(told[item_id])


# -- single behaviours


def opened(*more: Body) -> list[Event]:
    """A run with one open message, and `more`."""
    bodies: list[Body] = [RunCreated(agent="echo", input=[user_message("in1", "hi")]), RunStarted()]
    return numbered([*bodies, ItemStarted(item_id="i1", kind="message"), *more])


def test_the_end_mark_has_no_id() -> None:
    """A stream, also an empty resumed one, ends with [DONE], which has no id and no event name."""
    assert Encoder(header()).end() == [Frame(b"[DONE]", None, None)]


def test_an_event_out_of_order_is_refused() -> None:
    """An event that was there before, and one after the end, is a bug on this side."""
    encoder = Encoder(header())
    events = opened(ItemEnded(item=Message(item_id="i1", role="assistant", parts=[])), RunEnded(outcome="completed"))
    for event in events:
        encoder.encode(event)
    with pytest.raises(LocalProtocolError):
        encoder.encode(events[-1])
    with pytest.raises(LocalProtocolError):
        encoder.encode(msgspec.structs.replace(events[-1], seq=9))


def test_an_unwise_model_name_is_echoed_whole() -> None:
    """A model named by control characters or quotes comes back as it was sent."""
    for name in ('"', "\x00", "a\u2028b", '","x":"'):
        encoder = Encoder(header(echo={"model": name}))
        frames = [frame for event in opened(TextDelta(item_id="i1", text="a")) for frame in encoder.encode(event)]
        assert {chunk["model"] for chunk in chunks_of(frames)} == {name}


def test_a_leg_of_another_protocol_is_named_by_its_agent() -> None:
    """A run that another surface began is read with the agent's name as its model."""
    run = header().run
    leg = Header(run=run, leg=Leg(first_seq=1, created_at=1.0, echo={"responses": {}}))
    assert chunks_of(Encoder(leg).encode(opened()[0]))[0]["model"] == "echo"


def test_usage_nobody_counted_is_left_out() -> None:
    """With include_usage and no counts there is no usage chunk, and no invented zeros."""
    text = Message(item_id="i1", role="assistant", parts=[TextPart(text="a")])
    chunks = chunks_of(frames_of(opened(ItemEnded(item=text), RunEnded(outcome="completed")), include_usage=True))
    assert [chunk["usage"] for chunk in chunks] == [None, None, None]
    assert "usage" not in body(header(), opened(ItemEnded(item=text), RunEnded(outcome="completed")))


def test_a_body_of_a_pause_names_its_approvals() -> None:
    """A paused run's body says that it waits and for what."""
    events = numbered(msgspec.convert(json.loads((CASES[0].parent / "waiting.json").read_text())["bodies"], list[Body]))
    pause = next(n for n, event in enumerate(events) if isinstance(event.body, RunPaused))
    answer = Answer(header())
    for event in events[: pause + 1]:
        answer.feed(event)
    assert answer.is_over
    assert answer.body()["runstone"]["approvals"][0]["approval_id"] == "appr_1"
