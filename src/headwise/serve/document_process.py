"""The processes in which documents are read and filled, each forked from a small one for the documents of a request.

The server starts `fork_documents` as its own program, without torch and without threads, so that forking is safe and
takes milliseconds. A process has limits of processor time and memory, set by the kernel; it is killed when the server
says so, or when the server has ended for any reason. See `documents` for the server's side.
"""

import gc
import math
import os
import select
import signal
import socket
import struct
import sys
import traceback
from contextlib import suppress
from io import BufferedRWPair
from pathlib import Path

from headwise.documents.fill import translation_steps
from headwise.documents.reading import READERS, parse_document
from headwise.errors import UserError
from headwise.serve.document_session import DocumentSession, frame, read_frame

if sys.platform != "win32":
    import resource

ORDER = struct.Struct("!q")  # from the server: FORK, with a socket, or the number of a process to kill
ENDING = struct.Struct("!qq")  # to the server: number of a process, and its exit code or negative signal
FORK = 0
OUT_OF_MEMORY = 3  # exit code
NICENESS = 5  # below the server's own work


def fork_documents(control: int) -> None:
    """Fork and kill processes until the socket with this number is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to a whole group; the server finishes its requests first
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    load_optional_libraries()
    gc.collect()
    gc.freeze()  # so that collections in forked processes do not copy this memory
    server, children = socket.socket(fileno=control), set[int]()
    woken = _wake_at_endings()
    try:
        while True:
            ready, _, _ = select.select([server, woken], [], [])
            if woken in ready:
                os.read(woken, 1024)
                _report_endings(server, children)
            if server in ready and not _obey(server, children):
                return
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def load_optional_libraries() -> None:
    """Load all formats and their libraries, which would otherwise be loaded in every process, within its limits."""
    _ = [*READERS.values()]
    for name in ("a.html", "a.md"):
        with suppress(UserError):  # not installed
            for _ in translation_steps(parse_document(name, b"A dog."), "en", markers=False):
                break


def _wake_at_endings() -> int:
    """A pipe that becomes readable when a process ends."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, where: None)
    return reading


def _report_endings(server: socket.socket, children: set[int]) -> None:
    for child in list(children):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            children.discard(child)
            with suppress(OSError):  # the server has ended
                server.sendall(ENDING.pack(child, os.waitstatus_to_exitcode(status)))


def _obey(server: socket.socket, children: set[int]) -> bool:
    """Do what the server asks for; False if it has ended."""
    content, handles, _, _ = socket.recv_fds(server, ORDER.size, 1)
    if len(content) < ORDER.size:
        return False
    (order,) = ORDER.unpack(content)
    if order != FORK:
        if order in children:  # not waited for yet, so the number is not in use again
            os.kill(order, signal.SIGKILL)
        return True
    child = os.fork()
    if not child:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        server.close()
        _work(handles[0])
    os.close(handles[0])
    children.add(child)
    return True


def _work(handle: int) -> None:
    """Serve the documents of one request, in a process of their own."""
    code = 1
    with suppress(BaseException), socket.socket(fileno=handle) as connection, connection.makefile("rwb") as stream:
        stream.write(frame({"process": os.getpid()}))
        stream.flush()
        try:
            _reply_to_all(stream)
            code = 0
        except MemoryError:
            code = OUT_OF_MEMORY
    os._exit(code)


def _reply_to_all(stream: BufferedRWPair) -> None:
    session, before = DocumentSession(), address_space()
    while message := read_frame(stream):
        call, content = message
        try:
            if call["do"] == "limit":
                limit_process(call["seconds"], before + call["memory"])
                continue
            reply = frame(*session.handle(call, content))
        except MemoryError:
            raise
        except UserError as error:
            reply = frame({"error": str(error), "status": getattr(error, "status", 400)})
        except Exception as error:  # a bug; its message may contain the text, and is not logged
            reply = frame({"fault": type(error).__name__, "where": traceback.format_tb(error.__traceback__)})
        stream.write(reply)
        stream.flush()


def limit_process(seconds: int, memory: int) -> None:
    """Limit this process to `seconds` more of processor time, and to an address space of `memory` bytes."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(
        resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, resource.RLIM_INFINITY)
    )
    with suppress(OSError, ValueError):  # not on macOS
        resource.setrlimit(resource.RLIMIT_AS, (memory, resource.RLIM_INFINITY))


def address_space() -> int:
    """The bytes of this process's address space; a large number where the system has no /proc."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return 1 << 40
