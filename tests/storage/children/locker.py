"""Holds the write lock of a database until it is told to go on."""

import sqlite3
import sys


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
say("locked")
sys.stdin.readline()
connection.execute("COMMIT")
say("free")
sys.stdin.readline()
