"""`lycosa fetch URL`: fetch one page through the engine, with the settings and middlewares of a crawl."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl.spiders import enter_project, load_named, project_settings, require_url
from lycosa.cli.exit_codes import one_line
from lycosa.cli.options import set_option
from lycosa.core.errors import StorageError
from lycosa.core.headers import Headers
from lycosa.core.units import format_size


@click.command("fetch")
@click.argument("url", metavar="URL")
@click.option(
    "--headers", is_flag=True, help="Show the header fields that the request set, and what was received, not the body."
)
@click.option("--spider", metavar="NAME", help="As this spider of the project would, with its settings.")
@click.option("--no-redirect", is_flag=True, help="Show a redirect itself, not what it leads to.")
@click.option("-o", "output", metavar="FILE", help="Write the body to this file. [default: standard output]")
@set_option
def command(
    url: str, headers: bool, spider: str | None, no_redirect: bool, output: str | None, sets: Sequence[str]
) -> None:
    """Fetch a page as a crawl would: through the same middlewares, with the same settings.

    \b
    lycosa fetch https://example.com -o page.html
    """
    from lycosa.app.crawl.one_page import fetch
    from lycosa.cli.crawl.crawl import set_up_log, settings_for
    from lycosa.http.core.request import Request

    request = Request(require_url(url), meta={"dont_redirect": True} if no_redirect else None)
    enter_project()
    chosen = load_named(spider, project_settings(sets)) if spider else None
    settings = settings_for(chosen, {}, sets)
    set_up_log(settings)
    response = fetch(settings, request, chosen)
    if headers:
        _show_headers(">", response.request.headers)
        print(f"< {response.status}")
        _show_headers("<", response.headers)
    if output is not None or not headers:
        _write(response.body, output)
    print(_summary(response), file=sys.stderr)


def _show_headers(sign: str, fields: Mapping[str, str] | Headers) -> None:
    for name, value in fields.items():
        print(one_line(f"{sign} {name}: {value}"))


def _write(body: bytes, output: str | None) -> None:
    if output is None:
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        Path(output).write_bytes(body)
    except OSError as error:
        raise StorageError(f"-o {output}: {(error.strerror or str(error)).lower()}") from None


def _summary(response: Any) -> str:
    kind = response.headers.get("content-type") or "no content type"
    return one_line(f"{response.status} {response.url}, {format_size(len(response.body))}, {kind}")
