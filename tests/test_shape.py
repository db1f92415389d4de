"""The house rules that a linter cannot see.

Each rule reads the source, never imports it, and passes while the folder that it is about does not exist. An exception
to a rule is a row in a table here, with its reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "runstone"

MAX_FUNCTION_LINES = 80
MAX_MODULE_LINES = 800

# "path/in/repo.py::function" -> why it may be longer than MAX_FUNCTION_LINES
LONG_FUNCTIONS: dict[str, str] = {}

# "path/in/repo.py" -> why it may be longer than MAX_MODULE_LINES
LONG_MODULES: dict[str, str] = {}

PROTOCOL_FILES = {"types.py", "request.py", "encode.py", "decode.py", "history.py", "errors.py"}

# The other direction, which adapters read with; a protocol that is only served has none.
CLIENT_FILES = {"decode.py"}

# "protocol/file.py" -> why this protocol has a file that the others do not have
EXTRA_PROTOCOL_FILES: dict[str, str] = {
    "hermes/commands.py": "what is asked of a run that is there: steer, stop, regenerate, decide",
    "hermes/objects.py": "sessions, runs and receipts are documents of their own beside streams and messages",
    "hermes/sessions.py": "Hermes has a resource for sessions, with bodies and queries of its own",
    "hermes/vocabulary.py": "two streams say the same things in different words",
    "responses/body.py": "the response object stands in streams, in answers and behind GET",
    "responses/emit.py": "sequence numbers and output indexes, apart from what is said with them",
    "responses/ids.py": "ids on this wire are made of ours and read back",
    "responses/input.py": "the same items come in requests and in conversations",
    "responses/items.py": "streams, outputs and history show an item alike",
    "responses/streams.py": "one class per way to show an open item, two dialects",
}

# `native` is the log's own form, so it needs no wire shapes and no foreign history.
UNLIKE_PROTOCOLS = {"native"}

# Where foreign data is read, and with it string keys that may be missing. Patterns under src/runstone.
DOORS = (
    "protocols/*/request.py",
    "protocols/*/decode.py",
    "protocols/*/history.py",
    "protocols/fields.py",  # the readers that Responses and Chat share
    "protocols/parts.py",  # content parts, likewise
    "protocols/openai.py",  # usage, likewise
    "protocols/responses/input.py",  # the items of requests and conversations
    "adapters/*.py",
    "runners/**/*.py",
    "conformance/**/*.py",  # judges other people's frames as they are
    "config.py",  # reads environment and files
)

# Mappings of strings by their nature: what the web framework hands over, which no type can describe.
HTTP_MAPPINGS = {"headers", "query_params", "path_params", "cookies"}

# Two parts each, so that this file does not name them.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry.npmjs", "org"),
        ("registry.yarnpkg", "com"),
        ("deb.debian", "org"),
        ("proxy.golang", "org"),
    )
)

# (modules, who may import them, why). A trailing `.*` means everything below, but not the names after `!`.
NARROW_IMPORTS = (
    ("runstone.local_model", ("runstone.cli",), "the offline model is a convenience of the command line"),
    (
        "runstone.protocols.openai",
        ("runstone.protocols.responses", "runstone.protocols.chat", "runstone.server"),
        "only Responses and Chat share a vocabulary",
    ),
    (
        "runstone.runners.langgraph",
        ("runstone.runners.langchain", "runstone.runners.deepagents", "runstone.runners.load"),
        "only LangChain and DeepAgents are thin files over LangGraph",
    ),
    ("runstone.runners.load", ("runstone.app",), "only the composition root loads a runner"),
    (
        "runstone.storage.* !base",
        ("runstone.app", "runstone.testing", "runstone.storage"),
        "everybody else sees storage.base and does not know what is behind it",
    ),
    (
        "runstone.runners.* !base !compose !hooks !payload",
        ("runstone.app", "runstone.testing", "runstone.runners"),
        "the engine sees runners.base and does not know what is behind it",
    ),
    (
        "runstone.storage",
        (
            "runstone.app",
            "runstone.testing",
            "runstone.engine",
            "runstone.attachments",
            "runstone.server",
            "runstone.cli",
        ),
        "conformance and adapters look at a server from outside",
    ),
    (
        "runstone.engine",
        ("runstone.app", "runstone.server", "runstone.cli"),
        "conformance looks at a server from outside",
    ),
)


def python_files(*folders: str) -> list[Path]:
    """Python files below the folders of the repository, sorted; folders that do not exist yet have none."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def source_files(*patterns: str) -> list[Path]:
    """Files of the package that match any of the patterns."""
    return sorted({path for pattern in patterns for path in SOURCE.glob(pattern)})


@cache
def tree_of(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def where(path: Path, node: ast.AST) -> str:
    """Path and line, in the form that editors open."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def module_name(path: Path) -> str:
    """Dotted name of a file of the package."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Dotted names that a file imports, inside functions too. `from a import b` gives `a` and `a.b`."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def is_within(name: str, package: str) -> bool:
    """Whether a dotted name is the package or lies in it."""
    return name == package or name.startswith(package + ".")


def report(problems: list[str], rule: str) -> None:
    """Fail with the rule and every place that breaks it."""
    assert not problems, "\n".join([rule, *problems])


def test_pure_half_has_no_async() -> None:
    """Core and protocols contain no async function, await, async loop or async comprehension."""
    is_async = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    problems = [
        where(path, node)
        for path in source_files("core/**/*.py", "protocols/**/*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, is_async) or (isinstance(node, ast.comprehension) and node.is_async)
    ]
    report(problems, "core and protocols are plain functions; the async half is engine and server")


def test_pure_half_imports_one_library() -> None:
    """Core and protocols import the standard library, msgspec and Runstone, and nothing else."""
    allowed = sys.stdlib_module_names | {"msgspec", "runstone"}
    problems = [
        f"{where(path, node)} imports {name}"
        for path in source_files("core/**/*.py", "protocols/**/*.py")
        for name, node in imports_of(path)
        if name.split(".")[0] not in allowed
    ]
    report(problems, "msgspec is the one library of core and protocols")


def test_pure_half_asks_no_clock() -> None:
    """Core and protocols never ask for the present time; they are told it."""
    clocks = {"now", "utcnow", "today"}
    problems = [
        where(path, node)
        for path in source_files("core/**/*.py", "protocols/**/*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in clocks
    ]
    report(problems, "core and protocols have no clock: the same input gives the same frames")


def test_environment_is_read_in_config() -> None:
    """No module but config.py touches os.environ or os.getenv."""
    names = {"environ", "environb", "getenv", "getenvb"}
    problems = []
    for path in source_files("**/*.py"):
        if path == SOURCE / "config.py":
            continue
        for node in ast.walk(tree_of(path)):
            is_attribute = isinstance(node, ast.Attribute) and node.attr in names and ast.unparse(node.value) == "os"
            is_import = (
                isinstance(node, ast.ImportFrom)
                and node.module == "os"
                and names & {a.name for a in node.names} != set()
            )
            if is_attribute or is_import:
                problems.append(where(path, node))
    report(problems, "the environment is read once, in config.py, and passed on as values")


def is_literal_get(node: ast.AST) -> bool:
    """Whether a node is `something.get("name")` on anything but a mapping of the web framework."""
    match node:
        case ast.Call(func=ast.Attribute(value=subject, attr="get"), args=[ast.Constant(value=str()), *_]):
            last = subject.attr if isinstance(subject, ast.Attribute) else getattr(subject, "id", "")
            return last not in HTTP_MAPPINGS
    return False


def test_foreign_shapes_are_read_at_the_doors() -> None:
    """`.get("name")` appears only where foreign data enters."""
    doors = set(source_files(*DOORS))
    problems = [
        f"{where(path, node)} {ast.unparse(node)}"
        for path in source_files("**/*.py")
        if path not in doors
        for node in ast.walk(tree_of(path))
        if is_literal_get(node)
    ]
    report(
        problems, "inside the doors data has types; read foreign keys in request, decode, history, adapters or runners"
    )


def protocol_folders() -> list[Path]:
    """Folders of protocols, but for those that are unlike the others."""
    folders = (path for path in SOURCE.glob("protocols/*") if (path / "__init__.py").exists())
    return sorted(path for path in folders if path.name not in UNLIKE_PROTOCOLS)


def test_protocol_folders_are_alike() -> None:
    """Every protocol has the same six files, and further ones only with a reason."""
    problems = []
    for folder in protocol_folders():
        present = {path.name for path in folder.glob("*.py")} - {"__init__.py"}
        extra = {name for name in present - PROTOCOL_FILES if f"{folder.name}/{name}" not in EXTRA_PROTOCOL_FILES}
        problems += [f"{folder.name} lacks {name}" for name in sorted(PROTOCOL_FILES - CLIENT_FILES - present)]
        problems += [f"{folder.name}/{name} has no reason in EXTRA_PROTOCOL_FILES" for name in sorted(extra)]
    report(problems, "who knows one protocol folder finds the way in all of them")


def test_encode_and_decode_share_only_types() -> None:
    """What encode and decode both import is core, base, errors, or a type."""
    free = ("runstone.core", "runstone.protocols.base", "runstone.errors")
    problems = []
    for folder in protocol_folders():
        package = module_name(folder / "__init__.py")
        halves = [folder / "encode.py", folder / "decode.py"]
        if not all(path.exists() for path in halves):
            continue
        encode, decode = ({name for name, _ in imports_of(path) if is_within(name, "runstone")} for path in halves)
        for name in sorted(encode & decode):
            is_free = any(is_within(name, prefix) for prefix in (*free, f"{package}.types"))
            # A package, or the module of a shared vocabulary, is no sharing yet; what is taken from it may be.
            is_module = name in {"runstone", "runstone.protocols", package, "runstone.protocols.openai"}
            is_type = name.rpartition(".")[2][:1].isupper()
            if not (is_free or is_module or is_type):
                problems.append(f"{package}: encode and decode both use {name}")
        problems += [f"{package}.encode imports decode" for name in encode if is_within(name, f"{package}.decode")]
        problems += [f"{package}.decode imports encode" for name in decode if is_within(name, f"{package}.encode")]
    report(problems, "one half must be able to catch the other's mistake")


@pytest.mark.parametrize(("modules", "importers", "reason"), NARROW_IMPORTS, ids=[row[0] for row in NARROW_IMPORTS])
def test_narrow_imports(modules: str, importers: tuple[str, ...], reason: str) -> None:
    """Modules that only a few may know are imported by those few."""
    pattern, *exceptions = modules.split(" !")
    package = pattern.removesuffix(".*")
    spared = {f"{package}.{name}" for name in exceptions}
    if pattern.endswith(".*"):
        names = {module_name(path) for path in source_files("**/*.py")}
        targets = {name for name in names if name.startswith(package + ".")}
        targets = {name for name in targets if not any(is_within(name, one) for one in spared)}
    else:
        targets = {package}
    problems = [
        f"{where(path, node)} imports {name}"
        for path in source_files("**/*.py")
        if not any(is_within(module_name(path), one) for one in (*importers, package))
        for name, node in imports_of(path)
        if any(is_within(name, target) for target in targets)
    ]
    report(sorted(set(problems)), f"{modules}: {reason}")


def public_names_bound(tree: ast.Module) -> set[str]:
    """Names without underscore that a module binds at its top, under `if TYPE_CHECKING` too."""
    names: set[str] = set()
    statements = [child for node in tree.body for child in (node.body if isinstance(node, ast.If) else [node])]
    for node in statements:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names |= {alias.asname or alias.name for alias in node.names if node.module != "typing"}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_public_names_are_sorted_and_complete() -> None:
    """`__all__` lists what the package offers: each name once, sorted, none missing and none that is not there."""
    path = SOURCE / "__init__.py"
    if not path.exists():
        pytest.skip("the package has no __init__.py yet")
    values = [
        node.value
        for node in tree_of(path).body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets)
    ]
    if not values:
        report(sorted(public_names_bound(tree_of(path))), "runstone/__init__.py binds public names but has no __all__")
        return
    listed: list[str] = list(ast.literal_eval(values[0]))
    # The order that ruff's RUF022 keeps: constants, classes, the rest.
    in_order = sorted(listed, key=lambda name: (0 if name.isupper() else 1 if name[:1].isupper() else 2, name))
    bound = public_names_bound(tree_of(path))
    assert listed == in_order, "__all__ is not sorted"
    assert len(set(listed)) == len(listed), "__all__ has a name twice"
    assert bound <= set(listed), f"not in __all__: {sorted(bound - set(listed))}"


def long_functions(path: Path) -> Iterator[str]:
    """`path::function` of every function of a file that is too long."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield f"{path.relative_to(ROOT)}::{node.name}"


def long_modules(path: Path) -> Iterator[str]:
    """The path of a file that is too long."""
    if len(path.read_text(encoding="utf-8").splitlines()) > MAX_MODULE_LINES:
        yield str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    ("find", "allowed"),
    [(long_functions, LONG_FUNCTIONS), (long_modules, LONG_MODULES)],
    ids=["functions", "modules"],
)
def test_nothing_is_too_long(find: Callable[[Path], Iterator[str]], allowed: dict[str, str]) -> None:
    """Functions and modules stay within their limit, or are listed with a reason that is still needed."""
    found = {name for path in python_files("src", "tests", "examples", "benchmarks") for name in find(path)}
    report(sorted(found - set(allowed)), f"over {MAX_FUNCTION_LINES} (function) or {MAX_MODULE_LINES} (module) lines")
    report(sorted(set(allowed) - found), "listed as too long but no longer so; take the row out")


def repository_files() -> list[Path]:
    """Files that git tracks or would track; none outside a checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


def test_files_name_no_machine() -> None:
    """No file of the repository names a folder of somebody's machine or the host of a package registry."""
    # Written so that this file does not match itself.
    folders = r"(?<![\w./-])/(?:work|root)/"
    hosts = "|".join(host.replace(".", "[.]") for host in REGISTRY_HOSTS)
    forbidden = re.compile(rf"{folders}|\b(?:{hosts})\b")
    problems = []
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            if forbidden.search(line):
                problems.append(f"{path.relative_to(ROOT)}:{number}")
    report(problems, "the project runs anywhere: no machine's folders, no registry's host")
