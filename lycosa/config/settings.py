"""Every setting of a crawl: its name, meaning, default and range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, get_type_hints

from lycosa import __version__
from lycosa.config.kinds import (
    BODY_MAX,
    CONTENT_TYPE,
    DAY_S,
    HEADER_LINE,
    ITEM_SUFFIXES,
    PRINTABLE_LINE,
    PROXY_URL,
    SHORT,
    Age,
    Kind,
    Location,
    Many,
    OneOf,
    Seconds,
    Size,
    Switch,
    Text,
    Urls,
    Whole,
)

USER_AGENT = f"Lycosa/{__version__}"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a crawl is told. Every field has a valid default; `load` fills in the rest."""

    concurrency: Annotated[int, Whole(1, 10_000)] = 64
    """Leases one worker holds at a time, from lease to ack."""
    concurrency_per_host: Annotated[int, Whole(1, 10_000)] = 8
    """Transfers in flight to one host, in the whole crawl."""
    delay: Annotated[float, Seconds(0, DAY_S)] = 0.0
    """Least time between the starts of two requests to one host, in seconds."""
    concurrency_per_ip: Annotated[int | None, Whole(1, 10_000, optional=True)] = None
    """Transfers in flight to all hosts of one IP address, in the whole crawl; None for no limit."""
    delay_per_ip: Annotated[float, Seconds(0, DAY_S)] = 0.0
    """Least time between the starts of two requests to one IP address, in seconds."""
    timeout: Annotated[float, Seconds(0.01, DAY_S)] = 30.0
    """Longest time for one transfer, from start to last byte, in seconds."""
    connect_timeout: Annotated[float, Seconds(0.01, DAY_S)] = 10.0
    """Longest time for name lookup, connection and TLS handshake, in seconds."""
    max_body: Annotated[int, Size(1, BODY_MAX)] = 16 * 1024**2
    """Largest body, after decompression, in bytes."""
    user_agent: Annotated[str, Text("a line of printable ASCII text", PRINTABLE_LINE)] = USER_AGENT
    """What the crawler calls itself, in requests and when it reads robots.txt."""
    header: Annotated[
        tuple[str, ...], Many(Text("a header line such as 'Accept: */*'", HEADER_LINE), commas=False)
    ] = ()
    """Header lines sent with every request."""
    proxy: Annotated[str, Text("a proxy such as http://host:3128 or socks5h://host:1080", PROXY_URL, "")] = ""
    """The proxy every request goes through; empty for none."""
    insecure: Annotated[bool, Switch()] = False
    """Accept TLS certificates that cannot be verified."""
    retries: Annotated[int, Whole(0, 100)] = 2
    """How often a failed request is tried again before it is dead."""
    robots: Annotated[bool, Switch()] = True
    """Obey robots.txt."""
    scope: Annotated[str, OneOf(("host", "domain", "prefix", "any"))] = "host"
    """Which links are followed, compared with the start URLs."""
    depth: Annotated[int | None, Whole(0, 1_000_000, optional=True)] = None
    """Most links away from a start URL; None for no limit, 0 for the start URLs alone."""
    max_pages: Annotated[int | None, Whole(1, 10**12, optional=True)] = None
    """Stop after this many pages; None for no limit."""
    allow: Annotated[tuple[str, ...], Many(Text("a pattern such as '*/docs/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match one of them."""
    deny: Annotated[tuple[str, ...], Many(Text("a pattern such as '*/private/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match none of them."""
    content_types: Annotated[tuple[str, ...], Many(Text("a content type such as text/html", CONTENT_TYPE))] = (
        "text/html",
        "application/xhtml+xml",
    )
    """Content types whose bodies are read."""
    follow_nofollow: Annotated[bool, Switch()] = True
    """Follow links marked rel=nofollow."""
    state: Annotated[str | None, Location("a folder")] = None
    """Folder of the crawl's state; None for a folder in `.lycosa/`, by crawl name."""
    index: Annotated[str | None, Location("a folder")] = None
    """Folder of the search index; None for no index."""
    output: Annotated[str | None, Location(f"a file ending in {', '.join(ITEM_SUFFIXES)}, or '-'", ITEM_SUFFIXES)] = (
        None
    )
    """File the items are appended to; None or `-` for standard output."""
    segment: Annotated[str, Text("none, hour, day, week, month, 3d, spider or module:function", SHORT, "")] = ""
    """Which stretch of the crawl a run belongs to: URLs are unique in each; empty for none."""
    refresh: Annotated[float | None, Age(1, 36_525 * DAY_S)] = None
    """Fetch again, when a run begins, what was fetched longer ago than this; None to fetch nothing twice."""
    key: Annotated[tuple[str, ...], Many(Text("tracking, sort, jsonp or drop:NAME", SHORT), commas=False)] = ()
    """What identifies a request besides its URL as it is: what is left out of it, or a function."""
    overwrite: Annotated[bool, Switch()] = False
    """Start afresh: forget the state and what the output holds."""
    expect: Annotated[int, Urls(1000, 10**9)] = 1_000_000
    """URLs for which the frontier's Bloom filter has room at once; it grows when there are more."""
    sync: Annotated[bool, Switch()] = False
    """Force every group commit to the disk, so that it survives power loss."""
    commit_every: Annotated[float, Seconds(0.001, 60)] = 0.1
    """Longest time between two group commits while there is work, in seconds."""
    commit_acks: Annotated[int, Whole(1, 100_000)] = 256
    """Most acks in one group commit."""
    free_space: Annotated[int | None, Size(0, 1 << 60, optional=True)] = None
    """Pause when less than this is free on a device the crawl writes to, in bytes; 0 never, None for what is usual."""
    lease: Annotated[float, Seconds(1, DAY_S)] = 300.0
    """How long a worker may be silent before its URLs are lent to another, in seconds; it renews what it works on."""
    lease_max: Annotated[float, Seconds(1, DAY_S)] = 3600.0
    """How long a page may be in work in all before it is given up and tried again, in seconds."""
    exit_when_idle: Annotated[bool, Switch()] = False
    """End, instead of waiting, when all that is left is due later."""
    quiet: Annotated[bool, Switch()] = False
    """Show no progress and no summary."""
    log_level: Annotated[str, OneOf(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))] = "WARNING"
    """Least severe message that is logged."""
    log_file: Annotated[str | None, Location("a file")] = None
    """File the log is appended to; None for standard error."""


@cache
def kinds() -> Mapping[str, Kind]:
    """Return what each setting may hold, by name, as the annotations of `Settings` say."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
