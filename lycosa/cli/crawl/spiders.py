"""The spiders of a project: spider classes with names, in the modules listed in `spider_modules`.

A module that cannot be imported hides its own spiders, a package also those of its modules, but no others. Its error is
shown when a spider is not found.
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

from lycosa.config import Settings, load, suggest
from lycosa.config.project import OWN_FILE, find_project
from lycosa.core.errors import BadSpider, BadUrl, UsageError


@dataclass(frozen=True, slots=True)
class FoundSpider:
    """A spider class, its name and its file."""

    name: str
    file: Path
    spider: type[Any]


@dataclass(slots=True)
class ProjectSpiders:
    """The spiders of a project, and one line for each module that cannot be imported."""

    found: list[FoundSpider] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def named(self, name: str) -> list[FoundSpider]:
        return [each for each in self.found if each.name == name]

    def one(self, name: str) -> type[Any]:
        """Return the spider with this name. Raises `BadSpider` if there is none, or more than one."""
        known = self.named(name)
        if len(known) > 1:
            raise BadSpider(_duplicates(known))
        if known:
            return known[0].spider
        if self.broken:
            raise BadSpider(self.broken[0])
        names = [each.name for each in self.found]
        hint = f"; available spiders: {', '.join(names[:20])}" if names else ": the project has no spiders yet"
        raise BadSpider(f"no spider is called {name!r}{suggest(name, names) or hint}")


def enter_project() -> None:
    """Make the modules of the project importable. Without a project, use the current folder."""
    root = str(_root())
    if root not in sys.path:
        sys.path.append(root)  # last: a queue.py in it must not hide Python's


def project_settings(sets: Sequence[str] = ()) -> Settings:
    """Load the settings without a spider's custom_settings."""
    return load({}, sets=sets, environ=os.environ, folder=Path.cwd())


def no_spiders() -> str:
    """Say why there are no spiders here, and what to do."""
    if find_project(Path.cwd()) is None:
        if Path("scrapy.cfg").exists():
            return f"scrapy.cfg is not read: write {OWN_FILE} beside it, with spider_modules = ['shop.spiders']"
        return "there is no project here: lycosa startproject NAME creates one"
    return "the project does not say where its spiders are: set spider_modules"


def find_spiders(modules: Sequence[str]) -> ProjectSpiders:
    """Import the modules, including those inside packages, and return their spiders.

    Raises `BadSpider` if a module does not exist.
    """
    from lycosa.cli.crawl.spiderfile import relative_to_cwd, spiders_in

    spiders = ProjectSpiders()
    for name in dict.fromkeys(modules):
        for module in _modules(name, spiders.broken):
            file = relative_to_cwd(Path(module.__file__ or name))
            found = (FoundSpider(each.name, file, each) for _, each in spiders_in(module) if each.name)
            spiders.found += [each for each in found if each not in spiders.found]
    spiders.found.sort(key=lambda each: (each.name, str(each.file)))
    return spiders


def load_named(name: str, settings: Settings) -> type[Any]:
    """Return the project's spider with this name. Raises `UsageError` or `BadSpider`."""
    if not settings.spider_modules:
        raise UsageError(f"no spider is called {name!r}: {no_spiders()}")
    return find_spiders(settings.spider_modules).one(name)


def require_url(text: str) -> str:
    """Raise `BadUrl` unless the text is an absolute URL."""
    if text.startswith(("/", ".")):
        raise BadUrl(f"{text!r} is not a URL: write https://...")
    if "://" not in text:
        raise BadUrl(f"{text!r} has no scheme: write https://{text}")
    return text


def refuse_duplicate_names(spiders: ProjectSpiders) -> None:
    """Raise `BadSpider` if two spiders have the same name."""
    for each in spiders.found:
        if len(known := spiders.named(each.name)) > 1:
            raise BadSpider(_duplicates(known))


def folder_of(package: str) -> Path:
    """Return the folder of a package. Raises `BadSpider`."""
    from lycosa.cli.crawl.spiderfile import relative_to_cwd

    module = _import(package, [])
    places = list(getattr(module, "__path__", ()))
    if module is None or not places:
        raise BadSpider(f"{package} is not a package for spiders: set new_spider_module")
    return relative_to_cwd(Path(places[0]))


def _root() -> Path:
    return find_project(Path.cwd()) or Path.cwd()


def _modules(name: str, broken: list[str]) -> Iterator[ModuleType]:
    """Yield the module and, if it is a package, all modules inside it."""
    if _is_missing(name):
        raise BadSpider(f"spider_modules: there is no module {name!r}, neither installed nor in the project")
    module = _import(name, broken)
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
    except Exception:  # noqa: BLE001  the user's parent package fails; importing it reports the error
        return False


def _import(name: str, broken: list[str]) -> ModuleType | None:
    from lycosa.cli.crawl.spiderfile import describe_error  # slow to import: it needs the Spider class

    try:
        return import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001  the module is the user's
        broken.append(describe_error(error, _root(), default=name))
        return None


def _duplicates(known: Sequence[FoundSpider]) -> str:
    where = " and ".join(f"{each.file} ({each.spider.__name__})" for each in known)
    return f"{len(known)} spiders are called {known[0].name!r}, in {where}: give them different names"
