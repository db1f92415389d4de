"""An agent that asks before it acts.

runstone run examples/approval_agent.py
"""

from __future__ import annotations

from typing import Any

from runstone.runners.agent_context import AgentContext
from runstone.runners.function import agent as declare


@declare(approvals=True)
async def agent(messages: list[dict[str, Any]], context: AgentContext) -> str:
    """Sends a mail, if it may; what was decided is what is sent."""
    to = await context.ask("To whom?", choices=["anna", "ben"])
    if to is None:
        return "Then I send nothing."
    answer = await context.approve("send_mail", {"to": to, "text": context.input_text}, prompt=f"Send this to {to}?")
    if not answer.approved:
        return f"I did not send it ({answer.reason or answer.decision})."
    async with context.tool("send_mail", answer.arguments, answer.call_id) as call:
        call.result({"sent": True})
    return f"Sent to {answer.arguments['to']}: {answer.arguments['text']}"
