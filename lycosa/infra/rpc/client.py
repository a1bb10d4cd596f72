"""The RPC client: calls the methods of a port that another process implements."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lycosa.core.errors import LycosaError, NewerState, StateError, StateLocked, UsageError
from lycosa.infra.rpc.connection import Connection, FrameTooLong, Hello, PeerLost, RpcLimits, error_of
from lycosa.infra.rpc.methods import Method
from lycosa.infra.rpc.server import Address
from lycosa.infra.unix_socket import connect

R = TypeVar("R")


class RpcClient:
    """Calls the methods of a server. Any problem with the server raises a `LycosaError` with a one-line message.

    A subclass defines each method of its port with `remote`. These methods call the subclass's method `call`, which
    must await `call_within`. Messages name the server's process id: from the greeting, or before the greeting from
    `find_owner`. If `find_owner` returns no number, the id is unknown.
    """

    def __init__(
        self,
        address: Address,
        version: int,
        methods: Mapping[str, Method],
        limits: RpcLimits,
        find_owner: Callable[[], str] = str,
    ) -> None:
        self.address = address
        self._version = version
        self._methods = methods
        self._find_owner = find_owner
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self.pid = 0
        """The process id of the server; 0 before its greeting."""
        self.connection = Connection(
            limits,
            methods,
            on_hello=self._greeting.set_result,
            on_disconnect=self._on_disconnect,
            on_abandoned=self.on_abandoned,
        )

    async def connect(self, timeout_s: float) -> None:
        """Connect, and wait for the greeting.

        Raises OSError if nothing listens there, `NewerState` if the server has another version, the server's error if
        it refuses this client, and the errors of `call_within`.
        """
        loop, address = asyncio.get_running_loop(), self.address
        if isinstance(address, Path):
            await loop.create_connection(lambda: self.connection, sock=await connect(address))
        else:
            await loop.create_connection(lambda: self.connection, *address)
        try:
            hello = await self._wait_for(self._greeting, timeout_s)
            self._check(hello)
        except BaseException:
            self.connection.abort()
            raise
        self.pid = hello.pid

    async def call_within(self, timeout_s: float, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method. Raises the method's error; `StateError` if the server has ended or does not answer."""
        return await self._wait_for(self.connection.call(name, self._methods[name].bind(args, kwargs)), timeout_s)

    def on_abandoned(self, name: str, result: Any) -> None:
        """Called with the result of a call that was cancelled or timed out before the result arrived."""

    def ended_error(self) -> LycosaError:
        return StateError(f"{self.address}: {self.owner} has ended")

    @property
    def owner(self) -> str:
        pid = str(self.pid or self._find_owner())
        return f"process {pid}" if pid.isdecimal() else "the owner"

    def _check(self, hello: Hello) -> None:
        if hello.kind:
            raise error_of(hello.kind, hello.text)
        if hello.version != self._version:
            other = f"process {hello.pid} runs another version of Lycosa"
            raise NewerState(f"{self.address}: {other}: use the same version here")

    async def _wait_for(self, answer: Awaitable[R], timeout_s: float) -> R:
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            pid = self.owner.removeprefix("process ")
            advice = f"; kill -CONT {pid} resumes a stopped process" if pid.isdecimal() else ""
            silent = f"{self.owner} has not answered for {timeout_s:g} s: it hangs or was stopped{advice}"
            raise StateLocked(f"{self.address}: {silent}") from None
        except FrameTooLong as error:
            raise UsageError(f"one call has {error}") from None
        except PeerLost as lost:
            if lost.reason is None:
                raise self.ended_error() from None
            foreign = "the process that listens there does not speak the protocol of Lycosa"
            raise StateLocked(f"{self.address}: {foreign} ({lost.reason}): stop it") from None

    def _on_disconnect(self, reason: Exception | None) -> None:
        if not self._greeting.done():
            self._greeting.set_exception(PeerLost(reason))
