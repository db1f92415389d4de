"""Runstone serves an agent over every protocol that agent front ends speak, with durable runs behind all of them."""

__version__ = "0.1.0"
