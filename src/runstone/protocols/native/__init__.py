"""The events as the log has them, and streams of a whole session. Source: docs/protocols/native.md."""
