"""The API of a proxy pool over real sockets (P1, P2, P5): its description is complete, and it discloses no secrets."""

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
from lycosa.proxies.core.api_key import checked_key
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.gateway import store_timeout
from lycosa.proxies.memory.pool import LocalPool
from tests.proxies.api.schema import problems
from tests.servers.web_server import Response, Server, running

KEY = "a-key-that-nobody-guesses"
SECRETS = ("hunter2", "ann-session-9")
LIST = "10.0.0.1:8080 country=de\nsocks5h://ann-session-9:hunter2@10.0.0.2:1080 price_gb=4\n"
DEADLINE_S = 20.0


class FakeClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class UnavailablePool(LocalPool):
    """A pool whose store is unavailable."""

    async def proxies(self, *_: object, **__: object) -> Any:  # type: ignore[override]
        raise StorageError("redis://db:6379/0 is unavailable")

    targets = explain = add = remove = acquire = renew = release = ban = unban = proxies  # type: ignore[assignment]


@contextmanager
def serving(pool: LocalPool | None = None, now: FakeClock | None = None, **options: Any) -> Iterator[Server]:
    """Serve a new pool in memory."""
    now = now or FakeClock()
    with running(build_app(pool or LocalPool(now=now), now=now, **options)) as server:
        yield server


def call(server: Server, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Send a request. Return the status and the JSON of the response."""
    text = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
    response = server.request(method, path, text, **headers)
    return response.status, json.loads(response.text)


def add_proxies(server: Server, text: str = LIST) -> list[str]:
    """Add proxies. Return the keys of all proxies, sorted by name."""
    status, result = call(server, "POST", "/api/proxies", text)
    assert (status, result["faulty"]) == (200, 0)
    _, result = call(server, "GET", "/api/proxies")
    return [each["key"] for each in sorted(result["proxies"], key=lambda each: each["name"])]


def lease(server: Server, **options: Any) -> dict[str, Any]:
    status, result = call(server, "POST", "/api/leases", {"target": "a.example", **options})
    assert status == 201, result
    return dict(result["leases"][0])


# --- the description --------------------------------------------------------------------------------------------------


class CheckedClient:
    """Sends requests, checks each response against the description, and records the statuses it has seen."""

    def __init__(self, server: Server, **headers: str) -> None:
        self.server = server
        self.headers = headers
        self.description = json.loads(server.get("/api/openapi.json").text)
        self.seen: set[tuple[str, str, int]] = set()

    def __call__(self, method: str, path: str, status: int, body: Any = None, query: str = "", **names: str) -> Any:
        headers = {**self.headers, **{name: names.pop(name) for name in list(names) if name[0].isupper()}}
        operation = self.description["paths"][path][method.lower()]
        self.check_request(operation, body, names, status)
        text = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        response = self.server.request(method, path.format(**names) + query, text, **headers)
        assert response.status == status, response.text
        self.seen.add((method, path, status))
        return self.check_response(operation, response)

    def check_request(self, operation: Any, body: Any, names: dict[str, str], status: int) -> None:
        """A request that succeeds must be valid in the description."""
        in_path = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        assert in_path == names.keys()
        if status < 300 and isinstance(body, dict):
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            assert problems(body, schema, self.description) == []

    def check_response(self, operation: Any, response: Response) -> Any:
        content = operation["responses"][str(response.status)]["content"]
        kind = response.headers["content-type"].partition(";")[0]
        if kind == "text/plain":
            assert content[kind]["schema"] == {"type": "string"}
            return response.text
        result = json.loads(response.text)
        assert problems(result, content[kind]["schema"], self.description) == []
        if response.status >= 400:
            assert "\n" not in result["error"]
        return result


def test_the_description_has_exactly_the_paths_and_statuses_that_occur(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(params, "BODY_MAX", 5_000)
    monkeypatch.setattr(api, "LIST_MAX", 5_000)
    seen = call_all() | call_slowly(monkeypatch) | call_without_access() | call_without_store()
    described = {
        (method.upper(), path, int(status))
        for path, operations in openapi_document()["paths"].items()
        for method, operation in operations.items()
        for status in operation["responses"]
    }
    assert seen == described


def call_all() -> set[tuple[str, str, int]]:
    now = FakeClock()
    pool = LocalPool(lambda _: TargetPolicy(delay_s=1.0), now)
    with serving(pool, now) as server:
        client = CheckedClient(server)
        client("GET", "/api/openapi.json", 200)
        result = client("POST", "/api/proxies", 200, f"{LIST}nonsense\n", "?scheme=https")
        assert (result["added"], result["faulty"], result["faults"][0]["line"]) == (2, 1, 3)
        for bad in ("", "nonsense", "[", b"\xff"):
            client("POST", "/api/proxies", 400, bad)
        client("POST", "/api/proxies", 400, LIST, "?scheme=ftp")
        client("POST", "/api/proxies", 413, "x" * 6_000)
        seen = client("GET", "/api/proxies", 200, None, "?state=ready&tag=country%3Dde&limit=5")["proxies"]
        assert [each["tags"] for each in seen] == [{"country": "de"}]
        for bad in ("state=x", "tag=x", "limit=0", "limit=1001", "offset=-1", f"target={'x' * 501}"):
            client("GET", "/api/proxies", 400, None, f"?{bad}")
        given = client("POST", "/api/leases", 201, {"target": "a.example", "tags": {"country": "de"}, "lease_s": 30})
        first = given["leases"][0]
        assert first["deadline"] == now.now + 30
        client("POST", "/api/leases", 409, {"target": "a.example", "count": 2})
        for bad in (
            {},
            {"target": ""},
            {"target": "a", "wait_s": 61},
            {"target": "a", "count": 0},
            {"nonsense": 1},
            "[",
        ):
            client("POST", "/api/leases", 400, bad)
        client("POST", "/api/leases", 413, {"target": "a" * 6_000})
        assert (
            client("POST", "/api/leases/{id}/renew", 200, {"lease_s": 90}, id=first["id"])["deadline"] == now.now + 90
        )
        client("POST", "/api/leases/{id}/renew", 400, {"lease_s": 0}, id=first["id"])
        client("POST", "/api/leases/{id}/renew", 410, {}, id="nonsense")
        client("POST", "/api/leases/{id}/renew", 413, "x" * 6_000, id="x")
        client(
            "POST", "/api/leases/{id}/release", 400, {"outcomes": [{"status": 200, "blame": "none"}]}, id=first["id"]
        )
        client("POST", "/api/leases/{id}/release", 413, "x" * 6_000, id="x")
        ways = [{"status": 200, "latency_s": 0.1}, {"error": "lost"}, {"blame": "nobody", "reason": "x", "rest_s": 1}]
        client("POST", "/api/leases/{id}/release", 200, {"outcomes": ways}, id=first["id"])
        client("POST", "/api/leases/{id}/release", 410, {"outcomes": []}, id=first["id"])
        key = first["key"]
        for path in ("/api/ban", "/api/unban"):
            client("POST", path, 200, {"target": "a.example", "key": key})
            client("POST", path, 404, {"target": "a.example", "key": "0" * 16})
            client("POST", path, 400, {"target": "a.example", "key": "short"})
            client("POST", path, 413, "x" * 6_000)
        client("POST", "/api/ban", 200, {"target": "a.example", "key": key, "for_s": 60, "reason": "429"})
        result = client(
            "GET", "/api/explain", 200, None, "?target=a.example&tag=country%3Dde&session=s&avoid=x&limit=10"
        )
        assert [(each["why"], each["reason"]) for each in result["verdicts"] if each["key"] == key] == [
            ("cooling", "429")
        ]
        client("GET", "/api/explain", 400)
        assert client("GET", "/api/targets", 200, None, "?target=a.example")["targets"][0]["granted"] == 1
        client("GET", "/api/targets", 400, None, f"?target={'x' * 501}")
        stats = client("GET", "/api/stats", 200)
        assert (stats["proxies"], stats["uses"], stats["good"], stats["granted"]) == (2, 3, 1, 1)
        assert 'lycosa_proxy_target_granted_total{target="a.example"} 1' in client("GET", "/metrics", 200)
        client("GET", "/healthz", 200)
        client("DELETE", "/api/proxies/{key}", 200, key=key)
        client("DELETE", "/api/proxies/{key}", 404, key=key)
        return client.seen


def call_slowly(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, int]]:
    """Send requests whose bodies do not arrive."""
    with monkeypatch.context() as patch, serving() as server:
        patch.setattr(params, "BODY_TIMEOUT_S", 0.05)
        client = CheckedClient(server)
        for path, operations in client.description["paths"].items():
            for method, operation in operations.items():
                if "408" in operation["responses"]:
                    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
                        line = f"{method.upper()} {path.replace('{id}', 'x')} HTTP/1.1"
                        head = f"{line}\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{{"
                        connection.sendall(head.encode())
                        response = http.client.HTTPResponse(connection)
                        response.begin()
                        headers = {name.lower(): value for name, value in response.getheaders()}
                        response = Response(response.status, headers, response.read().decode())
                    assert response.status == 408
                    client.check_response(operation, response)
                    client.seen.add((method.upper(), path, 408))
        return client.seen


def call_every(client: CheckedClient, status: int, **headers: str) -> None:
    """Call every path that may respond with this status."""
    for path, operations in client.description["paths"].items():
        for method, operation in operations.items():
            if str(status) in operation["responses"]:
                names = {each["name"]: "x" for each in operation.get("parameters", ()) if each["in"] == "path"}
                body = {"target": "a", "key": "0" * 16} if path in ("/api/ban", "/api/unban") else None
                body = {"target": "a"} if path == "/api/leases" else LIST if path == "/api/proxies" else body
                client(method.upper(), path, status, body, "?target=a", **names, **headers)


def call_without_access() -> set[tuple[str, str, int]]:
    with serving(key=KEY) as server:
        client = CheckedClient(server)
        call_every(client, 401)
        call_every(client, 401, Authorization="Bearer another-key-of-this-length")
    with serving() as server:
        local = CheckedClient(server)
        call_every(local, 403, Host="rebound.example")
    return client.seen | local.seen


def call_without_store() -> set[tuple[str, str, int]]:
    """Call every path while the store is unavailable.

    The look-up of leases is replaced by one that finds every id, so that renewing and releasing reach the store.
    """
    with serving(UnavailablePool(now=FakeClock())) as server:
        client = CheckedClient(server)
        original_get = leases.LeaseRegistry.get
        try:
            leases.LeaseRegistry.get = lambda self, name: name  # type: ignore[method-assign,assignment,return-value]
            call_every(client, 503)
        finally:
            leases.LeaseRegistry.get = original_get  # type: ignore[method-assign]
        return client.seen


# --- access and secrets -----------------------------------------------------------------------------------------------


def test_clients_need_the_key_and_browsers_may_read_with_it_as_a_password() -> None:
    import base64

    basic = "Basic " + base64.b64encode(f"me:{KEY}".encode()).decode()
    with serving(key=KEY) as server:
        for headers in ({"Authorization": f"Bearer {KEY}"}, {"X_Api_Key": KEY}, {"Authorization": basic}):
            assert call(server, "GET", "/api/targets", **headers)[0] == 200
        assert call(server, "POST", "/api/proxies", LIST, X_Api_Key=KEY)[0] == 200
        assert call(server, "POST", "/api/proxies", LIST, Authorization=basic)[0] == 401, (
            "a browser sends Basic credentials by itself"
        )
        page = server.request("GET", "/")
        assert (page.status, page.headers["www-authenticate"].split()[0]) == (401, "Basic")
        assert server.request("GET", "/", Authorization=basic).status == 200
        assert KEY not in page.text
        for wrong in ("Basic !!", "Basic", "Bearer", f"Bearer {KEY}x", "Digest x"):
            assert server.request("GET", "/api/targets", Authorization=wrong).status == 401
        assert server.request("GET", "/healthz").status == 200
        assert server.request("GET", "/api/openapi.json").status == 200
        assert server.request("GET", "/metrics").status == 401


def test_requests_of_other_sites_are_refused() -> None:
    """A page of another site could make a browser send such requests (CSRF, DNS rebinding)."""
    with serving() as server:
        here = f"127.0.0.1:{server.port}"
        assert call(server, "POST", "/api/proxies", LIST, Origin="https://evil.example")[0] == 403
        assert call(server, "POST", "/api/proxies", LIST, Origin="null")[0] == 403
        assert call(server, "POST", "/api/proxies", LIST, Origin="http://[")[0] == 403
        assert call(server, "POST", "/api/proxies", LIST, Sec_Fetch_Site="cross-site")[0] == 403
        assert call(server, "GET", "/api/proxies", Host="evil.example")[0] == 403
        assert (
            call(server, "POST", "/api/proxies", LIST, Origin=f"http://{here}", Sec_Fetch_Site="same-origin")[0] == 200
        )
        for host in (here, "localhost", "[::1]:80", "127.9.9.9"):
            assert call(server, "GET", "/api/proxies", Host=host)[0] == 200
        for host in ("127.0.0.1.evil.example", "10.0.0.1"):
            assert call(server, "GET", "/api/proxies", Host=host)[0] == 403


@pytest.mark.parametrize("key", ["short", "with a blank in it", "k\N{LATIN SMALL LETTER E WITH ACUTE}" * 10, "x" * 15])
def test_weak_keys_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match="16 or more"):
        checked_key(key, "KEY")


def test_only_the_holder_of_a_lease_sees_the_login() -> None:
    with serving(name="the pool") as server:
        plain, secret = add_proxies(server)
        leased = lease(server, avoid=[plain])
        assert leased["url"] == "socks5h://ann-session-9:hunter2@10.0.0.2:1080"
        call(server, "POST", f"/api/leases/{leased['id']}/release", {"outcomes": [{"status": 403}]})
        paths = ["/api/proxies", "/api/proxies?target=a.example", "/api/targets", "/api/explain?target=a.example"]
        paths += ["/api/stats", "/metrics", "/", "/proxies", "/target?name=a.example"]
        answers = [server.request("GET", path).text for path in paths]
        answers.append(server.request("POST", "/api/proxies", f"socks5h://ann-session-9:hunter2@[x:1\n{LIST}").text)
        answers.append(server.request("POST", "/api/leases", json.dumps({"target": "a.example", "count": 2})).text)
        answers.append(server.request("DELETE", f"/api/proxies/{secret}").text)
        for text in answers:
            assert not any(word in text for word in SECRETS)


# --- leases -----------------------------------------------------------------------------------------------------------


def test_a_lease_is_released_once_and_only_by_its_id() -> None:
    with serving() as server:
        add_proxies(server, "10.0.0.1:80\n10.0.0.2:80\n")
        one, other = lease(server), lease(server)
        assert one["key"] != other["key"]
        assert not one["id"].isdigit()
        assert "lycosa_proxy_api_leases 2\n" in server.get("/metrics").text
        assert call(server, "POST", f"/api/leases/{one['id']}/release", {})[0] == 200
        assert "lycosa_proxy_api_leases 1\n" in server.get("/metrics").text
        assert call(server, "POST", f"/api/leases/{one['id']}/release", {})[0] == 410
        for guessed in ("1", "2", one["id"][:-1], quote(one["id"] + "=")):
            assert call(server, "POST", f"/api/leases/{guessed}/release", {})[0] == 410
        assert call(server, "POST", "/api/leases", {"target": "a.example", "count": 2})[0] == 409


def test_the_server_measures_the_latency_that_clients_do_not_report() -> None:
    now = FakeClock()
    with serving(now=now) as server:
        add_proxies(server)
        first = lease(server)
        now.now += 3
        done = {"outcomes": [{"status": 200}, {"status": 200}]}
        assert call(server, "POST", f"/api/leases/{first['id']}/release", done)[0] == 200
        latencies = {each["name"]: each["latency_s"] for each in call(server, "GET", "/api/proxies")[1]["proxies"]}
        assert latencies[first["name"]] == 1.5


def test_past_leases_are_explained() -> None:
    """The API and the page of the target show why a proxy was or was not leased, and the result of each lease."""
    now = FakeClock()
    with serving(now=now) as server:
        add_proxies(server)
        leased = lease(server, tags={"country": "de"})
        released = f"/api/leases/{leased['id']}/release"
        assert call(server, "POST", released, {"outcomes": [{"status": 200}, {"status": 403}]})[0] == 200
        again = {"target": "a.example", "tags": {"country": "de"}}
        assert call(server, "POST", "/api/leases", again)[0] == 409
        late = lease(server)
        now.now += 100
        assert call(server, "POST", f"/api/leases/{late['id']}/release", {"outcomes": []})[0] == 410
        _, result = call(server, "GET", "/api/explain?target=a.example")
        page = server.get("/target?name=a.example").text
    seen = [(each["name"], each["why"], each["result"]) for each in result["choices"]]
    assert seen == [
        (late["name"], "drawn from 1", "released too late"),
        ("", "no proxy for a.example is free (1 cooling)", ""),
        ("http://10.0.0.1:8080", "drawn from 1 with country=de", "403 (site)"),
    ]
    assert [each["at"] for each in result["choices"]] == [now.now - 100] * 3
    for words in ("Recent leases of this server", "1 min 40 s ago", "drawn from 1 with country=de", "403 (site)"):
        assert words in page


def test_a_late_release_is_refused_and_counted() -> None:
    now = FakeClock()
    with serving(now=now) as server:
        add_proxies(server)
        late = lease(server, lease_s=5)
        now.now += 6
        status, result = call(server, "POST", f"/api/leases/{late['id']}/release", {"outcomes": [{"status": 403}]})
        assert (status, "has ended" in result["error"]) == (410, True)
        _, result = call(server, "GET", "/api/targets")
        assert (result["targets"][0]["leaked"], result["targets"][0]["stale"]) == (1, 1)
        assert result["targets"][0]["states"]["cooling"] == 0


@pytest.mark.parametrize(
    ("outcome", "states"),
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
        ({"error": "timeout"}, {"ready"}),
    ],
)
def test_the_server_judges_the_outcome_of_a_use(outcome: dict[str, Any], states: set[str]) -> None:
    """P5: clients send a status; the rules of the target say what it means (P2)."""
    rules = {"a.example": [OutcomeRule(Blame.SITE, "soft", body="slow down")]}
    with serving(rules_of=lambda target: rules.get(target, ())) as server:
        add_proxies(server, "10.0.0.1:8080\n")
        leased = lease(server)
        assert call(server, "POST", f"/api/leases/{leased['id']}/release", {"outcomes": [outcome]})[0] == 200
        _, seen = call(server, "GET", "/api/proxies?target=a.example")
        assert {each["state"] for each in seen["proxies"]} == states


def test_a_released_proxy_goes_to_a_waiting_client_and_not_to_one_that_left() -> None:
    with serving() as server:
        add_proxies(server, "10.0.0.1:8080\n")
        first = lease(server)
        for _ in range(2):
            with waiting_client(server):
                wait_until(lambda: server.request("GET", "/healthz").status == 200)
        with waiting_client(server) as (connection, read):
            assert call(server, "POST", f"/api/leases/{first['id']}/release", {"outcomes": []})[0] == 200
            status, result = read(connection)
            assert status == 201, "clients that left do not hold the proxy"
            assert result["leases"][0]["key"] == first["key"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_client_that_disconnects_while_it_is_granted_a_lease_holds_none(count: int) -> None:
    """A request for one proxy is granted as the client leaves. A request for two is never granted and stops waiting."""

    async def story() -> None:
        pool, sent = LocalPool(), []
        await pool.add([Proxy("http", "10.0.0.1", 80)])
        body = json.dumps({"target": "a.example", "count": count, "wait_s": 50}).encode()
        incoming = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            return next(incoming, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/leases", "headers": [(b"host", b"localhost")]}
        scope |= {"query_string": b"", "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80), "scheme": "http"}
        async with asyncio.timeout(DEADLINE_S):
            await build_app(pool)(scope, receive, send)
        assert sent[0]["status"] == 499
        assert [view.leases for view in await pool.targets()] == [0]
        assert await pool.acquire("a.example")

    asyncio.run(story())


@contextmanager
def waiting_client(server: Server) -> Iterator[Any]:
    """Request a proxy and wait. The connection is closed at the end."""
    body = json.dumps({"target": "a.example", "wait_s": 20}).encode()
    with socket.create_connection(("127.0.0.1", server.port), DEADLINE_S) as connection:
        connection.sendall(b"POST /api/leases HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body))
        connection.sendall(body)

        def read(connection: socket.socket) -> tuple[int, Any]:
            response = http.client.HTTPResponse(connection)
            response.begin()
            return response.status, json.loads(response.read())

        yield connection, read


def wait_until(condition: Any) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_leases_and_waiting_requests_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 1)
    now = FakeClock()
    with serving(now=now) as server:
        add_proxies(server)
        assert call(server, "POST", "/api/leases", {"target": "a.example", "count": 2})[0] == 503
        lease(server)
        assert call(server, "POST", "/api/leases", {"target": "a.example"})[0] == 503
        now.now += 60 + leases.KEEP_S + 1
        lease(server)
        monkeypatch.setattr(api, "WAITING_MAX", 0)
        assert call(server, "POST", "/api/leases", {"target": "b.example"})[0] == 503


def test_a_store_that_does_not_respond_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class HangingPool(LocalPool):
        async def targets(self, *_: object, **__: object) -> Any:
            return await asyncio.get_running_loop().create_future()

        acquire = proxies = explain = targets  # type: ignore[assignment]

    monkeypatch.setattr(store_timeout, "STORE_TIMEOUT_S", 0.1)
    with serving(HangingPool()) as server:
        for page in ("/", "/proxies", "/target?name=a.example"):
            response = server.get(page)
            assert (response.status, "did not answer" in response.text) == (503, True), page
        body = {"target": "a.example", "wait_s": 0}
        requests = [("GET", path) for path in ("/healthz", "/api/targets", "/api/proxies")]
        for words in (*requests, ("POST", "/api/leases", body)):
            status, result = call(server, *words)
            assert status == 503
            assert result["error"] == "the pool did not answer within 0.1 s: its store may be unreachable"


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "problem"),
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
def test_an_invalid_request_is_answered_with_one_line(method: str, path: str, body: Any, problem: str) -> None:
    with serving() as server:
        status, result = call(server, method, path, body)
        assert (status, problem in result["error"]) == (400, True), result
        assert len(result["error"]) < 400


def test_random_requests_get_described_responses() -> None:
    """No bytes, JSON or parameters cause status 500, or a response that the description does not have."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with serving() as server:
        add_proxies(server)
        client = CheckedClient(server)
        known = [
            (path, method, result)
            for path, each in client.description["paths"].items()
            for method, result in each.items()
        ]
        for _ in range(300):
            path, method, operation = rng.choice(known)
            query = "&".join(
                f"{rng.choice(WORDS)}={quote(str(random_value(rng, 0)))}" for _ in range(rng.randint(0, 3))
            )
            body = random_body(rng) if method == "post" else None
            response = server.request(method.upper(), f"{path.format(id='x', key='y')}?{query}", body)
            assert str(response.status) in operation["responses"], (method, path, query, body, response.text)
            if response.status >= 300:
                client.check_response(operation, response)


NAMES = "target key count tags session avoid lease_s wait_s outcomes limit offset state tag for_s reason scheme"
WORDS = NAMES.split()


def random_value(rng: random.Random, depth: int) -> Any:
    """Return a value that is mostly invalid."""
    texts = ["", "a.example", "0" * 16, "\N{SNOWMAN}\n", "x" * 600, "country=de"]
    leaves = [*texts, -1, 0, 1, 2.5, 1e308, 10**30, None, True]
    if depth > 2 or rng.random() < 0.6:
        return rng.choice(leaves)
    if rng.random() < 0.5:
        return [random_value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(WORDS): random_value(rng, depth + 1) for _ in range(rng.randint(0, 4))}


def random_body(rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return rng.randbytes(rng.randint(0, 40))
    body = random_value(rng, 0) if rng.random() < 0.3 else {rng.choice(WORDS): random_value(rng, 1) for _ in range(4)}
    if isinstance(body, dict) and rng.random() < 0.5:
        body |= {"target": "a.example", "wait_s": 0}
    return json.dumps(body).encode()


def test_unknown_paths_and_methods_are_errors_in_json() -> None:
    with serving() as server:
        assert call(server, "GET", "/api/nowhere") == (404, {"error": "Not Found"})
        assert call(server, "PUT", "/api/proxies") == (405, {"error": "Method Not Allowed"})
        assert server.request("GET", "/nowhere").status == 404


def test_a_bug_discloses_nothing() -> None:
    class Buggy(LocalPool):
        async def targets(self) -> Any:
            raise ZeroDivisionError("a bug at /secret/path")

    with serving(Buggy()) as server:
        assert call(server, "GET", "/api/targets") == (500, {"error": "internal error"})
        assert "secret" not in server.request("GET", "/").text
