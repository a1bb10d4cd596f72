"""The options that commands share: names, help and groups of what people set while they type, and how help looks.

Values are not checked here: they reach `config.load` as they were written, so that a mistake is explained in the same
words wherever it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from lycosa.cli.parameters import WRITTEN
from lycosa.config import Settings, flag
from lycosa.core.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
OUTPUT, LIMITS, REQUESTS, STORAGE, DISPLAY = "Items", "What is crawled", "How it is fetched", "State", "Messages"
SPIDER, OTHER = "Spider and settings", "Other"


class Flag(NamedTuple):
    """How one setting looks on the command line. A switch has no metavar."""

    setting: str
    group: str
    metavar: str
    text: str
    many: bool = False
    letter: str = ""
    default: str | None = None


FLAGS = (
    Flag("scope", LIMITS, "host|domain|prefix|any", "Which links to follow, compared with the start URLs."),
    Flag("depth", LIMITS, "N", "Most links away from a start URL; 0 for the start URLs alone.", default="no limit"),
    Flag("max_pages", LIMITS, "N", "Stop after this many pages.", default="no limit"),
    Flag("close_after", LIMITS, "S", "Stop after so long: seconds, or 30m, 12h.", default="no limit"),
    Flag("close_after_items", LIMITS, "N", "Stop after this many items.", default="no limit"),
    Flag("exit_when_idle", LIMITS, "", "End, instead of waiting, when all that is left is due later."),
    Flag("allow", LIMITS, "GLOB", "Follow only links whose canonical URL matches. May be repeated.", many=True),
    Flag("deny", LIMITS, "GLOB", "Never follow links whose canonical URL matches. May be repeated.", many=True),
    Flag("content_types", LIMITS, "T,...", "Content types to read; others are not downloaded."),
    Flag("follow_nofollow", LIMITS, "", "Follow links marked rel=nofollow."),
    Flag("robots", LIMITS, "", "Obey robots.txt."),
    Flag("concurrency", REQUESTS, "N", "Requests in work at a time."),
    Flag("processes", REQUESTS, "N", "Processes of this machine that fetch and parse."),
    Flag("concurrency_per_host", REQUESTS, "N", "Transfers at a time to one host."),
    Flag("delay", REQUESTS, "S", "Least seconds between two requests to one host."),
    Flag("concurrency_per_ip", REQUESTS, "N", "Transfers at a time to one IP address.", default="no limit"),
    Flag("delay_per_ip", REQUESTS, "S", "Least seconds between two requests to one IP address."),
    Flag("timeout", REQUESTS, "S", "Most seconds for one transfer."),
    Flag("connect_timeout", REQUESTS, "S", "Most seconds for name lookup, connection and TLS."),
    Flag("max_body", REQUESTS, "BYTES", "Largest page, decompressed: 500000, 10MB, 10MiB.", default="16MiB"),
    Flag("retries", REQUESTS, "N", "Further tries after a failure, before a URL is dead."),
    Flag("user_agent", REQUESTS, "S", "What the crawler calls itself."),
    Flag("header", REQUESTS, "'K: V'", "Header sent with every request. May be repeated.", many=True),
    Flag("proxy", REQUESTS, "URL", "Send every request through this proxy (http, https, socks4, socks5, socks5h)."),
    Flag("proxy_pool", REQUESTS, "POOL", "Go through proxies of this pool: a list, a folder, redis://..."),
    Flag("frontier", STORAGE, "redis://...", "Share the frontier with other workers, in this Redis."),
    Flag("keep_alive", STORAGE, "", "Wait for more when a shared crawl is done."),
    Flag("crawl_name", STORAGE, "NAME", "The name of the crawl in a shared frontier."),
    Flag("insecure", REQUESTS, "", "Accept TLS certificates that cannot be verified."),
    Flag("cookies", REQUESTS, "", "Keep the cookies that servers set, and send them back."),
    Flag("http_cache", REQUESTS, "off|rfc9111|replay", "Answer from a cache; replay fetches nothing twice."),
    Flag("auto_throttle", REQUESTS, "", "Adapt the delay of each host to how fast it answers."),
    Flag("allow_private", REQUESTS, "", "Follow links from public hosts to private addresses."),
    Flag("state", STORAGE, "DIR", "Where the crawl keeps what it has done and has to do.", default=".lycosa/NAME"),
    Flag(
        "segment", STORAGE, "day|3d|...", "Fetch pages anew in each hour, day, week, month, 3d, 2w...", default="none"
    ),
    Flag("refresh", STORAGE, "AGE", "Fetch again what was fetched longer ago: 12h, 7d, 2w.", default="never"),
    Flag("retry_dead", STORAGE, "", "Queue dead URLs again before the crawl goes on."),
    Flag(
        "fingerprint_rules",
        STORAGE,
        "WORD,...",
        "What of a URL does not count: tracking, sort, jsonp, drop:NAME...",
        many=True,
    ),
    Flag("index", STORAGE, "DIR", "Index the pages for `lycosa search` and `lycosa site`."),
    Flag(
        "expected_urls",
        STORAGE,
        "N",
        "URLs the crawl will know, about, a billion at most: room in the Bloom filter, which grows.",
    ),
    Flag("sync", STORAGE, "", "Force every commit to the disk: survives power loss too."),
    Flag("commit_every", STORAGE, "S", "Most seconds between two commits."),
    Flag("commit_acks", STORAGE, "N", "Most pages in one commit."),
    Flag(
        "free_space",
        STORAGE,
        "BYTES",
        "Pause while less is free on the disk; 0 for never.",
        default="512MiB, or 1% of a smaller disk",
    ),
    Flag(
        "lease",
        STORAGE,
        "S",
        "Seconds a lease lasts that nobody renews; who works on a page does. What a dead worker had is lent again"
        " sooner: on Redis after 2 s, on one machine when the crawl is started again.",
    ),
    Flag("max_lease", STORAGE, "S", "Most seconds a page may be in work; then it is given up and tried again."),
    Flag("metrics", DISPLAY, "[ADDRESS:]PORT", "Serve /metrics for Prometheus while the crawl runs."),
    Flag("quiet", DISPLAY, "", "Show errors only: no progress, no summary.", letter="-q"),
    Flag("log_level", DISPLAY, "L", "Least severe message to log: DEBUG, INFO, WARNING, ERROR.", letter="-L"),
    Flag("log_file", DISPLAY, "F", "Append the log to this file.", default="standard error"),
)
"""The settings that people type. -o and -O set `output` and `overwrite` together; -s reaches all the others."""

ANONYMOUS = frozenset({"proxy", "proxy_pool"})
"""Options with nothing behind them would let a crawl go out by itself: by a variable that is not set, mostly."""


class GroupedOption(click.Option):
    """An option that knows under which heading it is listed."""

    def __init__(self, *declarations: Any, group: str = OTHER, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists the options under headings, in the order of their declaration."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the groups, the unnamed one last."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(parameter, "group", OTHER), []).append(record)
        for name in sorted(groups, key=lambda name: name == OTHER):
            with formatter.section(name):
                formatter.write_dl(groups[name])


def crawl_options(command: F) -> F:
    """Add -o, -O, -s, -a and the settings that people type. What was given are keywords, the rest is None or ()."""
    spider = [
        _grouped("-a", "arguments", SPIDER, "NAME=VALUE", "Argument for the spider. May be repeated.", multiple=True),
        _grouped(
            "-s", "sets", SPIDER, "NAME=VALUE", "Set any setting by name, ours or Scrapy's.", "--set", multiple=True
        ),
    ]
    output = [
        _grouped(
            "-o",
            "output",
            OUTPUT,
            "FILE",
            "Append the items to a .jsonl file, or to a stream in Redis. [default: standard output]",
        ),
        _grouped("-O", "output_afresh", OUTPUT, "FILE", "Start afresh: forget the state, overwrite the file."),
    ]
    for decorate in reversed([*output, *map(_option, FLAGS), *spider]):
        command = decorate(command)
    return command


def set_option(command: F) -> F:
    """Add -s to a command that does not crawl, as `sets`."""
    text = "Set a setting by name, ours or Scrapy's."
    return click.option("-s", "--set", "sets", metavar="NAME=VALUE", multiple=True, help=text)(command)


def given(options: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings that the command line names, for `config.load`. Raises `UsageError`."""
    flags: dict[str, object] = {each.setting: options[each.setting] for each in FLAGS}
    flags = {name: value for name, value in flags.items() if value not in (None, ())}
    appended, afresh = options["output"], options["output_afresh"]
    if appended is not None and afresh is not None:
        raise UsageError("-o and -O exclude each other: -o goes on where the file ends, -O starts afresh")
    if appended is not None or afresh is not None:
        flags |= {"output": afresh if appended is None else appended, "overwrite": appended is None}
    return flags


def spider_arguments(texts: Sequence[str]) -> dict[str, str]:
    """Return what follows -a by name. Raises `UsageError`."""
    arguments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"-a {text!r}: write NAME=VALUE, where NAME is a Python name")
        arguments[name] = value
    return arguments


def _grouped(letter: str, name: str, group: str, metavar: str, text: str, *words: str, **more: Any) -> Callable[[F], F]:
    return click.option(letter, *words, name, cls=GroupedOption, group=group, metavar=metavar, help=text, **more)


def _option(each: Flag) -> Callable[[F], F]:
    names = [name for name in (each.letter, flag(each.setting)) if name]
    default = getattr(Settings(), each.setting)
    more: dict[str, Any] = {"default": None, "metavar": each.metavar or None, "multiple": each.many}
    if each.setting in ANONYMOUS:
        more["type"] = WRITTEN
    if not each.metavar:
        on_by_default = default is True
        names[-1] += f"/{flag('no_' + each.setting)}" if on_by_default else ""
        more = {"default": None, "is_flag": True}
        default = "yes" if on_by_default else ""
    text = f"{each.text} [default: {shown}]" if (shown := each.default or _shown(default)) else each.text
    return click.option(*names, each.setting, cls=GroupedOption, group=each.group, help=text, **more)


def _shown(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    if isinstance(default, float):
        return f"{default:g}"
    return "" if default is None else str(default)
