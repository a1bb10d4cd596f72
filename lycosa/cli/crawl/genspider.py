"""`lycosa genspider NAME DOMAIN|URL`."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

import click

from lycosa.cli.crawl.spiders import enter_project, find_spiders, folder_of, project_settings
from lycosa.cli.crawl.templating import spider_templates, spider_text, write_new
from lycosa.config import Settings
from lycosa.core.errors import BadUrl, UsageError

NAME = re.compile(r"[A-Za-z][\w.-]*", re.ASCII)


@click.command("genspider")
@click.option(
    "-t", "--template", type=click.Choice(spider_templates()), default="basic", show_default=True, help="Template."
)
@click.argument("name", metavar="NAME")
@click.argument("address", metavar="DOMAIN|URL")
def command(template: str, name: str, address: str) -> None:
    """Write a spider from a template.

    The file is written to the project's package of spiders; without a project, to the current folder.

    \b
    lycosa genspider quotes quotes.toscrape.com
    lycosa genspider -t crawl shop https://shop.example.com/catalogue/
    """
    module = re.sub(r"\W", "_", name)
    if not NAME.fullmatch(name) or keyword.iskeyword(module):
        raise UsageError(
            f"{name!r} cannot be a spider's name: use letters, digits, _, - and ., a letter first, no Python keyword"
        )
    url, domain = _start_url(address)
    origin = "/".join(url.split("/")[:3])
    words = {"name": name, "url": url, "domain": domain, "origin": origin, "class_name": _class_name(module)}
    enter_project()
    settings = project_settings()
    _refuse_duplicate(settings, name)
    path = _folder(settings) / f"{module}.py"
    write_new({path: spider_text(template, words)})
    run = f"lycosa crawl {name}" if settings.spider_modules else f"lycosa runspider {path}"
    print(f"{path}: the spider {name} was written. Run it:\n  {run}", file=sys.stderr)


def _start_url(text: str) -> tuple[str, str]:
    from lycosa.core.url import canonicalize

    url = canonicalize(text if "://" in text else f"https://{text}")
    if any(each in url for each in '"\\$\n'):
        raise BadUrl(f"{text!r} cannot be written into a spider: escape it with %")
    return url, urlsplit(url).hostname or ""


def _class_name(module: str) -> str:
    words = "".join(part[:1].upper() + part[1:] for part in module.split("_") if part)
    return words if words.lower().endswith("spider") else f"{words}Spider"


def _refuse_duplicate(settings: Settings, name: str) -> None:
    if settings.spider_modules:
        for each in find_spiders(settings.spider_modules).named(name):
            raise UsageError(f"{each.file} already has a spider {name!r}: choose another name")


def _folder(settings: Settings) -> Path:
    package = settings.new_spider_module or next(iter(settings.spider_modules), "")
    return folder_of(package) if package else Path()
