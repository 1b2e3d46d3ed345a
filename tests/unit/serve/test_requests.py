"""What a request may say, who may ask, and which languages a folder speaks of."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from headwise.errors import UserError
from headwise.serve.access import (
    PART,
    AccessMiddleware,
    AccessRules,
    BodyMemory,
    LimitedBody,
    ResponseSender,
    read_keys,
    warn_about_readers,
    without_prefix,
)
from headwise.serve.files import parse_upload
from headwise.serve.languages import detect_languages
from headwise.serve.models import SentenceOptions, ServedModel, load_served_models
from headwise.serve.parameters import FILE, NATIVE, TRANSLATE, RequestError, RequestLimits, glossary_terms, read_values
from headwise.serve.router import ModelRouter
from headwise.serve.routes import charset_of, public_address, request_values
from headwise.serve.server import _bind_path
from headwise.text.language_codes import language_pair_of

ASKED = {"q": "A dog.", "source": "en", "target": "de"}
SMALL = RequestLimits(characters=20, texts=3, alternatives=4)


def test_defaults_are_libretranslates() -> None:
    assert read_values(TRANSLATE, ASKED, SMALL) == {**ASKED, "format": "text", "alternatives": 0, "api_key": None}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"q": 7}, "Invalid request: q must be a text"),
        ({"q": ["a", None]}, "Invalid request: q must be a text or a list of texts"),
        ({"q": "a" * 21}, "Invalid request: request (21) exceeds text limit (20)"),
        ({"q": ["a" * 11, "a" * 10]}, "Invalid request: request (21) exceeds text limit (20)"),
        ({"q": ["a"] * 4}, "Invalid request: request (4) exceeds text limit (3)"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": True}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": "\u0663"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 5}, "Invalid request: alternatives must be from 0 to 4"),
        ({"alternatives": -1}, "Invalid request: alternatives must be from 0 to 4"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(RequestError) as raised:
        read_values(TRANSLATE, ASKED | change, SMALL)
    assert (raised.value.status, str(raised.value)) == (400, complaint)


NATIVELY = {"text": "A dog.", "source": "en", "target": "de"}
TERMS = RequestLimits(terms=2, term_characters=5)


@pytest.mark.parametrize(
    ("asked", "terms"),
    [
        ({}, ()),
        ({"glossary": [["dog", "Hund"], ["cat", "Katze"]]}, (("dog", "Hund"), ("cat", "Katze"))),
        ({"glossary": {"dog": "Hund"}, "keep": ["A", "B"]}, (("dog", "Hund"), ("A", "A"), ("B", "B"))),
        ({"glossary": [["\ud800a", "b\n c"]]}, (("?a", "b c"),)),
        ({"glossary": {}, "keep": []}, ()),
    ],
)
def test_terms_are_pairs_or_an_object(asked: dict[str, Any], terms: Any) -> None:
    assert glossary_terms(read_values(NATIVE, NATIVELY | asked, TERMS)) == terms


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"glossary": "dog"}, "glossary must be a list of pairs of texts, or an object of texts"),
        ({"glossary": ["dog"]}, "glossary must be a list of pairs of texts, or an object of texts"),
        ({"glossary": [["dog", "Hund", "Köter"]]}, "glossary must be a list of pairs of texts, or an object of texts"),
        ({"glossary": {"dog": 1}}, "glossary must be a list of pairs of texts, or an object of texts"),
        ({"glossary": {"a": "a", "b": "b", "c": "c"}}, "glossary has 3 terms, 2 at most"),
        ({"glossary": {"a": "123456"}}, "glossary has a term of 6 characters, 5 at most"),
        ({"keep": "dog"}, "keep must be a list of texts"),
        ({"keep": [["dog", "dog"]]}, "keep must be a list of texts"),
        ({"keep": ["a", "b", "c"]}, "keep has 3 terms, 2 at most"),
        ({"keep": ["123456"]}, "keep has a term of 6 characters, 5 at most"),
        ({"glossary": {"": "a"}}, "glossary: source and target need words: '', 'a'"),
        ({"keep": [" \n"]}, "glossary: source and target need words: '', ''"),
        ({"glossary": {"a": "b"}, "keep": ["a"]}, "glossary: 'a' has two translations, 'b' and 'a'; remove one"),
    ],
)
def test_terms_that_are_none(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError) as raised:
        glossary_terms(read_values(NATIVE, NATIVELY | asked, TERMS))
    assert str(raised.value).startswith(f"Invalid request: {complaint}")


def test_a_form_has_terms_as_lines() -> None:
    form = {"file": object(), "source": "en", "target": "de"}
    assert glossary_terms(read_values(FILE, form, TERMS)) == ()
    found = glossary_terms(read_values(FILE, form | {"glossary": "a b\tc\r\n\nd\te"}, TERMS))
    assert found == (("a b", "c"), ("d", "e"))
    for lines in ("a = b", "a\tb\tc", "a\tb\nc\td\ne\tf", "a\t123456", "a\t"):
        with pytest.raises(UserError, match="glossary"):
            glossary_terms(read_values(FILE, form | {"glossary": lines}, TERMS))


def test_terms_are_searched_for_in_wider_beams() -> None:
    one = ServedModel(Path("m"), (("en", "de"),), model, {"beam_size": 2})
    assert [one.hypotheses(SentenceOptions("en", "de", terms=terms)) for terms in ((), (("dog", "Hund"),))] == [2, 8]


def test_a_form_has_texts_only_and_half_characters_become_question_marks() -> None:
    assert read_values(TRANSLATE, ASKED | {"alternatives": "3", "q": "\ud800"}, SMALL)["q"] == "?"
    native = {"text": "a", "source": "en", "target": "de", "alignment": "true", "n_best": "2"}
    assert read_values(NATIVE, native, SMALL)["alignment"] is True


@pytest.mark.parametrize(
    ("headers", "complaint"),
    [
        ({"host": "localhost:5000"}, ""),
        ({"host": "127.0.0.1"}, ""),
        ({"host": "[::1]:5000"}, ""),
        ({"host": "translate.example:80"}, ""),
        ({"host": "Translate.EXAMPLE:80"}, ""),
        ({"host": "LOCALHOST:5000", "origin": "http://localhost:5000"}, ""),
        ({"host": "evil.example"}, "host name"),
        ({}, "host name"),
        ({"host": "localhost:5000", "origin": "http://localhost:5000"}, ""),
        ({"host": "localhost:5000", "origin": "http://localhost:8000"}, "other sites"),
        ({"host": "localhost:5000", "origin": "https://evil.example"}, "other sites"),
        ({"host": "localhost:5000", "origin": "https://friend.example"}, ""),
        ({"host": "localhost:5000", "origin": "chrome-extension://abc"}, ""),
        ({"host": "localhost:5000", "origin": "null"}, "other sites"),
        ({"host": "localhost:5000", "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, "other sites"),
        ({"host": "localhost:5000", "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, "other sites"),
        ({"host": "localhost:5000", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, ""),
        ({"host": "localhost:5000", "origin": "https://evil.example", "sec-fetch-mode": "navigate"}, "other sites"),
        ({"host": "localhost:5000", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, ""),
    ],
)
def test_who_may_ask(headers: dict[str, str], complaint: str) -> None:
    access = AccessRules(names=("translate.Example",), origins=("https://friend.example",))
    try:
        access.check(headers)
    except RequestError as error:
        assert complaint and complaint in str(error) and error.status == 403
    else:
        assert not complaint


@pytest.mark.parametrize(
    ("prefix", "path", "found"),
    [
        ("", "/mt/a", "/mt/a"),
        ("/mt", "/mt/a", "/a"),
        ("/mt", "/a", "/a"),
        ("/mt", "/mtx/a", "/mtx/a"),
        ("/mt", "/mt", "/"),
    ],
)
def test_a_prefix_of_the_proxy_is_removed(prefix: str, path: str, found: str) -> None:
    assert without_prefix({"path": path}, prefix)["path"] == found


def test_the_prefix_alone_leads_to_the_page() -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        await Response(scope["path"])(scope, receive, send)

    for prefix in ("/mt", "/a/mt"):
        access = AccessRules(names=("testserver",), url_prefix=prefix)
        app = AccessMiddleware(page, access, RequestLimits(), lambda *ended: None)
        client = TestClient(app)
        assert (client.get(prefix).url.path, client.get(prefix).text) == (f"{prefix}/", "/")
        assert client.get(f"{prefix}/docs").text == client.get("/docs").text == "/docs"


def request(method: str, body: bytes, kind: str, **more: Any) -> Request:
    """A request with this body."""
    headers = [(b"content-type", kind.encode())]

    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    return Request({"type": "http", "method": method, "headers": headers, "query_string": b"", **more}, receive)


@pytest.mark.parametrize(
    ("header", "option", "prefix"),
    [
        ("", "", ""),
        ("", "/mt", "/mt"),
        ("/a/b/", "/mt", "/a/b"),
        ("https://evil.example", "/mt", "/mt"),
        ('/a"b', "", ""),
    ],
)
def test_addresses_have_the_prefix_of_the_proxy(header: str, option: str, prefix: str) -> None:
    headers = [(b"host", b"mt.example:8000"), (b"x-forwarded-prefix", header.encode())]
    asked = Request({"type": "http", "scheme": "https", "path": "/", "query_string": b"", "headers": headers})
    assert public_address(asked, option) == f"https://mt.example:8000{prefix}"


FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "kind", "query", "values"),
    [
        (b"q=a&q=b&target=de", FORM, b"", {"q": ["a", "b"], "target": "de"}),
        (b"q=b", FORM, b"q=a&source=en", {"q": ["a", "b"], "source": "en"}),
        (b'\xef\xbb\xbf{"q": "a"}', "application/json", b"", {"q": "a"}),
    ],
)
def test_every_value_of_a_request_is_read(body: bytes, kind: str, query: bytes, values: dict[str, Any]) -> None:
    assert asyncio.run(request_values(request("POST", body, kind, query_string=query))) == values


@pytest.mark.parametrize("body", [b'{"q": "a", "source": "en", "q": "b"}', b'{"glossary": {"q": "b", "q": "c"}}'])
def test_a_repeated_key_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError, match="key q is repeated"):
        asyncio.run(request_values(request("POST", body, "application/json")))


@pytest.mark.parametrize("name", ["source", "format", "alternatives"])
def test_only_texts_may_be_repeated(name: str) -> None:
    with pytest.raises(RequestError, match=name):
        read_values(TRANSLATE, {**ASKED, name: ["1", "1"]}, SMALL)


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets")
def test_a_socket_is_bound_once(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with _bind_path(path):
        with pytest.raises(UserError, match="another server uses it"):
            _bind_path(path)
        assert Path(path).stat().st_mode & 0o777 == 0o660
    _bind_path(path).close()  # a server that was killed left it
    (tmp_path / "file").write_text("kept")
    for wrong, why in (("file", "no socket"), ("none/s", "No such file")):
        with pytest.raises(UserError, match=why):
            _bind_path(str(tmp_path / wrong))
    assert (tmp_path / "file").read_text() == "kept"


@given(name=st.text(min_size=1), compatible=st.booleans())
def test_unknown_parameters_are_refused(name: str, compatible: bool) -> None:
    """By the addresses of LibreTranslate only those that our own have, because LibreTranslate ignores others."""
    for table, asked in ((TRANSLATE, ASKED), (NATIVE, {"text": "a", "source": "en", "target": "de"})):
        known, own = {one.name for one in table}, {one.name for one in NATIVE}
        for unread in {name, "glosary", "n_best", "glossary", "secret"} - known:
            values = {**asked, unread: 1}
            if compatible and unread not in own:
                assert read_values(table, values, SMALL, compatible).keys() == known
                continue
            with pytest.raises(RequestError, match="Invalid request: unknown parameter") as raised:
                read_values(table, values, SMALL, compatible)
            assert raised.value.status == 400
    with pytest.raises(RequestError, match=r"unknown parameter 'glosary'; did you mean 'glossary'\?"):
        read_values(NATIVE, {"text": "a", "source": "en", "target": "de", "glosary": {}}, SMALL, compatible=False)


def test_prefixes_are_limited() -> None:
    native = {"text": "a", "source": "en", "target": "de"}
    limits = RequestLimits(prefix_characters=9)
    assert read_values(NATIVE, {**native, "prefix": "a" * 9}, limits)["prefix"] == "a" * 9
    with pytest.raises(RequestError, match="prefix has 10 characters, 9 at most"):
        read_values(NATIVE, {**native, "prefix": "a" * 10}, limits)


@pytest.mark.parametrize(("given", "number"), [(3, 3), (3.0, 3), ("3", 3)])
def test_numbers(given: Any, number: int) -> None:
    found = read_values(NATIVE, {"text": "a", "source": "en", "target": "de", "n_best": given}, RequestLimits())
    assert found["n_best"] == number and type(found["n_best"]) is int


@pytest.mark.parametrize("given", [3.5, True, "3.0", [3], float("inf"), float("nan"), -1])
def test_what_is_no_number(given: Any) -> None:
    with pytest.raises(RequestError, match="n_best"):
        read_values(NATIVE, {"text": "a", "source": "en", "target": "de", "n_best": given}, RequestLimits())


def test_all_origins_can_be_allowed() -> None:
    access = AccessRules(origins=("*",))
    for origin in ("https://evil.example", "null"):
        access.check({"host": "localhost", "origin": origin})
        assert access.allows(origin)


def test_keys(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# ours\n0123456789abcdef Ada\n\nfedcba9876543210\n", encoding="utf-8")
    access = AccessRules(keys=read_keys(str(tmp_path / "keys")))
    assert access.check_key("0123456789abcdef") == "Ada"
    assert access.check_key("fedcba9876543210") == "3465f6e6"
    for wrong in ("", "0123456789abcde", "Ada", "\u00e9", "\ud800"):
        with pytest.raises(RequestError, match="API key"):
            access.check_key(wrong)
    assert AccessRules().check_key("") == ""


def test_a_file_of_keys_may_begin_with_a_mark_and_should_be_private(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys"
    path.write_text("0123456789abcdef Ada\n", encoding="utf-8-sig")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        path.chmod(mode)
        assert read_keys(str(path)) == {"0123456789abcdef": "Ada"}
        warn_about_readers(str(path))
        assert (f"chmod 600 {path}" in capsys.readouterr().err) is warned
    path.write_bytes("0123456789abcdef Ada\u2028Lovelace\r\n\nfedcba9876543210 Bo".encode())
    assert read_keys(str(path)) == {"0123456789abcdef": "Ada\u2028Lovelace", "fedcba9876543210": "Bo"}


@pytest.mark.parametrize("name", ["Host", "origin", "Authorization", "content-type", "content-length"])
def test_a_repeated_header_is_refused(name: str) -> None:
    headers = [(b"host", b"localhost"), (name.encode(), b"localhost"), (name.upper().encode(), b"evil.example")]
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    access = AccessMiddleware(app, AccessRules(), RequestLimits(), lambda *request: None)
    asyncio.run(access({"type": "http", "method": "GET", "path": "/", "headers": headers}, None, send))
    assert sent[0]["status"] == 400 and name.lower() in sent[1]["body"].decode()


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART])
def test_a_long_body_is_sent_in_parts(size: int) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    content = bytes(i % 251 for i in range(size))
    answer = ResponseSender(send, "")
    asyncio.run(answer({"type": "http.response.body", "body": content}))
    assert b"".join(part["body"] for part in sent) == content
    assert [part.get("more_body", False) for part in sent] == [True] * (len(sent) - 1) + [False]
    assert max(len(part["body"]) for part in sent) <= PART


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ("application/json", ""),
        ("text/plain; charset=utf-8", "utf-8"),
        ('multipart/form-data; boundary=x; CHARSET="utf-7"', "utf-7"),
        ("", ""),
    ],
)
def test_the_charset_of_a_request(content_type: str, charset: str) -> None:
    assert charset_of(content_type) == charset


@pytest.mark.parametrize(("content", "complaint"), [("", "no keys"), ("long-enough-to-be-one\nshort\n", "line 2")])
def test_a_file_without_usable_keys(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "keys").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=complaint):
        read_keys(str(tmp_path / "keys"))
    with pytest.raises(UserError, match="No such file"):
        read_keys(str(tmp_path / "none"))


def model(path: str = "m", **about: Any) -> Any:
    return SimpleNamespace(path=Path(path), about=about, tokenizer=SimpleNamespace(declared={}), decode_config=None)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (model(corpus={"train": ["a/train.en.gz", "train.de.gz"]}), ("en", "de")),
        (model(corpus={"train": ["train.src", "train.tgt"]}), None),
        (model(corpus={"train": ["pairs.tsv"]}), None),
        (model(corpus={"train": ["pairs.en-de.tsv.gz"]}), ("en", "de")),
        (model(languages="en to de"), ("en", "de")),
        (model("models/opus-mt-de-en"), ("de", "en")),
        (SimpleNamespace(path=Path("x"), hf_config={"_name_or_path": "Helsinki-NLP/opus-mt-en-fr"}), ("en", "fr")),
    ],
)
def test_which_languages_a_folder_speaks_of(known: Any, expected: Any) -> None:
    assert language_pair_of(known) == expected


def test_models_and_their_languages() -> None:
    load = model
    assert load_served_models(["m"], [("en", "de")], load, {}, True)[0].is_loaded
    assert not load_served_models(["m"], [("en", "de")], load, {}, False)[0].is_loaded
    with pytest.raises(UserError, match="its languages are unknown; add --languages"):
        load_served_models(["m"], [], load, {}, True)
    with pytest.raises(UserError, match="2 pairs for 3 models"):
        load_served_models(["a", "b", "c"], [("en", "de"), ("de", "en")], load, {}, True)
    with pytest.raises(UserError, match="also translates en-de"):
        load_served_models(["a", "b"], [("en", "de"), ("en", "de")], load, {}, True)


def test_what_is_not_served_is_said_in_libretranslates_words() -> None:
    router = ModelRouter([ServedModel(Path("m"), (("en", "de"), ("en", "fr")), model)])
    assert router.languages()[0] == {"code": "en", "name": "English", "targets": ["de", "fr"]}
    for pair, complaint in {
        ("en", "xx"): "xx is not supported",
        ("de", "fr"): r"French \(fr\) is not available as a target language from German \(de\)",
    }.items():
        with pytest.raises(UserError, match=complaint):
            router.find(*pair)


def test_a_language_is_detected_among_those_that_are_served() -> None:
    found = detect_languages("Ein brauner Hund läuft durch das hohe Gras.", ("en", "de"))
    assert found[0]["language"] == "de" and found[0]["confidence"] > 90 and len(found) == 2


def test_unsupported_uploads() -> None:
    with pytest.raises(RequestError, match="file format not supported"):
        parse_upload("a.exe", b"", ("en", "de"), 99)


def test_a_body_of_unknown_length_is_limited() -> None:
    async def chunk() -> Any:
        return {"type": "http.request", "body": b"a" * 60, "more_body": True}

    async def read() -> None:
        body = LimitedBody(chunk, replace(SMALL, body=100), BodyMemory(1000))
        assert len((await body())["body"]) == 60
        await body()

    with pytest.raises(RequestError) as caught:
        asyncio.run(read())
    assert caught.value.status == 413
