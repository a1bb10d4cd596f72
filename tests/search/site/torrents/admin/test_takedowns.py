"""Takedown requests, decisions of administrators, and changes of the deny-list, as a browser sends them."""

from __future__ import annotations

from base64 import b32encode
from contextlib import closing

from lycosa.search.site.torrents import app
from lycosa.search.site.torrents.admin import site_store
from lycosa.search.site.torrents.admin.forms import infohashes_in
from lycosa.search.site.torrents.admin.parts import AdminOptions
from lycosa.search.site.torrents.admin.site_store import SiteStore
from lycosa.search.site.torrents.admin.takedowns import TAKEDOWNS_AT_ONCE
from tests.search.site.torrents.admin.clients import FORM, post, session_of
from tests.search.site.torrents.sample_torrents import HASHES, SAMPLES


def test_a_request_waits_for_an_administrator_who_removes_the_torrent(site):
    link = f"{site.server.url}/torrent/{HASHES[0]} and magnet:?xt=urn:btih:{HASHES[1].upper()}&dn=x"
    answer = post(site.server, "/takedown", infohashes=link, reason="mine <b>", contact="me@example.org")
    assert (answer.status, "Request received" in answer.text) == (202, True)
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    session = session_of(site.server)
    page = session.get("/admin").text
    assert all(text in page for text in ("mine &lt;b&gt;", "me@example.org", HASHES[0], HASHES[1]))
    answer = session.post("/admin/takedowns", id="1", decision="accepted")
    assert answer.headers["location"] == "/admin?said=accepted"
    assert [site.server.get(f"/torrent/{each}").status for each in HASHES[:3]] == [410, 410, 200]
    page = session.get("/admin").text
    assert "There are no undecided requests" in page
    assert "me@example.org" not in page


def test_a_refused_request_changes_nothing(site):
    post(site.server, "/takedown", infohashes=HASHES[0], reason="no")
    session = session_of(site.server)
    session.post("/admin/takedowns", id="1", decision="refused")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200
    again = session.post("/admin/takedowns", id="1", decision="accepted")
    assert again.headers["location"] == "/admin?said=gone"
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200


def test_the_operator_may_hide_torrents_as_soon_as_a_request_arrives(run_site):
    with run_site(AdminOptions(hide_at_once=True)) as site:
        answer = post(site.server, "/takedown", infohashes=HASHES[0], reason="mine", contact="me@example.org")
        assert (answer.status, "Removed" in answer.text) == (200, True)
        assert site.server.get(f"/torrent/{HASHES[0]}").status == 410
    (kept,) = run_site.kept.takedowns()
    assert (kept.decision, kept.contact) == ("accepted", "")


def test_requests_need_an_infohash_and_a_reason_and_stored_ones_are_limited(run_site, monkeypatch):
    with run_site() as site:
        page = site.server.get(f"/takedown?infohash={HASHES[0]}").text
        assert f">{HASHES[0]}</textarea>" in page
        for fields in ({"infohashes": "none", "reason": "x"}, {"infohashes": HASHES[0], "reason": " "}, {}):
            answer = post(site.server, "/takedown", **fields)
            assert (answer.status, 'role="alert"' in answer.text) == (400, True)
        with monkeypatch.context() as full:
            full.setattr(site_store, "WAITING_MAX", 0)
            assert post(site.server, "/takedown", infohashes=HASHES[0], reason="x").status == 503
        answers = [
            post(site.server, "/takedown", infohashes=HASHES[0], reason="x") for _ in range(TAKEDOWNS_AT_ONCE + 1)
        ]
        assert [answer.status for answer in answers] == [202] * TAKEDOWNS_AT_ONCE + [429]
        assert int(answers[-1].headers["retry-after"]) > 60
        assert post(site.server, "/takedown", infohashes="x" * 100_000).status == 413
        assert post(site.server, "/takedown", infohashes="none", reason="x").status == 400
        assert len(run_site.kept.takedowns()) == TAKEDOWNS_AT_ONCE


def test_invalid_requests_of_other_machines_have_the_limit_of_all_pages(run_site, monkeypatch):
    monkeypatch.setattr(app, "BURST", 3)
    with run_site() as site:
        answers = [site.server.request("POST", "/takedown", X_Forwarded_For="203.0.113.5", **FORM) for _ in range(9)]
        statuses = [answer.status for answer in answers]
        assert (statuses[:3], 429 in statuses) == ([400] * 3, True)


def test_the_deny_list_is_changed_at_once(site):
    session = session_of(site.server)
    answer = session.post("/admin/deny", infohashes=HASHES[0], action="deny", reason="law")
    assert answer.headers["location"] == "/admin/deny?said=denied"
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 410
    session.post("/admin/deny", infohashes=HASHES[0], action="allow")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 404, "removed, but may come again"


def test_a_dry_run_of_the_deny_list_changes_nothing(site):
    session = session_of(site.server)
    session.post("/admin/deny", infohashes=HASHES[1], action="deny")
    page = session.post("/admin/deny", infohashes=" ".join([*HASHES[:2], "f" * 40]), action="try", reason="law").text
    assert "1 of 3 are stored and would be removed; 1 are already on the deny-list." in page
    assert SAMPLES[0].name in page
    assert 'value="law"' in page
    assert f"{HASHES[0]}\n{HASHES[1]}" in page
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 200


def test_torrents_are_hidden_at_once_before_the_request_is_stored(run_site):
    with run_site(AdminOptions(hide_at_once=True)) as site:
        run_site.kept.close()
        assert post(site.server, "/takedown", infohashes=HASHES[0], reason="mine").status == 503
        assert site.server.get(f"/torrent/{HASHES[0]}").status == 410


def test_the_first_decision_holds(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:
        kept.add_takedown([HASHES[0]], "mine", "", "", 0)
        kept.decide(1, "accepted", 1)
        kept.decide(1, "refused", 2)
        assert [each.decision for each in kept.takedowns()] == ["accepted"]


def test_infohashes_are_found_in_every_kind_of_magnet_link():
    v1, v2 = bytes(range(20)), bytes(range(32))
    base32 = b32encode(v1).decode()
    assert infohashes_in(f"magnet:?xt=urn:btmh:1220{v2.hex()}&dn=x") == [v2.hex()]
    assert infohashes_in(f"magnet:?xt=urn:btih:{base32} magnet:?xt=urn:btih:{v1.hex()}") == [v1.hex()]
    assert infohashes_in(f"magnet%3A%3Fxt%3Durn%3Abtih%3A{v1.hex()}%26dn=x") == [v1.hex()], "percent-encoded"
    assert infohashes_in(f"1220{'ab' * 30} 1220{'ab' * 31} {base32}") == [f"1220{'ab' * 30}"]


def test_all_infohashes_of_a_form_are_denied(site):
    many = [f"{number:040x}" for number in range(1, 1300)]
    session_of(site.server).post("/admin/deny", infohashes="\n".join([*many, HASHES[0]]), action="deny")
    assert site.server.get(f"/torrent/{HASHES[0]}").status == 410
