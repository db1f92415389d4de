"""Dialects, conversations, files, models and health, as clients see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from runstone.config import EngineConfig
from runstone.runners.agent_context import AgentContext
from tests.behaviour.client import settled
from tests.behaviour.site import Site, Steps
from tests.behaviour.test_security import upload


async def tools(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Thinks, looks something up, answers."""
    context.reasoning("hm")
    async with context.tool("weather", {"city": "Beijing"}) as call:
        call.result({"temp": 20})
    yield "20 degrees"


CLIENTS = [
    ({"x-stainless-lang": "python"}, "mcp_call"),
    ({"user-agent": "OpenAI/Python 3.57.0"}, "mcp_call"),
    ({"user-agent": "ai/6.0.326 ai-sdk/provider-utils/3.0.0"}, "mcp_call"),
    ({"user-agent": "ai/7.0.173 ai-sdk-provider-utils/5.0.81 node.js/24"}, "mcp_call"),
    ({"user-agent": "curl/8"}, "function_call"),
    ({}, "function_call"),
    ({"user-agent": "curl/8", "runstone-dialect": "openai"}, "mcp_call"),
    ({"x-stainless-lang": "js", "runstone-dialect": "ksadk"}, "function_call"),
]


@pytest.mark.parametrize(("headers", "kind"), CLIENTS)
async def test_the_dialect_follows_the_client(memory: Site, headers: dict[str, str], kind: str) -> None:
    """Official SDKs get official items only, everybody else the second contract's; a header decides over both."""
    memory.say = tools
    client = memory.client()
    answer = await client.respond("x", headers=headers)
    assert [item["type"] for item in answer.json["output"]][1] == kind
    again = await client.get(f"/v1/responses/{answer.json['id']}", headers=headers)
    assert again.json == answer.json


async def test_the_table_of_the_second_contract(memory: Site) -> None:
    """Without any header a stream has the events of the second contract's table, and the fields of its answer."""
    memory.say = tools
    client = memory.client()
    frames = (await client.respond("x", stream=True, metadata={"a": "b"})).frames
    events = [frame.event for frame in frames[:-1]]
    assert events[0] == "response.created"
    assert events[-1] == "response.completed"
    assert {
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.reasoning.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.ksadk.tool_result",
    } <= set(events)
    body = (await client.respond("x", metadata={"a": "b"}, session_id="legacy")).json
    assert body.keys() >= {"id", "object", "created_at", "status", "model", "output", "metadata", "usage"}
    assert (body["output_text"], body["session_id"], body["metadata"]) == ("20 degrees", "legacy", {"a": "b"})


async def asks(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
    """Asks before it answers the first message; tells how many messages there were."""
    if len(messages) == 1:
        answer = await context.approve("delete", {"path": "x"})
        yield f"approved={answer.approved} "
    yield f"{len(messages)} messages"


async def test_an_approval_in_a_repeated_conversation(site: Site) -> None:
    """A client that names no response and repeats everything answers the waiting run, and may repeat that later."""
    site.say = asks
    client = site.client()
    said = {"role": "user", "content": "x"}
    waiting = (await client.respond([said])).json
    (asked,) = waiting["output"]
    decision = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
    reference = {"type": "item_reference", "id": asked["id"]}
    done = (await client.respond([said, reference, decision])).json
    assert (done["run_id"], done["output_text"]) == (waiting["run_id"], "approved=True 1 messages")
    assert (await client.respond([said, asked, decision])).status == 404
    later = (await client.respond([said, asked, decision, *done["output"], said])).json
    assert (later["status"], later["output_text"]) == ("completed", "3 messages")
    assert later["run_id"] != done["run_id"]


async def test_a_conversation_from_end_to_end(site: Site) -> None:
    """Made with items, used by responses, listed in pages both ways, an item read and deleted, renamed, deleted."""
    client = site.client()
    items = [{"role": "user", "content": "before"}]
    conversation = (await client.post("/v1/conversations", {"items": items, "metadata": {"k": "v"}})).json
    root = f"/v1/conversations/{conversation['id']}"
    await client.respond("q1", conversation=conversation["id"])
    await client.respond("q2", conversation={"id": conversation["id"]})
    listed = (await client.get(f"{root}/items?limit=100&order=asc")).json["data"]
    texts = [item["content"][0]["text"] for item in listed]
    assert texts == ["before", "q1", "You said: q1", "q2", "You said: q2"]
    for order in ("asc", "desc"):
        paged: list[Any] = []
        after = ""
        while True:
            page = (await client.get(f"{root}/items?limit=2&order={order}{after}")).json
            paged += page["data"]
            after = f"&after={page['last_id']}"
            if not page["has_more"]:
                break
        assert paged == (listed if order == "asc" else listed[::-1])
    assert (await client.get(f"{root}/items/{listed[1]['id']}")).json == listed[1]
    await client.delete(f"{root}/items/{listed[0]['id']}")
    assert (await client.get(f"{root}/items/{listed[0]['id']}")).status == 404
    assert len((await client.get(f"{root}/items?limit=100")).json["data"]) == 4
    added = await client.post(f"{root}/items", {"items": [{"role": "assistant", "content": "note"}]})
    assert added.json["data"][0]["content"][0]["text"] == "note"
    updated = await client.post(root, {"metadata": {"k": "w"}})
    assert updated.json["metadata"] == {"k": "w"}
    assert (await client.delete(root)).json["deleted"] is True
    assert (await client.get(root)).code == "conversation_not_found"


async def test_a_tool_call_and_its_result_are_one_item(site: Site) -> None:
    """In the official dialect a server-run call is one item of a conversation, found by its id and deleted as a whole."""
    site.say = tools
    client = site.client()
    official = {"runstone-dialect": "openai"}
    response = (await client.respond("x", conversation="s", headers=official)).json
    call = next(item for item in response["output"] if item["type"] == "mcp_call")
    found = await client.get(f"/v1/conversations/s/items/{call['id']}", headers=official)
    assert found.json == call
    await client.delete(f"/v1/conversations/s/items/{call['id']}")
    left = (await client.get("/v1/conversations/s/items?limit=100", headers={"runstone-dialect": "ksadk"})).json
    assert {item["type"] for item in left["data"]} == {"message", "reasoning"}


async def test_items_can_be_named_instead_of_repeated(memory: Site) -> None:
    """An `item_reference` stands for the item of that id, of a response of the same owner."""

    async def tell(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "|".join(str(message["content"]) for message in messages)

    memory.say = tell
    client = memory.client()
    first = (await client.respond("one")).json
    named = [{"type": "item_reference", "id": first["output"][0]["id"]}, {"role": "user", "content": "two"}]
    assert (await client.respond(named)).json["output_text"] == "one|two"
    unknown = await client.respond([{"type": "item_reference", "id": "msg_no_1"}, {"role": "user", "content": "x"}])
    assert (unknown.status, unknown.code) == (404, "item_not_found")


async def test_deleting_a_conversation_stops_its_run(site: Site) -> None:
    """A conversation with a running run is deleted, and the run is stopped."""
    site.say = steps = Steps()
    client = site.client()
    stream = await client.stream("x", session_id="s")
    await steps.started.wait()
    assert (await client.delete("/v1/conversations/s")).json["deleted"] is True
    assert b"cancelled" in await stream.rest()
    assert steps.was_cancelled


async def test_previous_response_branches(site: Site) -> None:
    """Two responses after one previous response are branches: each is told its own chain only."""

    async def tell(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield "/".join(str(message["content"]) for message in messages if message["role"] == "user")

    site.say = tell
    client = site.client()
    first = (await client.respond("a")).json["id"]
    left = (await client.respond("b", previous_response_id=first)).json
    right = (await client.respond("c", previous_response_id=first)).json
    assert (left["output_text"], right["output_text"]) == ("a/b", "a/c")
    deeper = await client.respond("d", previous_response_id=left["id"])
    assert deeper.json["output_text"] == "a/b/d"


async def test_input_items(site: Site) -> None:
    """What a response was given is listed with ids, newest first unless asked otherwise, in pages."""
    client = site.client()
    said = [{"role": "user", "content": f"m{n}"} for n in range(5)]
    url = f"/v1/responses/{(await client.respond(said)).json['id']}/input_items"
    newest = (await client.get(url)).json["data"]
    assert [item["content"][0]["text"] for item in newest] == [f"m{n}" for n in range(4, -1, -1)]
    page = (await client.get(f"{url}?limit=2&order=asc&after={newest[-1]['id']}")).json
    assert [item["content"][0]["text"] for item in page["data"]] == ["m1", "m2"]
    assert page["has_more"]


async def test_files_are_listed_in_pages(site: Site) -> None:
    """Files are listed newest first, by purpose, after an id; a deleted one is gone."""
    client = site.client()
    ids = [(await upload(client, b"x", f"{n}.txt", "vision" if n % 2 else "user_data")).json["id"] for n in range(4)]
    listed = (await client.get("/v1/files?limit=3")).json
    assert [file["id"] for file in listed["data"]] == ids[:0:-1]
    assert listed["has_more"]
    rest = (await client.get(f"/v1/files?after={listed['data'][-1]['id']}")).json
    assert [file["id"] for file in rest["data"]] == ids[:1]
    assert [f["id"] for f in (await client.get("/v1/files?purpose=vision&order=asc")).json["data"]] == [ids[1], ids[3]]
    assert (await client.delete(f"/v1/files/{ids[0]}")).json == {"id": ids[0], "object": "file", "deleted": True}
    assert (await client.get(f"/v1/files/{ids[0]}")).status == 404
    assert (await client.get(f"/v1/files?after={ids[0]}")).status == 404


FORMS = [
    (
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nvision\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
    ),
    (b"--b\r\ngarbage", "multipart/form-data; boundary=b"),
    (b"", "multipart/form-data"),
    (b"--b\r\n\xff\xfe: x\r\n\r\nx\r\n--b--", "multipart/form-data; charset=nonsense; boundary=b"),
    (
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--',
        "multipart/form-data; charset=nonsense; boundary=b",
    ),
    (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\nx\r\n--b--\r\n',
        "multipart/form-data; boundary=b",
    ),
]


@pytest.mark.parametrize(("body", "kind"), FORMS, ids=range(len(FORMS)))
async def test_malformed_uploads(memory: Site, body: bytes, kind: str) -> None:
    """A form without a file or purpose, cut or without a boundary, is 400."""
    answer = await memory.client().ask("POST", "/v1/files", body=body, headers={"content-type": kind})
    assert answer.status == 400


async def test_uploads_are_forms(memory: Site) -> None:
    """Anything but a form is 415, an unknown purpose 400."""
    client = memory.client()
    assert (await client.post("/v1/files", {"file": "x"})).status == 415
    assert (await upload(client, b"x", "x", "mischief")).json["error"]["param"] == "purpose"


async def test_an_attached_file_reaches_the_agent(site: Site) -> None:
    """The text of an uploaded file is extracted in the run, and its bytes can be read."""

    async def read(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        payload = await context.payload()
        found = payload["attachment_results"][0]
        yield f"{found['display_name']}: {found['text']} ({payload['has_current_files']})"

    site.say = read
    client = site.client()
    file = (await upload(client, "Grüße".encode(), "a.txt")).json["id"]
    content = [{"type": "input_file", "file_id": file}, {"type": "input_text", "text": "Read it."}]
    answer = await client.respond([{"role": "user", "content": content}])
    assert answer.json["output_text"] == "a.txt: Grüße (True)"


async def test_models_are_agents(memory: Site) -> None:
    """The agent is listed and found; another name is 404 `model_not_found`."""
    client = memory.client()
    (model,) = (await client.get("/v1/models")).json["data"]
    assert model == {"id": "agent", "object": "model", "created": 0, "owned_by": "runstone"}
    assert (await client.get("/v1/models/agent")).json == model
    unknown = await client.get("/v1/models/no/such")
    assert (unknown.status, unknown.code) == (404, "model_not_found")


async def test_health(memory: Site) -> None:
    """/healthz says that the process lives, /readyz that it takes work; HEAD works for both."""
    client = memory.client()
    for path, word in (("/healthz", "ok"), ("/readyz", "ready")):
        assert (await client.get(path)).json == {"status": word}
        assert (await client.ask("HEAD", path)).status == 200


async def test_the_contract_is_published(memory: Site) -> None:
    """/openapi.json and /docs describe every route; the page loads nothing and runs nothing."""
    client = memory.client()
    document = (await client.get("/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    page = await client.get("/docs")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    text = page.body.decode()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert f"<code>{method.upper()} {path}</code>" in text
            assert operation["x-runstone-label"] in ("compatible", "compatible-shaped", "extension", "legacy")
    assert "<script" not in text
    assert "`" not in text
    assert "http://" not in text.replace("http://127", "")
    assert (await client.get("/docs/style.css")).headers["content-type"].startswith("text/css")


async def test_a_cancel_of_a_finished_response_changes_nothing(site: Site) -> None:
    """Cancelling what is over is 200 with the response as it was."""
    client = site.client()
    response = (await client.respond("x")).json
    assert (await client.post(f"/v1/responses/{response['id']}/cancel")).json == response


async def test_a_queued_response_can_be_cancelled(site: Site) -> None:
    """A response that waits its turn is cancelled without ever having run."""
    site.say = steps = Steps()
    client = site.client()
    first = await client.respond("one", conversation="s", background=True)
    second = await client.respond("two", conversation="s", background=True, busy="queue")
    assert second.json["status"] == "queued"
    cancelled = (await client.post(f"/v1/responses/{second.json['id']}/cancel")).json
    assert cancelled["status"] == "cancelled"
    steps.end()
    assert (await settled(client, first.json["run_id"]))["status"] == "completed"
    assert site.prompts == ["one"]


async def test_a_body_reads_the_same_in_a_stream(site: Site) -> None:
    """The last event of the stream, the body of a call without stream and a later GET are one object."""
    site.say = tools
    client = site.client()
    for headers in ({"runstone-dialect": "openai"}, {"runstone-dialect": "ksadk"}):
        frames = (await client.respond("x", stream=True, headers=headers)).frames
        last = frames[-2].json["response"]
        assert (await client.get(f"/v1/responses/{last['id']}", headers=headers)).json == last


async def test_a_completion_can_be_read_again(site: Site) -> None:
    """GET of a completion gives the body of the POST, by its own id and by the run's."""
    client = site.client()
    sent = (await client.chat("x", session_id="s")).json
    for id in (sent["id"], sent["run_id"]):
        assert (await client.get(f"/v1/chat/completions/{id}")).json == sent


async def test_streams_of_a_compacted_run(memory: Site) -> None:
    """When the deltas are gone, reading on is an error that names the cursor as it was given; bodies are as before."""
    memory.config = msgspec.structs.replace(memory.config, engine=EngineConfig(events_ttl=0.0, sweep_every=3600.0))
    await memory.restart()
    client = memory.client()
    response = (await client.respond("hi")).json
    await memory.app.engine._upkeep.sweep()
    gone = await client.get(f"/v1/responses/{response['id']}?stream=true&starting_after=2")
    assert (gone.status, gone.code) == (400, "cursor_expired")
    assert "after '2'" in gone.json["error"]["message"]
    assert (await client.get(f"/v1/responses/{response['id']}")).json == response


async def test_a_repeated_start_says_that_it_is_one(memory: Site) -> None:
    """The answer to an equal request has Idempotency-Replayed, as body and as stream; a first one and a reader have not."""
    client = memory.client()
    for fields in ({}, {"stream": True}):
        key = {"idempotency-key": f"k-{len(fields)}"}
        first = await client.respond("hi", headers=key, **fields)
        again = await client.respond("hi", headers=key, **fields)
        read = await client.get(f"/v1/responses/resp_{first.headers['runstone-run-id']}")
        assert "idempotency-replayed" not in first.headers | read.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.body == first.body
