"""`lycosa proxies export`: the proxies of a pool as a list that `add` reads, as JSON, or as CSV."""

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

from lycosa.cli.crawl import progress
from lycosa.cli.parameters import WRITTEN
from lycosa.cli.proxies.pool import facts, pool_option, run, tag_option, tags_of
from lycosa.core.errors import StorageError
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool, ProxyView

STREAM = "-"
COLUMNS = (
    "url", "key", "state", "latency_s", "uses", "good", "bad", "exit_ip", "reason", "price_gb", "price_request", "tags",
)  # fmt: skip


@click.command("export", short_help="Write the proxies as a list, JSON or CSV.")
@pool_option
@click.option("--format", "kind", type=click.Choice(["lines", "json", "csv"]), default="lines", show_default=True,
              help="A list as add reads it, an object a line, or a table.")  # fmt: skip
@click.option("--secrets", is_flag=True, help="With user names and passwords: without them it is no copy of the pool.")
@click.option("--state", type=click.Choice(["ready", "cooling", "dead"]), help="Only those in this state.")
@tag_option
@click.option("-o", "output", type=WRITTEN, metavar="FILE", help="Write to a file. [default: standard output]")
def command(
    address: str | None, kind: str, state: str | None, tags: Sequence[str], output: str | None, *, secrets: bool
) -> None:
    """Write the proxies of a pool, the nearest first. Logins are left out unless --secrets asks for them.

    \b
    lycosa proxies export --pool pool --secrets -o proxies.txt
    lycosa proxies export --pool pool --format csv --state ready
    """
    wanted = tags_of(tags)

    async def story(pool: ProxyPool) -> list[ProxyView]:
        return [
            view
            for view in await pool.proxies()
            if (state is None or view.state is ProxyState(state)) and wanted.items() <= view.proxy.tags.items()
        ]

    views = run(address, story)
    with _written(output, secret=secrets) as file:
        WRITERS[kind](file, views, secrets)
    logins = sum(bool(view.proxy.login) for view in views)
    if logins and not secrets:
        progress.write([f"the logins of {logins:,} of {len(views):,} were left out: --secrets writes them"])


def _lines(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    for view in views:
        more = [f"{name}={value}" for name, value in view.proxy.tags.items() if not set(value) & set(" \t\r\n#")]
        prices = {"price_gb": view.proxy.price_gb, "price_request": view.proxy.price_request}
        more += [f"{name}={price:g}" for name, price in prices.items() if price]
        print(" ".join([_url(view.proxy, secrets=secrets), *more]), file=file)


def _json(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    for view in views:
        print(msgspec.json.encode(_row(view, secrets=secrets)).decode(), file=file)


def _csv(file: TextIO, views: Sequence[ProxyView], secrets: bool) -> None:
    table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    table.writeheader()
    for view in views:
        row = _row(view, secrets=secrets)
        row["tags"] = " ".join(f"{name}={value}" for name, value in row["tags"].items())
        table.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: Any) -> Any:
    """A table calculator takes what begins like a formula for one."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def _row(view: ProxyView, *, secrets: bool) -> dict[str, Any]:
    return {
        "url": _url(view.proxy, secrets=secrets),
        "key": view.proxy.key,
        "state": str(view.state),
        "latency_s": view.latency_s,
        "uses": view.uses,
        "good": view.good,
        "bad": view.bad,
        "exit_ip": view.exit_ip,
        "reason": view.reason,
        **facts(view.proxy),
    }


def _url(proxy: Proxy, *, secrets: bool) -> str:
    return proxy.url if secrets else f"{proxy.scheme}://{proxy.host}:{proxy.port}"


@contextmanager
def _written(output: str | None, *, secret: bool) -> Iterator[TextIO]:
    """Yield where to write. A file with secrets is for its owner only, and is there when it is complete."""
    if output in (None, STREAM):
        yield sys.stdout
        return
    path, part = Path(output), Path(f"{output}.part")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe is written to: it must not become a file
            with path.open("w", encoding="utf-8", newline="") as file:
                yield file
            return
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o666)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            yield file
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise StorageError(f"{output} cannot be written: {(error.strerror or str(error)).lower()}") from None


WRITERS: dict[str, Callable[[TextIO, Sequence[ProxyView], bool], None]] = {
    "lines": _lines,
    "json": _json,
    "csv": _csv,
}
