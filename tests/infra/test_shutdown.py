"""A fast shutdown (C3, P3): servers that answer are still called, servers that do not are abandoned."""

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
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "FAST_TIMEOUT_S", 0.05)


def shut_down(*calls: Any, before: Any = None) -> tuple[list[Any], dict[str, str]]:
    """Return the outcomes of these calls, which are made after the start of a fast shutdown, but for `before`; and the
    servers that were abandoned."""

    async def story() -> tuple[list[Any], dict[str, str]]:
        with shutdown_deadline() as deadline:
            server = crawl_server("redis://127.0.0.1:1/0", lambda _: None)
            first = asyncio.create_task(server.retry(before)) if before else None
            await asyncio.sleep(0.01)
            deadline.start()
            outcomes = await asyncio.gather(*[first] if first else [], return_exceptions=True)
            for call in calls:
                outcomes += await asyncio.gather(server.retry(call), return_exceptions=True)
            return outcomes, deadline.abandoned

    return asyncio.run(asyncio.wait_for(story(), LONG_S))


async def refused() -> None:
    raise ConnectionRefusedError("nobody is there")


async def silent() -> None:
    await asyncio.Event().wait()


async def answered() -> str:
    return "there"


def test_a_server_that_answers_is_still_called() -> None:
    assert shut_down(answered, answered, before=answered) == (["there"] * 3, {})


@pytest.mark.parametrize("before", [refused, silent])
def test_a_server_that_does_not_answer_is_abandoned_at_once(before: Any) -> None:
    calls = []

    async def call() -> None:
        await asyncio.sleep(0.001)
        calls.append(1)

    outcomes, abandoned = shut_down(call, before=before)
    assert [type(each) for each in outcomes] == [StorageError, StorageError]
    assert calls == []
    ((server, why),) = abandoned.items()
    assert server == "redis://127.0.0.1:1/0"
    assert "no answer from the server" in why


def test_another_run_goes_on_waiting() -> None:
    async def story() -> str:
        with shutdown_deadline() as other:
            other.start()
        answers: list[Any] = [ConnectionRefusedError("away"), "there"]

        async def call() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        return str(await crawl_server("redis://127.0.0.1:1/0", lambda _: None).retry(call))

    assert asyncio.run(story()) == "there"
