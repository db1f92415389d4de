"""Where runs, sessions and events are kept; one file a backend, one contract suite for all (tests/storage)."""
