"""Scrapy's settings that Lycosa has under another name, with conversions of their values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from lycosa.config.kinds import BODY_MAX, Boolean
from lycosa.config.settings import REFERRER_POLICIES
from lycosa.core.errors import BadSetting
from lycosa.core.units import DAY_S

MIB = 1024**2
DEFAULT_POLICY = "no-referrer-when-downgrade"
"""The W3C policy that equals Scrapy's default for http and https."""


class Equivalent(NamedTuple):
    """Our setting. `read` converts Scrapy's value, as written, to ours; `write` converts ours to Scrapy's."""

    setting: str
    read: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _replace_zero(replacement: object, value: Any) -> Any:
    """Replace 0, which means "no limit" in Scrapy."""
    text = str(value).strip()
    return replacement if text and not text.strip("0.") and text != "." else value


def _replace(word: object, replacement: object, value: Any) -> Any:
    return replacement if value == word else value


def _multiply(factor: float, value: Any) -> Any:
    """Convert to our unit. Scrapy's 0 ("no limit") becomes None."""
    number = float(value)
    return round(number * factor) if number else None


def _divide(factor: float, value: Any) -> Any:
    return 0 if value is None else value / factor


def _boolean(value: Any) -> bool:
    try:
        return Boolean().convert(value)
    except ValueError:
        raise BadSetting(f"{value!r:.80} is not {Boolean().expected}") from None


def _not(value: Any) -> bool:
    return not _boolean(value)


def _level(value: Any) -> Any:
    # `custom_settings` may contain a numeric level, such as logging.INFO.
    return logging.getLevelName(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _headers(lines: tuple[str, ...]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): text.strip() for name, _, text in pairs}


_Conversions = tuple[Callable[[Any], Any], Callable[[Any], Any]]
_UNLIMITED: _Conversions = partial(_replace_zero, None), partial(_replace, None, 0)
_MIB: _Conversions = partial(_multiply, MIB), partial(_divide, MIB)
_DAYS: _Conversions = (lambda days: float(days) * DAY_S), (lambda age_s: None if age_s is None else age_s / DAY_S)

EQUIVALENTS: Mapping[str, Equivalent] = {
    "AUTOTHROTTLE_DEBUG": Equivalent("auto_throttle_debug"),
    "AUTOTHROTTLE_ENABLED": Equivalent("auto_throttle"),
    "AUTOTHROTTLE_MAX_DELAY": Equivalent("auto_throttle_max_delay"),
    "AUTOTHROTTLE_START_DELAY": Equivalent("auto_throttle_start"),
    "AUTOTHROTTLE_TARGET_CONCURRENCY": Equivalent("auto_throttle_target"),
    "BOT_NAME": Equivalent("bot_name"),
    "CLOSESPIDER_ERRORCOUNT": Equivalent("close_after_errors", *_UNLIMITED),
    "CLOSESPIDER_ITEMCOUNT": Equivalent("close_after_items", *_UNLIMITED),
    "CLOSESPIDER_PAGECOUNT": Equivalent("max_pages", *_UNLIMITED),
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": Equivalent("close_after_pages_without_item", *_UNLIMITED),
    "CLOSESPIDER_TIMEOUT": Equivalent("close_after", *_UNLIMITED),
    "CLOSESPIDER_TIMEOUT_NO_ITEM": Equivalent("close_after_no_items_for", *_UNLIMITED),
    "CONCURRENT_REQUESTS": Equivalent("concurrency"),
    "CONCURRENT_REQUESTS_PER_DOMAIN": Equivalent("concurrency_per_host"),
    "CONCURRENT_REQUESTS_PER_IP": Equivalent("concurrency_per_ip", *_UNLIMITED),
    "COOKIES_DEBUG": Equivalent("cookies_debug"),
    "COOKIES_ENABLED": Equivalent("cookies"),
    "DEFAULT_REQUEST_HEADERS": Equivalent("header", write=_headers),
    "DEPTH_LIMIT": Equivalent("depth", *_UNLIMITED),
    "DEPTH_PRIORITY": Equivalent("depth_priority"),
    "DOWNLOADER_MIDDLEWARES": Equivalent("downloader_middlewares"),
    "DOWNLOAD_DELAY": Equivalent("delay"),
    "DOWNLOAD_FAIL_ON_DATALOSS": Equivalent("fail_on_dataloss"),
    "DOWNLOAD_MAXSIZE": Equivalent("max_body", partial(_replace_zero, BODY_MAX)),
    "DOWNLOAD_TIMEOUT": Equivalent("timeout"),
    "DOWNLOAD_VERIFY_CERTIFICATES": Equivalent("insecure", _not, _not),
    "EXTENSIONS": Equivalent("extensions"),
    "FILES_EXPIRES": Equivalent("media_expires", *_DAYS),
    "FILES_STORE": Equivalent("files_store"),
    "HTTPAUTH_DOMAIN": Equivalent("http_auth_domain", partial(_replace, None, "*"), partial(_replace, "*", None)),
    "HTTPAUTH_PASS": Equivalent("http_pass"),
    "HTTPAUTH_USER": Equivalent("http_user"),
    "HTTPCACHE_DIR": Equivalent("http_cache_dir"),
    "HTTPCACHE_EXPIRATION_SECS": Equivalent("http_cache_expiration", *_UNLIMITED),
    "HTTPCACHE_IGNORE_HTTP_CODES": Equivalent("http_cache_ignore_statuses"),
    "HTTPCACHE_IGNORE_MISSING": Equivalent("http_cache_ignore_missing"),
    "HTTPERROR_ALLOWED_CODES": Equivalent("httperror_allowed"),
    "HTTPERROR_ALLOW_ALL": Equivalent("httperror_allow_all"),
    "IMAGES_EXPIRES": Equivalent("media_expires", *_DAYS),
    "IMAGES_MIN_HEIGHT": Equivalent("images_min_height"),
    "IMAGES_MIN_WIDTH": Equivalent("images_min_width"),
    "IMAGES_STORE": Equivalent("images_store"),
    "IMAGES_THUMBS": Equivalent("images_thumbs"),
    "ITEM_PIPELINES": Equivalent("pipelines"),
    "JOBDIR": Equivalent("state"),
    "LOG_FILE": Equivalent("log_file"),
    "LOG_LEVEL": Equivalent("log_level", _level),
    "MEMUSAGE_LIMIT_MB": Equivalent("max_memory", *_MIB),
    "MEMUSAGE_WARNING_MB": Equivalent("memory_warning", *_MIB),
    "METAREFRESH_ENABLED": Equivalent("meta_refresh"),
    "METAREFRESH_MAXDELAY": Equivalent("meta_refresh_max_delay"),
    "NEWSPIDER_MODULE": Equivalent("new_spider_module"),
    "REDIRECT_ENABLED": Equivalent("redirect"),
    "REDIRECT_MAX_TIMES": Equivalent("max_redirects"),
    "RETRY_ENABLED": Equivalent("retry_enabled"),
    "RETRY_HTTP_CODES": Equivalent("retry_statuses"),
    "RETRY_TIMES": Equivalent("retries"),
    "ROBOTSTXT_OBEY": Equivalent("robots"),
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": Equivalent("max_callback_bytes"),
    "SPIDER_MIDDLEWARES": Equivalent("spider_middlewares"),
    "SPIDER_MODULES": Equivalent("spider_modules"),
    "STATS_DUMP": Equivalent("stats_dump"),
    "URLLENGTH_LIMIT": Equivalent("max_url_length", *_UNLIMITED),
    "USER_AGENT": Equivalent("user_agent"),
}
"""Our settings by Scrapy's name."""


class Combination(NamedTuple):
    """One of our settings that stands for two of Scrapy's, called `names`.

    `read` takes the given values, keyed by Scrapy's names, and returns ours (None: no value). The functions in `writes`
    convert our value to the values of Scrapy's settings, in the order of `names`; HTTPCACHE_POLICY gets our word.
    """

    names: tuple[str, str]
    read: Callable[[Mapping[str, Any]], Any]
    writes: tuple[Callable[[str], Any], Callable[[str], Any]]


def _cache(given: Mapping[str, Any]) -> Any:
    """Scrapy's cache policy alone does not enable the cache."""
    policy = str(given.get("HTTPCACHE_POLICY", "DummyPolicy")).rpartition(".")[2]
    kind = {"DummyPolicy": "replay", "RFC2616Policy": "rfc9111"}.get(policy, policy)
    if "HTTPCACHE_ENABLED" not in given:
        return None
    return kind if _boolean(given["HTTPCACHE_ENABLED"]) else "off"


def _referrer(given: Mapping[str, Any]) -> Any:
    """Scrapy gives the policy as text or as a class."""
    if not _boolean(given.get("REFERER_ENABLED", True)):
        return "no-referrer"
    policy = given.get("REFERRER_POLICY", DEFAULT_POLICY)
    classes = {"".join(part.title() for part in each.split("-")): each for each in REFERRER_POLICIES}
    classes |= {"DefaultReferrer": DEFAULT_POLICY, "scrapy-default": DEFAULT_POLICY}
    return classes.get(str(policy).rpartition(".")[2].removesuffix("Policy"), policy)


COMBINATIONS: Mapping[str, Combination] = {
    "http_cache": Combination(
        ("HTTPCACHE_ENABLED", "HTTPCACHE_POLICY"), _cache, (lambda value: value != "off", lambda value: value)
    ),
    "referrer_policy": Combination(
        ("REFERER_ENABLED", "REFERRER_POLICY"), _referrer, (lambda value: value != "no-referrer", lambda value: value)
    ),
}
"""Combinations, by the name of our setting."""

SCRAPY_NAMES: Mapping[str, str] = {
    **{name: each.setting for name, each in EQUIVALENTS.items()},
    **{name: setting for setting, each in COMBINATIONS.items() for name in each.names},
}
"""Our setting for every Scrapy name that is accepted."""
