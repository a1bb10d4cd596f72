"""From the path of a Python file to the spider class in it. What goes wrong there is a `BadSpider` of one line."""

from __future__ import annotations

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from lycosa.cli.exit_codes import one_line
from lycosa.core.errors import BadSpider
from lycosa.crawl.spiders.spider import Spider

MODULE_PREFIX = "lycosa_spider_"
"""Keeps the file's module apart from others: a spider file may be called json.py."""


def load_spider(where: str) -> type[Spider]:
    """Return the spider class of `FILE` or `FILE:ClassName`. Runs the file. Raises `BadSpider`."""
    path, class_name = _split(where)
    if path.is_dir():
        raise BadSpider(f"{path} is a folder: name the spider's file in it")
    if not path.exists():
        raise BadSpider(f"{path}: no such file")
    if path.suffix != ".py":
        raise BadSpider(f"{path} is not a Python file: its name must end in .py")
    own = _own_spiders(_run(path))
    return _choose(path, own if class_name in own else _not_bases(own), class_name)


def describe_error(error: BaseException, folder: Path, *, default: str) -> str:
    """Return what went wrong in the user's code below a folder, in one line; `default` is the place of last resort."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        file, line = Path(error.filename), error.lineno
    else:
        frames = [(Path(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
        own = [each for each in frames if each[0].is_relative_to(folder) and "site-packages" not in each[0].parts]
        if not own:
            return f"{default}: {_says(error)}"
        file, line = own[-1][0], own[-1][1] or 0
    return f"{file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}:{line}: {_says(error)}"


def _split(where: str) -> tuple[Path, str]:
    file, colon, name = where.rpartition(":")
    if colon and not Path(where).exists():
        return Path(file), name
    return Path(where), ""


def _run(path: Path) -> ModuleType:
    name = MODULE_PREFIX + path.stem
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # Data classes look their module up. The folder goes last: a queue.py beside the spider must not hide Python's.
    sys.modules[name] = module
    sys.path.append(str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise BadSpider(f"{_place(path, error)}: {_says(error)}") from error
    return module


def _place(path: Path, error: BaseException) -> str:
    """The file and line to look at: the last line of the user's that was running, or that cannot be understood."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_shown(path, error.filename)}:{error.lineno}"
    folder = path.resolve().parent
    frames = [each for each in traceback.extract_tb(error.__traceback__) if Path(each.filename).parent == folder]
    return f"{_shown(path, frames[-1].filename)}:{frames[-1].lineno}" if frames else str(path)


def _shown(path: Path, filename: str) -> Path:
    return path if Path(filename) == path.resolve() else Path(filename)


def _says(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == "scrapy":
        text += ": write import lycosa, as docs/scrapy.md says"
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def _own_spiders(module: ModuleType) -> dict[str, type[Spider]]:
    """The spiders that the file defines itself, not those it imports."""
    return {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, Spider) and each.__module__ == module.__name__
    }


def _not_bases(own: dict[str, type[Spider]]) -> dict[str, type[Spider]]:
    """Without those that others of the file build on: they run when they are named."""
    bases = {base for each in own.values() for base in each.__mro__[1:]}
    return {name: each for name, each in own.items() if each not in bases}


def _choose(path: Path, spiders: dict[str, type[Spider]], class_name: str) -> type[Spider]:
    names = ", ".join(spiders)
    if not spiders:
        raise BadSpider(f"{path} holds no spider: write a class that inherits from lycosa.Spider")
    if class_name:
        if class_name not in spiders:
            raise BadSpider(f"{path} holds no spider {class_name!r}, but: {names}")
        return spiders[class_name]
    if len(spiders) > 1:
        first = next(iter(spiders))
        raise BadSpider(f"{path} holds several spiders ({names}): pick one, as in {path}:{first}")
    return next(iter(spiders.values()))
