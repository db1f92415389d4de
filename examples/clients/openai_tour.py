"""A tour of the demo agent with the official openai package: stream, cut and resume, stop, approve.

    scripts/run                                      in one terminal
    .venv/bin/python examples/clients/openai_tour.py     in another

An address may be given: openai_tour.py http://127.0.0.1:9000
"""

from __future__ import annotations

import sys

from openai import OpenAI

ADDRESS = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
client = OpenAI(base_url=f"{ADDRESS}/v1", api_key="none")


def stream() -> None:
    """Read an answer as it is written."""
    for event in client.responses.create(model="my-agent", input="Why is the sky blue?", stream=True):
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
    print()


def cut_and_resume() -> None:
    """Leave a stream after a few events, and read the rest of it. The agent goes on meanwhile, and is not started again."""
    response_id, seen = "", -1
    with client.responses.create(model="my-agent", input="Tell me about rivers.", stream=True) as events:
        for event in events:
            seen = event.sequence_number
            if event.type == "response.created":
                response_id = event.response.id
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
            if seen == 20:
                break
    print(" [cut] ", end="")
    for event in client.responses.retrieve(response_id, stream=True, starting_after=seen):
        if event.type == "response.output_text.delta":
            print(event.delta, end="", flush=True)
    print()


def stop() -> None:
    """End a run that somebody else started."""
    started = client.responses.create(model="my-agent", input="Wait 60 seconds.", background=True)
    stopped = client.responses.cancel(started.id)
    print(started.status, "->", stopped.status)


def approve() -> None:
    """Answer the question that a run waits on."""
    waiting = client.responses.create(model="my-agent", input="Delete notes.txt")
    (asked,) = [item for item in waiting.output if item.type == "mcp_approval_request"]
    print(asked.name, asked.arguments)
    done = client.responses.create(
        model="my-agent",
        previous_response_id=waiting.id,
        input=[{"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}],
    )
    print(done.output_text)


if __name__ == "__main__":
    for part in (stream, cut_and_resume, stop, approve):
        print(f"== {part.__name__}")
        part()
