"""What clients see of the store: trouble is said, long sessions stay quick."""

from __future__ import annotations

from runstone.config import Config
from runstone.core.items import user_message
from runstone.core.runs import Session
from runstone.engine.engine import Engine
from runstone.errors import StorageUnavailable
from runstone.runners.function import FunctionRunner
from runstone.server.app import HttpApp
from runstone.storage.memory import MemoryFiles, MemoryStore
from tests.behaviour.client import Client
from tests.behaviour.site import Site


class ForgetfulStore(MemoryStore):
    """A store whose sessions cannot be read for a while."""

    is_locked = False

    async def session(self, owner: str, session_id: str) -> Session | None:
        """The session, when the database answers."""
        if self.is_locked:
            raise StorageUnavailable("The database is locked.")
        return await super().session(owner, session_id)


async def test_trouble_is_not_absence() -> None:
    """o-sto-05: while the store cannot be read a session is not unknown and not new: 503, and afterwards all is there."""
    store = ForgetfulStore()
    app = HttpApp(Engine({"agent": FunctionRunner(lambda messages: "x")}, store, MemoryFiles()), Config())
    client = Client(app)
    await client.respond("before", conversation="s")
    store.is_locked = True
    refused = [
        await client.get("/v1/conversations/s"),
        await client.respond("meanwhile", conversation="s"),
        await client.get("/v1/chat/sessions/s/messages"),
        await client.get("/readyz"),
    ]
    store.is_locked = False
    assert [answer.status for answer in refused] == [503] * 4
    assert all(answer.headers["retry-after"] == "2" for answer in refused)
    page = (await client.get("/v1/chat/sessions/s/messages")).json
    assert [message["content"] for message in page["messages"]] == ["before", "x"]
    await app.close()


async def test_a_long_session_is_read_in_pages(site: Site) -> None:
    """o-sto-07: of a session of 10,000 messages a page, the page before it and one more turn move no more than they show."""
    items = [user_message(f"m{n}", f"message {n}") for n in range(10_000)]
    await site.app.engine.directory.create("local", session_id="s", items=list(items))
    client = site.client()
    page = (await client.get("/v1/chat/sessions/s/messages?limit=50")).json
    older = (await client.get(f"/v1/chat/sessions/s/messages?limit=50&before={page['cursor']}")).json
    items_page = (await client.get("/v1/conversations/s/items?limit=100")).json
    assert [m["content"] for m in older["messages"] + page["messages"]] == [
        f"message {n}" for n in range(9_900, 10_000)
    ]
    assert len(items_page["data"]) == 100
    answer = await client.respond("one more", conversation="s")
    assert answer.json["output_text"] == "You said: one more"
