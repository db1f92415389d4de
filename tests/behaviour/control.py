"""A server whose agent can everything, and short ways to say what a client of Hermes does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from runstone.runners.agent_context import AgentContext
from runstone.runners.function import agent
from tests.behaviour.client import PATIENCE, Answer, Client, Connection, Frame
from tests.behaviour.site import Site, prompt_of

OVER = {"completed", "failed", "cancelled", "interrupted"}


class Control(Site):
    """A site whose agent is steered, asks, and uses the client's tools."""

    def _agent(self) -> Any:
        @agent(approvals=True, steers=True, client_tools=True)
        async def scripted(messages: list[dict[str, Any]], context: AgentContext) -> AsyncIterator[str]:
            self.calls += 1
            self.prompts.append(prompt_of(messages))
            async for word in self.say(messages, context):
                yield word

        return scripted

    def hermes(self, *, key: str | None = None) -> Hermes:
        """A client of the server as it is now."""
        return Hermes(self.app.asgi, key=key)


class Hermes(Client):
    """A client of the session and runs APIs."""

    async def session(self, id: str = "s", **fields: Any) -> dict[str, Any]:
        """A new session."""
        answer = await self.post("/api/sessions", {"id": id, **fields})
        assert answer.status == 201, answer.body
        return dict(answer.json["session"])

    async def patch(self, target: str, json: Any) -> Answer:
        """PATCH."""
        return await self.ask("PATCH", target, json=json)

    async def say(self, text: str, session: str = "s", **fields: Any) -> Answer:
        """A turn as a body."""
        return await self.post(f"/api/sessions/{session}/chat", {"message": text, **fields})

    async def saying(
        self, text: str, session: str = "s", headers: dict[str, str] | None = None, **fields: Any
    ) -> Connection:
        """A turn as a stream."""
        body = {"message": text, **fields}
        return await self.open("POST", f"/api/sessions/{session}/chat/stream", json=body, headers=headers)

    async def begin(self, text: str, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """A run; its receipt."""
        answer = await self.post("/v1/runs", {"input": text, **fields}, headers=headers)
        assert answer.status == 202, answer.body
        return dict(answer.json)

    async def run(self, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        return dict((await self.get(f"/v1/runs/{run_id}")).json)

    async def until(self, run_id: str, *statuses: str) -> dict[str, Any]:
        """The run when it has one of these statuses, or is over."""
        async with asyncio.timeout(PATIENCE):
            while (run := await self.run(run_id))["status"] not in (statuses or OVER):
                assert not statuses or run["status"] not in OVER, run
                await asyncio.sleep(0.002)
        return run

    async def history(self, session: str = "s", query: str = "") -> dict[str, Any]:
        """A page of messages."""
        return dict((await self.get(f"/api/sessions/{session}/messages{query}")).json)


def names(frames: list[Frame]) -> list[str]:
    """The names of a stream's frames, in either vocabulary."""
    return [frame.event or frame.json["event"] for frame in frames if frame.data]


def said(frames: list[Frame]) -> str:
    """The text deltas joined, in either vocabulary."""
    deltas = ("assistant.delta", "message.delta")
    return "".join(frame.json["delta"] for frame in frames if frame.data and _name(frame) in deltas)


def _name(frame: Frame) -> Any:
    return frame.event or frame.json["event"]


def spoken(page: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of a page as role and content."""
    return [(row["role"], row["content"]) for row in page["data"]]
