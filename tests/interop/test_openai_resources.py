"""openai-python: conversations, files, models."""

from __future__ import annotations

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseInputParam


def test_a_conversation(client: OpenAI) -> None:
    """A conversation is made, used, changed, listed and deleted."""
    conversation = client.conversations.create(
        metadata={"topic": "names"}, items=[{"type": "message", "role": "user", "content": "My name is Alice."}]
    )
    response = client.responses.create(model="assistant", input="What is my name?", conversation=conversation.id)
    assert response.output_text == "Your name is Alice."
    assert response.conversation is not None
    assert response.conversation.id == conversation.id
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
    assert [item.role for item in items if item.type == "message"] == ["user", "user", "assistant"]
    assert items[-1].id == response.output[0].id
    assert client.conversations.update(conversation.id, metadata={"topic": "x"}).metadata == {"topic": "x"}
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_items_of_a_conversation(client: OpenAI) -> None:
    """Items are added, read one by one, and deleted."""
    conversation = client.conversations.create()
    made = client.conversations.items.create(
        conversation.id,
        items=[
            {"type": "message", "role": "user", "content": "one"},
            {"type": "message", "role": "assistant", "content": "two"},
        ],
    )
    first, second = made.data
    assert client.conversations.items.retrieve(first.id or "", conversation_id=conversation.id).id == first.id
    client.conversations.items.delete(first.id or "", conversation_id=conversation.id)
    assert [item.id for item in client.conversations.items.list(conversation.id)] == [second.id]


def test_a_conversation_shows_what_the_server_did(client: OpenAI) -> None:
    """A tool that the agent ran, and an approval with its decision, are items of the conversation."""
    conversation = client.conversations.create()
    client.responses.create(model="tools", input="Weather?", conversation=conversation.id)
    waiting = client.responses.create(model="approves", input="Delete it.", conversation={"id": conversation.id})
    answer: ResponseInputParam = [
        {"type": "mcp_approval_response", "approval_request_id": waiting.output[0].id or "", "approve": True}
    ]
    client.responses.create(model="approves", input=answer, conversation=conversation.id)
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.type for item in items] == [
        "message",
        "message",
        "mcp_call",
        "message",
        "message",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "message",
    ]


def test_files(client: OpenAI) -> None:
    """A file is uploaded, listed, read, given to an agent, and deleted."""
    content = bytes(range(256))
    file = client.files.create(file=("notes é.txt", content, "text/plain"), purpose="user_data")
    assert (file.filename, file.bytes, file.purpose) == ("notes é.txt", 256, "user_data")
    assert file.id in [listed.id for listed in client.files.list()]
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).read() == content
    seen: ResponseInputParam = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "See"}, {"type": "input_file", "file_id": file.id}],
        }
    ]
    assert client.responses.create(model="assistant", input=seen).output_text == "You said with file: See"
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)


def test_models(client: OpenAI) -> None:
    """Agents are models, and so are the models that an agent lets a request choose."""
    names = [model.id for model in client.models.list()]
    assert names[0] == "assistant"
    assert {"tools", "assistant-large"} <= set(names)
    assert client.models.retrieve("tools").id == "tools"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")
    response = client.responses.create(model="assistant-large", input="Tell me which model you are.")
    assert (response.model, response.output_text) == ("assistant-large", "I am assistant-large.")


async def test_the_async_client(async_client: AsyncOpenAI) -> None:
    """The async client pages likewise."""
    conversation = await async_client.conversations.create(
        items=[{"type": "message", "role": "user", "content": f"n{n}"} for n in range(5)]
    )
    items = [item async for item in async_client.conversations.items.list(conversation.id, limit=2)]
    assert len(items) == 5
