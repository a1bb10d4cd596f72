"""`lycosa search QUERY`. Prints in colour to a terminal, plain lines to a pipe, or JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from html import escape, unescape

import click

from lycosa.cli.exit_codes import one_line
from lycosa.cli.search.folders import chosen_index, index_option
from lycosa.core.errors import IndexFailure, UsageError
from lycosa.search.core.query import check_page, page_as_json, parse_query
from lycosa.search.core.results import Hit, SearchPage

_MARKS = re.compile(r"(</?b>)")


@click.command("search")
@click.argument("words", nargs=-1, required=True, metavar="QUERY")
@index_option
@click.option("--json", "as_json", is_flag=True, help="Write the results as one JSON object.")
@click.option("--limit", type=int, default=10, show_default=True, metavar="N", help="Maximum results.")
@click.option("--offset", type=int, default=0, metavar="N", help="Skip this many results.")
def command(words: Sequence[str], index_dir: str | None, as_json: bool, limit: int, offset: int) -> None:
    """Search an index for pages that contain all the words. To use the query syntax, quote the whole query.

    \b
    'word "these words" -without title:word site:example.org this OR that'
    """
    from lycosa.app.search import open_index

    query = " ".join(words)
    try:
        parse_query(query)
        check_page(limit, offset)
    except IndexFailure as failure:
        raise UsageError(str(failure)) from None
    with closing(open_index(chosen_index(index_dir))) as index:
        page = index.search(query, limit=limit, offset=offset)
    if as_json:
        print(json.dumps(page_as_json(query, page, limit, offset), ensure_ascii=False, indent=2))
    elif sys.stdout.isatty():
        _show(page.hits, offset)
    else:
        _write(page.hits)
    if not as_json:
        print(_summary(query, page, offset), file=sys.stderr)


def _summary(query: str, page: SearchPage, offset: int) -> str:
    suggestion = f"; did you mean: {one_line(page.suggestion)}" if page.suggestion else ""
    if not page.total:
        return f"nothing found for {one_line(query)}{suggestion}"
    first, last = offset + 1, offset + len(page.hits)
    shown = f"{first:,} to {last:,} of {page.total:,}" if page.hits else f"no results after the first {page.total:,}"
    note = "; no page has all of the words, these pages have some of them" if page.partial else ""
    return f"{shown} in {page.took_ms:.1f} ms{note}{suggestion}"


def _write(hits: Sequence[Hit]) -> None:
    for hit in hits:
        snippet = "".join(text for text, _ in _runs(hit.snippet))
        lines = [one_line(hit.title), one_line(hit.url), snippet, one_line(hit.fetched_at)]
        print("\n".join(line for line in lines if line), end="\n\n")


def _show(hits: Sequence[Hit], offset: int) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for number, hit in enumerate(hits, offset + 1):
        title, snippet = Text(), Text()
        title.append(f"{number:>3}  ", style="dim")
        for text, is_match in _runs(hit.title_html or escape(hit.url)):
            title.append(text, style="bold yellow" if is_match else "bold")
        for text, is_match in _runs(hit.snippet):
            snippet.append(text, style="bold yellow" if is_match else "")
        snippet.append(f"  {one_line(hit.fetched_at[:10])}", style="dim")
        console.print(title)
        console.print(Padding(Text(one_line(hit.url), style="green"), (0, 0, 0, 5)))
        console.print(Padding(snippet, (0, 0, 1, 5)))


def _runs(marked: str) -> Iterator[tuple[str, bool]]:
    """Yield (text, whether it is marked with `<b>`) for each piece of escaped HTML."""
    is_match = False
    for piece in _MARKS.split(marked):
        if piece in {"<b>", "</b>"}:
            is_match = piece == "<b>"
        elif piece:
            text = unescape(piece)
            yield "".join(char if char.isprintable() else " " for char in text), is_match
