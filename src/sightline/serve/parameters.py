"""What a request may say, as tables: they check it, and they are its part of the OpenAPI document (`openapi`).

Values come from JSON, from a form or from the address; a form has texts only. Errors are LibreTranslate's where it has
them. Not here: reading bodies (`routes`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sightline.errors import UserError
from sightline.glossary.terms import Glossary, Term

TermPairs = tuple[tuple[str, str], ...]  # sources and targets


class RequestError(UserError):
    """A request that is not answered; `status` is that of HTTP."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True)
class RequestLimits:
    """How much one request may ask for."""

    body: int = 4 * 1024 * 1024  # bytes
    characters: int = 100_000  # of all texts of a request
    texts: int = 1000  # in one list
    terms: int = 1000  # of a glossary, and of what is kept
    term_characters: int = 200  # of either side of a term
    alternatives: int = 10
    seconds: float = 60.0  # for an answer
    body_seconds: float = 30.0  # for headers to arrive, and for a body


@dataclass(frozen=True)
class Parameter:
    """One value of a request."""

    name: str
    kind: str  # "text", "texts" (or a list of them), "number", "flag", "file", "terms", "kept"
    help: str
    needed: bool = False
    default: Any = None
    choices: tuple[str, ...] = ()
    example: Any = None

    def read(self, values: Mapping[str, Any], caps: RequestLimits) -> Any:
        """The value of this name, or the default; `RequestError` for what it may not be."""
        value = values.get(self.name)
        if value is None or (value == "" and not self.needed):
            if self.needed:
                raise missing_parameter(self.name)
            return self.default
        return getattr(self, f"_{self.kind}")(value, caps)

    def _text(self, value: Any, caps: RequestLimits) -> str:
        if not isinstance(value, str):
            raise RequestError(400, f"Invalid request: {self.name} must be a text")
        if not value and self.needed:
            raise missing_parameter(self.name)
        if self.choices and value not in self.choices:
            raise RequestError(400, f"{replace_surrogates(value)} {self.name} is not supported")
        return check_limit(replace_surrogates(value), len(value), caps.characters)

    def _texts(self, value: Any, caps: RequestLimits) -> str | list[str]:
        if not isinstance(value, list):
            return self._text(value, caps)
        if not value:
            raise missing_parameter(self.name)
        check_limit(value, len(value), caps.texts)
        if not all(isinstance(text, str) for text in value):
            raise RequestError(400, f"Invalid request: {self.name} must be a text or a list of texts")
        return check_limit([replace_surrogates(text) for text in value], sum(map(len, value)), caps.characters)

    def _terms(self, value: Any, caps: RequestLimits) -> TermPairs:
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or not all(map(_is_text_pair, pairs)):
            raise RequestError(
                400, f"Invalid request: {self.name} must be a list of pairs of texts, or an object of texts"
            )
        if len(pairs) > caps.terms:
            raise RequestError(400, f"Invalid request: {self.name} has {len(pairs)} terms, {caps.terms} at most")
        longest = max((len(text) for pair in pairs for text in pair), default=0)
        if longest > caps.term_characters:
            said = f"{self.name} has a term of {longest} characters, {caps.term_characters} at most"
            raise RequestError(400, f"Invalid request: {said}")
        one_line = (replace_surrogates(" ".join(text.split())) for pair in pairs for text in pair)
        return tuple(zip(one_line, one_line, strict=True))

    def _kept(self, value: Any, caps: RequestLimits) -> TermPairs:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise RequestError(400, f"Invalid request: {self.name} must be a list of texts")
        return self._terms([(text, text) for text in value], caps)

    def _number(self, value: Any, caps: RequestLimits) -> int:
        digits = value if isinstance(value, str) and len(value) < 10 and value.isascii() and value.isdigit() else None
        if isinstance(value, bool) or not (isinstance(value, int) or digits):
            raise RequestError(400, f"Invalid request: {self.name} parameter is not a number")
        number = int(value)
        if not 0 <= number <= caps.alternatives:
            raise RequestError(400, f"Invalid request: {self.name} must be from 0 to {caps.alternatives}")
        return number

    def _flag(self, value: Any, caps: RequestLimits) -> bool:
        if isinstance(value, bool):
            return value
        if value in ("true", "false"):
            return value == "true"
        raise RequestError(400, f"Invalid request: {self.name} must be true or false")

    def _file(self, value: Any, caps: RequestLimits) -> Any:
        if isinstance(value, str):
            raise RequestError(400, f"Invalid request: {self.name} must be a file")
        return value


KEY = Parameter("api_key", "text", "a key, where this server asks for one")
SOURCE = Parameter("source", "text", "code of the language to translate from, or auto", needed=True)
TARGET = Parameter("target", "text", "code of the language to translate into", needed=True)
TRANSLATE = (
    Parameter("q", "texts", "a text to translate, or a list of texts", needed=True, example="A dog runs."),
    SOURCE,
    TARGET,
    Parameter("format", "text", "of HTML, tags stay as they are", default="text", choices=("text", "html")),
    Parameter("alternatives", "number", "how many other translations to give", default=0),
    KEY,
)
DETECT = (Parameter("q", "text", "a text", needed=True, example="A dog runs."), KEY)
FILE = (Parameter("file", "file", "a file to translate", needed=True), SOURCE, TARGET, KEY)
NATIVE = (
    Parameter("text", "texts", "a text to translate, or a list of texts", needed=True, example="A dog runs."),
    SOURCE,
    TARGET,
    Parameter("n_best", "number", "translations of each sentence, the best first", default=1),
    Parameter("prefix", "text", "what the translation of every sentence must begin with", default=""),
    Parameter("glossary", "terms", "terms and how they are translated, as pairs or as an object", default=()),
    Parameter("keep", "kept", "what stays as it is", default=()),
    Parameter("alignment", "flag", "which word of a translation came from which of its source", default=False),
    Parameter("stream", "flag", "server-sent events, one for each sentence as soon as it is there", default=False),
    KEY,
)


def read_values(parameters: tuple[Parameter, ...], values: Mapping[str, Any], caps: RequestLimits) -> dict[str, Any]:
    """Every parameter's value; `RequestError` for the first that is missing or makes no sense."""
    return {parameter.name: parameter.read(values, caps) for parameter in parameters}


def glossary_terms(values: Mapping[str, Any]) -> TermPairs:
    """The terms of a request's `glossary` and `keep`; `UserError` where a term has no word, or two translations."""
    terms = (*values["glossary"], *values["keep"])
    Glossary(Term(source, target, "Invalid request: glossary") for source, target in terms)
    return terms


def missing_parameter(name: str) -> RequestError:
    """In LibreTranslate's words."""
    return RequestError(400, f"Invalid request: missing {name} parameter")


def replace_surrogates(text: str) -> str:
    """JSON may hold half a character, which no answer can repeat: a question mark instead.

    >>> replace_surrogates("a\\ud800b")
    'a?b'
    """
    return text.encode("utf-8", errors="replace").decode("utf-8")


def _is_text_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(text, str) for text in value)


def check_limit(value: Any, size: int, limit: int) -> Any:
    """The value; `RequestError` in LibreTranslate's words where it is larger than that."""
    if size > limit:
        raise RequestError(400, f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return value
