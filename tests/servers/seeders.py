"""BitTorrent peers that deliver metadata, and peers that misbehave, on any address of 127.0.0.0/8.

    async with seeding({infohash: metadata}) as port: ...
    async with seeding({infohash: metadata}, Behaviour.WRONG_HASH, host="127.0.0.9", log=log) as port: ...

They build and read their messages themselves, so that they share no mistake with Lycosa. `log` gets the ids of all
messages that clients sent. As a program, `python -m tests.servers.seeders COUNT SIZE` serves the metadata of COUNT
torrents, SIZE bytes for each, on all addresses, and prints its port. `canned` makes the metadata, and so determines the
infohashes.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

PIECE = 16_384
PREAMBLE = b"\x13BitTorrent protocol"
RESERVED = b"\0\0\0\0\0\x10\0\1"
PEER_ID = b"-XX0001-canned-seede"
METADATA_NUMBER = 3
REQUESTS = re.compile(rb"d8:msg_typei0e5:piecei(\d+)ee$")
THEIR_NUMBER = re.compile(rb"11:ut_metadatai(\d+)e")


class Behaviour(Enum):
    """What a seeder does. All but HONEST fail."""

    HONEST = "delivers"
    WRONG_HASH = "delivers other bytes"
    WRONG_SIZE = "claims one byte more, and delivers it"
    SHORT_PIECE = "leaves out the last byte of each piece"
    HUGE_PREFIX = "announces a message of 2 GB, and sends it"
    REJECTS = "rejects all requests, again and again"
    DRIPS = "sends a piece byte by byte"
    ENDLESS_HANDSHAKE = "sends its handshake byte by byte"
    SILENT = "accepts, and sends nothing"
    FLOODS_KEEP_ALIVES = "sends keep-alives without end"
    FLOODS_BITFIELDS = "sends large bitfields without end"
    CLOSES = "closes after the handshake"
    OTHER_INFOHASH = "answers for another torrent"
    NO_EXTENSIONS = "does not speak the extension protocol"
    NO_METADATA = "has no metadata"


@dataclass
class Log:
    """What clients did."""

    ids: Counter[int] = field(default_factory=Counter)
    """Messages by id; extended ones by 100 plus their number."""
    ports: set[int] = field(default_factory=set)
    connections: int = 0
    open: int = 0
    open_max: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, opened: int) -> None:
        """A connection was opened (1) or closed (-1)."""
        self.connections += opened == 1
        self.open += opened
        self.open_max = max(self.open_max, self.open)
        self._changed.set()

    async def until(self, **expected: int) -> None:
        """Wait until these counts have these values."""
        while any(getattr(self, name) != value for name, value in expected.items()):
            self._changed.clear()
            await self._changed.wait()


def message(number: int, payload: bytes = b"") -> bytes:
    """Return a message."""
    return (1 + len(payload)).to_bytes(4) + bytes([number]) + payload


def canned(number: int, size: int) -> bytes:
    """Return the metadata of this number: a valid info dict of exactly this size, at least 170 bytes."""
    pieces = (size - 150) // 20
    hashes = random.Random(number).randbytes(20 * pieces)
    head = b"d6:lengthi%de4:name8:%08d12:piece lengthi16384e6:pieces%d:%b" % (
        *(pieces * 16_384, number),
        *(len(hashes), hashes),
    )
    room = size - len(head) - 1  # the last "e"
    fillers = (b"%b%d:%b" % (key, length, bytes(length)) for key in (b"1:x", b"2:xx") for length in range(room))
    return head + next(filler for filler in fillers if len(filler) == room) + b"e"


class Seeder(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, torrents: Mapping[bytes, bytes], behaviour: Behaviour, log: Log, extra: bytes) -> None:
        self.torrents, self.behaviour, self.log, self.extra = torrents, behaviour, log, extra
        self.buffer = b""
        self.metadata: bytes | None = None
        self.paused = False
        self.number = 0  # the number that the client has chosen for metadata messages

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.log.change(1)

    def connection_lost(self, error: Exception | None) -> None:
        self.log.change(-1)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.metadata is None:
            if len(self.buffer) < 68:
                return
            infohash, self.buffer = self.buffer[28:48], self.buffer[68:]
            self.metadata = self.torrents.get(infohash, b"")
            if not self.metadata:
                self.transport.close()
                return
            self.greet(infohash)
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + (length := int.from_bytes(self.buffer[:4])):
            received, self.buffer = self.buffer[4 : 4 + length], self.buffer[4 + length :]
            if received:
                self.receive(received)

    def greet(self, infohash: bytes) -> None:
        answered = bytes(20) if self.behaviour is Behaviour.OTHER_INFOHASH else infohash
        reserved = bytes(8) if self.behaviour is Behaviour.NO_EXTENSIONS else RESERVED
        handshake = PREAMBLE + reserved + answered + PEER_ID
        match self.behaviour:
            case Behaviour.SILENT:
                pass
            case Behaviour.ENDLESS_HANDSHAKE:
                self.drip(handshake)
            case Behaviour.CLOSES:
                self.transport.write(handshake)
                self.transport.close()
            case Behaviour.HUGE_PREFIX:
                self.transport.write(handshake + b"\x7f\xff\xff\xff\x14")
                self.flood(bytes(65_536))
            case Behaviour.FLOODS_KEEP_ALIVES:
                self.transport.write(handshake)
                self.flood(bytes(4096))
            case Behaviour.FLOODS_BITFIELDS:
                self.transport.write(handshake)
                self.flood(message(5, bytes(900_000)))
            case _:
                self.transport.write(handshake + self.extensions() + message(5, b"\xff" * 99) + self.extra)

    def extensions(self) -> bytes:
        size = len(self.metadata or b"") + (self.behaviour is Behaviour.WRONG_SIZE)
        shown = b"" if self.behaviour is Behaviour.NO_METADATA else b"13:metadata_sizei%de" % size
        return message(20, b"\0d1:md11:ut_metadatai%de6:ut_pexi1ee%be" % (METADATA_NUMBER, shown))

    def receive(self, received: bytes) -> None:
        number = received[0]
        self.log.ids[100 + received[1] if number == 20 else number] += 1
        if number == 20 and received[1] == 0 and (theirs := THEIR_NUMBER.search(received)):
            self.number = int(theirs[1])
        if number == 9:
            self.log.ports.add(int.from_bytes(received[1:]))
        if number == 20 and received[1] == METADATA_NUMBER and (asked := REQUESTS.search(received)):
            self.answer(int(asked[1]))

    def answer(self, piece: int) -> None:
        assert self.metadata
        metadata = self.metadata
        if self.behaviour is Behaviour.REJECTS:
            self.flood(message(20, b"%cd8:msg_typei2e5:piecei%dee" % (self.number, piece)))
            return
        if self.behaviour is Behaviour.WRONG_HASH:
            metadata = bytes(len(metadata))
        if self.behaviour is Behaviour.WRONG_SIZE:
            metadata += b"e"
        data = metadata[piece * PIECE : (piece + 1) * PIECE]
        if self.behaviour is Behaviour.SHORT_PIECE:
            data = data[:-1]
        head = b"%cd8:msg_typei1e5:piecei%de10:total_sizei%dee" % (self.number, piece, len(metadata))
        if self.behaviour is Behaviour.DRIPS:
            self.drip(message(20, head + data))
        else:
            self.transport.write(message(20, head + data))

    def drip(self, data: bytes) -> None:
        if data and not self.transport.is_closing():
            self.transport.write(data[:1])
            asyncio.get_running_loop().call_later(0.01, self.drip, data[1:])

    def flood(self, data: bytes) -> None:
        if not self.transport.is_closing():
            if not self.paused:
                self.transport.write(data)
            asyncio.get_running_loop().call_later(0.001, self.flood, data)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False


@asynccontextmanager
async def seeding(
    torrents: Mapping[bytes, bytes],
    behaviour: Behaviour = Behaviour.HONEST,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    log: Log | None = None,
    extra: bytes = b"",
) -> AsyncIterator[int]:
    """Serve metadata by the first 20 bytes of their infohashes. Yield the port. `extra` is sent to every client."""
    counts = log or Log()
    loop = asyncio.get_running_loop()
    by_hash = {infohash[:20]: metadata for infohash, metadata in torrents.items()}
    server = await loop.create_server(
        lambda: Seeder(by_hash, behaviour, counts, extra), host, port, backlog=4096, reuse_address=True
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def serve(count: int, size: int) -> None:
    """Serve canned metadata on all addresses until Ctrl-C."""
    torrents = {hashlib.sha1(each).digest(): each for each in (canned(number, size) for number in range(count))}
    async with seeding(torrents, host="0.0.0.0") as port:
        print(port, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2])))
