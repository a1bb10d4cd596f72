"""Administrators and keys for programs."""

from __future__ import annotations

import re

from tests.search.site.torrents.admin.clients import PASSWORD, log_in, session_of
from tests.search.site.torrents.sample_torrents import HASHES


def test_administrators_are_added_changed_and_removed_but_the_last_one_stays(site):
    ada = session_of(site.server)
    assert ada.post("/admin/users", action="add", name="bob", password=PASSWORD).status == 303
    bob = session_of(site.server, "bob")
    assert "bob" in bob.get("/admin/users").text
    new = "another long password"
    assert ada.post("/admin/users", action="password", name="bob", password=new).status == 303
    assert bob.get("/admin").status == 303, "a new password ends the sessions"
    assert log_in(site.server, "bob").status == 403
    bob = session_of(site.server, "bob", new)
    assert bob.post("/admin/users", action="remove", name="ada").status == 303
    assert ada.get("/admin").status == 303
    assert log_in(site.server, "ada").status == 403
    answer = bob.post("/admin/users", action="remove", name="bob")
    assert (answer.status, "The last administrator cannot be removed" in answer.text) == (400, True)
    assert bob.get("/admin").status == 200


def test_mistakes_in_accounts_are_explained(site):
    session = session_of(site.server)
    for fields, said in (
        ({"action": "add", "name": "ada", "password": PASSWORD}, "There already is an administrator"),
        ({"action": "add", "name": "", "password": PASSWORD}, "write 1 to 60 printable characters"),
        ({"action": "add", "name": "a\x00b", "password": PASSWORD}, "write 1 to 60 printable characters"),
        ({"action": "add", "name": " bob ", "password": PASSWORD}, "with no space at the beginning or end."),
        ({"action": "add", "name": "b" * 61, "password": PASSWORD}, "cannot be the name of an administrator"),
        ({"action": "add", "name": "bob", "password": "short"}, "12 to 1,000 characters"),
        ({"action": "password", "name": "bob", "password": PASSWORD}, "There is no administrator"),
        ({"action": "remove", "name": "bob"}, "There is no administrator"),
    ):
        answer = session.post("/admin/users", **fields)
        assert (answer.status, said in answer.text) == (400, True), fields
    assert log_in(site.server, "bob").status == 403


def test_administrators_with_names_that_are_no_longer_accepted_can_be_removed(site, run_site, hashed):
    session = session_of(site.server)
    for name in ("", " eve ", "e" * 500):
        run_site.kept.set_password(name, hashed)
        answer = session.post("/admin/users", action="remove", name=name)
        assert (answer.status, answer.headers["location"]) == (303, "/admin/users?said=user-removed")
        assert run_site.kept.users() == ["ada"]


def test_programs_need_a_key_as_soon_as_there_is_one(site):
    search, torznab = "/api/search?q=show", "/torznab/api?t=search&q=show"
    assert site.server.get(search).status == 200
    session = session_of(site.server)
    page = session.post("/admin/keys", name="sonarr", action="add").text
    key = re.search(r"shown only now: <code>(\S+?)</code>", page)[1]
    assert key not in session.get("/admin/keys").text
    assert (site.server.get(search).status, site.server.get(search + "&apikey=guess").status) == (401, 401)
    assert '<error code="100"' in site.server.get(torznab).text
    assert site.server.get(f"{search}&apikey={key}").status == 200
    assert HASHES[0] in site.server.get(f"{torznab}&apikey={key}").text
    assert site.server.get(f"/api/torrents/{HASHES[0]}").status == 401
    for path in (
        "/search?",
        "/search.rss?",
        "/search.json?",
        "/search.csv?",
        f"/torrent/{HASHES[0]}.json?",
        "/suggest?",
    ):
        assert site.server.get(f"{path}q=show").status == 200, "people need none"
    assert "Pages, feeds, exports (JSON, CSV) and completions never need a key." in session.get("/admin/keys").text
    again = session.post("/admin/keys", name="sonarr", action="add")
    assert (again.status, "Every key needs a name of its own" in again.text) == (400, True)
    session.post("/admin/keys", name="sonarr", action="remove")
    assert site.server.get(search).status == 200
