"""Control inside one process."""

from __future__ import annotations

from runstone.storage.base import Command
from runstone.storage.local import LocalControl

STOP = Command(kind="stop", owner="ann", run_id="r1")


async def test_a_command_reaches_the_owner_of_its_run() -> None:
    """While the run is owned, its commands are received and the receiver's answer is given back."""
    control, received = LocalControl(), []

    def receive(command: Command) -> bool:
        received.append(command)
        return command.kind == "stop"

    control.listen(receive)
    assert await control.acquire("ann", "r1")
    assert await control.send(STOP)
    assert not await control.send(Command(kind="steer", owner="ann", run_id="r1"))
    assert [command.kind for command in received] == ["stop", "steer"]


async def test_a_run_that_nobody_owns_gets_no_command() -> None:
    """Neither before it was acquired, nor after its release, nor for another owner's run of that id."""
    control = LocalControl()
    control.listen(lambda command: True)
    assert not await control.send(STOP)
    await control.acquire("bob", "r1")
    assert not await control.send(STOP)
    await control.acquire("ann", "r1")
    await control.release("ann", "r1")
    assert not await control.send(STOP)
