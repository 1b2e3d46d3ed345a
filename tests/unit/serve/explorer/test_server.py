"""The explorer over HTTP, without real models: who may ask, what is refused, and that nobody waits in vain."""

import http.client
import json
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread
from typing import Any

import pytest

from headwise.errors import UserError
from headwise.serve.explorer.answers import ExplorerModel, RequestQueue, Superseded
from headwise.serve.explorer.requests import ExplorerRequest
from headwise.serve.explorer.server import ExplorerServer

JSON = {"Content-Type": "application/json"}


class Slow(ExplorerModel):
    """Answers with its text, after `go`."""

    def __init__(self, name: str) -> None:
        self.name, self.turns = name, RequestQueue()
        self.go, self.begun = Event(), Event()
        self.go.set()

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "heads": {}}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    def translated(model: Slow, ask: ExplorerRequest) -> dict[str, Any]:
        with model.turns.turn(ask.page):
            model.begun.set()
            model.go.wait(10)
            if ask.text == "blank":
                raise UserError("nothing to look at")
            if ask.text == "bug":
                raise KeyError("bug")
            return {"text": ask.text}

    monkeypatch.setattr("headwise.serve.explorer.server.HANDLERS", {"/api/translate": translated})
    return [Slow("one"), Slow("other")]


@pytest.fixture
def server(models: list[Slow]) -> Iterator[ExplorerServer]:
    with ExplorerServer(models, port=0) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        for model in models:
            model.go.set()
        server.shutdown()


@pytest.fixture
def ask(server: ExplorerServer) -> Callable[..., tuple[int, Any]]:
    def request(
        method: str = "POST", path: str = "/api/translate", body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1])
        text = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        given = (JSON if method == "POST" else {}) | {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, text, given)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        is_json = response.getheader("Content-Type") == "application/json"
        return response.status, json.loads(content) if is_json else content.decode()

    return request


def test_the_page_is_at_the_root_and_nothing_elsewhere(ask: Callable[..., Any], server: ExplorerServer) -> None:
    status, text = ask("GET", "/")
    assert status == 200
    assert '"models":[{"name":"one"' in text
    assert ask("GET", "/etc/passwd") == (404, {"error": f"not found; the page is at {server.url}"})
    assert ask("GET", "/?x=1")[0] == 200
    assert ask(path="/api/nothing", body={})[0] == 404


def test_an_answer(ask: Callable[..., Any]) -> None:
    assert ask(body={"text": "a dog"}) == (200, {"text": "a dog"})


@pytest.mark.parametrize(
    ("body", "status", "complaint"),
    [
        (b"{", 400, "not JSON"),
        ({"text": "blank"}, 400, "nothing to look at"),
        ({"model": 2}, 400, "model 2: this page has 2 models, numbered from 0"),
        ({"text": "x" * 5000}, 400, "at most 4,000"),
        (b"x" * 70_000, 413, "at most 65,536 bytes"),
    ],
)
def test_mistakes_get_a_message(ask: Callable[..., Any], body: Any, status: int, complaint: str) -> None:
    found, answer = ask(body=body)
    assert found == status
    assert complaint in answer["error"]


def test_a_bug_is_no_answer_but_the_server_lives_on(ask: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(body={"text": "bug"})[0] == 500
    assert "KeyError" in capfd.readouterr().err
    assert ask(body={"text": "a"})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
    ],
)
def test_other_sites_may_not_ask(ask: Callable[..., Any], headers: dict[str, str]) -> None:
    assert ask(body={"text": "a"}, **headers)[0] == 403


def test_a_foreign_form_cannot_ask(ask: Callable[..., Any]) -> None:
    assert ask(body={"text": "a"}, Content_Type="text/plain")[0] == 415


def test_a_rebound_name_does_not_even_get_the_page(ask: Callable[..., Any]) -> None:
    assert ask("GET", "/", Host="evil.example")[0] == 403
    for host in ("localhost", "localhost:8000", "127.0.0.1", "[::1]:8000", "192.168.0.5"):
        assert ask("GET", "/", Host=host)[0] == 200, host


def test_a_slow_model_keeps_nobody_else_waiting(ask: Callable[..., Any], models: list[Slow]) -> None:
    models[0].go.clear()
    waiting = Thread(target=ask, kwargs={"body": {"text": "slow"}})
    waiting.start()
    assert models[0].begun.wait(10)
    assert ask("GET", "/")[0] == 200
    assert ask(body={"model": 1, "text": "quick"}) == (200, {"text": "quick"})
    assert waiting.is_alive()
    models[0].go.set()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_port_that_is_taken_is_one_line(server: ExplorerServer) -> None:
    with pytest.raises(UserError, match=rf"--port {server.server_address[1]}.*in use.*--port 0"):
        ExplorerServer([], port=server.server_address[1])
    with pytest.raises(UserError, match="ports are from 0 to 65535"):
        ExplorerServer([], port=70_000)


def test_of_waiting_requests_of_a_page_only_the_newest_is_answered() -> None:
    turns, done = RequestQueue(), []

    def work(page: str, name: str) -> None:
        try:
            with turns.turn(page):
                done.append(name)
        except Superseded:
            done.append(f"{name} superseded")

    with turns.turn("mine"):
        threads = []
        for page, name in (("mine", "a"), ("other", "b"), ("mine", "c")):
            threads.append(Thread(target=work, args=(page, name)))
            threads[-1].start()
            while turns.waiting < len(threads):
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert sorted(done) == ["a superseded", "b", "c"]


def test_only_so_many_wait() -> None:
    turns = RequestQueue()
    turns.waiting = 8
    with pytest.raises(Superseded, match="8 requests are waiting"), turns.turn("page"):
        pass
