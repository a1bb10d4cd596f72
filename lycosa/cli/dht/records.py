"""Options of the commands that read or change the store."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lycosa.cli.parameters import NON_EMPTY


def records_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, as the argument `location`."""

    @wraps(function)
    def call(*, state: str | None, store: str | None, **arguments: Any) -> Any:
        from lycosa.app.dht_state import RecordsLocation

        return function(location=RecordsLocation(state, store), **arguments)

    for option in reversed(OPTIONS):
        call = option(call)
    return call


OPTIONS = (
    click.option("--state", type=NON_EMPTY, metavar="DIR", help="State folder of a DHT crawl, with its torrents."),
    click.option(
        "--store",
        type=NON_EMPTY,
        metavar="URL",
        help="Database server with the torrents: postgresql://HOST/DATABASE or mysql://HOST/DATABASE.",
    ),
)

rules_option = click.option(
    "--rules",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rule file, in addition to those in the folder of --state (docs/torrent-rules.md). May be repeated.",
)
