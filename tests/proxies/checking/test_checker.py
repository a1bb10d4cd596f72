"""Checks of real proxies and of lying proxies against a judge, and the upkeep of a pool."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.proxies.checks import open_checker, project_checks
from lycosa.core.errors import BadSetting, NoJudge, NoProxy, StateError
from lycosa.proxies.checking.checker import Checker, check_pool
from lycosa.proxies.checking.judge_server import Certificate, Judge, run_judge
from lycosa.proxies.checking.upkeep import Upkeep
from lycosa.proxies.core.checks.anonymity import Anonymity
from lycosa.proxies.core.checks.checks import Checks, Finding, TargetPage
from lycosa.proxies.core.checks.judging import JudgeAddress
from lycosa.proxies.core.outcomes.outcome import Blame
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.memory.pool import LocalPool
from tests.conftest import need
from tests.servers.forging import forging
from tests.servers.misbehaving import serving
from tests.servers.ports import closed_port
from tests.servers.proxies import Dante, Microsocks, Squid, Tinyproxy, new_address, running
from tests.servers.proxy import proxying

TIMEOUT_S = 5.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    need("openssl", shutil.which("openssl") is not None)
    return Certificate.load_or_create(tmp_path_factory.mktemp("judge"))


@pytest.fixture(scope="module")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    need("openssl", shutil.which("openssl") is not None)
    return Certificate.load_or_create(tmp_path_factory.mktemp("other"))


@asynccontextmanager
async def running_checker(certificate: Certificate | None, **checks: Any) -> AsyncIterator[tuple[Judge, Checker]]:
    async with asyncio.timeout(60), run_judge(certificate) as judge:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of failed handshakes
        settings = Checks(judges=(judge.address,), **{"timeout_s": TIMEOUT_S, **checks})
        async with open_checker(settings) as checker:
            yield judge, checker


def run(certificate: Certificate | None, scenario: Callable[[Judge, Checker], Awaitable[None]], **checks: Any) -> None:
    async def main() -> None:
        async with running_checker(certificate, **checks) as (judge, checker):
            await scenario(judge, checker)

    asyncio.run(main())


@asynccontextmanager
async def checker_with_two_judges() -> AsyncIterator[tuple[Checker, Proxy, JudgeAddress, AsyncExitStack]]:
    """Run a checker and a working proxy. Yield both, the first judge's address, and a stack that stops this judge."""
    async with AsyncExitStack() as stack, AsyncExitStack() as first_judge:
        first = await first_judge.enter_async_context(run_judge())
        second = await stack.enter_async_context(run_judge())
        settings = Checks((first.address, second.address), timeout_s=TIMEOUT_S)
        checker = await stack.enter_async_context(open_checker(settings))
        proxy = await stack.enter_async_context(proxying(exit=new_address()))
        yield checker, parse_proxy(proxy.url), first.address, first_judge


async def check_proxies(checker: Checker, *proxies: Proxy) -> dict[str, Finding]:
    return {finding.proxy.key: finding async for finding in checker.check_all(proxies)}


@pytest.mark.proxies
def test_real_proxies_are_classified(certificate: Certificate) -> None:
    real = {
        "tinyproxy": Tinyproxy(user="ann", password="secret"),
        "squid": Squid(),
        "squid without forwarded-for": Squid(forwards="delete"),
        "microsocks": Microsocks(user="ann", password="se@ret"),
        "dante": Dante(),
    }
    levels = {
        "tinyproxy": Anonymity.ANONYMOUS,  # a Via
        "squid": Anonymity.TRANSPARENT,  # X-Forwarded-For: 127.0.0.1
        "squid without forwarded-for": Anonymity.ANONYMOUS,  # Cache-Control
        "microsocks": Anonymity.ELITE,
        "dante": Anonymity.ELITE,
    }

    async def scenario(judge: Judge, checker: Checker) -> None:
        proxies = {name: parse_proxy(each.url) for name, each in real.items()}
        proxies["dante by SOCKS4"] = parse_proxy(real["dante"].url_socks4)  # type: ignore[attr-defined]
        findings = await check_proxies(checker, *proxies.values())
        for name, proxy in proxies.items():
            finding = findings[proxy.key]
            its = real[name.removesuffix(" by SOCKS4")]
            assert finding.protocols == ("http", "https"), (name, finding)
            assert finding.anonymity is levels[name.removesuffix(" by SOCKS4")], (name, finding)
            assert finding.exit_ip == its.exit, name
            assert finding.changes == (), name
            assert finding.latency_s is not None, name
            assert 0 < finding.latency_s < TIMEOUT_S, name
        wrong = [parse_proxy(each.url_without_login) for each in (real["tinyproxy"], real["microsocks"])]
        refused = await check_proxies(checker, *wrong)
        assert [finding.alive for finding in refused.values()] == [False, False]
        assert "407" in refused[wrong[0].key].problem or "401" in refused[wrong[0].key].problem

    with running(*real.values()):
        run(certificate, scenario)


def test_latency_is_the_time_to_connect(certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        async with proxying(exit=new_address()) as slow:
            slow.delay_s = 0.3  # before each connection that the proxy opens; with HTTPS during the handshake
            (finding,) = (await check_proxies(checker, parse_proxy(slow.url))).values()
            assert finding.latency_s is not None
            assert 0.3 <= finding.latency_s < TIMEOUT_S

    run(certificate, scenario)


def test_a_proxy_that_alters_pages_is_unfit(certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        async with proxying(exit=new_address()) as proxy:
            proxy.alters = (b"</body>", b"<script src='//ads.example/'></script></body>")
            finding = await checker.check(parse_proxy(proxy.url))
            assert finding.changes == ("page",)
            assert finding.outcome(checker.checks).reason == "not fit: alters the page"
            proxy.alters = (b"127.", b"128.")  # the signed answer of the judge
            finding = await checker.check(parse_proxy(proxy.url))
            assert (finding.protocols, finding.changes) == (("https",), ("page",))

    run(certificate, scenario)


def test_a_proxy_that_swaps_certificates_is_unfit(certificate: Certificate, other_certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        tls_port, key = judge.address.tls_port, judge.address.key
        middle = new_address()
        between = run_judge(other_certificate, host=middle, tls_port=tls_port, key=key)  # the impostor even has the key
        async with between, proxying(hosts={"127.0.0.1": middle}) as interceptor:
            finding = await checker.check(parse_proxy(interceptor.url))
            assert "certificate" in finding.changes
            assert "https" not in finding.protocols
            assert finding.outcome(checker.checks).reason == "not fit: alters the certificate"

    run(certificate, scenario)


@pytest.mark.parametrize(
    ("behaviour", "level", "changes"),
    [
        ({}, Anonymity.ELITE, ()),
        ({"asks": ["X-Real-IP: 127.0.0.1"]}, Anonymity.TRANSPARENT, ()),
        ({"asks": ['Forwarded: for="[::ffff:7f00:1]:1"']}, Anonymity.TRANSPARENT, ()),
        ({"asks": ["Cookie: id=7"]}, Anonymity.ANONYMOUS, ("request adds cookie",)),
        ({"drops": ["accept-language"]}, Anonymity.ANONYMOUS, ("request drops accept-language",)),
        ({"answers": ["Set-Cookie: id=7", "Via: 1.1 a"]}, Anonymity.ELITE, ("answer adds set-cookie",)),
        ({"exit": "127.0.0.1"}, Anonymity.TRANSPARENT, ()),
    ],
)  # fmt: skip
def test_added_and_dropped_fields_are_found(behaviour: dict[str, Any], level: Anonymity, changes: Any) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        async with forging(**behaviour) as url:
            finding = await checker.check(parse_proxy(url))
            assert (finding.anonymity, finding.changes) == (level, changes)
            assert finding.protocols == ("http",)
            assert finding.outcome(checker.checks).reason == ""

    run(None, scenario)


def test_a_proxy_that_answers_in_place_of_the_judge_is_not_alive() -> None:
    portal = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nlogin"
    refusal = b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"

    async def scenario(judge: Judge, checker: Checker) -> None:
        async with forging(instead=portal) as first, forging(instead=refusal) as second:
            findings = await check_proxies(checker, parse_proxy(first), parse_proxy(second))
            logged_in, refused = (findings[parse_proxy(url).key] for url in (first, second))
            assert (logged_in.alive, logged_in.changes) == (False, ("page",))
            problem = "returned 403 instead of the judge's answer"
            assert (refused.alive, refused.changes, refused.problem) == (False, (), problem)

    run(None, scenario)


def test_checks_of_servers_that_are_not_proxies_end_with_a_problem(certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        async with serving() as web:
            silent = parse_proxy(f"socks5h://127.0.0.1:{web.address.rpartition(':')[2]}")
            findings = await check_proxies(checker, silent, parse_proxy("no.such.host.invalid:80"))
            assert [each.alive for each in findings.values()] == [False] * 2
            assert all(each.problem for each in findings.values())

    async def nobody_listens(judge: Judge, checker: Checker) -> None:
        finding = await checker.check(parse_proxy(f"127.0.0.1:{closed_port()}"))
        assert (finding.alive, finding.problem) == (False, "proxy refused the connection")

    run(certificate, scenario, timeout_s=2.5)
    run(certificate, nobody_listens)


@pytest.mark.proxies
def test_the_actual_kind_of_a_proxy_is_named(certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        with Microsocks() as proxy:
            finding = await checker.check(parse_proxy(f"http://{proxy.place}"))
        assert finding.kinds == ("socks5h",)
        assert finding.problem == "answers as socks5h, not as http"

    run(certificate, scenario, other_kinds=True)


def test_pages_of_sites_are_validated(certificate: Certificate) -> None:
    async def main() -> None:
        async with serving() as web:
            good = TargetPage("good.example", web.url("/good"), contains=("All is well.",))
            other = TargetPage("other.example", web.url("/good"), contains=("add to basket",))
            gone = TargetPage("gone.example", web.url("/503"))
            sites = (good, other, gone)
            async with running_checker(certificate, sites=sites) as (_, checker), proxying(exit=new_address()) as proxy:
                mine = parse_proxy(proxy.url)
                pool = LocalPool()
                await pool.add([mine])
                (finding,) = [each async for each in check_pool(pool, checker, lambda: 1e12)]
                assert finding.sites["good.example"] == ""
                assert finding.sites["other.example"] == "page lacks a required text"
                assert finding.sites["gone.example"].startswith("answered ")
                assert await pool.acquire("good.example")
                with pytest.raises(NoProxy):
                    await pool.acquire("other.example")
                (view,) = await pool.proxies("other.example")
                assert view.reason == "check: page lacks a required text"

    asyncio.run(main())


def test_without_a_judge_there_is_an_error_and_no_finding() -> None:
    async def main(*judges: JudgeAddress) -> None:
        async with asyncio.timeout(30), open_checker(Checks(judges, timeout_s=TIMEOUT_S)) as checker:
            await check_proxies(checker, parse_proxy("127.0.0.1:1"))

    with pytest.raises(NoJudge, match="no judge to check proxies with: run `lycosa proxies judge`"):
        asyncio.run(main())
    port = closed_port()
    with pytest.raises(NoJudge, match=rf"^no judge answers: 127.0.0.1:{port} \(connection refused\)$"):
        asyncio.run(main(JudgeAddress("127.0.0.1", port, "k" * 32)))


def test_a_judge_with_another_key_or_certificate_is_refused(
    certificate: Certificate, other_certificate: Certificate
) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), run_judge(certificate) as judge:
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            stranger = replace(judge.address, key="k" * 32)
            impostor = replace(judge.address, pin=other_certificate.pin)
            for address, why in (
                (stranger, "has another key"),
                (impostor, "certificate does not match the pinned key"),
            ):
                async with open_checker(Checks((address,), timeout_s=TIMEOUT_S)) as checker:
                    with pytest.raises(NoJudge, match=why):
                        await checker.check(parse_proxy("127.0.0.1:1"))

    asyncio.run(main())


def test_proxies_are_not_blamed_for_a_stopped_judge() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), checker_with_two_judges() as (checker, proxy, _, first_judge):
            await checker.ready()
            await first_judge.aclose()
            for _ in range(4):  # enough for both judges
                assert (await checker.check(proxy)).alive

    asyncio.run(main())


def test_the_error_page_for_a_judge_that_stops_in_mid_check_is_no_altered_page() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), checker_with_two_judges() as (checker, proxy, first, first_judge):
            fetch_page = checker._judges.page

            async def page(address: JudgeAddress, through: Proxy) -> Any:
                if address == first:
                    await first_judge.aclose()
                return await fetch_page(address, through)

            checker._judges.page = page  # type: ignore[method-assign]
            for _ in range(2):  # one check with each judge
                finding = await checker.check(proxy)
                assert (finding.alive, finding.changes) == (True, ())

    asyncio.run(main())


def test_checks_are_concurrent_up_to_the_limit_and_each_proxy_is_checked_once(certificate: Certificate) -> None:
    async def scenario(judge: Judge, checker: Checker) -> None:
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(proxying(exit=new_address())) for _ in range(12)]
            running_checks = peak = 0
            check = checker.check

            async def counted(proxy: Proxy) -> Finding:
                nonlocal running_checks, peak
                running_checks += 1
                peak = max(peak, running_checks)
                finding = await check(proxy)
                running_checks -= 1
                return finding

            checker.check = counted  # type: ignore[method-assign]
            findings = await check_proxies(checker, *(parse_proxy(each.url) for each in proxies))
            assert len(findings) == 12
            assert all(each.alive for each in findings.values())
            assert [len(each.requests) for each in proxies] == [2] * 12, "a probe and a page"
            assert peak == 3

    run(None, scenario, concurrency=3)


@pytest.mark.parametrize("checks", [60, pytest.param(1000, marks=pytest.mark.prove)])
def test_no_working_proxy_is_blamed_while_a_judge_stops(certificate: Certificate, checks: int) -> None:
    async def main() -> None:
        async with asyncio.timeout(600), AsyncExitStack() as stack:
            dying = AsyncExitStack()
            judges = [await each.enter_async_context(run_judge(certificate)) for each in (stack, dying)]
            proxies = [await stack.enter_async_context(proxying(exit=new_address())) for _ in range(4)]
            settings = Checks(tuple(each.address for each in judges), timeout_s=60.0, concurrency=16)
            checker = await stack.enter_async_context(open_checker(settings))
            listed = [proxies[number % 4] for number in range(checks)]
            findings = await stack.enter_async_context(aclosing(checker.check_all(parse_proxy(p.url) for p in listed)))
            done = 0
            async for finding in findings:
                done += 1
                assert finding.alive, (done, finding)
                assert finding.outcome(settings).blame is Blame.NONE, (done, finding)
                if done == checks // 3:
                    await dying.aclose()
            assert done == checks
            assert all(each.answered for each in judges)

    asyncio.run(main())


class FindingQueue:
    """Waits for findings of an upkeep."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Finding] = asyncio.Queue()

    async def next(self, **having: object) -> Finding:
        while True:
            finding = await self.queue.get()
            if all(getattr(finding, name) == value for name, value in having.items()):
                return finding


def test_a_pool_is_kept_checked() -> None:
    async def main() -> None:
        findings, pool = FindingQueue(), LocalPool()
        async with asyncio.timeout(60), run_judge() as judge, proxying(exit="127.0.0.77") as proxy:
            mine = parse_proxy(proxy.url)
            await pool.add([mine])
            settings = Checks((judge.address,), every_s=0.1, timeout_s=TIMEOUT_S)
            async with open_checker(settings) as checker, asyncio.TaskGroup() as group:
                upkeep = Upkeep(pool, checker, on_finding=findings.queue.put_nowait, retry_s=0.05)
                running = group.create_task(upkeep.run())
                await findings.next(alive=True)
                (view,) = await pool.proxies()
                assert (view.state, view.exit_ip) == (ProxyState.READY, "127.0.0.77")
                proxy.alters = (b"</body>", b"!</body>")
                await findings.next(changes=("page",))
                (view,) = await pool.proxies()
                assert (view.state, view.reason) == (ProxyState.DEAD, "not fit: alters the page")
                proxy.alters = None
                await findings.next(alive=True, changes=())
                (view,) = await pool.proxies()
                assert view.state is ProxyState.READY
                running.cancel()

    asyncio.run(main())


def test_without_a_judge_no_proxy_of_a_pool_is_blamed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        findings, pool, logged = FindingQueue(), LocalPool(), asyncio.Event()
        caplog.handler.addFilter(lambda record: logged.set() or True)
        async with asyncio.timeout(60), proxying(exit=new_address()) as proxy:
            await pool.add([parse_proxy(proxy.url)])
            port = closed_port()
            missing = JudgeAddress("127.0.0.1", port, "k" * 32)
            async with open_checker(Checks((missing,), every_s=0.1, timeout_s=TIMEOUT_S)) as checker:
                upkeep = Upkeep(pool, checker, on_finding=findings.queue.put_nowait, judge_s=0.2)
                async with asyncio.TaskGroup() as group:
                    running = group.create_task(upkeep.run())
                    await logged.wait()
                    assert proxy.requests == []
                    (view,) = await pool.proxies()
                    assert view.state is ProxyState.READY
                    async with run_judge(port=port, key="k" * 32):
                        await findings.next(alive=True)
                    running.cancel()
        assert caplog.text.count("proxies are not checked") == 1
        assert caplog.text.count("the checks of proxies have resumed") == 1

    asyncio.run(main())


def test_a_finding_is_recorded_when_the_pool_is_reachable_again() -> None:
    class UnreachablePool(LocalPool):
        """A pool whose first calls fail."""

        failures = 2

        async def report_check(self, *arguments: Any) -> bool:
            if self.failures:
                self.failures -= 1
                raise StateError("the server is unreachable")
            return await super().report_check(*arguments)

    async def main() -> None:
        findings, pool = FindingQueue(), UnreachablePool()
        async with asyncio.timeout(60), run_judge() as judge, proxying(exit="127.0.0.78") as proxy:
            await pool.add([parse_proxy(proxy.url)])
            async with open_checker(Checks((judge.address,))) as checker, asyncio.TaskGroup() as group:
                upkeep = Upkeep(pool, checker, on_finding=findings.queue.put_nowait, judge_s=0.05)
                running = group.create_task(upkeep.run())
                await findings.next(alive=True)
                (view,) = await pool.proxies()
                assert (view.exit_ip, pool.failures) == ("127.0.0.78", 0)
                running.cancel()

    asyncio.run(main())


def test_checks_are_read_from_the_project(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text('[proxies.checks]\nanonymity = "elite"\n[proxies.default]\nlease_s = 5\n')
    assert project_checks(tmp_path) == Checks(anonymity=Anonymity.ELITE)
    (tmp_path / "lycosa.toml").write_text('[proxies.checks]\nanonymity = "high"\n')
    with pytest.raises(BadSetting, match=r"^lycosa.toml: proxies.checks.anonymity: 'high' is not one of transparent"):
        project_checks(tmp_path)
