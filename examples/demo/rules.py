"""Which words of the user mean which tool.

A model of 135 million parameters cannot call tools: it garbles names and numbers. So beside the small model, rules decide.
The first pattern that is found in the text wins; its named groups are the arguments of the tool.
"""

from __future__ import annotations

import re

_NUMBERS = dict(
    zip(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], range(1, 11), strict=True)
)
_NUMBER = rf"\d{{1,9}}|{'|'.join(_NUMBERS)}"
_CALCULATION = r"[\d.(+-][\d\s.()+*/%^-]*[+*/%^-][\d\s.()+*/%^-]*[\d)]"

#: (tool, pattern, what its arguments are when the words do not say)
_RULES: list[tuple[str, str, dict[str, str | int]]] = [
    ("introduce", r"\bwho are you\b|\bwhat (?:can you|you can|this agent can|does this agent) do\b|^help\b", {}),
    ("introduce", r"^(?:hi|hello|hey)(?: there)?\W*$", {}),
    ("introduce", r"^你好\W*$|你是谁|你能做什么|你会做什么", {}),
    ("delete", r"\b(?:delete|erase|remove)\s+(?P<name>[^?!]+?)[\s.!?]*$", {}),
    ("delete", r"删除\s*(?P<name>\S+?)[。!?]*$", {}),
    ("wait", rf"\bwait\b\D*?(?P<seconds>{_NUMBER})\b", {}),
    ("wait", r"等待?\s*(?P<seconds>\d{1,3})\s*秒", {}),
    ("roll_dice", r"\b(?P<dice>\d{1,2})d(?P<sides>\d{1,3})\b", {}),
    ("roll_dice", rf"\b(?:roll|throw)\b(?:.*?\b(?P<dice>{_NUMBER}))?.*?\b(?:dice|die)\b|骰子", {"dice": 1, "sides": 6}),
    ("count", rf"\bcount\b.*?\bto (?P<number>{_NUMBER})\b", {}),
    ("clock", r"\bwhat time\b|\bwhat day\b|\bwhat(?:'s| is) the (?:current )?(?:time|date)\b|几点|几号|日期", {}),
    (
        "calculate",
        rf"(?:^|\bcalculate|\bcompute|\bwhat(?:'s| is)|\bhow much is)\s*(?P<expression>{_CALCULATION})[\s=?.]*$",
        {},
    ),
]


def tool_for(text: str) -> tuple[str, dict[str, str | int]] | None:
    """The tool that `text` asks for and its arguments; None when it asks for none."""
    for name, pattern, defaults in _RULES:
        if (found := re.search(pattern, text.strip(), re.IGNORECASE)) is not None:
            said = {key: _argument(value) for key, value in found.groupdict().items() if value is not None}
            return name, {**defaults, **said}
    return None


def _argument(words: str) -> str | int:
    number = _NUMBERS.get(words.lower())
    return number if number is not None else int(words) if words.isascii() and words.isdigit() else words
