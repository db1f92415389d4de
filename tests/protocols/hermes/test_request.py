"""Bodies and queries of Hermes as values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runstone.core.content import ImagePart, TextPart
from runstone.core.items import Item, Message, ToolResult
from runstone.core.runs import PendingApproval, Session, Settings
from runstone.errors import AlreadyDecided, CursorUnknown, InvalidRequest, RequestError, Unsupported
from runstone.protocols.base import Cursor
from runstone.protocols.hermes.commands import (
    RunsQuery,
    approval_from_body,
    decisions_of,
    regenerate_from_body,
    runs_query,
    steer_from_body,
    stop_reason,
    tool_outputs_from_body,
)
from runstone.protocols.hermes.request import (
    checked_idempotency_key,
    turn_from_chat,
    turn_from_runs,
    with_history,
)
from runstone.protocols.hermes.sessions import (
    FrameCount,
    MessagesQuery,
    SessionsQuery,
    fork_from_body,
    forked_title,
    is_hidden,
    matches,
    messages_query,
    patch_from_body,
    patched,
    place_from_request,
    session_from_body,
    sessions_query,
    shown_metadata,
    source_of,
    title_taken,
    with_metadata,
    with_session_defaults,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["message", "input", "text", "session_id", "model", "conversation_history", "history", "choice", "title", "id"]


def session(**fields: Any) -> Session:
    """A session."""
    common = {"id": "s-1", "owner": "local", "agent": "echo", "created_at": 1.0, "updated_at": 2.0}
    return Session(**{**common, **fields})


def texts(items: list[Item]) -> list[tuple[str, str, str]]:
    """Id, role and text of each message."""
    return [(item.item_id, item.role, item.text) for item in items if isinstance(item, Message)]


# -- turns


@pytest.mark.parametrize(
    "body",
    [
        {"message": "hi"},
        {"input": "hi"},
        {"message": [{"type": "text", "text": "hi"}]},
        {"message": [{"type": "input_text", "text": "hi"}]},
        {"message": None, "input": ["hi"]},
    ],
)
def test_a_message_is_text_or_parts_under_either_name(body: dict[str, Any]) -> None:
    """`message` and `input` take text and parts, and the session has to exist."""
    start = turn_from_chat(body, "s-1").start
    assert texts(start.input) == [("in1", "user", "hi")]
    assert (start.session_id, start.session_must_exist, start.surface) == ("s-1", True, "hermes")


def test_every_field_of_a_turn_is_read() -> None:
    """Instructions, model, options, policies, ids and metadata reach the start; the receipt switch stays outside."""
    request = turn_from_chat(
        {
            "message": "hi",
            "system_message": "be short",
            "model": "small",
            "provider": "p",
            "model_options": {"temperature": 0},
            "author": "ann",
            "busy": "enqueue",
            "disconnect": "cancel",
            "recovery": "retry",
            "run_id": "r-1",
            "continues": "r-0",
            "metadata": {"k": "v"},
            "store": False,
            "accepted_only": True,
        },
        "s-1",
    )
    start = request.start
    assert request.accepted_only
    assert start.settings == Settings(
        instructions="be short", model_options={"provider": "p", "temperature": 0}, user="ann"
    )
    assert (start.agent, start.busy, start.disconnect, start.recovery) == ("small", "queue", "stop", "retry")
    assert (start.run_id, start.continues, start.metadata, start.store) == ("r-1", "r-0", {"k": "v"}, False)
    assert isinstance(start.input[0], Message) and start.input[0].author == "ann"


def test_the_fingerprint_tells_routes_and_sessions_apart() -> None:
    """Equal bodies are equal requests on one route and session only; how the answer is read does not count."""
    one = turn_from_chat({"message": "hi"}, "s-1").start.body
    assert one == turn_from_chat({"message": "hi", "accepted_only": True}, "s-1").start.body
    others = [
        turn_from_chat({"message": "hi"}, "s-2").start.body,
        turn_from_runs({"input": "hi"}).start.body,
        turn_from_runs({"input": "hi", "session_id": "s-1"}).start.body,
        regenerate_from_body({"input": "hi"}, "r-1").start.body,
        regenerate_from_body({"input": "hi"}, "r-2").start.body,
    ]
    assert len({one, *others}) == 6


@pytest.mark.parametrize("model", [None, "", "hermes-agent"])
def test_hermes_own_name_means_the_default_agent(model: str | None) -> None:
    """No model, an empty one, and `hermes-agent` ask for no agent in particular."""
    assert turn_from_chat({"message": "hi", "model": model}, "s-1").start.agent is None


def test_images_come_by_address_or_in_the_request() -> None:
    """Remote images stay references; the bytes of a data URL are taken out of it."""
    parts = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg%3E"}},
    ]
    [message] = turn_from_chat({"message": parts}, "s-1").start.input
    assert isinstance(message, Message)
    assert message.parts == [
        TextPart(text="what?"),
        ImagePart(url="https://example.com/a.png"),
        ImagePart(media_type="image/png", content=b"hi"),
        ImagePart(media_type="image/svg+xml", content=b"<svg>"),
    ]


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "message", "missing_message"),
        ({"message": " "}, "message", "missing_message"),
        ({"message": 5}, "message", "missing_message"),
        ({"message": [{"type": "file", "file": {}}]}, "message", "missing_message"),
        ({"message": ["a", {"type": "file", "file": {}}]}, "message", "unsupported_content_type"),
        ({"message": [{"type": "text"}]}, "message", "invalid_content_part"),
        (
            {"input": [{"type": "image_url", "image_url": {"url": "data:application/pdf;base64,aGk="}}]},
            "input",
            "unsupported_content_type",
        ),
        ({"input": [{"type": "image_url", "image_url": "file:///etc"}]}, "input", "unsupported_content_type"),
        (
            {"message": [{"type": "image_url", "image_url": "data:image/png;base64,%%"}]},
            "message",
            "unsupported_content_type",
        ),
        ({"message": "a", "busy": "maybe"}, "busy", "invalid_request"),
        ({"message": "a", "disconnect": 1}, "disconnect", "invalid_request"),
        ({"message": "a", "recovery": "often"}, "recovery", "invalid_request"),
        ({"message": "a", "run_id": "a b"}, "run_id", "invalid_run_id"),
        ({"message": "a", "model": 5}, "model", "invalid_request"),
        ({"message": "a", "model_options": []}, "model_options", "invalid_request"),
        ({"message": "a", "store": "false"}, "store", "invalid_request"),
        ({"message": "a", "accepted_only": 1}, "accepted_only", "invalid_request"),
        ([1], None, "invalid_request"),
    ],
)
def test_a_wrong_turn_names_the_field(body: Any, param: str | None, code: str) -> None:
    """What is wrong in a turn is refused with its field and Hermes' code."""
    with pytest.raises(InvalidRequest) as e:
        turn_from_chat(body, "s-1")
    assert (e.value.param, e.value.code) == (param, code)


def test_attachments_are_refused_not_ignored() -> None:
    """A list of attachments is refused, an empty one is nothing."""
    turn_from_chat({"message": "a", "attachments": []}, "s-1")
    with pytest.raises(Unsupported) as e:
        turn_from_chat({"message": "a", "attachments": [{"name": "x"}]}, "s-1")
    assert e.value.param == "attachments"


# -- runs


def test_a_run_is_started_with_text() -> None:
    """`input` and `session_id` start a run whose session may be new; the answer is always the receipt."""
    request = turn_from_runs({"input": "hi", "session_id": "new", "instructions": "short"})
    assert texts(request.start.input) == [("in1", "user", "hi")]
    assert (request.start.session_id, request.start.session_must_exist, request.accepted_only) == ("new", False, True)
    assert request.start.settings.instructions == "short"
    assert turn_from_runs({"input": "hi", "session_id": ""}).start.session_id is None


def test_history_of_a_run_comes_before_its_input_when_asked_for() -> None:
    """`conversation_history` and the messages before the last are history, which `with_history` puts before the input."""
    request = turn_from_runs(
        {
            "input": [
                {"role": "user", "content": "b"},
                {"role": "assistant", "content": "B"},
                {"role": "user", "content": "c"},
            ],
            "conversation_history": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": None, "tool_calls": []},
                {"role": "tool", "content": "x", "tool_call_id": "t"},
                {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
            ],
        }
    )
    assert texts(request.start.input) == [("in1", "user", "c")]
    assert texts(with_history(request).input) == [
        ("in1", "user", "a"),
        ("in2", "assistant", "A"),
        ("in3", "user", "b"),
        ("in4", "assistant", "B"),
        ("in5", "user", "c"),
    ]


def test_an_array_of_parts_is_one_message() -> None:
    """`input` may be the parts of the one message."""
    request = turn_from_runs(
        {"input": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": "https://x/y"}]}
    )
    [message] = request.start.input
    assert isinstance(message, Message) and message.parts == [TextPart(text="a"), ImagePart(url="https://x/y")]


@pytest.mark.parametrize(("word", "replaces"), [("check", False), ("replace", True)])
def test_history_may_be_meant(word: str, replaces: bool) -> None:
    """`history: check` compares the history given with the session's, `replace` branches where it differs."""
    body = {
        "input": "b",
        "session_id": "s",
        "history": word,
        "conversation_history": [{"role": "user", "content": "a"}],
    }
    request = turn_from_runs(body)
    assert (request.start.reuses_history, request.start.replaces_history) == (True, replaces)
    assert len(request.start.input) == 2 and request.history == []


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": 5}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "assistant", "content": "a"}]}, "input"),
        ({"input": [{"role": "user"}]}, "input"),
        ({"input": [{"role": "wizard", "content": "a"}]}, "input"),
        ({"input": "a", "conversation_history": "x"}, "conversation_history"),
        ({"input": "a", "conversation_history": [{"role": "user"}]}, "conversation_history"),
        ({"input": "a", "session_id": "../etc"}, "session_id"),
        ({"input": "a", "history": "check"}, "history"),
        ({"input": "a", "history": "forget"}, "history"),
    ],
)
def test_a_wrong_run_names_the_field(body: Any, param: str) -> None:
    """What is wrong in `POST /v1/runs` is refused with its field."""
    with pytest.raises(InvalidRequest) as e:
        turn_from_runs(body)
    assert e.value.param == param


def test_a_response_cannot_be_continued_here() -> None:
    """`previous_response_id` is refused, with what to do instead."""
    with pytest.raises(Unsupported, match="continues"):
        turn_from_runs({"input": "a", "previous_response_id": "resp_1"})


@pytest.mark.parametrize(("text", "ok"), [("k-1", True), ("x" * 255, True), ("", False), ("a b", False), ("é", False)])
def test_idempotency_keys_are_visible_ascii(text: str, ok: bool) -> None:
    """A key is 1 to 255 visible ASCII characters."""
    if ok:
        assert checked_idempotency_key(text) == text
        return
    with pytest.raises(InvalidRequest) as e:
        checked_idempotency_key(text)
    assert e.value.code == "invalid_idempotency_key"


# -- commands


@pytest.mark.parametrize("key", ["input", "message", "text"])
def test_steering_comes_under_three_names(key: str) -> None:
    """Steering is text or parts under any of Hermes' three names."""
    assert texts(steer_from_body({key: "more"}).content) == [("in1", "user", "more")]


@pytest.mark.parametrize("body", [{}, {"input": "  "}, {"text": 5}])
def test_empty_steering_is_refused(body: Any) -> None:
    """Steering that says nothing has Hermes' code."""
    with pytest.raises(InvalidRequest) as e:
        steer_from_body(body)
    assert e.value.code == "invalid_steer_input"


def test_stop_and_regenerate_need_no_body() -> None:
    """Both take an empty body; stop may have a reason, regenerate another input."""
    assert (stop_reason(None), stop_reason({}), stop_reason({"reason": "enough"})) == (None, None, "enough")
    assert regenerate_from_body(None, "r").start.input == []
    edited = regenerate_from_body({"input": "again", "accepted_only": False}, "r")
    assert texts(edited.start.input) == [("in1", "user", "again")] and not edited.accepted_only
    with pytest.raises(InvalidRequest):
        regenerate_from_body({"input": " "}, "r")


ONE = PendingApproval(approval_id="a1", kind="confirm", call_id="c1")
TWO = PendingApproval(approval_id="a2", kind="input", choices=["red", "once"])


@pytest.mark.parametrize(
    ("choice", "decision", "scope"),
    [
        ("once", "approved", None),
        ("session", "approved", "session"),
        ("always", "approved", "always"),
        ("deny", "denied", None),
        ("APPROVE", "approved", None),
        ("allow", "approved", None),
        ("approved", "approved", None),
        ("denied", "denied", None),
        ("answer", "answered", None),
    ],
)
def test_choices_are_decisions(choice: str, decision: str, scope: str | None) -> None:
    """Hermes' choices, its aliases and our words are decisions, under either name of the field."""
    for key in ("choice", "decision"):
        [answer] = decisions_of(approval_from_body({key: choice}), [ONE], by="ann")
        assert (answer.approval_id, answer.decision, answer.scope, answer.by) == ("a1", decision, scope, "ann")


def test_an_answer_carries_what_it_says() -> None:
    """Arguments become text; value and reason are kept; a value alone is an answer; own choices are answers."""
    reply = approval_from_body({"choice": "once", "request_id": "a1", "arguments": {"x": 1}, "reason": "ok"})
    [answer] = decisions_of(reply, [ONE, TWO])
    assert (answer.arguments, answer.reason) == ('{"x":1}', "ok")
    [answer] = decisions_of(approval_from_body({"value": {"n": 1}, "approval_id": "a2"}), [ONE, TWO])
    assert (answer.approval_id, answer.decision, answer.value) == ("a2", "answered", {"n": 1})
    for word in ("red", "once"):
        [answer] = decisions_of(approval_from_body({"choice": word}), [TWO])
        assert (answer.decision, answer.value) == ("answered", word)


def test_it_is_never_guessed_which_approval_is_meant() -> None:
    """With an id that one, with `all` every one, without either the only one; several or none are refused."""
    reply = approval_from_body({"choice": "deny", "approval_id": ""})
    with pytest.raises(InvalidRequest) as e:
        decisions_of(reply, [ONE, TWO])
    assert e.value.code == "approval_ambiguous" and "'a2'" in e.value.message
    with pytest.raises(AlreadyDecided) as none:
        decisions_of(reply, [])
    assert none.value.code == "approval_not_pending"
    both = decisions_of(approval_from_body({"choice": "deny", "all": True}), [ONE, TWO])
    assert [answer.approval_id for answer in both] == ["a1", "a2"]
    [gone] = decisions_of(approval_from_body({"choice": "deny", "request_id": "a9"}), [ONE])
    assert gone.approval_id == "a9"


@pytest.mark.parametrize("body", [{}, {"choice": 5}, {"choice": "perhaps"}])
def test_a_wrong_choice_names_the_words(body: Any) -> None:
    """A missing or unknown choice has Hermes' code and lists what was expected."""
    with pytest.raises(InvalidRequest) as e:
        decisions_of(approval_from_body(body), [ONE])
    assert e.value.code == "invalid_approval_choice"


# -- sessions


def test_a_session_may_be_created_with_nothing() -> None:
    """An empty body creates a session; id, title and Hermes' own fields are kept."""
    assert session_from_body(None).id is None
    new = session_from_body({"session_id": "mine", "title": " T ", "model": "m", "system_prompt": "p", "source": "bot"})
    assert (new.id, new.title) == ("mine", "T")
    assert new.metadata == {"hermes_source": "bot", "hermes_model": "m", "hermes_system_prompt": "p"}
    assert fork_from_body(None) == fork_from_body({})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"id": "../etc"}, "invalid_session_id"),
        ({"id": "a\nb"}, "invalid_session_id"),
        ({"id": "x" * 300}, "invalid_session_id"),
        ({"id": 5}, "invalid_session_id"),
        ({"title": ""}, "invalid_title"),
        ({"title": 5}, "invalid_title"),
        ({"title": "a\nb"}, "invalid_title"),
        ({"system_prompt": 5}, "invalid_system_prompt"),
    ],
)
def test_a_wrong_session_has_hermes_code(body: Any, code: str) -> None:
    """Ids, titles and prompts that are wrong have Hermes' codes."""
    with pytest.raises(InvalidRequest) as e:
        session_from_body(body)
    assert e.value.code == code


def test_a_patch_changes_what_it_names() -> None:
    """Title, flags, hidden and the end's reason change; the rest stays."""
    before = session(title="old", metadata={"k": "v"})
    assert patched(before, patch_from_body({}), now=9.0) == before
    after = patched(before, patch_from_body({"title": None, "pinned": True, "end_reason": "user_exit"}), now=9.0)
    own = {"hermes_pinned": "true", "hermes_end_reason": "user_exit", "hermes_ended_at": "9.0"}
    assert (after.title, after.hidden, after.metadata) == (None, False, {"k": "v", **own})
    assert is_hidden(patched(before, patch_from_body({"hidden": True}), now=9.0))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"colour": "x"}, "unsupported_session_field"),
        ({"pinned": "yes"}, "invalid_session_field"),
        ({"title": " "}, "invalid_title"),
    ],
)
def test_a_wrong_patch_has_hermes_code(body: Any, code: str) -> None:
    """Unknown fields and wrong types are refused."""
    with pytest.raises(InvalidRequest) as e:
        patch_from_body(body)
    assert e.value.code == code


def test_forks_have_numbered_titles() -> None:
    """A fork is `<title> #2`, or the next number that is free; a source without a title gives none."""
    assert forked_title("Weather", {"Weather"}) == "Weather #2"
    assert forked_title("Weather #2", {"Weather", "Weather #2"}) == "Weather #3"
    assert forked_title(None, set()) is None
    assert title_taken("Weather", "s-1").code == "invalid_title"


def test_a_session_model_and_prompt_hold_for_its_turns() -> None:
    """A turn without a model takes the session's, and its instructions come after the session's prompt."""
    own = session(metadata={"hermes_model": "small", "hermes_system_prompt": "Be kind."})
    plain = turn_from_chat({"message": "hi"}, "s-1").start
    start = with_session_defaults(plain, own)
    assert (start.agent, start.settings.instructions) == ("small", "Be kind.")
    asked = turn_from_chat({"message": "hi", "model": "big", "instructions": "Be short."}, "s-1").start
    start = with_session_defaults(asked, own)
    assert (start.agent, start.settings.instructions) == ("big", "Be kind.\n\nBe short.")
    assert with_session_defaults(plain, session()) == plain
    assert (source_of(own), source_of(session(metadata={"hermes_source": "bot"}))) == ("api_server", "bot")


# -- queries


def test_a_list_query_is_lenient_as_hermes_is() -> None:
    """Wrong numbers become the defaults, the limit is 200 at most, hidden sessions come only with a title."""
    assert sessions_query({}) == SessionsQuery(limit=50, offset=0)
    assert sessions_query({"limit": "-5", "offset": "x"}) == SessionsQuery(limit=50, offset=0)
    assert sessions_query({"limit": "500", "offset": "3"}) == SessionsQuery(limit=200, offset=3)
    assert sessions_query({"limit": "0"}).limit == 0
    assert not sessions_query({"include_hidden": "1"}).include_hidden
    named = sessions_query({"title": "Bot Chat", "include_hidden": "1", "source": "bot"})
    assert (named.title, named.include_hidden, named.source) == ("Bot Chat", True, "bot")


def test_a_messages_query_has_hermes_defaults() -> None:
    """Nothing means the newest 500, a limit alone the oldest, and the limit is 500 at most."""
    assert messages_query({}) == MessagesQuery(limit=500, order="latest")
    assert messages_query({"limit": "2"}) == MessagesQuery(limit=2, order="oldest")
    assert messages_query({"limit": "9999", "order": "latest"}) == MessagesQuery(limit=500, order="latest")
    assert messages_query({"limit": "2", "before": "7.0"}) == MessagesQuery(limit=2, order="latest", before="7.0")
    assert messages_query({"limit": "0"}).limit == 0
    assert messages_query({"after": "7.2"}) == MessagesQuery(order="oldest", start=(7, 2))


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "-1"},
        {"limit": "x"},
        {"offset": "1.5"},
        {"order": "bad"},
        {"before": "7.0", "order": "oldest"},
        {"before": "7.0", "offset": "1"},
        {"after": "7.0", "before": "9.0"},
        {"after": "7.0", "offset": "1"},
        {"after": "7.0", "order": "latest"},
        {"after": "7"},
    ],
)
def test_a_wrong_messages_query_is_refused(query: dict[str, str]) -> None:
    """Wrong numbers, an unknown order and a cursor beside them have the code `invalid_pagination`."""
    with pytest.raises(InvalidRequest) as e:
        messages_query(query)
    assert e.value.code == "invalid_pagination"


def test_a_stream_goes_on_after_an_id_or_a_frame_number() -> None:
    """The header is our cursor, `last_seq` counts frames, nothing means the beginning, garbage is an error."""
    assert place_from_request(None, {}) == Cursor(0)
    assert place_from_request("17.0", {"last_seq": "3"}) == Cursor(17, 0)
    assert place_from_request(None, {"last_event_id": "4"}) == Cursor(4)
    assert place_from_request(None, {"last_seq": "3"}) == FrameCount(3)
    with pytest.raises(CursorUnknown):
        place_from_request("e3", {})
    with pytest.raises(InvalidRequest):
        place_from_request(None, {"last_seq": "-1"})


def test_a_fork_may_end_at_a_message() -> None:
    """`message_id` is the id of a row; what cannot be one is refused."""
    assert fork_from_body({"message_id": 7_000_000}).until == 7_000_000
    for wrong in ("7", -1, True, 1.5):
        with pytest.raises(InvalidRequest):
            fork_from_body({"message_id": wrong})


def test_metadata_is_the_clients_but_for_hermes_own() -> None:
    """A client sees and replaces its own keys; Hermes' fields are neither shown nor lost nor settable."""
    kept = session(metadata={"a": 1, "hermes_source": "bot"})
    assert shown_metadata(kept) == {"a": 1}
    assert with_metadata(kept, {"b": 2}) == {"b": 2, "hermes_source": "bot"}
    after = patched(kept, patch_from_body({"metadata": {"c": 3}, "unread": True}), now=1.0)
    assert after.metadata == {"c": 3, "hermes_source": "bot", "hermes_unread": "true"}
    for body in (session_from_body, patch_from_body):
        with pytest.raises(InvalidRequest):
            body({"metadata": {"hermes_source": "me"}})


def test_what_a_list_of_sessions_has() -> None:
    """Title and source are matched exactly; hidden sessions come only when asked for with their title."""
    shown, hidden = session(title="A"), session(title="A", metadata={"hermes_hidden": "true", "hermes_source": "bot"})
    assert matches(shown, sessions_query({})) and not matches(hidden, sessions_query({}))
    assert matches(hidden, sessions_query({"title": "A", "include_hidden": "1"}))
    assert not matches(shown, sessions_query({"title": "B"}))
    assert not matches(shown, sessions_query({"source": "bot"}))
    assert sessions_query({"search": "a b"}).search == "a b"


def test_runs_are_asked_for_by_session_status_and_place() -> None:
    """A query of runs in Hermes' words; what is no word, number or id is refused."""
    found = runs_query({"status": "waiting_for_approval,failed", "limit": "3", "session_id": "s", "before": "r1"})
    assert (found.statuses, found.limit, found.session_id, found.before) == (["waiting", "failed"], 3, "s", "r1")
    assert runs_query({}) == RunsQuery()
    wrong = (
        {"status": "stopping"},
        {"status": ""},
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "x"},
        {"before": "a b"},
    )
    for query in (*wrong, {"session_id": "a/b"}):
        with pytest.raises(InvalidRequest):
            runs_query(query)


def test_tool_outputs_are_results_of_the_clients_calls() -> None:
    """Outputs become results in order, values as JSON text, errors marked; malformed ones are refused."""
    body = {
        "tool_outputs": [
            {"tool_call_id": "c1", "output": {"a": 1}},
            {"tool_call_id": "c2", "output": "x", "error": True},
        ]
    }
    start = tool_outputs_from_body(body, "r1")
    assert start.continues == "r1"
    results = [item for item in start.input if isinstance(item, ToolResult)]
    assert [(item.item_id, item.call_id, item.text, item.is_error) for item in results] == [
        ("in1", "c1", '{"a":1}', False),
        ("in2", "c2", "x", True),
    ]
    wrong: dict[str, Any]
    for wrong in ({}, {"tool_outputs": []}, {"tool_outputs": ["x"]}, {"tool_outputs": [{"output": "x"}]}):
        with pytest.raises(InvalidRequest):
            tool_outputs_from_body(wrong, "r1")


# -- everything


@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=4) | JSON)
def test_any_json_is_read_or_refused(body: Any) -> None:
    """Whatever the JSON, a reader gives a value or one of our errors, and the value can be stored."""
    readers = (
        lambda: turn_from_chat(body, "s-1").start.input,
        lambda: turn_from_runs(body).start.input,
        lambda: steer_from_body(body).content,
        lambda: approval_from_body(body),
        lambda: regenerate_from_body(body, "r").start.input,
        lambda: tool_outputs_from_body(body, "r").input,
        lambda: fork_from_body(body),
        lambda: session_from_body(body),
        lambda: patch_from_body(body),
    )
    for read in readers:
        try:
            msgspec.json.encode(read())
        except RequestError as e:
            assert e.message
