"""Every error Runstone raises on purpose, in one tree.

    RunstoneError
      ConfigError                 .option; raised at start, never later
      RequestError                the caller can mend it
        InvalidRequest            .param
        NotAllowed                no or wrong credentials, or not theirs
        LimitExceeded             .limit .value
        NotFound                  .kind .id
        Conflict                  RunActive, RunEnded, AlreadyDecided, IdempotencyConflict
        CursorExpired             .oldest
        CursorUnknown             .cursor
        Unsupported               .capability
      ProtocolError
        LocalProtocolError        we were about to send something illegal: our bug
        RemoteProtocolError       the other side did
      RunnerError                 the agent raised; cause kept, detail not shown to callers
      BackendError                .status; BackendTimeout, BackendUnavailable
      StorageError                StorageUnavailable, AppendConflict, NotStorable, LeaseLost

Rule: a message names the value and what was expected, and never carries a path, a foreign exception's text or another
user's data. `code` is a stable word that callers may match on.
"""

from __future__ import annotations

from typing import Final

#: Names of the limits whose breach has a status of its own on a wire: 413 and 429.
BODY_LIMIT: Final = "body_bytes"
RATE_LIMIT: Final = "active_runs"


class RunstoneError(Exception):
    """Base of all; `code` is a stable word, `message` is fit to be shown to the caller."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class ConfigError(RunstoneError):
    """A setting or a target is wrong; raised at start, never later."""

    code = "config_error"

    def __init__(self, message: str, *, option: str | None = None) -> None:
        super().__init__(message)
        self.option = option


#: What a caller sent is shown to it, but not a megabyte of it.
_LONGEST_MESSAGE = 1_000


class RequestError(RunstoneError):
    """The caller can mend it. A long message is cut."""

    code = "invalid_request"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        is_long = len(message) > _LONGEST_MESSAGE
        super().__init__(f"{message[:_LONGEST_MESSAGE]}..." if is_long else message, code=code)


class InvalidRequest(RequestError):
    """A value in the request is not what was expected; `param` names it, None when it is the whole body."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.param = param


class NotAllowed(RequestError):
    """No credentials, wrong ones, or a caller that may not do this."""

    code = "not_allowed"


class LimitExceeded(RequestError):
    """Something is larger than a limit; `limit` is its name, `value` the largest allowed."""

    code = "limit_exceeded"

    def __init__(self, message: str, *, limit: str, value: float, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.limit = limit
        self.value = value


class NotFound(RequestError):
    """Nothing of that kind has that id for this owner; also the answer for another owner's id."""

    code = "not_found"

    def __init__(self, kind: str, id: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(f"No {kind} has the id {id!r}.", code=code or f"{kind}_not_found")
        self.kind = kind
        self.id = id
        self.param = param


class Conflict(RequestError):
    """The state of the thing does not allow this now; `run_id` names the run that stands in the way, if one does."""

    code = "conflict"

    def __init__(self, message: str, *, run_id: str | None = None, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.run_id = run_id


class RunActive(Conflict):
    """A run of the session is queued or running; `run_id` is that run."""

    code = "run_active"


class RunEnded(Conflict):
    """The run has its outcome already."""

    code = "run_ended"


class AlreadyDecided(Conflict):
    """The approval is not pending: decided, expired or withdrawn before."""

    code = "already_decided"


class IdempotencyConflict(Conflict):
    """The key or the run id was used before with another body."""

    code = "idempotency_conflict"


class CursorExpired(RequestError):
    """The events after the cursor are no longer kept; `oldest` is the oldest cursor that still works, None if none does."""

    code = "cursor_expired"

    def __init__(self, cursor: str, *, oldest: str | None) -> None:
        where = f"the oldest one kept is {oldest!r}" if oldest is not None else "none is kept any more"
        super().__init__(f"The events after {cursor!r} are no longer kept; {where}.")
        self.cursor = cursor
        self.oldest = oldest


class CursorUnknown(RequestError):
    """No event of this log has the cursor."""

    code = "cursor_unknown"

    def __init__(self, cursor: str, *, expected: str) -> None:
        super().__init__(f"{cursor!r} is not a cursor of this stream; expected {expected}.")
        self.cursor = cursor


class Unsupported(RequestError):
    """The agent or the server does not offer this; `capability` names it."""

    code = "unsupported"

    def __init__(self, message: str, *, capability: str, param: str | None = None) -> None:
        super().__init__(message)
        self.capability = capability
        self.param = param


class ProtocolError(RunstoneError):
    """Something on a wire, or about to go there, breaks the protocol."""

    code = "protocol_error"


class LocalProtocolError(ProtocolError):
    """We, a runner or a codec were about to say something illegal: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The other side said something illegal."""


class RunnerError(RunstoneError):
    """The agent failed. `message` may be shown; the cause is kept for the log only."""

    code = "agent_error"


class BackendError(RunstoneError):
    """A backend behind a protocol failed; `status` is its HTTP status, None when there was no answer."""

    code = "backend_error"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BackendTimeout(BackendError):
    """The backend did not answer in time."""


class BackendUnavailable(BackendError):
    """The backend could not be reached."""


class StorageError(RunstoneError):
    """The store failed."""

    code = "storage_error"


class StorageUnavailable(StorageError):
    """The store cannot be used now (locked, full, read-only, gone); trying again later may work."""

    code = "storage_unavailable"


class AppendConflict(StorageError):
    """Another owner wrote to the log of this run: numbers would repeat."""


class NotStorable(StorageError):
    """A value holds what the log cannot carry: no JSON, a lone surrogate, too deep. Only this write is lost."""

    code = "not_storable"


class LeaseLost(StorageError):
    """This process no longer owns the run."""
