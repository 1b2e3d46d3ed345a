"""What is answered at which address: LibreTranslate's API, our own under /v1, and the pages.

LibreTranslate's requests come as JSON, as forms and in the address, to the same addresses; so bodies are read by hand
and checked by the tables of `asked`. Not here: who may ask (`gate`), and running it all (`run`).
"""

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from sightline.errors import UserError
from sightline.localisation.reading import ENDINGS
from sightline.localisation.unit import without_inline_codes
from sightline.models.load import load_alignment
from sightline.serve.access import AccessRules, log_event
from sightline.serve.batching import QueueFull
from sightline.serve.files import FileStore, parse_upload
from sightline.serve.languages import detect_languages, language_name, most_likely_language
from sightline.serve.metrics import Metrics
from sightline.serve.models import ModelRouter, ModelUnavailable, SentenceOptions, SentenceTranslation
from sightline.serve.openapi import openapi_document
from sightline.serve.page import api_page, translation_page
from sightline.serve.parameters import (
    DETECT,
    FILE,
    NATIVE,
    TRANSLATE,
    Parameter,
    RequestError,
    RequestLimits,
    glossary_terms,
    read_values,
)
from sightline.serve.translation import (
    TextTranslation,
    cancel_when,
    gather_or_cancel,
    stream_texts,
    translate_document,
    translate_texts,
)

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

JSON_LIKE = ("application/json", "+json")
Handler = Callable[["Request"], Awaitable[Any]]  # a value to be written as JSON, or a response


@dataclass(frozen=True)
class RequestHandlers:
    """All that the server knows, and an answer to each kind of request."""

    offer: ModelRouter
    caps: RequestLimits
    neighbours: AccessRules
    meters: Metrics
    shelf: FileStore
    log_text: bool = False  # what is translated goes into the log

    # --- LibreTranslate's API

    async def translate(self, request: "Request") -> Any:
        """A text or a list of texts."""
        asked = await self.asked(request, TRANSLATE)
        texts = asked["q"] if isinstance(asked["q"], list) else [asked["q"]]
        sources = self.sources(asked["source"], texts)
        count, is_html = asked["alternatives"], asked["format"] == "html"
        found = await self.in_time(request, self.from_each(sources, texts, asked["target"], count + 1, is_html))
        answer: dict[str, Any] = {"translatedText": [one.text for one in found]}
        if asked["source"] == "auto":
            answer["detectedLanguage"] = sources
        if count:
            answer["alternatives"] = [one.alternatives for one in found]
        return answer if isinstance(asked["q"], list) else {name: values[0] for name, values in answer.items()}

    async def languages(self, request: "Request") -> Any:
        """What is served."""
        return self.offer.languages()

    async def detect(self, request: "Request") -> Any:
        """The languages that a text may be in."""
        asked = await self.asked(request, DETECT)
        return await asyncio.to_thread(detect_languages, asked["q"], self.offer.codes)

    async def translate_file(self, request: "Request") -> Any:
        """A file, which is then kept for some time under an address of its own."""
        asked = await self.asked(request, FILE)
        name = asked["file"].filename or ""
        if not name:
            raise RequestError(400, "Invalid request: empty file")
        languages = ("" if asked["source"] == "auto" else asked["source"], asked["target"])
        content = await asked["file"].read()
        document = await asyncio.to_thread(parse_upload, name, content, languages, self.caps.body)
        text = "\n".join(without_inline_codes(unit.source) for unit in document.units)
        source = self.sources(asked["source"], [text])[0]["language"]
        model = self.offer.find(source, asked["target"])
        (written,), found = await self.in_time(
            request, translate_document(model, document, SentenceOptions(source, asked["target"]))
        )
        self.seen(found)
        key = self.shelf.put(name, written)
        return {"translatedFileUrl": f"{request.url.scheme}://{request.url.netloc}/download_file/{key}"}

    async def download_file(self, request: "Request") -> Any:
        """A file that was translated."""
        from starlette.responses import Response

        name, content = self.shelf.take(request.path_params["name"])
        headers = {"content-disposition": f'attachment; filename="{name.encode("ascii", "replace").decode()}"'}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def settings(self, request: "Request") -> Any:
        """What a page needs to know."""
        source, target = next(iter(self.offer.by_direction))
        return {
            "apiKeys": bool(self.neighbours.keys),
            "charLimit": self.caps.characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": bool(self.neighbours.keys),
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": list(ENDINGS),
        }

    async def health(self, request: "Request") -> Any:
        """That somebody is here."""
        return {"status": "ok"}

    # --- our own

    async def native(self, request: "Request") -> Any:
        """Texts with what is known of each sentence; at once, or sentence by sentence."""
        asked = await self.asked(request, NATIVE)
        texts = asked["text"] if isinstance(asked["text"], list) else [asked["text"]]
        source = self.sources(asked["source"], ["\n".join(texts)])[0]["language"]
        n_best, terms = max(asked["n_best"], 1), glossary_terms(asked)
        wish = SentenceOptions(source, asked["target"], asked["prefix"], n_best, asked["alignment"], terms)
        if asked["stream"]:
            return await self.events(texts, wish)
        found = await self.in_time(request, translate_texts(self.offer, texts, wish))
        self.seen(chain.from_iterable(one.sentences for one in found))
        return {"source": source, "target": wish.target, "translations": [text_json(one) for one in found]}

    async def events(self, texts: list[str], wish: SentenceOptions) -> Any:
        """A stream of events. What would refuse the request does so before the stream begins."""
        from starlette.responses import StreamingResponse

        stream = stream_texts(self.offer, texts, wish)
        first = await anext(stream)

        async def lines() -> AsyncIterator[str]:
            async with aclosing(stream):
                try:
                    yield self.event(first)
                    async with asyncio.timeout(self.caps.seconds):
                        async for part in stream:
                            yield self.event(part)
                    yield "event: done\ndata: {}\n\n"
                except (UserError, TimeoutError) as error:
                    yield f"event: error\ndata: {json.dumps({'error': str(error) or 'it took too long'})}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    def event(self, part: tuple[int, SentenceTranslation | TextTranslation]) -> str:
        """A sentence, or a text when all its sentences are there; `text` is its number in the request."""
        number, found = part
        if isinstance(found, SentenceTranslation):
            self.meters.translated([found])
            return f"event: sentence\ndata: {json.dumps({'number': number, **sentence_json(found)})}\n\n"
        whole = {"number": number, "text": found.text, "score": found.score}
        return f"event: translation\ndata: {json.dumps(whole)}\n\n"

    async def metrics(self, request: "Request") -> Any:
        """For Prometheus."""
        from starlette.responses import Response

        text, kind = self.meters.text()
        return Response(text, headers={"content-type": kind})

    async def page(self, request: "Request") -> Any:
        """To translate in. It asks for alignment, so what that needs is loaded while its reader still types."""
        from starlette.responses import HTMLResponse

        asyncio.get_running_loop().run_in_executor(None, load_alignment)
        return HTMLResponse(translation_page(self.offer.languages(), bool(self.neighbours.keys)))

    async def description(self, request: "Request") -> Any:
        """The OpenAPI document for people."""
        from starlette.responses import HTMLResponse

        return HTMLResponse(api_page(self.described()))

    async def openapi(self, request: "Request") -> Any:
        """The OpenAPI document."""
        return self.described()

    # --- what they share

    def described(self) -> dict[str, Any]:
        """The OpenAPI document of this server."""
        return openapi_document(self.caps, self.offer.sources, self.offer.targets)

    async def asked(self, request: "Request", parameters: tuple[Parameter, ...]) -> dict[str, Any]:
        """What a request says, if its key is known."""
        values = await request_values(request)
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        key = values.get("api_key") or (bearer.strip() if scheme.lower() == "bearer" else "")
        self.neighbours.check_key(key if isinstance(key, str) else "")
        return read_values(parameters, values, self.caps)

    def sources(self, said: str, texts: list[str]) -> list[dict[str, Any]]:
        """The language of each text as LibreTranslate tells it: as it was said, or detected."""
        if said != "auto":
            return [{"confidence": 100.0, "language": said}] * len(texts)
        overall = most_likely_language("\n".join(texts), self.offer.sources)
        return [most_likely_language(text, self.offer.sources) if len(text) > 40 else overall for text in texts]

    async def from_each(
        self, sources: list[dict[str, Any]], texts: list[str], target: str, n_best: int, is_html: bool
    ) -> list[TextTranslation]:
        """Texts of perhaps several languages, each language's together."""
        by_source: dict[str, list[int]] = {}
        for number, source in enumerate(sources):
            by_source.setdefault(source["language"], []).append(number)
        parts = [
            translate_texts(
                self.offer, [texts[i] for i in numbers], SentenceOptions(source, target, n_best=n_best), is_html
            )
            for source, numbers in by_source.items()
        ]
        wholes = chain.from_iterable(await gather_or_cancel(parts))
        found = dict(zip(chain.from_iterable(by_source.values()), wholes, strict=True))
        self.seen(chain.from_iterable(one.sentences for one in found.values()))
        return [found[number] for number in range(len(texts))]

    def seen(self, found: Iterable[SentenceTranslation]) -> None:
        """Count sentences, and write them down if that is wanted."""
        found = list(found)
        self.meters.translated(found)
        for sentence in found if self.log_text else ():
            log_event(event="translated", source=sentence.source, text=sentence.text)

    async def in_time(self, request: "Request", work: Any) -> Any:
        """What `work` gives, if that does not take too long and the client stays."""
        try:
            async with asyncio.timeout(self.caps.seconds):
                found = await cancel_when(work, client_disconnected(request))
        except TimeoutError:
            raise RequestError(504, f"not done within {self.caps.seconds:g} s; send less at once") from None
        if found is None:
            raise RequestError(499, "the client went away")
        return found

    def guarded(self, handler: Handler) -> Handler:
        """The same as a handler of Starlette's, with errors as LibreTranslate has them."""
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
                return error_response(400, "the model for these languages is not available at present")
            except UserError as error:
                return error_response(400, str(error))
            except HTTPException as error:
                return error_response(error.status_code, f"Invalid request: {error.detail}")
            except ClientDisconnect:
                return error_response(499, "the client went away")
            except Exception as error:  # a fault of ours; its message may hold what was to be translated
                where = traceback.format_tb(error.__traceback__)
                log_event(event="fault", error=type(error).__name__, where=where)
                return error_response(
                    500, f"Cannot translate text: {type(error).__name__}; the server's log says where"
                )

        return answer


async def client_disconnected(request: "Request") -> None:
    """Until the client goes away; its request has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def request_values(request: "Request") -> dict[str, Any]:
    """What a request says: its address, its form or its JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind.endswith(JSON_LIKE):
        return parse_json_object(await request.body())
    form = await request.form(max_files=1, max_fields=50, max_part_size=64 * 1024 * 1024)
    return {**request.query_params, **form}


def parse_json_object(body: bytes) -> dict[str, Any]:
    """`RequestError` for what is none."""
    try:
        values = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise RequestError(400, "Invalid request: the body is not JSON in UTF-8") from None
    if not isinstance(values, dict):
        raise RequestError(400, "Invalid request: the body must be a JSON object")
    return values


def text_json(whole: TextTranslation) -> dict[str, Any]:
    """A text of /v1/translate."""
    return {"text": whole.text, "score": whole.score, "sentences": [sentence_json(one) for one in whole.sentences]}


def sentence_json(one: SentenceTranslation) -> dict[str, Any]:
    """A sentence of it; `alignment` is null where it was not asked for, or the sentence was translated in parts."""
    return {
        "source": one.source,
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "alternatives": [{"text": text, "score": score} for text, score in one.alternatives],
        "alignment": one.alignment,
    }


def to_response(value: Any) -> "Response":
    """A value as JSON; a response as it is."""
    from starlette.responses import JSONResponse, Response

    return value if isinstance(value, Response) else JSONResponse(value)


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> "Response":
    """In LibreTranslate's form."""
    from starlette.responses import JSONResponse

    return JSONResponse({"error": message}, status, headers)
