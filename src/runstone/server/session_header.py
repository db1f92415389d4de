"""The header that names a session. Ids may be of any script, headers carry ASCII: there, others are neither told nor taken."""

from __future__ import annotations

from starlette.requests import Request

from runstone.core.ids import SessionId, checked_session_id
from runstone.errors import InvalidRequest
from runstone.protocols.hermes.types import SESSION_HEADER


def session_header(session_id: SessionId) -> dict[str, str]:
    """The header that tells the session; empty when none can."""
    return {SESSION_HEADER: session_id} if session_id.isascii() else {}


def session_of_header(request: Request) -> SessionId | None:
    """The session that a request's header names; None without one.

    Raises:
        InvalidRequest: it is no session id, or not ASCII.
    """
    named = request.headers.get(SESSION_HEADER)
    if not named:
        return None
    if not named.isascii():
        raise InvalidRequest(f"{SESSION_HEADER} is not ASCII; name the session in the body.", param=SESSION_HEADER)
    return checked_session_id(named, param=SESSION_HEADER)
