"""The parameters of requests as tables, for validation and for the OpenAPI document (`openapi`).

Values come from JSON, a form or the query; a form has only texts. Errors are LibreTranslate's where it has them. Not
here: reading of bodies (`routes`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.documents.glossary.terms import Glossary, Term
from headwise.errors import UserError, unknown

TermPairs = tuple[tuple[str, str], ...]  # sources and targets


class RequestError(UserError):
    """An error response; `status` is the HTTP status."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True)
class RequestLimits:
    """Limits of a request."""

    body: int = 4 * 1024 * 1024  # bytes
    body_memory: int = 256 * 1024 * 1024  # bytes of the bodies of all running requests
    characters: int = 100_000  # over all texts of a request
    texts: int = 1000  # texts per request
    terms: int = 1000  # of a glossary, with those to keep
    term_characters: int = 200  # per side of a term
    prefix_characters: int = 500  # of a forced start, which every sentence gets
    alternatives: int = 10
    seconds: float = 60.0  # for a response
    body_seconds: float = 30.0  # for receiving a body
    requests_per_hour: int = 0  # of a client; 0 = no limit
    characters_per_hour: int = 0  # of a client; 0 = no limit


@dataclass(frozen=True)
class Parameter:
    """A parameter of a request."""

    name: str
    kind: str  # "text", "texts" (or a list of them), "prefix", "number", "flag", "file", "terms", "lines", "kept"
    help: str
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    example: Any = None

    def read(self, values: Mapping[str, Any], limits: RequestLimits) -> Any:
        """The value of the parameter, or the default; `RequestError` if it is invalid."""
        value = values.get(self.name)
        if value is None or (value == "" and not self.required):
            if self.required:
                raise missing_parameter(self.name)
            return self.default
        return getattr(self, f"_{self.kind}")(value, limits)

    def _text(self, value: Any, limits: RequestLimits) -> str:
        if not isinstance(value, str):
            raise RequestError(400, f"Invalid request: {self.name} must be a text")
        if not value and self.required:
            raise missing_parameter(self.name)
        if self.choices and value not in self.choices:
            raise RequestError(400, f"{replace_surrogates(value)} {self.name} is not supported")
        return check_limit(replace_surrogates(value), len(value), limits.characters)

    def _prefix(self, value: Any, limits: RequestLimits) -> str:
        prefix = self._text(value, limits)
        if len(prefix) > limits.prefix_characters:
            message = f"{self.name} has {len(prefix)} characters, {limits.prefix_characters} at most"
            raise RequestError(400, f"Invalid request: {message}")
        return prefix

    def _texts(self, value: Any, limits: RequestLimits) -> str | list[str]:
        if not isinstance(value, list):
            return self._text(value, limits)
        if not value:
            raise missing_parameter(self.name)
        check_limit(value, len(value), limits.texts)
        if not all(isinstance(text, str) for text in value):
            raise RequestError(400, f"Invalid request: {self.name} must be a text or a list of texts")
        return check_limit([replace_surrogates(text) for text in value], sum(map(len, value)), limits.characters)

    def _terms(self, value: Any, limits: RequestLimits) -> TermPairs:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or not all(map(_is_text_pair, pairs)):
            raise RequestError(
                400, f"Invalid request: {self.name} must be a list of pairs of texts, or an object of texts"
            )
        if len(pairs) > limits.terms:
            raise RequestError(400, f"Invalid request: {self.name} has {len(pairs)} terms, {limits.terms} at most")
        longest = max((len(text) for pair in pairs for text in pair), default=0)
        if longest > limits.term_characters:
            message = f"{self.name} has a term of {longest} characters, {limits.term_characters} at most"
            raise RequestError(400, f"Invalid request: {message}")
        one_line = (replace_surrogates(" ".join(text.split())) for pair in pairs for text in pair)
        return tuple(zip(one_line, one_line, strict=True))

    def _lines(self, value: Any, limits: RequestLimits) -> TermPairs:
        pairs = [line.split("\t") for line in self._text(value, limits).split("\n") if line.strip()]
        if wrong := next((pair for pair in pairs if len(pair) != 2), None):
            raise RequestError(400, f"Invalid request: {self.name}: '{' '.join(wrong)}' is not source TAB target")
        return self._terms(pairs, limits)

    def _kept(self, value: Any, limits: RequestLimits) -> TermPairs:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise RequestError(400, f"Invalid request: {self.name} must be a list of texts")
        return self._terms([(text, text) for text in value], limits)

    def _number(self, value: Any, limits: RequestLimits) -> int:
        if isinstance(value, float) and value.is_integer():  # 6.0 is the same number in JSON
            value = int(value)
        digits = value if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdigit() else None
        if isinstance(value, bool) or not (isinstance(value, int) or digits):
            raise RequestError(400, f"Invalid request: {self.name} parameter is not a number")
        number = int(value)
        if not 0 <= number <= limits.alternatives:
            raise RequestError(400, f"Invalid request: {self.name} must be from 0 to {limits.alternatives}")
        return number

    def _flag(self, value: Any, limits: RequestLimits) -> bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise RequestError(400, f"Invalid request: {self.name} must be true or false")

    def _file(self, value: Any, limits: RequestLimits) -> Any:
        if isinstance(value, str | list):
            raise RequestError(400, f"Invalid request: {self.name} must be one file")
        return value


KEY = Parameter("api_key", "text", "API key, if the server requires one")
SOURCE = Parameter("source", "text", "source language code, or auto", required=True)
TARGET = Parameter("target", "text", "target language code", required=True)
TRANSLATE = (
    Parameter("q", "texts", "a text to translate, or a list of texts", required=True, example="A dog runs."),
    SOURCE,
    TARGET,
    Parameter("format", "text", "text or html; HTML tags are preserved", default="text", choices=("text", "html")),
    Parameter("alternatives", "number", "number of alternative translations", default=0),
    KEY,
)
DETECT = (Parameter("q", "text", "a text", required=True, example="A dog runs."), KEY)
SUGGEST = (
    Parameter("q", "text", "the original text", required=True, example="A dog runs."),
    Parameter("s", "text", "the suggested translation", required=True, example="Ein Hund rennt."),
    Parameter("source", "text", "source language code", required=True),
    TARGET,
    KEY,
)
FILE = (
    Parameter("file", "file", "a file to translate", required=True),
    SOURCE,
    TARGET,
    Parameter("glossary", "lines", "terms with their translations: lines of source TAB target", default=""),
    KEY,
)
NATIVE = (
    Parameter("text", "texts", "a text to translate, or a list of texts", required=True, example="A dog runs."),
    SOURCE,
    TARGET,
    Parameter("n_best", "number", "number of translations per sentence, best first", default=1),
    Parameter("prefix", "prefix", "forced start of the translation of every sentence", default=""),
    Parameter("glossary", "terms", "terms with their translations, as pairs or as an object", default=()),
    Parameter("keep", "kept", "text that stays unchanged", default=()),
    Parameter("alignment", "flag", "return word alignments", default=False),
    Parameter("stream", "flag", "stream server-sent events, one per sentence", default=False),
    KEY,
)
OWN = {parameter.name for parameter in NATIVE}


def read_values(
    parameters: tuple[Parameter, ...], values: Mapping[str, Any], limits: RequestLimits, compatible: bool = True
) -> dict[str, Any]:
    """The values of all parameters; `RequestError` for the first unknown, missing or invalid one.

    An address that is `compatible` with LibreTranslate ignores parameters that are unknown here, as that does.
    """
    known = {parameter.name for parameter in parameters}
    for name in values:
        if name not in known and (not compatible or name in OWN):
            wrong = unknown("parameter", replace_surrogates(name)[:100], known)
            raise RequestError(400, f"Invalid request: {wrong}")
    return {parameter.name: parameter.read(values, limits) for parameter in parameters}


def glossary_terms(values: Mapping[str, Any]) -> TermPairs:
    """The terms of `glossary` and `keep`; `UserError` for a term without words, or with two translations."""
    terms = (*values["glossary"], *values.get("keep", ()))
    Glossary(Term(source, target, "Invalid request: glossary") for source, target in terms)
    return terms


def missing_parameter(name: str) -> RequestError:
    """The error for a missing parameter, with LibreTranslate's message."""
    return RequestError(400, f"Invalid request: missing {name} parameter")


def replace_surrogates(text: str) -> str:
    """Replace unpaired surrogates, which JSON allows but responses cannot contain, by question marks.

    >>> replace_surrogates("a\\ud800b")
    'a?b'
    """
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _is_text_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(text, str) for text in value)


def check_limit(value: Any, size: int, limit: int) -> Any:
    """The value; `RequestError` with LibreTranslate's message if it is larger."""
    if size > limit:
        raise RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return value
