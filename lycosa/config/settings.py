"""Every setting of a crawl: its name, meaning, default and range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, get_type_hints

from lycosa import __version__
from lycosa.config.composite_kinds import ImageSizes, ListOf, Networks, OutputList, PartOrder, UserTable
from lycosa.config.kinds import (
    BODY_MAX,
    CONTENT_TYPE,
    DOTTED,
    HEADER_LINE,
    PRINTABLE_LINE,
    PROXY_URL,
    SHORT,
    Boolean,
    ByteSize,
    Choice,
    Duration,
    FilePath,
    Integer,
    PoolLocation,
    RealNumber,
    SecondsWithin,
    SettingKind,
    Text,
    UrlCount,
)
from lycosa.core.public import public
from lycosa.core.retry import RETRY_STATUSES
from lycosa.core.units import DAY_S
from lycosa.frontier.core.segments import SEGMENTS_KEPT_MAX

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

Count = Annotated[int | None, Integer(1, COUNT_MAX, optional=True)]
Statuses = Annotated[tuple[int, ...], ListOf(Integer(100, 999))]
PartTable = Annotated[Mapping[str | type, int | None], PartOrder()]


@public
@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a crawl."""

    # What is crawled

    scope: Annotated[str, Choice(("host", "domain", "prefix", "any"))] = "host"
    """Which links to follow: only those with the host, domain or path prefix of a start URL; "any": all links."""
    depth: Annotated[int | None, Integer(0, 1_000_000, optional=True)] = None
    """Maximum distance from a start URL, in links; None for no limit, 0 for the start URLs alone."""
    max_pages: Annotated[int | None, Integer(1, 10**12, optional=True)] = None
    """Stop after this many pages; None for no limit."""
    allow: Annotated[tuple[str, ...], ListOf(Text("a pattern such as '*/docs/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match one of them."""
    deny: Annotated[tuple[str, ...], ListOf(Text("a pattern such as '*/private/*'", re.compile(r".+")))] = ()
    """Globs on the canonical URL; a link must match none of them."""
    content_types: Annotated[tuple[str, ...], ListOf(Text("a content type such as text/html", CONTENT_TYPE))] = (
        "text/html",
        "application/xhtml+xml",
    )
    """Content types whose bodies are downloaded."""
    follow_nofollow: Annotated[bool, Boolean()] = True
    """Follow links marked rel=nofollow."""
    robots: Annotated[bool, Boolean()] = True
    """Obey robots.txt."""
    exit_when_idle: Annotated[bool, Boolean()] = False
    """End the crawl when all remaining URLs are due later, instead of waiting for them."""
    max_url_length: Annotated[int | None, Integer(1, 1_000_000, optional=True)] = 2083
    """Maximum length of URLs to follow, in characters; None for no limit."""
    depth_priority: Annotated[int, Integer(-1_000_000, 1_000_000)] = 0
    """Number subtracted from a request's priority per level of depth; positive means breadth first."""
    httperror_allowed: Statuses = ()
    """Statuses besides 2xx whose responses reach the callbacks."""
    httperror_allow_all: Annotated[bool, Boolean()] = False
    """Pass responses of every status to the callbacks."""

    # When it ends

    close_after: Annotated[float | None, Duration(0.001, 36_525 * DAY_S)] = None
    """Stop after this many seconds; None for no limit."""
    close_after_items: Count = None
    """Stop after this many items in this run; None for no limit."""
    close_after_errors: Count = None
    """Stop after this many exceptions in callbacks and pipelines; None for no limit."""
    close_after_no_items_for: Annotated[float | None, Duration(0.001, 36_525 * DAY_S)] = None
    """Stop after this many seconds without an item; None for no limit."""
    close_after_pages_without_item: Count = None
    """Stop after this many consecutive pages without an item; None for no limit."""
    max_memory: Annotated[int | None, ByteSize(1024**2, 1 << 60, optional=True)] = None
    """Stop when the process, with its worker processes, uses more memory than this, in bytes; None for no limit."""
    memory_warning: Annotated[int | None, ByteSize(1024**2, 1 << 60, optional=True)] = None
    """Warn once when the process, with its worker processes, uses more memory than this, in bytes; None for never."""

    # How it is fetched

    concurrency: Annotated[int, Integer(1, 10_000)] = 64
    """Maximum number of leases that one worker holds at a time."""
    processes: Annotated[int, Integer(1, 256)] = 1
    """Number of processes that fetch and parse. If more than one, an additional process owns state and output."""
    concurrency_per_host: Annotated[int, Integer(1, 10_000)] = 8
    """Maximum number of concurrent transfers to one host, in the whole crawl."""
    delay: Annotated[float, SecondsWithin(0, DAY_S)] = 0.0
    """Minimum time between the starts of two requests to one host, in seconds."""
    concurrency_per_ip: Annotated[int | None, Integer(1, 10_000, optional=True)] = None
    """Maximum number of concurrent transfers to all hosts of one IP address, in the whole crawl; None for no limit."""
    delay_per_ip: Annotated[float, SecondsWithin(0, DAY_S)] = 0.0
    """Minimum time between the starts of two requests to one IP address, in seconds."""
    timeout: Annotated[float, SecondsWithin(0.01, DAY_S)] = 30.0
    """Maximum time for one transfer, from start to last byte, in seconds."""
    connect_timeout: Annotated[float, SecondsWithin(0.01, DAY_S)] = 10.0
    """Maximum time for name lookup, connection and TLS handshake, in seconds."""
    max_body: Annotated[int, ByteSize(1, BODY_MAX)] = 16 * 1024**2
    """Maximum size of a body after decompression, in bytes."""
    max_callback_bytes: Annotated[int, ByteSize(1, 1 << 60)] = 50_000_000
    """Fetch no pages while the bodies of all pages with running callbacks have more than this many bytes in total."""
    fail_on_dataloss: Annotated[bool, Boolean()] = True
    """Treat a truncated body as a failure and retry. If False, the response has the part that was received."""
    user_agent: Annotated[str, Text("a line of printable ASCII text", PRINTABLE_LINE)] = USER_AGENT
    """User agent sent in requests; it also selects the rules in robots.txt."""
    header: Annotated[
        tuple[str, ...], ListOf(Text("a header line such as 'Accept: */*'", HEADER_LINE), commas=False)
    ] = ()
    """Header lines sent with every request."""
    proxy: Annotated[str, Text("a proxy such as http://host:3128 or socks5h://host:1080", PROXY_URL, "")] = ""
    """The proxy for every request; empty for none."""
    proxy_pool: Annotated[str | None, PoolLocation("a list of proxies, a folder, or redis://host:6379/0")] = None
    """The proxy pool for every request: a list of proxies, a folder, or the URL of a Redis server; None for no pool."""
    proxy_tries: Annotated[int, Integer(1, 100)] = 5
    """Maximum number of proxies of the pool to try for a request before it counts as failed."""
    proxy_wait: Annotated[float | None, Duration(0, 36_525 * DAY_S)] = 900.0
    """Stop when the pool has had no proxy for any request for this many seconds; None for never."""
    insecure: Annotated[bool, Boolean()] = False
    """Accept TLS certificates that cannot be verified."""
    http_user: Annotated[str, Text("text", SHORT, "")] = ""
    """User name for HTTP authentication; empty for none."""
    http_pass: Annotated[str, Text("text", SHORT, "")] = ""
    """Password for HTTP authentication."""
    http_auth_domain: Annotated[str, Text("a domain", SHORT, "")] = ""
    """Domain whose hosts (subdomains, too) get the user name and password; `*` for every host."""
    allow_private: Annotated[tuple[str, ...], Networks()] = ()
    """Private hosts and networks to which links of public pages may lead; `*` for all."""
    referrer_policy: Annotated[str, Choice(REFERRER_POLICIES)] = "no-referrer-when-downgrade"
    """Content of the Referer header (W3C Referrer Policy)."""
    auto_throttle: Annotated[bool, Boolean()] = False
    """Adapt the delay of each host to its response time."""
    auto_throttle_start: Annotated[float, SecondsWithin(0, DAY_S)] = 5.0
    """Initial delay of auto-throttle, in seconds."""
    auto_throttle_max_delay: Annotated[float, SecondsWithin(0, DAY_S)] = 60.0
    """Maximum delay that auto-throttle sets, in seconds."""
    auto_throttle_target: Annotated[float, RealNumber(0.01, 10_000)] = 1.0
    """Average number of concurrent requests to one host that auto-throttle aims at."""
    auto_throttle_debug: Annotated[bool, Boolean()] = False
    """Log each change of a delay by auto-throttle."""

    # Retries and redirects

    retries: Annotated[int, Integer(0, 100)] = 2
    """Maximum number of retries of a failed request; after that it is dead."""
    retry_enabled: Annotated[bool, Boolean()] = True
    """Retry failed requests; False overrides `retries`."""
    retry_statuses: Statuses = tuple(sorted(RETRY_STATUSES))
    """Statuses that count as failures and are retried."""
    backoff_base: Annotated[float, SecondsWithin(0, DAY_S)] = 1.0
    """Wait before the first retry, in seconds; it doubles with each retry."""
    max_backoff: Annotated[float, SecondsWithin(0, DAY_S)] = 60.0
    """Maximum wait before a retry, in seconds; a Retry-After may require a longer one."""
    redirect: Annotated[bool, Boolean()] = True
    """Follow redirects."""
    max_redirects: Annotated[int, Integer(0, 1000)] = 20
    """Maximum number of redirects in a row, by status or by meta refresh."""
    meta_refresh: Annotated[bool, Boolean()] = True
    """Follow the meta refresh of pages."""
    meta_refresh_max_delay: Annotated[float, SecondsWithin(0, DAY_S)] = 100.0
    """Maximum delay of a meta refresh to follow, in seconds."""

    # Cookies and cache

    cookies: Annotated[bool, Boolean()] = True
    """Keep the cookies that servers set, and send them back."""
    cookies_shared: Annotated[bool, Boolean()] = False
    """Share cookies with the other workers of a crawl (`--frontier`): all act as one user."""
    cookies_debug: Annotated[bool, Boolean()] = False
    """Log the cookies that are sent and received."""
    http_cache: Annotated[str, Choice(("off", "rfc9111", "replay"))] = "off"
    """HTTP cache by the rules of RFC 9111; or `replay`, which serves every stored response while you write a spider."""
    http_cache_dir: Annotated[str | None, FilePath("a folder")] = None
    """Folder of the cache; None for `httpcache` in `home`."""
    http_cache_expiration: Annotated[float | None, Duration(0.001, 36_525 * DAY_S)] = None
    """Age at which `replay` fetches a response again, in seconds; None for never."""
    http_cache_ignore_missing: Annotated[bool, Boolean()] = False
    """Fetch nothing that is not in the cache."""
    http_cache_ignore_statuses: Statuses = ()
    """Statuses that `replay` does not store; by default those that are retried."""
    http_cache_size: Annotated[int, ByteSize(1024**2, 1 << 60)] = 1024**3
    """Maximum size of the cache on disk, in bytes."""

    # Items

    output: Annotated[tuple[str, ...], OutputList()] = ()
    """Outputs for items: files (format by suffix, or FILE:FORMAT), streams in Redis, or `-` for
    standard output, which is the default."""
    fields: Annotated[tuple[str, ...], ListOf(Text("the name of a field", SHORT), distinct=True)] = ()
    """Columns of CSV outputs; by default all fields of the first items."""
    overwrite: Annotated[bool, Boolean()] = False
    """Start from scratch: delete the state and the content of the output."""
    files_store: Annotated[str | None, FilePath("a folder")] = None
    """Folder for files in items; None for no downloads."""
    images_store: Annotated[str | None, FilePath("a folder")] = None
    """Folder for images in items; None for no downloads."""
    media_expires: Annotated[float | None, Duration(0, 36_525 * DAY_S)] = 90 * DAY_S
    """Age at which a file or image is downloaded again, in seconds; None for never."""
    media_max_size: Annotated[int, ByteSize(1, 1 << 40)] = 1 << 30
    """Maximum size of a file or image after decompression, in bytes."""
    media_concurrency: Annotated[int, Integer(1, 1000)] = 8
    """Maximum number of concurrent downloads of files or images for one item."""
    media_deduplicate: Annotated[bool, Boolean()] = False
    """Store identical files from several URLs once, under several names (hard links)."""
    images_thumbs: Annotated[Mapping[str, tuple[int, int]], ImageSizes()] = field(default_factory=dict)
    """Thumbnails to make of each image: name to width and height, in pixels."""
    images_min_width: Annotated[int, Integer(0, 1_000_000)] = 0
    """Minimum width of images, in pixels; narrower ones are dropped."""
    images_min_height: Annotated[int, Integer(0, 1_000_000)] = 0
    """Minimum height of images, in pixels; shorter ones are dropped."""

    # Parts

    pipelines: PartTable = field(default_factory=dict)
    """Item pipelines and their order."""
    downloader_middlewares: PartTable = field(default_factory=dict)
    """Additional downloader middlewares and their order; None disables a built-in one."""
    spider_middlewares: PartTable = field(default_factory=dict)
    """Additional spider middlewares and their order; None disables a built-in one."""
    extensions: PartTable = field(default_factory=dict)
    """Additional extensions and their order; None disables a built-in one."""
    callback_mode: Annotated[str, Choice(("loop", "thread"))] = "loop"
    """Where callbacks that are not coroutines run: on the event loop or in threads."""
    callback_threads: Annotated[int, Integer(1, 1000)] = 8
    """Maximum number of threads for callbacks."""
    slow_callback_after: Annotated[float, SecondsWithin(0, DAY_S)] = 1.0
    """Report a callback that blocks the event loop for longer than this, in seconds; 0 for never."""

    # Project

    bot_name: Annotated[str, Text("a name", SHORT, "")] = ""
    """Name of the project; it is not sent (see `user_agent`)."""
    spider_modules: Annotated[tuple[str, ...], ListOf(Text("a module such as shop.spiders", DOTTED))] = ()
    """Modules and packages that hold the spiders of the project."""
    new_spider_module: Annotated[str, Text("a module such as shop.spiders", DOTTED, "")] = ""
    """Package to which genspider writes; empty for the first of `spider_modules`."""
    user: Annotated[Mapping[str, Any], UserTable()] = field(default_factory=dict)
    """The user's own settings, unchecked."""
    home: Annotated[str, FilePath("a folder", required=True)] = ".lycosa"
    """Default folder of the HTTP cache and of crawl states. Each state has a subfolder with the name of its crawl."""

    # State

    state: Annotated[str | None, FilePath("a folder")] = None
    """Folder of the crawl's state; None for a folder in `home` with the name of the crawl."""
    index: Annotated[str | None, FilePath("a folder")] = None
    """Folder of the search index; None for no index."""
    segment: Annotated[str, Text("none, hour, day, week, month, 3d, spider or module:function", SHORT, "")] = ""
    """Segments in which every URL is fetched once: a period such as `day`, `spider`, or a function; empty for none."""
    keep_segments: Annotated[int | None, Integer(1, SEGMENTS_KEPT_MAX, optional=True)] = None
    """Number of archived segments to keep of each period (hour, day, ...); None for as many as a state can hold."""
    keep_segments_for: Annotated[float | None, Duration(3600, 36_525 * DAY_S)] = None
    """Age at which archived segments are dropped, in seconds from their starts; None for never."""
    export_segments: Annotated[str | None, FilePath("a folder")] = None
    """Folder to which segments are exported before they are dropped; None for no export."""
    refresh: Annotated[float | None, Duration(1, 36_525 * DAY_S)] = None
    """Age at which URLs are fetched again when a run starts, in seconds; None for never."""
    retry_dead: Annotated[bool, Boolean()] = False
    """Queue dead URLs again when a run starts."""
    fingerprint_rules: Annotated[
        tuple[str, ...], ListOf(Text("tracking, sort, jsonp or drop:NAME", SHORT), commas=False)
    ] = ()
    """Rules for deduplication: URL parts to ignore, or a function; none by default."""
    expected_urls: Annotated[int, UrlCount(1000, 10**9)] = 1_000_000
    """Initial capacity of the frontier's Bloom filter, in URLs; it grows if there are more."""
    frontier: Annotated[str, Text("an address such as redis://host:6379/0", SHORT, "")] = ""
    """URL of the Redis server with a frontier that several workers share; "" for an embedded frontier."""
    crawl_name: Annotated[str, Text("a name", SHORT, "")] = ""
    """Name of the crawl in a shared frontier; "" for the name of its spider or site."""
    keep_alive: Annotated[bool, Boolean()] = False
    """Wait for more URLs when a shared crawl is done."""
    partitions: Annotated[int, Integer(1, 1024)] = 1
    """Number of partitions of a shared frontier, over which hosts are distributed; fixed when the crawl starts."""
    keep_done: Annotated[bool, Boolean()] = False
    """Keep the full records of done URLs in a shared frontier, to list and refresh them; fixed when the crawl
    starts."""
    replicas: Annotated[int, Integer(0, 10)] = 0
    """Number of replicas of a shared frontier's Redis for whose confirmation each commit waits, at most 1 s."""
    expire_after: Annotated[float | None, Duration(60.0, 36_525 * DAY_S)] = None
    """Time for which a finished shared crawl is kept after its end, in seconds; None to keep it for ever."""
    sync: Annotated[bool, Boolean()] = False
    """fsync every group commit, so that it survives power loss."""
    commit_every: Annotated[float, SecondsWithin(0.001, 60)] = 0.1
    """Maximum time between two group commits while there is work, in seconds."""
    commit_acks: Annotated[int, Integer(1, 100_000)] = 256
    """Maximum number of acks in one group commit."""
    free_space: Annotated[int | None, ByteSize(0, 1 << 60, optional=True)] = None
    """Pause while a device that the crawl uses has less free space than this, in bytes; 0 for never, None for the
    default."""
    lease: Annotated[float, SecondsWithin(1, DAY_S)] = 300.0
    """Seconds after which a lease expires unless it is renewed. A worker renews the leases of its pages. Leases of a
    dead worker expire sooner: in a shared crawl after 2 s, otherwise when the crawl is restarted."""
    max_lease: Annotated[float, SecondsWithin(1, DAY_S)] = 3600.0
    """Maximum time of work on one page, callback included, in seconds; after it the page is abandoned and retried."""

    # Messages

    metrics: Annotated[str, Text("a port, or ADDRESS:PORT", SHORT, "")] = ""
    """Port of `/metrics` for Prometheus while the crawl runs, by default on loopback; "" for none."""
    allow_remote: Annotated[bool, Boolean()] = False
    """Let servers without a password (`metrics`, `lycosa site`) listen on addresses that other machines can reach."""
    quiet: Annotated[bool, Boolean()] = False
    """Show no progress and no summary."""
    log_level: Annotated[str, Choice(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))] = "WARNING"
    """Minimum level of the messages to log."""
    log_file: Annotated[str | None, FilePath("a file")] = None
    """File to which the log is appended; None for standard error."""
    log_json: Annotated[bool, Boolean()] = False
    """Log one JSON object per line, with time, level, logger, message and fields such as url."""
    stats_dump: Annotated[bool, Boolean()] = True
    """Log the stats when the crawl ends."""


@cache
def kinds() -> Mapping[str, SettingKind]:
    """Return the kind of each setting, from the annotations of `Settings`."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
