"""Whether and as what a start becomes a run: agent, session, place in the chain, policies.

Pure decisions, apart from the store reads they rest on. The engine calls this with the session's lock held.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from runstone.core.commands import Start
from runstone.core.events import ApprovalRequested
from runstone.core.items import Item, Message, ToolCall, ToolResult
from runstone.core.runs import Decision, PendingApproval
from runstone.core.transcript import HistoryRow
from runstone.errors import InvalidRequest, NotFound, Unsupported
from runstone.runners.base import Runner


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The agent that answers, and the model asked for: an override, or a mere label that is echoed."""

    agent: str
    model: str | None
    is_override: bool = False


def choose_agent(agents: Mapping[str, Runner], word: str | None, *, default: str) -> Choice:
    """What the wire's `model` means here.

    An agent's name picks it. Another word is a model override if the default agent takes one; with a single agent that does
    not say which models it knows, it is a label.

    Raises:
        NotFound: none of that.
    """
    if word is None or word in agents:
        return Choice(agent=word or default, model=word)
    capabilities = agents[default].capabilities
    if capabilities.models.level != "none" and (not capabilities.model_names or word in capabilities.model_names):
        return Choice(agent=default, model=word, is_override=True)
    if len(agents) == 1 and not capabilities.model_names:
        return Choice(agent=default, model=word)
    error = NotFound("model", word, param="model", code="model_not_found")
    names = [*agents, *capabilities.model_names]
    error.message = f"No model or agent is called {word!r}; there are {', '.join(map(repr, names))}."
    raise error


def fingerprint(start: Start, agent: str) -> str:
    """What a start asks for, as a word to compare: its surface, agent and body."""
    digest = hashlib.sha256()
    for part in (start.surface.encode(), agent.encode(), start.body):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def split_answers(
    start: Start, pending: Sequence[PendingApproval | ApprovalRequested]
) -> tuple[list[Item], list[Decision]]:
    """The input without what answers an approval that is pending, and all of the start's decisions."""
    if not pending:
        return start.input, start.decisions
    by_call = {asked.call_id: asked for asked in pending if asked.call_id}
    by_id = {asked.approval_id: asked for asked in pending}
    decisions = list(start.decisions)
    rest: list[Item] = []
    for item in start.input:
        if not isinstance(item, ToolResult):
            rest.append(item)
            continue
        asked = by_call.get(item.call_id) or by_id.get(item.call_id)
        if asked is None:
            rest.append(item)
            continue
        decisions.append(
            Decision(
                approval_id=asked.approval_id,
                decision="answered",
                value=item.text,
                native=(item.native or {}).get(start.surface),
            )
        )
    return rest, decisions


def check_results(items: list[Item], open_calls: set[str]) -> None:
    """See that each tool result of a request answers a call: one before it in the request, or one the client was left with.

    Raises:
        InvalidRequest: one answers nothing.
    """
    known = set(open_calls)
    for n, item in enumerate(items):
        if isinstance(item, ToolCall):
            known.add(item.call_id)
        elif isinstance(item, ToolResult) and item.call_id not in known:
            raise InvalidRequest(
                f"No call {item.call_id!r} waits for a result.", param=f"input[{n}].call_id", code="call_not_found"
            )


def check_tools(start: Start, runner: Runner) -> None:
    """See that an explicit demand for client tools can be met.

    Raises:
        Unsupported: `tool_choice` demands a call, and the agent does not use the client's tools.
    """
    choice = start.settings.tool_choice
    demanded = choice == "required" or isinstance(choice, dict)
    if demanded and runner.capabilities.client_tools.level == "none":
        raise Unsupported(
            "This agent does not call the client's tools, so `tool_choice` cannot demand one.",
            capability="client_tools",
            param="tool_choice",
        )


def check_recovery(start: Start, runner: Runner) -> None:
    """See that the run can be gone on with after a crash when that is asked for.

    Raises:
        Unsupported: the agent keeps no checkpoints.
    """
    checkpoints = runner.capabilities.checkpoints
    if start.recovery == "resume" and checkpoints.level == "none":
        raise Unsupported(
            f"This agent cannot go on after a crash: {checkpoints.reason}; `retry` begins again.",
            capability="recovery",
            param="recovery",
        )


def check_branch(runner: Runner) -> None:
    """See that the agent can answer a turn again, or another turn than the next.

    Raises:
        Unsupported: it keeps what was said itself.
    """
    regenerate = runner.capabilities.regenerate
    if regenerate.level == "none":
        raise Unsupported(f"Earlier turns cannot be answered again: {regenerate.reason}.", capability="regenerate")


def new_input(items: list[Item]) -> list[Item]:
    """Of a request that repeats the history: what follows the last message of the assistant and its calls."""
    last = -1
    for n, item in enumerate(items):
        if (isinstance(item, Message) and item.role == "assistant") or isinstance(item, ToolCall):
            last = n
    return items[last + 1 :]


def repeated(items: list[Item]) -> list[tuple[str, str]]:
    """The part of a request that repeats the history, as (role, text) to compare."""
    new = len(new_input(items))
    return spoken(items[: len(items) - new])


def spoken(items: list[Item]) -> list[tuple[str, str]]:
    """The words of user and assistant, each side's neighbouring messages joined, spaces at the ends ignored."""
    words: list[tuple[str, str]] = []
    for item in items:
        _say(words, item)
    return [word for word in words if word[1]]


def _say(words: list[tuple[str, str]], item: Item) -> None:
    if not isinstance(item, Message) or item.role not in ("user", "assistant"):
        return
    text = item.text.strip()
    if words and words[-1][0] == item.role:
        words[-1] = (item.role, f"{words[-1][1]}\n\n{text}".strip())
    else:
        words.append((item.role, text))


def run_that_ends_with(said: list[tuple[str, str]], rows: list[HistoryRow]) -> str | None:
    """The newest run of a chain at whose end exactly `said` had been said; `rows` are the chain's, in order of turns."""
    words: list[tuple[str, str]] = []
    found: str | None = None
    last: str | None = None
    for row in [*rows, None]:
        run_id = None if row is None else row.run_id
        if last is not None and run_id != last and words and words[-1] == said[-1]:
            found = last if [word for word in words if word[1]] == said else found
        if row is not None:
            _say(words, row.item)
            last = run_id
    return found
