"""A fast shutdown (C3, P3): servers that respond can still be called, others are abandoned."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("redis")

from lycosa.core.errors import StorageError
from lycosa.frontier.redis.server import crawl_server
from lycosa.infra import shutdown
from lycosa.infra.shutdown import shutdown_deadline

LONG_S = 30.0


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "FAST_TIMEOUT_S", 0.05)


def shut_down(*calls: Any, call_before: Any = None) -> tuple[list[Any], dict[str, str]]:
    """Start `call_before`, then a fast shutdown; when the call has ended, make `calls` one after the other.

    Return the outcomes of all calls, and the abandoned servers.
    """

    async def scenario() -> tuple[list[Any], dict[str, str]]:
        with shutdown_deadline() as deadline:
            server = crawl_server("redis://127.0.0.1:1/0", lambda _: None)
            first = asyncio.create_task(server.retry(call_before)) if call_before else None
            await asyncio.sleep(0.01)
            deadline.start()
            outcomes = await asyncio.gather(*[first] if first else [], return_exceptions=True)
            for call in calls:
                outcomes += await asyncio.gather(server.retry(call), return_exceptions=True)
            return outcomes, deadline.abandoned

    return asyncio.run(asyncio.wait_for(scenario(), LONG_S))


async def refuse() -> None:
    raise ConnectionRefusedError("nothing listens there")


async def never_respond() -> None:
    await asyncio.Event().wait()


async def respond() -> str:
    return "response"


def test_a_server_that_responds_can_still_be_called() -> None:
    assert shut_down(respond, respond, call_before=respond) == (["response"] * 3, {})


@pytest.mark.parametrize("call_before", [refuse, never_respond])
def test_an_unresponsive_server_is_abandoned_at_once(call_before: Any) -> None:
    calls = []

    async def call() -> None:
        await asyncio.sleep(0.001)
        calls.append(1)

    outcomes, abandoned = shut_down(call, call_before=call_before)
    assert [type(each) for each in outcomes] == [StorageError, StorageError]
    assert calls == []
    ((server, message),) = abandoned.items()
    assert server == "redis://127.0.0.1:1/0"
    assert "no answer from the server" in message


def test_a_finished_shutdown_does_not_affect_later_calls() -> None:
    async def scenario() -> str:
        with shutdown_deadline() as other:
            other.start()
        answers: list[Any] = [ConnectionRefusedError("refused"), "response"]

        async def call() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        return str(await crawl_server("redis://127.0.0.1:1/0", lambda _: None).retry(call))

    assert asyncio.run(scenario()) == "response"
