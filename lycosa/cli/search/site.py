"""`lycosa site`, which runs until SIGINT (exit 130) or SIGTERM (0)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import closing
from typing import Any

import click
from click.core import ParameterSource

from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.cli.search import torrents
from lycosa.cli.search.folders import chosen_index, folder_settings, index_option
from lycosa.core.errors import UsageError

PORT = 8080
"""The port to try first without --port."""
PROCESSES_MAX = 64
FOR_TORRENTS = ("base_path", "processes", "add_admin", "hide_at_once", "keep_requests_days", "admin_over_http")
"""Parameters that only a torrent site has."""


@click.command("site")
@index_option
@records_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"Port to listen on; 0 for any free port.  [default: {PORT}, or any free port if {PORT} is in use]",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Address to listen on.")
@click.option(
    "--allow-remote", is_flag=True, help="Allow a --host that other machines can reach: anyone on them can search."
)
@click.option(
    "--server-name",
    "server_names",
    multiple=True,
    metavar="NAME",
    help="Host name of the site behind a reverse proxy. Requests under other names are refused. May be repeated.",
)
@click.option("--title", default="Lycosa", show_default=True, metavar="S", help="Title of the site.")
@click.option(
    "--base-path",
    default="",
    metavar="PATH",
    help="URL path of the torrent site behind a reverse proxy, such as /torrents.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that answer the requests to a torrent site. With 2 or more, a further process accepts connections.",
)
@click.option("--add-admin", metavar="NAME", help="Set the password of an administrator of the torrent site, and exit.")
@click.option("--hide-at-once", is_flag=True, help="Remove a torrent as soon as a visitor requests its removal.")
@click.option(
    "--keep-requests",
    "keep_requests_days",
    type=click.IntRange(0, 36_500),
    default=365,
    show_default=True,
    metavar="DAYS",
    help="Delete takedown requests this many days after their decision.",
)
@click.option("--admin-over-http", is_flag=True, help="Allow administration from other machines without HTTPS.")
def command(
    location: Any,
    index_dir: str | None,
    port: int | None,
    host: str,
    title: str,
    base_path: str,
    processes: int,
    add_admin: str | None,
    keep_requests_days: int,
    *,
    server_names: tuple[str, ...],
    allow_remote: bool,
    hide_at_once: bool,
    admin_over_http: bool,
) -> int:
    """Serve a search site for an index: a search box, pages of results, and a JSON API (/api).

    The site can run while a crawl fills the index. Searching needs no password. Without --allow-remote, only this
    machine has access, and --host must be a loopback address.

    \b
    lycosa site --index index
    lycosa site --state torrents
    lycosa site --index index --host 0.0.0.0 --allow-remote
    """
    from lycosa.app.search import build_search_site, open_index
    from lycosa.cli.serving import Server, listen

    of_torrents = bool(location.state or location.store)
    if not of_torrents:
        _refuse_options(FOR_TORRENTS)
    base = torrents.site_path(base_path)
    if add_admin is not None:
        return torrents.add_admin(location, index_dir, add_admin)
    from lycosa.infra.web.listening import remote_note, stop_note, url_of, without_password

    first_port = PORT if port is None else port
    access = without_password(allow_remote=allow_remote or folder_settings().allow_remote)
    listening = closing(listen(host, first_port, f"--host {host}", access, any_port=port is None))
    with listening as listener:
        address = listener.getsockname()
        guarded = _guard(address[0], server_names)
        line = f"Search site: {url_of(address)}{base}/  ({stop_note(remote_note(address[0], access))})"
        if of_torrents:
            options = torrents.SiteOptions(
                index_dir, title, base, hide_at_once, admin_over_http, keep_requests_days, processes
            )
            return torrents.serve_torrents(location, options, listener, line, guarded)
        with closing(open_index(chosen_index(index_dir))) as index:
            print(line, flush=True)
            server = Server(guarded(build_search_site(index, title)))
            server.run(sockets=[listener])
            return INTERRUPTED if server.interrupted else DONE


def _refuse_options(names: Collection[str]) -> None:
    """Raise `UsageError` if the user gave one of these options of the command."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in names and context.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
            raise UsageError(f"{option.opts[0]} is for a torrent site: give --state or --store, too")


def _guard(address: str, names: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that makes a site refuse requests under names other than `names` and those of this machine.

    A site that is open to other machines accepts any name if `names` is empty.
    """
    from lycosa.infra.web.host_guard import HostGuard
    from lycosa.infra.web.listening import is_remote

    return lambda site: site if is_remote(address) and not names else HostGuard(site, names)
