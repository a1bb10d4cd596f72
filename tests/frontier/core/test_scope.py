"""Scope, depth, allow and deny (C10)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadSetting, BadUrl
from lycosa.core.url import host_key
from lycosa.frontier.core import scope as scope_module
from lycosa.frontier.core.scope import Scope

SEED = "https://www.example.com/docs/index.html?a/b"


def reason(scope: Scope, url: str, depth: int = 0) -> str:
    return scope.reason(url, host_key(url), depth)


@pytest.mark.parametrize(
    ("kind", "url", "inside"),
    [
        ("host", "https://www.example.com/x", True),
        ("host", "http://www.example.com/x", True),
        ("host", "https://www.example.com:8443/", False),
        ("host", "https://example.com/", False),
        ("host", "https://a.www.example.com/", False),
        ("domain", "https://www.example.com/x", True),
        ("domain", "http://example.com:8080/", True),
        ("domain", "https://a.b.example.com/", True),
        ("domain", "https://badexample.com/", False),
        ("domain", "https://example.com.evil.net/", False),
        ("domain", "https://com/", False),
        ("prefix", "https://www.example.com/docs/", True),
        ("prefix", "https://www.example.com/docs/a/b?c", True),
        ("prefix", "https://www.example.com/docs", False),
        ("prefix", "https://www.example.com/docs2/", False),
        ("prefix", "http://www.example.com/docs/", False),
        ("any", "http://other.net/", True),
    ],
)
def test_the_kinds_of_scope(kind: str, url: str, inside: bool) -> None:
    scope = Scope.of(kind, [SEED], depth_max=None)
    for _ in range(2):  # the second time from the cache
        assert reason(scope, url) == ("" if inside else "scope")


def test_a_host_with_a_port_is_the_same_in_both_schemes() -> None:
    scope = Scope.of("host", ["http://127.0.0.1:8000/", "http://[::1]/"], depth_max=None)
    assert reason(scope, "https://127.0.0.1:8000/") == ""
    assert reason(scope, "http://127.0.0.1/") == "scope"
    assert reason(scope, "https://[::1]/") == ""
    assert reason(scope, "http://[::1]:8000/") == "scope"


def test_an_address_has_no_names_below_it() -> None:
    scope = Scope.of("domain", ["http://127.0.0.1:8000/", "http://[::1]/"], depth_max=None)
    assert reason(scope, "http://127.0.0.1/") == ""
    assert reason(scope, "http://[::1]:8000/") == ""
    assert reason(scope, "http://127.0.0.2/") == "scope"


def test_without_seeds_no_host_is_in_scope() -> None:
    assert [reason(Scope.of(kind, [], depth_max=None), SEED) for kind in ("host", "domain", "prefix", "any")] == [
        "scope", "scope", "scope", "",
    ]  # fmt: skip


def test_depth_is_limited() -> None:
    scope = Scope.of("any", [SEED], depth_max=1)
    assert [reason(scope, SEED, depth) for depth in (0, 1, 2)] == ["", "", "depth"]
    assert reason(Scope.of("any", [SEED], depth_max=0), SEED, 1) == "depth"
    assert reason(Scope.of("any", [SEED], depth_max=None), SEED, 10**9) == ""


def test_the_first_reason_is_returned() -> None:
    scope = Scope.of("host", [SEED], depth_max=0, allow=["*/docs/*"], deny=["*.zip"])
    assert reason(scope, "https://other.net/a.zip", 1) == "scope"
    assert reason(scope, "https://www.example.com/a.zip", 1) == "depth"
    assert reason(scope, "https://www.example.com/docs/a.zip") == "deny"
    assert reason(scope, "https://www.example.com/a") == "allow"
    assert reason(scope, "https://www.example.com/docs/a") == ""


@pytest.mark.parametrize(
    ("glob", "url", "matches"),
    [
        ("http://a/*", "http://a/b/c?d", True),
        ("http://a/", "http://a/b", False),
        ("*/b", "http://a/b", True),
        ("http://a/?", "http://a/b", True),
        ("http://a/?", "http://a/bc", False),
        ("http://a/[bc]", "http://a/c", True),
        ("http://a/[!bc]", "http://a/c", False),
        ("http://a/[b", "http://a/[b", True),
        ("http://a/[b", "http://a/b", False),
        ("http://a/[z-a]", "http://a/b", False),
        ("*/B", "http://a/b", False),
        ("http://a/b.c", "http://a/bxc", False),
        ("http://a/b+(|", "http://a/b+(|", True),
        ("", "http://a/", False),
    ],
)
def test_globs_match_the_whole_canonical_url(glob: str, url: str, matches: bool) -> None:
    assert reason(Scope.of("any", [], depth_max=None, deny=[glob, "nothing"]), url) == ("deny" if matches else "")
    assert reason(Scope.of("any", [], depth_max=None, allow=["nothing", glob]), url) == ("" if matches else "allow")


def test_a_glob_of_many_stars_is_fast() -> None:
    scope = Scope.of("any", [], depth_max=None, deny=["*a" * 200 + "b"])
    started = time.process_time()
    assert reason(scope, "http://a/" + "a" * 8000) == ""
    assert time.process_time() - started < 5.0


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(BadSetting, match="scope is 'site': write one of host, domain, prefix, any"):
        Scope.of("site", [SEED], depth_max=None)
    with pytest.raises(BadSetting, match="depth is -1: write 0"):
        Scope.of("any", [SEED], depth_max=-1)
    with pytest.raises(BadUrl):
        Scope.of("host", ["example.com"], depth_max=None)


def test_the_cache_of_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_module, "HOSTS_MAX", 10)
    scope = Scope.of("domain", [SEED], depth_max=None)
    for number in range(100):
        assert reason(scope, f"https://{number}.example.com/") == ""
        assert reason(scope, f"https://{number}.example.net/") == "scope"
        assert len(scope._inside) <= 10
        assert len(scope._outside) <= 10


@given(st.lists(st.text(alphabet="ab*?[]!-\\^(|)/:.", max_size=10), max_size=4))
def test_any_globs_are_accepted(globs: list[str]) -> None:
    scope = Scope.of("any", [], depth_max=None, allow=globs, deny=globs)
    assert reason(scope, "http://a/b") in ("", "allow", "deny")


def test_an_exact_domain_keeps_its_www() -> None:
    scope = Scope.of("domain", [SEED], depth_max=None, exact=True)
    assert [reason(scope, f"http://{host}/") for host in ("www.example.com", "a.www.example.com")] == ["", ""]
    assert [reason(scope, f"http://{host}/") for host in ("example.com", "b.example.com")] == ["scope", "scope"]


def test_depth_and_deny_apply_even_where_any_host_is_allowed() -> None:
    scope = Scope.of("host", [SEED], depth_max=2, deny=["*/private"])
    url = "http://elsewhere.example/"
    assert scope.reason(url, host_key(url), 2) == "scope"
    assert scope.reason(url, host_key(url), 2, anywhere=True) == ""
    assert scope.reason(url, host_key(url), 3, anywhere=True) == "depth"
    assert scope.reason(url + "private", host_key(url), 2, anywhere=True) == "deny"
