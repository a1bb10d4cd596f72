"""User names of the gateway's clients, and their accounts."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import Forbidden, UsageError
from lycosa.proxies.core.gateway.accounts import Accounts, read_accounts
from lycosa.proxies.core.gateway.username import KEYS, GatewayUser, StickySessions, parse_username


@pytest.mark.parametrize(
    ("text", "user"),
    [
        ("ann", GatewayUser("ann")),
        ("ann-session-c7", GatewayUser("ann", session="c7")),
        ("ann-site-Shop.Example", GatewayUser("ann", "shop.example")),
        ("ann-country-DE-site-x", GatewayUser("ann", "x", tags={"country": "de"})),
        ("ann-site-my--shop.example", GatewayUser("ann", "my-shop.example")),
        ("ann-site-xn----abc.example", GatewayUser("ann", "xn--abc.example")),
        ("ann-session-a--", GatewayUser("ann", session="a-")),
        ("ann-session-a-sticky-60", GatewayUser("ann", session="a", sticky_s=60.0)),
        ("ann-sticky-10m-session-a", GatewayUser("ann", session="a", sticky_s=600.0)),
        ("ann-session-a-sticky-24h", GatewayUser("ann", session="a", sticky_s=86_400.0)),
        ("ann-session-site-site-session", GatewayUser("ann", "session", "site")),
        ("team--a-city-New York-provider-Acme", GatewayUser("team--a", tags={"city": "New York", "provider": "Acme"})),
    ],
)
def test_user_names_are_parsed(text: str, user: GatewayUser):
    assert parse_username(text, ["ann", "team--a", "an"]) == user


def test_the_longest_account_wins():
    assert parse_username("ann-site-session-x", ["ann", "ann-site"]) == GatewayUser("ann-site", session="x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown user name"),
        ("bob", "unknown user name"),
        ("anna", "unknown user name"),
        ("ann--x", "unknown user name"),
        ("ann-", "'' in the user name: write -KEY-VALUE"),
        ("ann-sesion-5", "unknown 'sesion' in the user name: write -KEY-VALUE, KEY one of site, session"),
        ("ann-site", "site '' in the user name: write a domain"),
        ("ann-site-", "site ''"),
        ("ann-site-x-y", "'y' in the user name"),
        ("ann-site-a/b", "site 'a/b'"),
        ("ann-session-" + "x" * 65, "64 at most"),
        ("ann-session-a b", "letters"),
        ("ann-session-a-session-b", "session appears twice"),
        ("ann-sticky-60", "needs a session"),
        ("ann-session-a-sticky-0", "write a time"),
        ("ann-session-a-sticky-25h", "write a time"),
        ("ann-session-a-sticky-5d", "write a time"),
        ("ann-session-a-sticky-", "write a time"),
        ("ann-country-\u00fc", "country"),
        ("ann-session-a\n", "unprintable characters"),
        ("ann-session-" + "x" * 600, "has more than"),
    ],
)
def test_invalid_user_names_are_refused(text: str, why: str):
    with pytest.raises(Forbidden, match=why) as raised:
        parse_username(text, ["ann"])
    assert raised.value.status == 407


def test_an_unknown_user_name_does_not_scan_all_accounts():
    class Many(dict[str, str]):
        def __iter__(self):
            raise AssertionError("10,000 accounts, one by one, for each wrong login")

    accounts = Many({"ann": "", "ann-site": "", "b-ob": ""})
    assert parse_username("ann-site-session-5", accounts) == GatewayUser("ann-site", session="5")
    assert parse_username("ann--site", Many({"ann--site": ""})) == GatewayUser("ann--site")
    for stranger in ("eve", "eve-session-5", "ann--site", "-", "-" * 512):
        with pytest.raises(Forbidden, match="unknown user name"):
            parse_username(stranger, accounts)


def test_without_accounts_a_name_ends_at_the_first_single_dash():
    assert parse_username("") == GatewayUser()
    assert parse_username("anyone") == GatewayUser("anyone")
    assert parse_username("a--b-session-5") == GatewayUser("a-b", session="5")
    assert parse_username("-session-5") == GatewayUser(session="5")


@given(
    st.dictionaries(
        st.sampled_from(["site", "session", "country", "city"]),
        st.from_regex(r"[a-z0-9.][a-z0-9.-]{0,19}", fullmatch=True),
    )
)
def test_values_with_dashes_are_restored(values: dict[str, str]):
    text = "ann" + "".join(f"-{key}-{value.replace('-', '--')}" for key, value in values.items())
    user = parse_username(text, ["ann"])
    found = {"site": user.site, "session": user.session, **user.tags}
    assert {key: value for key, value in found.items() if value} == values


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused(text: str):
    for accounts in (None, ["a", "ann"]):
        try:
            user = parse_username(text, accounts)
        except Forbidden:
            continue
        assert set(user.tags) <= set(KEYS)


def test_a_sticky_session_ends_after_its_time():
    stickies = StickySessions()
    user = GatewayUser("ann", session="a", sticky_s=60)
    first = stickies.session(user, 1000.0)
    assert [stickies.session(user, at) == first for at in (1000.1, 1059.9, 1060.0, 1100.0)] == [
        True,
        True,
        False,
        False,
    ]
    assert stickies.session(user, 1060.0) == stickies.session(user, 1119.0)


def test_sessions_differ_by_account_and_by_time():
    stickies = StickySessions()
    names = [
        stickies.session(GatewayUser(name, session="a", sticky_s=sticky_s), 5.0) for name in "xy" for sticky_s in (0, 9)
    ]
    assert len(set(names)) == 4
    assert stickies.session(GatewayUser("x"), 5.0) == ""


def test_the_number_of_remembered_sessions_is_bounded():
    stickies = StickySessions(sessions_max=10)
    for number in range(25):
        stickies.session(GatewayUser("x", session=f"s{number}", sticky_s=60), 5.0)
    assert len(stickies) == 10


# --- accounts


def basic(login: str, scheme: str = "Basic") -> list[bytes]:
    return [f"{scheme} ".encode() + b64encode(login.encode())]


def test_correct_logins_are_accepted():
    accounts = Accounts({"ann": "sec:ret", "b-ob": "p\u00e4ss"})
    assert accounts.log_in_basic(basic("ann-session-5:sec:ret")) == GatewayUser("ann", session="5")
    assert accounts.log_in_basic(basic("b-ob:p\u00e4ss", "bAsIc")) == GatewayUser("b-ob")
    assert accounts.log_in("ann", "sec:ret") == GatewayUser("ann")


def test_latin_1_logins_are_accepted():
    """Python requests sends latin-1, whatever charset the challenge has."""
    accounts = Accounts({"b-ob": "p\u00e4ss"})
    assert accounts.log_in_basic([b"Basic " + b64encode("b-ob:p\u00e4ss".encode("latin-1"))]) == GatewayUser("b-ob")
    with pytest.raises(Forbidden, match="wrong password"):
        accounts.log_in_basic([b"Basic " + b64encode(b"b-ob:p\xe5ss")])


@pytest.mark.parametrize(
    "values",
    [
        [],
        basic("ann:wrong"),
        basic("ann:"),
        basic("ann"),
        basic("bob:secret"),
        basic(":secret"),
        basic("ann:secret") * 2,
        basic("ann:secret", "Bearer"),
        [b"Basic"],
        [b"Basic \xff\xfe"],
        [b"Basic !!!!"],
    ],
)
def test_wrong_logins_are_refused(values: list[bytes]):
    with pytest.raises(Forbidden) as raised:
        Accounts({"ann": "secret"}).log_in_basic(values)
    assert raised.value.status == 407
    assert "secret" not in str(raised.value)


def test_without_accounts_every_login_is_accepted():
    accounts = Accounts()
    assert not accounts
    assert accounts.log_in_basic([]) == GatewayUser()
    assert accounts.log_in_basic(basic("x-country-de:whatever")) == GatewayUser("x", tags={"country": "de"})


def test_accounts_show_no_password():
    assert "secret" not in repr(Accounts({"ann": "secret"}))


def test_a_file_of_accounts_is_parsed():
    assert read_accounts(["# ours", "ann:a:b", "", " bob:c "]) == {"ann": "a:b", "bob": "c"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["ann"], "line 1: write NAME:PASSWORD"),
        (["", "ann:"], "line 2: write NAME:PASSWORD"),
        ([":secret"], "line 1"),
        (["a b:secret"], "line 1"),
        (["ann:1", "ann:2"], "line 2: the account ann is listed twice"),
        (["ann:" + "x" * 256], "line 1"),
        (["ann:\udcff"], "line 1"),
    ],
)
def test_invalid_accounts_are_refused(lines: list[str], why: str):
    with pytest.raises(UsageError, match=why) as raised:
        read_accounts(lines)
    assert "secret" not in str(raised.value)
