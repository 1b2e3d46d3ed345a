"""Attacks on a server on loopback: it goes on answering others, within its limits."""

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from programs import Program

BOUNDARY = "a-boundary"
FORM_DATA = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"Content-Type": "application/json"}
PATIENCE = 60  # seconds for work that is limited
SOON = 10  # seconds for an answer beside attacks: about a hundredth of a second, on a machine with much other load
MIB = 1024 * 1024
DOCUMENT = 64 * MIB


@contextmanager
def serving(*arguments: object) -> Iterator[tuple[Program, int]]:
    """A server and its port."""
    with Program(["serve", *arguments, "--languages", "en-de", "--port", 0, "--device", "cpu"]) as server:
        port = urlsplit(json.loads(server.stderr.readline())["url"]).port
        assert port
        log = Thread(target=list, args=[server.stderr], daemon=True)  # so that its pipe does not fill
        log.start()
        yield server, port
        server.kill()
        log.join(PATIENCE)  # before its pipe is closed


def ask(port: int, method: str, path: str, body: Any = None, headers: Any = None, seconds: float = SOON) -> Any:
    """The status and the JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path, content, headers or JSON)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def upload(port: int, name: str, content: bytes) -> Any:
    fields = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (("source", "en"), ("target", "de"))
    )
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = (fields + file).encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return ask(port, "POST", "/translate_file", body, FORM_DATA, PATIENCE)


def hostile_document() -> bytes:
    """A Word document of 30 KB with 300,000 paragraphs, whose units take hundreds of megabytes."""
    packed = BytesIO()
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "<w:p><w:r><w:t>A</w:t></w:r></w:p>" * 300_000
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{namespace}"><w:body>{body}</w:body></w:document>')
    return packed.getvalue()


def others_are_answered_while(port: int, attacks: Callable[[ThreadPoolExecutor], list[Any]], pid: int) -> Any:
    """The results of attacks, beside which other requests are answered; and the most memory of the server."""
    most = 0
    with ThreadPoolExecutor(16) as pool:
        running = attacks(pool)
        while not all(one.done() for one in running):
            assert ask(port, "GET", "/health") == (200, {"status": "ok"})
            status, _ = ask(port, "POST", "/detect", {"q": "A dog runs."})
            assert status == 200
            most = max(most, sum(map(memory, (pid, *family(pid)))))
            time.sleep(0.02)
        return [one.result() for one in running], most


def family(process: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return [one for child in map(int, children) for one in (child, *family(child))]
    return []


def memory(process: int) -> int:
    """Bytes of a process."""
    with suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks into /proc")
def test_hostile_documents_stop_nobody_else(model_path: Path) -> None:
    """Six at once: two processes at a time read them, and have no more memory than they may."""
    arguments = ("--document-memory", DOCUMENT, "--max-documents", 2, "--document-seconds", 10)
    with serving(model_path, *arguments) as (server, port):
        assert ask(port, "POST", "/translate", {"q": "<p>a</p>", "source": "en", "target": "de", "format": "html"})
        assert ask(port, "POST", "/detect", {"q": "A dog runs."}, seconds=PATIENCE)  # loads the detector
        before = sum(map(memory, (server.pid, *family(server.pid))))
        document = hostile_document()
        answers, most = others_are_answered_while(
            port, lambda pool: [pool.submit(upload, port, "a.docx", document) for _ in range(6)], server.pid
        )
        assert {status for status, _ in answers} == {413}
        assert answers[0][1] == {
            "error": "reading and filling needed more than 64 MiB of memory; send a smaller document"
        }
        assert most < before + 2 * DOCUMENT + 100 * MIB
        children = family(server.pid)
        server.kill()
        server.wait(PATIENCE)
        assert children
        others = {child for child in children if memory(child)}
        while others:
            others = {child for child in others if memory(child)}
