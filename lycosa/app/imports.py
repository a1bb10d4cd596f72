"""Import the functions and classes that settings name as `module:function` or `module:Class`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from lycosa.config import suggest
from lycosa.core.errors import BadSetting, UsageError
from lycosa.crawl.spiders.spider import Spider


def import_function(setting: str, word: str, *arguments: str) -> Callable[..., Any]:
    """Import a `module:function`. The module may be a file in the current folder. Raises `BadSetting`.

    Each of `arguments` is an accepted signature, such as "method, url, body".
    """
    found = _import(setting, word)
    if problem := _problem(found, *arguments):
        raise BadSetting(f"{setting}: {word} {problem}")
    return found  # type: ignore[no-any-return]


def import_class(setting: str, part: Any) -> Any:
    """Import a `module:Class`; return any other `part` unchanged. Raises `BadSetting`."""
    if not isinstance(part, str):
        return part
    found = _import(setting, part)
    if not isinstance(found, type):
        raise BadSetting(f"{setting}: {part} is a {type(found).__name__}: give a class")
    return found


def spider_function(spider: Spider, attribute: str, *arguments: str) -> Callable[..., Any] | None:
    """Return the spider's function of this name, if any.

    Raises `UsageError` if the attribute is not a function with these arguments.
    """
    found: Any = getattr(spider, attribute, None)
    if found is not None and (problem := _problem(found, *arguments)):
        raise UsageError(f"{type(spider).__name__}.{attribute} {problem}")
    return found  # type: ignore[no-any-return]


def _import(setting: str, word: str) -> Any:
    name, _, path = word.partition(":")
    found: Any = _import_module(setting, name)
    for part in path.split("."):
        if not hasattr(found, part):
            raise BadSetting(f"{setting}: {name} has no {path!r}{suggest(part, dir(found))}")
        found = getattr(found, part)
    return found


def _import_module(setting: str, name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a queue.py in it must not hide Python's
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise BadSetting(
                f"{setting}: there is no module {error.name!r}, neither installed nor in {folder}"
            ) from None
        raise BadSetting(f"{setting}: {name} cannot be imported: it needs {error.name}") from error
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise BadSetting(f"{setting}: {name} cannot be imported: {problem}") from error


def takes(function: Callable[..., Any], arguments: str) -> bool:
    """Return whether the function accepts these arguments; True if its signature is unknown."""
    try:
        inspect.signature(function).bind(*arguments.split(","))
    except TypeError:
        return False
    except ValueError:  # functions written in C may have no signature
        pass
    return True


def _problem(found: Any, *forms: str) -> str:
    """Return why `found` accepts none of these forms of arguments, "" if it accepts one."""
    shown = " or ".join(f"({arguments})" for arguments in forms)
    if not callable(found):
        return f"is a {type(found).__name__}: write a function {shown}"
    if inspect.iscoroutinefunction(found):
        return "is async: write a plain function"
    return "" if any(takes(found, arguments) for arguments in forms) else f"does not take {shown}"
