"""Runs and what is counted of them."""

from __future__ import annotations

from runstone.core.runs import Usage


def test_a_total_is_never_below_its_parts() -> None:
    """A step that says no total counts with the sum of its parts as soon as another step says one."""
    said = Usage(input_tokens=1, output_tokens=2, total_tokens=3)
    unsaid = Usage(input_tokens=10, output_tokens=20)
    assert said.plus(unsaid).total_tokens == 33
    assert unsaid.plus(said).total_tokens == 33
    assert unsaid.plus(unsaid) == Usage(input_tokens=20, output_tokens=40)
    assert Usage().plus(Usage(cached_tokens=1)) == Usage(cached_tokens=1)
