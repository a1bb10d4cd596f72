"""`lycosa site`: serve a search site until SIGINT (exit code 130) or SIGTERM (exit code 0)."""

from __future__ import annotations

from contextlib import closing

import click

from lycosa.cli.exit_codes import DONE, INTERRUPTED
from lycosa.cli.search.folders import index_folder, index_option

PORT = 8080
"""The port to try first without --port."""


@click.command("site")
@index_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help=f"Port to listen on; 0 for a free one.  [default: {PORT} or a free one]",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Address to listen on.")
@click.option("--title", default="Lycosa", show_default=True, metavar="S", help="Title of the site.")
def command(index_dir: str | None, port: int | None, host: str, title: str) -> int:
    """Serve a search site for an index: a search box, pages of results, and a JSON API (/api).

    The site can run while a crawl fills the index. It has no password: unless --host is 127.0.0.1, others can search.

    \b
    lycosa site --index index
    """
    from lycosa.app.search import build_search_site, open_index
    from lycosa.cli.serving import Server, listen

    first_port = PORT if port is None else port
    with (
        closing(open_index(index_folder(index_dir))) as index,
        closing(listen(host, first_port, "--host", any_port=port is None)) as listener,
    ):
        address = listener.getsockname()
        shown = f"[{host}]" if ":" in host else host
        print(f"Search site: http://{shown}:{address[1]}/  (Ctrl-C stops it)", flush=True)
        server = Server(build_search_site(index, title))
        server.run(sockets=[listener])
        return INTERRUPTED if server.interrupted else DONE
