"""A server in its own process with clients on a real socket: every answer is compared with the expected one."""

import html
import http.client
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from libretranslatepy import LibreTranslateAPI
from programs import Program
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from waiting import wait_until

import headwise
from headwise.documents.memory import read_memory_pairs
from headwise.documents.reading import ENDINGS

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
UTF_7 = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-7"}


class Server:
    """A running server."""

    def __init__(self, process: "Program | subprocess.Popen[str]", url: str) -> None:
        self.process, self.url, self.port = process, url, urlsplit(url).port
        self.log: list[str] = []
        assert process.stderr
        self.reader = Thread(
            target=self.log.extend, args=[process.stderr], daemon=True
        )  # so that its pipe does not fill
        self.reader.start()

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and JSON, or text, of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            encoded = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, path, encoded, headers if headers is not None else JSON if body else {})
            answer = connection.getresponse()
            content, kind = answer.read(), answer.headers.get("content-type", "")
            self.headers = dict(answer.headers)
            return answer.status, json.loads(content) if "json" in kind else content.decode()
        finally:
            connection.close()

    def translate(self, q: Any, **more: Any) -> Any:
        """The answer of LibreTranslate's endpoint."""
        status, answer = self.ask("POST", "/translate", {"q": q, "source": "en", "target": "de", **more})
        assert status == 200, answer
        return answer["translatedText"]

    def end(self, signalled: Callable[[], object] = lambda: None) -> tuple[int, list[dict[str, Any]]]:
        """Exit code and log after SIGTERM; `signalled` is called after the signal."""
        self.process.send_signal(signal.SIGTERM)
        signalled()
        code = self.process.wait()
        self.reader.join()
        return code, [json.loads(line) for line in self.log]


@contextmanager
def serving(*arguments: Any, code: str = "", port: int = 0) -> Iterator[Server]:
    """The server; with `code`, a Python program that runs the command line."""
    command = ["serve", *map(str, arguments), "--port", str(port), "--device", "cpu"]
    with (
        subprocess.Popen([sys.executable, "-c", code, *command], stderr=subprocess.PIPE, text=True)
        if code
        else Program(command)
    ) as process:
        server = None
        try:
            assert process.stderr
            server = Server(process, json.loads(process.stderr.readline())["url"])
            yield server
        finally:
            process.kill()
            if server:
                server.reader.join()  # before its pipe is closed


@pytest.fixture(scope="module")
def server(model_path: Path) -> Iterator[Server]:
    with serving(model_path, "--languages", "en-de", "--max-characters", 20_000, "--batch-tokens", 400) as server:
        yield server


Letters = Callable[[int, int], list[str]]


@pytest.fixture(scope="module")
def lines(task: Callable[..., Any]) -> Letters:
    """Lines that the model copies, more or less."""
    return lambda n, seed: [source for source, _ in task(n, seed)]


@pytest.fixture(scope="module")
def wanted(copying: tuple[headwise.Model, Path]) -> Callable[[list[str]], list[str]]:
    """The model's translations without a server."""
    return lambda lines: [one.text for one in copying[0].translate(lines)]


# LibreTranslate's API ------------------------------------------------------------------------------------------------


def test_libretranslates_own_client(server: Server, lines: Letters, wanted: Any) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    (line,) = lines(1, 5)
    assert client.translate(line, "en", "de") == wanted([line])[0]
    assert client.translate(f"{line}\n\n{line}", "auto", "de") == "\n\n".join(wanted([line]) * 2)
    assert {one["language"] for one in client.detect("Where does the dog run?")} == {"en", "de"}


def test_lists_alternatives_html_and_detection(server: Server, lines: Letters, wanted: Any) -> None:
    asked = lines(5, 6)
    body = {"q": asked, "source": "auto", "target": "de", "alternatives": 2}
    status, answer = server.ask("POST", "/translate", body)
    assert status == 200 and answer["translatedText"] == wanted(asked)
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en"] * 5
    assert [len(others) for others in answer["alternatives"]] == [2] * 5
    one = server.translate(f'<p id="x">{asked[0]}<br>{asked[1]}</p>', format="html")
    assert one == '<p id="x">{}<br>{}</p>'.format(*wanted(asked[:2]))
    status, answer = server.ask(
        "POST", "/translate", urlencode({"q": asked[0], **LANGUAGES, "alternatives": "1"}), FORM
    )
    assert (status, answer["translatedText"], len(answer["alternatives"])) == (200, *wanted(asked[:1]), 1)


LANGUAGES = {"source": "en", "target": "de"}


def test_a_file_is_translated_and_fetched(server: Server, lines: Letters, wanted: Any) -> None:
    asked = lines(30, 7)
    status, answer = upload(server, "my letters.txt", "\r\n".join(asked).encode())
    assert status == 200 and answer["translatedFileUrl"].startswith(server.url)
    status, content = server.ask("GET", urlsplit(answer["translatedFileUrl"]).path)
    assert (status, content) == (200, "\r\n".join(wanted(asked)))
    assert "my_letters.txt" in server.headers["content-disposition"]
    _, answer = upload(server, "a.txt", b"a b 777 c\na b 888 c\n")
    assert answer["warnings"]["other numbers"] == 2 and answer["notTranslated"] == {}
    for name, content, complaint in (
        ("a.exe", b"a", "file format not supported"),
        ("a.txt", b"a\n\xff", "line 2: not valid UTF-8"),
        ("a.po", b"nonsense\n", "line 1: invalid .po entry"),
        ("", b"a", "file"),
    ):
        status, answer = upload(server, name, content)
        assert status == 400 and complaint in answer["error"]


def test_every_format_is_translated(server: Server, lines: Letters, wanted: Any) -> None:
    """In files with a text per line; machine translations are marked in formats that allow it."""
    asked = lines(2, 12)
    a, b = wanted(asked)
    files = {
        "a.po": ('msgid "{}"\nmsgstr ""\n\nmsgid "{}"\nmsgstr "kept"\n', f'#, fuzzy\nmsgid "{asked[0]}"\nmsgstr "{a}"'),
        "a.json": ('{{"x": "{}", "y": ["{}"], "n": 1}}', f'{{"x": "{a}", "y": ["{b}"], "n": 1}}'),
        "a.md": ("# {}\n\n- {}\n\n```\nkept\n```\n", f"# {a}\n\n- {b}\n\n```\nkept\n```\n"),
        "a.html": ("<h1>{}</h1><pre>kept</pre>{}", f"<h1>{a}</h1><pre>kept</pre>{b}"),
        "a.srt": (
            "1\n00:00:01,000 --> 00:00:02,000\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n",
            f"00:00:02,000\n{a}\n",
        ),
    }
    for name, (text, expected) in files.items():
        status, answer = upload(server, name, text.format(*asked).encode())
        assert status == 200, answer
        _, content = server.ask("GET", urlsplit(answer["translatedFileUrl"]).path)
        assert expected in (content if isinstance(content, str) else json.dumps(content))
    known = server.ask("GET", "/frontend/settings")[1]["supportedFilesFormat"]
    assert {f".{name.partition('.')[2]}" for name in files} < set(known) == set(ENDINGS)


def upload(
    server: Server, name: str, content: bytes, path: str = "/translate_file", key: str = "", glossary: str = ""
) -> tuple[int, Any]:
    mark = "x" * 20
    fields = "".join(
        f'--{mark}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'
        for k, v in {**LANGUAGES, "api_key": key, "glossary": glossary}.items()
    )
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = f"{fields}{head}".encode() + content + f"\r\n--{mark}--\r\n".encode()
    return server.ask("POST", path, body, {"Content-Type": f"multipart/form-data; boundary={mark}"})


def test_settings_and_health(server: Server) -> None:
    status, settings = server.ask("GET", "/frontend/settings")
    assert status == 200 and settings["charLimit"] == 20_000 and not settings["keyRequired"]
    assert settings["language"]["target"] == {"code": "de", "name": "German"}
    assert server.ask("GET", "/health") == (200, {"status": "ok"})


def test_suggestions_are_stored_for_training(server: Server, model_path: Path, tmp_path: Path) -> None:
    suggested = {"q": "a b & c", "s": "d <e>", **LANGUAGES}
    status, answer = server.ask("POST", "/suggest", suggested)
    assert (status, answer) == (403, {"error": "Suggestions are disabled on this server."})
    path = tmp_path / "suggestions.tmx"
    with serving(model_path, "--languages", "en-de", "--suggestions", path) as own:
        assert own.ask("GET", "/frontend/settings")[1]["suggestions"]
        assert own.ask("POST", "/suggest", suggested) == (200, {"success": True})
        assert own.ask("POST", "/suggest", urlencode({**suggested, "q": "a"}), FORM) == (200, {"success": True})
        for change, complaint in (
            ({"s": ""}, "missing s parameter"),
            ({"q": None}, "missing q parameter"),
            ({"target": "xx"}, "xx is not supported"),
            ({"q": "\x00"}, "control characters"),
        ):
            status, answer = own.ask("POST", "/suggest", {**suggested, **change})
            assert status == 400 and complaint in answer["error"]
        with ThreadPoolExecutor(8) as clients:
            list(clients.map(lambda n: own.ask("POST", "/suggest", {**suggested, "q": f"x {n}"}), range(50)))
        own.end()
    pairs, _ = read_memory_pairs([str(path)], ("en", "de"))
    assert pairs[:2] == [("a b & c", "d <e>"), ("a", "d <e>")]
    assert sorted(pairs[2:]) == sorted((f"x {n}", "d <e>") for n in range(50))


def test_the_description_is_served_where_libretranslate_has_it(server: Server) -> None:
    status, description = server.ask("GET", "/spec")
    assert status == 200 and description == server.ask("GET", "/openapi.json")[1] and "/suggest" in description["paths"]


# /v1 -----------------------------------------------------------------------------------------------------------------


def test_scores_alternatives_and_words(server: Server, copying: Any, lines: Letters) -> None:
    asked = lines(3, 8)
    body = {"text": asked, **LANGUAGES, "n_best": 3, "alignment": True}
    status, answer = server.ask("POST", "/v1/translate", body)
    found = copying[0].translate(asked, n_best=3)
    sentences = [one["sentences"][0] for one in answer["translations"]]
    assert status == 200 and [one["text"] for one in sentences] == [one.text for one in found]
    assert [one["score"] for one in sentences] == pytest.approx([one.score for one in found], rel=1e-5)
    assert [[other["text"] for other in one["alternatives"]] for one in sentences] == [
        [other.text for other in one.alternatives] for one in found
    ]
    links = copying[0].align(asked, [one.text for one in found])
    assert [{tuple(pair) for pair in one["alignment"]} for one in sentences] == list(map(set, links))
    status, answer = server.ask("POST", "/v1/translate", {"text": asked[0], **LANGUAGES, "prefix": "j j"})
    assert answer["translations"][0]["text"].startswith("j j")
    status, answer = server.ask("POST", "/v1/translate", {"text": ["a b 777 c", "..."], **LANGUAGES})
    warned, kept = (one["sentences"][0]["warnings"] for one in answer["translations"])
    assert "other numbers" in warned and kept == []


def test_terms_are_used_for_their_own_request_only(server: Server, copying: Any, lines: Letters, wanted: Any) -> None:
    asked = lines(6, 12)
    glossaries: list[Any] = [{}, {"a": "j"}, [("b", "j")], {"c": "j", "a": "k"}]

    def found(glossary: Any) -> list[str]:
        status, answer = server.ask("POST", "/v1/translate", {"text": asked, **LANGUAGES, "glossary": glossary})
        assert status == 200, answer
        return [text["text"] for text in answer["translations"]]

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(found, glossaries * 4))
    expected = [copying[0].translate(asked, glossary=list(dict(one).items())) for one in glossaries]
    assert answers == [[text.text for text in texts] for texts in expected] * 4
    assert answers[0] == wanted(asked)
    for texts, glossary in zip(answers, glossaries, strict=False):
        for term, target in dict(glossary).items():
            assert [target in text for text in texts] == [term in text or target in text for text in asked]


def test_a_translation_memory_answers_before_the_model(
    model_path: Path, tmp_path: Path, lines: Letters, wanted: Any
) -> None:
    known, other = "a b c d e f", lines(1, 14)[0]
    (tmp_path / "m.po").write_text(f'msgid "{known}"\nmsgstr "stored {{n}}"\n\nmsgid "{known}."\nmsgstr "stored."\n')
    with serving(model_path, "--languages", "en-de", "--memory", tmp_path / "m.po") as server:
        assert server.translate(f"{known}.\n\n{other}") == f"stored.\n\n{wanted([other])[0]}"
        assert server.translate(f"<p>{known}.</p>{other}", format="html") == f"<p>stored.</p>{wanted([other])[0]}"
        _, answer = upload(server, "a.txt", f"{other}\n{known}.\n".encode())
        _, content = server.ask("GET", urlsplit(answer["translatedFileUrl"]).path)
        assert content == f"{wanted([other])[0]}\nstored.\n"
        _, answer = server.ask("POST", "/v1/translate", {"text": [f"{known}.", f"{known}!"], **LANGUAGES})
        exact, fuzzy = (one["sentences"][0] for one in answer["translations"])
        assert (exact["text"], exact["memory"]) == (
            "stored.",
            {"score": 1.0, "source": f"{known}.", "target": "stored."},
        )
        assert 0.7 <= fuzzy["memory"]["score"] < 1 and fuzzy["memory"]["target"] == "stored."
        assert fuzzy["text"] == wanted([f"{known}!"])[0]
        body = {"text": [f"{known}.", f"{known}!"], **LANGUAGES, "stream": True}
        events = [json.loads(line[6:]) for line in server.ask("POST", "/v1/translate", body)[1].splitlines()
                  if line.startswith("data: ")]  # fmt: skip
        assert [one["memory"]["target"] for one in events if "memory" in one] == ["stored."] * 2
        body = {"text": f"{known}.", **LANGUAGES, "prefix": known[0]}
        (one,) = server.ask("POST", "/v1/translate", body)[1]["translations"]
        assert one["text"].startswith(known[0])
        job = create_job(server, "a.txt", f"{known}!\n\nj\n\n{known}.\n".encode())
        assert states(server, job, "done")[-1]["state"] == "done"
        rows = {row["source"]: row["memory"] for row in server.ask("GET", job["report"])[1]["texts"]}
        assert rows == {f"{known}!": [fuzzy["memory"]], "j": [], f"{known}.": [exact["memory"]]}


def test_a_memory_names_its_language_pair(cli: Any, model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "m.po").write_text('msgid "a b."\nmsgstr "stored."\n')
    (tmp_path / "m.en-fr.po").write_text('msgid "a b."\nmsgstr "stored."\n')
    two = ["serve", model_path, model_path, "--languages", "en-de", "de-en", "--memory"]
    assert "its language pair is unknown; add it to the name" in cli(*two, tmp_path / "m.po").complaint
    assert "no model translates en-fr" in cli(*two, tmp_path / "m.en-fr.po").complaint


def test_files_and_jobs_have_glossaries(server: Server, copying: Any, lines: Letters) -> None:
    asked = lines(6, 12)
    expected = "\n".join(one.text for one in copying[0].translate(asked, glossary=[("a", "j"), ("b", "k")])) + "\n"
    content, glossary = ("\n".join(asked) + "\n").encode(), "a\tj\n\nb\tk"
    status, answer = upload(server, "a.txt", content, glossary=glossary)
    assert status == 200, answer
    address = answer["translatedFileUrl"]
    assert server.ask("GET", address[address.index("/download_file/") :])[1] == expected
    status, job = upload(server, "a.txt", content, "/v1/documents", glossary=glossary)
    assert (status, states(server, job, "done")[-1]["state"]) == (202, "done")
    assert server.ask("GET", job["result"])[1] == expected
    for path in ("/translate_file", "/v1/documents"):
        assert upload(server, "a.txt", content, path, glossary="a = j")[0] == 400


def test_stored_glossaries_apply_to_all_requests(
    model_path: Path, tmp_path: Path, copying: Any, lines: Letters
) -> None:
    (tmp_path / "terms.tsv").write_text("a\tj\nb\tk\n")
    asked = lines(6, 12)

    def expected(**terms: str) -> list[str]:
        return [one.text for one in copying[0].translate(asked, glossary=list(terms.items()))]

    with serving(model_path, "--languages", "en-de", "--glossary", tmp_path / "terms.tsv") as server:
        assert server.translate(asked) == expected(a="j", b="k") != [one.text for one in copying[0].translate(asked)]
        assert server.translate(asked, format="html") == expected(a="j", b="k")
        _, answer = server.ask("POST", "/v1/translate", {"text": asked, **LANGUAGES, "glossary": {"a": "c"}})
        assert [one["text"] for one in answer["translations"]] == expected(a="c", b="k")


def test_pairs_without_a_model_are_translated_through_a_third_language(
    model_path: Path, tmp_path: Path, copying: Any, lines: Letters
) -> None:
    (tmp_path / "terms.en-fr.tsv").write_text("a\tj\n")
    (tmp_path / "m.de-fr.po").write_text('msgid "a b c d e."\nmsgstr "stored."\n')
    files = ("--glossary", tmp_path / "terms.en-fr.tsv", "--memory", tmp_path / "m.de-fr.po")
    asked, pair = lines(6, 12), {"source": "de", "target": "fr"}
    first = copying[0].translate(asked)
    second = copying[0].translate([one.text for one in first], glossary=[("a", "j")])
    with serving(model_path, model_path, "--languages", "de-en", "en-fr", "--pivot", "en", *files) as server:
        _, languages = server.ask("GET", "/languages")
        assert {one["code"]: one["targets"] for one in languages} == {"de": ["en", "fr"], "en": ["fr"], "fr": []}
        assert server.translate(asked, **pair) == [one.text for one in second]
        assert server.translate(f"<p>{asked[0]}</p>", **pair, format="html") == f"<p>{second[0].text}</p>"
        assert server.translate("a b c d e.", **pair) == "stored."
        body = {"text": asked, **pair, "alignment": True, "n_best": 2, "keep": ["h"]}
        status, answer = server.ask("POST", "/v1/translate", body)
        assert status == 200 and all(one["sentences"][0]["alignment"] for one in answer["translations"])
        _, answer = server.ask("POST", "/v1/translate", {"text": asked, **pair})
        found = [one["sentences"][0]["log_prob"] for one in answer["translations"]]
        assert found == pytest.approx([a.log_prob + b.log_prob for a, b in zip(first, second, strict=True)], rel=1e-4)
        status, answer = server.ask("POST", "/v1/translate", {"text": asked, **pair, "glossary": {"a": "j"}})
        assert status == 400 and "de-fr is translated through en" in answer["error"]


def test_pivots_and_glossaries_that_fit_no_model(cli: Any, model_path: Path, tmp_path: Path) -> None:
    two = ["serve", model_path, model_path, "--languages", "de-en", "en-fr"]
    assert "--pivot es: no pair is translated through it" in cli(*two, "--pivot", "es").complaint
    for name, complaint in (("a.tsv", "its language pair is unknown"), ("a.de-fr.tsv", "no model translates de-fr")):
        (tmp_path / name).write_text("a\tj\n")
        assert complaint in cli(*two, "--pivot", "en", "--glossary", tmp_path / name).complaint


def test_untranslatable_text_is_kept(server: Server) -> None:
    body = {"text": "a b a c", **LANGUAGES, "keep": ["c"], "glossary": {"b": "c c"}}
    status, stream = server.ask("POST", "/v1/translate", {**body, "stream": True})
    text = json.loads(stream.partition("data: ")[2].partition("\n")[0])["text"]
    assert status == 200 and "c c" in text
    assert server.ask("POST", "/v1/translate", body)[1]["translations"][0]["text"] == text


def test_a_stream_contains_every_sentence_in_order(server: Server, lines: Letters, wanted: Any) -> None:
    asked = lines(12, 9)
    texts = ["\n".join(asked[:5]), "", *asked[5:]]
    status, stream = server.ask("POST", "/v1/translate", {"text": texts, **LANGUAGES, "stream": True})
    events = [block.split("\n", 1) for block in stream.strip().split("\n\n")]
    assert status == 200 and "text/event-stream" in server.headers["content-type"]
    parsed = [(kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for kind, data in events]
    assert [data["text"] for kind, data in parsed if kind == "sentence"] == wanted(asked)
    whole = ["\n".join(wanted(asked[:5])), "", *wanted(asked[5:])]
    assert [data["text"] for kind, data in parsed if kind == "translation"] == whole
    assert parsed[-1] == ("done", {})


# Document jobs --------------------------------------------------------------------------------------------------------


def create_job(server: Server, name: str, content: bytes, key: str = "") -> Any:
    status, job = upload(server, name, content, "/v1/documents", key)
    assert status == 202 and server.headers["location"] == job["url"], job
    return job


def states(server: Server, job: Any, until: str) -> list[Any]:
    """The different answers about a job until it has this state, or has ended."""
    found: list[Any] = []
    while not found or found[-1]["state"] not in (until, "done", "failed", "cancelled"):
        status, answer = server.ask("GET", job["url"])
        assert status == 200
        found += [answer] if not found or answer != found[-1] else []
        time.sleep(0.01)
    return found


def test_a_job_has_progress_a_result_and_a_report(server: Server, lines: Letters, wanted: Any) -> None:
    asked = lines(300, 31)
    page = f"# {asked[0]}\n\n```\nkept\n```\n\n" + "\n\n".join(asked[1:]) + "\n"
    job = create_job(server, "maße 1.md", page.encode())
    found = states(server, job, "done")
    counts = [one["progress"]["translated"] for one in found]
    assert found[-1]["state"] == "done" and found[-1]["error"] is None
    assert counts == sorted(counts) and len(set(counts)) > 3, "a batch has 400 tokens at most"
    assert found[-1]["progress"] == {"sentences": 300, "translated": 300, "percent": 100}
    status, content = server.ask("GET", job["result"])
    translated = wanted(asked)
    assert status == 200 and content == f"# {translated[0]}\n\n```\nkept\n```\n\n" + "\n\n".join(translated[1:]) + "\n"
    assert "filename*=UTF-8''ma%C3%9Fe%201.md" in server.headers["content-disposition"]
    status, report = server.ask("GET", job["report"])
    assert status == 200 and report["units"] == {"all": 300, "translated": 300, "left_open": 0, "kept": 0}
    assert report["not_translated"] == {"code block": 1} and len(report["texts"]) == 301
    assert {row["translation"] for row in report["texts"] if "translation" in row} == set(translated)
    assert report["warnings"] and all(count <= 300 for count in report["warnings"].values())
    assert server.ask("DELETE", job["url"])[0] == 200
    for name in ("url", "result", "report"):
        assert server.ask("GET", job[name])[0] == 404


def test_a_job_that_fails_says_why(server: Server) -> None:
    job = create_job(server, "a.txt", b"a\n\xff")
    last = states(server, job, "failed")[-1]
    assert (last["state"], last["error"]) == ("failed", "a.txt: line 2: not valid UTF-8; convert the file to UTF-8")
    assert server.ask("GET", job["result"]) == (404, {"error": "this job has no result: failed"})


def test_a_cancelled_job_leaves_the_queue_and_its_process_ends(
    model_path: Path, tmp_path: Path, lines: Letters
) -> None:
    closed = tmp_path / "closed"
    with held_server(model_path, closed, "--log-text") as server:
        job = create_job(server, "a.txt", "\n".join(lines(1000, 33)).encode())
        wait_for(server, 100)
        assert len(document_processes(server)) == 1 and waiting(server) <= 200
        assert server.ask("GET", job["url"])[1]["state"] == "translating"
        status, answer = server.ask("DELETE", job["url"])
        assert (status, answer["state"], waiting(server)) == (200, "cancelled", 0)
        while document_processes(server):
            time.sleep(0.01)
        assert server.ask("GET", job["url"])[1]["state"] == "cancelled"
        closed.unlink()
        assert server.translate("a b")
        batches = server.ask("GET", "/metrics")[1].split('headwise_batch_sentences_sum{model="en-de"} ')[1]
        assert float(batches.split()[0]) < 150  # the batch that was held, and the last one
        code, log = server.end()
    assert code == 0 and [one["state"] for one in log if one["event"] == "job"] == ["cancelled"]


def document_processes(server: Server) -> list[int]:
    """The processes of documents; those of the server with two ancestors."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    return [number for number, parent in parents.items() if parents.get(parent) == server.process.pid]


def test_a_job_fails_when_its_process_is_killed(model_path: Path, tmp_path: Path, lines: Letters) -> None:
    closed = tmp_path / "closed"
    with held_server(model_path, closed) as server:
        job = create_job(server, "a.txt", "\n".join(lines(50, 34)).encode())
        wait_for(server, 1)
        for number in document_processes(server):
            os.kill(number, signal.SIGKILL)
        closed.unlink()
        last = states(server, job, "failed")[-1]
        assert last["state"] == "failed" and "of memory; send a smaller document" in last["error"]
        assert server.translate("a b")


def test_jobs_are_limited_and_belong_to_their_key(model_path: Path, tmp_path: Path, lines: Letters) -> None:
    ada, bob = "0123456789abcdef", "fedcba9876543210"
    (tmp_path / "keys").write_text(f"{ada}\n{bob}\n", encoding="utf-8")
    closed, content = tmp_path / "closed", "\n".join(lines(20, 35)).encode()
    options = ("--api-keys", tmp_path / "keys", "--max-jobs", 3, "--max-key-jobs", 2)
    with held_server(model_path, closed, *options) as server:
        job, _ = (create_job(server, "a.txt", content, ada) for _ in range(2))
        for key, more in ((ada, "of this API key "), (bob, "")):
            status, answer = upload(server, "a.txt", content, "/v1/documents", key)
            assert (status, server.headers["retry-after"]) == (429, "10")
            assert answer["error"] == f"Slowdown: too many document jobs {more}are waiting; try again in 10 s"
            if key == ada:
                create_job(server, "a.txt", content, bob)
        for path in (job["url"], job["result"], job["report"]):
            assert server.ask("GET", path)[0] == 403
            assert server.ask("GET", path, headers={"Authorization": f"Bearer {bob}"})[0] == 404
        assert server.ask("DELETE", f"{job['url']}?api_key={bob}")[0] == 404
        closed.unlink()
        while server.ask("GET", f"{job['url']}?api_key={ada}")[1]["state"] != "done":
            time.sleep(0.01)
        assert server.ask("GET", job["result"], headers={"Authorization": f"Bearer {ada}"})[0] == 200


def test_sigterm_cancels_jobs(model_path: Path, tmp_path: Path, lines: Letters) -> None:
    with serving(model_path, "--languages", "en-de", "--batch-tokens", 100) as server:
        for _ in range(3):
            create_job(server, "a.txt", "\n".join(lines(3000, 36)).encode())
        wait_for(server, 1)
        code, log = server.end()
    assert code == 0 and [one["state"] for one in log if one["event"] == "job"] == ["cancelled"] * 3


# Concurrency ----------------------------------------------------------------------------------------------------------


def test_no_answer_is_lost_or_mixed_up(server: Server, lines: Letters, wanted: Any) -> None:
    rng = random.Random(3)
    asked = [lines(rng.randint(1, 8), seed) for seed in range(120)]
    with ThreadPoolExecutor(16) as clients:
        found = list(clients.map(server.translate, asked))
    assert found == [wanted(some) for some in asked]


@pytest.mark.thorough
def test_a_cache_changes_no_answer(server: Server, model_path: Path, lines: Letters) -> None:
    rng, texts = random.Random(4), lines(40, 14)
    bodies: list[dict[str, Any]] = [
        {"text": rng.sample(texts, 5), **LANGUAGES, "n_best": rng.choice([1, 3]), "alignment": rng.random() < 0.3}
        | rng.choice([{}, {"prefix": "j"}, {"glossary": {"a": "k"}}])
        for _ in range(60)
    ]
    with serving(model_path, "--languages", "en-de", "--cache", 50) as cached:
        answers = [
            list(map(lambda body: one.ask("POST", "/v1/translate", body), bodies)) for one in (server, cached, cached)
        ]
        assert cached.translate(texts) == server.translate(texts)
        _, metrics = cached.ask("GET", "/metrics")
    for body, plain, *others in zip(bodies, *answers, strict=True):
        for status, answer in others:
            assert status == 200 and texts_of(answer) == texts_of(plain[1]), body
    counts = {
        line.split("{")[0]: float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("headwise_cache_")
    }
    assert counts["headwise_cache_hits_total"] > 50 and counts["headwise_cache_misses_total"] > 50


def texts_of(answer: Any) -> Any:
    """Translations with alternatives and alignments, without scores, whose last bits depend on the batch."""
    return [
        [(one["text"], [other["text"] for other in one["alternatives"]], one["alignment"]) for one in text["sentences"]]
        for text in answer["translations"]
    ]


HELD = """
import sys
import time
from pathlib import Path
from headwise.cli import main
from headwise.serve.models import ServedModel

translate, closed = ServedModel.translate, Path({!r})

def held(self, sentences, options):
    while closed.exists():
        time.sleep(0.001)
    return translate(self, sentences, options)

ServedModel.translate = held
sys.exit(main())
"""


@contextmanager
def held_server(model_path: Path, closed: Path, *arguments: Any) -> Iterator[Server]:
    """A server that translates nothing while the file `closed` exists, so that what it is asked stays in its queue."""
    code = HELD.format(str(closed))
    closed.touch()
    with serving(model_path, "--languages", "en-de", "--batch-tokens", 400, *arguments, code=code) as server:
        yield server


def wait_for(server: Server, sentences: int) -> None:
    """Until this many sentences are queued."""
    while waiting(server) < sentences:
        time.sleep(0.01)


FEW_FILES = """
import resource
import sys
from headwise.cli import main

resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
sys.exit(main())
"""


def test_more_clients_than_open_files(model_path: Path) -> None:
    with serving(model_path, "--languages", "en-de", code=FEW_FILES) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        answers = [client.recv(12) for client in clients[50:]]
        assert {*answers} == {b"HTTP/1.1 503"}
        for client in clients:
            client.close()
        wait_until(lambda: server.ask("GET", "/health")[0] == 200)
        assert upload(server, "a.txt", b"a b")[0] == 200
        _, log = server.end()
    assert any("ulimit -n" in entry.get("message", "") for entry in log)
    assert not any(entry["event"] == "error" for entry in log)


@pytest.mark.thorough
def test_files_of_a_killed_server_are_removed(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    plain = "import sys; from headwise.cli import main; sys.exit(main())"
    with serving(model_path, "--languages", "en-de", code=plain) as server:
        assert upload(server, "a.txt", b"a b")[0] == 200
        server.process.kill()
        server.process.wait()
    (left,) = tmp_path.glob("headwise-server-*")
    assert [*(left / "files").iterdir()]
    with serving(model_path, "--languages", "en-de", code=plain) as server:
        assert upload(server, "a.txt", b"a b")[0] == 200
        assert not left.exists()
        assert server.end()[0] == 0
    assert not [*tmp_path.glob("headwise-server-*")]


def test_a_short_request_overtakes_a_long_document(model_path: Path, tmp_path: Path, lines: Letters) -> None:
    long_text, closed = lines(1000, 11), tmp_path / "closed"
    with held_server(model_path, closed, "--log-text") as server, ThreadPoolExecutor(2) as clients:
        long = clients.submit(server.translate, long_text)
        wait_for(server, 500)
        queued = waiting(server)
        short = clients.submit(server.translate, "a b c")
        wait_for(server, int(queued) + 1)
        closed.unlink()
        assert short.result() and len(long.result()) == 1000
        _, log = server.end()
    assert [entry["source"] for entry in log if entry["event"] == "translated"] == ["a b c", *long_text]


SLOW = """
import sys
from dataclasses import replace
from pathlib import Path
from headwise.cli import main
from headwise.serve.models import ServedModel

translate = ServedModel.translate

def slow(self, sentences, options):
    if "slow" in sentences:  # 100,000 tokens, which take minutes
        Path(STARTED).touch()
        self = replace(self, settings={**self.settings, "min_length_extra": 100_000, "max_length_extra": 100_000})
    return translate(self, sentences, options)

ServedModel.translate = slow
sys.exit(main())
"""


def test_prefixes_are_limited_in_tokens(server: Server) -> None:
    body = {"text": "a b", "source": "en", "target": "de", "prefix": "a b " * 124}
    status, answer = server.ask("POST", "/v1/translate", body)
    assert status == 400 and "tokens, 200 at most" in answer["error"]


def test_decoding_ends_with_the_time_of_its_request(model_path: Path, tmp_path: Path) -> None:
    """The model answers again, before the first request's decoding could have come to its end."""
    code = SLOW.replace("STARTED", repr(str(tmp_path / "started")))
    with serving(model_path, "--languages", "en-de", "--max-seconds", 3, code=code) as server:
        assert server.ask("POST", "/translate", {"q": "slow", **LANGUAGES})[0] == 504
        wait_until(lambda: server.ask("POST", "/translate", {"q": "a b", **LANGUAGES})[0] == 200)


def test_decoding_ends_with_the_time_of_draining(model_path: Path, tmp_path: Path) -> None:
    code = SLOW.replace("STARTED", repr(str(tmp_path / "started")))
    with serving(model_path, "--languages", "en-de", "--drain", 1, code=code) as server, ThreadPoolExecutor(1) as pool:
        assert server.translate("a b")
        slow = pool.submit(server.ask, "POST", "/translate", {"q": "slow", **LANGUAGES})
        wait_until((tmp_path / "started").exists)
        assert server.end()[0] == 0
        assert slow.result()[0] == 500


def test_disconnected_clients_are_dropped(server: Server, lines: Letters) -> None:
    body = json.dumps({"q": lines(900, 12), **LANGUAGES}).encode()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            head += f"Content-Length: {len(body)}"
            client.sendall(head.encode() + b"\r\n\r\n" + body)
            time.sleep(0.05)
    wait_until(lambda: waiting(server) == 0)
    assert server.translate("a b") == server.translate(["a b"])[0]


def waiting(server: Server) -> float:
    _, text = server.ask("GET", "/metrics")
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("headwise_waiting_sentences{"))


@pytest.mark.thorough
def test_memory_does_not_grow_with_requests(model_path: Path, lines: Letters) -> None:
    def many(server: Server, count: int) -> float:
        with ThreadPoolExecutor(4) as clients:
            list(clients.map(server.translate, lines(count, 21)))
        status = Path(f"/proc/{server.process.pid}/status")
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read as Linux counts it")
    with serving(model_path, "--languages", "en-de") as server:
        *_, before, after = [many(server, 1000) for _ in range(5)]  # it grows at first, with the batch sizes
    assert after < before + 5  # MiB


def test_malformed_forms_leave_the_log_in_json(model_path: Path) -> None:
    body = b"--x\r\nContent-Disposition: form-data; na\rme=q\r\n\r\na\r\n--x--\r\n"
    with serving(model_path, "--languages", "en-de") as server:
        status, _ = server.ask("POST", "/translate_file", body, {"content-type": "multipart/form-data; boundary=x"})
        _, log = server.end()
    assert status == 400 and log[-1]["event"] == "ended"


def test_answers_match_the_openapi_document(model_path: Path, tmp_path: Path) -> None:
    """With requests generated by `schemathesis`: valid and invalid ones."""
    with serving(
        *(model_path, "--languages", "en-de", "--suggestions", tmp_path / "suggestions.tmx"),
        *("--max-characters", 300, "--max-texts", 4, "--max-terms", 4),
    ) as server:
        schema = schemathesis.openapi.from_url(f"{server.url}openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert {operation.label for operation in operations} >= {
            "POST /translate",
            "POST /v1/translate",
            "POST /v1/documents",
            "GET /v1/documents/{id}",
            "GET /languages",
        }
        for operation in operations:
            for mode in schemathesis.GenerationMode:
                if mode is schemathesis.GenerationMode.POSITIVE or operation.method == "post":
                    hold(operation.as_strategy(generation_mode=mode))
        _, log = server.end()
    statuses = [entry["status"] for entry in log if entry["event"] == "request"]
    assert max(statuses) < 500 and statuses.count(200) > 20 and statuses.count(400) > 20


def test_all_methods_of_an_address_are_named(server: Server) -> None:
    status, _ = server.ask("OPTIONS", "/v1/documents/0")
    assert status == 405 and {*server.headers["allow"].split(", ")} == {"GET", "HEAD", "DELETE"}


@pytest.mark.parametrize(
    ("source", "target", "status"), [("auto", "de", 202), ("auto", "xx", 400), ("auto", "en", 400)]
)
def test_a_job_for_a_language_that_is_no_target_is_refused(
    server: Server, source: str, target: str, status: int
) -> None:
    fields = {"source": source, "target": target}
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields.items()
    ]
    parts.append('--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\na b\r\n--x--\r\n')
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert server.ask("POST", "/v1/documents", "".join(parts).encode(), headers)[0] == status


def hold(cases: Any) -> None:
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

    @given(case=cases)
    @settings(EXAMPLES, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.call_and_validate(checks=checks)

    ask()


EXAMPLES = settings(max_examples=8, deadline=None, database=None, derandomize=True, phases=[Phase.generate])


def test_the_documentation_begins_with_a_command_that_works(server: Server) -> None:
    """The example for curl, sent by hand."""
    status, page = server.ask("GET", "/docs")
    example = html.unescape(page.partition("<pre>")[2].partition("</pre>")[0])
    program, address, *options = shlex.split(example.replace("\\\n", ""))
    assert (status, program, address) == (200, "curl", f"{server.url}translate")
    assert options[:3] == ["-H", "Content-Type: application/json", "-d"]
    status, answer = server.ask("POST", "/translate", json.loads(options[3]))
    assert status == 200 and set(answer) >= {"translatedText"}


# Access -------------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[int, str, str, Any, dict[str, str]]] = [
    (404, "GET", "/nothing", None, {}),
    (405, "GET", "/translate", None, {}),
    (400, "POST", "/translate", b"", {}),
    (400, "POST", "/translate", b"{", JSON),
    (400, "POST", "/translate", b"[1]", JSON),
    (400, "POST", "/translate", b"[" * 100_000, JSON),
    (400, "POST", "/translate", b'{"q": "\xff"}', JSON),
    (400, "POST", "/translate", b'{"q": 1' + b"0" * 6000 + b"}", JSON),
    (400, "POST", "/translate", {"q": "a", "source": "en", "target": "xx"}, JSON),
    (400, "POST", "/translate", {"q": "a", "source": "de", "target": "en"}, JSON),
    (400, "POST", "/translate", {"q": "a" * 20_001, "source": "en", "target": "de"}, JSON),
    (400, "POST", "/translate", b"q=a&source=%FF&target=de", FORM),
    (400, "POST", "/translate", b"--x\r\n", {"Content-Type": "multipart/form-data; boundary=y"}),
    (400, "POST", "/translate", b"--x", {"Content-Type": "multipart/form-data"}),
    (415, "POST", "/translate", b"q=+2AA-&source=en&target=de", UTF_7),
    (400, "POST", "/v1/translate", {"text": "a", "source": "en", "target": "de", "n_best": 99}, JSON),
    (400, "POST", "/v1/translate", {"text": "a", **LANGUAGES, "glossary": {"a": "b"}, "keep": ["a"]}, JSON),
    (400, "POST", "/v1/translate", {"text": "a", **LANGUAGES, "glossary": [["a", " \n"]], "stream": True}, JSON),
    (400, "POST", "/v1/translate", urlencode({"text": "a", **LANGUAGES, "glossary": "a"}), FORM),
    (413, "POST", "/translate", b"q=" + b"a" * 5_000_000, FORM),
    (413, "POST", "/translate", {"q": "a"}, {**JSON, "Content-Length": "9" * 15}),
    (403, "POST", "/translate", {"q": "a"}, {**JSON, "Host": "evil.example"}),
    (403, "POST", "/translate", {"q": "a"}, {**JSON, "Origin": "https://evil.example"}),
    (403, "POST", "/translate", {"q": "a"}, {**JSON, "Origin": "null"}),
    (403, "POST", "/translate", {"q": "a"}, {**JSON, "Sec-Fetch-Site": "cross-site"}),
    (431, "GET", "/health", None, {"X-Long": "a" * 40_000}),
    (431, "GET", "/health", None, {f"X-{number}": "a" for number in range(101)}),
    (431, "GET", "/health?" + "a" * 40_000, None, {}),
    (404, "GET", "/download_file/" + "0" * 32 + ".txt", None, {}),
    (404, "GET", "/download_file/..%2f..%2fetc%2fpasswd", None, {}),
]


@pytest.mark.parametrize(("status", "method", "path", "body", "headers"), REFUSED)
def test_refused_requests(
    server: Server, status: int, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    try:
        found, answer = server.ask(method, path, body, headers)
    except (ConnectionError, http.client.HTTPException):  # refused while the body was sent, or no HTTP
        assert status == 413
    else:
        assert found == status and list(answer) == ["error"] and "\n" not in answer["error"]
    assert server.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    "start",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /" + b"a" * 99,
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    ],
    ids=["header", "path", "chunk extension", "trailer"],
)
def test_endless_headers_are_cut_off(server: Server, start: bytes) -> None:
    sent = 0
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(start)
        try:
            while sent < 1 << 27:
                client.sendall(b"a" * 4096)
                sent += 4096
        except OSError:  # closed by the server
            pass
    assert sent < 1 << 25  # the buffers of the system
    assert server.ask("GET", "/health")[0] == 200


def test_connections_and_memory_are_limited(model_path: Path) -> None:
    limits = ("--max-client-connections", 8, "--max-body", 100_000, "--max-body-memory", 150_000)
    with serving(model_path, "--languages", "en-de", *limits) as server:
        start = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON['Content-Type']}\r\n"
        halves = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for client in halves:
            client.sendall(f"{start}Content-Length: 90001\r\n\r\n".encode() + b"a" * 90_000)
        refused = b"".join(client.recv(12) for client in halves[-1:])
        assert refused == b"HTTP/1.1 503"
        others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
        answers = [client.recv(12) for client in others[8:]]
        assert answers == [b"HTTP/1.1 429"] * 4
        for client in (*halves, *others):
            client.close()
        while server.ask("GET", "/health")[0] != 200:
            time.sleep(0.01)
        assert server.translate("a b")


def test_odd_texts_and_names_are_no_server_errors(server: Server) -> None:
    assert server.translate("\U000f0000 a \ue000 b") is not None
    assert (
        server.ask("POST", "/translate", b'{"q": "a", "source": "en", "target": "de", "api_key": "\\ud800"}')[0] == 200
    )
    name = "\u00df" * 200 + ".txt"
    body = (
        f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\na\r\n'
        '--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
        '--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nde\r\n--x--\r\n'
    )
    status, answer = server.ask(
        "POST", "/translate_file", body.encode(), {"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert status == 200
    status, _ = server.ask("GET", urlsplit(answer["translatedFileUrl"]).path)
    assert status == 200 and "filename*=UTF-8''%C3%9F" in server.headers["content-disposition"]


def test_all_sites_can_be_allowed(model_path: Path) -> None:
    with serving(model_path, "--languages", "en-de", "--origins", "*") as server:
        assert (
            server.ask("POST", "/translate", {"q": "a", **LANGUAGES}, {**JSON, "Origin": "https://a.example"})[0] == 200
        )
        assert server.headers["access-control-allow-origin"] == "https://a.example"


def test_other_computers_need_a_key_or_permission(cli: Any, model_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        refused = cli("serve", model_path, "--languages", "en-de", "--host", host)
        assert refused.code == 2 and "--no-key" in refused.err and refused.err.count("\n") == 1


def test_keys_are_required(model_path: Path, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("0123456789abcdef Ada\n", encoding="utf-8")
    with serving(model_path, "--languages", "en-de", "--api-keys", tmp_path / "keys", "--log-text") as server:
        asked = {"q": "a b", **LANGUAGES}
        for path in ("/translate", "/detect", "/v1/translate"):
            status, answer = server.ask("POST", path, asked)
            assert status == 403 and "API key" in answer["error"]
        assert server.ask("POST", "/translate", {**asked, "api_key": "0123456789abcdef"})[0] == 200
        bearer = {**JSON, "Authorization": "Bearer 0123456789abcdef"}
        assert server.ask("POST", "/translate", asked, bearer)[0] == 200
        assert LibreTranslateAPI(server.url, "0123456789abcdef").translate("a b", "en", "de")
        assert server.ask("GET", "/frontend/settings")[1]["keyRequired"]
        code, log = server.end()
    assert (
        code == 0
        and {"event": "translated", "source": "a b"}.items()
        <= next(entry for entry in log if entry["event"] == "translated").items()
    )
    assert not any("0123456789abcdef" in json.dumps(entry) for entry in log)


def test_usage_of_keys_is_counted_and_limited(model_path: Path, tmp_path: Path) -> None:
    keys = ["0123456789abcdef", "fedcba9876543210"]
    (tmp_path / "keys").write_text(f"{keys[0]} team a\n{keys[1]}\n", encoding="utf-8")
    limits = ("--max-requests-per-hour", 5, "--max-characters-per-hour", 20)
    with serving(model_path, "--languages", "en-de", "--api-keys", tmp_path / "keys", *limits) as server:
        asked = {**LANGUAGES, "api_key": keys[0]}
        for path, name, texts in (("/translate", "q", ["a b", "c"]), ("/v1/translate", "text", "d e f")):
            assert server.ask("POST", path, {**asked, name: texts})[0] == 200
        bearer = {"Authorization": f"Bearer {keys[0]}"}
        assert upload(server, "a.txt", b"a b c d", key=keys[0])[0] == 200
        status, usage = server.ask("GET", "/v1/usage", headers=bearer)
        assert status == 200 and usage["key"] == "team a" and (usage["requests"], usage["characters"]) == (3, 16)
        assert usage["hour"]["max_characters"] == 20 and usage["hour"]["characters"] == 16
        status, answer = server.ask("POST", "/translate", {**asked, "q": "a b c"})
        assert status == 429 and "20 characters per hour" in answer["error"]
        assert 3500 < int(server.headers["retry-after"]) <= 3600
        assert server.ask("GET", f"/v1/usage?api_key={keys[1]}")[1]["requests"] == 0
        assert server.ask("POST", "/translate", {**asked, "q": "a b", "api_key": keys[1]})[0] == 200
        assert server.ask("GET", "/v1/usage")[0] == 403
        _, metrics = server.ask("GET", "/metrics")
        _, log = server.end()
    assert 'headwise_key_characters_total{key="team a"} 16.0' in metrics
    assert 'headwise_key_requests_total{key="3465f6e6"} 1.0' in metrics
    assert not any(key in text for key in keys for text in [metrics, json.dumps(log)])


def test_without_keys_addresses_are_limited(model_path: Path) -> None:
    with serving(model_path, "--languages", "en-de", "--max-requests-per-hour", 2) as server:
        body = {"q": "a", **LANGUAGES}
        statuses = [server.ask("POST", "/translate", body)[0] for _ in range(3)]
        assert statuses == [200, 200, 429]
        forwarded = {**JSON, "X-Forwarded-For": "192.0.2.1"}  # by a proxy on this computer
        assert server.ask("POST", "/translate", body, forwarded)[0] == 200
        assert server.ask("GET", "/v1/usage")[0] == 404


# Failures and signals ------------------------------------------------------------------------------------------------


def test_sigterm_finishes_requests_and_exits_with_0(
    model_path: Path, tmp_path: Path, lines: Letters, wanted: Any
) -> None:
    asked, closed = [lines(100, seed) for seed in range(4)], tmp_path / "closed"
    with held_server(model_path, closed) as server, ThreadPoolExecutor(4) as clients:
        found = [clients.submit(server.translate, some) for some in asked]
        wait_for(server, 301)  # at least one sentence of each
        code, log = server.end(closed.unlink)
        assert [one.result() for one in found] == [wanted(some) for some in asked]
    assert code == 0 and log[-1]["event"] == "ended"
    said = json.dumps(log)
    assert not any(line in said for some in asked for line in some if len(line) > 6), "no text is in the log"


def test_slow_clients_time_out(model_path: Path, pace: float) -> None:
    post = f"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM['Content-Type']}\r\n"
    said = {"": b"", "GET / HT": b"", f"{post}Content-Length: 10\r\n\r\nq=": b"HTTP/1.1 408", f"{post}x": b""}
    with serving(model_path, "--languages", "en-de", "--arrival-seconds", ceil(2 * pace)) as server:
        clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in said]
        for client, text in zip(clients, said, strict=True):
            client.sendall(text.encode())
        assert server.translate("a b")  # others are served meanwhile
        for client, answer in zip(clients, said.values(), strict=True):
            with client:
                assert client.recv(12) == answer


def test_too_many_requests_are_refused_with_retry_after(model_path: Path, lines: Letters) -> None:
    with serving(model_path, "--languages", "en-de", "--max-waiting", 50) as server, ThreadPoolExecutor(8) as clients:
        bodies = [{"q": lines(200, seed), **LANGUAGES} for seed in range(8)]
        found = list(clients.map(lambda body: (*server.ask("POST", "/translate", body), server.headers), bodies))
        assert {status for status, *_ in found} == {200, 429}
        assert all("Slowdown" in answer["error"] for status, answer, _ in found if status == 429)
        assert server.translate("a b c")


def test_deleted_models_keep_serving_and_closed_ones_are_reported(model_path: Path, tmp_path: Path) -> None:
    for name, more in (("kept", ()), ("idle", ("--idle", 1))):
        shutil.copytree(model_path, tmp_path / name)
        with serving(tmp_path / name, "--languages", "en-de", *more) as server:
            first = server.translate("a b c")
            shutil.rmtree(tmp_path / name)
            assert server.translate("a b c") == first
            if more:
                while 'headwise_model_loaded{model="en-de"} 1' in server.ask("GET", "/metrics")[1]:
                    time.sleep(0.1)
                status, answer = server.ask("POST", "/translate", {"q": "a", **LANGUAGES})
                assert (status, "not available" in answer["error"]) == (400, True)
                assert server.end()[0] == 0


FAULTY = """
import sys
from headwise.cli import main
from headwise.serve.models import ServedModel

translate = ServedModel.translate

def failing(self, sentences, options):
    if any("boom" in text for text in sentences):
        raise MemoryError("boom")
    return translate(self, sentences, options)

ServedModel.translate = failing
sys.exit(main())
"""


def test_an_error_while_translating_affects_its_request_only(model_path: Path, lines: Letters, wanted: Any) -> None:
    asked = [lines(3, seed) for seed in range(20)]
    with (
        serving(model_path, "--languages", "en-de", code=FAULTY) as server,
        ThreadPoolExecutor(8) as clients,
    ):
        faults = [clients.submit(server.ask, "POST", "/translate", {"q": ["a", "boom"], **LANGUAGES}) for _ in range(4)]
        assert list(clients.map(server.translate, asked)) == [wanted(some) for some in asked]
        for status, answer in (fault.result() for fault in faults):
            assert status == 500 and list(answer) == ["error"] and "boom" not in answer["error"]
        code, log = server.end()
    assert code == 0 and "boom" not in json.dumps(log)


def test_a_killed_server_gives_no_wrong_answer_and_restarts_at_once(
    model_path: Path, tmp_path: Path, lines: Letters
) -> None:
    body = {"q": lines(900, 14), **LANGUAGES}
    with held_server(model_path, tmp_path / "closed") as server, ThreadPoolExecutor(4) as clients:
        found = [clients.submit(server.ask, "POST", "/translate", body) for _ in range(4)]
        wait_for(server, 900)
        server.process.kill()
        for one in found:
            with pytest.raises((ConnectionError, http.client.HTTPException)):
                one.result()
    with serving(model_path, "--languages", "en-de", port=server.port or 0) as again:
        assert again.port == server.port and again.translate("a b c")


def test_clients_that_do_not_read_do_not_block_others(server: Server, lines: Letters, wanted: Any) -> None:
    asked = lines(400, 15)
    body = json.dumps({"text": asked, **LANGUAGES, "stream": True}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # the server's output soon fills it
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        assert [server.translate(some) for some in asked[:5]] == wanted(asked[:5])
        stream = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert stream.count("event: sentence") == stream.count("event: translation") == 400 and "event: done" in stream


def test_errors_are_one_line(cli: Any, model_path: Path, tmp_path: Path) -> None:
    for arguments, complaint in (
        ([model_path], "its languages are unknown; add --languages"),
        ([tmp_path / "none", "--languages", "en-de"], "none"),
        ([model_path, "--languages", "en"], "write two different codes"),
        ([model_path, "--languages", "en-de", "--port", "99999"], "--port 99999"),
        ([model_path, "--languages", "en-de", "--suggestions", tmp_path / "a.txt"], "must end with .tmx"),
        ([model_path, "--languages", "en-de", "--host", "203.0.113.1"], "--host 203.0.113.1"),
    ):
        assert complaint in cli("serve", *arguments).complaint
