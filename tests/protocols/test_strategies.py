"""The random runs are what they promise to be."""

from __future__ import annotations

from hypothesis import given

from runstone.core.events import Event, RunEnded
from runstone.core.serde import events_from_json, events_to_json
from runstone.core.transcript import fold
from tests.protocols.strategies import PLAIN, runs


@given(runs())
def test_random_runs_are_legal_and_survive_the_log(events: list[Event]) -> None:
    """A random run folds without a lifecycle error and comes back from the log's JSON as it was."""
    assert fold("run_1", events).last_seq == len(events)
    assert events_from_json(events_to_json(events)) == events


@given(runs(PLAIN))
def test_plain_random_runs_end(events: list[Event]) -> None:
    """Without `open_end` every random run has its one outcome, at the end."""
    assert [isinstance(event.body, RunEnded) for event in events].index(True) == len(events) - 1
