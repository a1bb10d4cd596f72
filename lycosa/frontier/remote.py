"""The frontier of a live owner, reached through its socket: `frontier.ports.FrontierOperations` from another process.

A call fails with the owner's own error, or with a `StateError` that says in one line what is the matter with the owner:
gone, hung, of another version, or not ours to ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import NewerState, StateError, StateLocked
from lycosa.frontier import messages
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    RequeueResult,
    Row,
    RowSlice,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.messages import METHODS, SLICE_ROWS, WHOLE, Answer, Hello, Refusal
from lycosa.frontier.state_dir import owner_of
from lycosa.infra.unix_socket import connect, read_frame, write_frame

ANSWER_MAX_S = 30.0
"""An owner that has not answered after so long hangs, or was stopped."""

SILENT_MAX_S = 2.0
"""After so long without an answer the user is told who is waited for."""

WHOLE_MAX_S = 3600.0
"""What reads or writes everything may take so long."""

WORK = {"verify": "checks", "compact": "compacts"}
"""What a crawl does that is silent for long although nothing is the matter with it."""


class RemoteOperations:
    """See `frontier.ports.FrontierOperations`; every method here is documented there. Make it with `connected`."""

    def __init__(
        self,
        path: Path,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer_max_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._reader = reader
        self._writer = writer
        self._answer_max_s = answer_max_s
        self._asking = asyncio.Lock()
        self._say = say
        self._said = False
        self.pid = 0

    async def stats(self) -> FrontierStats:
        """Count."""
        found: FrontierStats = await self._ask("stats")
        return found

    async def next_due(self, now: float) -> float | None:
        """Ask."""
        at: float | None = await self._ask("next_due", now)
        return at

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Push, as many at a time as the owner takes."""
        slices = [records[start : start + SLICE_ROWS] for start in range(0, len(records), SLICE_ROWS)]
        return sum([await self._ask("push", part) for part in slices])

    async def commit(self) -> None:
        """Have it committed."""
        await self._ask("commit")

    async def host(self, host: str) -> HostView | None:
        """Ask."""
        found: HostView | None = await self._ask("host", host)
        return found

    async def host_facts(self, host: str) -> HostFacts | None:
        """Ask."""
        facts: HostFacts | None = await self._ask("host_facts", host)
        return facts

    async def segments(self) -> list[SegmentView]:
        """Ask."""
        found: list[SegmentView] = await self._ask("segments")
        return found

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        """Ask; the owner may give fewer than the limit at a time."""
        found: list[HostView] = await self._ask("hosts", after, limit)
        return found

    async def rows(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Ask."""
        found: RowSlice = await self._ask("rows", selection, after, limit)
        return found

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        """Ask."""
        found: list[Row] = await self._ask("find", fingerprint, host)
        return [row for row in found if not states or row.state in states]

    async def requeue(
        self, selection: Selection, into: str | None, now: float, after: str, limit: int
    ) -> RequeueResult:
        """Have it done."""
        moved: RequeueResult = await self._ask("requeue", selection, into, now, after, limit)
        return moved

    async def archive(self, segment: str) -> bool:
        """Have it done."""
        archived: bool = await self._ask("archive", segment)
        return archived

    async def drop(self, segment: str) -> int:
        """Have it done."""
        dropped: int = await self._ask("drop", segment)
        return dropped

    async def verify(self, say: Callable[[str], None]) -> list[str]:
        """Ask; the crawl stands still meanwhile, and tells nothing of how far it is."""
        found: list[str] = await self._ask("verify")
        return found

    async def compact(self) -> tuple[int, int]:
        """Have it done; the crawl stands still meanwhile."""
        sizes: tuple[int, int] = await self._ask("compact")
        return sizes

    async def greet(self) -> None:
        """Hear who is there. Raises `NewerState` for another version, `StateLocked` for nobody we know."""
        said = await self._hear(self._answer_max_s)
        if isinstance(said, Refusal):
            raise messages.error_of(said)
        if not isinstance(said, Hello):
            raise self._stranger()
        if said.version != messages.VERSION:
            raise NewerState(f"{self._path}: process {said.pid} runs another version of Lycosa: use that one here too")
        self.pid = said.pid

    async def _ask(self, method: str, *arguments: object) -> Any:
        async with self._asking:
            try:
                async with asyncio.timeout(self._answer_max_s):
                    await write_frame(self._writer, messages.call(method, *arguments))
            except TimeoutError as error:
                raise self._hangs(self._answer_max_s) from error
            except OSError as error:
                raise self._gone() from error
            said = await self._hear(WHOLE_MAX_S if method in WHOLE else self._answer_max_s, WORK.get(method, ""))
        if isinstance(said, Refusal):
            raise messages.error_of(said)
        if not isinstance(said, Answer):
            raise self._stranger()
        try:
            return msgspec.msgpack.decode(said.value, type=METHODS[method][1])
        except msgspec.MsgspecError as error:
            raise self._stranger() from error

    async def _hear(self, max_s: float, work: str = "") -> Hello | Answer | Refusal:
        telling = asyncio.get_running_loop().call_later(SILENT_MAX_S, self._tell, max_s, work)
        try:
            async with asyncio.timeout(max_s):
                said: Hello | Answer | Refusal = messages.decode_said(await read_frame(self._reader))
        except TimeoutError as error:
            raise self._hangs(max_s) from error
        except (OSError, EOFError) as error:
            raise self._gone() from error
        except (ValueError, msgspec.MsgspecError) as error:
            raise self._stranger() from error
        finally:
            telling.cancel()
        return said

    def _tell(self, max_s: float, work: str) -> None:
        """Say once who does not answer, or what it is at, and for how long it is waited for."""
        if work:
            self._say(f"{self._path}: {self._who()} {work} all that is stored, and its crawl stands still meanwhile")
        elif not self._said:
            self._said = True
            silent = f"{self._path}: {self._who()} has not answered for {SILENT_MAX_S:g} s"
            self._say(f"{silent}: it is waited for, {max_s:g} s at most")

    def _who(self) -> str:
        """Name the owner; one that never said a word is known by its lock."""
        pid = str(self.pid or owner_of(self._path.parent))
        return f"process {pid}" if pid.isdecimal() else "the owner"

    def _hangs(self, max_s: float) -> StateError:
        who, pid = self._who(), f"kill -CONT {self.pid or owner_of(self._path.parent)}"
        advice = f"; {pid} lets a stopped one go on" if who != "the owner" else ""
        return StateLocked(f"{self._path}: {who} has not answered for {max_s:g} s: it hangs or was stopped{advice}")

    def _gone(self) -> StateError:
        return StateError(f"{self._path}: the crawl has just ended; run the command again")

    def _stranger(self) -> StateError:
        return StateLocked(f"{self._path}: who listens there does not speak like a crawl; stop it")


@asynccontextmanager
async def connected(
    path: Path, answer_max_s: float = ANSWER_MAX_S, say: Callable[[str], None] = lambda _: None
) -> AsyncIterator[RemoteOperations]:
    """Connect to the owner behind the socket `path`. Raises OSError when nobody listens there, and `StateError`.

    `say` hears, once, that the owner takes long to answer.
    """
    reader, writer = await connect(path)
    try:
        remote = RemoteOperations(path, reader, writer, answer_max_s, say)
        await remote.greet()
        yield remote
    finally:
        writer.transport.abort()
