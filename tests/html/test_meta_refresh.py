"""Meta refreshes (C10): found as the HTML standard says, and ignored where it says so."""

from __future__ import annotations

import time

import pytest

from lycosa.html.meta_refresh import SEARCHED_BYTES, Refresh, may_refresh, meta_refresh

BASE = "http://a.example/dir/page"
THERE = "http://a.example/there"


def page(content: str, head: str = "", rest: str = "<p>text") -> bytes:
    return f'<!doctype html>{head}<meta http-equiv=refresh content="{content}">{rest}'.encode()


def found(body: bytes, **more) -> Refresh | None:
    return meta_refresh(body, "utf-8", BASE, **more)


@pytest.mark.parametrize(
    ("content", "delay_s", "url"),
    [
        ("5; url=/there", 5, THERE),
        ("5;url=/there", 5, THERE),
        ("5;URL=/there", 5, THERE),
        ("  5 ; Url  =  /there  ", 5, THERE),
        ("5, url=/there", 5, THERE),
        ("5 url=/there", 5, THERE),
        ("5;/there", 5, THERE),
        ("5 /there", 5, THERE),
        ("0;url='/there'", 0, THERE),
        ("0;url='/there' and more", 0, THERE),
        ("0;'/there'", 0, THERE),
        ("0;url=&quot;/there&quot;", 0, THERE),
        ("0;url='/there", 0, THERE),
        ("0;url=/there?a=1&amp;b=2", 0, THERE + "?a=1&b=2"),
        ("0;url=there", 0, "http://a.example/dir/there"),
        ("0;url=//b.example/x", 0, "http://b.example/x"),
        ("0;url=https://b.example/x#frag", 0, "https://b.example/x"),
        ("0;url=?q", 0, BASE + "?q"),
        ("5.7; url=/there", 5, THERE),
        (".5; url=/there", 0, THERE),
        ("0.; url=/there", 0, THERE),
        ("0;url", 0, "http://a.example/dir/url"),
        ("0;ur=/there", 0, "http://a.example/dir/ur=/there"),
        ("99999999999999999999; url=/there", 999_999_999, THERE),
        ("\n5;\n url=/the\nre", 5, THERE),
    ],
)
def test_refreshes_that_lead_to_a_url(content, delay_s, url):
    assert found(page(content)) == Refresh(delay_s, url)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "5",
        "5;",
        "5; url=",
        "5; url=''",
        "url=/there",
        "; url=/there",
        "5url=/there",
        "-5; url=/there",
        "five; url=/there",
        "\xa05; url=/there",
        "0;url=javascript:alert(1)",
        "0;url=mailto:a@b",
        "0;url=data:text/html,x",
        "0;url=ftp://a.example/",
        "0;url=http://",
        "\u0665; url=/there",
    ],
)
def test_refreshes_that_lead_to_no_url(content):
    assert found(page(content)) is None


@pytest.mark.parametrize(
    "body",
    [
        b'<META HTTP-EQUIV="Refresh" CONTENT="5; URL=/there">',
        b"<meta content='5; url=/there' http-equiv=REFRESH />",
        b"<html><body><p><meta http-equiv='refresh' content='5; url=/there'>",
        b"<meta http-equiv=content-type content=x><meta http-equiv=refresh content='5; url=/there'>",
        b"<meta http-equiv=refresh content='nonsense'><meta http-equiv=refresh content='5; url=/there'>",
        b"<meta http-equiv=refresh content='5; url=/there'><meta http-equiv=refresh content='0; url=/other'>",
        b"<script src=jquery.js></script>" * 20 + b"<meta http-equiv=refresh content='5; url=/there'>",
        b"<noscript></noscript><meta http-equiv=refresh content='5; url=/there'>",
    ],
)
def test_refresh_is_found_in_every_spelling(body):
    assert found(body) == Refresh(5, THERE)


@pytest.mark.parametrize(
    "body",
    [
        b"<!-- <meta http-equiv=refresh content='5; url=/there'> -->",
        b"<script>'<meta http-equiv=refresh content=\"5; url=/there\">'</script>",
        b"<noscript><meta http-equiv=refresh content='5; url=/there'></noscript>",
        b"<body><noscript><div><meta http-equiv=refresh content='5; url=/there'></div></noscript>",
        b"<head><noscript><p><meta http-equiv=refresh content='5; url=/there'></p></noscript>",
        b"<noscript><p title='><meta http-equiv=refresh content=\"5; url=/there\"></noscript><p title=''>",
        b"<noscript><meta http-equiv=refresh content='5; url=/there'>",
        b"<textarea><meta http-equiv=refresh content='5; url=/there'></textarea>",
        b"<meta name=refresh content='5; url=/there'>http-equiv",
        b"<meta http-equiv=refresh>",
        b"<meta http-equiv=refresher content='5; url=/there'>",
        b"<p>http-equiv=refresh content='5; url=/there'",
        b"q",
        b"equiv",
        b"",
        b" " * SEARCHED_BYTES + b"<meta http-equiv=refresh content='5; url=/there'>",
        b" " * (SEARCHED_BYTES - 45) + b"<meta http-equiv=refresh content='5; url=/there'>",
    ],
)
def test_pages_without_a_refresh(body):
    assert found(body) is None


def test_refresh_behind_an_ignored_element_with_an_open_quote_counts():
    assert found(b"<noscript><p title='</noscript><meta http-equiv=refresh content='5; url=/there'>") == Refresh(
        5, THERE
    )
    assert found(b"<!-- <noscript> --><meta http-equiv=refresh content='5; url=/there'></noscript>") == Refresh(
        5, THERE
    )


def test_refresh_in_noscript_counts_if_not_ignored():
    body = b"<noscript><meta http-equiv=refresh content='5; url=/there'></noscript>"
    assert found(body, ignore_tags=()) == Refresh(5, THERE)
    assert found(body, ignore_tags=("template",)) == Refresh(5, THERE)


def test_url_is_resolved_against_the_base_element():
    assert found(page("0;url=x", "<base href=/other/>")).url == "http://a.example/other/x"
    assert found(page("0;url=x", "<base href='mailto:x'>")).url == "http://a.example/dir/x"


def test_url_is_decoded_with_the_encoding_of_the_page():
    body = "<meta http-equiv=refresh content='0;url=/é'>".encode("latin-1")
    assert meta_refresh(body, "latin-1", BASE).url == "http://a.example/%C3%A9"


def test_pages_without_a_refresh_cost_a_microsecond():
    plain = b"<!doctype html><title>A page</title><link rel=stylesheet href=/s.css><p>text" * 1000
    best = 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(100):
            may_refresh(plain)
        best = min(best, (time.perf_counter() - started) / 100)
    assert best < 3e-6  # 0.4 µs on a quiet machine


@pytest.mark.parametrize(
    "hostile",
    [b"q" * 10_000, b"http-equiv refresh" * 500, b"<meta http-equiv=refresh " * 300, b"<!--<noscript " * 300 + b"q"],
)
def test_hostile_heads_are_searched_in_linear_time(hostile):
    started = time.process_time()
    for _ in range(20):
        found(hostile)
    assert time.process_time() - started < 3.0


def test_hostile_content_is_parsed_in_linear_time():
    for content in ("5;" + " " * 4000, "." * 4000, "5" + "." * 4000, "5; url" + " " * 3900 + "x"):
        started = time.process_time()
        found(page(content))
        assert time.process_time() - started < 3.0
