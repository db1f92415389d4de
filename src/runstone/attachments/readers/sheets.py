"""Workbooks: the stored values of each sheet. Formulas are not computed and links are not followed."""

from __future__ import annotations

import datetime
import io
from collections.abc import Iterable

from runstone.attachments.limits import Limits
from runstone.attachments.readers.archive import check_package
from runstone.attachments.reading import Findings, TextGatherer

# The format's own limit; a row number beyond it is a lie that would be filled up with empty rows.
_MAX_ROWS = 1_048_576


def read_xlsx(content: bytes, limits: Limits) -> Findings:
    """Each sheet under a line `Sheet: NAME`, a line per row that has a value, cells parted by tabs."""
    check_package(content, limits)
    import openpyxl
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

    workbook = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True, keep_links=False)
    gatherer = TextGatherer(limits.max_text_chars)
    for sheet in workbook.worksheets:
        gatherer.add(f"Sheet: {sheet.title}\n")
        if isinstance(sheet, ReadOnlyWorksheet):
            # The declared size is often wrong, in good faith or not.
            sheet.reset_dimensions()
        _add_rows(sheet.iter_rows(values_only=True), gatherer)
        gatherer.add("\n")
        if gatherer.is_full:
            break
    findings = gatherer.findings()
    findings.details["sheets"] = len(workbook.worksheets)
    return findings


def _add_rows(rows: Iterable[Iterable[object]], gatherer: TextGatherer) -> None:
    for number, row in enumerate(rows):
        line = "\t".join(_cell(value) for value in row).rstrip("\t")
        if line:
            gatherer.add(line + "\n")
        if gatherer.is_full or number >= _MAX_ROWS:
            return


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return " ".join(str(value).split())
