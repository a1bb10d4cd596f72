"""The spiders of a project: every class with a name in the modules that `spider_modules` lists.

A module that cannot be imported hides its own spiders and no others; who asks for one of them is told why.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from lycosa.config import Settings, load
from lycosa.config.project import OWN_FILE, find_project
from lycosa.core.errors import BadSpider, BadUrl, UsageError


@dataclass(frozen=True, slots=True)
class FoundSpider:
    """A spider and where it is."""

    name: str
    file: Path
    spider: type[Any]


@dataclass(slots=True)
class ProjectSpiders:
    """The spiders of a project, and why modules of it hold none: one line each."""

    found: list[FoundSpider] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[FoundSpider]:
        """Return the spiders with this name."""
        return [each for each in self.found if each.name == name]

    def one(self, name: str) -> type[Any]:
        """Return the spider with this name. Raises `BadSpider` when there is none, or more than one."""
        known = self.named(name)
        if len(known) > 1:
            raise BadSpider(_twice(known))
        if known:
            return known[0].spider
        if self.broken:
            raise BadSpider(self.broken[0])
        raise BadSpider(f"no spider is called {name!r}{_instead(name, [each.name for each in self.found])}")


def enter_project() -> Path:
    """Make the modules of the project importable, from wherever in it one is. Return its folder, else the current one.

    The folder goes last: a queue.py in it must not hide Python's.
    """
    root = _root()
    if str(root) not in sys.path:
        sys.path.append(str(root))
    return root


def project_settings(sets: Sequence[str] = ()) -> Settings:
    """Return the settings as they are without a spider's."""
    return load({}, sets=sets, environ=os.environ, folder=Path.cwd())


def no_spiders() -> str:
    """Return why no spider can be called by name here, and what to do about it."""
    if find_project(Path.cwd()) is None:
        if Path("scrapy.cfg").exists():
            return f"scrapy.cfg is not ours: write {OWN_FILE} beside it, with spider_modules = ['shop.spiders']"
        return "there is no project here: lycosa startproject NAME makes one"
    return "the project does not say where its spiders are: set spider_modules"


def find_spiders(modules: Sequence[str]) -> ProjectSpiders:
    """Import the modules, and the packages' modules, and return the spiders in them. Raises `BadSpider`.

    A module that does not exist is an error at once: then the setting is wrong.
    """
    spiders = ProjectSpiders()
    for name in dict.fromkeys(modules):
        for module in _modules(name, spiders.broken):
            spiders.found += [each for each in _spiders_in(module) if each not in spiders.found]
    spiders.found.sort(key=lambda each: (each.name, str(each.file)))
    return spiders


def load_named(name: str, settings: Settings) -> type[Any]:
    """Return the spider of the project with this name. Raises `UsageError` or `BadSpider`."""
    if not settings.spider_modules:
        raise UsageError(f"{name!r} is a spider's name, perhaps, but {no_spiders()}")
    return find_spiders(settings.spider_modules).one(name)


def require_url(text: str) -> str:
    """Return what is meant as a URL. Raises `BadUrl`."""
    if text.startswith(("/", ".")):
        raise BadUrl(f"{text!r} is no URL: write the whole of it, https://...")
    if "://" not in text:
        raise BadUrl(f"{text!r} has no scheme: write https://{text}")
    return text


def refuse_duplicate_names(spiders: ProjectSpiders) -> None:
    """Raise `BadSpider` when two spiders have one name."""
    for each in spiders.found:
        if len(known := spiders.named(each.name)) > 1:
            raise BadSpider(_twice(known))


def folder_of(package: str) -> Path:
    """Return the folder of a package, from here. Raises `BadSpider`."""
    module = _imported(package, [])
    places = list(getattr(module, "__path__", ()))
    if module is None or not places:
        raise BadSpider(f"{package} is no package to write spiders into: set new_spider_module")
    return _shown(Path(places[0]))


def _root() -> Path:
    return find_project(Path.cwd()) or Path.cwd()


def _modules(name: str, broken: list[str]) -> Iterator[ModuleType]:
    """Yield the module and, of a package, all below it."""
    if _is_missing(name):
        raise BadSpider(f"spider_modules: there is no module {name!r}, neither installed nor in the project")
    module = _imported(name, broken)
    if module is None:
        return
    yield module
    for below in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        yield from _modules(below.name, broken)


def _is_missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError as error:
        return error.name is not None and f"{name}.".startswith(f"{error.name}.")
    except Exception:  # noqa: BLE001  the package above it is the user's, and fails in any way; importing says how
        return False


def _imported(name: str, broken: list[str]) -> ModuleType | None:
    from lycosa.cli.crawl.spiderfile import describe_error

    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the module is the user's
        broken.append(describe_error(error, _root(), default=name))
        return None


def _spiders_in(module: ModuleType) -> Iterator[FoundSpider]:
    from lycosa.crawl.spiders.spider import Spider

    for each in vars(module).values():
        if isinstance(each, type) and issubclass(each, Spider) and each.__module__ == module.__name__ and each.name:
            yield FoundSpider(each.name, _shown(Path(module.__file__ or module.__name__)), each)


def _shown(path: Path) -> Path:
    """Return the path from the current folder, where it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _twice(known: Sequence[FoundSpider]) -> str:
    where = " and ".join(f"{each.file} ({each.spider.__name__})" for each in known)
    return f"{len(known)} spiders are called {known[0].name!r}, in {where}: give each a name of its own"


def _instead(name: str, names: Sequence[str]) -> str:
    import difflib

    from lycosa.config import did_you_mean

    near = next(iter(difflib.get_close_matches(name, names, n=1)), "")
    return did_you_mean(near) or (f": there are {', '.join(names[:20])}" if names else ": the project has none yet")
