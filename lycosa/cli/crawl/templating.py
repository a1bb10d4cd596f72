"""Write files from templates, for `startproject` and `genspider`.

A template is a file in `templates/` whose name ends in `.tmpl`; words like `$name` are substituted (string.Template).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from lycosa.core.errors import StorageError, UsageError

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".tmpl"
SPIDER_SUFFIX = ".py" + SUFFIX


def spider_templates() -> list[str]:
    """Return the names of the spider templates, "basic" first."""
    names = sorted(path.name.removesuffix(SPIDER_SUFFIX) for path in (TEMPLATES / "spiders").glob("*" + SPIDER_SUFFIX))
    return sorted(names, key=lambda name: name != "basic")


def spider_text(template: str, words: Mapping[str, str]) -> str:
    """Return the source of a spider."""
    return _filled(TEMPLATES / "spiders" / (template + SPIDER_SUFFIX), words)


def project_texts(module: str, words: Mapping[str, str]) -> dict[str, str]:
    """Return the text of each file of a project, by path. `module` is the package's name."""
    root = TEMPLATES / "project"
    return {_name(path.relative_to(root), module): _filled(path, words) for path in sorted(root.rglob("*" + SUFFIX))}


def write_new(texts: Mapping[Path, str]) -> None:
    """Write new files. If one of them exists, write none and raise `UsageError`.

    Raises `StorageError` if a write fails.
    """
    existing = next((path for path in texts if path.exists()), None)
    if existing is not None:
        raise UsageError(f"{existing} already exists and is not overwritten: remove it, or choose another name")
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def _name(path: Path, module: str) -> str:
    text = path.as_posix().removesuffix(SUFFIX).replace("module/", f"{module}/", 1)
    return ".gitignore" if text == "gitignore" else text


def _filled(path: Path, words: Mapping[str, str]) -> str:
    return Template(path.read_text(encoding="utf-8")).substitute(words)
