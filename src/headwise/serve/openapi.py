"""The OpenAPI document, from the tables of `parameters`, and the schemas of responses.

See `page` for the page that shows it and `routes` for the responses.
"""

from collections.abc import Sequence
from typing import Any

from headwise.serve.parameters import DETECT, FILE, KEY, NATIVE, SUGGEST, TRANSLATE, Parameter, RequestLimits

ERRORS = {
    400: "Invalid request, or no model for these languages",
    403: "An API key is required, or this client is not allowed",
    408: "The request was not received in time",
    413: "The request is too large",
    415: "The request is not in UTF-8",
    429: "The queue is full, or a limit per hour is reached; see Retry-After",
    503: "Too many large requests at once; see Retry-After",
    504: "Time limit exceeded",
    507: "The server cannot store what the request needs",
}
NUMBER, INTEGER, TEXT = {"type": "number"}, {"type": "integer"}, {"type": "string"}
CODE = {"type": "string", "example": "en"}
JSON_ONLY = ("terms", "kept")  # kinds of parameters not available in forms
FILE_ANSWER = {
    "type": "object",
    "properties": {
        "translatedFileUrl": TEXT,
        "notTranslated": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Texts of the file that are never translated: their number by kind",
        },
        "warnings": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "description": "Quality warnings: the number of texts with each",
        },
    },
    "required": ["translatedFileUrl", "notTranslated", "warnings"],
}
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
    score={"type": "number", "description": "log-probability divided by the length penalty; higher is better"},
    log_prob={"type": "number", "description": "natural logarithm"},
    alternatives=_list(_object(text=TEXT, score=NUMBER)),
    alignment={
        "type": ["array", "null"],
        "items": {"type": "array", "items": {"type": "integer"}},
        "description": "pairs of word numbers (source, translation) from 0; words are separated by blanks",
    },
    memory={
        "type": ["object", "null"],
        "properties": {"score": NUMBER, "source": TEXT, "target": TEXT},
        "required": ["score", "source", "target"],
        "description": "best match of the translation memory, from 0.7; with score 1 the text is its target",
    },
    warnings={**_list(TEXT), "description": "formal errors, such as 'other numbers'"},
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
KEY_IN_QUERY = ({"name": "api_key", "in": "query", "description": "or Authorization: Bearer", "schema": TEXT},)
COUNT, LIMIT = {"type": "integer"}, {"type": ["integer", "null"]}
USAGE = _object(
    key={"type": "string", "description": "name of the key"},
    requests=COUNT,
    characters=COUNT,
    hour=_object(requests=COUNT, characters=COUNT, max_requests=LIMIT, max_characters=LIMIT, seconds_left=COUNT),
)
COUNTS = {"type": "object", "additionalProperties": INTEGER}
JOB = _object(
    id=TEXT,
    state={"enum": ["queued", "reading", "translating", "done", "failed", "cancelled"]},
    progress=_object(
        sentences={"type": "integer", "description": "all sentences to translate; 0 until the file is read"},
        translated=INTEGER,
        percent={"type": "integer", "minimum": 0, "maximum": 100},
    ),
    error={"type": ["string", "null"]},
    url=TEXT,
    result=TEXT,
    report=TEXT,
)
REPORT = _object(
    units=_object(all=INTEGER, translated=INTEGER, left_open=INTEGER, kept=INTEGER),
    warnings=COUNTS | {"description": "quality warnings: their number by kind"},
    not_translated=COUNTS | {"description": "texts that are never translated: their number by kind"},
    texts=_list({"type": "object", "description": "as in the report of `headwise translate`"}),
)


def openapi_document(
    limits: RequestLimits, sources: Sequence[str], targets: Sequence[str], has_jobs: bool = True
) -> dict[str, Any]:
    """The document, with the limits and languages of this server."""
    known = {"source": [*sources, "auto"], "target": list(targets)}
    paths = {
        "/translate": _post("Translate, in LibreTranslate's format", TRANSLATE, limits, TRANSLATION, known),
        "/detect": _post("Detect the language of a text", DETECT, limits, _list(DETECTED_LANGUAGE), known),
        "/translate_file": _post("Translate a file", FILE, limits, FILE_ANSWER, known),
        "/download_file/{name}": _download(),
        "/languages": _get("Languages with their possible targets", LANGUAGES),
        "/frontend/settings": _get("Settings for a web page", SETTINGS),
        "/suggest": _post(
            "Suggest a translation",
            SUGGEST,
            limits,
            _object(success={"type": "boolean"}),
            {"source": list(sources), "target": list(targets)},
        ),
        "/health": _get("Health check", _object(status=TEXT)),
        "/v1/translate": _native(limits, known),
        "/v1/usage": _get("Usage of the API key of the request", USAGE, (403, 404), KEY_IN_QUERY),
        **(_job_paths(limits, known) if has_jobs else {}),
    }
    return {"openapi": "3.1.0", "info": {"title": "Headwise", "version": "1"}, "paths": paths}


def _get(
    summary: str, schema: dict[str, Any], errors: Sequence[int] = (403,), parameters: Sequence[Any] = ()
) -> dict[str, Any]:
    return {"get": {"summary": summary, "parameters": parameters, "responses": _responses(_content(schema), errors)}}


def _post(
    summary: str,
    parameters: Sequence[Parameter],
    limits: RequestLimits,
    schema: dict[str, Any],
    known: dict[str, list[str]],
) -> dict[str, Any]:
    fields = _schema(parameters, limits)
    for name, codes in known.items():
        if name in fields["properties"]:
            fields["properties"][name] |= {"enum": codes, "example": codes[0]}
    kinds = ["application/json", "application/x-www-form-urlencoded"]
    if any(parameter.kind == "file" for parameter in parameters):
        kinds = ["multipart/form-data"]
    in_forms = [parameter.name for parameter in parameters if parameter.kind not in JSON_ONLY]
    forms = {**fields, "properties": {name: _one(fields["properties"][name]) for name in in_forms}}
    optional = [parameter.name for parameter in parameters if not parameter.required]
    as_json = {**fields, "properties": fields["properties"] | {o: _or_null(fields["properties"][o]) for o in optional}}
    body = {"required": True, "content": {kind: {"schema": as_json if "json" in kind else forms} for kind in kinds}}
    return {"post": {"summary": summary, "requestBody": body, "responses": _responses(_content(schema), tuple(ERRORS))}}


def _without_others(operation: dict[str, Any]) -> dict[str, Any]:
    """An address that refuses unknown parameters."""
    for content in operation["post"]["requestBody"]["content"].values():
        content["schema"]["additionalProperties"] = False
    return operation


def _native(limits: RequestLimits, known: dict[str, list[str]]) -> dict[str, Any]:
    operation = _post(
        "Translate, with details of each sentence, or as a stream of events",
        NATIVE,
        limits,
        NATIVE_TRANSLATION,
        known,
    )
    operation["post"]["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
    return _without_others(operation)


def _job_paths(limits: RequestLimits, known: dict[str, list[str]]) -> dict[str, Any]:
    """The addresses of document jobs."""
    create = _without_others(_post("Translate a file in the background", FILE, limits, JOB, known))["post"]
    accepted = create["responses"].pop("200")
    create["responses"] = {"202": accepted | {"description": "The job is queued"}, **create["responses"]}
    key = {"name": KEY.name, "in": "query", "description": KEY.help, "schema": TEXT}
    shared = [{"name": "id", "in": "path", "required": True, "schema": TEXT}, key]

    def operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
        return {"summary": summary, "parameters": shared, "responses": _responses(content, (400, 403, 404))}

    job, file = _content(JOB), {"application/octet-stream": {"schema": {}}}
    return {
        "/v1/documents": {"post": create},
        "/v1/documents/{id}": {
            "get": operation("State and progress of a job", job),
            "delete": operation("Cancel a job, or delete one that has ended", job),
        },
        "/v1/documents/{id}/result": {"get": operation("The translated file of a job", file)},
        "/v1/documents/{id}/report": {"get": operation("The report on a translated file", _content(REPORT))},
    }


def _download() -> dict[str, Any]:
    name = {"name": "name", "in": "path", "required": True, "schema": TEXT}
    responses = _responses({"application/octet-stream": {"schema": {}}}, (403, 404))
    return {"get": {"summary": "A translated file", "parameters": [name], "responses": responses}}


def _responses(content: dict[str, Any], errors: Sequence[int]) -> dict[str, Any]:
    descriptions = {404: "Not found", **ERRORS}
    failed = {str(status): {"description": descriptions[status], "content": _content(ERROR)} for status in errors}
    return {"200": {"description": "Success", "content": content}, **failed}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _schema(parameters: Sequence[Parameter], limits: RequestLimits) -> dict[str, Any]:
    required = [parameter.name for parameter in parameters if parameter.required]
    properties = {parameter.name: _property(parameter, limits) for parameter in parameters}
    return {"type": "object", "properties": properties, "required": required}


def _property(parameter: Parameter, limits: RequestLimits) -> dict[str, Any]:
    text: dict[str, Any] = {"type": "string", "maxLength": limits.characters}
    if parameter.required:
        text["minLength"] = 1
    if parameter.choices:
        text["enum"] = list(parameter.choices)
    term = {"type": "string", "maxLength": limits.term_characters}
    mapping = {"type": "object", "additionalProperties": term, "maxProperties": limits.terms}
    kinds: dict[str, dict[str, Any]] = {
        "text": text,
        "texts": {
            "oneOf": [text, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": limits.texts}]
        },
        "prefix": text | {"maxLength": limits.prefix_characters},
        "number": {"type": "integer", "minimum": 0, "maximum": limits.alternatives},
        "flag": {"type": "boolean"},
        "file": {"type": "string", "format": "binary"},
        "terms": {
            "oneOf": [{**_list(_list(term) | {"minItems": 2, "maxItems": 2}), "maxItems": limits.terms}, mapping]
        },
        "kept": {**_list(term), "maxItems": limits.terms},
        "lines": text,
    }
    more = {} if parameter.default is None else {"default": parameter.default}
    more |= {} if parameter.example is None else {"example": parameter.example}
    return {**kinds[parameter.kind], "description": parameter.help, **more}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """In JSON, where null stands for a value that is not given."""
    about = {name: schema[name] for name in ("description", "default", "example") if name in schema}
    return {"anyOf": [{name: value for name, value in schema.items() if name not in about}, {"type": "null"}], **about}


def _one(schema: dict[str, Any]) -> dict[str, Any]:
    """In a form, where there are no lists."""
    rest = {name: value for name, value in schema.items() if name != "oneOf"}
    return {**schema["oneOf"][0], **rest} if "oneOf" in schema else schema
