"""Scrapy's settings that Lycosa ignores, and those that it refuses with advice.

Ignored settings concern Scrapy's internals or enable what Lycosa always does. A setting whose effect a user would miss
is refused, unless its value describes what Lycosa does anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

IGNORED = frozenset({
    "ASYNCIO_EVENT_LOOP", "COMPRESSION_ENABLED", "CONCURRENT_ITEMS", "DEFAULT_DROPITEM_LOG_LEVEL",
    "DEFAULT_ITEM_CLASS", "DEPTH_STATS_VERBOSE", "DNSCACHE_ENABLED", "DNSCACHE_SIZE",
    "DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING", "DOWNLOADER_STATS", "DOWNLOAD_DELAY_JITTER", "DOWNLOAD_WARNSIZE",
    "DUPEFILTER_DEBUG", "EDITOR", "FORCE_CRAWLER_PROCESS", "HTTP2_MAX_FRAME_SIZE", "HTTPCACHE_DBM_MODULE",
    "HTTPCACHE_GZIP", "HTTPCACHE_IGNORE_SCHEMES", "HTTPPROXY_AUTH_ENCODING", "HTTPPROXY_ENABLED",
    "HTTPX_HTTP2_ENABLED", "LOGSTATS_INTERVAL", "LOG_COLOR", "LOG_DATEFORMAT", "LOG_ENCODING", "LOG_FORMAT",
    "LOG_INSTALL_ROOT_HANDLER", "LOG_SHORT_NAMES", "LOG_VERSIONS", "MEMUSAGE_CHECK_INTERVAL_SECONDS",
    "RANDOMIZE_DOWNLOAD_DELAY", "REACTOR_THREADPOOL_MAXSIZE", "REDIRECT_MAX_METAREFRESH_DELAY",
    "REDIRECT_PRIORITY_ADJUST", "REMOTE_CONTROL_ENABLED", "REMOTE_CONTROL_JOBS_DIR",
    "REMOTE_CONTROL_OUTPUT_MAX_BYTES", "REMOTE_CONTROL_TIMEOUT_DEFAULT", "REMOTE_CONTROL_TIMEOUT_MAX",
    "REMOTE_CONTROL_TRACEBACK_MAX_BYTES", "REQUEST_FINGERPRINTER_IMPLEMENTATION", "RETRY_GIVE_UP_LOG_LEVEL",
    "RETRY_PRIORITY_ADJUST", "SCHEDULER_DEBUG", "SPIDER_LOADER_WARN_ONLY",
    "TWISTED_REACTOR_ENABLED", "WARN_ON_GENERATOR_RETURN_VALUE",
})  # fmt: skip


class UnsupportedSetting(NamedTuple):
    """What to do instead. `harmless` values are accepted, because they describe what Lycosa does anyway."""

    advice: str
    harmless: Sequence[object] = ()


_UNSUPPORTED: Sequence[tuple[str, Mapping[str, Sequence[object]]]] = (
    ("add a class of your own to downloader_middlewares or extensions", {"ADDONS": ({},)}),
    ("files_store and images_store are folders: copy them to the cloud after the crawl", {
        "AWS_ACCESS_KEY_ID": (None,), "AWS_ENDPOINT_URL": (None,), "AWS_MAX_POOL_CONNECTIONS": (None,),
        "AWS_REGION_NAME": (None,), "AWS_SECRET_ACCESS_KEY": (None,), "AWS_SESSION_TOKEN": (None,),
        "AWS_USE_SSL": (None,), "AWS_VERIFY": (None,), "FILES_STORE_GCS_ACL": ("",),
        "FILES_STORE_S3_ACL": ("private",), "GCS_PROJECT_ID": (None,), "IMAGES_STORE_GCS_ACL": ("",),
        "IMAGES_STORE_S3_ACL": ("private",),
    }),
    ("projects have no commands of their own: write a script that calls lycosa", {"COMMANDS_MODULE": ("",)}),
    ("write follow=False in the rules", {"CRAWLSPIDER_FOLLOW_LINKS": (True,)}),
    ("the system resolves names; connect_timeout includes this", {
        "DNS_RESOLVER": (), "DNS_TIMEOUT": (), "TWISTED_DNS_RESOLVER": (),
    }),
    ("there is one downloader; a class of your own goes into downloader_middlewares or extensions", {
        "DOWNLOADER": (),
    }),
    ("libcurl does TLS: the only setting is 'insecure'", {
        "DOWNLOADER_CLIENTCONTEXTFACTORY": (), "DOWNLOADER_CLIENT_TLS_CIPHERS": ("DEFAULT",),
        "DOWNLOADER_CLIENT_TLS_METHOD": ("TLS",), "DOWNLOAD_TLS_MAX_VERSION": (None,),
        "DOWNLOAD_TLS_MIN_VERSION": (None,),
    }),
    ("to turn off a built-in middleware, set it to none in downloader_middlewares", {
        "DOWNLOADER_MIDDLEWARES_BASE": (),
    }),
    ("the system chooses the local address", {"DOWNLOAD_BIND_ADDRESS": (None,)}),
    ("only http and https are fetched; a downloader middleware's process_request may return other responses", {
        "DOWNLOAD_HANDLERS": ({},), "DOWNLOAD_HANDLERS_BASE": (),
    }),
    ("give the requests of that host a download_delay in their meta", {"DOWNLOAD_SLOTS": ({},)}),
    ("use the setting fingerprint_rules (keys-and-segments.md)", {
        "DUPEFILTER_CLASS": ("scrapy.dupefilters.RFPDupeFilter",),
        "REQUEST_FINGERPRINTER_CLASS": ("scrapy.utils.request.RequestFingerprinter",),
    }),
    ("to turn off a built-in extension, set it to none in extensions", {"EXTENSIONS_BASE": ()}),
    ("write -o FILE.jsonl, .json, .csv or .sqlite (or set output)", {
        "FEEDS": ({},), "FEED_FORMAT": ("jsonlines", "jsonl", "jl"), "FEED_STORAGES": ({},), "FEED_STORAGES_BASE": (),
        "FEED_STORAGE_FTP_ACTIVE": (False,), "FEED_STORAGE_GCS_ACL": ("",), "FEED_STORAGE_S3_ACL": ("",),
        "FEED_URI": (None,), "FEED_URI_PARAMS": (None,),
    }),
    ("write the items in a pipeline of your own", {"FEED_EXPORTERS": ({},), "FEED_EXPORTERS_BASE": ()}),
    ("split the file afterwards: split -l N FILE.jsonl", {"FEED_EXPORT_BATCH_ITEM_COUNT": (0,)}),
    ("set 'fields' to select the columns of CSV; other outputs have all fields, in UTF-8: drop some in a pipeline", {
        "FEED_EXPORT_ENCODING": (None, "utf-8", "utf8", "UTF-8"), "FEED_EXPORT_FIELDS": (None,),
    }),
    ("each item is one line", {"FEED_EXPORT_INDENT": (0, None)}),
    ("the file is created when the crawl starts", {"FEED_STORE_EMPTY": (True,)}),
    ("items are written directly to the file", {"FEED_TEMPDIR": (None,)}),
    ("the fields are file_urls and files, image_urls and images", {
        "FILES_RESULT_FIELD": ("files",), "FILES_URLS_FIELD": ("file_urls",), "IMAGES_RESULT_FIELD": ("images",),
        "IMAGES_URLS_FIELD": ("image_urls",),
    }),
    ("only http and https are fetched", {
        "FTP_PASSIVE_MODE": (True,), "FTP_PASSWORD": ("guest",), "FTP_USER": ("anonymous",),
    }),
    ("write http_cache = 'replay'", {
        "HTTPCACHE_ALWAYS_STORE": (False,), "HTTPCACHE_IGNORE_RESPONSE_CACHE_CONTROLS": ([],),
    }),
    ("the cache is a database in http_cache_dir", {
        "HTTPCACHE_STORAGE": (
            "scrapy.extensions.httpcache.FilesystemCacheStorage", "scrapy.extensions.httpcache.DbmCacheStorage",
        ),
    }),
    ("list all pipelines in the setting pipelines", {"ITEM_PIPELINES_BASE": ({},)}),
    ("write a pipeline", {"ITEM_PROCESSOR": ("scrapy.pipelines.ItemPipelineManager",)}),
    ("write log_level = 'CRITICAL'", {"LOG_ENABLED": (True,)}),
    ("the log is appended to the file: delete the file before the crawl", {"LOG_FILE_APPEND": (True,)}),
    ("add a filter or a handler to Python's logging", {"LOG_FORMATTER": ("scrapy.logformatter.LogFormatter",)}),
    ("use the spider's logger instead of print", {"LOG_STDOUT": (False,)}),
    ("no mail is sent: connect spider_closed in an extension", {
        "MAIL_FROM": ("scrapy@localhost",), "MAIL_HOST": ("localhost",), "MAIL_PASS": (None,), "MAIL_PORT": (25,),
        "MAIL_SSL": (False,), "MAIL_TLS": (False,), "MAIL_USER": (None,), "MEMUSAGE_NOTIFY_MAIL": ([],),
        "STATSMAILER_RCPTS": ([],),
    }),
    ("redirects are followed for files and images too", {"MEDIA_ALLOW_REDIRECTS": (True,)}),
    ("use the standard library's tracemalloc", {"MEMDEBUG_ENABLED": (False,)}),
    ("leave it out; use max_memory and memory_warning", {"MEMUSAGE_ENABLED": (True,)}),
    ("noscript elements and comments are always ignored", {"METAREFRESH_IGNORE_TAGS": (["noscript"],)}),
    ("see the progress line, or read crawler.stats in an extension", {
        "PERIODIC_LOG_DELTA": (None, False), "PERIODIC_LOG_STATS": (None, False),
        "PERIODIC_LOG_TIMING_ENABLED": (False,),
    }),
    ("referrer_policy takes the name of a W3C policy", {"REFERRER_POLICIES": ({},)}),
    ("failed transfers are retried: raise RetryRequest after other errors, or set retries = 0 for no retries", {
        "RETRY_EXCEPTIONS": (),
    }),
    ("robots.txt is parsed by RFC 9309", {"ROBOTSTXT_PARSER": ("scrapy.robotstxt.ProtegoRobotParser",)}),
    ("the setting user_agent selects the rules in robots.txt", {"ROBOTSTXT_USER_AGENT": (None,)}),
    ("leave this setting out: the frontier is the scheduler", {"SCHEDULER": ("scrapy.core.scheduler.Scheduler",)}),
    ("the frontier keeps the order: give requests a priority, or set depth_priority", {
        "SCHEDULER_DISK_QUEUE": (), "SCHEDULER_MEMORY_QUEUE": (),
        "SCHEDULER_PRIORITY_QUEUE": ("scrapy.pqueues.DownloaderAwarePriorityQueue",),
        "SCHEDULER_START_DISK_QUEUE": (), "SCHEDULER_START_MEMORY_QUEUE": (),
    }),
    ("test callbacks with a Response of your own in pytest", {
        "SPIDER_CONTRACTS": ({},), "SPIDER_CONTRACTS_BASE": (),
    }),
    ("use spider_modules", {"SPIDER_LOADER_CLASS": ("scrapy.spiderloader.SpiderLoader",)}),
    ("to turn off a built-in middleware, set it to none in spider_middlewares", {"SPIDER_MIDDLEWARES_BASE": ()}),
    ("read crawler.stats in an extension", {"STATS_CLASS": ("scrapy.statscollectors.MemoryStatsCollector",)}),
    ("use lycosa frontier status|hosts|list while the crawl runs", {
        "TELNETCONSOLE_ENABLED": (False,), "TELNETCONSOLE_HOST": (), "TELNETCONSOLE_PASSWORD": (),
        "TELNETCONSOLE_PORT": (), "TELNETCONSOLE_USERNAME": (),
    }),
    ("genspider -t selects one of the built-in templates", {"TEMPLATES_DIR": ()}),
    ("leave this setting out: Lycosa does not use Twisted", {
        "TWISTED_REACTOR": (None, "twisted.internet.asyncioreactor.AsyncioSelectorReactor"),
    }),
)  # fmt: skip
"""Each piece of advice, and the settings to which it applies with their harmless values."""

UNSUPPORTED: Mapping[str, UnsupportedSetting] = {
    name: UnsupportedSetting(advice, harmless) for advice, names in _UNSUPPORTED for name, harmless in names.items()
}
