"""What a server on somebody's machine must not do for the wrong people."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from runstone.config import Config
from runstone.engine.engine import Engine
from runstone.runners.agent_context import AgentContext
from runstone.runners.function import FunctionRunner
from runstone.server.app import HttpApp
from runstone.storage.base import FileRecord
from runstone.storage.memory import MemoryFiles, MemoryStore
from tests.behaviour.client import Client, chat_body, frames_of
from tests.behaviour.site import Site, Steps

CHAT = "/v1/chat/completions"
EVIL = "https://evil.example"


OWNED = [
    ("GET", "/v1/responses/{id}"),
    ("GET", "/v1/responses/{id}?stream=true&starting_after=0"),
    ("POST", "/v1/responses/{id}/cancel"),
    ("GET", "/v1/responses/{id}/input_items"),
    ("DELETE", "/v1/responses/{id}"),
    ("GET", "/v1/chat/completions/{run}"),
    ("GET", "/v1/chat/completions/chatcmpl-{run}?stream=true"),
    ("GET", "/v1/chat/sessions/{session}/messages"),
    ("GET", "/v1/conversations/{session}"),
    ("DELETE", "/v1/conversations/{session}"),
    ("GET", "/v1/conversations/{session}/items"),
    ("GET", "/v1/conversations/{session}/items/{item}"),
    ("DELETE", "/v1/conversations/{session}/items/{item}"),
    ("GET", "/v1/files/{file}"),
    ("GET", "/v1/files/{file}/content"),
    ("DELETE", "/v1/files/{file}"),
]


async def test_ids_of_others_are_unknown(site: Site) -> None:
    """o-sec-01: on every route another user's id is answered exactly like one that nobody has, and nothing of it is done."""
    ann, bob = await site.with_keys()
    response = (await ann.respond("secret", conversation="s")).json
    item = (await ann.get("/v1/conversations/s/items")).json["data"][0]["id"]
    file = (await upload(ann, b"secret", "a.txt")).json["id"]
    id, run = response["id"], response["run_id"]
    theirs = {"id": id, "run": run, "session": "s", "item": item, "file": file}
    nobodys = {"id": "resp_x", "run": "x", "session": "x", "item": "msg_x_1", "file": "file-x"}
    for method, path in OWNED:
        of_ann = await bob.ask(method, path.format(**theirs))
        of_nobody = await bob.ask(method, path.format(**nobodys))
        assert (of_ann.status, of_ann.code) == (of_nobody.status, of_nobody.code), path
        assert of_ann.status == 404
    mixed = await bob.respond("x", previous_response_id=id)
    unknown = await bob.respond("x", previous_response_id="resp_nobody")
    assert (mixed.status, mixed.code) == (unknown.status, unknown.code)
    used = await bob.respond([{"role": "user", "content": [{"type": "input_file", "file_id": file}]}])
    assert (used.status, used.code) == (400, "file_not_found")
    assert (await ann.get(f"/v1/responses/{id}")).json["output_text"] == "You said: secret"


async def test_a_name_that_another_user_has_is_free(site: Site) -> None:
    """o-sec-01: two users use one session id and one run id, and neither sees the other's."""
    ann, bob = await site.with_keys()
    for client, word in ((ann, "apples"), (bob, "pears")):
        answer = await client.chat(word, session_id="s", headers={"runstone-run-id": "r"})
        assert answer.status == 200
        page = (await client.get("/v1/chat/sessions/s/messages")).json
        assert [m["content"] for m in page["messages"]] == [word, f"You said: {word}"]


async def upload(client: Client, content: bytes, name: str, purpose: str = "user_data") -> Any:
    """Upload a file under a name, as a browser would."""
    boundary = b"frontier"
    shown = name.replace('"', "%22").encode("utf-8", "surrogateescape")
    body = b"".join(
        (
            b"--"
            + boundary
            + b'\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n'
            + purpose.encode()
            + b"\r\n",
            b"--" + boundary + b'\r\nContent-Disposition: form-data; name="file"; filename="' + shown + b'"\r\n',
            b"Content-Type: application/octet-stream\r\n\r\n" + content + b"\r\n--" + boundary + b"--\r\n",
        )
    )
    return await client.ask(
        "POST", "/v1/files", body=body, headers={"content-type": f"multipart/form-data; boundary={boundary.decode()}"}
    )


PATHS = [
    "//v1/responses",
    "/v1//responses",
    "/v1/responses/",
    "/healthz/../v1/responses",
    "/healthz/%2e%2e/v1/responses",
    "/v1/responses;x=1",
    "/v1/responses%00",
    "/V1/responses",
    "/healthz/",
    "//healthz",
    "/docs",
    "/openapi.json",
    "/v1/models",
    "/%76%31/models",
    "/nowhere",
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "PUT", "BREW"])
async def test_no_path_leads_around_the_key(memory: Site, path: str, method: str) -> None:
    """o-sec-02: whatever the path or method looks like, without a key it is 401."""
    await memory.with_keys()
    assert (await memory.client().ask(method, path)).status == 401


async def test_public_routes_are_two(memory: Site) -> None:
    """o-sec-02: only /healthz and /readyz answer without a key."""
    await memory.with_keys()
    for path in ("/healthz", "/readyz"):
        assert (await memory.client().get(path)).status == 200


async def test_the_key_is_asked_for_where_the_server_is_mounted(memory: Site) -> None:
    """o-sec-02: with a root path the routes are the same below it, and none of them is open."""
    await memory.with_keys()
    mounted = Client(memory.app.asgi, root_path="/agents")
    assert (await mounted.get("/healthz")).status == 200
    assert (await mounted.get("/v1/models")).status == 401
    assert (await Client(memory.app.asgi, root_path="/healthz").get("/v1/models")).status == 401
    assert (await Client(memory.app.asgi, root_path="/agents", key="sk-ann").get("/v1/models")).status == 200


async def test_websockets_are_closed(memory: Site) -> None:
    """o-sec-02: a WebSocket to any path is closed before it opens."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await memory.app.asgi({"type": "websocket", "path": "/v1/responses", "headers": []}, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", ""])
async def test_simple_requests_of_browsers_start_nothing(memory: Site, kind: str) -> None:
    """o-sec-03: a body that is not declared as JSON is 415, so no page can start a run without asking first."""
    for path in (CHAT, "/v1/responses", "/v1/conversations"):
        answer = await memory.client().ask(
            "POST", path, body=b'{"model":"agent","input":"x","messages":[]}', headers={"content-type": kind}
        )
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert memory.calls == 0


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil", ""])
async def test_foreign_names_are_refused(memory: Site, host: str) -> None:
    """o-sec-03: a request for a name that is not this server's is 403, so that no name of somebody's leads here."""
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/healthz")):
        answer = await memory.client().ask(method, path, raw_headers=[("host", host)])
        assert (answer.status, answer.code) == (403, "host_not_allowed")
    no_host = await memory.client().ask("GET", "/v1/models", raw_headers=[])
    two_hosts = await memory.client().ask(
        "GET", "/v1/models", raw_headers=[("host", "localhost"), ("host", "evil.example")]
    )
    assert (no_host.status, two_hosts.status) == (403, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:9", "127.8.8.8", "[::1]:8080", "box.lan"])
async def test_own_names_are_answered(memory: Site, host: str) -> None:
    """o-sec-03: loopback names with any port, and configured names, are this server's."""
    await memory.restart(hosts=["box.lan"])
    answer = await memory.client().ask("GET", "/v1/models", raw_headers=[("host", host)])
    assert answer.status == 200


async def test_an_open_server_answers_to_addresses(memory: Site) -> None:
    """o-sec-03: a server that listens beyond loopback is called by its address too; a name still has to be configured."""
    await memory.restart(host="0.0.0.0", keys={"sk-ann": "ann"})
    ann = memory.client(key="sk-ann")
    for host, status in (("10.0.0.5:8080", 200), ("[2001:db8::1]", 200), ("evil.example", 403)):
        assert (await ann.ask("GET", "/v1/models", raw_headers=[("host", host)])).status == status


async def test_foreign_pages_are_refused(memory: Site) -> None:
    """o-sec-03: a foreign Origin is 403 and starts nothing, also `null`; the server's own pages may call."""
    client = memory.client()
    for origin in (EVIL, "null", "http://localhost.evil.example", "http://localhost:1"):
        answer = await client.ask("POST", CHAT, json=chat_body("x"), headers={"origin": origin})
        assert (answer.status, answer.code) == (403, "origin_not_allowed")
        assert not any(name.startswith("access-control") for name, _ in answer.raw_headers)
    assert memory.calls == 0
    own = await client.ask("POST", CHAT, json=chat_body("x"), headers={"origin": "http://localhost"})
    assert own.status == 200


async def test_cors_is_off(memory: Site) -> None:
    """o-sec-04: no answer names any origin, to a preflight of a foreign page least of all."""
    ask = {"origin": EVIL, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    preflight = await memory.client().ask("OPTIONS", CHAT, headers=ask)
    assert preflight.status == 403
    assert not any(name.startswith("access-control") for name, _ in preflight.raw_headers)


async def test_configured_pages_may_call(memory: Site) -> None:
    """o-sec-04: a listed origin is named, alone, without credentials, and with Vary; every other stays refused."""
    await memory.restart(origins=["https://app.example"], keys={"sk-ann": "ann"})
    origin = {"origin": "https://app.example"}
    ask = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    preflight = await memory.client().ask("OPTIONS", CHAT, headers=ask)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-headers"] == "authorization"
    called = await memory.client(key="sk-ann").chat("hi", headers=origin)
    streamed = await memory.client(key="sk-ann").stream("hi", headers=origin)
    for headers in (preflight.headers, called.headers, dict(streamed.headers)):
        assert headers["access-control-allow-origin"] == "https://app.example"
        assert headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in headers
    await streamed.close()
    unasked = await memory.client(key="sk-ann").get("/v1/models")
    assert unasked.headers["vary"] == "Origin"
    assert "access-control-allow-origin" not in unasked.headers
    assert (await memory.client(key="sk-ann").get("/v1/models", headers={"origin": EVIL})).status == 403


@pytest.mark.parametrize(
    "shape", ["http://127.0.0.1:{port}/canary", "http://[::1]:{port}/", "http://0x7f000001:{port}/"]
)
async def test_addresses_in_input_are_never_fetched(memory: Site, shape: str) -> None:
    """o-sec-05: an image or file by address stays an address; nobody knocks on it."""
    knocks: list[Any] = []

    async def look(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        payload = await context.payload()
        yield str([found["status"] for found in payload["attachment_results"]])

    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary.setblocking(False)
        url = shape.format(port=canary.getsockname()[1])
        memory.say = look
        content = [
            {"type": "input_image", "image_url": url},
            {"type": "input_file", "file_url": url, "filename": "x.pdf"},
        ]
        answer = await memory.client().respond([{"role": "user", "content": content}])
        assert answer.json["status"] == "completed"
        with pytest.raises(BlockingIOError):
            knocks.append(canary.accept())
    assert knocks == []


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://x/y", "gopher://x", "//x/y", "javascript:alert(1)"])
async def test_other_schemes_are_refused(memory: Site, url: str) -> None:
    """o-sec-05: an address that is not http, https or data is 400."""
    content = [{"type": "input_image", "image_url": url}]
    answer = await memory.client().respond([{"role": "user", "content": content}])
    assert (answer.status, answer.code) == (400, "invalid_url")


NAMES = [
    ("../../x", "x"),
    ("..\\..\\x", "x"),
    ("/abs", "abs"),
    ("CON", "CON"),
    (".", "file"),
    ("..", "file"),
    ("x" * 300, "x" * 255),
    ("说明 ü.txt", "说明 ü.txt"),
]


@pytest.mark.parametrize(("name", "shown"), NAMES, ids=[name[:12] for name, _ in NAMES])
async def test_names_of_files_are_not_paths(site: Site, name: str, shown: str) -> None:
    """o-sec-06: a file's name is kept to be shown, its content lies where no name has a say, and comes back byte by byte."""
    client = site.client()
    content = bytes(range(256))
    record = (await upload(client, content, name)).json
    assert record["filename"] == shown
    answer = await client.get(f"/v1/files/{record['id']}/content")
    assert answer.body == content
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"].startswith("attachment")
    if site.kind == "sqlite":
        files = [path for path in site.folder.rglob("*") if path.is_file()]
        assert all(path.name not in (name, shown) for path in files)


IDS = ["../..", "..%2f..", "a/b", "a\\b", ".", "..", "a\nb", "a\u2028b", "", "x" * 300]


@pytest.mark.parametrize("id", IDS)
async def test_ids_are_not_paths(site: Site, id: str) -> None:
    """o-sec-06: a session id that looks like a path is refused, in bodies and in paths; nothing is created."""
    client = site.client()
    if id != "..%2f..":
        assert (await client.respond("x", conversation=id)).status == 400
        assert (await client.chat("x", session_id=id)).status == 400
    for path in (f"/v1/conversations/{quote(id, safe='%')}", f"/v1/chat/sessions/{quote(id, safe='%')}/messages"):
        assert (await client.get(path)).status in (400, 404, 405)
    assert site.calls == 0


async def test_large_bodies_are_refused_while_they_come(memory: Site) -> None:
    """o-sec-07: a body over the limit is 413 as soon as that is known, whatever Content-Length says; the connection closes."""
    await memory.restart(max_body_bytes=100_000, max_upload_bytes=100_000)
    client = memory.client()
    pieces = [b"x" * 50_000] * 100
    kinds = {"content-type": "application/json"}
    for headers in ({}, {"content-length": "10"}, {"content-length": str(5_000_000)}):
        connection = client.send("POST", CHAT, body=list(pieces), headers={**kinds, **headers})
        await connection.started()
        assert connection.status == 413
        assert dict(connection.headers)["connection"] == "close"
        assert len(connection._body) >= 97
        await connection.rest()
        await connection.close()
    answer = await upload(client, b"x" * 300_000, "big.bin")
    assert (answer.status, answer.code) == (413, "request_too_large")
    assert memory.calls == 0


DEEP = [
    b"[" * 20_000,
    b'{"a":' * 20_000,
    b"[" * 20_000 + b"]" * 20_000,
    b'{"model":"agent","input":' + b"[" * 200 + b"]" * 200 + b"}",
    b'{"x":"' + b"[" * 500 + b'","input":' + b"[" * 101 + b"]" * 101 + b"}",
]


@pytest.mark.parametrize("body", DEEP, ids=range(len(DEEP)))
async def test_deep_json_is_refused(memory: Site, body: bytes) -> None:
    """o-sec-08: JSON nested beyond the limit is 400, found before it is decoded."""
    answer = await memory.client().ask("POST", CHAT, body=body, headers={"content-type": "application/json"})
    assert (answer.status, answer.code) == (400, "json_too_deep")


async def test_brackets_in_texts_are_no_depth(memory: Site) -> None:
    """o-sec-08: brackets inside strings, also behind escaped quotes, count for nothing."""
    text = '[{"\\' * 500
    answer = await memory.client().chat(text)
    assert answer.json["choices"][0]["message"]["content"] == f"You said: {text}"


MALFORMED = [
    b"",
    b"{not json",
    b"null",
    b"[]",
    b'"x"',
    b"1",
    b"true",
    b'{"a":NaN}',
    b'{"a":\xff}',
    b'{"a":"\xed\xa0\xbd"}',
    b'{"a":1e999}',
    b'{"a":1}{"b":2}',
    b"\xef\xbb\xbf{}",
    b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
    b"\x00" * 100,
]


@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/conversations", "/v1/conversations/s/items"])
async def test_malformed_bodies_are_the_callers_fault(memory: Site, path: str, body: bytes) -> None:
    """o-htp-04: what is not a JSON object in UTF-8 is 400 with an OpenAI error, never 500."""
    client = memory.client()
    await client.post("/v1/responses", {"model": "agent", "input": "x", "conversation": "s"})
    answer = await client.ask("POST", path, body=body, headers={"content-type": "application/json"})
    assert answer.status == 400
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("value", ["false", "true", 0, 1, [], {}])
async def test_stream_is_a_boolean(memory: Site, value: Any) -> None:
    """o-htp-04: `stream` of another type is 400 and is named, the same on both protocols; null is the same as absent."""
    client = memory.client()
    for answer in (await client.chat("x", stream=value), await client.respond("x", stream=value)):
        assert (answer.status, answer.json["error"]["param"]) == (400, "stream")
    assert (await client.chat("x", stream=None, zz_unknown=1)).status == 200


async def test_equal_keys_of_an_object(memory: Site) -> None:
    """The last of equal keys counts."""
    body = b'{"model":"agent","input":"a","input":"b"}'
    answer = await memory.client().ask("POST", "/v1/responses", body=body, headers={"content-type": "application/json"})
    assert answer.json["output_text"] == "You said: b"


async def test_frames_cannot_be_injected(site: Site) -> None:
    """o-sec-10: line ends in texts, names and arguments stay inside their frame; ids with them are refused."""
    poison = "x\n\nevent: run.completed\ndata: {}\r\rdata: [DONE]\u2028\u0085"

    async def odd(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
        yield poison
        async with context.tool(poison, {poison: poison}) as call:
            call.result(poison)

    site.say = odd
    client = site.client()
    for dialect in ("openai", "ksadk"):
        sent = await client.respond(poison, stream=True, metadata={"k": poison}, headers={"runstone-dialect": dialect})
        assert all([name for name, _ in f.fields] in (["event", "data"], ["data"]) for f in sent.frames)
        assert [f.json["sequence_number"] for f in sent.frames[:-1]] == list(range(len(sent.frames) - 1))
        assert sent.body.count(b"[DONE]\n\n") == 1
        assert b"\r" not in sent.body
        assert "\u2028".encode() not in sent.body
    stream = frames_of(await (await client.stream(poison, dialect="steps", session_id="s")).rest())
    assert all([name for name, _ in f.fields] == ["id", "data"] for f in stream[:-1])
    for headers in ({"runstone-run-id": "a\nb"}, {"runstone-run-id": "a b"}):
        assert (await client.respond("x", headers=headers)).status == 400
    assert (await client.respond("x", run_id="a\n\nb")).status == 400


CREDENTIALS = [
    [],
    ["Bearer "],
    ["Bearer"],
    ["Bearer wrong"],
    ["sk-ann"],
    ["Basic sk-ann"],
    ["Bearer sk-ann", "Bearer sk-bob"],
    ["Bearer sk-ann", "Bearer sk-ann"],
    ["Bearer sk-ännä"],
    ["Bearer sk-ann sk-bob"],
    [""],
    [" "],
    ["\x00"],
]


@pytest.mark.parametrize("values", CREDENTIALS, ids=repr)
async def test_odd_credentials_are_401(memory: Site, values: list[str]) -> None:
    """o-sec-13: no, empty, double, foreign or odd credentials are 401 with an OpenAI error, never 500."""
    await memory.with_keys()
    headers = [("host", "localhost"), *(("authorization", value) for value in values)]
    for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("GET", "/nowhere")):
        answer = await memory.client().ask(method, path, raw_headers=headers)
        assert (answer.status, answer.code) == (401, "invalid_api_key")
        assert b"sk-" not in answer.body


@pytest.mark.parametrize("value", ["Bearer sk-ann", "bearer sk-ann", "BEARER   sk-ann "])
async def test_good_credentials(memory: Site, value: str) -> None:
    """o-sec-13: the scheme's case and spaces around do not matter; a key in the query does nothing."""
    await memory.with_keys()
    headers = [("host", "localhost"), ("authorization", value)]
    assert (await memory.client().ask("GET", "/v1/models", raw_headers=headers)).status == 200
    assert (await memory.client().ask("GET", "/v1/models?api_key=sk-ann&key=sk-ann")).status == 401


async def test_every_answer_has_an_id(memory: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Each answer, refusal and stream has an `x-request-id`; a sane one of the client is kept, another replaced."""
    client = memory.client()
    stream = await client.stream("x")
    answers = [
        await client.get("/v1/models"),
        await client.get("/nowhere"),
        await client.ask("PUT", "/v1/models"),
        await client.chat(""),
        await client.ask("GET", "/v1/models", raw_headers=[("host", "evil.example")]),
    ]
    ids = [answer.headers["x-request-id"] for answer in answers] + [dict(stream.headers)["x-request-id"]]
    assert len(set(ids)) == len(ids)
    await stream.close()
    kept = await client.get("/v1/models", headers={"x-request-id": "mine-1"})
    replaced = await client.get("/v1/models", headers={"x-request-id": "a b\tc"})
    assert kept.headers["x-request-id"] == "mine-1"
    assert replaced.headers["x-request-id"].startswith("req_")


async def test_errors_are_openai_shaped_everywhere(memory: Site) -> None:
    """Unknown routes, wrong methods and refusals under /v1 have the error object of OpenAI."""
    client = memory.client()
    answers = {
        (await client.get("/v1/nowhere")): 404,
        (await client.ask("PUT", "/v1/responses")): 405,
        (await client.get("/v1/responses/resp_x")): 404,
        (await client.post("/v1/responses", {"input": "x"})): 400,
    }
    for answer, status in answers.items():
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["error"].keys() >= {"message", "type", "param", "code"}


class BrokenStore(MemoryStore):
    """A store with a mistake in it."""

    async def file(self, owner: str, file_id: str) -> FileRecord | None:
        """Fail in a way that nobody expects."""
        raise ZeroDivisionError("/secret/path hunter2")


async def test_a_mistake_of_ours_is_a_fixed_sentence(caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected failure is logged with the request's id and answered by one sentence that forbids the retry."""
    engine = Engine({"agent": FunctionRunner(lambda messages: "x")}, BrokenStore(), MemoryFiles())
    app = HttpApp(engine, Config())
    answer = await Client(app).get("/v1/files/file-x")
    assert (answer.status, answer.code) == (500, "internal_error")
    assert answer.headers["x-should-retry"] == "false"
    assert b"hunter2" not in answer.body
    assert answer.headers["x-request-id"] in caplog.text
    assert "hunter2" in caplog.text
    await app.close()


async def test_slow_readers_hurt_nobody(memory: Site) -> None:
    """A reader that does not read keeps neither the run nor another reader waiting."""
    memory.say = steps = Steps()
    client = memory.client()
    slow = await client.stream("x", session_id="s")
    quick = await client.open("GET", f"{CHAT}/{dict(slow.headers)['runstone-run-id']}?stream=true")
    steps.word(*("word " for _ in range(3_000)))
    steps.end()
    assert (await quick.rest()).count(b'"word "') == 3_000
    async with asyncio.timeout(5):
        assert (await slow.rest()).count(b'"word "') == 3_000
