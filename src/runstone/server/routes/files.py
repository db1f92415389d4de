"""Files: bytes that a client uploads once and names in later requests.

Rule: a name is something to show, never a path; content goes out as a download that no browser interprets.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from runstone.errors import InvalidRequest, NotFound
from runstone.server.calls import Call
from runstone.server.errors import HttpError, JsonResponse
from runstone.server.limits import Gone, check_length, counted
from runstone.server.routing import Route
from runstone.storage.base import FileRecord

PURPOSES: Final = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
_MAX_NAME: Final = 255
#: Boundaries and part headers around the file.
_FORM_OVERHEAD: Final = 64 * 1024
_MAX_PAGE: Final = 10_000


async def upload(call: Call) -> JsonResponse:
    """Keep a file."""
    most = call.config.server.max_upload_bytes + _FORM_OVERHEAD
    check_length(call.request, most)
    if not call.request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise HttpError(415, "Files are uploaded as multipart/form-data.", code="unsupported_media_type")
    form = await _form(Request(call.request.scope, counted(call.request.receive, most)))
    try:
        file, purpose = (form.get(name) for name in ("file", "purpose"))
        if not isinstance(file, UploadFile):
            raise InvalidRequest("'file' is missing.", param="file", code="missing_required_parameter")
        if purpose not in PURPOSES:
            raise InvalidRequest(f"'purpose' has to be one of {', '.join(PURPOSES)}.", param="purpose")
        return JsonResponse(_file(await _kept(call, file, str(purpose))))
    finally:
        await form.close()


async def _form(request: Request) -> FormData:
    """The form; what is large in it lies on disk.

    Raises:
        InvalidRequest: it is malformed, or has more than one file.
        LimitExceeded: it is too large.
    """
    try:
        return await request.form(max_files=1, max_fields=20)
    except ClientDisconnect as e:
        raise Gone from e
    except (MultiPartException, LookupError, ValueError) as e:
        raise InvalidRequest("The body is not a valid form with one file.", code="invalid_form") from e


async def _kept(call: Call, file: UploadFile, purpose: str) -> FileRecord:
    content = await file.read()
    record = FileRecord(
        id=call.engine.ids.new("file").replace("_", "-", 1),
        owner=call.owner,
        name=shown_name(file.filename),
        purpose=purpose,
        size_bytes=len(content),
        created_at=call.engine.clock(),
        blob=await call.engine.blobs.files.put(call.owner, content),
        media_type=file.content_type,
    )
    await call.engine.store.create_file(record)
    return record


def shown_name(given: str | None) -> str:
    """A client's name for a file, fit to be shown: its last segment, without what cannot be printed."""
    name = (given or "").replace("\\", "/").rpartition("/")[2]
    printable = "".join(c for c in name if c.isprintable())[:_MAX_NAME]
    return printable if printable.strip(". ") else "file"


def _file(record: FileRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "object": "file",
        "bytes": record.size_bytes,
        "created_at": int(record.created_at),
        "filename": record.name,
        "purpose": record.purpose,
        "status": "processed",
    }


async def _record(call: Call) -> FileRecord:
    record = await call.engine.store.file(call.owner, call.params["id"])
    if record is None:
        raise NotFound("file", call.params["id"])
    return record


async def list_files(call: Call) -> JsonResponse:
    """A page of the owner's files, newest first unless `order=asc`."""
    limit = call.number("limit", default=_MAX_PAGE, most=_MAX_PAGE)
    query_params = call.request.query_params
    order, after = query_params.get("order", "desc"), query_params.get("after")
    if order not in ("asc", "desc"):
        raise InvalidRequest(f"'order' is {order[:80]!r}; expected asc or desc.", param="order")
    if after is not None and await call.engine.store.file(call.owner, after) is None:
        raise NotFound("file", after, param="after")
    found = await call.engine.store.files(
        call.owner, limit=limit + 1, after=after, purpose=query_params.get("purpose"), newest_first=order == "desc"
    )
    data = [_file(record) for record in found[:limit]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return JsonResponse(
        {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": len(found) > limit}
    )


async def retrieve(call: Call) -> JsonResponse:
    """What is known of a file."""
    return JsonResponse(_file(await _record(call)))


async def content(call: Call) -> Response:
    """The bytes."""
    record = await _record(call)
    body = await call.engine.blobs.content(call.owner, record.blob)
    return Response(
        body,
        media_type="application/octet-stream",
        headers={
            "content-disposition": f"attachment; filename*=UTF-8''{quote(record.name, safe='')}",
            "x-content-type-options": "nosniff",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )


async def delete(call: Call) -> JsonResponse:
    """Forget a file. Messages that showed it keep what they showed."""
    record = await _record(call)
    await call.engine.store.delete_file(call.owner, record.id)
    return JsonResponse({"id": record.id, "object": "file", "deleted": True})


ROUTES: Final = [
    Route(method="POST", path="/v1/files", handler=upload),
    Route(method="GET", path="/v1/files", handler=list_files),
    Route(method="GET", path="/v1/files/{id}", handler=retrieve),
    Route(method="DELETE", path="/v1/files/{id}", handler=delete),
    Route(method="GET", path="/v1/files/{id}/content", handler=content),
]
