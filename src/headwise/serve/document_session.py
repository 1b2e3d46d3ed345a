"""The documents of a request in the process that reads and fills them: calls in, sentences and filled files out.

A call and its reply are JSON values, each with bytes (`frame`). Documents stay here from reading to filling. See
`document_process` for the processes and `documents` for the server's side.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from io import BufferedIOBase
from itertools import accumulate, pairwise
from typing import Any

from headwise.documents.fill import (
    TranslatedUnit,
    TranslationSteps,
    matchable_segments,
    targets_of,
    translation_steps,
)
from headwise.documents.fill_report import count_warnings, fill_report
from headwise.documents.formats.html_page import parse_html
from headwise.documents.not_translated import count_kinds, not_translated
from headwise.documents.passages import Characters
from headwise.documents.segment_memory import MemoryMatch, memory_key
from headwise.documents.segments import SentenceRequest, SentenceTranslation
from headwise.documents.unit import Document, without_inline_codes
from headwise.serve.files import parse_upload

LENGTHS = struct.Struct("!QQ")  # bytes of the JSON value, and of what follows it
SAMPLE = 20_000  # characters of the text by which the language is detected
Message = tuple[dict[str, Any], bytes]


class DocumentRun:
    """A document on its way to one translation."""

    def __init__(self, document: Document, steps: TranslationSteps) -> None:
        self.document, self._steps = document, steps
        self.filled: Sequence[TranslatedUnit] = ()
        self.request: SentenceRequest | None = None  # None at the end
        self._resume(lambda: next(steps))

    def answer(self, outputs: list[SentenceTranslation]) -> None:
        """Continue with the translations of `request`."""
        self._resume(lambda: self._steps.send(outputs))

    def _resume(self, step: Callable[[], SentenceRequest]) -> None:
        try:
            self.request = step()
        except StopIteration as end:
            self.request, self.filled = None, end.value


class DocumentSession:
    """The documents of a request: `read`, `start`, `answer` until nothing is asked, `fill`, `warnings`, `report`."""

    def __init__(self) -> None:
        self._documents: list[Document] = []
        self._runs: list[DocumentRun] = []

    def handle(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The reply to a call; `call["do"]` names the method.

        Raises:
            UserError: an invalid document.
        """
        return getattr(self, f"_{call['do']}")(call, content)

    def _forget(self, call: Mapping[str, Any], content: bytes) -> Message:
        """Release the documents."""
        self._documents, self._runs = [], []
        return {}, b""

    def _read(self, call: Mapping[str, Any], content: bytes) -> Message:
        """Parse documents; returns the beginning of their text."""
        parts = split_content(content, call["sizes"])
        if call["is_html"]:
            self._documents = [parse_html(Characters("q", part)) for part in parts]
        else:
            name, languages, limit = call["name"], call["languages"], call["limit"]
            self._documents = [parse_upload(name, part, languages, limit) for part in parts]
        sample, size = [], 0
        for unit in (unit for document in self._documents for unit in document.units):
            sample.append(without_inline_codes(unit.source))
            size += len(sample[-1]) + 1
            if size > SAMPLE:
                break
        left = [one for document in self._documents for one in not_translated(document)]
        return {"sample": "\n".join(sample)[:SAMPLE], "not_translated": count_kinds(left)}, b""

    def _start(self, call: Mapping[str, Any], content: bytes) -> Message:
        """Split into sentences: a run for every document and rank."""
        self._runs = [
            DocumentRun(
                document,
                translation_steps(document, call["language"], call["markers"], has_memory=call["has_memory"]),
            )
            for document in self._documents
            for _ in range(call["n_best"])
        ]
        return self._requests()

    def _answer(self, call: Mapping[str, Any], content: bytes) -> Message:
        """Continue with the translations of all requested sentences."""
        for run, outputs in zip(self._runs, call["outputs"], strict=True):
            if run.request:
                run.answer([output_from_values(values) for values in outputs])
        return self._requests()

    def _fill(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The files with their translations."""
        written = [run.document.filled(targets_of(run.filled)) for run in self._runs]
        return {"sizes": [len(one) for one in written]}, b"".join(written)

    def _warnings(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The number of each quality warning in the first translation of the first document."""
        return count_warnings(self._runs[0].filled), b""

    def _keys(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The texts of the first document to match with a translation memory."""
        texts = [memory_key(parts) for one in self._runs[0].filled for parts in matchable_segments(one)]
        return {"keys": list(dict.fromkeys(texts))}, b""

    def _report(self, call: Mapping[str, Any], content: bytes) -> Message:
        """The report on the first translation of the first document, as JSON."""
        run, known = self._runs[0], call["matches"]
        matches = {key: MemoryMatch(**values) for key, values in known.items()} if known is not None else None
        best_match = (lambda parts: matches.get(memory_key(parts))) if matches is not None else None
        report = fill_report(len(run.document.units), run.filled, not_translated(run.document), best_match)
        return {}, json.dumps(report, ensure_ascii=False, separators=(",", ":")).encode()

    def _requests(self) -> Message:
        return {"requests": [run.request and asdict(run.request) for run in self._runs]}, b""


def split_content(content: bytes, sizes: Sequence[int]) -> list[bytes]:
    """The parts of joined bytes.

    >>> split_content(b"abcde", [2, 0, 3])
    [b'ab', b'', b'cde']
    """
    return [content[start:end] for start, end in pairwise(accumulate(sizes, initial=0))]


def output_values(output: SentenceTranslation) -> list[Any]:
    """An output as a JSON value, as far as documents need it."""
    return [output.text, output.log_prob, output.n_tokens[1], None if output.links is None else sorted(output.links)]


def output_from_values(values: Sequence[Any]) -> SentenceTranslation:
    """The output of `output_values`.

    >>> output = SentenceTranslation("a", log_prob=-1.0, n_tokens=(0, 2), links=frozenset({(0, 1)}))
    >>> output_from_values(output_values(output)) == output
    True
    """
    text, log_prob, n_tokens, links = values
    known = None if links is None else frozenset(map(tuple, links))
    return SentenceTranslation(text, log_prob=log_prob, n_tokens=(0, n_tokens), links=known)


def frame(value: Mapping[str, Any], content: bytes = b"") -> bytes:
    """A message in bytes."""
    encoded = json.dumps(value).encode()
    return LENGTHS.pack(len(encoded), len(content)) + encoded + content


def read_frame(stream: BufferedIOBase) -> Message | None:
    """The next message of a blocking stream; None at its end."""
    start = stream.read(LENGTHS.size)
    if len(start) < LENGTHS.size:
        return None
    length, size = LENGTHS.unpack(start)
    return json.loads(stream.read(length)), stream.read(size)
