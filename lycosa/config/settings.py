"""Every setting of a crawl: its name, meaning, default and range.

Scrapy's names for them are in `scrapy_names`; docs/settings.md tells the same at length, in the same groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_type_hints

from lycosa import __version__
from lycosa.config.kinds import (
    BODY_MAX,
    CONTENT_TYPE,
    DAY_S,
    DOTTED,
    HEADER_LINE,
    ITEM_SUFFIXES,
    PRINTABLE_LINE,
    PROXY_URL,
    SHORT,
    Age,
    Kind,
    Location,
    Number,
    OneOf,
    Output,
    PoolPlace,
    Seconds,
    Size,
    Switch,
    Text,
    Urls,
    Whole,
)
from lycosa.config.several import Many, Networks, Parts, Sizes, Table
from lycosa.core.public import public
from lycosa.core.retry import RETRY_STATUSES

USER_AGENT = f"Lycosa/{__version__}"
REFERRER_POLICIES = (
    "no-referrer",
    "no-referrer-when-downgrade",
    "same-origin",
    "origin",
    "strict-origin",
    "origin-when-cross-origin",
    "strict-origin-when-cross-origin",
    "unsafe-url",
)
COUNT_MAX = 10**12

Count = Annotated[int | None, Whole(1, COUNT_MAX, optional=True)]
Statuses = Annotated[tuple[int, ...], Many(Whole(100, 999))]
PartTable = Annotated[Mapping[str | type, int | None], Parts()]


@public
@dataclass(frozen=True, slots=True)
class Settings:
    """What a crawl is told. Every field has a valid default; `load` fills in the rest."""

    # What is crawled

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
    robots: Annotated[bool, Switch()] = True
    """Obey robots.txt."""
    exit_when_idle: Annotated[bool, Switch()] = False
    """End, instead of waiting, when all that is left is due later."""
    url_length_max: Annotated[int | None, Whole(1, 1_000_000, optional=True)] = 2083
    """Longest URL that is followed, in characters; None for no limit."""
    depth_priority: Annotated[int, Whole(-1_000_000, 1_000_000)] = 0
    """What each link away from a start URL takes from the priority of a request: positive is breadth first."""
    httperror_allowed: Statuses = ()
    """Statuses besides 2xx whose responses reach the callbacks."""
    httperror_allow_all: Annotated[bool, Switch()] = False
    """Every status reaches the callbacks."""

    # When it ends

    close_after: Annotated[float | None, Age(0.001, 36_525 * DAY_S)] = None
    """Stop after so many seconds; None for no limit."""
    close_after_items: Count = None
    """Stop after so many items of this run; None for no limit."""
    close_after_errors: Count = None
    """Stop after so many exceptions in callbacks and pipelines; None for no limit."""
    close_after_idle_items: Annotated[float | None, Age(0.001, 36_525 * DAY_S)] = None
    """Stop when no item came for so many seconds; None for no limit."""
    close_after_pages_without_item: Count = None
    """Stop when so many pages in a row brought no item; None for no limit."""
    memory_max: Annotated[int | None, Size(1024**2, 1 << 60, optional=True)] = None
    """Stop when the process holds more memory than this, in bytes; None for no limit."""
    memory_warning: Annotated[int | None, Size(1024**2, 1 << 60, optional=True)] = None
    """Warn once when the process holds more memory than this, in bytes; None for never."""

    # How it is fetched

    concurrency: Annotated[int, Whole(1, 10_000)] = 64
    """Leases one worker holds at a time, from lease to ack."""
    processes: Annotated[int, Whole(1, 256)] = 1
    """Processes of this machine that fetch and parse; with more than one, a further one keeps the crawl together."""
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
    fail_on_dataloss: Annotated[bool, Switch()] = True
    """A body that is cut off is a failure, and tried again; else it is a response with what came."""
    user_agent: Annotated[str, Text("a line of printable ASCII text", PRINTABLE_LINE)] = USER_AGENT
    """What the crawler calls itself, in requests and when it reads robots.txt."""
    header: Annotated[
        tuple[str, ...], Many(Text("a header line such as 'Accept: */*'", HEADER_LINE), commas=False)
    ] = ()
    """Header lines sent with every request."""
    proxy: Annotated[str, Text("a proxy such as http://host:3128 or socks5h://host:1080", PROXY_URL, "")] = ""
    """The proxy every request goes through; empty for none."""
    proxy_pool: Annotated[str | None, PoolPlace("a list of proxies, a folder, or redis://host:6379/0")] = None
    """Where the pool is through whose proxies every request goes: a list of proxies, a folder, the address of a Redis;
    None for no pool."""
    proxy_tries: Annotated[int, Whole(1, 100)] = 5
    """How many proxies of the pool are tried for a request before it counts as failed."""
    proxy_wait: Annotated[float | None, Age(0, 36_525 * DAY_S)] = 900.0
    """How long the crawl goes on while the pool lends nobody a proxy, in seconds; None for as long as it takes."""
    insecure: Annotated[bool, Switch()] = False
    """Accept TLS certificates that cannot be verified."""
    http_user: Annotated[str, Text("text", SHORT, "")] = ""
    """User name for HTTP authentication; empty for none."""
    http_pass: Annotated[str, Text("text", SHORT, "")] = ""
    """Password for HTTP authentication."""
    http_auth_domain: Annotated[str, Text("a domain", SHORT, "")] = ""
    """Domain that is told user name and password, with what is below it; `*` for every host."""
    allow_private: Annotated[tuple[str, ...], Networks()] = ()
    """Private hosts and networks that links found on public hosts may lead to; `*` for all."""
    referrer_policy: Annotated[str, OneOf(REFERRER_POLICIES)] = "no-referrer-when-downgrade"
    """What the Referer header tells (W3C Referrer Policy)."""
    auto_throttle: Annotated[bool, Switch()] = False
    """Adapt the delay of each host to how fast it answers."""
    auto_throttle_start: Annotated[float, Seconds(0, DAY_S)] = 5.0
    """Delay with which auto-throttle begins, in seconds."""
    auto_throttle_max: Annotated[float, Seconds(0, DAY_S)] = 60.0
    """Longest delay that auto-throttle sets, in seconds."""
    auto_throttle_target: Annotated[float, Number(0.01, 10_000)] = 1.0
    """Requests in flight to one host that auto-throttle aims at, on average."""
    auto_throttle_debug: Annotated[bool, Switch()] = False
    """Log what auto-throttle decides about each response."""

    # Retries and redirects

    retries: Annotated[int, Whole(0, 100)] = 2
    """How often a failed request is tried again before it is dead."""
    retry_enabled: Annotated[bool, Switch()] = True
    """Try failed requests again at all."""
    retry_statuses: Statuses = tuple(sorted(RETRY_STATUSES))
    """Statuses that count as failures worth another try."""
    backoff_base: Annotated[float, Seconds(0, DAY_S)] = 1.0
    """Wait before the first further try, in seconds; it doubles with each one."""
    backoff_max: Annotated[float, Seconds(0, DAY_S)] = 60.0
    """Longest wait before a further try, in seconds; a Retry-After may ask for more."""
    redirect: Annotated[bool, Switch()] = True
    """Follow redirects."""
    redirects_max: Annotated[int, Whole(0, 1000)] = 20
    """Most redirects in a row, by status or by page."""
    meta_refresh: Annotated[bool, Switch()] = True
    """Follow the redirects that pages of a spider ask for (meta refresh)."""
    meta_refresh_max_delay: Annotated[float, Seconds(0, DAY_S)] = 100.0
    """Longest delay of a meta refresh that is followed, in seconds."""

    # Cookies and cache

    cookies: Annotated[bool, Switch()] = True
    """Keep the cookies that servers set, and send them back."""
    cookies_shared: Annotated[bool, Switch()] = False
    """Share the cookies with the other workers of a crawl (`--frontier`): they are one user."""
    cookies_debug: Annotated[bool, Switch()] = False
    """Log the cookies that are sent and received."""
    http_cache: Annotated[str, OneOf(("off", "rfc9111", "replay"))] = "off"
    """Answer from a cache: as RFC 9111 allows, or `replay` whatever was answered once, while a spider is written."""
    http_cache_dir: Annotated[str | None, Location("a folder")] = None
    """Folder of the cache; None for `httpcache` in `home`."""
    http_cache_expiration: Annotated[float | None, Age(0.001, 36_525 * DAY_S)] = None
    """Age from which `replay` fetches again, in seconds; None for never."""
    http_cache_ignore_missing: Annotated[bool, Switch()] = False
    """Fetch nothing that the cache does not have."""
    http_cache_ignore_statuses: Statuses = ()
    """Statuses that the cache does not keep."""
    http_cache_size: Annotated[int, Size(1024**2, 1 << 60)] = 1024**3
    """Most room for the cache on the disk, in bytes."""

    # Items

    output: Annotated[
        str | None, Output(f"a file ending in {', '.join(ITEM_SUFFIXES)}, a stream in Redis, or '-'", ITEM_SUFFIXES)
    ] = None
    """File the items are appended to, or the address of a stream in Redis; None or `-` for standard output."""
    overwrite: Annotated[bool, Switch()] = False
    """Start afresh: forget the state and what the output holds."""
    files_store: Annotated[str | None, Location("a folder")] = None
    """Folder for the files that items name; None for no downloads."""
    images_store: Annotated[str | None, Location("a folder")] = None
    """Folder for the images that items name; None for no downloads."""
    media_expires: Annotated[float | None, Age(0, 36_525 * DAY_S)] = 90 * DAY_S
    """Age from which a file or image is downloaded again, in seconds; None for never."""
    media_max_size: Annotated[int, Size(1, 1 << 40)] = 1 << 30
    """Largest file or image, after decompression, in bytes."""
    media_concurrency: Annotated[int, Whole(1, 1000)] = 8
    """Files or images of one item that are downloaded at a time."""
    media_same_once: Annotated[bool, Switch()] = False
    """Keep equal files of several URLs once, under several names (hard links)."""
    images_thumbs: Annotated[Mapping[str, tuple[int, int]], Sizes()] = field(default_factory=dict)
    """Thumbnails to make of each image: name to width and height."""
    images_min_width: Annotated[int, Whole(0, 1_000_000)] = 0
    """Narrower images are dropped, in pixels."""
    images_min_height: Annotated[int, Whole(0, 1_000_000)] = 0
    """Lower images are dropped, in pixels."""

    # Parts

    pipelines: PartTable = field(default_factory=dict)
    """Item pipelines and their order."""
    downloader_middlewares: PartTable = field(default_factory=dict)
    """Downloader middlewares besides the built-in ones, and their order; None switches one off."""
    spider_middlewares: PartTable = field(default_factory=dict)
    """Spider middlewares besides the built-in ones, and their order; None switches one off."""
    extensions: PartTable = field(default_factory=dict)
    """Extensions besides the built-in ones, and their order; None switches one off."""
    callback_mode: Annotated[str, OneOf(("loop", "thread"))] = "loop"
    """Where callbacks that are no coroutines run: on the event loop, or in threads."""
    callback_threads: Annotated[int, Whole(1, 1000)] = 8
    """Most threads for callbacks."""
    blocked_after: Annotated[float, Seconds(0, DAY_S)] = 1.0
    """A callback that holds the event loop longer than this is named, in seconds; 0 for never."""

    # Project

    bot_name: Annotated[str, Text("a name", SHORT, "")] = ""
    """Name of the project. It is not sent: the user agent says who crawls."""
    spider_modules: Annotated[tuple[str, ...], Many(Text("a module such as shop.spiders", DOTTED))] = ()
    """Modules and packages in which the spiders of the project are."""
    new_spider_module: Annotated[str, Text("a module such as shop.spiders", DOTTED, "")] = ""
    """Package into which genspider writes; empty for the first of `spider_modules`."""
    user: Annotated[Mapping[str, Any], Table()] = field(default_factory=dict)
    """Settings of the user's own: kept as given."""
    home: Annotated[str, Location("a folder", required=True)] = ".lycosa"
    """Folder for all that has no place of its own: states by crawl name, the cache."""

    # State

    state: Annotated[str | None, Location("a folder")] = None
    """Folder of the crawl's state; None for a folder in `home`, by crawl name."""
    index: Annotated[str | None, Location("a folder")] = None
    """Folder of the search index; None for no index."""
    segment: Annotated[str, Text("none, hour, day, week, month, 3d, spider or module:function", SHORT, "")] = ""
    """Which stretch of the crawl a run belongs to: URLs are unique in each; empty for none."""
    refresh: Annotated[float | None, Age(1, 36_525 * DAY_S)] = None
    """Fetch again, when a run begins, what was fetched longer ago than this; None to fetch nothing twice."""
    key: Annotated[tuple[str, ...], Many(Text("tracking, sort, jsonp or drop:NAME", SHORT), commas=False)] = ()
    """What identifies a request besides its URL as it is: what is left out of it, or a function."""
    expect: Annotated[int, Urls(1000, 10**9)] = 1_000_000
    """URLs for which the frontier's Bloom filter has room at once; it grows when there are more."""
    frontier: Annotated[str, Text("an address such as redis://host:6379/0", SHORT, "")] = ""
    """Where the frontier is that several workers share, the address of a Redis; "" for one of our own."""
    crawl_name: Annotated[str, Text("a name", SHORT, "")] = ""
    """What the crawl is called in a shared frontier; "" for the name of its spider or site."""
    keep_alive: Annotated[bool, Switch()] = False
    """Do not end when a shared crawl is done, but wait for more."""
    partitions: Annotated[int, Whole(1, 1024)] = 1
    """Into how many parts the hosts of a shared frontier are divided; it is fixed when the crawl begins."""
    keep_done: Annotated[bool, Switch()] = False
    """Keep what is done in a shared frontier whole, to list and refresh it; it is fixed when the crawl begins."""
    replicas: Annotated[int, Whole(0, 10)] = 0
    """How many replicas of a shared frontier's Redis have a commit before the crawl goes on."""
    sync: Annotated[bool, Switch()] = False
    """Force every group commit to the disk, so that it survives power loss."""
    commit_every: Annotated[float, Seconds(0.001, 60)] = 0.1
    """Longest time between two group commits while there is work, in seconds."""
    commit_acks: Annotated[int, Whole(1, 100_000)] = 256
    """Most acks in one group commit."""
    free_space: Annotated[int | None, Size(0, 1 << 60, optional=True)] = None
    """Pause when less than this is free on a device the crawl writes to, in bytes; 0 never, None for what is usual."""
    lease: Annotated[float, Seconds(1, DAY_S)] = 300.0
    """How long a lease lasts that nobody renews, in seconds. Who works on a page renews its lease; what a dead worker
    had is lent again sooner: in a shared crawl after 2 s, else when the crawl is started again."""
    lease_max: Annotated[float, Seconds(1, DAY_S)] = 3600.0
    """How long a page may be in work in all before it is given up and tried again, in seconds."""

    # Messages

    metrics: Annotated[str, Text("a port, or ADDRESS:PORT", SHORT, "")] = ""
    """Where `/metrics` is served for Prometheus while the crawl runs, by itself on loopback; "" for nowhere."""
    quiet: Annotated[bool, Switch()] = False
    """Show no progress and no summary."""
    log_level: Annotated[str, OneOf(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))] = "WARNING"
    """Least severe message that is logged."""
    log_file: Annotated[str | None, Location("a file")] = None
    """File the log is appended to; None for standard error."""
    stats_dump: Annotated[bool, Switch()] = True
    """Log the stats when the crawl ends."""


@cache
def kinds() -> Mapping[str, Kind]:
    """Return what each setting may hold, by name, as the annotations of `Settings` say."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
