from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from lycosa.search.site.torrents.admin.parts import AdminOptions, AdminParts, NameRules
from lycosa.search.site.torrents.admin.passwords import hash_password
from lycosa.search.site.torrents.admin.site_store import SiteStore
from lycosa.storage.ports import RecordStore
from tests.conftest import need
from tests.search.site.torrents.admin.clients import PASSWORD
from tests.search.site.torrents.sample_torrents import TorrentSite, torrent_site


def argon2_is_installed() -> bool:
    try:
        import argon2  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.fixture(scope="session")
def hashed() -> str:
    need("argon2", argon2_is_installed())
    return hash_password(PASSWORD)


@pytest.fixture
def run_site(tmp_path):
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:

        def run(options: AdminOptions | None = None, rules: Callable[[RecordStore], NameRules] | None = None):
            def admin(store: RecordStore) -> AdminParts:
                return AdminParts(kept, store, options or AdminOptions(), rules and rules(store))

            return torrent_site(tmp_path, admin=admin)

        run.kept = kept
        yield run


@pytest.fixture
def site(run_site, hashed) -> Iterator[TorrentSite]:
    run_site.kept.set_password("ada", hashed)
    with run_site() as site:
        yield site
