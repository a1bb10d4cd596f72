"""Map Scrapy's built-in components to the short names of Lycosa's.

So `"scrapy.downloadermiddlewares.retry.RetryMiddleware": None` disables retries, as in Scrapy.
"""

from __future__ import annotations

from collections.abc import Mapping

_DOWNLOADER, _SPIDER = "scrapy.downloadermiddlewares", "scrapy.spidermiddlewares"
SCRAPY_PARTS: Mapping[str, str] = {
    f"{_DOWNLOADER}.offsite:OffsiteMiddleware": "offsite",
    f"{_DOWNLOADER}.robotstxt:RobotsTxtMiddleware": "robots",
    f"{_DOWNLOADER}.httpauth:HttpAuthMiddleware": "httpauth",
    f"{_DOWNLOADER}.defaultheaders:DefaultHeadersMiddleware": "headers",
    f"{_DOWNLOADER}.useragent:UserAgentMiddleware": "useragent",
    f"{_DOWNLOADER}.retry:RetryMiddleware": "retry",
    f"{_DOWNLOADER}.redirect:MetaRefreshMiddleware": "metarefresh",
    f"{_DOWNLOADER}.redirect:RedirectMiddleware": "redirect",
    f"{_DOWNLOADER}.cookies:CookiesMiddleware": "cookies",
    f"{_DOWNLOADER}.httpproxy:HttpProxyMiddleware": "proxy",
    f"{_DOWNLOADER}.stats:DownloaderStats": "stats",
    f"{_DOWNLOADER}.httpcache:HttpCacheMiddleware": "httpcache",
    f"{_SPIDER}.offsite:OffsiteMiddleware": "offsite",
    f"{_SPIDER}.httperror:HttpErrorMiddleware": "httperror",
    f"{_SPIDER}.referer:RefererMiddleware": "referer",
    f"{_SPIDER}.urllength:UrlLengthMiddleware": "urllength",
    f"{_SPIDER}.depth:DepthMiddleware": "depth",
    "scrapy.pipelines.files:FilesPipeline": "files",
    "scrapy.pipelines.images:ImagesPipeline": "images",
    "scrapy.extensions.closespider:CloseSpider": "closespider",
    "scrapy.extensions.memusage:MemoryUsage": "memusage",
    "scrapy.extensions.throttle:AutoThrottle": "throttle",
    "scrapy.extensions.logstats:LogStats": "logstats",
    "scrapy.extensions.corestats:CoreStats": "corestats",
}
