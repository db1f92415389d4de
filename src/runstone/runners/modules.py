"""The user's own modules: importing them as Python would, and saying in words why one cannot be.

Rule: whatever a module does when it is imported (raise, exit, be no Python at all) is a `ConfigError` that names the file and
the line of the user's code, with the cause chained.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from runstone.errors import ConfigError

#: Folders of targets that were loaded, so that a second one with a helper of the same name gets its own.
_roots: list[Path] = []


def module_named(name: str) -> ModuleType:
    """The module of that name; the working directory is looked into first, as with `python -m`.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    here = Path.cwd()
    _put_first(here)
    try:
        found = importlib.util.find_spec(name)
    except (ModuleNotFoundError, ValueError):
        found = None
    except BaseException as e:  # A parent package runs when it is looked into.
        raise _cannot(name, e, here) from e
    if found is None:
        raise ConfigError(f"there is no module {name!r} here or among the installed packages", option="agents")
    return _imported(name, name, here)


def module_in(file: Path) -> ModuleType:
    """The module in a file; its folder is looked into first, as with `python file.py`.

    A file of a package is imported as part of it. Any other gets a name of its own, so that two files may be called alike.

    Raises:
        ConfigError: it is not there, or cannot be imported.
    """
    file = file.resolve()
    if not file.is_file():
        raise ConfigError(f"there is no file {shown(file)}", option="agents")
    root = file.parent
    parts = [file.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    _enter(root)
    if len(parts) > 1:
        return _imported(".".join(parts), shown(file), root)
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{shown(file)} is not a Python file", option="agents")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as e:
        del sys.modules[name]
        raise _cannot(shown(file), e, root) from e
    return module


def attribute(module: ModuleType, path: str, *, of: str) -> Any:
    """What the dotted `path` names in the module.

    Raises:
        ConfigError: nothing; the message lists what there is.
    """
    value: Any = module
    for name in path.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            there = ", ".join(sorted(names_in(module))) or "nothing"
            raise ConfigError(f"{of} has no {path!r}; it has {there}", option="agents") from None
    return value


def names_in(module: ModuleType) -> list[str]:
    """The public names that the module itself gives."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", module.__name__) == module.__name__
    ]


def shown(file: Path) -> str:
    """A file as it is shown: relative to the working directory, never with the way to it."""
    try:
        return file.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(*file.resolve().parts[-2:]).as_posix()


def _put_first(folder: Path) -> None:
    text = str(folder)
    if text not in sys.path[:1]:
        sys.path.insert(0, text)


def _enter(root: Path) -> None:
    """Look into `root` first, and forget modules of earlier targets that have a namesake there."""
    _put_first(root)
    others = [other for other in _roots if other != root]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is None or "." in name or Path(file).parent not in others:
            continue
        if (root / f"{name}.py").is_file() or (root / name / "__init__.py").is_file():
            del sys.modules[name]
    if root not in _roots:
        _roots.append(root)
    importlib.invalidate_caches()


def _imported(name: str, of: str, root: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except BaseException as e:
        raise _cannot(of, e, root) from e


def _cannot(of: str, error: BaseException, root: Path) -> ConfigError:
    if isinstance(error, KeyboardInterrupt):
        raise error
    return ConfigError(f"{of} cannot be loaded: {_words(error)}{_place(error, root)}", option="agents")


def _words(error: BaseException) -> str:
    match error:
        case SyntaxError():
            return f"it is not valid Python: {error.msg}"
        case ModuleNotFoundError():
            return f"the module {error.name!r} is not installed"
        case SystemExit():
            return "it ends the program when it is imported"
        case _:
            return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _place(error: BaseException, root: Path) -> str:
    """Where in the user's own code it happened."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({shown(Path(error.filename))}:{error.lineno})"
    prefix = str(root) + os.sep
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(prefix) and "site-packages" not in frame.filename
    ]
    return f" ({shown(Path(frames[-1].filename))}:{frames[-1].lineno})" if frames else ""
