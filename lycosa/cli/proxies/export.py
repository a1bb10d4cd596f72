"""`lycosa proxies export`."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec

from lycosa.app.proxies.inspection import proxy_info, select_proxies
from lycosa.cli.crawl import progress
from lycosa.cli.parameters import NON_EMPTY
from lycosa.cli.proxies.pool import format_tags, parse_tags, pool_option, run, tag_option
from lycosa.core.errors import StorageError
from lycosa.infra.line_files import STREAM
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool, ProxyView

COLUMNS = (
    "url", "key", "state", "latency_s", "uses", "good", "bad", "exit_ip", "reason", "price_gb", "price_request", "tags",
)  # fmt: skip


@click.command("export")
@pool_option
@click.option("--format", "kind", type=click.Choice(["lines", "json", "csv"]), default="lines", show_default=True,
              help="lines: a list that `add` can read; json: an object per line; csv: a table.")  # fmt: skip
@click.option("--secrets", is_flag=True, help="Include user names and passwords, which a copy of the pool needs.")
@click.option("--state", type=click.Choice(["ready", "cooling", "dead"]), help="Only proxies in this state.")
@tag_option
@click.option("-o", "output", type=NON_EMPTY, metavar="FILE", help="Write to a file. [default: standard output]")
def command(
    address: str | None, kind: str, state: str | None, tags: Sequence[str], output: str | None, *, secrets: bool
) -> None:
    """Write the proxies of a pool, lowest latency first. Logins are written only with --secrets.

    \b
    lycosa proxies export --pool pool --secrets -o proxies.txt
    lycosa proxies export --pool pool --format csv --state ready
    """
    required_tags = parse_tags(tags)

    async def action(pool: ProxyPool) -> list[ProxyView]:
        return select_proxies(await pool.proxies(), state, required_tags)

    views = run(address, action)
    with _output(output, secret=secrets) as file:
        WRITERS[kind](file, views, secrets)
    logins = sum(bool(view.proxy.login) for view in views)
    if logins and not secrets:
        progress.write([f"the logins of {logins:,} of {len(views):,} proxies were omitted: --secrets writes them"])


def _write_lines(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    for view in views:
        # In a list, white space ends a tag and # starts a comment, so values that contain them cannot be written.
        tags = {name: value for name, value in view.proxy.tags.items() if not set(value) & set(" \t\r\n#")}
        prices = {"price_gb": view.proxy.price_gb, "price_request": view.proxy.price_request}
        fields = {**tags, **{name: f"{price:g}" for name, price in prices.items() if price}}
        print(f"{_url(view.proxy, secrets=secrets)} {format_tags(fields)}".rstrip(), file=file)


def _write_json(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    for view in views:
        print(msgspec.json.encode(_row(view, secrets=secrets)).decode(), file=file)


def _write_csv(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    table.writeheader()
    for view in views:
        row = _row(view, secrets=secrets)
        row["tags"] = format_tags(row["tags"])
        table.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    """Quote text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _row(view: ProxyView, *, secrets: bool) -> dict[str, Any]:
    fields = {"url": _url(view.proxy, secrets=secrets), **msgspec.structs.asdict(proxy_info(view))}
    return {name: fields[name] for name in COLUMNS}


def _url(proxy: Proxy, *, secrets: bool) -> str:
    return proxy.url if secrets else f"{proxy.scheme}://{proxy.host}:{proxy.port}"


@contextmanager
def _output(output: str | None, *, secret: bool) -> Iterator[TextIO]:
    """Open the output. A file appears only when complete; with secrets, only its owner can read it."""
    if output in (None, STREAM):
        yield sys.stdout
        return
    path, draft = Path(output), Path(f"{output}.part")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe, which must not be replaced by a file
            with path.open("w", encoding="utf-8", newline="") as file:
                yield file
            return
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            if secret:
                os.fchmod(descriptor, 0o600)  # a draft that an interrupted export has left keeps its mode
            yield file
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise StorageError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}") from None


WRITERS: dict[str, Callable[[TextIO, Sequence[ProxyView], bool], None]] = {
    "lines": _write_lines,
    "json": _write_json,
    "csv": _write_csv,
}
