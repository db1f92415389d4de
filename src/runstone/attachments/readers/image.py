"""Images: what they measure. The pixels are never decoded, so a picture that is huge when decoded does no harm."""

from __future__ import annotations

import io

from runstone.attachments.kinds import look
from runstone.attachments.limits import Limits
from runstone.attachments.reading import Findings

# Named one by one: the library knows dozens of formats, and some of them start other programs.
_FORMATS = {
    "png": "PNG",
    "jpeg": "JPEG",
    "gif": "GIF",
    "webp": "WEBP",
    "bmp": "BMP",
    "tiff": "TIFF",
    "ico": "ICO",
    "avif": "AVIF",
}
_UNMEASURED = "The dimensions of the image could not be told."


def read_image(content: bytes, limits: Limits) -> Findings:
    """Format, width and height in pixels; no text."""
    image_format = look(content).format
    findings = Findings(details={"format": image_format})
    if image_format not in _FORMATS:
        findings.warnings.append(_UNMEASURED)
        return findings
    from PIL import Image

    # The library's guard against decoding bombs would refuse here, before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(io.BytesIO(content), formats=[_FORMATS[image_format]]) as picture:
        findings.details |= {"width": picture.width, "height": picture.height}
    return findings
