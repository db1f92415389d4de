"""LangGraph graphs as agents: compiled ones, uncompiled ones, and functions that make them."""

from __future__ import annotations

from runstone.runners.langgraph.runner import LangGraphRunner, runner_for

__all__ = ["LangGraphRunner", "runner_for"]
