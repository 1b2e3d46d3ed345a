"""The OpenAPI document: what can be asked, as the tables of `asked` have it, and what is answered.

Not here: its page (`page`), and answering (`routes`).
"""

from collections.abc import Sequence
from typing import Any

from sightline.serve.parameters import DETECT, FILE, NATIVE, TRANSLATE, Parameter, RequestLimits

ERRORS = {
    400: "The request makes no sense, or nobody here translates between these languages",
    403: "A key is needed, or this client may not ask",
    408: "The request did not arrive in time",
    413: "The request is too large",
    429: "Too much is waiting; Retry-After says when to try again",
    504: "It took too long",
}
NUMBER, TEXT = {"type": "number"}, {"type": "string"}
CODE = {"type": "string", "example": "en"}
JSON_ONLY = ("terms", "kept")  # kinds of parameters
ERROR = {"type": "object", "properties": {"error": TEXT}, "required": ["error"]}
DETECTED_LANGUAGE = {
    "type": "object",
    "properties": {"confidence": NUMBER, "language": CODE},
    "required": ["confidence", "language"],
}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _either(one: Any) -> dict[str, Any]:
    return {"oneOf": [one, {"type": "array", "items": one}]}


def _list(one: Any) -> dict[str, Any]:
    return {"type": "array", "items": one}


LANGUAGES = _list(_object(code=CODE, name=TEXT, targets=_list(CODE)))
LANGUAGE = _object(code=CODE, name=TEXT)
TRANSLATION = {
    "type": "object",
    "properties": {
        "translatedText": _either(TEXT),
        "detectedLanguage": _either(DETECTED_LANGUAGE),
        "alternatives": {"oneOf": [_list(TEXT), _list(_list(TEXT))]},
    },
    "required": ["translatedText"],
}
SENTENCE = _object(
    source=TEXT,
    text=TEXT,
    score={"type": "number", "description": "log-probability over length penalty; higher is better"},
    log_prob={"type": "number", "description": "natural logarithm"},
    alternatives=_list(_object(text=TEXT, score=NUMBER)),
    alignment={
        "type": ["array", "null"],
        "items": {"type": "array", "items": {"type": "integer"}},
        "description": "pairs of words (source, translation), counted from 0; words are what blanks separate",
    },
)
NATIVE_TRANSLATION = _object(
    source=CODE, target=CODE, translations=_list(_object(text=TEXT, score=NUMBER, sentences=_list(SENTENCE)))
)
SETTINGS = _object(
    apiKeys={"type": "boolean"},
    charLimit={"type": "integer"},
    filesTranslation={"type": "boolean"},
    frontendTimeout={"type": "integer"},
    keyRequired={"type": "boolean"},
    language=_object(source=LANGUAGE, target=LANGUAGE),
    suggestions={"type": "boolean"},
    supportedFilesFormat=_list(TEXT),
)


def openapi_document(caps: RequestLimits, sources: Sequence[str], targets: Sequence[str]) -> dict[str, Any]:
    """The document, with this server's limits and languages."""
    known = {"source": [*sources, "auto"], "target": list(targets)}
    paths = {
        "/translate": _post("Translate, as LibreTranslate does", TRANSLATE, caps, TRANSLATION, known),
        "/detect": _post("The languages that a text may be in", DETECT, caps, _list(DETECTED_LANGUAGE), known),
        "/translate_file": _post("Translate a file", FILE, caps, _object(translatedFileUrl=TEXT), known),
        "/download_file/{name}": _download(),
        "/languages": _get("Languages, and into which a text in each is translated", LANGUAGES),
        "/frontend/settings": _get("What a page needs to know", SETTINGS),
        "/health": _get("Whether the server is well", _object(status=TEXT)),
        "/v1/translate": _native(caps, known),
    }
    return {"openapi": "3.1.0", "info": {"title": "Sightline", "version": "1"}, "paths": paths}


def _get(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": _responses(_content(schema), (403,))}}


def _post(
    summary: str,
    parameters: Sequence[Parameter],
    caps: RequestLimits,
    schema: dict[str, Any],
    known: dict[str, list[str]],
) -> dict[str, Any]:
    fields = _schema(parameters, caps)
    for name, codes in known.items():
        if name in fields["properties"]:
            fields["properties"][name] |= {"enum": codes, "example": codes[0]}
    kinds = ["application/json", "application/x-www-form-urlencoded"]
    if any(parameter.kind == "file" for parameter in parameters):
        kinds = ["multipart/form-data"]
    said_in_forms = [parameter.name for parameter in parameters if parameter.kind not in JSON_ONLY]
    forms = {**fields, "properties": {name: _one(fields["properties"][name]) for name in said_in_forms}}
    body = {"required": True, "content": {kind: {"schema": fields if "json" in kind else forms} for kind in kinds}}
    return {"post": {"summary": summary, "requestBody": body, "responses": _responses(_content(schema), tuple(ERRORS))}}


def _native(caps: RequestLimits, known: dict[str, list[str]]) -> dict[str, Any]:
    asked = _post(
        "Translate, with what is known of each sentence; or as a stream of events",
        NATIVE,
        caps,
        NATIVE_TRANSLATION,
        known,
    )
    asked["post"]["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
    return asked


def _download() -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    responses = _responses({"application/octet-stream": {"schema": {}}}, (403, 404))
    return {"get": {"summary": "A translated file", "parameters": [name], "responses": responses}}


def _responses(content: dict[str, Any], errors: Sequence[int]) -> dict[str, Any]:
    said = {404: "Nothing here", **ERRORS}
    failed = {str(status): {"description": said[status], "content": _content(ERROR)} for status in errors}
    return {"200": {"description": "Done", "content": content}, **failed}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema(parameters: Sequence[Parameter], caps: RequestLimits) -> dict[str, Any]:
    needed = [parameter.name for parameter in parameters if parameter.needed]
    properties = {parameter.name: _property(parameter, caps) for parameter in parameters}
    return {"type": "object", "properties": properties, "required": needed}


def _property(parameter: Parameter, caps: RequestLimits) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string", "maxLength": caps.characters}
    if parameter.needed:
        text["minLength"] = 1
    if parameter.choices:
        text["enum"] = list(parameter.choices)
    term = {"type": "string", "maxLength": caps.term_characters}
    mapping = {"type": "object", "additionalProperties": term, "maxProperties": caps.terms}
    kinds: dict[str, dict[str, Any]] = {
        "text": text,
        "texts": {
            "oneOf": [text, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": caps.texts}]
        },
        "number": {"type": "integer", "minimum": 0, "maximum": caps.alternatives},
        "flag": {"type": "boolean"},
        "file": {"type": "string", "format": "binary"},
        "terms": {"oneOf": [{**_list(_list(term) | {"minItems": 2, "maxItems": 2}), "maxItems": caps.terms}, mapping]},
        "kept": {**_list(term), "maxItems": caps.terms},
    }
    more = {} if parameter.default is None else {"default": parameter.default}
    more |= {} if parameter.example is None else {"example": parameter.example}
    return {**kinds[parameter.kind], "description": parameter.help, **more}


def _one(schema: dict[str, Any]) -> dict[str, Any]:
    """In a form, where nothing is a list."""
    said = {name: value for name, value in schema.items() if name != "oneOf"}
    return {**schema["oneOf"][0], **said} if "oneOf" in schema else schema
