"""Presentations: the text of each slide in order, its tables and its notes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from runstone.attachments.limits import Limits
from runstone.attachments.readers.archive import check_package
from runstone.attachments.reading import Findings, TextGatherer

if TYPE_CHECKING:
    from pptx.shapes.base import BaseShape
    from pptx.slide import Slide


def read_pptx(content: bytes, limits: Limits) -> Findings:
    """The text of the first `limits.max_pages` slides, each under a line `Slide N`; `pages` counts all of them."""
    check_package(content, limits)
    import pptx

    slides = pptx.Presentation(io.BytesIO(content)).slides
    gatherer = TextGatherer(limits.max_text_chars)
    for number, slide in enumerate(slides, start=1):
        if number > limits.max_pages or gatherer.is_full:
            break
        gatherer.add(f"Slide {number}\n")
        for line in _lines(slide):
            gatherer.add(line.replace("\v", "\n") + "\n")
        gatherer.add("\n")
    findings = gatherer.findings()
    findings.pages = len(slides)
    if len(slides) > limits.max_pages:
        findings.truncated = True
        findings.warnings.append(f"Only the first {limits.max_pages} of {len(slides)} slides were read.")
    return findings


def _lines(slide: Slide) -> Iterator[str]:
    yield from _shape_lines(slide.shapes)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text
        if notes.strip():
            yield f"Notes: {notes}"


def _shape_lines(shapes: Iterable[BaseShape]) -> Iterator[str]:
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.shapes.group import GroupShape

    for shape in shapes:
        if isinstance(shape, GroupShape):
            yield from _shape_lines(shape.shapes)
        elif isinstance(shape, Shape):
            if shape.text_frame.text.strip():
                yield shape.text_frame.text
        elif isinstance(shape, GraphicFrame) and shape.has_table:
            for row in shape.table.rows:
                yield "\t".join(cell.text.replace("\n", " ") for cell in row.cells)
