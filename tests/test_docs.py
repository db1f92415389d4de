"""The docs say what the code does: every event, item, error and setting, and every command that is shown."""

from __future__ import annotations

import ast
import re
import tomllib
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runstone import errors
from runstone.cli import parser
from runstone.config import setting_names
from runstone.core import content, events, items

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
_ROW = re.compile(r"^\| `([^`]+)`")
_DEFAULT = re.compile(r"^\| `([^`]+)` \| = ")


def sections(path: Path, chapter: str) -> dict[str, str]:
    """The text of each `###` section of one `##` chapter, by the word in its heading."""
    whole = path.read_text(encoding="utf-8")
    text = re.split(r"^## ", whole, flags=re.MULTILINE)
    (body,) = [part for part in text if part.startswith(f"{chapter}\n")]
    parts = re.split(r"^### `([^`]+)`.*\n", body, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows(text: str, pattern: re.Pattern[str] = _ROW) -> set[str]:
    """What stands in backticks at the beginning of table rows."""
    return {found[1] for line in text.splitlines() if (found := pattern.match(line))}


def structs(union: Any) -> dict[str, type[msgspec.Struct]]:
    """The members of a union by their tag."""
    return {str(kind.__struct_config__.tag): kind for kind in typing.get_args(union)}


def with_default(fields: tuple[msgspec.structs.FieldInfo, ...]) -> set[str]:
    """The fields that may be left out."""
    return {field.name for field in fields if not field.required}


@pytest.mark.parametrize(
    ("chapter", "union", "shared"),
    [
        ("Bodies", events.Body, set()),
        ("Items", items.Item, {"item_id", "step", "author", "opaque", "native"}),
        ("Parts", content.Part, set()),
    ],
    ids=["bodies", "items", "parts"],
)
def test_every_event_item_and_part_is_documented(chapter: str, union: Any, shared: set[str]) -> None:
    """The page of events has each kind with exactly its fields, and marks exactly those that have a default."""
    documented = sections(DOCS / "reference" / "events.md", chapter)
    known = structs(union)
    assert set(documented) == set(known)
    for tag, kind in known.items():
        fields = tuple(field for field in msgspec.structs.fields(kind) if field.name not in shared)
        assert rows(documented[tag]) == {field.name for field in fields}, tag
        assert rows(documented[tag], _DEFAULT) == with_default(fields), tag


def test_the_envelope_is_documented() -> None:
    """The page of events names the fields of the envelope in their order."""
    text = (DOCS / "reference" / "events.md").read_text(encoding="utf-8")
    assert f"`[{', '.join(field.name for field in msgspec.structs.fields(events.Event))}]`" in text


def error_classes() -> list[type[errors.RunstoneError]]:
    """Every error of the tree."""
    found = [value for value in vars(errors).values() if isinstance(value, type)]
    return [kind for kind in found if issubclass(kind, errors.RunstoneError)]


def test_every_error_is_documented() -> None:
    """The page of errors has each class with its code, and none that is not there."""
    text = (DOCS / "reference" / "errors.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|", text, flags=re.MULTILINE))
    assert documented == {kind.__name__: kind.code for kind in error_classes()}


def test_every_setting_is_documented() -> None:
    """The page of settings has each setting with its default, and none that is not there."""
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| (`[^`]*`|empty) \|", text, flags=re.MULTILINE))
    assert documented == {name: shown(default) for name, default in setting_names().items()}


def shown(default: Any) -> str:
    """A default as the page of settings writes it."""
    if default == "":
        return "empty"
    return "`null`" if default is None else f"`{default}`"


def commands() -> Iterator[tuple[str, str]]:
    """Page and line of each `runstone` and `scripts/` command in the fenced blocks of the pages."""
    for page in PAGES:
        for block in re.findall(r"^```[a-z]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = re.sub(r"^\s*(?:[A-Z_]+=\S+\s+)*(?:\.venv/bin/)?", "", line).split("#")[0].strip()
                if re.match(r"runstone \w|scripts/\w", words):
                    yield page.name, words


def test_every_script_that_is_shown_exists() -> None:
    """A command `scripts/x` in the docs is a script of the repository."""
    shown_scripts = {words.split()[0] for _, words in commands() if words.startswith("scripts/")}
    assert {"scripts/run", "scripts/test"} <= shown_scripts
    assert [name for name in sorted(shown_scripts) if not (ROOT / name).is_file()] == []


def test_every_command_line_that_is_shown_parses() -> None:
    """A command `runstone ...` in the docs is one that the command line takes."""
    lines = [(page, words) for page, words in commands() if words.startswith("runstone ")]
    assert lines
    for page, words in lines:
        try:
            parser().parse_args(words.split()[1:])
        except SystemExit:
            pytest.fail(f"{page}: {words}")


def test_links_between_pages_lead_somewhere() -> None:
    """A relative link in README and docs names a file of the repository."""
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def python_blocks() -> list[tuple[str, str]]:
    """Each page's Python blocks."""
    return [
        (page.name, block)
        for page in PAGES
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]


def imported(code: str) -> Iterator[tuple[str, str]]:
    """Module and name of each `from runstone... import name`."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "runstone":
            yield from ((node.module or "", alias.name) for alias in node.names)


def test_python_in_the_docs_is_python_and_imports_what_is_there() -> None:
    """Every Python block compiles, and every name that it takes from Runstone exists."""
    for page, code in python_blocks():
        compile(code, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for module, name in imported(code):
            found = __import__(module, fromlist=[name])
            assert hasattr(found, name), f"{page}: {module}.{name}"


def test_examples_compile_and_import_what_is_there() -> None:
    """Every example is Python, says at its top what it shows, and takes from Runstone what exists."""
    paths = sorted((ROOT / "examples").rglob("*.py"))
    assert paths
    for path in paths:
        code = path.read_text(encoding="utf-8")
        assert ast.get_docstring(ast.parse(code)), path
        for module, name in imported(code):
            assert hasattr(__import__(module, fromlist=[name]), name), f"{path}: {module}.{name}"


def test_readme_is_the_description_of_the_package() -> None:
    """The package's long description is the README."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] == "README.md"
