"""The limits of each profile, and the rates that follow from them."""

from __future__ import annotations

import pytest

from lycosa.cli.dht import crawl
from lycosa.core.errors import UsageError
from lycosa.dht.crawler.core.profiles import BURST_SHARE, HOME, PROFILES, SERVER, Profile, profile_named


@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_the_shares_of_all_stages_fit_into_the_addresses_of_a_minute(profile: Profile) -> None:
    assert 0.9 * (1 - BURST_SHARE) * profile.new_addresses <= profile.planned_addresses
    assert profile.planned_addresses <= (1 - BURST_SHARE) * profile.new_addresses


def test_a_profile_is_found_by_the_names_that_the_command_offers() -> None:
    assert [profile_named(name) for name in crawl.PROFILES] == [HOME, SERVER]
    with pytest.raises(UsageError, match="there is no profile 'office': write home or server"):
        profile_named("office")


def test_a_home_router_sees_at_most_600_new_addresses_a_minute() -> None:
    assert HOME.new_addresses <= 600


def test_torrents_per_day_follow_from_the_connections_and_sweep_hours_from_the_samples() -> None:
    assert (HOME.torrents_per_day, SERVER.torrents_per_day) == (80_640, 2_304_000)
    assert SERVER.sweep_hours(10_000_000) == pytest.approx(27.8, abs=0.1)
