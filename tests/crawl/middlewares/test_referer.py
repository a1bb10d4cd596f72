"""The Referer header of requests that a page yields (C2, C7), including the cases of Scrapy's tests."""

from __future__ import annotations

import pytest

from lycosa.core.errors import BadSetting
from lycosa.crawl.middlewares.referer import WARNINGS_MAX, Referer
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.http.core.request import Request

PAGE = "https://example.com/page?q=1"
OTHER = "https://other.org/"


def referer_of(middleware: Referer, target: str = OTHER, header: object = None, **arguments) -> str | None:
    headers = {} if header is None else {"Referrer-Policy": header}
    results = Results([], [Request(target, **arguments)], [])
    assert middleware.process_results(Response(PAGE, headers=headers), results) is results
    return results.requests[0].headers.get("Referer")


def test_the_default_policy_is_scrapys():
    middleware = Referer()
    assert referer_of(middleware) == PAGE
    assert referer_of(middleware, PAGE) == PAGE
    assert referer_of(middleware, "http://other.org/") is None


def test_the_setting_is_case_insensitive_and_may_be_a_list():
    assert referer_of(Referer("ORIGIN")) == "https://example.com/"
    assert referer_of(Referer("unknown, same-origin, unknown")) is None


def test_an_unknown_policy_in_the_settings_is_refused():
    with pytest.raises(BadSetting, match="strict-origin-when-cross-origin"):
        Referer("no-refferer")


def test_a_header_of_the_request_is_kept():
    assert referer_of(Referer(), headers={"referer": "https://mine.org/"}) == "https://mine.org/"


@pytest.mark.parametrize(
    ("setting", "header", "meta", "referrer"),
    [
        ("origin", "unsafe-url", None, PAGE),
        ("origin", "unsafe-url", "no-referrer", None),
        ("origin", "no-referrer, unsafe-url, new-policy", None, PAGE),
        ("origin", "unknown", None, "https://example.com/"),
        ("origin", None, "unknown", "https://example.com/"),
        ("origin", "unsafe-url", "unknown", "https://example.com/"),
        ("origin", "", None, PAGE),
        ("origin", "no-referrer", "", PAGE),
        ("no-referrer", None, "scrapy-default", PAGE),
        ("no-referrer", None, "Unsafe-URL", PAGE),
    ],
)
def test_meta_overrides_the_page_which_overrides_the_setting(
    setting: str, header: str | None, meta: str | None, referrer: str | None
):
    assert referer_of(Referer(setting), header=header, meta={"referrer_policy": meta}) == referrer


def test_several_header_fields_are_one_list():
    results = Results([], [Request(OTHER)], [])
    headers = [("Referrer-Policy", "no-referrer"), ("referrer-policy", "origin")]
    Referer().process_results(Response(PAGE, headers=headers), results)
    assert results.requests[0].headers["Referer"] == "https://example.com/"


def test_an_unknown_policy_is_logged_once(caplog: pytest.LogCaptureFixture):
    middleware = Referer()
    for _ in range(3):
        referer_of(middleware, meta={"referrer_policy": "a" * 1000})
    assert len(caplog.records) == 1
    assert len(caplog.records[0].getMessage()) < 300
    for number in range(2 * WARNINGS_MAX):
        referer_of(middleware, header=f"policy-{number}")
    assert len(caplog.records) == WARNINGS_MAX


def test_each_request_of_a_page_gets_its_own_header():
    requests = [Request(PAGE), Request("http://other.org/"), Request(OTHER, meta={"referrer_policy": "origin"})]
    Referer().process_results(Response(PAGE), Results([], requests, []))
    assert [request.headers.get("Referer") for request in requests] == [PAGE, None, "https://example.com/"]


def test_requests_of_a_failed_page_have_no_referer():
    requests = [Request(OTHER)]
    Referer().process_results(Response(PAGE, 0), Results([], requests, []))
    assert not requests[0].has_header("Referer")
