"""One end of a connection between two processes: calls and one-way messages in both directions, over a stream socket.

A frame is a length in four bytes, big endian, and that many bytes of msgpack.

    RpcCall(number, method, arguments)  ---->                                 many in progress; each end numbers its own
                                        <----  RpcResult(number, value)       in any order; a long list in several parts
                                        <----  RpcError(number, kind, text)   the exception that the method raised
    RpcCancel(number)                   ---->                                 the caller no longer waits
    other classes of `Message`          <--->                                 known to both ends; not answered

A server begins with Hello(version, pid). All messages of one iteration of the event loop go out in one write. A peer is
not trusted: `RpcLimits` limits what it may send, call and leave unread, and invalid data only closes its connection.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Union, cast

import msgspec

from lycosa.core import errors
from lycosa.infra.rpc.methods import Method, Service

log = logging.getLogger(__name__)

LENGTH = struct.Struct(">I")
FRAME_MAX = 32 << 20
"""Maximum bytes of a frame: enough for a stored request with its body."""

LIST_PART = 1_000
"""Maximum number of elements of a list in one result."""


class RpcLimits(NamedTuple):
    """Limits for peers. All but `clients_max` apply to one connection."""

    frame_max: int = FRAME_MAX
    """Maximum bytes of one frame, in both directions."""
    unread_max: int = 64 << 20
    """Maximum number of sent bytes that the peer has not read. A slower peer is disconnected."""
    write_timeout_s: float | None = None
    """Maximum seconds for which a peer that reads too slowly may pause our writing; then it is disconnected. None: no
    limit."""
    calls_max: int = 10_000
    """Maximum number of calls that one client may have in progress; further calls fail."""
    clients_max: int = 1_000
    """Maximum number of simultaneous connections of a server."""


class Message(msgspec.Struct, array_like=True, tag=True):
    """Base class of messages: each is sent as an array that begins with the name of its class."""


class Hello(msgspec.Struct, tag="hello"):
    """The first frame of a server. If `kind` is set, the server refuses the client; `kind` and `text` are those of
    `RpcError`.

    All versions of Lycosa must be able to read it, so fields may only be added.
    """

    version: int
    pid: int
    kind: str = ""
    text: str = ""


class RpcCall(Message):
    """A call of a method."""

    number: int
    method: str
    arguments: msgspec.Raw


class RpcCancel(Message):
    """The caller no longer waits for the result of this call."""

    number: int


class RpcResult(Message):
    """The result of a call. With `more` it is a part of a list, which the next result with this number continues."""

    number: int
    value: msgspec.Raw
    more: bool = False


class RpcError(Message):
    """The exception that the method raised: the name of its class in `core.errors`, and its text."""

    number: int
    kind: str
    text: str


encode = msgspec.msgpack.Encoder(enc_hook=repr).encode
_decode_hello = msgspec.msgpack.Decoder(Hello).decode


def encode_frame(message: Message | Hello) -> bytes:
    """Encode a message as a frame."""
    body = encode(message)
    return LENGTH.pack(len(body)) + body


def error_of(kind: str, text: str) -> errors.LycosaError:
    """Return the exception of a peer; `StateError` if `core.errors` has no class `kind` that takes only a text."""
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, errors.LycosaError):
        with suppress(TypeError, AttributeError):  # a class that takes other arguments, such as `HttpError`
            return found(text)
    return errors.StateError(text)


class FrameTooLong(ValueError):
    """A message does not fit into a frame."""

    def __init__(self, size: int, frame_max: int) -> None:
        super().__init__(f"{size:,} bytes, more than fit into a frame ({frame_max:,})")


class PeerLost(Exception):
    """The connection has ended. `reason` is what the peer did wrong; None if it just disconnected."""

    def __init__(self, reason: Exception | None) -> None:
        super().__init__(reason)
        self.reason = reason


class PendingCall(NamedTuple):
    """A call that has no result yet, or only `parts` of a list.

    The future is cancelled if the caller stops waiting.
    """

    number: int
    method: Method
    future: asyncio.Future[Any]
    parts: list[Any]


Handlers = Mapping[type[Message], Callable[[Any], None]]


@dataclass(slots=True, eq=False, repr=False)
class Connection(asyncio.Protocol):
    """One end of a connection. Create it while the event loop runs."""

    limits: RpcLimits
    methods: Mapping[str, Method] = field(default_factory=dict)
    """The peer's methods, which we call."""
    service: Service | None = None
    """Our service, whose methods the peer calls."""
    on_connect: Callable[[Connection], None] = lambda _: None
    on_hello: Callable[[Hello], None] | None = None
    """Called with the greeting, if the peer is a server."""
    on_disconnect: Callable[[Exception | None], None] = lambda _: None
    """Called once, when the connection has ended, with the reason as in `PeerLost`."""
    on_abandoned: Callable[[str, Any], None] = lambda _name, _result: None
    """Called with the result of a call whose caller no longer waits."""

    pending: dict[int, PendingCall] = field(init=False, default_factory=dict)
    """Our calls that have no result yet."""
    calls: dict[int, asyncio.Task[None]] = field(init=False, default_factory=dict)
    """The peer's calls in progress."""
    idle_since: float = field(init=False, default_factory=time.monotonic)
    """Time (monotonic seconds) at which the last call of the peer ended."""
    is_lost: bool = field(init=False, default=False)
    _loop: asyncio.AbstractEventLoop = field(init=False, default_factory=asyncio.get_running_loop)
    _transport: asyncio.Transport | None = field(init=False, default=None)
    _reason: Exception | None = field(init=False, default=None)
    _received: bytearray = field(init=False, default_factory=bytearray)
    _unsent: list[bytes] = field(init=False, default_factory=list)
    _is_flushing: bool = field(init=False, default=False)
    _write_timer: asyncio.TimerHandle | None = field(init=False, default=None)
    _numbers: Iterator[int] = field(init=False, default_factory=lambda: count(1))
    _decode: Callable[[Any], Any] = field(init=False)
    _handlers: Mapping[type[Any], Callable[[Any], None]] = field(init=False)

    def __post_init__(self) -> None:
        if self.on_hello is None:
            self.handle({})
        else:
            self._decode, self._handlers = _decode_hello, {Hello: self._on_greeting}

    def handle(self, handlers: Handlers) -> None:
        """Set the handlers of messages by class. Messages about calls need none: the connection handles them."""
        calls: Handlers = {RpcCall: self._on_call, RpcCancel: self._on_cancel} if self.service is not None else {}
        self._handlers = {RpcResult: self._on_result, RpcError: self._on_error, **calls, **handlers}
        self._decode = msgspec.msgpack.Decoder(Union[tuple(self._handlers)]).decode  # noqa: UP007  made at run time

    # ----------------------------------------------------------------------------------------------------------- frames

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.on_connect(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        received, start = self._received, 0
        received += data
        try:
            while len(received) - start >= LENGTH.size:
                (size,) = LENGTH.unpack_from(received, start)
                if size > self.limits.frame_max:
                    raise FrameTooLong(size, self.limits.frame_max)
                begin, end = start + LENGTH.size, start + LENGTH.size + size
                if len(received) < end:
                    break
                start = end
                # Decoded from a copy: a `Raw` in the message keeps its buffer, and `received` is shortened below.
                message = self._decode(received[begin:end])
                self._handlers[type(message)](message)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            self.abort(error)
            return
        if start:
            del received[:start]

    def pause_writing(self) -> None:
        timeout_s = self.limits.write_timeout_s
        if timeout_s is not None:
            slow = TimeoutError(f"the peer has read too little for {timeout_s:g} s")
            self._write_timer = self._loop.call_later(timeout_s, self.abort, slow)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self.is_lost = None, True
        self.resume_writing()
        for pending in self.pending.values():
            if not pending.future.done():
                pending.future.set_exception(PeerLost(self._reason))
        if self.service is not None and self.service.cancels:
            for call in self.calls.values():
                call.cancel()
        self.on_disconnect(self._reason)

    def send(self, message: Message | Hello) -> None:
        """Send a message with the next write. Raises `FrameTooLong`, and msgspec's errors if it cannot be encoded."""
        self.send_frame(encode(message))

    def send_frame(self, body: bytes) -> None:
        """Send an encoded message, or other data that the peer expects. Raises `FrameTooLong`."""
        if len(body) > self.limits.frame_max:
            raise FrameTooLong(len(body), self.limits.frame_max)
        if self.is_lost:  # the message is dropped, as if the connection were lost just after this call
            return
        self._unsent += (LENGTH.pack(len(body)), body)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write the queued messages now, instead of in the next iteration of the event loop."""
        self._is_flushing = False
        if self._transport is None or not self._unsent:
            return
        if not self._transport.is_closing():  # uvloop would raise RuntimeError
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()
        if (unread := self._transport.get_write_buffer_size()) > self.limits.unread_max:
            self.abort(TimeoutError(f"the peer has not read {unread:,} bytes"))

    def close(self) -> None:
        """Write the queued messages, stop reading, and close."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, reason: Exception | None = None) -> None:
        """Close at once. `reason` is what the peer did wrong."""
        if self._transport is not None:
            self._reason = self._reason or reason
            self._transport.abort()

    # ------------------------------------------------------------------------------------------------ calls to the peer

    def request(self, name: str, arguments: tuple[Any, ...]) -> PendingCall:
        """Call a method of the peer. Raises `PeerLost`, `FrameTooLong`; the future raises `PeerLost`, `LycosaError`."""
        if self.is_lost:
            raise PeerLost(self._reason)
        pending = PendingCall(next(self._numbers), self.methods[name], self._loop.create_future(), [])
        self.send(RpcCall(pending.number, name, msgspec.Raw(encode(arguments))))
        self.pending[pending.number] = pending
        return pending

    async def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the peer, and wait for its result. Raises the errors of `request` and of its future."""
        pending = self.request(name, arguments)
        try:
            return await pending.future
        except asyncio.CancelledError:
            if pending.number in self.pending:
                self.send(RpcCancel(pending.number))
            elif not pending.future.cancelled() and pending.future.exception() is None:
                self.on_abandoned(name, pending.future.result())  # the result arrived just before the cancellation
            raise

    def _on_greeting(self, hello: Hello) -> None:
        assert self.on_hello is not None
        self.handle({})
        self.on_hello(hello)

    def _on_result(self, result: RpcResult) -> None:
        pending = self._pending_call(result.number)
        value = pending.method.decode_result(result.value)
        if result.more or pending.parts:  # a part of a list; the last part has no `more`
            pending.parts.append(value)
        if result.more:
            return
        del self.pending[result.number]
        if pending.parts:
            value = [each for part in pending.parts for each in part]
        if pending.future.done():  # the caller was cancelled, but the peer had already answered
            self.on_abandoned(pending.method.name, value)
        else:
            pending.future.set_result(value)

    def _on_error(self, error: RpcError) -> None:
        pending = self._pending_call(error.number)
        del self.pending[error.number]
        if not pending.future.done():
            pending.future.set_exception(error_of(error.kind, error.text))

    def _pending_call(self, number: int) -> PendingCall:
        if number not in self.pending:
            raise ValueError(f"an answer to a call that was not made ({number})")
        return self.pending[number]

    # ------------------------------------------------------------------------------------------------ calls of the peer

    @property
    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _on_call(self, call: RpcCall) -> None:
        if call.number in self.calls:
            raise ValueError(f"two calls have the number {call.number}")
        if len(self.calls) >= self.limits.calls_max:
            text = f"one process can make {self.limits.calls_max:,} concurrent calls: wait until some have ended"
            self._fail(call.number, errors.UsageError(text))
            return
        assert self.service is not None
        serving = self.service.schedule(partial(self._serve, self.service, call))
        task = self.calls[call.number] = self._loop.create_task(serving)
        task.add_done_callback(partial(self._end_call, call.number))

    def _on_cancel(self, cancel: RpcCancel) -> None:
        assert self.service is not None
        if cancel.number in self.calls and self.service.cancels:
            self.calls[cancel.number].cancel()

    def _end_call(self, number: int, task: asyncio.Task[None]) -> None:
        del self.calls[number]
        self.idle_since = time.monotonic()
        if task.cancelled():  # not handled in the task, which may have been cancelled before its first step
            self._fail(number, errors.LycosaError("the call was cancelled"))

    def _fail(self, number: int, error: errors.LycosaError) -> None:
        self.send(RpcError(number, type(error).__name__, str(error)))

    async def _serve(self, service: Service, call: RpcCall) -> None:
        try:
            method, arguments = _parse_call(service.methods, call)
            result = await service.answer(method, arguments)
            if not self._is_closing:
                self._send_result(call.number, result)
            if service.undelivered is not None:
                self.flush()  # a failed write closes the transport: `_is_closing` is then true for all calls
                if self._is_closing:
                    await service.undelivered(method, result)
        except FrameTooLong as error:
            self._fail(call.number, errors.StorageError(f"one answer has {error}"))
        except errors.LycosaError as error:
            self._fail(call.number, error)
        except Exception:
            log.exception("a call of another process failed (%s); this process continues", call.method)
            self._fail(call.number, errors.StateError("the call failed: see the log of the process that served it"))

    def _send_result(self, number: int, result: Any) -> None:
        parts = [result]
        if isinstance(result, list) and len(result) > LIST_PART:
            parts = [result[start : start + LIST_PART] for start in range(0, len(result), LIST_PART)]
        for index, part in enumerate(parts, 1):
            self.send(RpcResult(number, msgspec.Raw(encode(part)), index < len(parts)))


def _parse_call(methods: Mapping[str, Method], call: RpcCall) -> tuple[Method, tuple[Any, ...]]:
    method = methods.get(call.method)
    if method is None:
        unknown = f"this version of Lycosa has no method {call.method!r}"
        raise errors.UsageError(f"{unknown}: both processes must run the same version")
    try:
        return method, method.decode_arguments(call.arguments)
    except msgspec.MsgspecError as error:
        raise errors.UsageError(f"{call.method}: {error}") from None
