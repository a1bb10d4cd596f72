"""Scrapy's settings that are ours under another name, and how their values translate, both ways.

The names that mean nothing here are in `scrapy_others`; together the tables hold every default setting of Scrapy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from lycosa.config.kinds import BODY_MAX, Switch
from lycosa.config.settings import REFERRER_POLICIES
from lycosa.core.errors import BadSetting
from lycosa.core.units import DAY_S

MIB = 1024**2
DEFAULT_POLICY = "no-referrer-when-downgrade"
"""What Scrapy's own default comes to for http and https."""


class Same(NamedTuple):
    """A setting of ours. `read` takes Scrapy's value, as somebody wrote it, to one for ours; `write` goes back."""

    setting: str
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _zero(instead: object, value: Any) -> Any:
    """Scrapy's 0 means "no limit"."""
    text = str(value).strip()
    return instead if text and not text.strip("0.") and text != "." else value


def _or_zero(value: Any) -> Any:
    return 0 if value is None else value


def _swapped(word: object, other: object, value: Any) -> Any:
    return other if value == word else value


def _times(factor: float, value: Any) -> Any:
    """Return a value in our unit; 0 is no limit."""
    number = float(value)
    return round(number * factor) if number else None


def _over(factor: float, value: Any) -> Any:
    return 0 if value is None else value / factor


def _switch(value: Any) -> bool:
    try:
        return Switch().convert(value)
    except ValueError:
        raise BadSetting(f"{value!r:.80} is not {Switch().wanted}") from None


def _not(value: Any) -> bool:
    return not _switch(value)


def _days(value: Any) -> float:
    return float(value) * DAY_S


def _level(value: Any) -> Any:
    return logging.getLevelName(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _headers(lines: tuple[str, ...]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): text.strip() for name, _, text in pairs}


_UNLIMITED: tuple[Callable[[Any], Any], Callable[[Any], Any]] = partial(_zero, None), _or_zero
_MIB: tuple[Callable[[Any], Any], Callable[[Any], Any]] = partial(_times, MIB), partial(_over, MIB)
_DAYS: tuple[Callable[[Any], Any], Callable[[Any], Any]] = _days, partial(_over, DAY_S)

SAME: Mapping[str, Same] = {
    "AUTOTHROTTLE_DEBUG": Same("auto_throttle_debug"),
    "AUTOTHROTTLE_ENABLED": Same("auto_throttle"),
    "AUTOTHROTTLE_MAX_DELAY": Same("auto_throttle_max_delay"),
    "AUTOTHROTTLE_START_DELAY": Same("auto_throttle_start"),
    "AUTOTHROTTLE_TARGET_CONCURRENCY": Same("auto_throttle_target"),
    "BOT_NAME": Same("bot_name"),
    "CLOSESPIDER_ERRORCOUNT": Same("close_after_errors", *_UNLIMITED),
    "CLOSESPIDER_ITEMCOUNT": Same("close_after_items", *_UNLIMITED),
    "CLOSESPIDER_PAGECOUNT": Same("max_pages", *_UNLIMITED),
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": Same("close_after_pages_without_item", *_UNLIMITED),
    "CLOSESPIDER_TIMEOUT": Same("close_after", *_UNLIMITED),
    "CLOSESPIDER_TIMEOUT_NO_ITEM": Same("close_after_no_items_for", *_UNLIMITED),
    "CONCURRENT_REQUESTS": Same("concurrency"),
    "CONCURRENT_REQUESTS_PER_DOMAIN": Same("concurrency_per_host"),
    "CONCURRENT_REQUESTS_PER_IP": Same("concurrency_per_ip", *_UNLIMITED),
    "COOKIES_DEBUG": Same("cookies_debug"),
    "COOKIES_ENABLED": Same("cookies"),
    "DEFAULT_REQUEST_HEADERS": Same("header", write=_headers),
    "DEPTH_LIMIT": Same("depth", *_UNLIMITED),
    "DEPTH_PRIORITY": Same("depth_priority"),
    "DOWNLOADER_MIDDLEWARES": Same("downloader_middlewares"),
    "DOWNLOAD_DELAY": Same("delay"),
    "DOWNLOAD_FAIL_ON_DATALOSS": Same("fail_on_dataloss"),
    "DOWNLOAD_MAXSIZE": Same("max_body", partial(_zero, BODY_MAX)),
    "DOWNLOAD_TIMEOUT": Same("timeout"),
    "DOWNLOAD_VERIFY_CERTIFICATES": Same("insecure", _not, _not),
    "EXTENSIONS": Same("extensions"),
    "FILES_EXPIRES": Same("media_expires", *_DAYS),
    "FILES_STORE": Same("files_store"),
    "HTTPAUTH_DOMAIN": Same("http_auth_domain", partial(_swapped, None, "*"), partial(_swapped, "*", None)),
    "HTTPAUTH_PASS": Same("http_pass"),
    "HTTPAUTH_USER": Same("http_user"),
    "HTTPCACHE_DIR": Same("http_cache_dir"),
    "HTTPCACHE_EXPIRATION_SECS": Same("http_cache_expiration", *_UNLIMITED),
    "HTTPCACHE_IGNORE_HTTP_CODES": Same("http_cache_ignore_statuses"),
    "HTTPCACHE_IGNORE_MISSING": Same("http_cache_ignore_missing"),
    "HTTPERROR_ALLOWED_CODES": Same("httperror_allowed"),
    "HTTPERROR_ALLOW_ALL": Same("httperror_allow_all"),
    "IMAGES_EXPIRES": Same("media_expires", *_DAYS),
    "IMAGES_MIN_HEIGHT": Same("images_min_height"),
    "IMAGES_MIN_WIDTH": Same("images_min_width"),
    "IMAGES_STORE": Same("images_store"),
    "IMAGES_THUMBS": Same("images_thumbs"),
    "ITEM_PIPELINES": Same("pipelines"),
    "JOBDIR": Same("state"),
    "LOG_FILE": Same("log_file"),
    "LOG_LEVEL": Same("log_level", _level),
    "MEMUSAGE_LIMIT_MB": Same("max_memory", *_MIB),
    "MEMUSAGE_WARNING_MB": Same("memory_warning", *_MIB),
    "METAREFRESH_ENABLED": Same("meta_refresh"),
    "METAREFRESH_MAXDELAY": Same("meta_refresh_max_delay"),
    "NEWSPIDER_MODULE": Same("new_spider_module"),
    "REDIRECT_ENABLED": Same("redirect"),
    "REDIRECT_MAX_TIMES": Same("max_redirects"),
    "RETRY_ENABLED": Same("retry_enabled"),
    "RETRY_HTTP_CODES": Same("retry_statuses"),
    "RETRY_TIMES": Same("retries"),
    "ROBOTSTXT_OBEY": Same("robots"),
    "SPIDER_MIDDLEWARES": Same("spider_middlewares"),
    "SPIDER_MODULES": Same("spider_modules"),
    "STATS_DUMP": Same("stats_dump"),
    "URLLENGTH_LIMIT": Same("max_url_length", *_UNLIMITED),
    "USER_AGENT": Same("user_agent"),
}
"""Scrapy's name, our name."""


class Together(NamedTuple):
    """A setting of ours that two of Scrapy's make. `of` takes those that were given to our value, None for nothing."""

    names: tuple[str, str]
    of: Callable[[Mapping[str, Any]], Any]
    writes: tuple[Callable[[str], Any], Callable[[str], Any]]


def _cache(given: Mapping[str, Any]) -> Any:
    """A policy alone switches nothing on."""
    policy = str(given.get("HTTPCACHE_POLICY", "DummyPolicy")).rpartition(".")[2]
    kind = {"DummyPolicy": "replay", "RFC2616Policy": "rfc9111"}.get(policy, policy)
    if "HTTPCACHE_ENABLED" not in given:
        return None
    return kind if _switch(given["HTTPCACHE_ENABLED"]) else "off"


def _referrer(given: Mapping[str, Any]) -> Any:
    """Scrapy names its policies by class too."""
    if not _switch(given.get("REFERER_ENABLED", True)):
        return "no-referrer"
    policy = given.get("REFERRER_POLICY", DEFAULT_POLICY)
    classes = {"".join(part.title() for part in each.split("-")): each for each in REFERRER_POLICIES}
    classes |= {"DefaultReferrer": DEFAULT_POLICY, "scrapy-default": DEFAULT_POLICY}
    return classes.get(str(policy).rpartition(".")[2].removesuffix("Policy"), policy)


TOGETHER: Mapping[str, Together] = {
    "http_cache": Together(
        ("HTTPCACHE_ENABLED", "HTTPCACHE_POLICY"), _cache, (lambda value: value != "off", lambda value: value)
    ),
    "referrer_policy": Together(
        ("REFERER_ENABLED", "REFERRER_POLICY"), _referrer, (lambda value: value != "no-referrer", lambda value: value)
    ),
}
"""By our name."""

SCRAPY_NAMES: Mapping[str, str] = {
    **{name: each.setting for name, each in SAME.items()},
    **{name: setting for setting, each in TOGETHER.items() for name in each.names},
}
"""Every name of Scrapy's that is understood, and the setting of ours it means."""
