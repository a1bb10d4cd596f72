"""The API of a proxy pool over real sockets (P1, P2, P5): its description is true, its secrets stay here."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from lycosa.core.errors import StorageError, UsageError
from lycosa.proxies.api import api, leases, params
from lycosa.proxies.api.app import build_app
from lycosa.proxies.api.operations import openapi_document
from lycosa.proxies.core.api_key import checked_key, is_loopback
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway import store_timeout
from lycosa.proxies.memory.pool import LocalPool
from tests.proxies.api.schema import problems
from tests.proxies.api.server import Answer, Server, running

KEY = "a-key-that-nobody-guesses"
SECRETS = ("hunter2", "ann-session-9")
LIST = "10.0.0.1:8080 country=de\nsocks5h://ann-session-9:hunter2@10.0.0.2:1080 price_gb=4\n"
DEADLINE_S = 20.0


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Broken(LocalPool):
    """Its store is away."""

    async def proxies(self, *_: object, **__: object) -> Any:  # type: ignore[override]
        raise StorageError("redis://db:6379/0 is away")

    targets = explain = add = remove = acquire = renew = release = ban = unban = proxies  # type: ignore[assignment]


@contextmanager
def desk(pool: LocalPool | None = None, now: Now | None = None, **options: Any) -> Iterator[Server]:
    """Serve a new pool in memory."""
    now = now or Now()
    with running(build_app(pool or LocalPool(now=now), now=now, **options)) as server:
        yield server


def ask(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    text = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
    answer = server.ask(method, path, text, **headers)
    return answer.status, json.loads(answer.text)


def added(server: Server, text: str = LIST) -> list[str]:
    """Add proxies. Return the keys of all, by name."""
    status, told = ask(server, "POST", "/api/proxies", text)
    assert (status, told["faulty"]) == (200, 0)
    _, told = ask(server, "GET", "/api/proxies")
    return [each["key"] for each in sorted(told["proxies"], key=lambda each: each["name"])]


def lease(server: Server, **wanted: Any) -> dict[str, Any]:
    status, told = ask(server, "POST", "/api/leases", {"target": "a.example", **wanted})
    assert status == 201, told
    return dict(told["leases"][0])


# --- the description --------------------------------------------------------------------------------------------------


class Player:
    """Asks, and holds every answer against the description."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.server = server
        self.headers = headers
        self.description = json.loads(server.get("/api/openapi.json").text)
        self.played: set[tuple[str, str, int]] = set()

    def __call__(self, method: str, path: str, status: int, body: Any = None, query: str = "", **names: str) -> Any:
        headers = {**self.headers, **{name: names.pop(name) for name in list(names) if name[0].isupper()}}
        operation = self.description["paths"][path][method.lower()]
        self.check_question(operation, body, names, status)
        text = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        answer = self.server.ask(method, path.format(**names) + query, text, **headers)
        assert answer.status == status, answer.text
        self.played.add((method, path, status))
        return self.checked(operation, answer)

    def check_question(self, operation: Any, body: Any, names: dict[str, str], status: int) -> None:
        """What is answered well is described as allowed."""
        in_path = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert in_path == names.keys()
        if status < 300 and isinstance(body, dict):
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert problems(body, schema, self.description) == []

    def checked(self, operation: Any, answer: Answer) -> Any:
        content = operation["responses"][str(answer.status)]["content"]
        kind = answer.headers["content-type"].partition(";")[0]
        if kind == "text/plain":
            assert content[kind]["schema"] == {"type": "string"}
            return answer.text
        told = json.loads(answer.text)
        assert problems(told, content[kind]["schema"], self.description) == []
        if answer.status >= 400:
            assert "\n" not in told["error"]
        return told


def test_the_description_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each path with each status that is told, and each answer as it is described; no other status, no other path."""
    monkeypatch.setattr(params, "BODY_MAX", 5_000)
    monkeypatch.setattr(api, "LIST_MAX", 5_000)
    played = play_all() | play_slow(monkeypatch) | play_refused() | play_broken()
    described = {
        (method.upper(), path, int(status))
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
    }
    assert played == described


def play_all() -> set[tuple[str, str, int]]:
    now = Now()
    pool = LocalPool(lambda _: TargetPolicy(delay_s=1.0), now)
    with desk(pool, now) as server:
        play = Player(server)
        play("GET", "/api/openapi.json", 200)
        told = play("POST", "/api/proxies", 200, f"{LIST}nonsense\n", "?scheme=https")
        assert (told["added"], told["faulty"], told["faults"][0]["line"]) == (2, 1, 3)
        for bad in ("", "nonsense", "[", b"\xff"):
            play("POST", "/api/proxies", 400, bad)
        play("POST", "/api/proxies", 400, LIST, "?scheme=ftp")
        play("POST", "/api/proxies", 413, "x" * 6_000)
        seen = play("GET", "/api/proxies", 200, None, "?state=ready&tag=country%3Dde&limit=5")["proxies"]
        assert [each["tags"] for each in seen] == [{"country": "de"}]
        for bad in ("state=x", "tag=x", "limit=0", "limit=1001", "offset=-1", f"target={'x' * 501}"):
            play("GET", "/api/proxies", 400, None, f"?{bad}")
        given = play("POST", "/api/leases", 201, {"target": "a.example", "tags": {"country": "de"}, "lease_s": 30})
        first = given["leases"][0]
        assert first["deadline"] == now.now + 30
        play("POST", "/api/leases", 409, {"target": "a.example", "count": 2})
        for bad in (
            {},
            {"target": ""},
            {"target": "a", "wait_s": 61},
            {"target": "a", "count": 0},
            {"nonsense": 1},
            "[",
        ):
            play("POST", "/api/leases", 400, bad)
        play("POST", "/api/leases", 413, {"target": "a" * 6_000})
        assert play("POST", "/api/leases/{id}/renew", 200, {"lease_s": 90}, id=first["id"])["deadline"] == now.now + 90
        play("POST", "/api/leases/{id}/renew", 400, {"lease_s": 0}, id=first["id"])
        play("POST", "/api/leases/{id}/renew", 410, {}, id="nonsense")
        play("POST", "/api/leases/{id}/renew", 413, "x" * 6_000, id="x")
        play("POST", "/api/leases/{id}/release", 400, {"outcomes": [{"status": 200, "blame": "none"}]}, id=first["id"])
        play("POST", "/api/leases/{id}/release", 413, "x" * 6_000, id="x")
        ways = [{"status": 200, "latency_s": 0.1}, {"error": "lost"}, {"blame": "nobody", "reason": "x", "rest_s": 1}]
        play("POST", "/api/leases/{id}/release", 200, {"outcomes": ways}, id=first["id"])
        play("POST", "/api/leases/{id}/release", 410, {"outcomes": []}, id=first["id"])
        key = first["key"]
        for path in ("/api/ban", "/api/unban"):
            play("POST", path, 200, {"target": "a.example", "key": key})
            play("POST", path, 404, {"target": "a.example", "key": "0" * 16})
            play("POST", path, 400, {"target": "a.example", "key": "short"})
            play("POST", path, 413, "x" * 6_000)
        play("POST", "/api/ban", 200, {"target": "a.example", "key": key, "for_s": 60, "reason": "429"})
        told = play("GET", "/api/explain", 200, None, "?target=a.example&tag=country%3Dde&session=s&avoid=x&limit=10")
        assert [(each["why"], each["reason"]) for each in told["verdicts"] if each["key"] == key] == [
            ("cooling", "429")
        ]
        play("GET", "/api/explain", 400)
        assert play("GET", "/api/targets", 200, None, "?target=a.example")["targets"][0]["granted"] == 1
        play("GET", "/api/targets", 400, None, f"?target={'x' * 501}")
        stats = play("GET", "/api/stats", 200)
        assert (stats["proxies"], stats["uses"], stats["good"], stats["granted"]) == (2, 3, 1, 1)
        assert 'lycosa_proxy_target_granted_total{target="a.example"} 1' in play("GET", "/metrics", 200)
        play("GET", "/healthz", 200)
        play("DELETE", "/api/proxies/{key}", 200, key=key)
        play("DELETE", "/api/proxies/{key}", 404, key=key)
        return play.played


def play_slow(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, int]]:
    """Bodies that do not come."""
    monkeypatch.setattr(params, "BODY_TIMEOUT_S", 0.05)
    with desk() as server:
        play = Player(server)
        for path, operations in play.description["paths"].items():
            for method, operation in operations.items():
                if "408" in operation["responses"]:
                    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
                        line = f"{method.upper()} {path.replace('{id}', 'x')} HTTP/1.1"
                        head = f"{line}\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{{"
                        connection.sendall(head.encode())
                        response = http.client.HTTPResponse(connection)
                        response.begin()
                        headers = {name.lower(): value for name, value in response.getheaders()}
                        answer = Answer(response.status, headers, response.read().decode())
                    assert answer.status == 408
                    play.checked(operation, answer)
                    play.played.add((method.upper(), path, 408))
        return play.played


def every(play: Player, status: int, **headers: str) -> None:
    """Play every path that can be answered so."""
    for path, operations in play.description["paths"].items():
        for method, operation in operations.items():
            if str(status) in operation["responses"]:
                names = {each["name"]: "x" for each in operation.get("parameters", ()) if each["in"] == "path"}
                body = {"target": "a", "key": "0" * 16} if path in ("/api/ban", "/api/unban") else None
                body = {"target": "a"} if path == "/api/leases" else LIST if path == "/api/proxies" else body
                play(method.upper(), path, status, body, "?target=a", **names, **headers)


def play_refused() -> set[tuple[str, str, int]]:
    with desk(key=KEY) as server:
        play = Player(server)
        every(play, 401)
        every(play, 401, Authorization="Bearer another-key-of-this-length")
    with desk() as server:
        local = Player(server)
        every(local, 403, Host="rebound.example")
    return play.played | local.played


def play_broken() -> set[tuple[str, str, int]]:
    """The store of the pool is away; for leases one has to be out first."""
    with desk(Broken(now=Now())) as server:
        play = Player(server)
        original_get = leases.LeaseRegistry.get
        try:
            leases.LeaseRegistry.get = lambda self, name: name  # type: ignore[method-assign,assignment,return-value]
            every(play, 503)
        finally:
            leases.LeaseRegistry.get = original_get  # type: ignore[method-assign]
        return play.played


# --- who may, and what he sees ---------------------------------------------------------------------------------------


def test_whoever_has_the_key_is_let_in_and_browsers_read_with_it_as_a_password() -> None:
    import base64

    basic = "Basic " + base64.b64encode(f"me:{KEY}".encode()).decode()
    with desk(key=KEY) as server:
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"X_Api_Key": KEY}, {"Authorization": basic}):
            assert ask(server, "GET", "/api/targets", **headers)[0] == 200
        assert ask(server, "POST", "/api/proxies", LIST, X_Api_Key=KEY)[0] == 200
        assert ask(server, "POST", "/api/proxies", LIST, Authorization=basic)[0] == 401, (
            "a browser sends that by itself"
        )
        page = server.ask("GET", "/")
        assert (page.status, page.headers["www-authenticate"].split()[0]) == (401, "Basic")
        assert server.ask("GET", "/", Authorization=basic).status == 200
        assert KEY not in page.text
        for wrong in ("Basic !!", "Basic", "Bearer", f"Bearer {KEY}x", "Digest x"):
            assert server.ask("GET", "/api/targets", Authorization=wrong).status == 401
        assert server.ask("GET", "/healthz").status == 200
        assert server.ask("GET", "/api/openapi.json").status == 200
        assert server.ask("GET", "/metrics").status == 401


def test_other_sites_change_nothing() -> None:
    """What a page of another site can make a browser send (CSRF, DNS rebinding)."""
    with desk() as server:
        here = f"127.0.0.1:{server.port}"
        assert ask(server, "POST", "/api/proxies", LIST, Origin="https://evil.example")[0] == 403
        assert ask(server, "POST", "/api/proxies", LIST, Origin="null")[0] == 403
        assert ask(server, "POST", "/api/proxies", LIST, Origin="http://[")[0] == 403
        assert ask(server, "POST", "/api/proxies", LIST, Sec_Fetch_Site="cross-site")[0] == 403
        assert ask(server, "GET", "/api/proxies", Host="evil.example")[0] == 403
        assert (
            ask(server, "POST", "/api/proxies", LIST, Origin=f"http://{here}", Sec_Fetch_Site="same-origin")[0] == 200
        )
        for host in (here, "localhost", "[::1]:80", "127.9.9.9"):
            assert ask(server, "GET", "/api/proxies", Host=host)[0] == 200
    assert not is_loopback("127.0.0.1.evil.example")
    assert not is_loopback("10.0.0.1")


@pytest.mark.parametrize("key", ["short", "with a blank in it", "k\N{LATIN SMALL LETTER E WITH ACUTE}" * 10, "x" * 15])
def test_keys_that_can_be_guessed_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match="16 or more"):
        checked_key(key, "KEY")


def test_a_login_is_seen_by_the_holder_of_a_lease_only() -> None:
    with desk(name="the pool") as server:
        plain, secret = added(server)
        leased = lease(server, avoid=[plain])
        assert leased["url"] == "socks5h://ann-session-9:hunter2@10.0.0.2:1080"
        ask(server, "POST", f"/api/leases/{leased['id']}/release", {"outcomes": [{"status": 403}]})
        paths = ["/api/proxies", "/api/proxies?target=a.example", "/api/targets", "/api/explain?target=a.example"]
        paths += ["/api/stats", "/metrics", "/", "/proxies", "/target?name=a.example"]
        answers = [server.ask("GET", path).text for path in paths]
        answers.append(server.ask("POST", "/api/proxies", f"socks5h://ann-session-9:hunter2@[x:1\n{LIST}").text)
        answers.append(server.ask("POST", "/api/leases", json.dumps({"target": "a.example", "count": 2})).text)
        answers.append(server.ask("DELETE", f"/api/proxies/{secret}").text)
        for text in answers:
            assert not any(word in text for word in SECRETS)


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_lease_is_given_back_by_its_name_only_once() -> None:
    with desk() as server:
        added(server, "10.0.0.1:80\n10.0.0.2:80\n")
        one, other = lease(server), lease(server)
        assert one["key"] != other["key"]
        assert not one["id"].isdigit()
        assert "lycosa_proxy_api_leases 2\n" in server.get("/metrics").text
        assert ask(server, "POST", f"/api/leases/{one['id']}/release", {})[0] == 200
        assert "lycosa_proxy_api_leases 1\n" in server.get("/metrics").text
        assert ask(server, "POST", f"/api/leases/{one['id']}/release", {})[0] == 410
        for guessed in ("1", "2", one["id"][:-1], quote(one["id"] + "=")):
            assert ask(server, "POST", f"/api/leases/{guessed}/release", {})[0] == 410
        assert ask(server, "POST", "/api/leases", {"target": "a.example", "count": 2})[0] == 409


def test_why_proxies_were_lent_is_told_afterwards() -> None:
    """Issue 6: "why a proxy was chosen or refused"; here over the API, and on the page of the target."""
    now = Now()
    with desk(now=now) as server:
        added(server)
        leased = lease(server, tags={"country": "de"})
        released = f"/api/leases/{leased['id']}/release"
        assert ask(server, "POST", released, {"outcomes": [{"status": 200}, {"status": 403}]})[0] == 200
        again = {"target": "a.example", "tags": {"country": "de"}}
        assert ask(server, "POST", "/api/leases", again)[0] == 409
        late = lease(server)
        now.now += 100
        assert ask(server, "POST", f"/api/leases/{late['id']}/release", {"outcomes": []})[0] == 410
        _, told = ask(server, "GET", "/api/explain?target=a.example")
        page = server.get("/target?name=a.example").text
    seen = [(each["name"], each["why"], each["result"]) for each in told["choices"]]
    assert seen == [
        (late["name"], "drawn from 1", "released too late"),
        ("", "no proxy for a.example is free (1 cooling)", ""),
        ("http://10.0.0.1:8080", "drawn from 1 with country=de", "403 (site)"),
    ]
    assert [each["at"] for each in told["choices"]] == [now.now - 100] * 3
    for words in ("Recent leases of this server", "1 min 40 s ago", "drawn from 1 with country=de", "403 (site)"):
        assert words in page


def test_a_late_return_is_refused_and_counted() -> None:
    now = Now()
    with desk(now=now) as server:
        added(server)
        late = lease(server, lease_s=5)
        now.now += 6
        status, told = ask(server, "POST", f"/api/leases/{late['id']}/release", {"outcomes": [{"status": 403}]})
        assert (status, "over" in told["error"]) == (410, True)
        _, told = ask(server, "GET", "/api/targets")
        assert (told["targets"][0]["leaked"], told["targets"][0]["stale"]) == (1, 1)
        assert told["targets"][0]["states"]["cooling"] == 0


@pytest.mark.parametrize(
    ("told", "states"),
    [
        ({"status": 200}, {"ready"}),
        ({"status": 404}, {"ready"}),
        ({"status": 403}, {"cooling"}),
        ({"status": 429, "headers": {"Retry-After": "100"}}, {"cooling"}),
        ({"status": 503, "body": "<div class='g-recaptcha'>"}, {"cooling"}),
        ({"status": 200, "body": "please slow down"}, {"cooling"}),
        ({"blame": "site", "reason": "soft ban"}, {"cooling"}),
        ({"error": "connect", "reason": "proxy connection refused"}, {"cooling"}),
        ({"error": "lost"}, {"ready"}),
    ],
)
def test_what_came_of_a_use_is_judged_here(told: dict[str, Any], states: set[str]) -> None:
    """P5: whoever has a status need not know what it means; the rules of the target do (P2)."""
    rules = {"a.example": [OutcomeRule(Blame.SITE, "soft", body="slow down")]}
    with desk(rules_of=lambda target: rules.get(target, ())) as server:
        added(server, "10.0.0.1:8080\n")
        leased = lease(server)
        assert ask(server, "POST", f"/api/leases/{leased['id']}/release", {"outcomes": [told]})[0] == 200
        _, seen = ask(server, "GET", "/api/proxies?target=a.example")
        assert {each["state"] for each in seen["proxies"]} == states


def test_who_waits_gets_what_comes_back_and_who_leaves_takes_nothing_with_him() -> None:
    with desk() as server:
        added(server, "10.0.0.1:8080\n")
        first = lease(server)
        for _ in range(2):
            with waiting(server):
                until(lambda: server.ask("GET", "/healthz").status == 200)
        with waiting(server) as (connection, read):
            assert ask(server, "POST", f"/api/leases/{first['id']}/release", {"outcomes": []})[0] == 200
            status, told = read(connection)
            assert status == 201, "those who left before do not have it"
            assert told["leases"][0]["key"] == first["key"]


@pytest.mark.parametrize("count", [1, 2])
def test_who_hangs_up_at_the_moment_he_is_lent_one_holds_none(count: int) -> None:
    """Of one proxy: granted while he leaves. Of two: none to come, and nobody who waits any more."""

    async def story() -> None:
        pool, said = LocalPool(), []
        await pool.add([Proxy("http", "10.0.0.1", 80)])
        body = json.dumps({"target": "a.example", "count": count, "wait_s": 50}).encode()
        coming = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            return next(coming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            said.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/leases", "headers": [(b"host", b"localhost")]}
        scope |= {"query_string": b"", "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80), "scheme": "http"}
        async with asyncio.timeout(DEADLINE_S):
            await build_app(pool)(scope, receive, send)
        assert said[0]["status"] == 499
        assert [view.leases for view in await pool.targets()] == [0]
        assert await pool.acquire("a.example")

    asyncio.run(story())


@contextmanager
def waiting(server: Server) -> Iterator[Any]:
    """Ask for a proxy, and wait; the connection is closed at the end."""
    body = json.dumps({"target": "a.example", "wait_s": 20}).encode()
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(b"POST /api/leases HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body)

        def read(connection: socket.socket) -> tuple[int, Any]:
            response = http.client.HTTPResponse(connection)
            response.begin()
            return response.status, json.loads(response.read())

        yield connection, read


def until(true: Any) -> None:
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_leases_and_waiters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 1)
    now = Now()
    with desk(now=now) as server:
        added(server)
        assert ask(server, "POST", "/api/leases", {"target": "a.example", "count": 2})[0] == 503
        lease(server)
        assert ask(server, "POST", "/api/leases", {"target": "a.example"})[0] == 503
        now.now += 60 + leases.KEEP_S + 1
        lease(server)
        monkeypatch.setattr(api, "WAITING_MAX", 0)
        assert ask(server, "POST", "/api/leases", {"target": "b.example"})[0] == 503


def test_a_store_that_is_waited_for_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(LocalPool):
        async def targets(self, *_: object, **__: object) -> Any:
            return await asyncio.get_running_loop().create_future()

        acquire = proxies = explain = targets  # type: ignore[assignment]

    monkeypatch.setattr(store_timeout, "STORE_TIMEOUT_S", 0.1)
    with desk(Away()) as server:
        for page in ("/", "/proxies", "/target?name=a.example"):
            answer = server.get(page)
            assert (answer.status, "did not answer" in answer.text) == (503, True), page
        request = {"target": "a.example", "wait_s": 0}
        looks = [("GET", path) for path in ("/healthz", "/api/targets", "/api/proxies")]
        for asked in (*looks, ("POST", "/api/leases", request)):
            status, told = ask(server, *asked)
            assert status == 503
            assert told["error"] == "the pool did not answer within 0.1 s: its store may be unreachable"


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/api/leases", {"target": 5}, "expected `str`, got `int` - at `$.target`"),
        ("POST", "/api/leases", {"target": "a", "leaes_s": 5}, "unknown field `leaes_s`"),
        ("POST", "/api/leases", "{'a'}", "is not JSON: JSON is malformed"),
        ("POST", "/api/leases", "[" * 100_000, "expected `object`, got `array`"),
        ("POST", "/api/proxies", "1.2.3.4\n", "line 1: '1.2.3.4' has no port: write host:port"),
        ("POST", "/api/proxies", "<html>", "this is a page (HTML, XML), not a list of proxies"),
        ("GET", "/api/explain", None, "target is missing: write ?target=..."),
        ("GET", "/api/proxies?limit=many", None, "limit 'many': write a whole number from 1 to 1,000"),
    ],
)
def test_what_makes_no_sense_is_answered_in_one_line(method: str, path: str, body: Any, says: str) -> None:
    with desk() as server:
        status, told = ask(server, method, path, body)
        assert (status, says in told["error"]) == (400, True), told
        assert len(told["error"]) < 400


def test_whatever_is_asked_is_answered_as_described() -> None:
    """No bytes, no JSON, no parameters make it fail (status 500), or answer with what the description does not name."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with desk() as server:
        added(server)
        play = Player(server)
        known = [
            (path, method, told) for path, each in play.description["paths"].items() for method, told in each.items()
        ]
        for _ in range(300):
            path, method, operation = rng.choice(known)
            query = "&".join(f"{rng.choice(WORDS)}={quote(str(odd(rng, 0)))}" for _ in range(rng.randint(0, 3)))
            body = odd_body(rng) if method == "post" else None
            answer = server.ask(method.upper(), f"{path.format(id='x', key='y')}?{query}", body)
            assert str(answer.status) in operation["responses"], (method, path, query, body, answer.text)
            if answer.status >= 300:
                play.checked(operation, answer)


SAID = "target key count tags session avoid lease_s wait_s outcomes limit offset state tag for_s reason scheme"
WORDS = SAID.split()


def odd(rng: random.Random, depth: int) -> Any:
    """Return a value that is not expected, mostly."""
    texts = ["", "a.example", "0" * 16, "\N{SNOWMAN}\n", "x" * 600, "country=de"]
    leaves = [*texts, -1, 0, 1, 2.5, 1e308, 10**30, None, True]
    if depth > 2 or rng.random() < 0.6:
        return rng.choice(leaves)
    if rng.random() < 0.5:
        return [odd(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(WORDS): odd(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def odd_body(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.randbytes(rng.randint(0, 40))
    body = odd(rng, 0) if rng.random() < 0.3 else {rng.choice(WORDS): odd(rng, 1) for _ in range(4)}
    if isinstance(body, dict) and rng.random() < 0.5:
        body |= {"target": "a.example", "wait_s": 0}
    return json.dumps(body).encode()


def test_other_paths_and_methods_are_told_as_json() -> None:
    with desk() as server:
        assert ask(server, "GET", "/api/nowhere") == (404, {"error": "Not Found"})
        assert ask(server, "PUT", "/api/proxies") == (405, {"error": "Method Not Allowed"})
        assert server.ask("GET", "/nowhere").status == 404


def test_a_bug_shows_no_inside() -> None:
    class Buggy(LocalPool):
        async def targets(self) -> Any:
            raise ZeroDivisionError("a bug at /secret/path")

    with desk(Buggy()) as server:
        assert ask(server, "GET", "/api/targets") == (500, {"error": "internal error"})
        assert "secret" not in server.ask("GET", "/").text
