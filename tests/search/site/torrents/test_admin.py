"""Requests for takedown and administration, as a browser sends them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlencode

import pytest

from lycosa.search.site.torrents.admin import TAKEDOWNS_AT_ONCE, AdminOptions, AdminParts
from lycosa.search.site.torrents.passwords import hash_password
from lycosa.search.site.torrents.site_store import SiteStore
from tests.conftest import need
from tests.search.site.torrents.sample_torrents import HASHES, TorrentSite, torrent_site
from tests.servers.web_server import Response, Server

PASSWORD = "correct horse battery"
WAITING = AdminOptions()
FORM = {"Content_Type": "application/x-www-form-urlencoded"}


def argon2_is_installed() -> bool:
    try:
        import argon2  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.fixture(scope="module")
def hashed() -> str:
    need("argon2", argon2_is_installed())
    return hash_password(PASSWORD)


@pytest.fixture
def run_site(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:

        def run(options: AdminOptions = WAITING):
            return torrent_site(tmp_path, admin=lambda store: AdminParts(kept, store, options))

        run.kept = kept
        yield run


@pytest.fixture
def site(run_site, hashed) -> Iterator[TorrentSite]:
    run_site.kept.set_password("ada", hashed)
    with run_site() as site:
        yield site


def post(server: Server, path: str, cookie: str = "", **fields: str) -> Response:
    return server.request("POST", path, urlencode(fields), Cookie=cookie, **FORM)


def log_in(server: Server) -> tuple[str, str]:
    """Return the cookie and the token of the forms."""
    answer = post(server, "/admin/login", name="ada", password=PASSWORD)
    assert (answer.status, answer.headers["location"]) == (303, "/admin")
    assert all(word in answer.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict", "Path=/admin"))
    cookie = answer.headers["set-cookie"].partition(";")[0]
    page = server.request("GET", "/admin", Cookie=cookie)
    assert page.status == 200
    assert page.headers["cache-control"] == "no-store"
    return cookie, re.search(r'name="token" value="([^"]+)"', page.text)[1]


def test_a_request_waits_for_an_administrator_who_removes_the_torrent(site):
    link = f"{site.server.url}/torrent/{HASHES[0]} and magnet:?xt=urn:btih:{HASHES[1].upper()}&dn=x"
    answer = post(site.server, "/takedown", infohashes=link, reason="mine <b>", contact="me@example.org")
    assert (answer.status, "Request received" in answer.text) == (202, True)
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    cookie, token = log_in(site.server)
    page = site.server.request("GET", "/admin", Cookie=cookie).text
    assert all(text in page for text in ("mine &lt;b&gt;", "me@example.org", HASHES[0], HASHES[1]))
    answer = post(site.server, "/admin/takedowns", cookie, token=token, id="1", decision="accepted")
    assert answer.headers["location"] == "/admin?said=accepted"
    assert [site.server.get(f"/torrent/{each}").status for each in HASHES[:3]] == [410, 410, 200]
    page = site.server.request("GET", "/admin", Cookie=cookie).text
    assert "No request is waiting" in page
    assert "me@example.org" not in page


def test_a_refused_request_changes_nothing(site):
    post(site.server, "/takedown", infohashes=HASHES[0], reason="no")
    cookie, token = log_in(site.server)
    post(site.server, "/admin/takedowns", cookie, token=token, id="1", decision="refused")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    again = post(site.server, "/admin/takedowns", cookie, token=token, id="1", decision="accepted")
    assert again.headers["location"] == "/admin?said=gone"
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200


def test_the_operator_may_hide_at_once(run_site):
    with run_site(AdminOptions(hide_at_once=True)) as site:
        answer = post(site.server, "/takedown", infohashes=HASHES[0], reason="mine", contact="me@example.org")
        assert (answer.status, "Removed" in answer.text) == (200, True)
        assert site.server.get(f"/torrent/{HASHES[0]}").status == 410
    (kept,) = run_site.kept.takedowns()
    assert (kept.decision, kept.contact) == ("accepted", "")


def test_requests_need_an_infohash_and_a_reason_and_are_limited(run_site):
    with run_site() as site:
        page = site.server.get(f"/takedown?infohash={HASHES[0]}").text
        assert f">{HASHES[0]}</textarea>" in page
        for fields in ({"infohashes": "none", "reason": "x"}, {"infohashes": HASHES[0], "reason": " "}, {}):
            answer = post(site.server, "/takedown", **fields)
            assert (answer.status, 'role="alert"' in answer.text) == (400, True)
        statuses = [post(site.server, "/takedown", infohashes=HASHES[0], reason="x") for _ in range(TAKEDOWNS_AT_ONCE)]
        assert [answer.status for answer in statuses].count(429) == 3
        assert int(statuses[-1].headers["retry-after"]) > 60
        assert post(site.server, "/takedown", infohashes="x" * 100_000).status in {413, 429}


def test_the_deny_list_is_changed_at_once(site):
    cookie, token = log_in(site.server)
    answer = post(site.server, "/admin/deny", cookie, token=token, infohashes=HASHES[0], action="deny", reason="law")
    assert answer.headers["location"] == "/admin?said=denied"
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 410
    post(site.server, "/admin/deny", cookie, token=token, infohashes=HASHES[0], action="allow")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 404, "removed, but may come again"


def test_nobody_gets_in_without_the_password_or_the_token(site):
    for path in ("/admin", "/admin/takedowns", "/admin/deny", "/admin/logout"):
        answer = site.server.request("GET", path, Cookie="lycosa_session=guess")
        assert (answer.status, answer.headers["location"]) == (303, "/admin/login")
    cookie, token = log_in(site.server)
    for sent in ("", "guess", token[:-1]):
        answer = post(site.server, "/admin/deny", cookie, token=sent, infohashes=HASHES[0], action="deny")
        assert (answer.status, "out of date" in answer.text) == (403, True)
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    assert post(site.server, "/admin/logout", cookie, token=token).status == 303
    assert site.server.request("GET", "/admin", Cookie=cookie).status == 303
    for name, password in (("ada", "wrong"), ("eve", PASSWORD), ("", "")):
        answer = post(site.server, "/admin/login", name=name, password=password)
        assert (answer.status, "Wrong name or password" in answer.text) == (403, True)
    answers = [post(site.server, "/admin/login", name="ada", password="guess") for _ in range(3)]
    assert answers[-1].status == 429


def test_only_forms_change_something(site):
    assert site.server.request("HEAD", "/takedown").status == 200
    cookie, _token = log_in(site.server)
    assert site.server.request("HEAD", "/admin/login").status == 200
    fields = urlencode({"infohashes": HASHES[0]})
    for path in ("/admin/deny", "/admin/logout"):
        answer = site.server.request("GET", path, fields, Cookie=cookie, **FORM)
        assert (answer.status, answer.headers["location"]) == (303, "/admin")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    assert site.server.request("GET", "/admin", Cookie=cookie).status == 200


def test_administration_is_off_until_there_is_a_password(run_site):
    with run_site() as site:
        for path in ("/admin", "/admin/login"):
            answer = site.server.get(path)
            assert (answer.status, "lycosa site --add-admin NAME" in answer.text) == (403, True)


def test_other_machines_need_https_for_administration(site):
    from_afar = {"X_Forwarded_For": "203.0.113.5"}
    answer = site.server.request("GET", "/admin/login", **from_afar)
    assert (answer.status, "Not over plain HTTP" in answer.text) == (403, True)
    answer = site.server.request("GET", "/admin/login", **from_afar, X_Forwarded_Proto="https")
    assert (answer.status, "Log in" in answer.text) == (200, True)
    fields = urlencode({"name": "ada", "password": PASSWORD})
    answer = site.server.request("POST", "/admin/login", fields, **FORM, **from_afar, X_Forwarded_Proto="https")
    assert "; Secure" in answer.headers["set-cookie"]


def test_programs_need_a_key_as_soon_as_there_is_one(site):
    search, torznab = "/api/search?q=show", "/torznab/api?t=search&q=show"
    assert site.server.get(search).status == 200
    cookie, token = log_in(site.server)
    page = post(site.server, "/admin/keys", cookie, token=token, name="sonarr", action="add").text
    key = re.search(r"shown only now: (\S+?)</p>", page)[1]
    assert (site.server.get(search).status, site.server.get(search + "&apikey=guess").status) == (401, 401)
    assert '<error code="100"' in site.server.get(torznab).text
    assert site.server.get(f"{search}&apikey={key}").status == 200
    assert HASHES[0] in site.server.get(f"{torznab}&apikey={key}").text
    assert site.server.get("/search?q=show").status == 200, "people need none"
    again = post(site.server, "/admin/keys", cookie, token=token, name="sonarr", action="add").text
    assert "Every key needs a different name" in again
    post(site.server, "/admin/keys", cookie, token=token, name="sonarr", action="remove")
    assert site.server.get(search).status == 200
