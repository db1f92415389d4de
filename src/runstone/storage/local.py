"""Leases and commands inside one process: whoever asks owns the run, and a command is a function call."""

from __future__ import annotations

from runstone.storage.base import Command, Receiver


class LocalControl:
    """Control for a server that is alone on its database."""

    def __init__(self) -> None:
        self._owned: set[tuple[str, str]] = set()
        self._receivers: list[Receiver] = []

    async def acquire(self, owner: str, run_id: str) -> bool:
        self._owned.add((owner, run_id))
        return True

    async def release(self, owner: str, run_id: str) -> None:
        self._owned.discard((owner, run_id))

    async def send(self, command: Command) -> bool:
        if (command.owner, command.run_id) not in self._owned:
            return False
        return any(receive(command) for receive in self._receivers)

    def listen(self, receive: Receiver) -> None:
        self._receivers.append(receive)
