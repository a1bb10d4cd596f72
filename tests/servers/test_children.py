"""Children: a signal that comes while a process starts ends that process, too."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.servers.children import SIGNALS, deferred_signals, end_program, started


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Set the handlers of this process again after the test."""
    before = {each: signal.getsignal(each) for each in SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize(("number", "exception"), [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_is_deferred_until_the_end_of_the_block(number: int, exception: type[BaseException]):
    reached = []

    def start() -> None:
        with deferred_signals():
            end_program(number, None)
            with deferred_signals():
                reached.append("a block within it")
            reached.append("the end of the block")
        reached.append("what follows")

    with pytest.raises(exception):
        start()
    assert reached == ["a block within it", "the end of the block"]
    assert {signal.getsignal(each) for each in SIGNALS} == {signal.SIG_IGN}


def test_a_process_is_ended_if_a_signal_comes_while_it_starts(monkeypatch: pytest.MonkeyPatch):
    processes = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)
            end_program(signal.SIGTERM, None)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(SystemExit), started(["sleep", "60"]):
        pytest.fail("the signal was not raised")
    assert processes[0].returncode == -signal.SIGKILL
