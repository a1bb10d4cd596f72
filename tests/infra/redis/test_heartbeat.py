"""The thread of a heartbeat: when it beats, and when it ends."""

from __future__ import annotations

import threading
import time
from collections import deque

from lycosa.infra.redis.heartbeat import Heartbeat

WAIT_MAX_S = 20.0


def test_it_pauses_until_the_next_beat_is_due() -> None:
    due_s = deque([0.0, 3.0, 0.5, -1.0, 7.0])
    events: list[str | float] = []
    finished = threading.Event()

    def pause(seconds: float) -> None:
        events.append(seconds)
        if not due_s:
            heartbeat.stop()
            finished.set()

    created = threading.Event()

    def next_due_s() -> float:
        assert created.wait(WAIT_MAX_S)
        return due_s.popleft()

    heartbeat = Heartbeat("test", next_due_s, lambda: events.append("beat"), pause)
    created.set()
    assert finished.wait(WAIT_MAX_S)
    heartbeat.join(WAIT_MAX_S)
    assert events == ["beat", 3.0, 0.5, "beat", 7.0]


def test_it_beats_while_the_main_thread_is_blocked() -> None:
    beats: list[float] = []
    ten = threading.Event()

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 10:
            ten.set()

    heartbeat = Heartbeat("test", lambda: beats[-1] + 0.01 - time.monotonic() if beats else 0.0, beat)
    try:
        assert ten.wait(WAIT_MAX_S), "too few beats while the main thread was blocked"
    finally:
        heartbeat.stop()
        heartbeat.join(WAIT_MAX_S)


def test_stop_ends_a_long_pause_at_once() -> None:
    waiting = threading.Event()

    def due_s() -> float:
        waiting.set()
        return 3600.0

    heartbeat = Heartbeat("lycosa-test", due_s, lambda: None)
    assert waiting.wait(WAIT_MAX_S)
    heartbeat.stop()
    heartbeat.join(WAIT_MAX_S)
    assert "lycosa-test" not in {thread.name for thread in threading.enumerate()}


def test_join_waits_for_a_beat_that_is_under_way() -> None:
    started, release = threading.Event(), threading.Event()
    beats: list[str] = []

    def beat() -> None:
        beats.append("started")
        started.set()
        assert release.wait(WAIT_MAX_S)
        beats.append("ended")

    heartbeat = Heartbeat("test", lambda: 0.0, beat)
    assert started.wait(WAIT_MAX_S)
    heartbeat.stop()
    heartbeat.join(0.01)
    assert beats == ["started"], "the time limit of join ends the wait"
    release.set()
    heartbeat.join(WAIT_MAX_S)
    assert beats == ["started", "ended"]


def test_a_beat_may_stop_and_join_its_own_heartbeat() -> None:
    created, joined = threading.Event(), threading.Event()

    def beat() -> None:
        assert created.wait(WAIT_MAX_S)
        heartbeat.stop()
        heartbeat.join(WAIT_MAX_S)
        joined.set()

    heartbeat = Heartbeat("test", lambda: 0.0, beat)
    created.set()
    assert joined.wait(WAIT_MAX_S)


def test_the_thread_does_not_keep_the_process_alive() -> None:
    heartbeat = Heartbeat("lycosa-daemon", lambda: 3600.0, lambda: None)
    try:
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "lycosa-daemon"] == [True]
    finally:
        heartbeat.stop()
        heartbeat.join(WAIT_MAX_S)
