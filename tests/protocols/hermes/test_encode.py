"""Run events as Hermes frames in both vocabularies, and a turn as the body of `/chat`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import TextPart
from runstone.core.events import (
    ApprovalDecided,
    Body,
    Event,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemStarted,
    RunCreated,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import Message, ToolCall, user_message
from runstone.core.runs import RunFailure, Usage
from runstone.core.transcript import fold
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame, cursor_from_text
from runstone.protocols.hermes.encode import Encoder, after_frame, body, pending_steer, truncated
from runstone.protocols.hermes.history import rows_of
from runstone.protocols.hermes.types import Vocabulary
from runstone.protocols.hermes.vocabulary import RunsWords
from runstone.protocols.sse import json_line, to_bytes
from tests.protocols.hermes.support import AT, frames_of, header, shown, stream
from tests.protocols.strategies import PLAIN, Shape, numbered, runs

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
VOCABULARIES: list[Vocabulary] = ["session", "runs"]
both = pytest.mark.parametrize("vocabulary", VOCABULARIES)
ENDS = {"run.completed", "run.failed", "run.cancelled", "run.interrupted"}


def names_of(frames: Iterable[Frame]) -> list[str]:
    """The events' names."""
    return [frame.event or json.loads(frame.data)["event"] for frame in frames]


# -- golden files


@both
@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_events_give_exactly_these_frames(file: Path, vocabulary: Vocabulary) -> None:
    """The events of a case give the frames of the case, byte for byte, the end mark included."""
    case = json.loads(file.read_text(encoding="utf-8"))
    frames, is_over = stream(numbered(msgspec.convert(case["bodies"], list[Body])), vocabulary)
    assert [(frame.id, frame.event, frame.data) for frame in frames] == [
        (id, event, json_line(data)) for id, event, data in case[vocabulary]
    ]
    assert is_over == case["is_over"]


@pytest.mark.parametrize("file", CASES, ids=[file.stem for file in CASES])
def test_a_turn_gives_this_body_and_these_rows(file: Path) -> None:
    """The events of a case give the body of `/chat` and the history rows of the case."""
    case = json.loads(file.read_text(encoding="utf-8"))
    events = numbered(msgspec.convert(case["bodies"], list[Body]))
    assert body(header(), events) == case["chat"]
    assert rows_of(fold("run_1", events).rows, "s-1") == case["rows"]


def test_the_cases_have_every_event() -> None:
    """Every event that a stream may have is in a case."""
    seen = {
        event or data["event"]
        for file in CASES
        for vocabulary in VOCABULARIES
        for _, event, data in json.loads(file.read_text(encoding="utf-8"))[vocabulary]
    }
    assert seen == {
        *ENDS,
        *("run.started", "message.started", "assistant.delta", "message.delta", "reasoning.delta"),
        *("tool.started", "tool.progress", "tool.completed", "tool.failed"),
        *("approval.request", "approval.responded", "run.steered"),
        *("input.received", "input.delivered", "input.returned"),
        *("assistant.completed", "message.replaced", "error", "done"),
    }


# -- laws


def after(frames: list[Frame], cursor: str) -> list[Frame]:
    """What a reader with `cursor` gets, by the rule of the design: event `seq` again without its first k + 1 frames."""
    place = cursor_from_text(cursor)
    rest = []
    for frame in frames:
        own = cursor_from_text(frame.id or "")
        k = own.k if own.k is not None else 10**9
        if own.seq > place.seq or (own.seq == place.seq and place.k is not None and k > place.k):
            rest.append(frame)
    return rest


@given(runs(), st.sampled_from(VOCABULARIES), st.data())
def test_resuming_at_any_cursor_gives_the_rest(
    events: list[Event], vocabulary: Vocabulary, data: st.DataObject
) -> None:
    """For every cursor, the frames up to it and the frames after it are all frames, each once and in the same form."""
    frames = frames_of(events, vocabulary)
    ids = [frame.id or "" for frame in frames]
    assert len(set(ids)) == len(ids)
    for n, id in enumerate(ids):
        assert after(frames_of(events, vocabulary), id) == frames[n + 1 :]
    silent = data.draw(st.integers(0, len(events)))
    assert after(frames, str(silent)) == [frame for frame in frames if cursor_from_text(frame.id or "").seq > silent]


@given(runs(), st.sampled_from(VOCABULARIES))
def test_frames_are_counted_without_gaps(events: list[Event], vocabulary: Vocabulary) -> None:
    """`data.seq` is 1, 2, 3 ... on the session stream and 0, 1, 2 ... on the runs stream, the end mark included."""
    frames, _ = stream(events, vocabulary)
    first = 1 if vocabulary == "session" else 0
    assert [json.loads(frame.data)["seq"] for frame in frames] == list(range(first, first + len(frames)))


@given(runs(), st.sampled_from(VOCABULARIES))
def test_the_wire_is_the_frames(events: list[Event], vocabulary: Vocabulary) -> None:
    """`wire` gives the bytes of the frames that `encode` gives, and one line of data each."""
    frames = frames_of(events, vocabulary)
    assert Encoder(header(), vocabulary=vocabulary).wire(events) == [to_bytes(frame) for frame in frames]
    for frame in frames:
        assert len(to_bytes(frame).decode().splitlines()) == 3 + (vocabulary == "session")


@given(runs(Shape(open_end=False)), st.sampled_from(VOCABULARIES))
def test_a_run_has_one_end_and_nothing_follows_it(events: list[Event], vocabulary: Vocabulary) -> None:
    """An ended run has exactly one terminal event, last but for `done`; a failed one has `error` before it."""
    frames, is_over = stream(events, vocabulary)
    names = names_of(frames)
    assert is_over
    assert [name for name in names if name in ENDS] == [name for name in names[-2:] if name in ENDS]
    assert names.count("error") == (vocabulary == "session" and "run.failed" in names)
    assert names[-1] == ("done" if vocabulary == "session" else names[-1])
    assert (frames[-1].id is None) == (vocabulary == "session")


@given(runs(Shape(approvals=False, open_end=False)))
def test_the_session_stream_is_in_hermes_order(events: list[Event]) -> None:
    """Start, message, deltas and tools, `assistant.completed` before the outcome, `done`; a tool starts before it ends."""
    frames, _ = stream(events, "session")
    names = names_of(frames)
    assert names[:2] == ["run.started", "message.started"]
    tail = ["assistant.completed", "error", "run.failed", "done"]
    assert names[-4:] == tail or (names[-3], names[-1]) == (tail[0], tail[3])
    running: set[str] = set()
    started: list[str] = []
    for name, data in zip(names, (json.loads(frame.data) for frame in frames), strict=True):
        if name == "tool.started":
            running.add(data["tool_call_id"])
            started.append(data["tool_call_id"])
        elif name in ("tool.completed", "tool.failed"):
            running.remove(data["tool_call_id"])
        elif name == "tool.progress":
            assert data["tool_call_id"] in running
    assert len(set(started)) == len(started)


@given(runs(PLAIN), st.sampled_from(VOCABULARIES))
def test_the_answer_is_the_last_row_that_says_something(events: list[Event], vocabulary: Vocabulary) -> None:
    """The end's `content` or `output` is the last text of the run in history; parallel texts are all told, each once."""
    frames = frames_of(events, vocabulary)
    rows = rows_of((row for row in fold("run_1", events).rows if not row.is_input), "s-1")
    said = [row["content"] for row in rows if row["role"] == "assistant" and row["content"]]
    # The separator is two line ends, and texts may begin or end with one.
    assert sorted(shown(frames).replace("\n", "")) == sorted("".join(said).replace("\n", ""))
    [answer] = [
        data.get("content", data.get("output", ""))
        for name, data in zip(names_of(frames), (json.loads(frame.data) for frame in frames), strict=True)
        if name == "assistant.completed" or (vocabulary == "runs" and name in ENDS)
    ]
    assert answer == (said[-1] if said else "")


@given(runs(Shape(parallel=False, open_end=False)), st.sampled_from(VOCABULARIES))
def test_what_a_reader_shows_at_the_end_counts(events: list[Event], vocabulary: Vocabulary) -> None:
    """With rewriting and restarts too, deltas and replacements leave the reader with the run's texts as paragraphs."""
    rows = rows_of((row for row in fold("run_1", events).rows if not row.is_input), "s-1")
    texts = [row["content"] for row in rows if row["role"] == "assistant" and row["content"]]
    assert shown(frames_of(events, vocabulary)) == "\n\n".join(texts)


@given(runs(), st.sampled_from(VOCABULARIES))
def test_frame_numbers_are_cursors_too(events: list[Event], vocabulary: Vocabulary) -> None:
    """A reader that counts frames by `data.seq` gets those after its number."""
    everything = frames_of(events, vocabulary)
    newest = json.loads(everything[-1].data)["seq"] if everything else 0
    for seq in {0, newest // 2, newest}:
        encoder = Encoder(header(), vocabulary=vocabulary)
        rest = [frame for event in events for frame in after_frame(encoder, encoder.encode(event), seq)]
        assert rest == [frame for frame in everything if json.loads(frame.data)["seq"] > seq]


# -- single facts


@both
def test_a_gap_in_the_events_is_refused(vocabulary: Vocabulary) -> None:
    """An event that does not follow the one before is our own mistake, for deltas too."""
    encoder = Encoder(header(), vocabulary=vocabulary)
    created, started = numbered([RunCreated(agent="echo", input=[]), RunStarted()])
    encoder.encode(created)
    with pytest.raises(LocalProtocolError):
        encoder.encode(Event(3, 3, AT, 1, RunStarted()))
    encoder.encode(started)
    encoder.encode(Event(3, 3, AT, 1, ItemStarted(item_id="i1", kind="message")))
    encoder.encode(Event(4, 4, AT, 1, TextDelta(item_id="i1", text="a")))
    with pytest.raises(LocalProtocolError):
        encoder.encode(Event(6, 6, AT, 1, TextDelta(item_id="i1", text="b")))


@both
def test_ids_with_odd_letters_are_written_as_they_are(vocabulary: Vocabulary) -> None:
    """A session id with `%`, quotes or letters of several bytes is the same in every frame."""
    odd = 's%d"é%b'
    encoder = Encoder(header(session_id=odd), vocabulary=vocabulary)
    message = Message(item_id="i1", role="assistant", parts=[TextPart(text="ab")])
    bodies: list[Body] = [
        RunCreated(agent="echo", input=[user_message("in1", "?")]),
        RunStarted(),
        ItemStarted(item_id="i1", kind="message"),
        TextDelta(item_id="i1", text="a"),
        TextDelta(item_id="i1", text="b"),
        ItemEnded(item=message),
    ]
    frames = [json.loads(frame.data) for event in numbered(bodies) for frame in encoder.encode(event)]
    assert {frame.get("session_id") for frame in frames} == {odd if vocabulary == "session" else None}
    assert [frame["delta"] for frame in frames if "delta" in frame] == ["a", "b"]


def test_a_stopped_session_stream_ends_when_nothing_is_left_to_say() -> None:
    """A reader that has everything gets `done` alone, with the number that follows."""
    events = numbered([RunCreated(agent="echo", input=[]), RunEnded(outcome="cancelled")])
    frames, _ = stream(events, "session")
    assert after(frames[:-1], "2") == []
    assert json.loads(frames[-1].data) == {"session_id": "s-1", "run_id": "run_1", "seq": 5, "ts": AT + 2}


def test_progress_of_an_unknown_call_is_told_without_a_name() -> None:
    """Progress whose call nobody announced has no tool name, and is told."""
    bodies: list[Body] = [RunCreated(agent="echo", input=[]), RunStarted(), ToolProgress(call_id="c9", data="half")]
    frame = json.loads(frames_of(numbered(bodies), "session")[-1].data)
    assert (frame["tool_name"], frame["tool_call_id"], frame["delta"], frame["data"]) == (None, "c9", "half", "half")


def test_long_previews_are_cut_and_results_are_not() -> None:
    """A preview has 500 characters at most; the result beside it is whole."""
    call = ToolCall(item_id="c", call_id="c1", name="t", arguments=json.dumps({"a": "x" * 900}))
    bodies: list[Body] = [
        RunCreated(agent="echo", input=[]),
        RunStarted(),
        ItemStarted(item_id="c", kind="tool_call", call_id="c1", name="t", executor="client"),
        ItemEnded(item=msgspec.structs.replace(call, executor="client")),
    ]
    data = json.loads(frames_of(numbered(bodies), "runs")[-1].data)
    assert len(data["preview"]) == 500 and data["args"] == {"a": "x" * 900}


@pytest.mark.parametrize(
    ("decision", "scope", "choice"),
    [
        ("approved", None, "once"),
        ("approved", "session", "session"),
        ("approved", "always", "always"),
        ("denied", None, "deny"),
        ("answered", None, "answer"),
        ("expired", None, "expired"),
        ("withdrawn", None, "withdrawn"),
    ],
)
def test_decisions_have_hermes_words(decision: Any, scope: str | None, choice: str) -> None:
    """A decision is told as Hermes' choice, and as our word beside it."""
    decided = ApprovalDecided(approval_id="a", decision=decision, scope=scope)
    [(name, fields)] = RunsWords().approval_decided(decided)
    assert (name, fields["choice"], fields["decision"]) == ("approval.responded", choice, decision)


def test_a_stream_without_its_deltas_says_so() -> None:
    """Of a run whose events were compacted a reader gets `replay.truncated` and the outcome, with the run's last id."""
    run = header(
        status="failed",
        ended_at=AT + 9,
        last_seq=40,
        error=RunFailure(code="x", message="no"),
        usage=Usage(total_tokens=3),
    ).run
    gap, end = truncated(run, output="half", pending_steer="more")
    assert json.loads(gap.data)["event"] == "replay.truncated"
    assert (gap.id, end.id) == (None, "40")
    data = json.loads(end.data)
    assert (data["event"], data["error"], data["error_code"], data["output"]) == ("run.failed", "no", "x", "half")
    assert (data["usage"], data["pending_steer"]) == ({"total_tokens": 3}, "more")


def test_steering_that_came_back_is_found_in_the_events() -> None:
    """`pending_steer` joins the inputs that were returned, in the order in which they came back; None without any."""
    bodies: list[Body] = [
        InputReceived(input_id="a", content=[user_message("a", "one")]),
        InputReceived(input_id="b", content=[user_message("b", "two")]),
        InputSettled(input_id="a", outcome="returned"),
        InputSettled(input_id="b", outcome="returned"),
    ]
    assert pending_steer(numbered(bodies)) == "one\ntwo"
    assert pending_steer(numbered(bodies[:2])) is None
