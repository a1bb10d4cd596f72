"""Load the spider class of a Python file. Every error in the file becomes a `BadSpider` with a one-line message."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from lycosa.cli.exit_codes import one_line
from lycosa.core.errors import BadSpider
from lycosa.crawl.spiders.spider import Spider

MODULE_PREFIX = "lycosa_spider_"
"""Prevents name clashes with other modules: a spider file may be called json.py."""


def load_spider(location: str) -> type[Spider]:
    """Return the spider class of `FILE` or `FILE:ClassName`. Runs the file. Raises `BadSpider`."""
    path, class_name = _split(location)
    if path.is_dir():
        raise BadSpider(f"{path} is a folder: give the spider's file inside it")
    if not path.exists():
        raise BadSpider(f"{path}: no such file")
    if path.suffix != ".py":
        raise BadSpider(f"{path} is not a Python file: its name must end in .py")
    spiders = dict(spiders_in(_run(path)))
    return _choose(path, spiders if class_name in spiders else _without_bases(spiders), class_name)


def describe_error(error: BaseException, folder: Path, *, default: str) -> str:
    """Describe an error in the user's code in one line, with the file and line of the innermost frame in `folder`.

    If no frame is in `folder`, the message begins with `default`.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        file, line = Path(error.filename), error.lineno
    else:
        frames = [(Path(frame.filename), frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        own = [frame for frame in frames if frame[0].is_relative_to(folder) and "site-packages" not in frame[0].parts]
        if not own:
            return f"{default}: {_message(error)}"
        file, line = own[-1][0], own[-1][1] or 0
    return f"{relative_to_cwd(file)}:{line}: {_message(error)}"


def spiders_in(module: ModuleType) -> Iterator[tuple[str, type[Spider]]]:
    """Yield (class name, class) for the spiders that the module itself defines."""
    for name, each in vars(module).items():
        if isinstance(each, type) and issubclass(each, Spider) and each.__module__ == module.__name__:
            yield name, each


def relative_to_cwd(path: Path) -> Path:
    """Make a path inside the current folder relative."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _split(location: str) -> tuple[Path, str]:
    file, colon, name = location.rpartition(":")
    if colon and not Path(location).exists():
        return Path(file), name
    return Path(location), ""


def _run(path: Path) -> ModuleType:
    name = MODULE_PREFIX + path.stem
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    folder = path.resolve().parent
    # dataclasses look up their module in sys.modules. The folder goes last: a queue.py in it must not hide Python's.
    sys.modules[name] = module
    sys.path.append(str(folder))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadSpider(describe_error(error, folder, default=str(path))) from error
    return module


def _message(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "scrapy":
        text += ": write import lycosa, as docs/scrapy.md says"
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _without_bases(spiders: dict[str, type[Spider]]) -> dict[str, type[Spider]]:
    """Drop base classes of other spiders in the file; a base class runs only if the user names it."""
    bases = {base for each in spiders.values() for base in each.__mro__[1:]}
    return {name: each for name, each in spiders.items() if each not in bases}


def _choose(path: Path, spiders: dict[str, type[Spider]], class_name: str) -> type[Spider]:
    names = ", ".join(spiders)
    if not spiders:
        raise BadSpider(f"{path} contains no spider: write a class that inherits from lycosa.Spider")
    if class_name:
        if class_name not in spiders:
            raise BadSpider(f"{path} contains no spider {class_name!r}, only: {names}")
        return spiders[class_name]
    if len(spiders) > 1:
        first = next(iter(spiders))
        raise BadSpider(f"{path} contains several spiders ({names}): pick one, as in {path}:{first}")
    return next(iter(spiders.values()))
