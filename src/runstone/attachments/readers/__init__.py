"""One file per family of kinds: bytes and limits in, findings out. Runs in the worker only."""
