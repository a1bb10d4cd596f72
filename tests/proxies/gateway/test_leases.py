"""Leases, sessions and reports of the gateway."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode

import pytest

from tests.proxies.gateway.harness import GET, GET_AND_CLOSE, OK, RunningGateway, respond
from tests.proxies.gateway.test_tunnels import CONNECT, HTTP, echo


def login(user: str, password: str = "secret") -> bytes:
    return b"Proxy-Authorization: Basic " + b64encode(f"{user}:{password}".encode()) + b"\r\n"


def with_user(user: str, request: bytes = GET_AND_CLOSE) -> bytes:
    return request.replace(b"\r\n\r\n", b"\r\n" + login(user) + b"\r\n")


def lease_of(answer: bytes) -> str:
    return answer.partition(b"X-Proxy-Lease: ")[2].split(b"\r\n")[0].decode()


def json_of(answer: bytes) -> dict[str, str]:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def report(kind: str = "application/json", user: str = "", **fields: object) -> bytes:
    content = json.dumps(fields).encode()
    head = f"POST /v1/report HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: {kind}\r\n".encode()
    more = login(user).replace(b"Proxy-Auth", b"Auth") if user else b""
    return head + more + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


async def open_tunnel(
    gateway: RunningGateway, request: bytes
) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await gateway.connect()
    writer.write(request)
    head = await gateway.read_head(reader)
    assert head.startswith(b"HTTP/1.1 200"), head
    return lease_of(head), reader, writer


async def unavailable(gateway: RunningGateway, target: str = "shop.example") -> dict[str, str]:
    """Return the proxies that are not available, with the reasons."""
    return {
        each.proxy.key: each.reason
        for each in await gateway.pool.proxies(target)
        if each.state not in ("ready", "leased")
    }


def test_requests_rotate_proxies_and_a_session_keeps_its_own(run):
    async def scenario(gateway: RunningGateway) -> None:
        for number in range(4):
            await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))
        some = [(await gateway.request(GET_AND_CLOSE))[-1:] for _ in range(4)]
        assert len(set(some)) == 4
        for session in ("a", "b"):
            mine = [(await gateway.request(with_user(f"x-session-{session}")))[-1:] for _ in range(4)]
            assert len(set(mine)) == 1

    run(scenario)


def test_concurrent_uses_of_a_session_share_a_lease(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        await gateway.add_proxy(HTTP)
        tunnels = [await open_tunnel(gateway, with_user("x-session-a", CONNECT)) for _ in range(3)]
        assert len({lease for lease, _, _ in tunnels}) == 1
        assert len(gateway.context.leases) == 1
        other, _, writer = await open_tunnel(gateway, with_user("x-session-b", CONNECT))
        assert other not in {lease for lease, _, _ in tunnels}
        for each in (*(writer for _, _, writer in tunnels), writer):
            each.close()
        await gateway.wait_for_leases_to_end()
        assert sorted(len(outcomes) for _, outcomes in gateway.pool.released) == [1, 3]

    run(scenario)


def test_simultaneous_first_uses_of_a_session_share_a_lease(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        found = await asyncio.gather(*(open_tunnel(gateway, with_user("x-session-a", CONNECT)) for _ in range(5)))
        assert len({lease for lease, _, _ in found}) == 1
        for _, _, writer in found:
            writer.close()

    run(scenario)


def test_accounts_do_not_share_sessions(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        await gateway.add_proxy(HTTP)
        ann, _, one = await open_tunnel(gateway, with_user("ann-session-a", CONNECT))
        bob, _, two = await open_tunnel(gateway, with_user("bob-session-a", CONNECT))
        assert ann != bob
        one.close()
        two.close()

    run(scenario, users={"ann": "secret", "bob": "secret"})


def test_a_proxy_is_leased_to_one_client_at_a_time(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        _, _, writer = await open_tunnel(gateway, CONNECT)
        reader, second = await gateway.connect()
        second.write(CONNECT)
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 503 ")
        # The proxy is still free for another target.
        _, _, third = await open_tunnel(gateway, CONNECT.replace(b"shop", b"other"))
        writer.close()
        third.close()
        await gateway.wait_for_leases_to_end()
        _, _, fourth = await open_tunnel(gateway, CONNECT)
        fourth.close()

    run(scenario)


def test_leases_of_long_tunnels_are_renewed(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lycosa.proxies.gateway.gateway.RENEW_S", 0.05)
    monkeypatch.setattr("lycosa.proxies.gateway.leases.RENEWALS", 10_000)

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        _, reader, writer = await open_tunnel(gateway, CONNECT)
        deadlines: set[float] = set()
        while len(deadlines) < 4:
            (lease,) = gateway.context.leases._active.values()
            deadlines.add(lease.proxy_lease.deadline)
            await asyncio.sleep(0.01)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert (await gateway.pool.targets())[0].leaked == 0
        writer.close()
        await gateway.wait_for_leases_to_end()
        assert gateway.context.counts.leases_lost == 0

    run(scenario, lease_s=30.0)


def test_a_lost_lease_ends_its_tunnels(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lycosa.proxies.gateway.gateway.RENEW_S", 0.02)

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        _, reader, _ = await open_tunnel(gateway, CONNECT)
        await gateway.pool.remove([proxy.proxy.key])
        assert await gateway.read_to_end(reader) == b""
        assert gateway.context.counts.leases_lost == 1

    run(scenario, lease_s=0.1)


# --- reports


def test_reports_on_a_tunnel_count_and_a_reported_ban_ends_the_tunnel(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        lease, reader, writer = await open_tunnel(gateway, CONNECT)
        assert json_of(await gateway.request(report(lease=lease, status=200))) == {"result": "accepted"}
        writer.write(b"still here")
        assert await reader.readexactly(10) == b"still here"
        assert json_of(await gateway.request(report(lease=lease, status=429, retry_after=30))) == {"result": "accepted"}
        assert await gateway.read_to_end(reader) == b""
        await gateway.wait_for_leases_to_end()
        assert gateway.pool.outcomes[:2] == [("none", ""), ("site", "429")]
        assert await unavailable(gateway) == {proxy.proxy.key: "429"}

    run(scenario)


def test_a_ban_of_one_request_ends_the_tunnels_of_its_session(run):
    async def tunnel_or_403(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"CONNECT"):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await echo(reader, writer)
        else:
            writer.write(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(tunnel_or_403)
        lease, reader, _ = await open_tunnel(gateway, with_user("x-session-a", CONNECT))
        answer = await gateway.request(with_user("x-session-a"))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert lease_of(answer) == lease
        assert await gateway.read_to_end(reader) == b""
        assert list((await unavailable(gateway)).values()) == ["403"]

    run(scenario)


def test_a_session_that_is_reported_gets_another_proxy(run):
    async def scenario(gateway: RunningGateway) -> None:
        for number in range(2):
            await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number))
        first = (await gateway.request(with_user("x-session-a")))[-1:]
        soft_ban = report(user="x", session="a", site="shop.example", outcome="site", reason="soft ban")
        assert json_of(await gateway.request(soft_ban)) == {"result": "late, accepted"}
        assert (await gateway.request(with_user("x-session-a")))[-1:] != first
        assert list((await unavailable(gateway)).values()) == ["soft ban"]

    run(scenario)


def test_a_report_may_name_its_site_in_upper_or_lower_case(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(OK))
        await gateway.request(with_user("x-session-a-site-Shop.Example"))
        soft_ban = report(user="x", session="a", site="Shop.Example", outcome="site", reason="soft ban")
        assert json_of(await gateway.request(soft_ban)) == {"result": "late, accepted"}

    run(scenario)


def test_a_late_report_bans_the_proxy(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        lease = lease_of(await gateway.request(GET_AND_CLOSE))
        assert json_of(await gateway.request(report(lease=lease, status=200))) == {"result": "late"}
        assert await unavailable(gateway) == {}
        assert json_of(await gateway.request(report(lease=lease, outcome="site", reason="soft"))) == {
            "result": "late, accepted"
        }
        assert await unavailable(gateway) == {proxy.proxy.key: "soft"}

    run(scenario)


def test_a_late_report_of_a_known_ban_changes_nothing(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"))
        lease = lease_of(await gateway.request(GET_AND_CLOSE))
        before = (await gateway.pool.proxies("shop.example"))[0].until
        assert json_of(await gateway.request(report(lease=lease, status=403))) == {"result": "late, already known"}
        assert (await gateway.pool.proxies("shop.example"))[0].until == before

    run(scenario)


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
def test_invalid_reports_are_refused(run, request_: bytes, status: int, words: str):
    async def scenario(gateway: RunningGateway) -> None:
        answer = await gateway.request(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert words.encode() in answer

    run(scenario)


def test_without_accounts_the_id_of_a_lease_is_enough(run):
    """Without accounts a user name only carries options of requests. A report needs none: the report in the
    documentation has no user name.
    """

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        lease, reader, _ = await open_tunnel(gateway, with_user("ann-session-a", CONNECT))
        assert json_of(await gateway.request(report(lease=lease, status=403))) == {"result": "accepted"}
        assert await gateway.read_to_end(reader) == b""
        await gateway.wait_for_leases_to_end()
        assert await unavailable(gateway) == {proxy.proxy.key: "403"}

    run(scenario)


def test_reports_need_the_login_of_their_lease(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        lease, _, writer = await open_tunnel(gateway, with_user("ann", CONNECT))
        assert (await gateway.request(report(lease=lease, status=403))).startswith(b"HTTP/1.1 401 ")
        assert (await gateway.request(report(user="bob", lease=lease, status=403))).startswith(b"HTTP/1.1 404 ")
        assert len(gateway.context.leases) == 1
        assert (await gateway.request(report(user="ann", lease=lease, status=403))).startswith(b"HTTP/1.1 200 ")
        writer.close()

    run(scenario, users={"ann": "secret", "bob": "secret"})


def choices(site: str = "shop.example", user: str = "", host: str = "127.0.0.1:3128") -> bytes:
    more = login(user).replace(b"Proxy-Auth", b"Auth") if user else b""
    head = f"GET /v1/choices?site={site} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode()
    return head + more + b"\r\n"


def choices_of(answer: bytes) -> list[tuple[str, str, str]]:
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    found = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"]
    assert all(abs(each["at"] - time.time()) < 60 for each in found)
    return [(each["proxy"], each["why"], each["result"]) for each in found]


def test_the_reasons_of_recent_leases_are_shown(run):
    async def scenario(gateway: RunningGateway) -> None:
        no = b"HTTP/1.1 403 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
        banned = await gateway.add_proxy(respond(no), tags={"country": "de"})
        await gateway.request(with_user("ann-country-de-session-a"))
        await gateway.wait_for_leases_to_end()
        answer = await gateway.request(with_user("ann-country-de-session-a"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        dead = await gateway.add_dead_proxy()
        await gateway.request(GET_AND_CLOSE)
        await gateway.pool.remove([dead.key])  # its cool-down may be short
        good = await gateway.add_proxy(HTTP)
        lease, _, writer = await open_tunnel(gateway, CONNECT)
        name = good.proxy.name
        assert choices_of(await gateway.request(choices()))[0] == (name, "drawn from 1", "")
        assert json_of(await gateway.request(report(lease=lease, status=429))) == {"result": "accepted"}
        writer.close()
        await gateway.wait_for_leases_to_end()
        first, second, third, fourth, fifth = choices_of(await gateway.request(choices("Shop.example")))
        assert first == (name, "drawn from 1", "429 (site)")
        assert second[::2] == ("", "")
        assert second[1].startswith("no proxy for shop.example is free within 0.2 s (1 cooling)")
        assert third == (dead.name, "drawn from 1", "proxy not reached: connection refused (proxy)")
        assert fourth[::2] == ("", "")
        assert fourth[1].startswith("no proxy for shop.example is free within 0.2 s (1 cooling)")
        assert fifth == (banned.proxy.name, "drawn from 1 with country=de", "403 (site)")
        for host in ("localhost:3128", "127.0.0.1", "[::1]:3128"):
            assert choices_of(await gateway.request(choices("other.example", host=host))) == []

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (choices(""), 400, "no site"),
        (choices().replace(b"?site=shop.example", b""), 400, "no site"),
        (choices(host="rebound.example:3128"), 403, "use the address of this machine"),
        (choices().replace(b"GET", b"POST"), 405, "GET only"),
    ],
)
def test_invalid_requests_for_choices_are_refused(run, request_: bytes, status: int, words: str):
    async def scenario(gateway: RunningGateway) -> None:
        answer = await gateway.request(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status), answer
        assert words.encode() in answer

    run(scenario)


def test_an_account_sees_only_its_own_choices(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        await gateway.request(with_user("ann-session-a"))
        assert (await gateway.request(choices())).startswith(b"HTTP/1.1 401 ")
        assert choices_of(await gateway.request(choices(user="bob"))) == []
        assert [each[0] for each in choices_of(await gateway.request(choices(user="ann")))] == [proxy.proxy.name]

    run(scenario, users={"ann": "secret", "bob": "secret"})


def test_reports_and_requests_share_a_connection(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(OK))
        unknown = report(lease="nobody", status=200).replace(b"Connection: close\r\n", b"")
        answer = await gateway.request(GET + unknown + GET_AND_CLOSE)
        assert [each for each in (b"200 OK", b"404 Not", b"200 OK") if each in answer] == [
            b"200 OK",
            b"404 Not",
            b"200 OK",
        ]
        assert answer.count(b"HTTP/1.1 ") == 3

    run(scenario)


def test_stopping_releases_all_leases(run_on_both_loops):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        await open_tunnel(gateway, with_user("x-session-a", CONNECT))
        assert len(gateway.context.leases) == 1

    run_on_both_loops(scenario, grace_s=0.1)
