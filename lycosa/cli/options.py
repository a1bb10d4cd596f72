"""The options that commands share: names, help texts, groups, and the layout of help.

`config.load` checks the values, so a mistake gets the same message as in any other source of settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from lycosa.cli.parameters import NON_EMPTY
from lycosa.config import Settings
from lycosa.config import flag as option_name
from lycosa.core.errors import UsageError
from lycosa.storage.core.output import parse_outputs

F = TypeVar("F", bound=Callable[..., Any])
OUTPUT, LIMITS, REQUESTS, STORAGE, DISPLAY = "Items", "What is crawled", "How it is fetched", "State", "Messages"
SPIDER, OTHER = "Spider and settings", "Other"


class Flag(NamedTuple):
    """A setting that is also an option. A switch has no metavar."""

    setting: str
    group: str
    metavar: str
    help: str
    repeatable: bool = False
    letter: str = ""
    default: str | None = None


FLAGS = (
    Flag(
        "scope",
        LIMITS,
        "host|domain|prefix|any",
        "Follow only links with the host, domain or path prefix of a start URL; any: all links.",
    ),
    Flag("depth", LIMITS, "N", "Maximum distance from a start URL, in links; 0: start URLs only.", default="no limit"),
    Flag("max_pages", LIMITS, "N", "Stop after this many pages.", default="no limit"),
    Flag("close_after", LIMITS, "S", "Stop after this time: seconds, 30m, 12h.", default="no limit"),
    Flag("close_after_items", LIMITS, "N", "Stop after this many items.", default="no limit"),
    Flag("exit_when_idle", LIMITS, "", "Exit when all remaining URLs are due later, instead of waiting."),
    Flag("allow", LIMITS, "GLOB", "Follow only links whose canonical URL matches. May be repeated.", repeatable=True),
    Flag("deny", LIMITS, "GLOB", "Never follow links whose canonical URL matches. May be repeated.", repeatable=True),
    Flag("content_types", LIMITS, "T,...", "Content types to download."),
    Flag("follow_nofollow", LIMITS, "", "Follow links marked rel=nofollow."),
    Flag("robots", LIMITS, "", "Obey robots.txt."),
    Flag("concurrency", REQUESTS, "N", "Maximum pages in progress, callbacks included."),
    Flag("processes", REQUESTS, "N", "Number of processes that fetch and parse."),
    Flag("concurrency_per_host", REQUESTS, "N", "Maximum concurrent transfers per host."),
    Flag("delay", REQUESTS, "S", "Minimum seconds between two requests to a host."),
    Flag(
        "concurrency_per_ip",
        REQUESTS,
        "N",
        "Maximum concurrent transfers per IP address.",
        default="no limit",
    ),
    Flag("delay_per_ip", REQUESTS, "S", "Minimum seconds between two requests to an IP address."),
    Flag("fields", OUTPUT, "NAME,...", "Columns of CSV outputs. [default: the fields of the first items]"),
    Flag("timeout", REQUESTS, "S", "Maximum seconds for one transfer."),
    Flag("connect_timeout", REQUESTS, "S", "Maximum seconds for name lookup, connection and TLS."),
    Flag("max_body", REQUESTS, "BYTES", "Maximum size of a page, decompressed: 500000, 10MB, 10MiB.", default="16MiB"),
    Flag("retries", REQUESTS, "N", "Maximum retries of a request; then its URL is dead."),
    Flag("user_agent", REQUESTS, "S", "User-Agent header, and the name looked up in robots.txt."),
    Flag("header", REQUESTS, "'K: V'", "Header sent with every request. May be repeated.", repeatable=True),
    Flag("proxy", REQUESTS, "URL", "Proxy for every request (http, https, socks4, socks4a, socks5, socks5h)."),
    Flag("proxy_pool", REQUESTS, "POOL", "Proxy pool for the requests: a file, a folder or redis://..."),
    Flag("frontier", STORAGE, "redis://...", "Redis server through which workers share the frontier."),
    Flag("keep_alive", STORAGE, "", "Wait for more URLs when a shared crawl is done."),
    Flag("crawl_name", STORAGE, "NAME", "Name of the crawl in a shared frontier."),
    Flag("insecure", REQUESTS, "", "Accept invalid TLS certificates."),
    Flag("cookies", REQUESTS, "", "Store cookies and send them back."),
    Flag("http_cache", REQUESTS, "off|rfc9111|replay", "HTTP cache to use; replay never fetches a page twice."),
    Flag("auto_throttle", REQUESTS, "", "Adapt the delay of each host to its response times."),
    Flag("allow_private", REQUESTS, "", "Follow links from public hosts to private addresses."),
    Flag("state", STORAGE, "DIR", "Folder of the state: what is done and what is queued.", default=".lycosa/NAME"),
    Flag(
        "segment",
        STORAGE,
        "day|3d|...",
        "Fetch all pages again in each period: hour, day, week, month, 3d...",
        default="none",
    ),
    Flag(
        "refresh",
        STORAGE,
        "AGE",
        "Fetch pages again after this age: 12h, 7d, 2w.",
        default="never",
    ),
    Flag("retry_dead", STORAGE, "", "Queue dead URLs again when the crawl starts or resumes."),
    Flag(
        "fingerprint_rules",
        STORAGE,
        "WORD,...",
        "What deduplication ignores in URLs. tracking: tracking parameters; sort: the order of parameters; drop:NAME: "
        "the parameter NAME.",
        True,
    ),
    Flag("index", STORAGE, "DIR", "Index the pages for `lycosa search` and `lycosa site`."),
    Flag(
        "expected_urls",
        STORAGE,
        "N",
        "Initial size of the Bloom filter, in URLs, at most a billion. The filter grows if needed.",
    ),
    Flag("sync", STORAGE, "", "Force every commit to the disk, to survive power loss."),
    Flag("commit_every", STORAGE, "S", "Maximum seconds between two commits."),
    Flag("commit_acks", STORAGE, "N", "Maximum pages in one commit."),
    Flag(
        "free_space",
        STORAGE,
        "BYTES",
        "Pause when free disk space is below this; 0: never.",
        default="512MiB or 1% of the disk, whichever is less",
    ),
    Flag("lease", STORAGE, "S", "Seconds after which the lease of a page expires unless it is renewed."),
    Flag("max_lease", STORAGE, "S", "Maximum seconds of work on a page; then the page is retried."),
    Flag("metrics", DISPLAY, "[ADDRESS:]PORT", "Serve /metrics for Prometheus while the crawl runs."),
    Flag("allow_remote", DISPLAY, "", "Allow an address for --metrics that other machines can reach."),
    Flag("quiet", DISPLAY, "", "Show no progress and no summary.", letter="-q"),
    Flag("log_level", DISPLAY, "L", "Minimum level of log messages: DEBUG, INFO, WARNING, ERROR.", letter="-L"),
    Flag("log_file", DISPLAY, "F", "Append the log to this file.", default="standard error"),
    Flag("log_json", DISPLAY, "", "Log one JSON object per line."),
)
"""Settings that are also options. -o and -O set `output` and `overwrite` together; -s sets any setting."""

COMMON_OPTIONS = frozenset(
    [
        *("output", "output_afresh", "scope", "depth", "max_pages", "allow", "deny", "robots", "concurrency", "delay"),
        *("state", "segment", "refresh", "retry_dead", "index", "quiet", "log_level", "arguments", "sets"),
    ]
)
"""The options of a crawl that `--help` lists, by parameter name; `--help-all` lists the others too."""

SET_HELP = "Change a setting, by its name in Lycosa or Scrapy."
ALL_OPTIONS = "lycosa.cli.all_options"
"""The value of `obj` in a click context whose help lists all options."""

NEEDS_VALUE = frozenset({"proxy", "proxy_pool"})
"""Options that must not be empty: with an unset shell variable, the crawl would run without a proxy."""


class GroupedOption(click.Option):
    """An option that is listed under the heading `group`."""

    def __init__(self, *declarations: Any, group: str = OTHER, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """The help lists the options under headings, in the order of their declaration.

    `--help` lists only the options named in `common`, `--help-all` lists all. Neither lists those in `refused`.
    """

    common = COMMON_OPTIONS
    refused: frozenset[str] = frozenset()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The group `OTHER` comes last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if isinstance(parameter, GroupedOption) and not self._lists(parameter.name, ctx):
                continue
            if record is not None:
                groups.setdefault(getattr(parameter, "group", OTHER), []).append(record)
        for name in sorted(groups, key=lambda name: name == OTHER):
            with formatter.section(name):
                formatter.write_dl(groups[name])

    def _lists(self, name: str | None, ctx: click.Context) -> bool:
        return name not in self.refused and (name in self.common or ctx.obj == ALL_OPTIONS)


def crawl_options(command: F) -> F:
    """Add -o, -O, -s, -a and all `FLAGS`. Options that were not given are None or ()."""
    spider = [
        _grouped("-a", "arguments", SPIDER, "NAME=VALUE", "Argument for the spider. May be repeated.", multiple=True),
        _grouped("-s", "sets", SPIDER, "NAME=VALUE", SET_HELP + " May be repeated.", "--set", multiple=True),
    ]
    append = (
        "Append the items to a file, or to a stream in Redis. The suffix selects the format (.jsonl, .json, .csv,"
        " .sqlite) and the compression (.gz, .zst); FILE:FORMAT names the format. May be repeated."
        " [default: standard output]"
    )
    afresh = "Start afresh: delete the state and overwrite the file."
    output = [
        _grouped("-o", "output", OUTPUT, "FILE", append, multiple=True),
        _grouped("-O", "output_afresh", OUTPUT, "FILE", afresh, multiple=True),
    ]
    show_all: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all_options}
    help_all = click.option("--help-all", help="Show all options and exit.", **show_all)
    for decorate in reversed([*output, *map(_option, FLAGS), *spider, help_all]):
        command = decorate(command)
    return command


def _show_all_options(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.obj = ALL_OPTIONS
        click.echo(ctx.get_help())
        ctx.exit()


def set_option(command: F) -> F:
    """Add -s to a command that does not crawl, as `sets`."""
    return click.option("-s", "--set", "sets", metavar="NAME=VALUE", multiple=True, help=SET_HELP)(command)


def setting_flags(options: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings given as options. Raises `UsageError`."""
    values = ((flag.setting, options[flag.setting]) for flag in FLAGS)
    flags: dict[str, object] = {name: value for name, value in values if value not in (None, ())}
    appended, afresh = options["output"], options["output_afresh"]
    if appended and afresh:
        raise UsageError("-o and -O exclude each other: -o appends to the file, -O starts afresh")
    if appended or afresh:
        flags |= {"output": appended or afresh, "overwrite": not appended}
        if "fields" in flags and not any(each.format == "csv" for each in parse_outputs(appended or afresh)):
            raise UsageError("--fields are the columns of CSV, and no output is CSV")
    return flags


def spider_arguments(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of the -a options by name. Raises `UsageError`."""
    arguments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"-a {text!r}: write NAME=VALUE, where NAME is a Python name")
        arguments[name] = value
    return arguments


def _grouped(letter: str, name: str, group: str, metavar: str, text: str, *words: str, **more: Any) -> Callable[[F], F]:
    return click.option(letter, *words, name, cls=GroupedOption, group=group, metavar=metavar, help=text, **more)


def _option(flag: Flag) -> Callable[[F], F]:
    names = [name for name in (flag.letter, option_name(flag.setting)) if name]
    default = getattr(Settings(), flag.setting)
    if flag.metavar:
        more: dict[str, Any] = {"metavar": flag.metavar, "multiple": flag.repeatable}
        if flag.setting in NEEDS_VALUE:
            more["type"] = NON_EMPTY
    else:
        more = {"is_flag": True}
        if default is True:
            names[-1] += f"/{option_name('no_' + flag.setting)}"
        default = "yes" if default is True else ""
    shown = flag.default or _default_text(default)
    text = f"{flag.help} [default: {shown}]" if shown else flag.help
    return click.option(*names, flag.setting, cls=GroupedOption, group=flag.group, help=text, default=None, **more)


def _default_text(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default is None else str(default)
