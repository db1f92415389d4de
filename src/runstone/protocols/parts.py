"""Content parts of OpenAI's protocols, both ways.

Rule: a part comes in by `part_from_wire`, whichever of the two protocols spells it, and goes out by `part_to_chat` or
`part_to_responses`. Nothing is fetched: remote URLs stay references. The stored bytes that are needed to show a part
again are listed by `blobs_of` and handed back as `blobs`.
Source: OpenAI API reference, "Responses", "Chat"; the types of openai-python.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, assert_never
from urllib.parse import unquote_to_bytes

import msgspec

from runstone.core.content import DataPart, FilePart, ImagePart, Part, RefusalPart, TextPart
from runstone.core.items import FileItem, Item, Message, ToolResult
from runstone.errors import (
    InvalidRequest,
)
from runstone.protocols.fields import (
    Json,
    need_object,
    need_str,
    opt_list,
    opt_object,
    opt_str,
    path,
    wrong_type,
)

Blobs = Mapping[str, bytes]

# -- coming in


def parts_from_wire(content: object, at: str) -> list[Part]:
    """The parts of a message's `content`: a string, an array of blocks, or null for none.

    Raises:
        InvalidRequest: a block is malformed or of an unknown type; `param` is its path (`messages[0].content[1].type`).
    """
    match content:
        case None:
            return []
        case str():
            return [TextPart(text=content)]
        case list():
            return [part_from_wire(block, f"{at}[{n}]") for n, block in enumerate(content)]
        case _:
            raise wrong_type(content, at, "a string or an array of content parts")


def part_from_wire(block: object, at: str) -> Part:
    """One content block of Chat or Responses, or of the legacy shapes `{inlineData}`, `{fileData}` and `{text}`."""
    fields = need_object(block, at)
    kind = opt_str(fields, "type", at=at)
    if kind is None:
        kind = next((key for key in _LEGACY if key in fields), None)
        if kind is None:
            need_str(fields, "type", at=at)
    reader = _READERS.get(kind or "")
    if reader is None:
        param = path(at, "type")
        raise InvalidRequest(
            f"{param!r} is {kind!r}; expected one of {', '.join(_READERS)}.",
            param=param,
            code="unsupported_content_type",
        )
    return reader(fields, at)


def _text(block: Json, at: str) -> Part:
    annotations = opt_list(block, "annotations", at=at) or []
    return TextPart(text=need_str(block, "text", at=at), annotations=annotations)


def _refusal(block: Json, at: str) -> Part:
    return RefusalPart(text=need_str(block, "refusal", at=at))


def _image(block: Json, at: str) -> Part:
    """`image_url` is an object in Chat and a string in Responses; both are taken in both."""
    detail = opt_str(block, "detail", at=at)
    key = "image_url"
    value, where = block.get(key), path(at, key)
    if isinstance(value, dict):
        detail = opt_str(value, "detail", at=where) or detail
        value, where = need_str(value, "url", at=where), path(where, "url")
    file_id = opt_str(block, "file_id", at=at)
    if (value is None) == (file_id is None):
        raise InvalidRequest(f"{at!r} needs exactly one of image_url and file_id.", param=at)
    if file_id is not None:
        return ImagePart(file_id=file_id, detail=detail)
    if not isinstance(value, str):
        raise wrong_type(value, where, "a URL")
    if _is_data_url(value):
        media_type, content = bytes_of_data_url(value, where)
        return ImagePart(content=content, media_type=media_type, detail=detail)
    return ImagePart(url=remote_url(value, where), detail=detail)


def _file(block: Json, at: str) -> Part:
    """Chat nests the fields under `file`, Responses has them on the block."""
    nested = opt_object(block, "file", at=at)
    fields, at = (block, at) if nested is None else (nested, path(at, "file"))
    file_id, url, data = (opt_str(fields, key, at=at) for key in ("file_id", "file_url", "file_data"))
    name = opt_str(fields, "filename", at=at)
    if sum(value is not None for value in (file_id, url, data)) != 1:
        raise InvalidRequest(f"{at!r} needs exactly one of file_id, file_url and file_data.", param=at)
    if file_id is not None:
        return FilePart(file_id=file_id, name=name)
    if url is not None:
        return FilePart(url=remote_url(url, path(at, "file_url")), name=name)
    where = path(at, "file_data")
    if _is_data_url(data or ""):
        media_type, content = bytes_of_data_url(data or "", where)
        return FilePart(content=content, media_type=media_type, name=name, is_data_url=True)
    return FilePart(content=bytes_of_base64(data or "", where), name=name)


def _audio(block: Json, at: str) -> Part:
    raise InvalidRequest(
        f"{at!r} is audio, which is not supported; send text, images or files.",
        param=path(at, "type"),
        code="unsupported_content_type",
    )


def _inline_data(block: Json, at: str) -> Part:
    key = "inlineData" if "inlineData" in block else "inline_data"
    at = path(at, key)
    fields = need_object(block[key], at)
    media_type = opt_str(fields, "mimeType", at=at) or opt_str(fields, "mime_type", at=at)
    name = opt_str(fields, "displayName", at=at)
    content = bytes_of_base64(need_str(fields, "data", at=at), path(at, "data"))
    if (media_type or "").startswith("image/"):
        return ImagePart(content=content, media_type=media_type)
    return FilePart(content=content, media_type=media_type, name=name)


def _file_data(block: Json, at: str) -> Part:
    """A `fileUri` without a scheme is the id of an uploaded file."""
    key = "fileData" if "fileData" in block else "file_data"
    at = path(at, key)
    fields = need_object(block[key], at)
    media_type = opt_str(fields, "mimeType", at=at) or opt_str(fields, "mime_type", at=at)
    name = opt_str(fields, "displayName", at=at)
    uri_key = "fileUri" if "fileUri" in fields else "file_uri"
    uri = need_str(fields, uri_key, at=at)
    url, file_id = (remote_url(uri, path(at, uri_key)), None) if ":" in uri else (None, uri)
    if (media_type or "").startswith("image/"):
        return ImagePart(url=url, file_id=file_id, media_type=media_type)
    return FilePart(url=url, file_id=file_id, media_type=media_type, name=name)


#: Blocks without a `type`: the field that says what they are.
_LEGACY: Final = ("inlineData", "inline_data", "fileData", "file_data", "text")
_READERS: Final[dict[str, Callable[[Json, str], Part]]] = {
    "text": _text,
    "input_text": _text,
    "output_text": _text,
    "refusal": _refusal,
    "image_url": _image,
    "input_image": _image,
    "file": _file,
    "input_file": _file,
    "input_audio": _audio,
    "inlineData": _inline_data,
    "inline_data": _inline_data,
    "fileData": _file_data,
    "file_data": _file_data,
}

_REMOTE: Final = re.compile(r"https?://[^\s\x00-\x20\x7f]+", re.IGNORECASE)
_PLACEHOLDER: Final = "..."
_BLANKS: Final = re.compile(r"[ \t\r\n]+")


def remote_url(text: str, param: str) -> str:
    """`text` when it is an http or https URL; it is kept as a reference and never fetched."""
    if _REMOTE.fullmatch(text) is None:
        raise InvalidRequest(
            f"{param!r} is {text[:80]!r}; expected an http, https or data URL.", param=param, code="invalid_url"
        )
    return text


def _is_data_url(text: str) -> bool:
    return text[:5].lower() == "data:"


def bytes_of_data_url(url: str, param: str) -> tuple[str | None, bytes]:
    """Media type (with its parameters, None when there is none) and bytes of a data URL, base64 or percent-encoded.

    Raises:
        InvalidRequest: it is no data URL, or its base64 is broken; `param` is named.
    """
    head, comma, payload = url[5:].partition(",")
    if not comma or not _is_data_url(url):
        raise InvalidRequest(f"{param!r} is {url[:80]!r}; expected a data URL.", param=param, code="invalid_data_url")
    if head[-7:].lower() != ";base64":
        return head or None, unquote_to_bytes(payload)
    if "%" in payload:
        payload = unquote_to_bytes(payload).decode("latin-1")
    return head[:-7] or None, bytes_of_base64(payload, param)


def bytes_of_base64(text: str, param: str) -> bytes:
    """The bytes of base64 text; line breaks in it and missing padding are accepted.

    `...` stands for bytes in the contract's own examples, which are to be accepted as they are written: it is empty content.

    Raises:
        InvalidRequest: it is not base64; `param` is named.
    """
    compact = _BLANKS.sub("", text)
    if compact == _PLACEHOLDER:
        return b""
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as e:
        raise InvalidRequest(f"{param!r} is not valid base64.", param=param, code="invalid_base64") from e


# -- going out


def blobs_of(items: Iterable[Item]) -> set[str]:
    """References of the stored bytes that are needed to show `items`."""
    return {
        part.blob for item in items for part in _parts_of(item) if isinstance(part, (ImagePart, FilePart)) and part.blob
    }


def _parts_of(item: Item) -> list[Part]:
    match item:
        case Message() | FileItem():
            return item.parts
        case ToolResult():
            return item.output
        case _:
            return []


def data_url(media_type: str | None, content: bytes) -> str:
    """`content` as a base64 data URL."""
    return f"data:{media_type or ''};base64,{base64.b64encode(content).decode()}"


def image_address(part: ImagePart, blobs: Blobs) -> str | None:
    """The URL of an image, a data URL for stored bytes; None for a file id, and when its bytes are not in `blobs`."""
    content = _content(part, blobs)
    return part.url if content is None else data_url(part.media_type, content)


def file_address(part: FilePart, blobs: Blobs) -> Json:
    """The fields that say where a file is, spelled as it was sent; empty when its bytes are not in `blobs`."""
    content = _content(part, blobs)
    fields: Json = {}
    if part.file_id is not None:
        fields["file_id"] = part.file_id
    elif part.url is not None:
        fields["file_url"] = part.url
    elif content is not None and part.is_data_url:
        fields["file_data"] = data_url(part.media_type, content)
    elif content is not None:
        fields["file_data"] = base64.b64encode(content).decode()
    if part.name is not None:
        fields["filename"] = part.name
    return fields


def _content(part: ImagePart | FilePart, blobs: Blobs) -> bytes | None:
    return blobs.get(part.blob) if part.blob is not None else part.content


def part_to_chat(part: Part, blobs: Blobs) -> Json:
    """The block that Chat has for `part`; an uploaded image becomes a file block, JSON becomes text."""
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case ImagePart(file_id=str()):
            return {"type": "file", "file": {"file_id": part.file_id}}
        case ImagePart():
            image = {"url": image_address(part, blobs) or ""}
            return {
                "type": "image_url",
                "image_url": image if part.detail is None else {**image, "detail": part.detail},
            }
        case FilePart():
            return {"type": "file", "file": file_address(part, blobs)}
        case DataPart():
            return {"type": "text", "text": json_text(part.data)}
        case _:
            assert_never(part)


def part_to_responses(part: Part, blobs: Blobs, *, output: bool = False) -> Json:
    """The part that Responses has for `part`, of an output message when `output`; JSON becomes text."""
    match part:
        case TextPart() if output:
            return {"type": "output_text", "text": part.text, "annotations": part.annotations, "logprobs": []}
        case TextPart():
            return {"type": "input_text", "text": part.text}
        case RefusalPart():
            return {"type": "refusal", "refusal": part.text}
        case ImagePart():
            image: Json = {"type": "input_image", "detail": part.detail or "auto"}
            address = {"file_id": part.file_id} if part.file_id else {"image_url": image_address(part, blobs)}
            return {**image, **address}
        case FilePart():
            return {"type": "input_file", **file_address(part, blobs)}
        case DataPart():
            return part_to_responses(TextPart(text=json_text(part.data)), blobs, output=output)
        case _:
            assert_never(part)


def json_text(value: object) -> str:
    """`value` as compact JSON text."""
    return msgspec.json.encode(value).decode()
