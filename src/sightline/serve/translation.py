"""Texts and documents: their sentences are put into their model's line, and joined again as `localisation` has it.

A text is cut into sentences, and each is translated as it is written. Of a document (a page in HTML, a file) what must
stay is carried through or put back, as `sightline translate` does it. Not here: HTTP (`routes`) and files (`files`).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from sightline.localisation.fill import (
    SentenceOutput,
    SentenceRequest,
    TranslatedUnit,
    TranslationSteps,
    targets_of,
    translation_steps,
)
from sightline.localisation.html_page import parse_html
from sightline.localisation.passages import Characters
from sightline.localisation.sentences import SentenceSpan, split_into_sentences
from sightline.localisation.unit import Document, plain
from sightline.serve.languages import base_language
from sightline.serve.models import ModelRouter, SentenceOptions, SentenceTranslation, ServedModel


@dataclass(frozen=True)
class TextTranslation:
    """A text, translated: number n of `texts` has the n-th best of every sentence, or the last that there is."""

    texts: tuple[str, ...]
    sentences: tuple[SentenceTranslation, ...]

    @property
    def text(self) -> str:
        """The translation."""
        return self.texts[0]

    @property
    def alternatives(self) -> list[str]:
        """Other translations."""
        return [text for text in dict.fromkeys(self.texts) if text != self.text]

    @property
    def score(self) -> float:
        """The mean of the sentences'."""
        return sum(one.score for one in self.sentences) / max(len(self.sentences), 1)


@dataclass(frozen=True)
class SegmentedText:
    """A text taken apart."""

    before: str  # blanks
    cut: Sequence[SentenceSpan]

    @property
    def sentences(self) -> list[str]:
        """Those to translate."""
        return [plain(one.parts) for one in self.cut if one.parts]

    def joined(self, found: Sequence[SentenceTranslation], n_best: int) -> TextTranslation:
        """The text with translations in the places of its sentences."""
        texts = [self._with(iter([nth_best(one, rank) for one in found])) for rank in range(n_best)]
        return TextTranslation(tuple(texts), tuple(found))

    def _with(self, texts: Iterable[str]) -> str:
        written = iter(texts)
        pairs = [(one, next(written) if one.parts else "") for one in self.cut]
        return self.before + "".join(text + one.behind_translation(text) for one, text in pairs)


def segment_text(text: str, language: str) -> SegmentedText:
    """The sentences of a text in this language, and what stands before, between and behind them.

    >>> segment_text("A dog. A cat.\\n\\n  Dr. Smith left. ", "en").sentences
    ['A dog.', 'A cat.', 'Dr. Smith left.']
    """
    return SegmentedText(*split_into_sentences((text,), base_language(language)))


def nth_best(one: SentenceTranslation, rank: int) -> str:
    """The translation of a sentence that has this rank, from 0, or the last that there is."""
    texts = (one.text, *(text for text, _ in one.alternatives))
    return texts[min(rank, len(texts) - 1)]


async def translate_texts(
    offer: ModelRouter, texts: Sequence[str], wish: SentenceOptions, is_html: bool = False
) -> list[TextTranslation]:
    """Each text translated; all their sentences stand in line together.

    Raises:
        UserError: nobody here translates between these languages, or a setting makes no sense.
        Busy: too many sentences are in line.
    """
    model = offer.find(wish.source, wish.target)
    if is_html:
        return await gather_or_cancel([_translate_html(model, text, wish) for text in texts])
    taken = [segment_text(text, wish.source) for text in texts]
    found = iter(await _submit(model, [sentence for one in taken for sentence in one.sentences], wish))
    return [one.joined([next(found) for _ in one.sentences], wish.n_best) for one in taken]


async def stream_texts(
    offer: ModelRouter, texts: Sequence[str], wish: SentenceOptions
) -> AsyncGenerator[tuple[int, SentenceTranslation | TextTranslation], None]:
    """Every sentence as soon as it and those before it are there, and every text when it is whole, with its number."""
    model, taken = offer.find(wish.source, wish.target), [segment_text(text, wish.source) for text in texts]
    assert model.line, "it takes sentences from when the server starts"
    waiting = [sentence for one in taken for sentence in one.sentences]
    async with aclosing(model.line.answers(waiting, wish, model.hypotheses(wish))) as answers:
        for number, one in enumerate(taken):
            found: list[Any] = []
            for _ in one.sentences:
                found.append(await anext(answers))
                yield number, found[-1]
            yield number, one.joined(found, wish.n_best)


async def _translate_html(model: ServedModel, text: str, wish: SentenceOptions) -> TextTranslation:
    written, found = await translate_document(model, parse_html(Characters("q", text.encode())), wish)
    return TextTranslation(tuple(one.decode() for one in written), found)


async def translate_document(
    model: ServedModel, document: Document, wish: SentenceOptions
) -> tuple[list[bytes], tuple[SentenceTranslation, ...]]:
    """A document with a translation of each of its texts that has none, as often as there are ranks; its sentences.

    Raises:
        UserError: a setting makes no sense.
        Busy: too many sentences are in line.
    """
    known: dict[tuple[str, bool], SentenceTranslation] = {}
    if not model.is_loaded:
        await _submit(model, [""], wish)  # which loads it: what marks it knows, its pieces say
    written: list[bytes] = []
    for rank in range(wish.n_best):
        steps = translation_steps(document, base_language(wish.source), model.knows_marks)
        wanted, done = await asyncio.to_thread(_next_step, steps, None)
        while wanted:
            new = [text for text in dict.fromkeys(wanted.texts) if (text, wanted.aligned) not in known]
            found = await _submit(model, new, replace(wish, aligned=wanted.aligned))
            known |= {(text, wanted.aligned): one for text, one in zip(new, found, strict=True)}
            answers = [_sentence_output(known[text, wanted.aligned], rank) for text in wanted.texts]
            wanted, done = await asyncio.to_thread(_next_step, steps, answers)
        written.append(await asyncio.to_thread(document.filled, targets_of(done)))
    return written, tuple(known.values())


def _next_step(
    steps: TranslationSteps, answers: list[SentenceOutput] | None
) -> tuple[SentenceRequest | None, list[TranslatedUnit]]:
    """What is wanted next; or, where nothing is, what has become of the units."""
    try:
        return next(steps) if answers is None else steps.send(answers), []
    except StopIteration as end:
        return None, end.value


def _sentence_output(one: SentenceTranslation, rank: int) -> SentenceOutput:
    """An alternative has the links of the best, most of whose words it shares."""
    links = None if one.alignment is None else frozenset(one.alignment)
    return SentenceOutput(nth_best(one, rank), one.log_prob, one.n_pieces[1] + 1, links)


async def _submit(model: ServedModel, texts: Sequence[str], wish: SentenceOptions) -> list[SentenceTranslation]:
    assert model.line, "it takes sentences from when the server starts"
    return await model.line.ask(texts, wish, model.hypotheses(wish))


async def gather_or_cancel(parts: Sequence[Any]) -> list[Any]:
    """All results; where one fails, the others are given up."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def cancel_when(work: Any, gone: Any) -> Any:
    """What `work` gives, unless `gone` ends first: then the work is cancelled, and the answer is None."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(gone)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
