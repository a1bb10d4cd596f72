"""Where servers may listen: one rule for all of them (P6, F8)."""

from __future__ import annotations

import socket

import pytest

from lycosa.core.errors import StateError, UsageError
from lycosa.infra.web.listening import Access, PortInUse, open_listener, remote_note, url_of, without_password
from tests.conftest import need

CLOSED = without_password(allow_remote=False)
WITH_WORD = without_password(allow_remote=True)
WITH_KEY = Access(True, "", "the key")


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "localhost"])
def test_loopback_needs_no_allow_remote(host: str):
    with open_listener(host, 0, "--host x", CLOSED) as listener:
        assert remote_note(listener.getsockname()[0], CLOSED) == ""


def test_loopback_of_ipv6_needs_no_allow_remote():
    need("IPv6 on the loopback device", has_ipv6())
    with open_listener("::1", 0, "--host x", CLOSED) as listener:
        assert remote_note(listener.getsockname()[0], CLOSED) == ""
        assert url_of(listener.getsockname()) == f"http://[::1]:{listener.getsockname()[1]}"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0", "203.0.113.7", "::ffff:0.0.0.0", "::ffff:203.0.113.7"])
def test_an_address_that_other_machines_reach_is_refused(host: str):
    with pytest.raises(
        UsageError, match=r"^--host x would be open to other machines: add --allow-remote, or listen on 127\.0\.0\.1$"
    ):
        open_listener(host, 0, "--host x", CLOSED)


def test_with_allow_remote_a_server_is_open_to_other_machines_and_says_so():
    with open_listener("0.0.0.0", 0, "--host x", WITH_WORD) as listener:
        assert remote_note(listener.getsockname()[0], WITH_WORD) == "open to other machines, without a password"
    with open_listener("0.0.0.0", 0, "--host x", WITH_KEY) as listener:
        assert remote_note(listener.getsockname()[0], WITH_KEY) == "open to other machines, which need the key"


@pytest.mark.parametrize("host", ["no.such.host.invalid", "..", "a..b", "a" * 300, ""])
def test_an_unknown_host_is_refused(host: str):
    with pytest.raises(UsageError, match=r"^--host x: "):
        open_listener(host, 0, "--host x", CLOSED)


def test_a_port_in_use_has_an_error_of_its_own():
    with (
        open_listener("127.0.0.1", 0, "--host x", CLOSED) as listener,
        pytest.raises(PortInUse, match=r"^--host x: cannot listen there: address already in use$"),
    ):
        open_listener("127.0.0.1", listener.getsockname()[1], "--host x", CLOSED)


def test_an_address_of_another_machine_cannot_be_used():
    with pytest.raises(StateError, match=r"^--host x: cannot listen there: cannot assign requested address$") as raised:
        open_listener("203.0.113.7", 0, "--host x", WITH_WORD)
    assert not isinstance(raised.value, PortInUse)


def test_connections_send_each_part_of_a_response_at_once():
    with (
        open_listener("127.0.0.1", 0, "--host", without_password(allow_remote=False)) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
