"""Who gets in: passwords, sessions, tokens, and what guessing costs."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlencode

from lycosa.search.site.torrents.admin import access, forms
from lycosa.search.site.torrents.admin.access import FAILURES_AT_ONCE
from lycosa.search.site.torrents.admin.site_store import SiteStore
from tests.search.site.torrents.admin.clients import FORM, PASSWORD, log_in, post, session_of
from tests.search.site.torrents.sample_torrents import HASHES
from tests.servers.web_server import DEADLINE_S

PAGES = ("/admin", "/admin/deny", "/admin/rules", "/admin/users", "/admin/keys", "/admin/index")
AFAR = {"X_Forwarded_Proto": "https"}


def test_nobody_gets_in_without_the_password_or_the_token(site):
    for path in (*PAGES, "/admin/takedowns", "/admin/logout"):
        answer = site.server.request("GET", path, Cookie="lycosa_session=guess")
        assert (answer.status, answer.headers["location"]) == (303, "/admin/login")
    session = session_of(site.server)
    for path in PAGES:
        for sent in ("", "guess", session.token[:-1]):
            fields = {"infohashes": HASHES[0], "action": "deny", "name": "x", "password": PASSWORD}
            answer = post(site.server, path, session.cookie, token=sent, **fields)
            assert (answer.status, "out of date" in answer.text) == (403, True)
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    assert session.post("/admin/logout").status == 303
    assert session.get("/admin").status == 303
    for name, password in (("ada", "wrong"), ("eve", PASSWORD), ("", "")):
        answer = log_in(site.server, name, password)
        assert (answer.status, "Wrong name or password" in answer.text) == (403, True)


def test_the_cookie_is_for_this_site_alone_and_pages_are_not_cached(site):
    cookie = log_in(site.server).headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/admin"))
    assert session_of(site.server).get("/admin/users").headers["cache-control"] == "no-store"


def test_a_client_that_guesses_passwords_has_to_wait_and_locks_nobody_out(run_site, hashed, monkeypatch):
    # At this rate no further guess is allowed during the test, however slow the machine is.
    monkeypatch.setattr(access, "FAILURES_PER_MINUTE", 0.1)
    run_site.kept.set_password("ada", hashed)
    with run_site() as site:
        guesser = {**AFAR, "X_Forwarded_For": "203.0.113.5"}
        answers = [log_in(site.server, "ada", "guess", **guesser) for _ in range(FAILURES_AT_ONCE + 1)]
        assert [answer.status for answer in answers] == [403] * FAILURES_AT_ONCE + [429]
        assert "Too many requests" in answers[-1].text
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 601
        assert log_in(site.server, **guesser).status == 429, "not even with the password"
        assert log_in(site.server, **AFAR, X_Forwarded_For="203.0.113.6").status == 303
        assert log_in(site.server).status == 303


def test_logins_that_succeed_are_not_limited(site):
    afar = {**AFAR, "X_Forwarded_For": "203.0.113.5"}
    assert {log_in(site.server, **afar).status for _ in range(FAILURES_AT_ONCE + 2)} == {303}


def test_too_many_guesses_of_all_clients_or_from_this_machine_only_delay_logins(run_site, hashed, monkeypatch):
    """Logins from this machine may come through a reverse proxy that does not forward client addresses."""
    monkeypatch.setattr(access, "ALL_FAILURES_AT_ONCE", 2)
    monkeypatch.setattr(access, "DELAY_MAX_S", 0.01)
    run_site.kept.set_password("ada", hashed)
    with run_site() as site:
        for host in range(4):
            assert log_in(site.server, "ada", "guess", **AFAR, X_Forwarded_For=f"203.0.113.{host}").status == 403
        assert log_in(site.server, **AFAR, X_Forwarded_For="203.0.113.9").status == 303
        for _ in range(FAILURES_AT_ONCE + 1):
            assert log_in(site.server, "ada", "guess").status == 403
        assert log_in(site.server).status == 303


def test_only_forms_change_something(site):
    session = session_of(site.server)
    fields = urlencode({"infohashes": HASHES[0], "action": "deny"})
    for path in ("/admin/takedowns", "/admin/logout"):
        answer = site.server.request("GET", path, fields, Cookie=session.cookie, **FORM)
        assert (answer.status, answer.headers["location"]) == (303, "/admin")
    for path in ("/admin/deny", "/admin/users", "/admin/login"):
        assert site.server.request("HEAD", path, Cookie=session.cookie).status == 200
        assert site.server.request("GET", path, fields, Cookie=session.cookie, **FORM).status == 200
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    assert session.get("/admin").status == 200


def test_administration_is_off_until_there_is_a_password(run_site):
    with run_site() as site:
        for path in ("/admin", "/admin/login"):
            answer = site.server.get(path)
            assert (answer.status, "lycosa site --add-admin NAME" in answer.text) == (403, True)


def test_other_machines_need_https_for_administration(site):
    from_afar = {"X_Forwarded_For": "203.0.113.5"}
    answer = site.server.request("GET", "/admin/login", **from_afar)
    assert (answer.status, "HTTPS is required" in answer.text) == (403, True)
    answer = site.server.request("GET", "/admin/login", **from_afar, **AFAR)
    assert (answer.status, "Log in" in answer.text) == (200, True)
    assert "; Secure" in log_in(site.server, **from_afar, **AFAR).headers["set-cookie"]


def test_a_password_that_changes_during_a_login_opens_no_session(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:
        kept.set_password("ada", "old")
        assert kept.session(kept.open_session("ada", "old", 0), 1).name == "ada"
        kept.change_password("ada", "new")
        assert kept.open_session("ada", "old", 0) is None
        kept.set_password("bob", "new")
        kept.remove_user("ada")
        assert kept.open_session("ada", "new", 0) is None


def test_only_the_user_of_the_site_can_read_its_database(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:
        kept.set_password("ada", "hash")
        assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_form_that_arrives_too_slowly_is_refused(site, monkeypatch):
    monkeypatch.setattr(forms, "FORM_MAX_S", 0.05)
    with socket.create_connection(("127.0.0.1", site.server.port), DEADLINE_S) as client:
        client.sendall(b"POST /admin/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nname=a")
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_slow_database_of_the_site_stops_only_administration(run_site, monkeypatch):
    asked, ready = threading.Event(), threading.Event()

    def slow_users() -> list[str]:
        asked.set()
        assert ready.wait(DEADLINE_S)
        return []

    monkeypatch.setattr(run_site.kept, "users", slow_users)
    with run_site() as site, ThreadPoolExecutor(1) as threads:
        login = threads.submit(site.server.get, "/admin/login")
        try:
            assert asked.wait(DEADLINE_S)
            with socket.create_connection(("127.0.0.1", site.server.port), DEADLINE_S) as client:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        finally:
            ready.set()
        assert login.result().status == 403
