"""Leases, sessions and reports of the gateway (P5, P6)."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode

import pytest

from tests.proxies.gateway.playing import GET, LAST, OK, Stage, plays
from tests.proxies.gateway.test_tunnels import CONNECT, HTTP, echo


def login(user: str, password: str = "secret") -> bytes:
    return b"Proxy-Authorization: Basic " + b64encode(f"{user}:{password}".encode()) + b"\r\n"


def by(user: str, request: bytes = LAST) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\n" + login(user) + b"\r\n")


def lease_of(answer: bytes) -> str:
    return answer.partition(b"X-Proxy-Lease: ")[2].split(b"\r\n")[0].decode()


def json_of(answer: bytes) -> dict[str, str]:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def report(kind: str = "application/json", user: str = "", **said: object) -> bytes:
    content = json.dumps(said).encode()
    head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n".encode()
    more = login(user).replace(b"Proxy-Auth", b"Auth") if user else b""
    return head + more + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


async def tunnel(stage: Stage, request: bytes) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await stage.connect()
    writer.write(request)
    head = await stage.head(reader)
    assert head.startswith(b"HTTP/1.1 200"), head
    return lease_of(head), reader, writer


async def settled(stage: Stage) -> None:
    while stage.gateway.context.leases:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def rested(stage: Stage, target: str = "shop.example") -> dict[str, str]:
    """Return the proxies that do not take part, and why."""
    return {
        each.proxy.key: each.reason
        for each in await stage.pool.proxies(target)
        if each.state not in ("ready", "leased")
    }


def test_requests_rotate_proxies_and_a_session_keeps_its_own(played):
    async def play(stage: Stage) -> None:
        for number in range(4):
            await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))
        some = [(await stage.ask(LAST))[-1:] for _ in range(4)]
        assert len(set(some)) == 4
        for session in ("a", "b"):
            mine = [(await stage.ask(by(f"x-session-{session}")))[-1:] for _ in range(4)]
            assert len(set(mine)) == 1

    played(play)


def test_concurrent_uses_of_a_session_share_a_lease(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        await stage.proxy(HTTP)
        tunnels = [await tunnel(stage, by("x-session-a", CONNECT)) for _ in range(3)]
        assert len({lease for lease, _, _ in tunnels}) == 1
        assert len(stage.gateway.context.leases) == 1
        other, _, writer = await tunnel(stage, by("x-session-b", CONNECT))
        assert other not in {lease for lease, _, _ in tunnels}
        for each in (*(writer for _, _, writer in tunnels), writer):
            each.close()
        await settled(stage)
        assert sorted(len(outcomes) for _, outcomes in stage.pool.returned) == [1, 3]

    played(play)


def test_simultaneous_first_uses_of_a_session_share_a_lease(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        found = await asyncio.gather(*(tunnel(stage, by("x-session-a", CONNECT)) for _ in range(5)))
        assert len({lease for lease, _, _ in found}) == 1
        for _, _, writer in found:
            writer.close()

    played(play)


def test_accounts_do_not_share_sessions(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        await stage.proxy(HTTP)
        ann, _, one = await tunnel(stage, by("ann-session-a", CONNECT))
        bob, _, two = await tunnel(stage, by("bob-session-a", CONNECT))
        assert ann != bob
        one.close()
        two.close()

    played(play, users={"ann": "secret", "bob": "secret"})


def test_a_proxy_is_leased_to_one_client_at_a_time(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        _, _, writer = await tunnel(stage, CONNECT)
        reader, second = await stage.connect()
        second.write(CONNECT)
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 503 ")
        # Somebody else's site is another matter.
        _, _, third = await tunnel(stage, CONNECT.replace(b"shop", b"other"))
        writer.close()
        third.close()
        await settled(stage)
        _, _, fourth = await tunnel(stage, CONNECT)
        fourth.close()

    played(play)


def test_leases_of_long_tunnels_are_renewed(played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lycosa.proxies.gateway.gateway.RENEW_S", 0.05)

    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        _, reader, writer = await tunnel(stage, CONNECT)
        await asyncio.sleep(2.5)  # two and a half leases
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert (await stage.pool.targets())[0].leaked == 0
        writer.close()
        await settled(stage)
        assert stage.gateway.context.counts.leases_lost == 0

    played(play, lease_s=1.0)


def test_a_lost_lease_ends_its_tunnels(played, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lycosa.proxies.gateway.gateway.RENEW_S", 0.02)

    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP)
        _, reader, _ = await tunnel(stage, CONNECT)
        await stage.pool.remove([proxy.proxy.key])
        assert await stage.gone(reader) == b""
        assert stage.gateway.context.counts.leases_lost == 1

    played(play, lease_s=0.1)


# --- reports


def test_a_report_on_a_tunnel_counts_and_a_bad_one_ends_it(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP)
        lease, reader, writer = await tunnel(stage, CONNECT)
        assert json_of(await stage.ask(report(lease=lease, status=200))) == {"result": "accepted"}
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        assert json_of(await stage.ask(report(lease=lease, status=429, retry_after=30))) == {"result": "accepted"}
        assert await stage.gone(reader) == b""
        await settled(stage)
        assert stage.pool.outcomes[:2] == [("none", ""), ("site", "429")]
        assert await rested(stage) == {proxy.proxy.key: "429"}

    played(play)


def test_a_ban_of_one_request_ends_the_tunnels_of_its_session(played):
    async def either(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await echo(reader, writer)
        else:
            writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

    async def play(stage: Stage) -> None:
        await stage.proxy(either)
        lease, reader, _ = await tunnel(stage, by("x-session-a", CONNECT))
        answer = await stage.ask(by("x-session-a"))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert lease_of(answer) == lease
        assert await stage.gone(reader) == b""
        assert list((await rested(stage)).values()) == ["403"]

    played(play)


def test_a_session_that_is_reported_gets_another_proxy(played):
    async def play(stage: Stage) -> None:
        for number in range(2):
            await stage.proxy(plays(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))
        first = (await stage.ask(by("x-session-a")))[-1:]
        said = report(user="x", session="a", site="shop.example", outcome="site", reason="soft ban")
        assert json_of(await stage.ask(said)) == {"result": "late, accepted"}
        assert (await stage.ask(by("x-session-a")))[-1:] != first
        assert list((await rested(stage)).values()) == ["soft ban"]

    played(play)


def test_a_report_names_its_site_in_any_case(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(OK))
        await stage.ask(by("x-session-a-site-Shop.Example"))
        said = report(user="x", session="a", site="Shop.Example", outcome="site", reason="soft ban")
        assert json_of(await stage.ask(said)) == {"result": "late, accepted"}

    played(play)


def test_a_late_report_bans_the_proxy(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK))
        lease = lease_of(await stage.ask(LAST))
        assert json_of(await stage.ask(report(lease=lease, status=200))) == {"result": "late"}
        assert await rested(stage) == {}
        assert json_of(await stage.ask(report(lease=lease, outcome="site", reason="soft"))) == {
            "result": "late, accepted"
        }
        assert await rested(stage) == {proxy.proxy.key: "soft"}

    played(play)


def test_a_late_report_of_a_known_ban_changes_nothing(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"))
        lease = lease_of(await stage.ask(LAST))
        before = (await stage.pool.proxies("shop.example"))[0].until
        assert json_of(await stage.ask(report(lease=lease, status=403))) == {"result": "late, already known"}
        assert (await stage.pool.proxies("shop.example"))[0].until == before

    played(play)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (report(lease="nobody", status=200), 404, "no such lease"),
        (report(session="a", site="b", status=200), 404, "no such lease"),
        (report(lease="a"), 400, "has no result"),
        (report(status=200), 400, "names no lease"),
        (report("text/plain", lease="a", status=200), 415, "send application/json"),
        (report(lease="a" * 5000, status=200), 413, "longer than 4,096 bytes"),
        (b"GET /v1/report HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405, "POST only"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "this is a proxy"),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404, "this is a proxy"),
    ],
)
def test_invalid_reports_are_refused(played, request_: bytes, status: int, words: str):
    async def play(stage: Stage) -> None:
        answer = await stage.ask(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert words.encode() in answer

    played(play)


def test_without_accounts_the_id_of_a_lease_is_enough(played):
    """A name is then no more than a way to ask for something: the report in the documentation has none."""

    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP)
        lease, reader, _ = await tunnel(stage, by("ann-session-a", CONNECT))
        assert json_of(await stage.ask(report(lease=lease, status=403))) == {"result": "accepted"}
        assert await stage.gone(reader) == b""
        await settled(stage)
        assert await rested(stage) == {proxy.proxy.key: "403"}

    played(play)


def test_reports_need_the_login_of_their_lease(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        lease, _, writer = await tunnel(stage, by("ann", CONNECT))
        assert (await stage.ask(report(lease=lease, status=403))).startswith(b"HTTP/1.1 401 ")
        assert (await stage.ask(report(user="bob", lease=lease, status=403))).startswith(b"HTTP/1.1 404 ")
        assert len(stage.gateway.context.leases) == 1
        assert (await stage.ask(report(user="ann", lease=lease, status=403))).startswith(b"HTTP/1.1 200 ")
        writer.close()

    played(play, users={"ann": "secret", "bob": "secret"})


def choices(site: str = "shop.example", user: str = "", host: str = "127.0.0.1:3128") -> bytes:
    more = login(user).replace(b"Proxy-Auth", b"Auth") if user else b""
    head = f"GET /v1/choices?site={site} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode()
    return head + more + b"\r\n"


def told(answer: bytes) -> list[tuple[str, str, str]]:
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    said = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]
    assert all(abs(each["at"] - time.time()) < 60 for each in said)
    return [(each["proxy"], each["why"], each["result"]) for each in said]


def test_the_reasons_of_recent_leases_are_shown(played):
    """Issue 6: "why a proxy was chosen or refused"."""

    async def play(stage: Stage) -> None:
        no = b"HTTP/1.1 403 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
        banned = await stage.proxy(plays(no), tags={"country": "de"})
        await stage.ask(by("ann-country-de-session-a"))
        await settled(stage)
        answer = await stage.ask(by("ann-country-de-session-a"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        dead = await stage.dead()
        await stage.ask(LAST)
        await stage.pool.remove([dead.key])  # its rest may be short
        good = await stage.proxy(HTTP)
        lease, _, writer = await tunnel(stage, CONNECT)
        name = good.proxy.name
        assert told(await stage.ask(choices()))[0] == (name, "drawn from 1", "")
        assert json_of(await stage.ask(report(lease=lease, status=429))) == {"result": "accepted"}
        writer.close()
        await settled(stage)
        first, second, third, fourth, fifth = told(await stage.ask(choices("Shop.example")))
        assert first == (name, "drawn from 1", "429 (site)")
        assert second[::2] == ("", "")
        assert second[1].startswith("no proxy for shop.example is free within 0.2 s (1 cooling)")
        assert third == (dead.name, "drawn from 1", "proxy not reached: connection refused (proxy)")
        assert fourth[::2] == ("", "")
        assert fourth[1].startswith("no proxy for shop.example is free within 0.2 s (1 cooling)")
        assert fifth == (banned.proxy.name, "drawn from 1 with country=de", "403 (site)")
        for host in ("localhost:3128", "127.0.0.1", "[::1]:3128"):
            assert told(await stage.ask(choices("other.example", host=host))) == []

    played(play)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (choices(""), 400, "no site"),
        (choices().replace(b"?site=shop.example", b""), 400, "no site"),
        (choices(host="rebound.example:3128"), 403, "use the address of this machine"),
        (choices().replace(b"GET", b"POST"), 405, "GET only"),
    ],
)
def test_invalid_requests_for_choices_are_refused(played, request_: bytes, status: int, words: str):
    async def play(stage: Stage) -> None:
        answer = await stage.ask(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert words.encode() in answer

    played(play)


def test_an_account_sees_only_its_own_choices(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK))
        await stage.ask(by("ann-session-a"))
        assert (await stage.ask(choices())).startswith(b"HTTP/1.1 401 ")
        assert told(await stage.ask(choices(user="bob"))) == []
        assert [each[0] for each in told(await stage.ask(choices(user="ann")))] == [proxy.proxy.name]

    played(play, users={"ann": "secret", "bob": "secret"})


def test_reports_and_requests_share_a_connection(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(plays(OK))
        said = report(lease="nobody", status=200).replace(b"Connection: close\r\n", b"")
        answer = await stage.ask(GET + said + LAST)
        assert [each for each in (b"200 OK", b"404 Not", b"200 OK") if each in answer] == [
            b"200 OK",
            b"404 Not",
            b"200 OK",
        ]
        assert answer.count(b"HTTP/1.1 ") == 3

    played(play)


def test_stopping_releases_all_leases(played_on_both):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        await tunnel(stage, by("x-session-a", CONNECT))
        assert len(stage.gateway.context.leases) == 1

    played_on_both(play, grace_s=0.1)
