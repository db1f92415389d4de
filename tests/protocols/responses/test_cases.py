"""Golden streams: the frames of an event are a contract, and changing them is a new encoder version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runstone.core.events import Event
from runstone.protocols.responses.encode import VERSION, response_body
from tests.protocols.responses.support import check_event, header_of, stream

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    """A case: leg, reader's style, the run's events, and what the stream says."""
    case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return case


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case(path: Path) -> None:
    """The events give exactly these frames, and the body of the leg is what the last one says."""
    case = read(path)
    header = header_of(case["leg"]["index"], case["leg"]["first_seq"], echo=case["leg"]["echo"])
    events = msgspec.convert(case["events"], list[Event])
    frames = stream(header, events, **case["style"])
    said = [[frame.event, "[DONE]" if frame.event is None else json.loads(frame.data)] for frame in frames]
    assert said == case["frames"]
    assert response_body(header, events, **case["style"]) == case["frames"][-2][1]["response"]


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_case_is_official(path: Path) -> None:
    """The official client's models take every event of the `openai` dialect strictly."""
    case = read(path)
    if "dialect" not in case["style"]:
        for _, event in case["frames"][:-1]:
            check_event(event)


def test_cases_are_of_this_version() -> None:
    """The cases were written for version 1 of the encoder."""
    assert VERSION == 1
    assert len(CASES) > 20
