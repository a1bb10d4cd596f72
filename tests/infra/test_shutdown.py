"""How long a run waits for servers (C3, P3): as long as each call wants, and when it is to hurry, not at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("redis")

from lycosa.core.errors import StorageError
from lycosa.frontier.redis.server import crawl_server
from lycosa.infra import shutdown as patient

LONG_S = 30.0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient, "HURRY_S", 0.05)


def hurried(*acts: Any, before: Any = None) -> tuple[list[Any], dict[str, str]]:
    """Return what became of these calls, the later ones made after the hurry; and what servers were left."""

    async def story() -> tuple[list[Any], dict[str, str]]:
        with patient.patience() as mine:
            server = crawl_server("redis://127.0.0.1:1/0", lambda _: None)
            first = asyncio.create_task(server.retry(before)) if before else None
            await asyncio.sleep(0.01)
            mine.hurry()
            told = await asyncio.gather(*[first] if first else [], return_exceptions=True)
            for act in acts:
                told += await asyncio.gather(server.retry(act), return_exceptions=True)
            return told, mine.left

    return asyncio.run(asyncio.wait_for(story(), LONG_S))


async def away() -> None:
    raise ConnectionRefusedError("nobody is there")


async def silent() -> None:
    await asyncio.Event().wait()


async def well() -> str:
    return "there"


def test_a_server_that_answers_is_asked_what_is_left() -> None:
    assert hurried(well, well, before=well) == (["there"] * 3, {})


@pytest.mark.parametrize("before", [away, silent])
def test_one_that_does_not_is_left_at_once_and_never_asked_again(before: Any) -> None:
    asked = []

    async def ask() -> None:
        await asyncio.sleep(0.001)
        asked.append(1)

    told, left = hurried(ask, before=before)
    assert [type(each) for each in told] == [StorageError, StorageError]
    assert asked == []
    ((server, why),) = left.items()
    assert server == "redis://127.0.0.1:1/0"
    assert "no answer from the server" in why


def test_a_run_beside_it_goes_on_waiting() -> None:
    async def story() -> str:
        with patient.patience() as theirs:
            theirs.hurry()
        answers: list[Any] = [ConnectionRefusedError("away"), "there"]

        async def act() -> str:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return str(answer)

        return str(await crawl_server("redis://127.0.0.1:1/0", lambda _: None).retry(act))

    assert asyncio.run(story()) == "there"
