"""How the documentation is built: Markdown pages through MyST, the reference from docstrings.

Every page is found: those beside this file, and those of each folder, which becomes a section of its own.
"""

from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

project = "Runstone"
author = "Runstone maintainers"
copyright = f"2026, {author}"
version = release = installed_version("runstone")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"Runstone {release}"
html_show_sphinx = False

# Order and titles of the sections; a folder that is not named here comes after them under its own name.
SECTIONS = {
    "tutorial": "Tutorial",
    "howto": "How to",
    "protocols": "Protocols",
    "reference": "Reference",
    "decisions": "Decisions",
}


def navigation() -> str:
    """One hidden toctree for the pages of docs/ and one for each folder that has pages."""
    docs = Path(__file__).parent
    folders = sorted(path.name for path in docs.iterdir() if path.is_dir() and any(path.rglob("*.md")))
    ordered = [name for name in SECTIONS if name in folders] + [name for name in folders if name not in SECTIONS]
    trees = [("Start", "*"), *((SECTIONS.get(name, name.capitalize()), f"{name}/**") for name in ordered)]
    return "".join(f"\n```{{toctree}}\n:hidden:\n:glob:\n:caption: {title}\n\n{pages}\n```\n" for title, pages in trees)


def add_navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append the navigation to the start page, which thereby stays plain Markdown for whoever reads the repository."""
    if page == "index":
        source[0] += navigation()


def setup(app: Sphinx) -> None:
    """Sphinx calls this once."""
    app.connect("source-read", add_navigation)
