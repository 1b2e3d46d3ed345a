"""Documents of requests (files, HTML), each request's in a process of its own with limits of time and memory.

Only sentences and outputs cross its socket; the document stays in the process from reading to filling. A request that
ends early kills its process. On systems that cannot fork (Windows), documents are read in threads, without these
limits. See `document_process` and `document_session` for the process.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from headwise.documents.segment_memory import SegmentMemory
from headwise.documents.segments import SentenceRequest, SentenceTranslation
from headwise.serve.access import log_event
from headwise.serve.document_process import ENDING, FORK, ORDER, OUT_OF_MEMORY
from headwise.serve.document_session import LENGTHS, DocumentSession, Message, frame, output_values, split_content
from headwise.serve.parameters import RequestError

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
HTML_SHARE = 8  # an HTML text, which is limited in characters, gets this part of the memory of a file
MOST_BYTES = 256 * 1024 * 1024  # of a message from a process
IDLE = 16  # processes of HTML texts that are kept for later ones
USES = 200  # requests with HTML texts that a process serves
PATIENCE = 5.0  # seconds for a process to end


@dataclass(frozen=True)
class DocumentLimits:
    """Limits of the processes that read and fill documents."""

    files: int = 4  # translated at the same time; others wait
    html: int = 32  # requests with HTML texts, at the same time
    seconds: int = 20  # of processor time for the documents of a request
    memory: int = 512 * 1024 * 1024  # bytes for a file


class DocumentFault(Exception):
    """A bug in the process of a document; the log has the details."""


DocumentCall = Callable[[Mapping[str, Any], bytes], Awaitable[Message]]


@dataclass(frozen=True)
class OpenDocuments:
    """The documents of a request, one translation of each for every rank."""

    exchange: DocumentCall

    async def read_file(
        self, name: str, content: bytes, languages: Sequence[str], limit: int
    ) -> tuple[str, dict[str, int]]:
        """Parse a file (`parse_upload`); returns the beginning of its text, and `count_kinds` of what it leaves.

        Raises:
            RequestError: unsupported, invalid or too large; status 413 or 504 if it needs too much memory or time.
        """
        call = {"do": "read", "is_html": False, "name": name, "languages": list(languages), "limit": limit}
        reply, _ = await self.exchange({**call, "sizes": [len(content)]}, content)
        return reply["sample"], reply["not_translated"]

    async def read_html(self, texts: Sequence[str]) -> None:
        """Parse HTML texts; `RequestError` as for `read_file`."""
        parts = [text.encode() for text in texts]
        await self.exchange({"do": "read", "is_html": True, "sizes": [len(part) for part in parts]}, b"".join(parts))

    async def start(
        self, language: str, markers: bool, n_best: int, has_memory: bool = False
    ) -> list[SentenceRequest | None]:
        """The sentences to translate for each document and rank; None if there are none."""
        call = {"do": "start", "language": language, "markers": markers, "n_best": n_best, "has_memory": has_memory}
        return self._requests(await self.exchange(call, b""))

    async def answer(self, outputs: Sequence[Sequence[SentenceTranslation]]) -> list[SentenceRequest | None]:
        """Continue with the translations of all sentences; returns the next ones."""
        values = [[output_values(output) for output in run] for run in outputs]
        return self._requests(await self.exchange({"do": "answer", "outputs": values}, b""))

    async def filled(self) -> list[bytes]:
        """The translated files, ranks of the first document first."""
        reply, content = await self.exchange({"do": "fill"}, b"")
        return split_content(content, reply["sizes"])

    async def warnings(self) -> dict[str, int]:
        """The number of each quality warning in the first translation (`count_warnings`)."""
        return (await self.exchange({"do": "warnings"}, b""))[0]

    async def report(self, memory: SegmentMemory | None = None) -> bytes:
        """The report on the first translation (`fill_report`), as JSON; with the matches of each unit in a memory."""
        found: dict[str, Any] | None = None
        if memory:
            keys = (await self.exchange({"do": "keys"}, b""))[0]["keys"]
            matches = {key: await asyncio.to_thread(memory.best_match, (key,)) for key in keys}
            found = {key: asdict(match) for key, match in matches.items() if match}
        return (await self.exchange({"do": "report", "matches": found}, b""))[1]

    @staticmethod
    def _requests(message: Message) -> list[SentenceRequest | None]:
        return [one and SentenceRequest(**one) for one in message[0]["requests"]]


class DocumentProcesses:
    """Starts a process for the documents of each request; `start` and `close` it on an event loop."""

    def __init__(self, limits: DocumentLimits) -> None:
        self._limits = limits
        self._slots = {False: asyncio.Semaphore(limits.files), True: asyncio.Semaphore(limits.html)}
        self._fork_server: ForkServer | None = None
        self._idle: list[DocumentProcess] = []

    async def start(self) -> None:
        """Start the process from which those of documents are forked, if it does not run."""
        if hasattr(os, "fork") and not (self._fork_server and self._fork_server.runs):
            ended, self._fork_server = self._fork_server, ForkServer()
            if ended:
                await ended.close()

    async def close(self) -> None:
        """End all processes."""
        for process in self._idle:
            process.end()
        if self._fork_server:
            await self._fork_server.close()

    @asynccontextmanager
    async def open(self, is_html: bool) -> AsyncIterator[OpenDocuments]:
        """A process for documents. It ends with the block; one for HTML texts serves later ones, unless it failed."""
        async with self._slots[is_html]:
            await self.start()
            if not self._fork_server:
                yield OpenDocuments(in_thread(DocumentSession()))
                return
            process = self._idle_process() if is_html else None
            process = process or await DocumentProcess.start(self._fork_server)
            try:
                memory = self._limits.memory // (HTML_SHARE if is_html else 1)
                process.limit(self._limits.seconds, memory)
                yield OpenDocuments(process.exchange)
                if is_html and process.uses < USES and len(self._idle) < IDLE:
                    await process.exchange({"do": "forget"}, b"")
                    self._idle.append(process)
            finally:
                if process not in self._idle:
                    process.end()

    def _idle_process(self) -> "DocumentProcess | None":
        while self._idle:
            process = self._idle.pop()
            if not process.reader.at_eof():
                return process
            process.end()
        return None


def in_thread(session: DocumentSession) -> DocumentCall:
    """The calls of a session in a thread of this process, without limits."""

    async def exchange(call: Mapping[str, Any], content: bytes) -> Message:
        return await asyncio.to_thread(session.handle, call, content)

    return exchange


class ForkServer:
    """The program of `document_process`, and how the processes that it forked have ended."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            path = os.pathsep.join(filter(None, sys.path))
            self._program = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from headwise.serve.document_process import fork_documents; fork_documents({number})",
                ],
                env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # the log of the server has lines of JSON
            )
        self._control.setblocking(False)
        self._endings: dict[int, asyncio.Future[int]] = {}
        self._reader = asyncio.create_task(self._read_endings())
        self.runs = True

    def fork(self) -> socket.socket:
        """A connection to a new process."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [ORDER.pack(FORK)], [theirs.fileno()])
        return ours

    def kill(self, process: int) -> None:
        """Kill a process, if it still runs."""
        with suppress(OSError):
            self._control.send(ORDER.pack(process))

    def ending(self, process: int) -> "asyncio.Future[int]":
        """The exit code of a process, or its negative signal."""
        return self._endings.setdefault(process, asyncio.get_running_loop().create_future())

    async def _read_endings(self) -> None:
        loop, content = asyncio.get_running_loop(), b""
        with suppress(ConnectionError):
            while received := await loop.sock_recv(self._control, 4096):
                content += received
                while len(content) >= ENDING.size:
                    process, code = ENDING.unpack(content[: ENDING.size])
                    content = content[ENDING.size :]
                    if waiting := self._endings.pop(process, None):
                        waiting.set_result(code)
        self.runs = False  # it ended by itself
        for waiting in self._endings.values():
            waiting.set_result(1)

    async def close(self) -> None:
        """End it, with all processes that it forked."""
        self._reader.cancel()
        with suppress(asyncio.CancelledError):
            await self._reader
        self._control.close()
        try:
            await asyncio.to_thread(self._program.wait, PATIENCE)
        except subprocess.TimeoutExpired:
            self._program.kill()
            self._program.wait()


@dataclass(eq=False)
class DocumentProcess:
    """The server's end of a process for documents."""

    server: ForkServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    ending: "asyncio.Future[int]"
    limits: tuple[int, int] = (0, 0)  # seconds and bytes
    uses: int = 0

    @classmethod
    async def start(cls, server: ForkServer) -> "DocumentProcess":
        """Fork a process."""
        try:
            reader, writer = await asyncio.open_connection(sock=server.fork())
        except ConnectionError as error:
            raise DocumentFault("no process for documents") from error
        try:
            hello, _ = await _receive(reader)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise DocumentFault("no process for documents") from error
        except asyncio.CancelledError:
            writer.close()  # ends the process
            raise
        number = hello["process"]
        return cls(server, reader, writer, number, server.ending(number))

    def limit(self, seconds: int, memory: int) -> None:
        """Set the limits of its next documents."""
        self.uses += 1
        self.limits = seconds, memory
        self.writer.write(frame({"do": "limit", "seconds": seconds, "memory": memory}))

    async def exchange(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The reply to a call; `RequestError` for an invalid document, or if a limit is exceeded."""
        try:
            self.writer.write(frame(call, content))
            await self.writer.drain()
            reply, received = await _receive(self.reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise await self._why_it_ended() from None
        if "error" in reply:
            raise RequestError(reply["status"], reply["error"])
        if "fault" in reply:
            log_event(event="fault", error=reply["fault"], where=reply["where"])
            raise DocumentFault(reply["fault"])
        return reply, received

    async def _why_it_ended(self) -> Exception:
        code, (seconds, memory) = None, self.limits
        with suppress(TimeoutError):
            code = await asyncio.wait_for(self.ending, PATIENCE)
        if code == -signal.SIGXCPU:
            return RequestError(504, f"reading and filling took more than {seconds} s; send a smaller document")
        if code in (OUT_OF_MEMORY, -signal.SIGKILL):  # by the system, which is short of memory
            more = f"reading and filling needed more than {memory >> 20} MiB of memory; send a smaller document"
            return RequestError(413, more)
        log_event(event="fault", error="process ended", code=code)
        return DocumentFault(f"exit code {code}")

    def end(self) -> None:
        """Kill it."""
        self.writer.transport.abort()
        self.server.kill(self.number)


async def _receive(reader: asyncio.StreamReader) -> Message:
    length, size = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
    if length + size > MOST_BYTES:
        raise RequestError(413, f"the translated document has more than {MOST_BYTES >> 20} MiB; send a smaller one")
    return json.loads(await reader.readexactly(length)), await reader.readexactly(size)
