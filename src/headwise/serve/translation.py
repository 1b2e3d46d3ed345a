"""Translation of texts and documents: their sentences are queued for a model, and joined again.

The sentences of a text are translated as they are. In a document (HTML, a file) placeholders and tags are preserved, as
in `headwise translate`. Not here: HTTP (`routes`) and files (`files`).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from headwise.localisation.fill import (
    SentenceOutput,
    SentenceRequest,
    TranslatedUnit,
    TranslationSteps,
    targets_of,
    translation_steps,
)
from headwise.localisation.html_page import parse_html
from headwise.localisation.passages import Characters
from headwise.localisation.sentences import SentenceSpan, split_into_sentences
from headwise.localisation.unit import Document, plain
from headwise.serve.languages import base_language
from headwise.serve.models import ModelRouter, SentenceOptions, SentenceTranslation, ServedModel


@dataclass(frozen=True)
class TextTranslation:
    """A translated text: `texts[n]` has the n-th best translation of every sentence, or its last one."""

    texts: tuple[str, ...]
    sentences: tuple[SentenceTranslation, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.texts[0]

    @property
    def alternatives(self) -> list[str]:
        """Other translations."""
        return [text for text in dict.fromkeys(self.texts) if text != self.text]

    @property
    def score(self) -> float:
        """The mean score of the sentences."""
        return sum(one.score for one in self.sentences) / max(len(self.sentences), 1)


@dataclass(frozen=True)
class SegmentedText:
    """A text split into sentences."""

    before: str  # blanks before the first sentence
    spans: Sequence[SentenceSpan]

    @property
    def sentences(self) -> list[str]:
        """The sentences to translate."""
        return [plain(one.parts) for one in self.spans if one.parts]

    def joined(self, sentences: Sequence[SentenceTranslation], n_best: int) -> TextTranslation:
        """The text with its sentences replaced by translations."""
        texts = [self._with(iter([nth_best(one, rank) for one in sentences])) for rank in range(n_best)]
        return TextTranslation(tuple(texts), tuple(sentences))

    def _with(self, texts: Iterator[str]) -> str:
        pairs = [(one, next(texts) if one.parts else "") for one in self.spans]
        return self.before + "".join(text + one.behind_translation(text) for one, text in pairs)


def segment_text(text: str, language: str) -> SegmentedText:
    """Split a text in this language into sentences; keeps what is before, between and after them.

    >>> segment_text("A dog. A cat.\\n\\n  Dr. Smith left. ", "en").sentences
    ['A dog.', 'A cat.', 'Dr. Smith left.']
    """
    return SegmentedText(*split_into_sentences((text,), base_language(language)))


def nth_best(one: SentenceTranslation, rank: int) -> str:
    """The translation of a sentence with this rank, from 0, or its last one."""
    texts = (one.text, *(text for text, _ in one.alternatives))
    return texts[min(rank, len(texts) - 1)]


async def translate_texts(
    router: ModelRouter, texts: Sequence[str], options: SentenceOptions, is_html: bool = False
) -> list[TextTranslation]:
    """Translate texts; all their sentences are queued together.

    Raises:
        UserError: no model for these languages, or an invalid setting.
        QueueFull: too many sentences are queued.
    """
    model = router.find(options.source, options.target)
    if is_html:
        return await gather_or_cancel([_translate_html(model, text, options) for text in texts])
    segmented = [segment_text(text, options.source) for text in texts]
    sentences = iter(await _submit(model, [sentence for text in segmented for sentence in text.sentences], options))
    return [text.joined([next(sentences) for _ in text.sentences], options.n_best) for text in segmented]


async def stream_texts(
    router: ModelRouter, texts: Sequence[str], options: SentenceOptions
) -> AsyncGenerator[tuple[int, SentenceTranslation | TextTranslation], None]:
    """Every sentence as soon as it and all before it are translated, and every text when it is complete, numbered."""
    model = router.find(options.source, options.target)
    segmented = [segment_text(text, options.source) for text in texts]
    assert model.queue, "the server has not started"
    waiting = [sentence for text in segmented for sentence in text.sentences]
    async with aclosing(model.queue.answers(waiting, options, model.hypotheses(options))) as translations:
        for number, text in enumerate(segmented):
            sentences: list[SentenceTranslation] = []
            for _ in text.sentences:
                sentences.append(await anext(translations))
                yield number, sentences[-1]
            yield number, text.joined(sentences, options.n_best)


async def _translate_html(model: ServedModel, text: str, options: SentenceOptions) -> TextTranslation:
    written, sentences = await translate_document(model, parse_html(Characters("q", text.encode())), options)
    return TextTranslation(tuple(one.decode() for one in written), sentences)


async def translate_document(
    model: ServedModel, document: Document, options: SentenceOptions
) -> tuple[list[bytes], tuple[SentenceTranslation, ...]]:
    """Translate the untranslated units of a document, once for each rank; also returns the sentences.

    Raises:
        UserError: an invalid setting.
        QueueFull: too many sentences are queued.
    """
    known: dict[tuple[str, bool], SentenceTranslation] = {}
    if not model.is_loaded:
        await _submit(model, [""], options)  # loads it: its vocabulary decides whether markers are used
    written: list[bytes] = []
    for rank in range(options.n_best):
        steps = translation_steps(document, base_language(options.source), model.supports_markers)
        request, units = await asyncio.to_thread(_next_step, steps, None)
        while request:
            new = [text for text in dict.fromkeys(request.texts) if (text, request.aligned) not in known]
            translations = await _submit(model, new, replace(options, aligned=request.aligned))
            known |= {(text, request.aligned): one for text, one in zip(new, translations, strict=True)}
            outputs = [_sentence_output(known[text, request.aligned], rank) for text in request.texts]
            request, units = await asyncio.to_thread(_next_step, steps, outputs)
        written.append(await asyncio.to_thread(document.filled, targets_of(units)))
    return written, tuple(known.values())


def _next_step(
    steps: TranslationSteps, answers: list[SentenceOutput] | None
) -> tuple[SentenceRequest | None, list[TranslatedUnit]]:
    """The next sentences to translate, or the translated units at the end."""
    try:
        return next(steps) if answers is None else steps.send(answers), []
    except StopIteration as end:
        return None, end.value


def _sentence_output(one: SentenceTranslation, rank: int) -> SentenceOutput:
    """Alternatives use the alignment of the best translation, because they share most words."""
    links = None if one.alignment is None else frozenset(one.alignment)
    return SentenceOutput(nth_best(one, rank), one.log_prob, one.n_tokens[1] + 1, links)


async def _submit(model: ServedModel, texts: Sequence[str], options: SentenceOptions) -> list[SentenceTranslation]:
    assert model.queue, "the server has not started"
    return await model.queue.ask(texts, options, model.hypotheses(options))


async def gather_or_cancel(parts: Sequence[Any]) -> list[Any]:
    """All results; if one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def cancel_when(work: Any, gone: Any) -> Any:
    """The result of `work`; None if `gone` ends first, which cancels the work."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(gone)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
