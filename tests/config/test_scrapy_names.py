"""Scrapy's settings: those with an equivalent, those that are ignored, those refused with advice (C9, bad input)."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from lycosa.config import BODY_MAX, SCRAPY_NAMES, Settings, load
from lycosa.config.scrapy_names import COMBINATIONS, EQUIVALENTS
from lycosa.config.scrapy_unsupported import IGNORED, UNSUPPORTED
from lycosa.core.errors import BadSetting


def settings(
    tmp_path: Path, scrapy_settings: dict[str, object] | None = None, *, toml="", sets=(), flags=None
) -> Settings:
    if toml:
        (tmp_path / "lycosa.toml").write_text(toml)
    return load(flags or {}, spider_settings=scrapy_settings, sets=sets, environ={}, folder=tmp_path)


def complaint(tmp_path: Path, scrapy_settings: dict[str, object], **more) -> str:
    with pytest.raises(BadSetting) as caught:
        settings(tmp_path, scrapy_settings, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 300
    return text


class Clean:
    """A pipeline."""


DAY_S = 86_400
MEANT = {
    "AUTOTHROTTLE_DEBUG": (True, "auto_throttle_debug", True),
    "AUTOTHROTTLE_ENABLED": (True, "auto_throttle", True),
    "AUTOTHROTTLE_MAX_DELAY": (20, "auto_throttle_max_delay", 20.0),
    "AUTOTHROTTLE_START_DELAY": ("3", "auto_throttle_start", 3.0),
    "AUTOTHROTTLE_TARGET_CONCURRENCY": (2.5, "auto_throttle_target", 2.5),
    "BOT_NAME": ("shop", "bot_name", "shop"),
    "CLOSESPIDER_ERRORCOUNT": (3, "close_after_errors", 3),
    "CLOSESPIDER_ITEMCOUNT": (4, "close_after_items", 4),
    "CLOSESPIDER_PAGECOUNT": (5, "max_pages", 5),
    "CLOSESPIDER_PAGECOUNT_NO_ITEM": (6, "close_after_pages_without_item", 6),
    "CLOSESPIDER_TIMEOUT": (3600, "close_after", 3600.0),
    "CLOSESPIDER_TIMEOUT_NO_ITEM": (60, "close_after_no_items_for", 60.0),
    "CONCURRENT_REQUESTS": (16, "concurrency", 16),
    "CONCURRENT_REQUESTS_PER_DOMAIN": (2, "concurrency_per_host", 2),
    "CONCURRENT_REQUESTS_PER_IP": (3, "concurrency_per_ip", 3),
    "COOKIES_DEBUG": (True, "cookies_debug", True),
    "COOKIES_ENABLED": (False, "cookies", False),
    "DEFAULT_REQUEST_HEADERS": ({"Accept": "a, b"}, "header", ("Accept: a, b",)),
    "DEPTH_LIMIT": (7, "depth", 7),
    "DEPTH_PRIORITY": (-1, "depth_priority", -1),
    "DOWNLOADER_MIDDLEWARES": ({"shop.m.Own": 543}, "downloader_middlewares", {"shop.m:Own": 543}),
    "DOWNLOAD_DELAY": (0.5, "delay", 0.5),
    "DOWNLOAD_FAIL_ON_DATALOSS": (False, "fail_on_dataloss", False),
    "DOWNLOAD_MAXSIZE": (1000, "max_body", 1000),
    "SCRAPER_SLOT_MAX_ACTIVE_SIZE": (1000, "max_callback_bytes", 1000),
    "DOWNLOAD_TIMEOUT": (180, "timeout", 180.0),
    "DOWNLOAD_VERIFY_CERTIFICATES": (False, "insecure", True),
    "EXTENSIONS": ({"shop.e.Own": None}, "extensions", {"shop.e:Own": None}),
    "FILES_EXPIRES": (2, "media_expires", 2.0 * DAY_S),
    "FILES_STORE": ("files", "files_store", "files"),
    "HTTPAUTH_DOMAIN": ("a.example", "http_auth_domain", "a.example"),
    "HTTPAUTH_PASS": ("secret", "http_pass", "secret"),
    "HTTPAUTH_USER": ("", "http_user", ""),
    "HTTPCACHE_DIR": ("cache", "http_cache_dir", "cache"),
    "HTTPCACHE_ENABLED": (True, "http_cache", "replay"),
    "HTTPCACHE_EXPIRATION_SECS": (5, "http_cache_expiration", 5.0),
    "HTTPCACHE_IGNORE_HTTP_CODES": ([503], "http_cache_ignore_statuses", (503,)),
    "HTTPCACHE_IGNORE_MISSING": (True, "http_cache_ignore_missing", True),
    "HTTPCACHE_POLICY": ("scrapy.extensions.httpcache.RFC2616Policy", "http_cache", "off"),
    "HTTPERROR_ALLOWED_CODES": ([404], "httperror_allowed", (404,)),
    "HTTPERROR_ALLOW_ALL": (True, "httperror_allow_all", True),
    "IMAGES_EXPIRES": (1, "media_expires", 1.0 * DAY_S),
    "IMAGES_MIN_HEIGHT": (10, "images_min_height", 10),
    "IMAGES_MIN_WIDTH": (11, "images_min_width", 11),
    "IMAGES_STORE": ("images", "images_store", "images"),
    "IMAGES_THUMBS": ({"small": (50, 40)}, "images_thumbs", {"small": (50, 40)}),
    "ITEM_PIPELINES": ({Clean: 300}, "pipelines", {Clean: 300}),
    "JOBDIR": ("job", "state", "job"),
    "LOG_FILE": ("a.log", "log_file", "a.log"),
    "LOG_LEVEL": (20, "log_level", "INFO"),
    "MEMUSAGE_LIMIT_MB": (2, "max_memory", 2 * 1024**2),
    "MEMUSAGE_WARNING_MB": ("1", "memory_warning", 1024**2),
    "METAREFRESH_ENABLED": (False, "meta_refresh", False),
    "METAREFRESH_MAXDELAY": (10, "meta_refresh_max_delay", 10.0),
    "NEWSPIDER_MODULE": ("shop.spiders", "new_spider_module", "shop.spiders"),
    "REDIRECT_ENABLED": (False, "redirect", False),
    "REDIRECT_MAX_TIMES": (3, "max_redirects", 3),
    "REFERER_ENABLED": (False, "referrer_policy", "no-referrer"),
    "REFERRER_POLICY": ("scrapy.spidermiddlewares.referer.SameOriginPolicy", "referrer_policy", "same-origin"),
    "RETRY_ENABLED": (False, "retry_enabled", False),
    "RETRY_HTTP_CODES": ([500, "503"], "retry_statuses", (500, 503)),
    "RETRY_TIMES": (5, "retries", 5),
    "ROBOTSTXT_OBEY": (False, "robots", False),
    "SPIDER_MIDDLEWARES": ([Clean], "spider_middlewares", {Clean: 100}),
    "SPIDER_MODULES": (["shop.spiders"], "spider_modules", ("shop.spiders",)),
    "STATS_DUMP": (False, "stats_dump", False),
    "URLLENGTH_LIMIT": (100, "max_url_length", 100),
    "USER_AGENT": ("me", "user_agent", "me"),
}


def test_every_name_has_a_case_here():
    assert set(MEANT) == set(SCRAPY_NAMES)
    assert {name: setting for name, (_, setting, _) in MEANT.items()} == dict(SCRAPY_NAMES)


@pytest.mark.parametrize("name", MEANT)
def test_scrapy_name_sets_our_setting(tmp_path, name):
    value, setting, expected = MEANT[name]
    assert settings(tmp_path, {name: value}) == replace(Settings(), **{setting: expected})


def test_tables_hold_every_default_setting_of_scrapy_once():
    defaults = pytest.importorskip("scrapy.settings.default_settings", reason="scrapy is not installed: make bench")
    names = {name for name in dir(defaults) if name.isupper()}
    tables = {"same": set(SCRAPY_NAMES), "not needed": IGNORED, "explained": set(UNSUPPORTED)}
    assert names - set.union(*map(set, tables.values())) == set(), "in no table"
    several = {name for name in set.union(*map(set, tables.values())) if sum(name in t for t in tables.values()) > 1}
    assert several == set()


def test_defaults_of_scrapy_are_accepted(tmp_path):
    """A settings file may repeat Scrapy's defaults. Skipped are technical settings, such as the `_BASE` tables and
    SCHEDULER_*, which nobody writes into a file.
    """
    defaults = pytest.importorskip("scrapy.settings.default_settings", reason="scrapy is not installed: make bench")
    technical = ("_BASE", "TELNETCONSOLE_", "SCHEDULER_", "DNS_", "TEMPLATES_DIR", "TWISTED_DNS", "RETRY_EXCEPTIONS",
                 "DOWNLOADER", "HTTPAUTH")  # fmt: skip
    for name in sorted(name for name in dir(defaults) if name.isupper()):
        if not any(part in name for part in technical):
            settings(tmp_path, {name: getattr(defaults, name)})


def test_password_needs_a_domain(tmp_path):
    actual = settings(tmp_path, {"HTTPAUTH_USER": "me", "HTTPAUTH_PASS": "x"}, sets=["http_auth_domain=a.example"])
    assert (actual.http_user, actual.http_pass, actual.http_auth_domain) == ("me", "x", "a.example")
    assert settings(tmp_path, {"HTTPAUTH_USER": "me", "HTTPAUTH_DOMAIN": None}).http_auth_domain == "*"


def test_our_names_and_scrapys_do_not_collide():
    our_names = {field.name for field in fields(Settings)}
    assert set(SCRAPY_NAMES.values()) <= our_names
    assert {name for name in SCRAPY_NAMES if name.islower()} == set()
    assert {each.setting for each in EQUIVALENTS.values()} & set(COMBINATIONS) == set()


@pytest.mark.parametrize(
    ("name", "zero", "setting", "value"),
    [
        ("DEPTH_LIMIT", 0, "depth", None),
        ("DEPTH_LIMIT", "0", "depth", None),
        ("CLOSESPIDER_PAGECOUNT", 0, "max_pages", None),
        ("CLOSESPIDER_TIMEOUT", 0.0, "close_after", None),
        ("CLOSESPIDER_TIMEOUT", "0.0", "close_after", None),
        ("CONCURRENT_REQUESTS_PER_IP", 0, "concurrency_per_ip", None),
        ("DOWNLOAD_MAXSIZE", 0, "max_body", BODY_MAX),
        ("MEMUSAGE_LIMIT_MB", 0, "max_memory", None),
        ("URLLENGTH_LIMIT", 0, "max_url_length", None),
        ("HTTPCACHE_EXPIRATION_SECS", 0, "http_cache_expiration", None),
    ],
)
def test_scrapys_zero_is_no_limit(tmp_path, name, zero, setting, value):
    limits = {"depth": 3, "max_pages": 3, "close_after": 3, "concurrency_per_ip": 3, "max_body": 3, "max_memory": "3MB",
            "max_url_length": 3, "http_cache_expiration": 3}  # fmt: skip
    (tmp_path / "lycosa.toml").write_text("\n".join(f"{key} = {text!r}" for key, text in limits.items()))
    assert getattr(settings(tmp_path, {name: zero}), setting) == value


@pytest.mark.parametrize("name", ["CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN"])
def test_zero_concurrency_is_refused(tmp_path, name):
    assert complaint(tmp_path, {name: 0}) == (f"custom_settings: {name}: 0 is not a whole number from 1 to 10,000")


RFC, DUMMY = "scrapy.extensions.httpcache.RFC2616Policy", "scrapy.extensions.httpcache.DummyPolicy"


@pytest.mark.parametrize(
    ("scrapy_settings", "kind"),
    [
        ({"HTTPCACHE_ENABLED": True}, "replay"),
        ({"HTTPCACHE_ENABLED": True, "HTTPCACHE_POLICY": RFC}, "rfc9111"),
        ({"HTTPCACHE_POLICY": RFC, "HTTPCACHE_ENABLED": "yes"}, "rfc9111"),
        ({"HTTPCACHE_POLICY": DUMMY, "HTTPCACHE_ENABLED": 1}, "replay"),
        ({"HTTPCACHE_POLICY": RFC}, "off"),
        ({"HTTPCACHE_POLICY": RFC, "HTTPCACHE_ENABLED": False}, "off"),
        ({"http_cache": "replay", "HTTPCACHE_ENABLED": False}, "off"),
        ({"HTTPCACHE_ENABLED": False, "http_cache": "replay"}, "replay"),
        ({"HTTPCACHE_ENABLED": True, "http_cache": "off", "HTTPCACHE_POLICY": RFC}, "off"),
    ],
    ids=str,
)
def test_cache_is_enabled_by_one_setting_and_configured_by_another(tmp_path, scrapy_settings, kind):
    assert settings(tmp_path, scrapy_settings).http_cache == kind


def test_combined_settings_may_come_from_different_layers(tmp_path):
    toml = f"HTTPCACHE_POLICY = '{RFC}'\nREFERRER_POLICY = 'origin'\nREFERER_ENABLED = false"
    actual = settings(tmp_path, {"HTTPCACHE_ENABLED": True, "REFERER_ENABLED": True}, toml=toml)
    assert (actual.http_cache, actual.referrer_policy) == ("rfc9111", "origin")


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("scrapy.spidermiddlewares.referer.DefaultReferrerPolicy", "no-referrer-when-downgrade"),
        ("scrapy-default", "no-referrer-when-downgrade"),
        ("scrapy.spidermiddlewares.referer.StrictOriginWhenCrossOriginPolicy", "strict-origin-when-cross-origin"),
        ("scrapy.spidermiddlewares.referer.UnsafeUrlPolicy", "unsafe-url"),
        ("Unsafe-URL", "unsafe-url"),
    ],
)
def test_referrer_policies_by_name_and_by_class(tmp_path, policy, expected):
    assert settings(tmp_path, {"REFERRER_POLICY": policy}).referrer_policy == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"scrapy.downloadermiddlewares.retry.RetryMiddleware": None}, {"retry": None}),
        ({"scrapy.downloadermiddlewares.cookies.CookiesMiddleware": 650}, {"cookies": 650}),
        ({"scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None}, {}),
        ({"scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None, "a.B": 1}, {"useragent": None, "a:B": 1}),
    ],
)
def test_built_in_parts_of_scrapy_map_to_ours(tmp_path, parts, expected):
    assert settings(tmp_path, {"DOWNLOADER_MIDDLEWARES": parts}).downloader_middlewares == expected


def test_part_of_scrapy_that_lycosa_lacks_cannot_be_enabled(tmp_path):
    parts = {"EXTENSIONS": {"scrapy.extensions.telnet.TelnetConsole": 500}}
    for order in (None, 550):
        misspelt = {"scrapy.downloadermiddlewares.retry.RetryMiddlewar": order}
        message = complaint(tmp_path, {"DOWNLOADER_MIDDLEWARES": misspelt})
        assert "did you mean scrapy.downloadermiddlewares.retry.RetryMiddleware?" in message
    assert "scrapy.extensions.telnet:TelnetConsole is a part of Scrapy that is not needed here" in complaint(
        tmp_path, parts
    )


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_unneeded_settings_are_ignored(tmp_path, name):
    assert settings(tmp_path, {name: object()}) == Settings()


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_unsupported_setting_is_refused_with_advice_unless_harmless(tmp_path, name):
    line = complaint(tmp_path, {name: object()})
    assert line == f"custom_settings: {name} is not supported: {UNSUPPORTED[name].advice}"
    for value in UNSUPPORTED[name].harmless:
        assert settings(tmp_path, {name: value}) == Settings()


def test_harmless_value_may_be_text(tmp_path):
    assert settings(tmp_path, sets=["TELNETCONSOLE_ENABLED=false", "LOG_ENABLED=True"]) == Settings()
    assert complaint(tmp_path, {}, sets=["LOG_ENABLED=no"]) == (
        "-s LOG_ENABLED is not supported: write log_level = 'CRITICAL'"
    )


@pytest.mark.parametrize(
    ("scrapy_settings", "message"),
    [
        ({"DOWNLOAD_DELY": 1}, "unknown setting 'DOWNLOAD_DELY': did you mean DOWNLOAD_DELAY?"),
        (
            {"TEXT_LIMIT": 1},
            "'TEXT_LIMIT': did you mean DEPTH_LIMIT? Your own settings go into the table user, as user.TEXT_LIMIT",
        ),
        ({"TWISTED_REACTR": 1}, "did you mean TWISTED_REACTOR?"),
        ({"SHOP_TOKEN": 1}, "unknown setting 'SHOP_TOKEN': your own settings go into the table user, as user.SHOP"),
        ({"HTTPCACHE_ENABLED": "perhaps"}, "HTTPCACHE_ENABLED: 'perhaps' is not true or false"),
        ({"DOWNLOAD_VERIFY_CERTIFICATES": 3}, "DOWNLOAD_VERIFY_CERTIFICATES: 3 is not true or false"),
        ({"HTTPCACHE_ENABLED": 1, "HTTPCACHE_POLICY": "a.Own"}, "is not one of off, rfc9111, replay"),
        ({"REFERRER_POLICY": "a.Own"}, "REFERRER_POLICY: 'a.Own' is not one of no-referrer"),
        ({"MEMUSAGE_LIMIT_MB": "much"}, "MEMUSAGE_LIMIT_MB: 'much' is not a size"),
        ({"RETRY_HTTP_CODES": [500, "5xx"]}, "RETRY_HTTP_CODES: '5xx' is not a whole number from 100 to 999"),
        ({"ITEM_PIPELINES": {"shop.Clean": "first"}}, "ITEM_PIPELINES: {'shop.Clean': 'first'} is not a list of"),
        ({"ITEM_PIPELINES": {"Shop Clean": 1}}, "ITEM_PIPELINES: 'Shop Clean' is not a list of"),
        ({"IMAGES_THUMBS": {"small": 50}}, "IMAGES_THUMBS: 50 is not a table of sizes"),
        ({"FILES_EXPIRES": "soon"}, "FILES_EXPIRES: 'soon' is not a time"),
        ({"HTTPAUTH_USER": "me"}, "custom_settings: http_user: set http_auth_domain too"),
        ({"LOG_LEVEL": 17}, "LOG_LEVEL: 17 is not one of DEBUG"),
    ],
    ids=str,
)
def test_mistakes_in_scrapy_settings_are_one_line(tmp_path, scrapy_settings, message):
    assert message in complaint(tmp_path, scrapy_settings)
