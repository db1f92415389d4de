"""The part of the contract that is Hermes' sessions and runs API. docs/protocols/hermes.md says what becomes of each value."""

from __future__ import annotations

from typing import Final

from runstone.server.operations import fields_of, operation

_POLICIES: Final = """
busy; x; string; reject, queue, steer or stop while a run of the session is active
disconnect; x; string; continue or stop when the connection drops
recovery; x; string; interrupted, resume or retry when the server dies
run_id; x; string; the run's id, chosen by the client
continues; x; string; the run that this turn follows; another than the newest begins a branch
metadata; x; object; kept with the run
model_metadata; x; object; hints about the model, passed to the agent
store; x; boolean; false: kept only while it runs and is read
"""
_TURN: Final = fields_of(
    """
message, input; c; string|array; text, or parts: text and images
system_message, instructions; c; string; for this turn, after the session's system_prompt
model; s; string; an agent's name picks it; another name is an override where the agent takes one
model_options; c; object; options for the model's provider, passed to the agent
provider, author; c; string; passed to the agent
accepted_only; x; boolean; answer with the receipt; the output goes to those who subscribe
"""
    + _POLICIES
)
_START: Final = fields_of(
    """
input; c; string|array; text, or messages whose last one is the user's
session_id; c; string; the session, created on first use; without it the run's id
conversation_history; c; array; what came before, for a session that has no history
history; x; string; keep, check or replace: what earlier messages mean for a session that has a history
instructions; c; string; appended to the agent's own
model; s; string; an agent's name picks it; another name is an override where the agent takes one
model_options; c; object; options for the model's provider, passed to the agent
provider, author; c; string; passed to the agent
"""
    + _POLICIES
)
_SESSION_BODY: Final = fields_of("""
id, session_id; c; string; the session's id, chosen by the client
title; c; string; unique; without it the first message makes one
model; c; string; the agent or model of its turns
system_prompt; c; string; instructions of all its turns
source; c; string; where it comes from
metadata; x; object; kept
""")
_PATCH_BODY: Final = fields_of("""
title; c; string|null; unique; null takes it away
metadata; x; object; replaces all of it
end_reason; c; string; kept with the time
pinned, archived, unread, hidden; c; boolean; kept; hidden ones are not listed
""")
_FORK_BODY: Final = fields_of("""
id, session_id; c; string; the new session's id
title; c; string; unique; without it the source's with a number
message_id; x; integer; the newest message that is copied; without it all are
""")
_SESSION: Final = fields_of("""
object; c; string; hermes.session
session; s; object; id, title, times, counts where they are known, status, metadata, active_run_id
""")
_LIST: Final = fields_of("""
object; c; string; list
data; c; array; the entries
has_more; c; boolean; whether more follow
""")
_SESSIONS_QUERY: Final = fields_of("""
limit; c; integer; 50, at most 200
offset; c; integer; how many to leave out
search; x; string; words in the title
title; c; string; exactly this title
source; c; string; only from there
include_hidden; c; string; 1: hidden ones too, with title
""")
_MESSAGES_QUERY: Final = fields_of("""
limit; c; integer; at most 500
offset; c; integer; how many to leave out
order; c; string; latest or oldest
before; x; string; the cursor of a page: what is older
after; x; string; the newer of a page: what follows it
""")
_MESSAGES: Final = fields_of("""
object; c; string; list
session_id; c; string; the session
data; c; array; rows, oldest first, each with its run_id
pagination; c; object; limit, offset, order, returned
runs; x; array; the runs of these rows, with their outcomes
session; x; object; id, title, status idle, running, error or unknown, metadata
active_run; x; object|null; run_id and event_id to read on from; null when nothing runs; absent on a page before the newest
cursor; x; string|null; the value of before for older rows
newer; x; string|null; the value of after for newer rows
has_more; x; boolean; whether there are older rows
""")
_ANSWER: Final = fields_of("""
object; c; string; hermes.session.chat.completion
session_id; c; string; the session
message; c; object; role and content
usage; s; object; tokens, when somebody counted them
run_id; x; string; the run
status; x; string; completed, or waiting_for_approval with the approvals
approvals; x; array; what has to be decided
pending_steer; x; string; steering that was never delivered
""")
_SESSION_EVENTS: Final = fields_of("""
run.started; c; ; the run is there, with the user's message
message.started; c; ; the answer begins
assistant.delta; c; ; more text
reasoning.delta; c; ; more reasoning
tool.started; s; ; a tool starts, or waits for leave
tool.progress; s; ; it says something
tool.completed; s; ; its result
tool.failed; s; ; why it failed
approval.request; c; ; a decision is needed
approval.responded; x; ; somebody decided
input.received; x; ; steering came
input.delivered; x; ; the agent took it
input.returned; x; ; it never did
assistant.completed; c; ; the whole text; with partial it replaces what was shown and more comes
error; c; ; the run failed; run.failed follows
run.completed; c; ; the end
run.failed; c; ; the end
run.cancelled; c; ; the end
run.interrupted; s; ; the end
done; c; ; the stream is over
""")
_RUN_EVENTS: Final = fields_of("""
message.delta; c; ; more text
reasoning.delta; s; ; more reasoning
message.replaced; x; ; all text shown so far is this
tool.started; s; ; a tool starts, or waits for leave
tool.progress; s; ; it says something
tool.completed; s; ; its result, or with error why it failed
approval.request; c; ; a decision is needed
approval.responded; c; ; somebody decided
run.steered; c; ; steering came
input.delivered; x; ; the agent took it
input.returned; x; ; it never did
replay.truncated; c; ; the events are no longer kept; the outcome follows
run.completed; c; ; the end
run.failed; c; ; the end
run.cancelled; c; ; the end
run.interrupted; c; ; the end
""")
_EVENTS_QUERY: Final = fields_of("""
last_seq; c; integer; the data.seq of the last frame that the client has
last_event_id; x; string; the same as the header Last-Event-ID
format; x; string; runs, hermes (the session's words) or native (as the log has it)
""")
_STREAM_QUERY: Final = fields_of("""
run_id; x; string; the run; without it the session's newest
last_event_id; x; string; the same as the header Last-Event-ID
""")
_SUBSCRIPTION_QUERY: Final = fields_of("""
format; x; string; native (as the log has it), hermes or chat
after; x; string; a position; 0 is the beginning, without it what happens from now on; Last-Event-ID wins
""")
_RUN: Final = fields_of("""
object; c; string; hermes.run
run_id; c; string; the run
status; c; string; queued, running, waiting_for_approval, stopping or the outcome
session_id; c; string; the session
model; c; string|null; as asked for
created_at, updated_at; c; number; seconds
last_event; c; string; the newest event that matters
output; c; string; the last text
usage; s; object; tokens, when somebody counted them
error; c; string; why it failed
completed, partial, interrupted; c; boolean; about the end
turn_exit_reason; c; string; why it ended
pending_steer; c; string; steering that was never delivered
approval; s; object; the first request that is pending
approvals; x; array; all requests, with their decisions
agent; x; string; who answers
attempt; x; integer; how often the work was begun
last_event_id; x; string; a cursor of its streams
error_code; x; string; the failure as a word
turn; x; string; shared by the runs that answer the same place
continues; x; string; the run before
""")
_RECEIPT: Final = fields_of("""
run_id; c; string; the run
status; c; string; started, or what an attached run is now
replayed; c; boolean; whether an equal request began it before
session_id; x; string; the session
""")
_RUNS_QUERY: Final = fields_of("""
session_id; x; string; only of this session
status; x; string; only with one of these, by commas
limit; x; integer; 50, at most 200
before; x; string; the cursor of a page
""")
_APPROVAL_BODY: Final = fields_of("""
choice, decision; c; string; once, session, always, deny, or one of the request's own choices
request_id, approval_id; c; string; which one; needed when several are pending
all, resolve_all; c; boolean; all that are pending
arguments; x; string|object; run with these
value; x; string|number|boolean|object|array|null; the answer to a question
reason; x; string; kept with the decision
""")
_APPROVAL: Final = fields_of("""
object; c; string; hermes.run.approval_response
run_id; c; string; the run
choice; c; string; what was decided
resolved; c; integer; how many
status; x; string; of the run
""")
_REGENERATE_BODY: Final = fields_of(
    """
input, message; x; string|array; another input of the turn
accepted_only; x; boolean; false: answer with the stream
"""
    + _POLICIES
)
_OUTPUTS_BODY: Final = fields_of(
    "tool_outputs; x; array; tool_call_id, output and error, one for each call" + _POLICIES
)
_CAPABILITIES: Final = fields_of("""
object; c; string; hermes.api_server.capabilities
platform; c; string; hermes-agent
model; c; string; the default agent
auth; c; object; type bearer, required
features; s; object; what works here
endpoints; s; object; method and path of each
reasons; x; object; why the rest does not
agents; x; object; each agent's capabilities (native, emulated or none with a reason), models, and words of each policy
formats; x; array; of a session's stream
""")
_HEALTH: Final = fields_of(
    "status; c; string; ok\nplatform; c; string; hermes-agent\nversion; c; string; of this server"
)

_SESSION_PATH: Final = "/api/sessions/{session_id}"
_RUN_PATH: Final = "/v1/runs/{run_id}"
OPERATIONS: Final = [
    operation("POST", "/api/sessions", "Make a session; 201", body=_SESSION_BODY, answer=_SESSION),
    operation("GET", "/api/sessions", "Sessions, newest activity first", query=_SESSIONS_QUERY, answer=_LIST),
    operation("GET", _SESSION_PATH, "A session", answer=_SESSION),
    operation("PATCH", _SESSION_PATH, "Change a session", body=_PATCH_BODY, answer=_SESSION),
    operation(
        "DELETE",
        _SESSION_PATH,
        "Delete a session and its runs; 409 while one is active",
        query=fields_of("stop; x; boolean; stop an active run first"),
        answer=fields_of("object; c; string; hermes.session.deleted\nid; c; string; what was deleted"),
    ),
    operation("POST", f"{_SESSION_PATH}/fork", "Copy a session; 201", body=_FORK_BODY, answer=_SESSION),
    operation("GET", f"{_SESSION_PATH}/messages", "A page of history", query=_MESSAGES_QUERY, answer=_MESSAGES),
    operation("POST", f"{_SESSION_PATH}/chat", "A turn", body=_TURN, required=["message"], answer=_ANSWER),
    operation(
        "POST",
        f"{_SESSION_PATH}/chat/stream",
        "A turn as a stream; with Last-Event-ID the rest of the stream of the run that it names",
        body=_TURN,
        required=["message"],
        events=_SESSION_EVENTS,
    ),
    operation(
        "GET",
        f"{_SESSION_PATH}/chat/stream",
        "A turn's stream again, after Last-Event-ID if it is given",
        label="extension",
        query=_STREAM_QUERY,
        events=_SESSION_EVENTS,
    ),
    operation(
        "GET",
        f"{_SESSION_PATH}/events",
        "Everything that happens in a session, as SSE or as a WebSocket",
        label="extension",
        query=_SUBSCRIPTION_QUERY,
    ),
    operation("POST", "/v1/runs", "Start a turn; 202", body=_START, required=["input"], answer=_RECEIPT),
    operation("GET", "/v1/runs", "Runs, newest first", label="extension", query=_RUNS_QUERY, answer=_LIST),
    operation("GET", _RUN_PATH, "A run as it is now", answer=_RUN),
    operation(
        "GET",
        f"{_RUN_PATH}/events",
        "A run as a stream, after Last-Event-ID or last_seq if one is given",
        query=_EVENTS_QUERY,
        events=_RUN_EVENTS,
    ),
    operation(
        "POST",
        f"{_RUN_PATH}/stop",
        "Ask a run to end; one that has is answered with itself",
        body=fields_of("reason; x; string; kept as turn_exit_reason"),
        answer=fields_of("run_id; c; string; the run\nstatus; c; string; stopping"),
    ),
    operation(
        "POST",
        f"{_RUN_PATH}/steer",
        "New input for a run that goes on",
        body=fields_of("input, message, text; c; string|array; what is said"),
        answer=fields_of(
            "object; c; string; hermes.run.steer\nrun_id; c; string; the run\naccepted; c; boolean; true\n"
            "input_id; x; string; by which streams say what became of it"
        ),
    ),
    operation("POST", f"{_RUN_PATH}/approval", "Decide what a run asks", body=_APPROVAL_BODY, answer=_APPROVAL),
    operation(
        "POST",
        f"{_RUN_PATH}/regenerate",
        "Answer the run's turn once more; 202",
        label="extension",
        body=_REGENERATE_BODY,
        answer=_RECEIPT,
        events=_SESSION_EVENTS,
    ),
    operation(
        "GET",
        f"{_RUN_PATH}/alternatives",
        "The runs that answer the same turn, oldest first",
        label="extension",
        answer=_LIST[:2],
    ),
    operation(
        "POST",
        f"{_RUN_PATH}/tool_outputs",
        "What the client's tools gave; 202",
        label="extension",
        body=_OUTPUTS_BODY,
        required=["tool_outputs"],
        answer=_RECEIPT,
    ),
    operation("GET", "/v1/capabilities", "What works here, and why the rest does not", answer=_CAPABILITIES),
    operation("GET", "/health", "The process answers", answer=_HEALTH, is_public=True),
    operation("GET", "/v1/health", "The process answers", answer=_HEALTH, is_public=True),
]
