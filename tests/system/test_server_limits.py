"""Attacks on a server on loopback: it goes on answering others, within its limits."""

import http.client
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from itertools import count
from math import ceil
from pathlib import Path, PurePosixPath
from statistics import median
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from programs import Program
from waiting import wait_until

BOUNDARY = "a-boundary"
FORM_DATA = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = {"Content-Type": "application/json"}
PART = 4  # half of the answers of GET /health beside an attack take less than this part of the slowest attack
MIB = 1024 * 1024
DOCUMENT = 64 * MIB
BODIES = 32 * MIB


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
        log.join()  # before its pipe is closed


def ask(port: int, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
    """The status and the JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        content = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path, content, headers or JSON)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def upload(port: int, name: str, content: bytes, path: str = "/translate_file") -> Any:
    fields = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in (("source", "en"), ("target", "de"))
    )
    file = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = (fields + file).encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return ask(port, "POST", path, body, FORM_DATA)


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
    """Bytes of a process, with its share of the pages that it has in common with others (PSS); 0 if it has ended.

    Forked processes have most of their pages in common; the sum of their resident sets would count these each time.
    """
    with suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return 0


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks into /proc")
def test_hostile_documents_stop_nobody_else(model_path: Path, pace: float) -> None:
    """Six at once: two processes at a time read them, and have no more memory than they may."""
    arguments = ("--document-memory", DOCUMENT, "--max-documents", 2, "--document-seconds", ceil(20 * pace))
    with serving(model_path, *arguments) as (server, port):
        assert ask(port, "POST", "/translate", {"q": "<p>a</p>", "source": "en", "target": "de", "format": "html"})
        assert ask(port, "POST", "/detect", {"q": "A dog runs."})  # loads the detector
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
        server.wait()
        assert children
        others = {child for child in children if memory(child)}
        while others:
            others = {child for child in others if memory(child)}


# Each kind of attack on one server -----------------------------------------------------------------------------------

Server = tuple[int, int]  # port and number of the process
LANGUAGES = {"source": "en", "target": "de"}
ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
BOMB = f'<!DOCTYPE r [<!ENTITY e0 "ha">{ENTITIES}]>'
WORD = "word/document.xml"


@pytest.fixture(scope="module")
def attacked(model_path: Path, copying: Any, pace: float) -> Iterator[Server]:
    """A server with small limits, which has translated a text and an HTML page."""
    work, arrival = ceil(10 * pace), ceil(2 * pace)
    limits = ("--document-memory", DOCUMENT, "--max-documents", 2, "--document-seconds", work, "--max-seconds", work)
    limits += ("--max-body-memory", BODIES, "--arrival-seconds", arrival, "--max-jobs", 4)
    zip_bomb()  # created before it is sent
    many_members()
    with serving(model_path, *limits) as (server, port):
        translated(port, copying)
        yield port, server.pid


def translated(port: int, copying: Any) -> None:
    """Checks that the server translates, as soon as it has time again, and detects languages."""
    for kind, page in (("text", "a b c d"), ("html", "<p>a b c d</p>")):
        body = {"q": page, **LANGUAGES, "format": kind}
        wanted = page.replace("a b c d", copying[0].translate(["a b c d"])[0].text)
        answer = ask(port, "POST", "/translate", body)
        while answer[0] == 504:  # what an attack has left in the queue
            answer = ask(port, "POST", "/translate", body)
        assert answer == (200, {"translatedText": wanted})
    assert ask(port, "POST", "/detect", {"q": "A dog runs."})[0] == 200


def archive_of(**members: bytes) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def send(port: int, content: bytes, then: Callable[[socket.socket], None] | None = None) -> bytes:
    """The first bytes of the answer to bytes that need not be HTTP; empty if the connection was closed."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
        with suppress(OSError):  # closed before everything was sent
            client.sendall(content)
            if then:
                then(client)
        return client.recv(12)
    return b""


def status_of(port: int, body: Any, headers: Any = None, path: str = "/translate") -> int:
    """The status of a request; 413 if the server closed the connection while the body was sent."""
    with suppress(ConnectionError):
        return ask(port, "POST", path, body, headers)[0]
    return 413


def slow(client: socket.socket) -> None:
    """Sends a byte now and then, until the server closes the connection."""
    while True:
        client.sendall(b"a")
        time.sleep(0.2)


def flood_jobs(port: int, _: int) -> int:
    status, answer = upload(port, "a.txt", b"a b.\n" * 5000, "/v1/documents")
    if status == 202:
        assert ask(port, "DELETE", answer["url"])[0] == 200
    return status


Attack = Callable[[int, int], int | bytes]  # of a port, and the number of the attempt: a status or the answer's start
TEXT = {**LANGUAGES, "format": "text"}
ATTACKS: dict[str, tuple[Attack, set[int | bytes]]] = {
    "long sentence": (lambda port, _: status_of(port, {"q": "a b c " * 16_500, **TEXT}), {200, 504}),
    "long word": (lambda port, _: status_of(port, {"q": "ab" * 49_500, **TEXT}), {200, 504}),
    "many sentences": (lambda port, n: status_of(port, {"q": f"a b {n}. " * 9000, **TEXT}), {200, 429, 504}),
    "many texts": (lambda port, _: status_of(port, {"q": ["a"] * 500_000, **TEXT}), {400}),
    "many headers": (
        lambda port, _: send(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 50_000),
        {b"HTTP/1.1 431", b""},
    ),
    "long header": (
        lambda port, _: send(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"b" * 8_000_000),
        {b"HTTP/1.1 431", b""},
    ),
    "slow header": (
        lambda port, _: send(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ", slow),
        {b"HTTP/1.1 408", b""},
    ),
    "slow body": (
        lambda port, _: send(port, b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n", slow),
        {b"HTTP/1.1 408", b"HTTP/1.1 415", b"HTTP/1.1 400", b""},
    ),
    "large body": (lambda port, _: status_of(port, b'{"q": "' + b"a" * (5 * MIB), JSON), {413}),
    "body of many characters": (lambda port, _: status_of(port, {"q": "a" * (3 * MIB), **TEXT}), {400, 503}),
    "body without length": (
        lambda port, _: status_of(port, (b"a" * MIB for _ in range(40)), {**JSON, "Transfer-Encoding": "chunked"}),
        {413, 503},
    ),
    "deep lists": (lambda port, _: status_of(port, b"[" * 3_000_000, JSON), {400, 503}),
    "deep objects": (lambda port, _: status_of(port, b'{"q":' * 600_000, JSON), {400, 503}),
    "long number": (lambda port, _: status_of(port, b'{"q": ' + b"9" * 3_000_000 + b"}", JSON), {400, 503}),
    "deep HTML": (
        lambda port, _: status_of(port, {"q": "<div>" * 19_000, **LANGUAGES, "format": "html"}),
        {200, 400, 413, 504},
    ),
    "unclosed HTML": (
        lambda port, _: status_of(port, {"q": "<a <b <!-- " * 9000, **LANGUAGES, "format": "html"}),
        {200, 400, 413, 504},
    ),
    "brackets of Markdown": (lambda port, _: upload(port, "a.md", b"[a](" * 24_000)[0], {200, 400, 413, 504}),
    "entity bomb": (
        lambda port, _: upload(port, "a.xliff", f"{BOMB}<xliff>&e9;</xliff>".encode())[0],
        {400},
    ),
    "entity bomb in an archive": (
        lambda port, _: upload(port, "a.docx", archive_of(**{WORD: f"{BOMB}<r>&e9;</r>".encode()}))[0],
        {400},
    ),
    "zip bomb": (lambda port, _: upload(port, "a.docx", zip_bomb())[0], {400, 413}),
    "many members": (lambda port, _: upload(port, "a.odt", many_members())[0], {400, 413, 504}),
    "long name": (lambda port, _: upload(port, "\u00df" * 5000 + ".txt", b"a b")[0], {200, 400}),
    "half characters": (
        lambda port, _: status_of(port, b'{"q": "\\ud800", "source": "\\udfff", "target": "de"}', JSON),
        {400},
    ),
    "another site": (
        lambda port, n: status_of(
            port,
            b"q=a&source=en&target=de",
            {"Content-Type": "application/x-www-form-urlencoded", **SITES[n % len(SITES)]},
        ),
        {403},
    ),
    "many jobs": (flood_jobs, {202, 429}),
}
SITES = ({"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"})


@cache
def zip_bomb() -> bytes:
    """A Word document of 0.3 MB whose text has 256 MiB."""
    return archive_of(**{WORD: b"<w:document>" + b" " * (256 * MIB)})


@cache
def many_members() -> bytes:
    return archive_of(**{"content.xml": b"<r/>"}, **{f"{n}.xml": b"" for n in range(20_000)})


def results_beside(
    server: Server, pace: float, attack: Callable[[int], Any], clients: int = 6
) -> tuple[list[Any], int]:
    """The results of an attack of several clients, and the most memory. Others are answered meanwhile."""
    port, process = server
    numbers, health = count(), []
    most, slowest = 0, 0.0

    def seconds_of_health() -> float:
        start = time.monotonic()
        assert ask(port, "GET", "/health") == (200, {"status": "ok"})
        return time.monotonic() - start

    def timed() -> Any:
        nonlocal slowest
        start = time.monotonic()
        result = attack(next(numbers))
        slowest = max(slowest, time.monotonic() - start)
        return result

    with ThreadPoolExecutor(clients) as pool:
        running = [pool.submit(timed) for _ in range(clients)]
        while not health or not all(one.done() for one in running):
            health.append(seconds_of_health())
            most = max(most, sum(map(memory, (process, *family(process)))))
            time.sleep(0.02)
    assert median(health) < max(slowest / PART, 2 * pace), "an attack stops others"
    return [one.result() for one in running], most


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks into /proc")
@pytest.mark.few(12)
@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_stop_nobody_else(attacked: Server, copying: Any, pace: float, name: str) -> None:
    """Memory: two documents, the bodies, what 16 processes of HTML share, and 150 MiB for the model's batches."""
    attack, answers = ATTACKS[name]
    before = sum(map(memory, (attacked[1], *family(attacked[1]))))
    found, most = results_beside(attacked, pace, lambda number: attack(attacked[0], number))
    assert set(found) <= answers
    assert most < before + 2 * DOCUMENT + BODIES + 150 * MIB
    translated(attacked[0], copying)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks into /proc, and needs 127.0.0.2")
def test_hundreds_of_slow_clients_stop_nobody_else(attacked: Server, copying: Any, pace: float) -> None:
    """From two other addresses, each with less connections than are allowed."""
    open_sockets = [socket.create_connection(("127.0.0.1", attacked[0]), None, (f"127.0.0.{n}", 0))
                    for n in (2, 3) for _ in range(200)]  # fmt: skip
    for client in open_sockets:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: localhost\r\nX-A: ")

    def send_a_byte_to_all(_: int) -> int:
        time.sleep(0.1)
        return sum(map(is_open, open_sockets))

    def is_open(client: socket.socket) -> bool:
        with suppress(OSError):
            client.sendall(b"a")
            return True
        return False

    found, _ = results_beside(attacked, pace, send_a_byte_to_all, clients=1)
    assert found[0] == len(open_sockets)
    wait_until(lambda: not send_a_byte_to_all(0))
    for client in open_sockets:
        client.close()
    translated(attacked[0], copying)


@pytest.mark.parametrize("content", [b"", b"\xff" * 4096], ids=["shortened", "overwritten"])
def test_overwritten_models_keep_serving(
    model_path: Path, tmp_path: Path, copying: Any, cli: Any, content: bytes
) -> None:
    """Files that are changed in place, which kills a process that has mapped them into its memory."""
    shutil.copytree(model_path, tmp_path / "model")
    assert cli("pack", tmp_path / "model", "--compute", "int8").code == 0
    assert (tmp_path / "model" / "packed.int8").exists()
    with serving(tmp_path / "model", "--compute", "int8") as (_, port):
        translated(port, copying)
        for file in (tmp_path / "model").rglob("*"):
            if file.is_file():
                with file.open("r+b") as overwritten:
                    overwritten.truncate(len(content))
                    overwritten.write(content)
        translated(port, copying)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="looks into /proc")
def test_killed_document_processes_are_replaced(attacked: Server, copying: Any, pace: float) -> None:
    """Also the process that forks the others; a request whose process is killed gets an error."""
    port, process = attacked

    def attack(number: int) -> int:
        if number % 2:
            for child in family(process):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.1)
        return status_of(port, {"q": f"<p>a b {number}</p>", **LANGUAGES, "format": "html"})

    found, _ = results_beside(attacked, pace, attack)
    assert set(found) <= {200, 413, 500, 504}
    translated(port, copying)


@pytest.mark.parametrize("folder", ["../", "../../../../tmp/", "/tmp/", "..\\..\\", "%2e%2e%2f"])
def test_names_of_files_lead_nowhere_else(attacked: Server, copying: Any, folder: str) -> None:
    name = f"outside-{uuid4().hex}.txt"
    status, answer = upload(attacked[0], folder + name, b"a b c d")
    assert status == 200
    path = urlsplit(answer["translatedFileUrl"]).path
    assert PurePosixPath(path).parent == PurePosixPath("/download_file") and ".." not in path and "%" not in path
    client = http.client.HTTPConnection("127.0.0.1", attacked[0])
    client.request("GET", path)
    assert client.getresponse().read().decode() == copying[0].translate(["a b c d"])[0].text
    client.close()
    for elsewhere in (Path.cwd(), Path.cwd().parent, Path(tempfile.gettempdir()), Path("/tmp"), Path("/")):
        assert not (elsewhere / name).exists()
