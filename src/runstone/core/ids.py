"""How ids look. Nothing here makes one: ids come from clients, frameworks or the engine's id source.

Rule: an id that comes from outside passes through one of these checks before it reaches the engine.
"""

from __future__ import annotations

import re
from typing import Final

from runstone.errors import InvalidRequest

Owner = str
RunId = str
SessionId = str
ItemId = str
CallId = str
ApprovalId = str

LOCAL_OWNER: Final = "local"

_RUN_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_SESSION_ID = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff/\\?#]{1,256}")


def checked_run_id(text: str, *, param: str = "run_id") -> RunId:
    """`text` when it may be a run id.

    Raises:
        InvalidRequest: it is not 1 to 128 characters of `A-Z a-z 0-9 _ . : -`.
    """
    if _RUN_ID.fullmatch(text) is None or text in {".", ".."}:
        raise InvalidRequest(
            f"{text[:140]!r} is not a run id; expected 1 to 128 characters of A-Z a-z 0-9 _ . : -",
            param=param,
            code="invalid_run_id",
        )
    return text


def checked_session_id(text: str, *, param: str = "session_id") -> SessionId:
    r"""`text` when it may be a session id.

    Raises:
        InvalidRequest: it is empty, longer than 256 characters, `.` or `..`, or has a control character, `/`, `\`, `?`, `#`.
    """
    if _SESSION_ID.fullmatch(text) is None or text in {".", ".."}:
        raise InvalidRequest(
            f"{text[:140]!r} is not a session id; expected 1 to 256 printable characters without / \\ ? #",
            param=param,
            code="invalid_session_id",
        )
    return text
