"""The request handlers: LibreTranslate's API, our own API under /v1, and the pages.

LibreTranslate accepts JSON, forms and queries at the same addresses, so bodies are read here and validated by the
tables of `parameters`. See `access` for access control and `server` for running the server.
"""

import asyncio
import json
import re
import secrets
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headwise.documents.markup.placeholders import with_codes
from headwise.documents.quality_checks import quality_warnings
from headwise.documents.reading import ENDINGS
from headwise.documents.segment_memory import match_values
from headwise.documents.segments import SentenceTranslation
from headwise.errors import FULL, UserError
from headwise.serve.access import AccessRules, log_event
from headwise.serve.batching import QueueFull
from headwise.serve.documents import DocumentProcesses
from headwise.serve.files import attachment, stored_name
from headwise.serve.jobs import UNAVAILABLE
from headwise.serve.languages import detect_languages, most_likely_language
from headwise.serve.metrics import Metrics
from headwise.serve.models import ModelUnavailable, SentenceOptions
from headwise.serve.openapi import openapi_document
from headwise.serve.page import api_page, example_request, translation_page
from headwise.serve.parameters import (
    DETECT,
    FILE,
    NATIVE,
    SUGGEST,
    TRANSLATE,
    Parameter,
    RequestError,
    RequestLimits,
    TermPairs,
    glossary_terms,
    read_values,
    replace_surrogates,
)
from headwise.serve.progress import JobProgress
from headwise.serve.router import ModelRouter
from headwise.serve.storage import Storage
from headwise.serve.suggestions import Suggestions
from headwise.serve.translation import (
    TextTranslation,
    cancel_when,
    gather_or_cancel,
    stream_texts,
    translate_documents,
    translate_html,
    translate_texts,
    with_memory_matches,
)
from headwise.serve.usage import UsageCounter, client_address
from headwise.text.language_codes import language_name

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

CHARSETS = ("", "utf-8", "utf8", "us-ascii")  # of requests
JSON_LIKE = ("application/json", "+json")
Handler = Callable[["Request"], Awaitable[Any]]  # returns a response, or a value for JSON


@dataclass(frozen=True)
class RequestHandlers:
    """The state of the server, and a method for each address."""

    router: ModelRouter
    limits: RequestLimits
    access: AccessRules
    metrics: Metrics
    storage: Storage
    folder: Path  # of the translated files in the storage
    documents: DocumentProcesses
    usage: UsageCounter
    log_text: bool = False  # log translated sentences
    suggestions: Suggestions | None = None  # None: clients cannot suggest translations
    has_jobs: bool = True  # the page uses document jobs

    # --- LibreTranslate's API

    async def translate(self, request: "Request") -> Any:
        """Translate a text or a list of texts."""
        values = await self.parameters(request, TRANSLATE)
        texts = values["q"] if isinstance(values["q"], list) else [values["q"]]
        sources = self.sources(values["source"], texts)
        count, is_html = values["alternatives"], values["format"] == "html"
        work = self.translate_by_source(sources, texts, values["target"], count + 1, is_html)
        translations = await self.with_timeout(request, work)
        answer: dict[str, Any] = {"translatedText": [one.text for one in translations]}
        if values["source"] == "auto":
            answer["detectedLanguage"] = sources
        if count:
            answer["alternatives"] = [[other.text for other in one.alternatives] for one in translations]
        return answer if isinstance(values["q"], list) else {name: parts[0] for name, parts in answer.items()}

    async def languages(self, request: "Request") -> Any:
        """The served languages."""
        return self.router.languages()

    async def detect(self, request: "Request") -> Any:
        """Detect the language of a text."""
        values = await self.parameters(request, DETECT)
        return await asyncio.to_thread(detect_languages, values["q"], self.router.codes)

    async def translate_file(self, request: "Request") -> Any:
        """Translate a file; the result can be downloaded for a limited time."""
        values = await self.parameters(request, FILE)
        name = values["file"].filename or ""
        if not name:
            raise RequestError(400, "Invalid request: empty file")
        terms, content = glossary_terms(values), await values["file"].read()
        work = self.translated_file(name, content, values["source"], values["target"], terms)
        written, counts, _ = await self.with_timeout(request, work)
        key, last = secrets.token_hex(16), stored_name(name)
        await self.storage.write(self.folder / key, written)
        self.storage.keep(key, self.folder / key)
        url = public_address(request, self.access.url_prefix)
        return {"translatedFileUrl": f"{url}/download_file/{key}.{quote(last)}", **counts}

    async def translated_file(
        self, name: str, content: bytes, source: str, target: str, terms: TermPairs, progress: JobProgress | None = None
    ) -> tuple[bytes, dict[str, dict[str, int]], bytes]:
        """A file with its translation, and the numbers of texts that are never translated and of quality warnings.

        With `progress` also a report (`fill_report`), in JSON.
        """
        languages = ("" if source == "auto" else source, target)
        async with self.documents.open(is_html=False) as documents:
            sample, not_translated = await documents.read_file(name, content, languages, self.limits.body)
            source = self.sources(source, [sample])[0]["language"]
            options = SentenceOptions(source, target, terms=terms)
            model, memory = self.router.find(source, target), self.router.memory(options)
            (written,), (found,) = await translate_documents(model, documents, options, memory, progress, self.usage)
            counts = {"notTranslated": not_translated, "warnings": await documents.warnings()}
            report = await documents.report(memory) if progress else b""
        self.record(found)
        return written, counts, report

    async def download_file(self, request: "Request") -> Any:
        """Download a translated file."""
        key, _, name = request.path_params["name"].partition(".")
        self.storage.expire()
        if not (re.fullmatch("[0-9a-f]{32}", key) and name and (self.folder / key).is_file()):  # maybe of a replica
            raise RequestError(404, "no such file, or it has expired")
        return file_response(self.folder / key, name=name)

    async def settings(self, request: "Request") -> Any:
        """Settings for a web page."""
        source, target = next(iter(self.router.by_pair))
        return {
            "apiKeys": bool(self.access.keys),
            "charLimit": self.limits.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": bool(self.access.keys),
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": self.suggestions is not None,
            "supportedFilesFormat": list(ENDINGS),
        }

    async def suggest(self, request: "Request") -> Any:
        """Store a suggested translation."""
        if not self.suggestions:
            raise RequestError(403, "Suggestions are disabled on this server.")
        values = await self.parameters(request, SUGGEST)
        languages = (values["source"], values["target"])
        self.router.find(*languages)
        await asyncio.to_thread(self.suggestions.add, values["q"], values["s"], languages)
        return {"success": True}

    async def health(self, request: "Request") -> Any:
        """Health check."""
        return {"status": "ok"}

    # --- our own API

    async def native(self, request: "Request") -> Any:
        """Translate with details of each sentence, at once or as a stream."""
        values = await self.parameters(request, NATIVE, compatible=False)
        texts = values["text"] if isinstance(values["text"], list) else [values["text"]]
        source = self.sources(values["source"], ["\n".join(texts)])[0]["language"]
        n_best, terms = max(values["n_best"], 1), glossary_terms(values)
        options = SentenceOptions(source, values["target"], values["prefix"], n_best, values["alignment"], terms)
        if values["stream"]:
            return await self.events(texts, options)
        found = await self.with_timeout(request, self.translated_with_matches(texts, options))
        self.record(chain.from_iterable(one.sentences for one in found))
        return {"source": source, "target": options.target, "translations": [text_json(one) for one in found]}

    async def translated_with_matches(self, texts: Sequence[str], options: SentenceOptions) -> list[TextTranslation]:
        """Translate texts, and find each sentence in the translation memory."""
        memory = self.router.memory(options)
        found = await translate_texts(self.router, texts, options)
        return [replace(one, sentences=tuple(await with_memory_matches(one.sentences, memory))) for one in found]

    async def events(self, texts: list[str], options: SentenceOptions) -> Any:
        """A stream of events. Errors of the request are raised before it starts."""
        from starlette.responses import StreamingResponse

        stream = stream_texts(self.router, texts, options)
        first = await anext(stream)

        async def lines() -> AsyncIterator[str]:
            async with aclosing(stream):
                try:
                    yield self.event(first)
                    async with asyncio.timeout(self.limits.seconds):
                        async for part in stream:
                            yield self.event(part)
                    yield "event: done\ndata: {}\n\n"
                except (UserError, TimeoutError) as error:
                    yield f"event: error\ndata: {json.dumps({'error': str(error) or 'time limit exceeded'})}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    def event(self, part: tuple[int, SentenceTranslation | TextTranslation]) -> str:
        """A sentence, or a complete text with its number in the request."""
        number, found = part
        if isinstance(found, SentenceTranslation):
            self.metrics.translated([found])
            return f"event: sentence\ndata: {json.dumps({'number': number, **sentence_json(found)})}\n\n"
        whole = {"number": number, "text": found.text, "score": found.score}
        return f"event: translation\ndata: {json.dumps(whole)}\n\n"

    async def key_usage(self, request: "Request") -> Any:
        """The usage of an API key, which the request has."""
        name = self.access.check_key(given_key(request, request.query_params))
        if not name:
            raise RequestError(404, "this server has no API keys, whose usage it could count")
        return self.usage.report(name)

    async def prometheus(self, request: "Request") -> Any:
        """Prometheus metrics."""
        from starlette.responses import Response

        text, kind = self.metrics.text()
        return Response(text, headers={"content-type": kind})

    async def page(self, request: "Request") -> Any:
        """The translation page."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(translation_page(self.router.languages(), bool(self.access.keys), self.has_jobs))

    async def description(self, request: "Request") -> Any:
        """The OpenAPI document as a page."""
        from starlette.responses import HTMLResponse

        address = f"{request.url.scheme}://{request.url.netloc}{self.access.url_prefix}/"
        example = example_request(address, self.router.languages(), bool(self.access.keys))
        return HTMLResponse(api_page(await self.openapi(request), example))

    async def openapi(self, request: "Request") -> Any:
        """The OpenAPI document of this server."""
        return openapi_document(self.limits, self.router.sources, self.router.targets, self.has_jobs)

    # --- shared by the handlers

    async def parameters(
        self, request: "Request", parameters: tuple[Parameter, ...], compatible: bool = True
    ) -> dict[str, Any]:
        """The parameters of a request with a valid API key; it is counted. See `read_values`."""
        values = await request_values(request)
        name = self.access.check_key(given_key(request, values))
        found = read_values(parameters, values, self.limits, compatible)
        texts = found.get("q", found.get("text", ()))
        client = name or client_address(request.client.host if request.client else "")
        self.usage.start(client, len(texts) if isinstance(texts, str) else sum(map(len, texts)))
        return found

    def sources(self, source: str, texts: list[str]) -> list[dict[str, Any]]:
        """The language of each text in LibreTranslate's format: as given, or detected."""
        if source != "auto":
            return [{"confidence": 100.0, "language": source}] * len(texts)
        overall = most_likely_language("\n".join(texts), self.router.sources)
        return [most_likely_language(text, self.router.sources) if len(text) > 40 else overall for text in texts]

    async def translate_by_source(
        self, sources: list[dict[str, Any]], texts: list[str], target: str, n_best: int, is_html: bool
    ) -> list[TextTranslation]:
        """Translate texts of several source languages, those of each language together."""
        by_source: dict[str, list[int]] = {}
        for number, source in enumerate(sources):
            by_source.setdefault(source["language"], []).append(number)
        work = []
        for source, numbers in by_source.items():
            options = SentenceOptions(source, target, n_best=n_best)
            translate = self.translated_html if is_html else partial(translate_texts, self.router)
            work.append(translate([texts[i] for i in numbers], options))
        translated = chain.from_iterable(await gather_or_cancel(work))
        by_number = dict(zip(chain.from_iterable(by_source.values()), translated, strict=True))
        self.record(chain.from_iterable(one.sentences for one in by_number.values()))
        return [by_number[number] for number in range(len(texts))]

    async def translated_html(self, texts: Sequence[str], options: SentenceOptions) -> list[TextTranslation]:
        """Translate HTML texts."""
        async with self.documents.open(is_html=True) as documents:
            return await translate_html(self.router, documents, texts, options)

    def record(self, sentences: Iterable[SentenceTranslation]) -> None:
        """Count sentences, and log them if enabled."""
        sentences = list(sentences)
        self.metrics.translated(sentences)
        for sentence in sentences if self.log_text else ():
            log_event(event="translated", source=sentence.source, text=sentence.text)

    async def with_timeout(self, request: "Request", work: Any) -> Any:
        """The result of `work`, unless it exceeds the time limit or the client disconnects."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                found = await cancel_when(work, client_disconnected(request))
        except TimeoutError:
            raise RequestError(504, f"not finished within {self.limits.seconds:g} s; send less text at once") from None
        if found is None:
            raise RequestError(499, "the client disconnected")
        return found

    def guarded(self, handler: Handler) -> Handler:
        """A handler for Starlette, with errors in LibreTranslate's format."""
        from starlette.exceptions import HTTPException
        from starlette.requests import ClientDisconnect

        async def answer(request: "Request") -> "Response":
            try:
                return to_response(await handler(request))
            except QueueFull as error:
                return error_response(429, str(error), {"retry-after": str(error.seconds)})
            except RequestError as error:
                return error_response(error.status, str(error), error.headers)
            except ModelUnavailable as error:
                log_event(event="unavailable", error=str(error))
                return error_response(400, UNAVAILABLE)
            except UserError as error:
                return error_response(400, str(error))
            except HTTPException as error:
                return error_response(error.status_code, f"Invalid request: {error.detail}")
            except ClientDisconnect:
                return error_response(499, "the client disconnected")
            except Exception as error:  # a bug; its message may contain the text, and is not logged
                if isinstance(error, OSError) and error.errno in FULL:  # where the parts of a form are stored
                    return error_response(507, f"the server cannot store the request: {error.strerror}")
                where = traceback.format_tb(error.__traceback__)
                log_event(event="fault", error=type(error).__name__, where=where)
                return error_response(500, f"Cannot translate text: {type(error).__name__}; see the log of the server")

        return answer


async def client_disconnected(request: "Request") -> None:
    """Wait until the client disconnects, after its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def given_key(request: "Request", values: Mapping[str, Any]) -> str:
    """The API key of a request, "" if it has none."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    key = values.get("api_key") or (bearer.strip() if scheme.lower() == "bearer" else "")
    return key if isinstance(key, str) else ""


async def request_values(request: "Request") -> dict[str, Any]:
    """The parameters of a request: from its query, its form or its JSON."""
    content_type = request.headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if (charset := charset_of(content_type)).lower() not in CHARSETS:
        raise RequestError(415, f"Invalid request: the charset {charset} is not supported; send UTF-8")
    if kind.endswith(JSON_LIKE):
        return parse_json_object(await request.body())
    form = await request.form(max_files=1, max_fields=50, max_part_size=64 * 1024 * 1024)
    return joined_values([*request.query_params.multi_items(), *form.multi_items()])


def joined_values(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The values by name; a list if there are several, so that none is lost.

    >>> joined_values([("q", "a"), ("target", "de"), ("q", "b")])
    {'q': ['a', 'b'], 'target': 'de'}
    """
    found: dict[str, list[Any]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def charset_of(content_type: str) -> str:
    """The charset of a Content-Type header as a form is read with it (python-multipart); "" without one."""
    from python_multipart.multipart import parse_options_header

    return parse_options_header(content_type)[1].get(b"charset", b"").decode("latin-1")


def parse_json_object(body: bytes) -> dict[str, Any]:
    """`RequestError` for anything but a JSON object."""
    try:
        values = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_without_repetition)
    except RequestError:
        raise
    except (ValueError, RecursionError):
        raise RequestError(400, "Invalid request: the body is not JSON in UTF-8") from None
    if not isinstance(values, dict):
        raise RequestError(400, "Invalid request: the body must be a JSON object")
    return values


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; `RequestError` if a key occurs again, whose first value would be lost."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise RequestError(400, f"Invalid request: the key {replace_surrogates(name)[:100]} is repeated")
        values[name] = value
    return values


def public_address(request: "Request", url_prefix: str) -> str:
    """The address of this server for the client, with the prefix of a proxy, which its header or `url_prefix` names."""
    prefix = proxy_prefix(request.headers.get("x-forwarded-prefix", "")) or url_prefix
    return f"{request.url.scheme}://{request.url.netloc}{prefix}"


def proxy_prefix(given: str) -> str:
    """The path in front of all addresses that a proxy names in X-Forwarded-Prefix; "" for anything else.

    >>> proxy_prefix("/mt/"), proxy_prefix("//evil.example"), proxy_prefix("/a b")
    ('/mt', '', '')
    """
    return given.rstrip("/") if re.fullmatch(r"(?:/[\w.~-]+)+/?", given, re.ASCII) else ""


def text_json(whole: TextTranslation) -> dict[str, Any]:
    """A text of /v1/translate."""
    return {"text": whole.text, "score": whole.score, "sentences": [sentence_json(one) for one in whole.sentences]}


def sentence_json(one: SentenceTranslation) -> dict[str, Any]:
    """A sentence of /v1/translate; `alignment` is null if not requested, or if the sentence was split."""
    return {
        "source": one.source,
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "alternatives": [{"text": other.text, "score": other.score} for other in one.alternatives],
        "alignment": None if one.links is None else sorted(one.links),
        "memory": one.memory and match_values(one.memory),
        "warnings": sentence_warnings(one),
    }


def sentence_warnings(one: SentenceTranslation) -> list[str]:
    """The warnings for a sentence: about its codes and, if a model translated it, its quality.

    >>> sentence_warnings(SentenceTranslation("Er hat 4 Hunde.", -0.2, -1.0, source="He has 3 dogs.", n_tokens=(5, 5)))
    ['other numbers']
    """
    about_codes = [one.warning] if one.warning else []
    if not one.n_tokens[1]:
        return about_codes
    source, target = with_codes((one.source,)), with_codes((one.text,))
    return [*about_codes, *quality_warnings(source, target, one.log_prob / (one.n_tokens[1] + 1))]


def to_response(value: Any) -> "Response":
    """A value as JSON; a response unchanged."""
    from starlette.responses import JSONResponse, Response

    return value if isinstance(value, Response) else JSONResponse(value)


def file_response(path: Path, kind: str = "application/octet-stream", name: str = "") -> "Response":
    """A stored file, read while it is sent; `name`: under which it is downloaded."""
    from starlette.responses import FileResponse

    return FileResponse(path, media_type=kind, headers={"content-disposition": attachment(name)} if name else None)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> "Response":
    """An error in LibreTranslate's format."""
    from starlette.responses import JSONResponse

    return JSONResponse({"error": message}, status, headers)
