"""From what a setting names, `module:function`, to the function: looked up once, when a crawl is wired."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from lycosa.core.errors import BadSetting, UsageError
from lycosa.crawl.spiders.spider import Spider


def function_named(setting: str, word: str, arguments: str) -> Callable[..., Any]:
    """Return the function `module:function`, imported. Raises `BadSetting`.

    A module may lie in the current folder. `arguments` names what the function takes, as in "method, url, body".
    """
    found = _found(setting, word)
    problem = _problem(found, arguments)
    if problem:
        raise BadSetting(f"{setting}: {word} {problem}")
    return found  # type: ignore[no-any-return]


def class_named(setting: str, word: str) -> type:
    """Return the class `module:Class`, imported. Raises `BadSetting`."""
    found = _found(setting, word)
    if not isinstance(found, type):
        raise BadSetting(f"{setting}: {word} is a {type(found).__name__}: name a class")
    return found


def _found(setting: str, word: str) -> Any:
    name, _, path = word.partition(":")
    found: Any = _module(setting, name)
    for part in path.split("."):
        if not hasattr(found, part):
            near = get_close_matches(part, dir(found), n=1)
            meant = f": did you mean {near[0]}?" if near else ""
            raise BadSetting(f"{setting}: {name} has no {path!r}{meant}")
        found = getattr(found, part)
    return found


def function_of(spider: Spider, attribute: str, arguments: str) -> Callable[..., Any] | None:
    """Return the function that the spider has under this name, None where there is none. Raises `UsageError`."""
    found: Any = getattr(spider, attribute, None)
    problem = _problem(found, arguments) if found is not None else ""
    if problem:
        raise UsageError(f"{type(spider).__name__}.{attribute} {problem}")
    return found  # type: ignore[no-any-return]


def _module(setting: str, name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)  # last: a queue.py that lies there must not hide Python's
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise BadSetting(
                f"{setting}: there is no module {error.name!r}, neither installed nor in {folder}"
            ) from None
        raise BadSetting(f"{setting}: {name} cannot be imported: it needs {error.name}") from error
    except (Exception, SystemExit) as error:
        told = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        raise BadSetting(f"{setting}: {name} cannot be imported: {told}") from error


def _problem(found: Any, arguments: str) -> str:
    """Return why this cannot be called with these arguments, "" when it can."""
    if not callable(found):
        return f"is a {type(found).__name__}: write a function ({arguments})"
    if inspect.iscoroutinefunction(found):
        return "is async: write a plain function"
    try:
        inspect.signature(found).bind(*arguments.split(","))
    except TypeError:
        return f"does not take ({arguments})"
    except ValueError:  # written in C, perhaps: it says nothing of itself
        return ""
    return ""
