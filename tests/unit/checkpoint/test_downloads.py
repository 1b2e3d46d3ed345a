"""`headwise download` from servers of this process: real requests, interrupted, damaged, redirected, or for nothing.

Afterwards the model is in its folder as a whole, or the folder of models is empty.
"""

import io
import os
import resource
import shlex
import signal
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.checkpoint.test_compiled import small_model

import headwise
from headwise import cli
from headwise.cli.commands import download as command
from headwise.errors import UserError
from headwise.runtime.checkpoint import downloads, releases
from headwise.runtime.checkpoint.downloads import unpack_model
from headwise.runtime.checkpoint.hub import folder_of
from headwise.runtime.checkpoint.releases import RELEASES, can_be_downloaded, models_folder

ROOT = Path(__file__).resolve().parents[3]
Answer = Callable[[BaseHTTPRequestHandler], None]


class Server:
    """Answers requests by their paths, with the bytes in `files` or by a call; `asked` are the paths."""

    def __init__(self, address: str) -> None:
        self.address, self.files, self.asked = address, dict[str, "bytes | Answer"](), list[str]()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        found = self.files.get(request.path.split("?")[0])
        if callable(found):
            return found(request)
        send(request, 200 if found else 404, found or b"no such file")


def send(request: BaseHTTPRequestHandler, status: int, body: bytes, announced: int | None = None, **more: str) -> None:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(body) if announced is None else announced), **more}.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here.answer(self)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        here = Server(f"http://127.0.0.1:{listening.server_port}")
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield here
        listening.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small translator as `make sentence-model` zips it."""
    folder = small_model(tmp_path_factory.mktemp("release") / "headwise-en-de")
    return zipped({f"{folder.name}/{path.name}": path.read_bytes() for path in folder.iterdir()})


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def released(server: Server, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of models, which is still empty; `en-de` is released, and on the server."""
    publish(monkeypatch, server, archive)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "127.0.0.1")
    monkeypatch.setenv("HEADWISE_DOWNLOADS", f"{server.address}/files/")
    monkeypatch.setenv("HEADWISE_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "models"


def publish(monkeypatch: pytest.MonkeyPatch, server: Server, content: bytes) -> None:
    one = replace(RELEASES["en-de"], size=len(content), sha256=sha256(content).hexdigest())
    monkeypatch.setitem(RELEASES, "en-de", one)
    server.files["/files/headwise-en-de.zip"] = content


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command fails."""
    capsys.readouterr()
    assert cli.main([*arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


def test_a_downloaded_model_has_a_name(released: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For every command and for `load`; a folder of that name comes first."""
    assert "headwise download en-de" in complaint(capsys, "info", "en-de")
    assert cli.main(["download", "en-de"]) == 0
    assert [path.name for path in released.iterdir()] == ["en-de"]
    said = capsys.readouterr().err
    assert str(released / "en-de") in said and RELEASES["en-de"].licence in said
    hint = said.split("Next: ")[1].split("\n")[0].split()
    assert cli.main(hint[1:]) == 0 and "translation" in capsys.readouterr().out
    Path("text").write_text("a dog\n", encoding="utf-8")
    assert cli.main(["translate", "en-de", "text", "-o", "out", "--draft", "en-de"]) == 0
    assert cli.main(["seal", "en-de"]) == 0
    model = headwise.load("en-de", "cpu")
    assert model.translate(["a dog"], beam_size=1)[0].text == Path("out").read_text(encoding="utf-8").rstrip("\n")
    small_model(tmp_path / "en-de")
    assert folder_of("en-de") == Path("en-de")


def test_a_model_is_downloaded_once(released: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert [cli.main(["download", "en-de"]) for _ in range(2)] == [0, 0]
    assert server.asked == ["/files/headwise-en-de.zip"] and "already" in capsys.readouterr().err
    assert cli.main(["download", "en-de", "runs/copy"]) == 0
    assert {path.name for path in Path("runs").iterdir()} == {"copy"}
    assert cli.main(["info", "runs/copy"]) == 0
    assert "runs/copy: exists already" in complaint(capsys, "download", "en-de", "runs/copy")


def test_the_list(released: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rows() -> dict[str, str]:
        assert cli.main(["download"]) == 0
        return {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}

    size = f"{RELEASES['en-de'].size / 1e6:.1f}"
    assert rows()["en-de"].split()[-1] == size and RELEASES["en-de"].licence in rows()["en-de"]
    assert RELEASES["dates"].instead in rows()["dates"]  # no digest yet
    assert cli.main(["download", "en-de"]) == 0
    assert "downloaded" in rows()["en-de"] and rows()["Downloaded"].endswith(" en-de")


def test_what_is_not_released_yet(released: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command names one that works in an installed package."""
    for typed in (["download", "dates"], ["translate", "dates", "text"], ["info", "dates"]):
        said = complaint(capsys, *typed)
        assert RELEASES["dates"].instead in said and RELEASES["dates"].built_by in said
        assert "headwise download dates" not in said
    for one in RELEASES.values():
        name, *words = shlex.split(one.instead)
        options = cli.parse(words)
        assert name == "headwise" and (words[0] != "download" or can_be_downloaded(options.name))
        assert words[0] != "download" or words[1] not in RELEASES
    assert "did you mean 'en-de'" in complaint(capsys, "download", "en-dee")
    assert "headwise import hf:a/b x" in complaint(capsys, "download", "hf:a/b", "x")
    assert server.asked == []


def ends_early(request: BaseHTTPRequestHandler) -> None:
    send(request, 200, b"PK" * 100, announced=2000)


def ends_early_in_chunks(request: BaseHTTPRequestHandler) -> None:
    request.protocol_version = "HTTP/1.1"
    request.send_response(200)
    request.send_header("Transfer-Encoding", "chunked")
    request.end_headers()
    request.wfile.write(b"800\r\nPK")
    request.close_connection = True


def another_file(request: BaseHTTPRequestHandler) -> None:
    send(request, 200, b"\0" * RELEASES["en-de"].size)


def a_shorter_file(request: BaseHTTPRequestHandler) -> None:
    send(request, 200, b"PK")


def an_endless_file(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        while True:
            request.wfile.write(bytes(1 << 16))
    except OSError:  # the program has read enough
        request.close_connection = True


def in_circles(request: BaseHTTPRequestHandler) -> None:
    send(request, 302, b"", Location=request.path + "?")


def no_answer(request: BaseHTTPRequestHandler) -> None:
    request.wfile.write(b"220 another protocol\r\n")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ends_early, "1,800 bytes too early"),
        (ends_early_in_chunks, "IncompleteRead"),
        (another_file, "not the file that was released"),
        (a_shorter_file, "not the file that was released"),
        (an_endless_file, "not the file that was released"),
        (in_circles, "HTTP Error 302"),
        (no_answer, "BadStatusLine|220 another"),
        (lambda request: send(request, 503, b""), "HTTP Error 503"),
    ],
)
def test_what_a_server_does_wrong(
    answer: Answer, why: str, released: Path, server: Server, archive: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """One attempt, one line, nothing left; the next download works."""
    server.files["/files/headwise-en-de.zip"] = answer
    said = complaint(capsys, "download", "en-de")
    assert any(part in said for part in why.split("|")) and f"{server.address}/files/headwise-en-de.zip" in said
    assert len(server.asked) == 1 or answer is in_circles
    assert [*released.iterdir()] == []
    server.files["/files/headwise-en-de.zip"] = archive
    assert cli.main(["download", "en-de"]) == 0


def test_no_network(released: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("http://127.0.0.1:1", "nonsense"):
        monkeypatch.setenv("HEADWISE_DOWNLOADS", address)
        assert "HEADWISE_DOWNLOADS" in complaint(capsys, "download", "en-de")
        monkeypatch.setenv("ARGOS_PACKAGE_INDEX", address)
        said = complaint(capsys, "download", "argos:en-de")
        assert "set ARGOS_PACKAGE_INDEX to " in said and said.endswith(" import FILE.argosmodel OUT\n")
    assert [*released.iterdir()] == []


def test_the_hub_is_asked_once(
    released: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its own library, which tries some requests again for half a minute."""
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.hf_api").api, "endpoint", server.address)
    server.files["/api/models/owner/none"] = lambda request: send(request, 503, b"")
    assert "hf:owner/none: cannot be fetched" in complaint(capsys, "download", "hf:owner/none")
    assert server.asked == ["/api/models/owner/none"]


def test_redirects_are_followed_and_mirrors_may_be_folders(
    released: Path, server: Server, archive: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/files/headwise-en-de.zip"] = lambda request: send(request, 302, b"", Location="/elsewhere")
    server.files["/elsewhere"] = archive
    assert cli.main(["download", "en-de"]) == 0
    (tmp_path / "headwise-en-de.zip").write_bytes(archive)
    monkeypatch.setenv("HEADWISE_DOWNLOADS", tmp_path.as_uri())
    assert cli.main(["download", "en-de", "copy"]) == 0


def test_a_redirect_that_is_not_encrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    response = io.BytesIO(b"content")
    response.url = "http://example.org/a"  # type: ignore[attr-defined]
    monkeypatch.setattr(downloads, "urlopen", lambda *_, **__: response)
    with pytest.raises(UserError, match=r"https://example\.org/a: leads to http:"):
        downloads.download("https://example.org/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b""


def test_a_killed_download_leaves_nothing_that_looks_complete(
    released: Path, server: Server, archive: bytes, tmp_path: Path
) -> None:
    """Half of the file has arrived; the next download removes that."""
    program = (
        "import sys\nfrom dataclasses import replace\nfrom headwise.cli import main\n"
        "from headwise.runtime.checkpoint.releases import RELEASES\n"
        "RELEASES['en-de'] = replace(RELEASES['en-de'], size=int(sys.argv[1]), sha256=sys.argv[2])\n"
        "main(['download', 'en-de'])\n"
    )
    half, over = threading.Event(), threading.Event()

    def stop(request: BaseHTTPRequestHandler) -> None:
        send(request, 200, archive[: len(archive) // 2], announced=len(archive))
        request.wfile.flush()
        half.set()
        over.wait()

    server.files["/files/headwise-en-de.zip"] = stop
    one = RELEASES["en-de"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    call = [sys.executable, "-c", program, str(one.size), one.sha256]
    with subprocess.Popen(call, env=environment, stderr=subprocess.PIPE) as process:
        half.wait()
        process.kill()
        assert process.wait() == -signal.SIGKILL
    over.set()
    assert [path.name.startswith(".partial-") for path in released.iterdir()] == [True]
    with pytest.raises(UserError, match="headwise download en-de"):
        folder_of("en-de")
    server.files["/files/headwise-en-de.zip"] = archive
    assert cli.main(["download", "en-de"]) == 0
    assert [path.name for path in released.iterdir()] == ["en-de"]


def test_ctrl_c(released: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "unpack_model", interrupt)
    assert cli.main(["download", "en-de"]) == 130
    assert [*released.iterdir()] == []


@pytest.mark.parametrize("part", [0.5, 1.5])
def test_a_full_disk(
    part: float, released: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the archive is written, and while it is unpacked."""
    publish(monkeypatch, server, content := zipped({"m/config.json": b"{}", "m/large": bytes(20_000), "m/x": b"x"}))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    capsys.readouterr()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(part * len(content)), limits[1]))
    try:
        code = cli.main(["download", "en-de"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1) and "free some disk space" in said
    assert [*released.iterdir()] == []


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"m/config.json": b"{}", "../evil": b""}, "names ../evil"),
        ({"m/config.json": b"{}", "m/../../evil": b""}, "outside"),
        ({"m/config.json": b"{}", "/evil": b""}, "outside"),
        ({"m/config.json": b"{}", "..\\evil": b""}, "outside"),
        ({"m/config.json": b"{}", "c:/evil": b""}, "outside"),
        ({"m/model.safetensors": b""}, "contains 0 model folders"),
        ({"m/config.json": b"{}", "n/config.json": b"{}"}, "contains 2 model folders"),
        ({"m/config.json": bytes(3 << 20)}, "unpacks to more than"),
    ],
)
def test_archives_that_are_not_unpacked(files: dict[str, bytes], why: str, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(files))
    with pytest.raises(UserError, match=why.replace(".", r"\.")):
        unpack_model(tmp_path / "a.zip", tmp_path / "deep" / "unpacked")
    assert not [path for path in tmp_path.rglob("*") if path.name == "evil"]


def test_damaged_archives(archive: bytes, tmp_path: Path) -> None:
    for content in (b"", b"text", archive[:-30], archive[:100] + b"\0" * 50 + archive[150:]):
        (tmp_path / "a.zip").write_bytes(content)
        with pytest.raises(UserError, match=r"a\.zip: not a zip archive, or damaged"):
            unpack_model(tmp_path / "a.zip", tmp_path / "unpacked")


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {"HOME": "/home/a"}, "/home/a/.local/share/headwise/models"),
        ("linux", {"HOME": "/home/a", "XDG_DATA_HOME": "/data"}, "/data/headwise/models"),
        ("darwin", {"HOME": "/Users/a"}, "/Users/a/Library/Application Support/headwise/models"),
        ("win32", {"LOCALAPPDATA": "/a/Local"}, "/a/Local/headwise/models"),
        ("linux", {"HOME": "/home/a", "HEADWISE_MODELS": "/m"}, "/m"),
    ],
)
def test_the_folder_of_models(
    system: str, variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_DATA_HOME", "LOCALAPPDATA", "HEADWISE_MODELS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(releases, "sys", SimpleNamespace(platform=system))
    assert models_folder() == Path(folder)


def test_the_table_is_that_of_this_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert command.FILES[1].startswith(project["urls"]["Repository"] + "/releases/download/")
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for one in RELEASES.values():
        assert bool(one.size) == bool(one.sha256)
        assert f"\n{one.built_by.removeprefix('make ')}:" in targets
