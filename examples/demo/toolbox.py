"""What the demo agent can do beside talking.

A tool is an async function: it takes the running call, through which it may say how far it is, and its arguments; it returns
a sentence. Sentences, because they serve both models: the large one reads them, the small one repeats them word for word.
"""

from __future__ import annotations

import ast
import asyncio
import operator
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol


class Progress(Protocol):
    """The part of a running call that a tool may use."""

    def progress(self, data: Any) -> None:
        """Show `data` to whoever watches the run."""


@dataclass(frozen=True)
class Tool:
    """A function that a model may call. `needs_approval`: a person has to agree first."""

    run: Callable[..., Awaitable[str]]
    description: str
    properties: dict[str, Any] = field(default_factory=dict)
    needs_approval: bool = False

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": self.properties,
            "required": list(self.properties),
            "additionalProperties": False,
        }


async def introduce(call: Progress) -> str:
    """What the agent can do."""
    return (
        "I am the demo agent of Runstone. I talk, tell the time, calculate, count, roll dice, wait, "
        "and delete things, which I only pretend to do and only after asking you. What shall we do?"
    )


async def clock(call: Progress) -> str:
    """Time and date where the server runs."""
    return f"It is {datetime.now().astimezone():%H:%M on %A, %d %B %Y (%Z)}."


async def count(call: Progress, number: int) -> str:
    """The numbers from 1 up."""
    return ", ".join(str(n) for n in range(1, min(int(number), 100) + 1)) + "."


async def roll_dice(call: Progress, dice: int, sides: int) -> str:
    """Some dice, thrown."""
    dice, sides = min(max(int(dice), 1), 20), max(int(sides), 2)
    thrown = [random.randint(1, sides) for _ in range(dice)]
    if dice == 1:
        return f"The die shows {thrown[0]}."
    return f"The dice show {', '.join(map(str, thrown[:-1]))} and {thrown[-1]}, together {sum(thrown)}."


async def wait(call: Progress, seconds: int) -> str:
    """Some time, a second after the other: something to watch, to cut off and to stop."""
    seconds = min(max(int(seconds), 0), 120)
    for second in range(1, seconds + 1):
        await asyncio.sleep(1)
        call.progress({"seconds": second, "of": seconds})
    return f"I waited for {seconds} seconds."


async def delete(call: Progress, name: str) -> str:
    """Nothing is deleted: it stands for what a real agent should not do without being told to."""
    return f"{name} is deleted (not really, this is a demo)."


async def calculate(call: Progress, expression: str) -> str:
    """The value of an arithmetic expression."""
    return f"{expression} = {_value(ast.parse(expression.replace('^', '**'), mode='eval').body):.12g}."


_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    # On floats a large power is an error at once; on integers it would be hours of work.
    ast.Pow: lambda base, exponent: float(base) ** float(exponent),
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _value(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
    raise ValueError("only numbers and + - * / % ^ ( ) can be calculated")


TOOLS = {
    "introduce": Tool(introduce, "Say who this agent is and what it can do."),
    "clock": Tool(clock, "The present time and date."),
    "count": Tool(count, "Count from 1 to a number.", {"number": {"type": "integer"}}),
    "roll_dice": Tool(roll_dice, "Roll dice.", {"dice": {"type": "integer"}, "sides": {"type": "integer"}}),
    "wait": Tool(wait, "Wait for some seconds.", {"seconds": {"type": "integer"}}),
    "calculate": Tool(calculate, "Calculate, for example 12 * (3 + 4).", {"expression": {"type": "string"}}),
    "delete": Tool(delete, "Delete something by its name.", {"name": {"type": "string"}}, needs_approval=True),
}
