"""Scrapy's settings that mean nothing here: those that are passed over, and those whose user is told what to do.

Passed over is what changes nothing that a user could miss: knobs of Scrapy's inside, and work that is done here anyway.
Whoever wants something that they would not get reads one line instead, unless the value asks for what happens anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NOT_NEEDED = frozenset({
    "ASYNCIO_EVENT_LOOP",
    "COMPRESSION_ENABLED",
    "CONCURRENT_ITEMS",
    "DEFAULT_DROPITEM_LOG_LEVEL",
    "DEFAULT_ITEM_CLASS",
    "DEPTH_STATS_VERBOSE",
    "DNSCACHE_ENABLED",
    "DNSCACHE_SIZE",
    "DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING",
    "DOWNLOADER_STATS",
    "DOWNLOAD_DELAY_JITTER",
    "DOWNLOAD_WARNSIZE",
    "DUPEFILTER_DEBUG",
    "EDITOR",
    "FORCE_CRAWLER_PROCESS",
    "HTTP2_MAX_FRAME_SIZE",
    "HTTPCACHE_DBM_MODULE",
    "HTTPCACHE_GZIP",
    "HTTPCACHE_IGNORE_SCHEMES",
    "HTTPPROXY_AUTH_ENCODING",
    "HTTPPROXY_ENABLED",
    "HTTPX_HTTP2_ENABLED",
    "LOGSTATS_INTERVAL",
    "LOG_COLOR",
    "LOG_DATEFORMAT",
    "LOG_ENCODING",
    "LOG_FORMAT",
    "LOG_INSTALL_ROOT_HANDLER",
    "LOG_SHORT_NAMES",
    "LOG_VERSIONS",
    "MEMUSAGE_CHECK_INTERVAL_SECONDS",
    "RANDOMIZE_DOWNLOAD_DELAY",
    "REACTOR_THREADPOOL_MAXSIZE",
    "REDIRECT_MAX_METAREFRESH_DELAY",
    "REDIRECT_PRIORITY_ADJUST",
    "REMOTE_CONTROL_ENABLED",
    "REMOTE_CONTROL_JOBS_DIR",
    "REMOTE_CONTROL_OUTPUT_MAX_BYTES",
    "REMOTE_CONTROL_TIMEOUT_DEFAULT",
    "REMOTE_CONTROL_TIMEOUT_MAX",
    "REMOTE_CONTROL_TRACEBACK_MAX_BYTES",
    "REQUEST_FINGERPRINTER_IMPLEMENTATION",
    "RETRY_GIVE_UP_LOG_LEVEL",
    "RETRY_PRIORITY_ADJUST",
    "SCHEDULER_DEBUG",
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE",
    "SPIDER_LOADER_WARN_ONLY",
    "TWISTED_REACTOR_ENABLED",
    "WARN_ON_GENERATOR_RETURN_VALUE",
})  # fmt: skip


class Explained(NamedTuple):
    """What to do instead. `fine` are the values that ask for what happens anyway."""

    instead: str
    fine: tuple[object, ...] = ()


ADAPTER = "a class of your own goes into downloader_middlewares or extensions"
DNS = "the system's resolver is asked; connect_timeout bounds that too"
DOWNLOADS = "the fetcher speaks http and https; other answers come from a downloader middleware's process_request"
FEED = "write -o FILE.jsonl (or the setting output)"
FIELDS = "items are written with the fields they have, as UTF-8: choose the fields in a pipeline"
FTP = "only http and https are fetched"
KEY = "the setting fingerprint_rules says what identifies a request (keys-and-segments.md)"
MAIL = "no mail is sent: connect spider_closed in an extension"
MEMORY = "leave it out; max_memory and memory_warning say what happens"
ORDER = "the frontier keeps the order: give requests a priority, or set depth_priority"
PERIODIC = "the progress line tells, and crawler.stats in an extension"
POLICY = "referrer_policy takes one of the W3C's policies by name"
STORES = "files_store and images_store are folders: copy them afterwards"
MEDIA = "the fields are file_urls and files, image_urls and images"
TELNET = "lycosa frontier status|hosts|list looks into a crawl while it runs"
TLS = "TLS is libcurl's own: only insecure can be set"

EXPLAINED: Mapping[str, Explained] = {
    "ADDONS": Explained(ADAPTER, ({},)),
    "AWS_ACCESS_KEY_ID": Explained(STORES, (None,)),
    "AWS_ENDPOINT_URL": Explained(STORES, (None,)),
    "AWS_MAX_POOL_CONNECTIONS": Explained(STORES, (None,)),
    "AWS_REGION_NAME": Explained(STORES, (None,)),
    "AWS_SECRET_ACCESS_KEY": Explained(STORES, (None,)),
    "AWS_SESSION_TOKEN": Explained(STORES, (None,)),
    "AWS_USE_SSL": Explained(STORES, (None,)),
    "AWS_VERIFY": Explained(STORES, (None,)),
    "COMMANDS_MODULE": Explained("there are no commands of a project: write a script that calls lycosa", ("",)),
    "CRAWLSPIDER_FOLLOW_LINKS": Explained("write follow=False in the rules", (True,)),
    "DNS_RESOLVER": Explained(DNS),
    "DNS_TIMEOUT": Explained(DNS),
    "DOWNLOADER": Explained("there is one downloader; " + ADAPTER),
    "DOWNLOADER_CLIENTCONTEXTFACTORY": Explained(TLS),
    "DOWNLOADER_CLIENT_TLS_CIPHERS": Explained(TLS, ("DEFAULT",)),
    "DOWNLOADER_CLIENT_TLS_METHOD": Explained(TLS, ("TLS",)),
    "DOWNLOADER_MIDDLEWARES_BASE": Explained("downloader_middlewares with none switches off a built-in one"),
    "DOWNLOAD_BIND_ADDRESS": Explained("the system chooses the local address", (None,)),
    "DOWNLOAD_HANDLERS": Explained(DOWNLOADS, ({},)),
    "DOWNLOAD_HANDLERS_BASE": Explained(DOWNLOADS),
    "DOWNLOAD_SLOTS": Explained("give the requests of that host a download_delay in their meta", ({},)),
    "DOWNLOAD_TLS_MAX_VERSION": Explained(TLS, (None,)),
    "DOWNLOAD_TLS_MIN_VERSION": Explained(TLS, (None,)),
    "DUPEFILTER_CLASS": Explained(KEY, ("scrapy.dupefilters.RFPDupeFilter",)),
    "EXTENSIONS_BASE": Explained("extensions with none switches off a built-in one"),
    "FEEDS": Explained(FEED, ({},)),
    "FEED_EXPORTERS": Explained("write the items in a pipeline of your own", ({},)),
    "FEED_EXPORTERS_BASE": Explained("write the items in a pipeline of your own"),
    "FEED_EXPORT_BATCH_ITEM_COUNT": Explained("split the file afterwards: split -l N FILE.jsonl", (0,)),
    "FEED_EXPORT_ENCODING": Explained(FIELDS, (None, "utf-8", "utf8", "UTF-8")),
    "FEED_EXPORT_FIELDS": Explained(FIELDS, (None,)),
    "FEED_EXPORT_INDENT": Explained("each item is one line", (0, None)),
    "FEED_FORMAT": Explained(FEED, ("jsonlines", "jsonl", "jl")),
    "FEED_STORAGES": Explained(FEED, ({},)),
    "FEED_STORAGES_BASE": Explained(FEED),
    "FEED_STORAGE_FTP_ACTIVE": Explained(FEED, (False,)),
    "FEED_STORAGE_GCS_ACL": Explained(FEED, ("",)),
    "FEED_STORAGE_S3_ACL": Explained(FEED, ("",)),
    "FEED_STORE_EMPTY": Explained("the file is there from the beginning", (True,)),
    "FEED_TEMPDIR": Explained("items are written straight into the file", (None,)),
    "FEED_URI": Explained(FEED, (None,)),
    "FEED_URI_PARAMS": Explained(FEED, (None,)),
    "FILES_STORE_GCS_ACL": Explained(STORES, ("",)),
    "FILES_STORE_S3_ACL": Explained(STORES, ("private",)),
    "FILES_RESULT_FIELD": Explained(MEDIA, ("files",)),
    "FILES_URLS_FIELD": Explained(MEDIA, ("file_urls",)),
    "FTP_PASSIVE_MODE": Explained(FTP, (True,)),
    "FTP_PASSWORD": Explained(FTP, ("guest",)),
    "FTP_USER": Explained(FTP, ("anonymous",)),
    "GCS_PROJECT_ID": Explained(STORES, (None,)),
    "HTTPCACHE_ALWAYS_STORE": Explained("write http_cache = 'replay'", (False,)),
    "HTTPCACHE_IGNORE_RESPONSE_CACHE_CONTROLS": Explained("write http_cache = 'replay'", ([],)),
    "HTTPCACHE_STORAGE": Explained(
        "the cache is a database in http_cache_dir",
        ("scrapy.extensions.httpcache.FilesystemCacheStorage", "scrapy.extensions.httpcache.DbmCacheStorage"),
    ),
    "IMAGES_STORE_GCS_ACL": Explained(STORES, ("",)),
    "IMAGES_STORE_S3_ACL": Explained(STORES, ("private",)),
    "IMAGES_RESULT_FIELD": Explained(MEDIA, ("images",)),
    "IMAGES_URLS_FIELD": Explained(MEDIA, ("image_urls",)),
    "ITEM_PIPELINES_BASE": Explained("write all pipelines into pipelines", ({},)),
    "ITEM_PROCESSOR": Explained("write what it does as a pipeline", ("scrapy.pipelines.ItemPipelineManager",)),
    "LOG_ENABLED": Explained("write log_level = 'CRITICAL'", (True,)),
    "LOG_FILE_APPEND": Explained("the log is appended to; remove the file before", (True,)),
    "LOG_FORMATTER": Explained("add a filter or a handler to Python's logging", ("scrapy.logformatter.LogFormatter",)),
    "LOG_STDOUT": Explained("use the spider's logger instead of print", (False,)),
    "MAIL_FROM": Explained(MAIL, ("scrapy@localhost",)),
    "MAIL_HOST": Explained(MAIL, ("localhost",)),
    "MAIL_PASS": Explained(MAIL, (None,)),
    "MAIL_PORT": Explained(MAIL, (25,)),
    "MAIL_SSL": Explained(MAIL, (False,)),
    "MAIL_TLS": Explained(MAIL, (False,)),
    "MAIL_USER": Explained(MAIL, (None,)),
    "MEDIA_ALLOW_REDIRECTS": Explained("redirects are followed for files and images too", (True,)),
    "MEMDEBUG_ENABLED": Explained("use the standard library's tracemalloc", (False,)),
    "MEMUSAGE_ENABLED": Explained(MEMORY, (True,)),
    "MEMUSAGE_NOTIFY_MAIL": Explained(MAIL, ([],)),
    "METAREFRESH_IGNORE_TAGS": Explained("what is inside noscript and comments is passed over", (["noscript"],)),
    "PERIODIC_LOG_DELTA": Explained(PERIODIC, (None, False)),
    "PERIODIC_LOG_STATS": Explained(PERIODIC, (None, False)),
    "PERIODIC_LOG_TIMING_ENABLED": Explained(PERIODIC, (False,)),
    "REFERRER_POLICIES": Explained(POLICY, ({},)),
    "REQUEST_FINGERPRINTER_CLASS": Explained(KEY, ("scrapy.utils.request.RequestFingerprinter",)),
    "RETRY_EXCEPTIONS": Explained("a broken transfer is tried again; raise RetryRequest for more, or set retries = 0"),
    "ROBOTSTXT_PARSER": Explained("robots.txt is read as RFC 9309 says", ("scrapy.robotstxt.ProtegoRobotParser",)),
    "ROBOTSTXT_USER_AGENT": Explained("robots.txt is read for user_agent", (None,)),
    "SCHEDULER": Explained("the frontier is the scheduler: leave it out", ("scrapy.core.scheduler.Scheduler",)),
    "SCHEDULER_DISK_QUEUE": Explained(ORDER),
    "SCHEDULER_MEMORY_QUEUE": Explained(ORDER),
    "SCHEDULER_PRIORITY_QUEUE": Explained(ORDER, ("scrapy.pqueues.DownloaderAwarePriorityQueue",)),
    "SCHEDULER_START_DISK_QUEUE": Explained(ORDER),
    "SCHEDULER_START_MEMORY_QUEUE": Explained(ORDER),
    "SPIDER_CONTRACTS": Explained("test callbacks with a Response of your own in pytest", ({},)),
    "SPIDER_CONTRACTS_BASE": Explained("test callbacks with a Response of your own in pytest"),
    "SPIDER_LOADER_CLASS": Explained(
        "spider_modules says where the spiders are", ("scrapy.spiderloader.SpiderLoader",)
    ),
    "SPIDER_MIDDLEWARES_BASE": Explained("spider_middlewares with none switches off a built-in one"),
    "STATSMAILER_RCPTS": Explained(MAIL, ([],)),
    "STATS_CLASS": Explained("read crawler.stats in an extension", ("scrapy.statscollectors.MemoryStatsCollector",)),
    "TELNETCONSOLE_ENABLED": Explained(TELNET, (False,)),
    "TELNETCONSOLE_HOST": Explained(TELNET),
    "TELNETCONSOLE_PASSWORD": Explained(TELNET),
    "TELNETCONSOLE_PORT": Explained(TELNET),
    "TELNETCONSOLE_USERNAME": Explained(TELNET),
    "TEMPLATES_DIR": Explained("genspider -t picks one of its own templates"),
    "TWISTED_DNS_RESOLVER": Explained(DNS),
    "TWISTED_REACTOR": Explained(
        "Lycosa needs none: leave it out", (None, "twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    ),
}
"""Name, and what to do instead."""
