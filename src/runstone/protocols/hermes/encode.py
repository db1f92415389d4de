"""Run events as Hermes frames, in either vocabulary; a turn as the body of `/chat`.

Rules: both streams go on over a pause and end with the run. `data.seq` counts the frames of the stream, from 1 on the session
stream and from 0 on the runs stream; the SSE id is our cursor. Deltas can only append: when text that was shown no longer
counts, it is replaced as a whole (`assistant.completed`, `message.replaced`) before anything is appended.
Source: the Hermes agent API server as measured; backend contract, "Hermes"; docs/protocols/hermes.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final, assert_never

import msgspec

from runstone.core.events import (
    DELTAS,
    ApprovalDecided,
    ApprovalRequested,
    ArgumentsDelta,
    AttemptStarted,
    Custom,
    Event,
    InputReceived,
    InputSettled,
    ItemEnded,
    ItemReplaced,
    ItemStarted,
    ReasoningDelta,
    RunContinued,
    RunCreated,
    RunEnded,
    RunPaused,
    RunStarted,
    StepEnded,
    StepStarted,
    TextDelta,
    ToolProgress,
)
from runstone.core.items import FileItem, Item, Message, Reasoning, ToolCall, ToolResult
from runstone.core.runs import Run
from runstone.core.transcript import Transcript
from runstone.errors import LocalProtocolError
from runstone.protocols.base import Frame, Header
from runstone.protocols.hermes.history import last_answer, rows_of, text_to_show, usage_to_wire
from runstone.protocols.hermes.types import MessageRow, Vocabulary
from runstone.protocols.hermes.vocabulary import (
    Ending,
    Fields,
    RunsWords,
    Say,
    SessionWords,
    Words,
    approval_to_wire,
    end_of_run,
    joined_steer,
)
from runstone.protocols.sse import escaped, json_line, to_bytes
from runstone.protocols.told import Told

#: Between the texts of two messages of one answer, as Hermes writes it after a tool.
SEPARATOR: Final = "\n\n"
_encode = msgspec.json.Encoder().encode


class _Prose:
    """Texts that may grow at once, told one after another in the order of their first word.

    Every method gives what may be appended now. `is_stale`: something that was told no longer counts; then `shown` is what
    the reader has to have instead, what was given to append included.
    """

    def __init__(self) -> None:
        #: The item that is being told, None while there is none.
        self.speaker: str | None = None
        self.is_stale = False
        self._told = Told()
        #: Texts that were told, in order: of an ended item all of it, of the speaker what was last known as a whole.
        self._texts: dict[str, str] = {}
        self._held: dict[str, str] = {}
        self._ended: set[str] = set()

    @property
    def shown(self) -> str:
        """All that is told; right while `is_stale`."""
        return SEPARATOR.join(self._texts.values())

    def heard(self, text: str) -> None:
        """`text` of the speaker was told."""
        self._told.add(text)

    def add(self, item_id: str, text: str) -> str:
        """More text of an item."""
        if not text or item_id in self._ended:
            return ""
        if item_id == self.speaker:
            self._told.add(text)
            return text
        self._held[item_id] = self._held.get(item_id, "") + text
        return self._release()

    def replace(self, item_id: str, text: str) -> str:
        """All text of an item so far."""
        if item_id != self.speaker:
            if item_id not in self._ended and (text or item_id in self._held):
                self._held[item_id] = text
            return self._release()
        self._texts[item_id] = text
        rest = self._told.rest_of(text)
        if rest is not None:
            return self.add(item_id, rest)
        self.is_stale = True
        self._told = Told(text)
        if text:
            return ""
        # It says nothing any more; should it go on, it begins again behind what was told.
        del self._texts[item_id]
        self.speaker = None
        return self._release()

    def end(self, item_id: str, text: str) -> str:
        """All text of an item that grows no more."""
        rest = self.replace(item_id, text)
        self._ended.add(item_id)
        if item_id != self.speaker:
            return rest
        self.speaker = None
        return rest + self._release()

    def keep(self, item_ids: Collection[str]) -> None:
        """Only these items still count; the others grow no more."""
        self._ended |= self._texts.keys() | self._held.keys()
        gone = self._texts.keys() - set(item_ids)
        self._texts = {item_id: text for item_id, text in self._texts.items() if item_id not in gone}
        self._held = {}
        self.speaker = None
        self.is_stale = self.is_stale or bool(gone)

    def _release(self) -> str:
        """What waited for the speaker to end."""
        out = ""
        while self.speaker is None and self._held:
            item_id = next(iter(self._held))
            text = self._held.pop(item_id)
            if not text:
                continue
            out += SEPARATOR + text if self._texts else text
            self._texts[item_id] = text
            if item_id not in self._ended:
                self.speaker, self._told = item_id, Told(text)
        return out


class Encoder:
    """One run's frames, from its start to its end.

    `frame_seq` is the `data.seq` of the newest frame; None before the first.
    """

    def __init__(self, header: Header, *, vocabulary: Vocabulary = "session") -> None:
        run = header.run
        self.is_over = False
        self.frame_seq: int | None = None
        self._run = run
        self._is_session = vocabulary == "session"
        self._next = 1 if self._is_session else 0
        self._at = run.created_at
        message_id = message_id_of(run)
        self._words: Words = SessionWords(message_id) if self._is_session else RunsWords()
        self._names = {"session_id": run.session_id, "run_id": run.id} if self._is_session else {"run_id": run.id}
        # Everything in a text frame but text, number and time is the same for the whole stream.
        if self._is_session:
            text = b'{"message_id":%b,"delta":\0t,"session_id":%b,"run_id":%b,"seq":\0n,"ts":\0a}'
            text %= (json_line(message_id), json_line(run.session_id), json_line(run.id))
        else:
            text = b'{"event":"message.delta","run_id":%b,"timestamp":\0a,"delta":\0t,"seq":\0n}' % json_line(run.id)
        self._text = text.replace(b"%", b"%%").replace(b"\0t", b"%b").replace(b"\0n", b"%d").replace(b"\0a", b"%b")
        named = b"event: assistant.delta\n" if self._is_session else b""
        self._text_line = b"id: %d\n" + named + b"data: " + self._text + b"\n\n"
        self._transcript = Transcript(run.id)
        self._prose = _Prose()
        self._thought = _Prose()
        self._calls: dict[str, ToolCall] = {}
        self._announced: set[str] = set()
        self._began: dict[str, float] = {}
        self._inputs: dict[str, InputReceived] = {}
        self._returned: list[InputReceived] = []

    def encode(self, event: Event) -> list[Frame]:
        body = event.body
        # The one event that comes by the thousands goes no further than this.
        if (
            type(body) is TextDelta
            and body.item_id == self._prose.speaker
            and event.seq == self._transcript.last_seq + 1
        ):
            text = body.text
            self._transcript.last_seq = event.seq
            if not text:
                return []
            self._prose.heard(text)
            return [self._text_frame(text, event, str(event.seq))]
        if event.seq != self._transcript.last_seq + 1:
            raise LocalProtocolError(f"event {event.seq} does not follow event {self._transcript.last_seq}")
        self._at = event.at
        says = self._says(event)
        last = len(says) - 1
        return [
            self._frame(say, event, str(event.seq) if n == last else f"{event.seq}.{n}") for n, say in enumerate(says)
        ]

    def wire(self, events: list[Event]) -> list[bytes]:
        parts: list[bytes] = []
        prose, transcript, is_session, line = self._prose, self._transcript, self._is_session, self._text_line
        for event in events:
            body = event.body
            if type(body) is TextDelta and body.item_id == prose.speaker and event.seq == transcript.last_seq + 1:
                transcript.last_seq = event.seq
                if not body.text:
                    continue
                prose.heard(body.text)
                seq = self.frame_seq = self._next
                self._next = seq + 1
                text, at = escaped(_encode(body.text)), _encode(event.at)
                parts.append(line % ((event.seq, text, seq, at) if is_session else (event.seq, at, text, seq)))
                continue
            parts += [to_bytes(frame) for frame in self.encode(event)]
            if self.is_over:
                break
        return parts

    def end(self) -> list[Frame]:
        if not self._is_session:
            return []
        data = json_line({**self._names, "seq": self._next, "ts": self._at})
        return [Frame(data, "done")]

    # -- frames

    def _frame(self, say: Say, event: Event, id: str) -> Frame:
        name, fields = say
        if name == "assistant.delta":
            return self._text_frame(fields["delta"], event, id)
        seq = self.frame_seq = self._next
        self._next += 1
        if self._is_session:
            return Frame(json_line({**fields, **self._names, "seq": seq, "ts": event.at}), name, id)
        common = {"event": name, **self._names, "timestamp": event.at}
        return Frame(json_line({**common, **fields, "seq": seq}), None, id)

    def _text_frame(self, text: str, event: Event, id: str) -> Frame:
        seq = self.frame_seq = self._next
        self._next = seq + 1
        words, at = escaped(_encode(text)), _encode(event.at)
        if self._is_session:
            return Frame(self._text % (words, seq, at), "assistant.delta", id)
        return Frame(self._text % (at, words, seq), None, id)

    # -- events

    def _says(self, event: Event) -> list[Say]:
        body = event.body
        if isinstance(body, DELTAS):
            # Deltas are not folded: nothing said here needs an item before it has ended.
            self._transcript.last_seq = event.seq
        else:
            self._transcript.feed(event)
        match body:
            case TextDelta(item_id=item_id, text=text):
                return self._say_text(self._prose.add(item_id, text))
            case ReasoningDelta(item_id=item_id, text=text):
                return self._say_thought(self._thought.add(item_id, text))
            case ItemStarted():
                return self._item_started(body, event.at)
            case ItemReplaced(item=item):
                return self._item_replaced(item)
            case ItemEnded(item=item):
                return self._item_ended(item, event.at)
            case ToolProgress(call_id=call_id):
                return self._words.tool_progress(body, self._calls.get(call_id))
            case RunCreated(input=items):
                return self._words.created(items)
            case AttemptStarted():
                return self._restarted(body)
            case RunEnded():
                return self._ended(body)
            case ApprovalRequested(call_id=call_id):
                return [*self._announce(call_id or ""), *self._words.approval_requested(body)]
            case ApprovalDecided():
                return self._words.approval_decided(body)
            case InputReceived(input_id=input_id):
                self._inputs[input_id] = body
                return self._words.input_received(body)
            case InputSettled():
                return self._settled(body)
            case RunStarted() | RunPaused() | RunContinued() | StepStarted() | StepEnded() | ArgumentsDelta():
                return []
            case Custom():
                return []
            case _:
                assert_never(body)

    def _say_text(self, text: str) -> list[Say]:
        if self._prose.is_stale:
            self._prose.is_stale = False
            return self._words.replaced(self._prose.shown, self._transcript.state.attempt)
        return [("assistant.delta", {"delta": text})] if text else []

    def _say_thought(self, text: str) -> list[Say]:
        # Thinking that was shown stays shown: there is no word to take it back, and the rows have it right.
        self._thought.is_stale = False
        return self._words.reasoning(text) if text else []

    def _item_started(self, body: ItemStarted, at: float) -> list[Say]:
        if body.kind != "tool_result" or body.call_id is None:
            return []
        self._began[body.call_id] = at
        return self._announce(body.call_id)

    def _announce(self, call_id: str) -> list[Say]:
        """`tool.started`, once, when the call is known."""
        call = self._calls.get(call_id)
        if call is None or call_id in self._announced:
            return []
        self._announced.add(call_id)
        return self._words.tool_started(call)

    def _item_replaced(self, item: Item) -> list[Say]:
        match item:
            case Message():
                return self._say_text(self._prose.replace(item.item_id, text_to_show(item.parts)))
            case Reasoning():
                return self._say_thought(self._thought.replace(item.item_id, item.text))
            case _:
                return []

    def _item_ended(self, item: Item, at: float) -> list[Say]:
        match item:
            case FileItem():
                return self._say_text(self._prose.end(item.item_id, text_to_show(item.parts)))
            case Message():
                text = text_to_show(item.parts) if item.role == "assistant" else ""
                return self._say_text(self._prose.end(item.item_id, text))
            case Reasoning():
                return self._say_thought(self._thought.end(item.item_id, item.text))
            case ToolCall():
                self._calls[item.call_id] = item
                # Nobody tells us when a client starts to run its tool.
                return self._announce(item.call_id) if item.executor == "client" else []
            case ToolResult():
                began = self._began.pop(item.call_id, None)
                seconds = None if began is None else round(at - began, 3)
                return self._words.tool_ended(item, self._calls.get(item.call_id), seconds)
            case _:
                return []

    def _settled(self, body: InputSettled) -> list[Say]:
        received = self._inputs.pop(body.input_id, None)
        if received is not None and body.outcome == "returned":
            self._returned.append(received)
        return self._words.input_settled(body, received)

    def _restarted(self, body: AttemptStarted) -> list[Say]:
        kept = {row.item.item_id for row in self._transcript.rows}
        self._prose.keep(kept)
        self._thought.keep(kept)
        self._thought.is_stale = False
        self._calls = {row.item.call_id: row.item for row in self._transcript.rows if isinstance(row.item, ToolCall)}
        self._began = {}
        return self._say_text("")

    def _ended(self, body: RunEnded) -> list[Say]:
        self.is_over = True
        rows = answer_rows(self._transcript, self._run.session_id)
        ending = Ending(body=body, rows=rows, answer=last_answer(rows), pending_steer=joined_steer(self._returned))
        return self._words.ended(ending)


def message_id_of(run: Run) -> str:
    """The id of the one message of a turn on the session stream; rows of history have ids of their own."""
    return f"msg_{run.id.removeprefix('run_')}"


def answer_rows(transcript: Transcript, session_id: str) -> list[MessageRow]:
    """The rows that the run itself made, as history shows them."""
    return rows_of((row for row in transcript.rows if not row.is_input), session_id)


def after_frame(encoder: Encoder, frames: list[Frame], seq: int) -> list[Frame]:
    """Of `frames`, the newest that `encoder` made, those whose `data.seq` is above `seq`."""
    if not frames or encoder.frame_seq is None:
        return []
    return frames[max(len(frames) - max(encoder.frame_seq - seq, 0), 0) :]


def truncated(run: Run, *, output: str | None = None, pending_steer: str | None = None) -> list[Frame]:
    """The runs stream of an ended run whose deltas are no longer kept: that they are gone, and how it ended.

    These frames have no `data.seq`: how many frames there were is not known any more.
    """
    gap: Fields = {"event": "replay.truncated", "run_id": run.id, "timestamp": run.ended_at}
    gap |= {"oldest_retained_seq": None, "last_event_id": str(run.last_seq)}
    ended = RunEnded(outcome=run.outcome or "interrupted", reason=run.reason, error=run.error, usage=run.usage)
    fields: Fields = {"event": f"run.{ended.outcome}", "run_id": run.id, "timestamp": run.ended_at}
    fields |= end_of_run(ended, output, pending_steer)
    return [Frame(json_line(gap)), Frame(json_line(fields), None, str(run.last_seq))]


# -- the body


class Answer:
    """A turn as the body of `/chat`: feed it the run's events from the first on, until `is_over`."""

    def __init__(self, header: Header) -> None:
        self.is_over = False
        #: The outcome, None while there is none; one that is not completed is answered with `errors.failure_of`.
        self.ended: RunEnded | None = None
        self._run = header.run
        self._transcript = Transcript(header.run.id)
        self._inputs: dict[str, InputReceived] = {}
        self._returned: list[InputReceived] = []

    def feed(self, event: Event) -> None:
        """Take the next event."""
        body = event.body
        self.is_over = False
        self._transcript.feed(event)
        match body:
            case InputReceived():
                self._inputs[body.input_id] = body
            case InputSettled(outcome="returned") if body.input_id in self._inputs:
                self._returned.append(self._inputs[body.input_id])
            case RunPaused():
                self.is_over = True
            case RunEnded():
                self.ended = body
                self.is_over = True
            case _:
                pass

    def body(self) -> dict[str, Any]:
        """The completion of a run that completed, or of one that waits: then `status` says so and `approvals` what for."""
        rows = answer_rows(self._transcript, self._run.session_id)
        completion: dict[str, Any] = {
            "object": "hermes.session.chat.completion",
            "session_id": self._run.session_id,
            "run_id": self._run.id,
            "message": {"role": "assistant", "content": last_answer(rows)},
        }
        if self.ended is None:
            asked = self._transcript.state.approvals.values()
            return {
                **completion,
                "status": "waiting_for_approval",
                "approvals": [approval_to_wire(one) for one in asked],
            }
        completion["status"] = self.ended.outcome
        if usage := usage_to_wire(self.ended.usage):
            completion["usage"] = usage
        if (steer := joined_steer(self._returned)) is not None:
            completion["pending_steer"] = steer
        return completion


def body(header: Header, events: Iterable[Event]) -> dict[str, Any]:
    """The completion of a run whose `events`, from the first on, reach its end or its pause."""
    answer = Answer(header)
    for event in events:
        answer.feed(event)
        if answer.is_over:
            break
    return answer.body()


def pending_steer(events: Iterable[Event]) -> str | None:
    """The steering of a run that was never delivered, as `GET /v1/runs/{id}` tells it; None when there is none."""
    inputs: dict[str, InputReceived] = {}
    returned: list[InputReceived] = []
    for event in events:
        match event.body:
            case InputReceived():
                inputs[event.body.input_id] = event.body
            case InputSettled(outcome="returned", input_id=input_id) if input_id in inputs:
                returned.append(inputs[input_id])
            case _:
                pass
    return joined_steer(returned)
