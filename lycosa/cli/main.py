"""The command `lycosa`: finds the verb, runs it, and turns every error into one line and an exit code.

    0 all done   1 finished, but some requests are dead   2 bad usage or settings
    3 cannot start or continue   130 interrupted (the same command resumes)

The traceback of an internal error goes to a file, which the error line names; with LYCOSA_DEBUG=1, to standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import click

from lycosa import __version__
from lycosa.cli.exit_codes import DONE, FAILED, INTERRUPTED, USAGE, one_line
from lycosa.cli.lazy_group import LazyGroup
from lycosa.cli.streams import drop_output, drop_unwritable, open_closed_streams
from lycosa.core.errors import LycosaError, StorageError, UsageError

MESSAGE_MAX = 500
VERBS = {
    "crawl": ("lycosa.cli.crawl.crawl", "Crawl sites and write every page as an item, or run spiders of the project."),
    "runspider": ("lycosa.cli.crawl.runspider", "Run a spider from a Python file."),
    "worker": ("lycosa.cli.crawl.worker", "Run one worker of a crawl that several workers share."),
    "seed": ("lycosa.cli.frontier.seed", "Add start URLs to a crawl, before or while it runs."),
    "top": ("lycosa.cli.frontier.top", "Watch a crawl that several workers share."),
    "startproject": ("lycosa.cli.crawl.startproject", "Start a project: a folder for spiders and their settings."),
    "genspider": ("lycosa.cli.crawl.genspider", "Write a spider from a template."),
    "list": ("lycosa.cli.crawl.list", "List the spiders of the project."),
    "fetch": ("lycosa.cli.crawl.fetch", "Fetch one page as a crawl would."),
    "shell": ("lycosa.cli.crawl.shell", "Try out selectors and requests at a prompt."),
    "search": ("lycosa.cli.search.search", "Search an index in the terminal."),
    "site": ("lycosa.cli.search.site", "Search an index in the browser."),
    "index": ("lycosa.cli.search.index", "Build and inspect a search index."),
    "frontier": ("lycosa.cli.frontier.frontier", "Inspect and change the stored URLs of a crawl."),
    "proxies": ("lycosa.cli.proxies", "Manage a proxy pool: fill, inspect, check and serve it."),
    "dht": ("lycosa.cli.dht", "Run a DHT node, and find the peers and the metadata of torrents."),
    "settings": ("lycosa.cli.settings", "Show every setting, its value, and its source."),
    "version": ("lycosa.cli.version", "Show the version."),
}

SCRAPY_COMMANDS = {
    "bench": "the benchmarks are in bench/ in the source",
    "check": "spider contracts are not supported",
    "edit": "lycosa list shows the file of each spider",
    "parse": "try lycosa shell URL --spider NAME",
    "view": "try lycosa shell URL, then view(response)",
}
"""Scrapy's commands that Lycosa does not have, and what to do instead."""


class Verbs(LazyGroup):
    """The group of all verbs; adds `lycosa help VERB`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name == "help":  # `lycosa help crawl` is `lycosa crawl --help`
            if not args[1:]:
                click.echo(ctx.get_help())
                ctx.exit()
            name, args = args[1], [*args[1:], "--help"]
        if name not in VERBS and not name.startswith("-"):
            raise UsageError(_unknown_verb(name))
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    commands_by_name=VERBS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, help="Show the version.")
@click.pass_context
def lycosa(ctx: click.Context, *, version: bool) -> None:
    """Crawl, store and search. Nothing is lost if a crawl is killed.

    \b
    lycosa crawl https://example.com -o items.jsonl --index index
    lycosa search "hello world" --index index
    """
    if version:
        click.echo(f"lycosa {__version__} (Python {sys.version.split()[0]})")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, by default that of this process. Return the exit code."""
    open_closed_streams()
    try:
        _refuse_stale_modules()
        return _run(sys.argv[1:] if argv is None else list(argv))
    except BrokenPipeError:
        drop_output()  # as with `lycosa ... | head`
        return DONE
    except (KeyboardInterrupt, click.Abort):
        return _fail(INTERRUPTED, "interrupted")
    except click.ClickException as error:
        return _fail(USAGE, explain(error))
    except Exception as error:  # noqa: BLE001  every error becomes one line
        known = next(_lycosa_errors(error), None)
        if known is None:
            return _fail(FAILED, _report(error))
        if isinstance(error, StorageError):
            drop_unwritable()
        return _fail(USAGE if isinstance(known, UsageError) else FAILED, str(known))


def _refuse_stale_modules() -> None:
    """Raise `UsageError` if compiled modules are older than their sources, because Python would load the old code.

    Checked only in a checkout, which has the file `scripts/compile`.
    """
    root = Path(__file__).parents[2]
    if (root / "scripts/compile").exists() and _is_stale(root):
        raise UsageError("compiled modules are older than their sources: run `make compiled` or `make interpreted`")


def _is_stale(root: Path) -> bool:
    suffix = EXTENSION_SUFFIXES[0]  # of modules compiled for this Python
    sources: list[Path] = []
    with contextlib.suppress(OSError):  # the stamp of scripts/compile lists the sources
        stamp = root / "build/compiled" / suffix.split(".")[1] / "stamp"
        sources = [root / line for line in stamp.read_text(encoding="utf-8").splitlines()[1:]]
    library = root / "lycosa" / f"compiled__mypyc{suffix}"
    if not library.exists():
        return any(source.with_suffix(suffix).exists() for source in sources)
    try:
        return not sources or max(source.stat().st_mtime for source in sources) > library.stat().st_mtime
    except FileNotFoundError:
        return True  # a source was moved


def _run(arguments: list[str]) -> int:
    # Not click's own main(): it prints errors itself, and exits when a pipe breaks.
    try:
        with lycosa.make_context("lycosa", arguments) as context:
            result = lycosa.invoke(context)
    except click.exceptions.Exit as exit_:
        result = exit_.exit_code
    sys.stdout.flush()
    return result if isinstance(result, int) else DONE


def explain(error: click.ClickException) -> str:
    """Format click's error in the style of our own messages."""
    from lycosa.config import did_you_mean
    from lycosa.config.renamed import renamed_option

    context = error.ctx if isinstance(error, click.UsageError) else None
    see = f": see {context.command_path} --help" if context else ""
    if isinstance(error, click.NoSuchOption):
        if renamed := renamed_option(error.option_name):
            return renamed
        nearest = next((each for each in error.possibilities or () if _is_like(each, error.option_name)), "")
        return f"unknown option {error.option_name}" + (did_you_mean(nearest) or see)
    if isinstance(error, click.MissingParameter) and error.param is not None and context:
        option = isinstance(error.param, click.Option)
        return f"{context.info_name} needs {error.param.opts[0] if option else error.param.make_metavar(context)}{see}"
    text = error.format_message().strip().rstrip(".").replace("valid integer range", "whole number")
    return f"{text[:1].lower()}{text[1:]}{see}"


def _is_like(option: str, written: str) -> bool:
    """Return whether the names are similar without their dashes. click also compares the dashes."""
    from difflib import get_close_matches

    return bool(get_close_matches(written.lstrip("-"), [option.lstrip("-")]))


def _unknown_verb(name: str) -> str:
    from lycosa.config import suggest

    if "://" in name:
        return f"unknown command {name!r}: to crawl it, write lycosa crawl {name}"
    if name in SCRAPY_COMMANDS:
        return f"unknown command {name!r}: {SCRAPY_COMMANDS[name]}"
    return f"unknown command {name!r}" + (suggest(name, VERBS) or ": lycosa --help lists them")


def _lycosa_errors(error: BaseException) -> Iterator[LycosaError]:
    if isinstance(error, LycosaError):
        yield error
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _lycosa_errors(each)


def _fail(code: int, line: str) -> int:
    with contextlib.suppress(OSError):
        print(f"lycosa: {one_line(line)}", file=sys.stderr, flush=True)
    return code


def _report(error: Exception) -> str:
    """Write the traceback to a file, or to standard error. Return the line for the user."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    line = f"internal error: {type(error).__name__}: {str(error)[:MESSAGE_MAX]}"
    if os.environ.get("LYCOSA_DEBUG") != "1":
        with contextlib.suppress(OSError):
            with tempfile.NamedTemporaryFile("w", prefix="lycosa-", suffix=".txt", delete=False) as file:
                file.write(text)
            return f"{line} (please report it with {file.name})"
    sys.stderr.write(text)
    return line
