"""What the HTTP surface promises, as a table: the source of OpenAPI, of /docs and of docs/reference/http.md."""

from __future__ import annotations

from typing import Final

from runstone.server.contract_hermes import OPERATIONS as HERMES
from runstone.server.operations import fields_of as _fields
from runstone.server.operations import operation as _op

HEADERS: Final = _fields("""
Authorization; c; string; `Bearer <key>`; needed when the server has keys
Idempotency-Key; x; string; an equal start within 24 hours gets the first's run and Idempotency-Replayed; another body is refused
Runstone-Run-Id; x; string; on a start: the run's id, chosen by the client; in every answer about a run: its id
Runstone-Busy; x; string; reject, queue, steer or stop while a run of the session is active
Runstone-Disconnect; x; string; continue or stop when the connection of the start drops
Runstone-Recovery; x; string; interrupted, resume or retry when the server dies during the run
Runstone-Dialect; x; string; how a run is shown: auto, openai, ksadk for responses; openai, steps for chat
Last-Event-ID; x; string; the `id:` of the last event that the client has (Chat)
X-Request-Id; c; string; names the request in logs; taken from the client when it is 1 to 128 of A-Z a-z 0-9 . _ : -
""")

_POLICIES: Final = """
busy; x; string; reject, queue, steer or stop while a run of the session is active
disconnect; x; string; continue or stop when the connection drops
run_id; x; string; the run's id, chosen by the client
model_metadata; x; object; hints about the model, passed to the agent
model_options; x; object; options for the model's provider, passed to the agent
"""

_RESPONSES_BODY: Final = _fields(
    """
model; c; string; an agent's name picks it; another name is an override where the agent takes one
input; c; string|object|array; text, a message, or items: messages, calls, outputs, approval answers
instructions; c; string; appended to the agent's own
metadata; c; object; kept and echoed
conversation; c; string|object; the session, an id or {"id"}; created on first use
previous_response_id; c; string; the response to go on from; not together with conversation
stream; c; boolean; answer with events
background; c; boolean; answer at once; read the response later
store; c; boolean; false: kept only while it runs and is read
tools; c; array; function tools that the client runs
tool_choice; c; string|object; passed to the agent
include; c; array; accepted
stream_options; c; object; accepted
temperature, top_p, presence_penalty, frequency_penalty; c; number; passed to the agent
max_output_tokens, max_tool_calls, top_logprobs; c; integer; passed to the agent
parallel_tool_calls; c; boolean; passed to the agent
truncation, service_tier, safety_identifier, prompt_cache_key; c; string; passed to the agent
text, reasoning; c; object; passed to the agent
user; c; string; passed to the agent
recovery; x; string; interrupted, resume or retry when the server dies
session_id; l; string; the session; use conversation
"""
    + _POLICIES
)

_RESPONSE: Final = _fields("""
id; c; string; the response
object; c; string; response
created_at; c; integer; seconds
completed_at; c; integer|null; seconds, when completed
status; c; string; queued, in_progress, completed, failed, cancelled or incomplete
error; c; object|null; code, message, type, param
incomplete_details; c; object|null; reason
model; c; string; what the request named
output; c; array; items: message, reasoning, function_call, mcp_call, mcp_approval_request
metadata; c; object; as sent
usage; s; object|null; tokens, when somebody counted them
conversation; c; object|null; {"id"} of the session, when one was named
previous_response_id; c; string|null; as sent
store; c; boolean; as sent
background; c; boolean; as sent
output_text; x; string; the texts of the output joined
session_id; x; string; the session
run_id; x; string; the run
next_response_id; x; string; the response in which the run went on after a decision
""")

_RESPONSE_EVENTS: Final = _fields("""
response.created; c; ; the response is there
response.in_progress; c; ; the agent works
response.output_item.added; c; ; an item begins
response.output_item.done; c; ; an item is finished
response.content_part.added; c; ; a part of a message begins
response.content_part.done; c; ; a part is finished
response.output_text.delta; c; ; more text
response.output_text.done; c; ; the text is finished
response.output_text.annotation.added; c; ; an annotation of the text
response.refusal.delta; c; ; more of a refusal
response.refusal.done; c; ; the refusal is finished
response.reasoning_summary_part.added; c; ; reasoning begins (dialect openai)
response.reasoning_summary_part.done; c; ; reasoning is finished (dialect openai)
response.reasoning_summary_text.delta; c; ; more reasoning (dialect openai)
response.reasoning_summary_text.done; c; ; the reasoning is finished (dialect openai)
response.reasoning_text.delta; c; ; more reasoning, with responses.reasoning=text
response.reasoning_text.done; c; ; the reasoning is finished, with responses.reasoning=text
response.function_call_arguments.delta; c; ; more of a call's arguments
response.function_call_arguments.done; c; ; the arguments are finished
response.mcp_call.in_progress; s; ; a server-run tool starts (dialect openai)
response.mcp_call_arguments.delta; s; ; its arguments (dialect openai)
response.mcp_call_arguments.done; s; ; its arguments are finished (dialect openai)
response.mcp_call.completed; s; ; it gave a result (dialect openai)
response.mcp_call.failed; s; ; it failed (dialect openai)
response.reasoning.delta; x; ; more reasoning (dialect ksadk)
response.reasoning.done; x; ; the reasoning is finished (dialect ksadk)
response.ksadk.tool_result; x; ; what a server-run tool gave (dialect ksadk)
response.completed; c; ; the end: it succeeded, or in dialect openai waits for an approval
response.incomplete; c; ; the end: cut, cancelled, or in dialect ksadk waiting or interrupted
response.failed; c; ; the end: it failed or was interrupted
""")

_CHAT_BODY: Final = _fields(
    """
messages; c; array; the turn; with session_id they repeat the session's history, and only the newest are input
model; c; string; an agent's name picks it; another name is an override where the agent takes one
stream; c; boolean; answer with chunks
stream_options; c; object; include_usage
tools; c; array; function tools that the client runs
tool_choice; c; string|object; passed to the agent
n; c; integer; 1
temperature, top_p, presence_penalty, frequency_penalty; c; number; passed to the agent
max_tokens, max_completion_tokens, seed, top_logprobs; c; integer; passed to the agent
stop; c; string|array; passed to the agent
logit_bias, response_format, prediction; c; object; passed to the agent
logprobs, parallel_tool_calls; c; boolean; passed to the agent
reasoning_effort, verbosity, service_tier, safety_identifier, prompt_cache_key; c; string; passed to the agent
top_k; x; integer; passed to the agent
user; c; string; passed to the agent
metadata; s; object; kept with the run
store; s; boolean; keep the run; by default exactly when a session is named
session_id; x; string; the session; created on first use
history; x; string; `replace`: messages that differ from the history begin a branch
dialect; x; string; openai, or steps: server-run tools are shown in the stream
"""
    + _POLICIES
)

_COMPLETION: Final = _fields("""
id; c; string; the completion
object; c; string; chat.completion
created; c; integer; seconds
model; c; string; what the request named
choices; c; array; one choice: message, finish_reason
usage; s; object; tokens, when somebody counted them
run_id; x; string; the run
session_id; x; string; the session
runstone; x; object; status waiting and the approvals, of a run that waits for a decision
""")

_CHUNKS: Final = _fields("""
chat.completion.chunk; c; ; role, then content or tool_calls, then finish_reason; its id: is the cursor
delta.reasoning_content; x; ; reasoning
error; c; ; the run failed, was cancelled or interrupted; [DONE] follows
[DONE]; c; ; the end of every stream
""")

_HISTORY: Final = _fields("""
messages; x; array; Chat messages, oldest first, each with id, run_id, created_at
runs; x; array; the runs of these messages: id, status, times, model, usage, last_event_id
cursor; x; string|null; the value of before for the page before this one
has_more; x; boolean; whether there is one
session; x; object; id, title, status idle, running, error or unknown, metadata
active_run; x; object|null; run_id and event_id to resume from; null when nothing runs
""")

_PAGING: Final = _fields("""
limit; c; integer; items on a page
order; c; string; asc or desc
after; c; string; id of the last item of the page before
""")

_LIST: Final = _fields("""
object; c; string; list
data; c; array; the items
first_id; c; string; id of the first
last_id; c; string; id of the last
has_more; c; boolean; whether a page follows
""")

_CONVERSATION: Final = _fields("""
id; c; string; the conversation; the session's id
object; c; string; conversation
created_at; c; integer; seconds
metadata; c; object; as sent
""")

_FILE: Final = _fields("""
id; c; string; the file
object; c; string; file
bytes; c; integer; its size
created_at; c; integer; seconds
filename; c; string; as sent, without folders
purpose; c; string; as sent
status; c; string; processed
""")

_DELETED: Final = _fields("""
id; c; string; what was deleted
object; c; string; its kind
deleted; c; boolean; true
""")

_ITEM: Final = _fields("""
id; c; string; the item
type; c; string; its kind; the other fields follow from it
""")

_MODEL: Final = _fields("""
id; c; string; the name of an agent, or of a model that an agent lets requests choose
object; c; string; model
created; s; integer; 0, an agent has no such time
owned_by; s; string; runstone
""")

_STATUS: Final = _fields("status; x; string; ok, ready, draining or storage_unavailable")


_STREAM_QUERY: Final = _fields("""
stream; c; boolean; answer with events
starting_after; c; integer; sequence_number of the last event that the client has
include; c; array; accepted
""")
_CHAT_QUERY: Final = _fields("stream; x; boolean; answer with chunks, after Last-Event-ID if it is given")
_HISTORY_QUERY: Final = _fields("""
before; x; string; cursor of the page after the wanted one
limit; x; integer; messages and results on a page, 1 to 200
""")
_FILE_QUERY: Final = [*_PAGING, *_fields("purpose; c; string; only files of this purpose")]
_METADATA: Final = _fields("metadata; c; object; replaces all of it")
_NEW_CONVERSATION: Final = _fields("items; c; array; up to 20 items\nmetadata; c; object; kept")
_NEW_ITEMS: Final = _fields("items; c; array; up to 20 items")
_UPLOAD: Final = _fields("file; c; string; the file\npurpose; c; string; what it is for")

OPERATIONS: Final = [
    _op(
        "POST",
        "/v1/responses",
        "Start a turn, or answer a run that waits",
        body=_RESPONSES_BODY,
        required=["model"],
        answer=_RESPONSE,
        events=_RESPONSE_EVENTS,
    ),
    _op(
        "GET",
        "/v1/responses/{id}",
        "A response as it stands, or its events again",
        query=_STREAM_QUERY,
        answer=_RESPONSE,
        events=_RESPONSE_EVENTS,
    ),
    _op("DELETE", "/v1/responses/{id}", "Delete a response and its run", answer=_DELETED),
    _op("POST", "/v1/responses/{id}/cancel", "Stop the run; also one that is not in the background", answer=_RESPONSE),
    _op("GET", "/v1/responses/{id}/input_items", "What a response was given", query=_PAGING, answer=_LIST),
    _op("POST", "/v1/conversations", "Make a conversation", body=_NEW_CONVERSATION, answer=_CONVERSATION),
    _op("GET", "/v1/conversations/{id}", "A conversation", answer=_CONVERSATION),
    _op(
        "POST",
        "/v1/conversations/{id}",
        "Change a conversation",
        body=_METADATA,
        required=["metadata"],
        answer=_CONVERSATION,
    ),
    _op("DELETE", "/v1/conversations/{id}", "Delete a conversation, its runs and items", answer=_DELETED),
    _op("POST", "/v1/conversations/{id}/items", "Add items", body=_NEW_ITEMS, required=["items"], answer=_LIST),
    _op("GET", "/v1/conversations/{id}/items", "Items of a conversation", query=_PAGING, answer=_LIST),
    _op("GET", "/v1/conversations/{id}/items/{item_id}", "One item", answer=_ITEM),
    _op("DELETE", "/v1/conversations/{id}/items/{item_id}", "Delete one item", answer=_CONVERSATION),
    _op(
        "POST",
        "/v1/chat/completions",
        "Start a turn",
        body=_CHAT_BODY,
        required=["messages"],
        answer=_COMPLETION,
        events=_CHUNKS,
    ),
    _op(
        "GET",
        "/v1/chat/completions/{id}",
        "A completion again, or the rest of its stream; {id} may be the run's",
        label="extension",
        query=_CHAT_QUERY,
        answer=_COMPLETION,
        events=_CHUNKS,
    ),
    _op(
        "GET",
        "/v1/chat/sessions/{session_id}/messages",
        "History of a session as Chat messages and runs",
        label="extension",
        query=_HISTORY_QUERY,
        answer=_HISTORY,
    ),
    _op(
        "POST",
        "/v1/files",
        "Upload a file",
        body=_UPLOAD,
        required=["file", "purpose"],
        form=True,
        answer=_FILE,
    ),
    _op("GET", "/v1/files", "Uploaded files", query=_FILE_QUERY, answer=_LIST),
    _op("GET", "/v1/files/{id}", "One file", answer=_FILE),
    _op("DELETE", "/v1/files/{id}", "Forget a file", answer=_DELETED),
    _op("GET", "/v1/files/{id}/content", "Its bytes"),
    _op("GET", "/v1/models", "Agents, and the models they let requests choose", answer=_LIST[:2]),
    _op("GET", "/v1/models/{model}", "One of them", answer=_MODEL),
    _op("GET", "/healthz", "The process answers", label="extension", answer=_STATUS, is_public=True),
    _op("GET", "/readyz", "Starts are taken: 200, else 503", label="extension", answer=_STATUS, is_public=True),
    _op("GET", "/openapi.json", "This surface as OpenAPI 3.1", label="extension"),
    _op("GET", "/docs", "This surface as a page", label="extension"),
    *HERMES,
]
