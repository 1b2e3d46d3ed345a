"""Documents in processes of their own: limits of time and memory, and no process that outlives its request."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from waiting import wait_until

from headwise.documents.segments import SentenceTranslation
from headwise.serve.document_session import DocumentSession
from headwise.serve.documents import DocumentFault, DocumentLimits, DocumentProcesses, OpenDocuments, in_thread
from headwise.serve.parameters import RequestError

LIMIT = 4 * 1024 * 1024


def hostile(paragraphs: int = 300_000) -> bytes:
    """A Word document of some kilobytes that unpacks to tens of megabytes."""
    packed = BytesIO()
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "<w:p><w:r><w:t>A</w:t></w:r></w:p>" * paragraphs
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>')
    return packed.getvalue()


def run(work: Callable[[DocumentProcesses], Awaitable[Any]], **limits: int) -> Any:
    async def whole() -> Any:
        processes = DocumentProcesses(DocumentLimits(**limits))
        try:
            return await work(processes)
        finally:
            await processes.close()

    return asyncio.run(whole())


async def read(processes: DocumentProcesses, name: str, content: bytes) -> str:
    async with processes.open(is_html=False) as documents:
        return (await documents.read_file(name, content, ("en", "de"), LIMIT))[0]


async def upper(documents: OpenDocuments) -> list[bytes]:
    """Filled with the sentences in capital letters."""
    requests = await documents.start("en", False, 1)
    while any(requests):
        requests = await documents.answer(
            [[SentenceTranslation(text.upper()) for text in one.texts] if one else [] for one in requests]
        )
    return await documents.filled()


def family(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [one for child in map(int, children) for one in (child, *family(child))]


def test_documents_are_filled_in_their_process() -> None:
    async def work(processes: DocumentProcesses) -> Any:
        async with processes.open(is_html=True) as documents:
            await documents.read_html(["<p>A dog.</p>", "", "a cat 😀"])
            return await upper(documents)

    assert run(work) == [b"<p>A DOG.</p>", b"", "A CAT 😀".encode()]


def test_errors_are_those_of_reading() -> None:
    async def work(processes: DocumentProcesses) -> None:
        with pytest.raises(RequestError, match="file format not supported") as caught:
            await read(processes, "a.exe", b"")
        assert caught.value.status == 400
        with pytest.raises(RequestError, match=r"^a\.po"):
            await read(processes, "a.po", b'msgid "a')

    run(work)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are for Linux")
def test_too_much_memory_ends_that_document_alone() -> None:
    async def work(processes: DocumentProcesses) -> None:
        async with processes.open(is_html=True) as other:
            await other.read_html(["A dog."])
            with pytest.raises(RequestError, match="needed more than 80 MiB of memory") as caught:
                await read(processes, "a.docx", hostile())
            assert caught.value.status == 413
            assert await upper(other) == [b"A DOG."]

    run(work, memory=80 * 1024 * 1024)


@pytest.mark.skipif(sys.platform == "win32", reason="documents are read in threads")
def test_too_much_time_ends_that_document_alone() -> None:
    async def work(processes: DocumentProcesses) -> None:
        with pytest.raises(RequestError, match="took more than 1 s; send a smaller document") as caught:
            async with processes.open(is_html=False) as documents:
                await documents.read_file("a.docx", hostile(), ("en", "de"), LIMIT)
                for _ in range(1000):
                    await documents.start("en", False, 1)
        assert caught.value.status == 504
        assert await read(processes, "a.txt", b"A dog.") == "A dog."

    run(work, seconds=1)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_request_that_ends_early_ends_its_process() -> None:
    async def work(processes: DocumentProcesses) -> None:
        assert await read(processes, "a.txt", b"A dog.") == "A dog."
        await asyncio.to_thread(wait_until, lambda: len(family(os.getpid())) == before + 1)  # the one that forks
        reading = asyncio.create_task(read(processes, "a.docx", hostile()))
        while len(family(os.getpid())) == before + 1:
            await asyncio.sleep(0.01)
        reading.cancel()
        await asyncio.to_thread(wait_until, lambda: len(family(os.getpid())) == before + 1)
        assert reading.cancelled()

    before = len(family(os.getpid()))
    run(work)
    assert len(family(os.getpid())) == before


def test_others_wait_for_a_free_process() -> None:
    async def work(processes: DocumentProcesses) -> None:
        async with processes.open(is_html=False):
            waiting = asyncio.create_task(read(processes, "a.txt", b"A dog."))
            done, _ = await asyncio.wait([waiting], timeout=0.05)
            assert not done
        assert await waiting == "A dog."

    run(work, files=1)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_forking_process_is_replaced() -> None:
    async def work(processes: DocumentProcesses) -> None:
        await read(processes, "a.txt", b"A dog.")
        forking = next(one for one in family(os.getpid()) if one not in before)
        with pytest.raises(DocumentFault):
            async with processes.open(is_html=False) as documents:
                os.kill(forking, signal.SIGKILL)
                while True:
                    await documents.read_file("a.docx", hostile(), ("en", "de"), LIMIT)
        assert await read(processes, "a.txt", b"A dog.") == "A dog."

    before = family(os.getpid())
    run(work, seconds=1)  # of processor time


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_a_killed_server() -> None:
    code = (
        "import asyncio, sys\n"
        "from test_documents import hostile, read\n"
        "from headwise.serve.documents import DocumentLimits, DocumentProcesses\n"
        "async def work():\n"
        "    await read(DocumentProcesses(DocumentLimits()), 'a.docx', hostile())\n"
        "asyncio.run(work())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    ) as server:
        wait_until(lambda: len(family(server.pid)) == 2)
        processes = family(server.pid)
        server.kill()
    wait_until(lambda: not any(alive(process) for process in processes))


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_bug_is_reported_without_the_text(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    async def work(processes: DocumentProcesses) -> None:
        async with processes.open(is_html=True) as documents:
            with pytest.raises(DocumentFault, match="KeyError"):
                await documents.exchange({"do": "read", "is_html": True, "secret": "A dog."}, b"")

    run(work)
    assert '"event": "fault", "error": "KeyError"' in (log := capfd.readouterr().err) and "A dog" not in log


def test_a_session_answers_in_a_thread_alike() -> None:
    """As on systems that cannot fork."""

    async def work() -> list[bytes]:
        documents = OpenDocuments(in_thread(DocumentSession()))
        assert await documents.read_file("a.txt", b"A dog.\n", ("en", "de"), LIMIT) == ("A dog.", {})
        return await upper(documents)

    assert asyncio.run(work()) == [b"A DOG.\n"]
