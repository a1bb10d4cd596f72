"""`lycosa fetch URL`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl.spiders import require_url
from lycosa.cli.exit_codes import one_line
from lycosa.cli.options import set_option
from lycosa.core.errors import StorageError
from lycosa.core.headers import Headers
from lycosa.core.units import format_size


@click.command("fetch")
@click.argument("url", metavar="URL")
@click.option("--headers", is_flag=True, help="Show the headers of the request and the response, not the body.")
@click.option("--spider", metavar="NAME", help="Fetch with the settings and middlewares of this spider of the project.")
@click.option("--no-redirect", is_flag=True, help="Do not follow redirects.")
@click.option("-o", "output", metavar="FILE", help="Write the body to this file. [default: standard output]")
@set_option
def command(
    url: str, headers: bool, spider: str | None, no_redirect: bool, output: str | None, sets: Sequence[str]
) -> None:
    """Fetch a page as a crawl would, with its settings and middlewares.

    \b
    lycosa fetch https://example.com -o page.html
    """
    from lycosa.app.crawl.one_page import fetch
    from lycosa.cli.crawl.crawl import spider_and_settings
    from lycosa.http.core.request import Request

    request = Request(require_url(url), meta={"dont_redirect": True} if no_redirect else None)
    spider_class, settings = spider_and_settings(spider, sets)
    response = fetch(settings, request, spider_class)
    if headers:
        _print_headers(">", response.request.headers)
        print(f"< {response.status}")
        _print_headers("<", response.headers)
    if output is not None or not headers:
        _write(response.body, output)
    print(_summary(response), file=sys.stderr)


def _print_headers(sign: str, fields: Mapping[str, str] | Headers) -> None:
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
    content_type = response.headers.get("content-type") or "no content type"
    return one_line(f"{response.status} {response.url}, {format_size(len(response.body))}, {content_type}")
