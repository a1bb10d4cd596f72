"""Scrapy's names of settings, where the concept is the same."""

from __future__ import annotations

from collections.abc import Mapping

from lycosa.config.kinds import BODY_MAX

SCRAPY_NAMES = {
    "CONCURRENT_REQUESTS": "concurrency",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "concurrency_per_host",
    "CONCURRENT_REQUESTS_PER_IP": "concurrency_per_ip",
    "DOWNLOAD_DELAY": "delay",
    "DOWNLOAD_TIMEOUT": "timeout",
    "DOWNLOAD_MAXSIZE": "max_body",
    "DEFAULT_REQUEST_HEADERS": "header",
    "DEPTH_LIMIT": "depth",
    "ROBOTSTXT_OBEY": "robots",
    "USER_AGENT": "user_agent",
    "CLOSESPIDER_PAGECOUNT": "max_pages",
    "RETRY_TIMES": "retries",
    "JOBDIR": "state",
    "LOG_LEVEL": "log_level",
    "LOG_FILE": "log_file",
}
SCRAPY_ZERO: Mapping[str, object] = {
    "CONCURRENT_REQUESTS_PER_IP": None,
    "DEPTH_LIMIT": None,
    "CLOSESPIDER_PAGECOUNT": None,
    "DOWNLOAD_MAXSIZE": BODY_MAX,
}
"""Where Scrapy's 0 means "no limit", and what that is here."""
