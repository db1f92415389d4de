"""Hermes: sessions and runs as the Hermes agent API server serves them. Source: docs/protocols/hermes.md."""
