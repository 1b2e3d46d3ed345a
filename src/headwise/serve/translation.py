"""Translation of texts and documents: their sentences are queued for a model, and joined again.

Placeholders, addresses and emoji are preserved (`sentences`), and in a document (HTML, a file) its tags, too, as in
`headwise translate`. See `routes` for HTTP and `files` for files.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from headwise.documents.fill import look_up
from headwise.documents.markup.placeholders import is_icu_choice, with_codes
from headwise.documents.segment_memory import SegmentMemory, merge_known
from headwise.documents.segments import SentenceRequest, SentenceTranslation, has_words
from headwise.documents.sentences import SentenceSpan, split_into_sentences
from headwise.documents.unit import Parts, plain
from headwise.runtime.search.translator import Translation
from headwise.serve.documents import OpenDocuments
from headwise.serve.models import PairModel, SentenceOptions
from headwise.serve.progress import JobProgress, submit_when_free
from headwise.serve.router import ModelRouter
from headwise.serve.sentences import (
    KnownSentences,
    is_queued_as_it_is,
    load_model,
    nth_best,
    translate_protected,
)
from headwise.serve.usage import UsageCounter
from headwise.text.language_codes import base_language

INLINE_CHARACTERS = 2000  # of texts that are split on the event loop, which takes milliseconds


@dataclass(frozen=True)
class TextTranslation(Translation):
    """A translated text; its score is the mean of its sentences."""

    sentences: tuple[SentenceTranslation, ...] = ()


def text_translation(texts: Iterable[str], sentences: Sequence[SentenceTranslation]) -> TextTranslation:
    """A text of which `texts[n]` has the n-th best translation of every sentence, or its last one."""
    best, *others = dict.fromkeys(texts)
    score = sum(one.score for one in sentences) / max(len(sentences), 1)
    return TextTranslation(best, score, alternatives=tuple(map(Translation, others)), sentences=tuple(sentences))


@dataclass(frozen=True)
class SegmentedText:
    """A text split into sentences."""

    before: str  # blanks before the first sentence
    spans: Sequence[SentenceSpan]

    @property
    def parts(self) -> list[Parts]:
        """The sentences with their codes."""
        return [one.parts for one in self.spans if one.parts]

    @property
    def sentences(self) -> list[str]:
        """The sentences."""
        return [plain(parts) for parts in self.parts]

    def joined(self, sentences: Sequence[SentenceTranslation], n_best: int) -> TextTranslation:
        """The text with its sentences replaced by translations."""
        texts = (self._with(iter([nth_best(one, rank).text for one in sentences])) for rank in range(n_best))
        return text_translation(texts, sentences)

    def _with(self, texts: Iterator[str]) -> str:
        pairs = [(one, next(texts) if one.parts else "") for one in self.spans]
        return self.before + "".join(text + one.behind_translation(text) for one, text in pairs)


def segment_text(text: str, language: str, memory: SegmentMemory | None = None) -> SegmentedText:
    """Split a text in this language into sentences; keeps what is before, between and after them.

    A text or line that the memory has as a whole is one sentence. An ICU message with alternatives has none.

    >>> segment_text("A dog. A cat.\\n\\n  Dr. Smith left. ", "en").sentences
    ['A dog.', 'A cat.', 'Dr. Smith left.']
    """
    if is_icu_choice((text,)):
        return SegmentedText(text, ())
    before, spans = split_into_sentences(with_codes((text,)), base_language(language))
    return SegmentedText(before, merge_known(spans, memory.recall) if memory else spans)


async def segment_texts(texts: Sequence[str], language: str, memory: SegmentMemory | None) -> list[SegmentedText]:
    """`segment_text` of texts; in a thread if they are long, because 100,000 characters take half a second."""

    def segment_all() -> list[SegmentedText]:
        return [segment_text(text, language, memory) for text in texts]

    return segment_all() if sum(map(len, texts)) <= INLINE_CHARACTERS else await asyncio.to_thread(segment_all)


async def translate_texts(router: ModelRouter, texts: Sequence[str], options: SentenceOptions) -> list[TextTranslation]:
    """Translate texts; all their sentences are queued together.

    Raises:
        UserError: no model for these languages, or an invalid setting.
        QueueFull: too many sentences are queued.
    """
    model, memory = router.find(options.source, options.target), router.memory(options)
    segmented = await segment_texts(texts, options.source, memory)
    sentences = [parts for text in segmented for parts in text.parts]
    is_bare = [is_queued_as_it_is(one, memory) for one in sentences]
    bare = [plain(one) for one, as_it_is in zip(sentences, is_bare, strict=True) if as_it_is]
    protected = [one for one, as_it_is in zip(sentences, is_bare, strict=True) if not as_it_is]
    work = [model.ask(bare, options), translate_protected(model, protected, options, memory)]
    plain_ones, others = map(iter, await gather_or_cancel(work))
    translated = iter([next(plain_ones if as_it_is else others) for as_it_is in is_bare])
    return [text.joined([next(translated) for _ in text.parts], options.n_best) for text in segmented]


async def with_memory_matches(
    sentences: Sequence[SentenceTranslation], memory: SegmentMemory | None
) -> list[SentenceTranslation]:
    """Sentences, each with its best match in the memory."""
    if not memory:
        return list(sentences)
    return [
        replace(one, memory=await asyncio.to_thread(memory.best_match, (one.source,)))
        if has_words((one.source,))
        else one
        for one in sentences
    ]


async def stream_texts(
    router: ModelRouter, texts: Sequence[str], options: SentenceOptions
) -> AsyncGenerator[tuple[int, SentenceTranslation | TextTranslation], None]:
    """Every sentence as soon as it and all before it are translated, and every text when it is complete, numbered."""
    model, memory = router.find(options.source, options.target), router.memory(options)
    segmented = await segment_texts(texts, options.source, memory)
    all_parts = [parts for text in segmented for parts in text.parts]
    is_bare = [is_queued_as_it_is(one, memory) for one in all_parts]
    waiting = [plain(one) for one, as_it_is in zip(all_parts, is_bare, strict=True) if as_it_is]
    protected = [one for one, as_it_is in zip(all_parts, is_bare, strict=True) if not as_it_is]
    others = asyncio.ensure_future(translate_protected(model, protected, options, memory))
    queued = iter(is_bare)
    try:
        async with aclosing(model.answers(waiting, options)) as translations:
            done = 0
            for number, text in enumerate(segmented):
                sentences: list[SentenceTranslation] = []
                for _ in text.parts:
                    as_it_is = next(queued)
                    found = await anext(translations) if as_it_is else (await others)[done]
                    done += not as_it_is
                    sentences += await with_memory_matches([found], memory)
                    yield number, sentences[-1]
                yield number, text.joined(sentences, options.n_best)
    finally:
        others.cancel()
        await asyncio.gather(others, return_exceptions=True)


async def translate_html(
    router: ModelRouter, documents: OpenDocuments, texts: Sequence[str], options: SentenceOptions
) -> list[TextTranslation]:
    """Translate HTML texts; errors as for `translate_documents`."""
    model = router.find(options.source, options.target)
    await documents.read_html(texts)
    written, sentences = await translate_documents(model, documents, options, router.memory(options))
    starts = range(0, len(written), options.n_best)
    ranks = (map(bytes.decode, written[start : start + options.n_best]) for start in starts)
    return [text_translation(*both) for both in zip(ranks, sentences, strict=True)]


async def translate_documents(
    model: PairModel,
    documents: OpenDocuments,
    options: SentenceOptions,
    memory: SegmentMemory | None = None,
    progress: JobProgress | None = None,
    usage: UsageCounter | None = None,
) -> tuple[list[bytes], list[tuple[SentenceTranslation, ...]]]:
    """Translate the untranslated units of documents, once for each rank; also returns the sentences of each document.

    With `progress` the sentences of the first document are counted, and wait while the queue is full. With `usage` the
    characters of sentences are counted as soon as they are translated.

    Raises:
        UserError: an invalid setting.
        RequestError: a limit of the process of the documents, or of the usage, is exceeded.
        QueueFull: too many sentences are queued.
    """
    known: KnownSentences = {}
    if progress and not model.is_loaded:
        await submit_when_free(model, [""], options)
    await load_model(model, options)
    language = base_language(options.source)
    requests = await documents.start(language, model.supports_markers, options.n_best, memory is not None)
    if memory:
        found = await asyncio.to_thread(lambda: [look_up(one.texts, memory) if one else [] for one in requests])
        requests = await documents.answer(found)
    by_run: list[KnownSentences] = [{} for _ in requests]
    while any(requests):
        if progress:
            progress.request(requests[0])
        keys = [_sentence_keys(request) for request in requests]
        for aligned in (False, True):
            new = [key for key in dict.fromkeys(chain.from_iterable(keys)) if key not in known and key[1] is aligned]
            send = partial(progress.submit, model) if progress else model.ask
            texts = [text for text, _ in new]
            answered = _count_characters(texts, usage) if usage else lambda: None
            found = await send(texts, replace(options, aligned=aligned), answered)
            known |= dict(zip(new, found, strict=True))
        for run, wanted in zip(by_run, keys, strict=True):
            run |= {key: known[key] for key in wanted}
        requests = await documents.answer(
            [[nth_best(known[key], n % options.n_best) for key in wanted] for n, wanted in enumerate(keys)]
        )
    if progress:
        progress.request(None)
    return await documents.filled(), [tuple(run.values()) for run in by_run[:: options.n_best]]


def _count_characters(texts: Sequence[str], usage: UsageCounter) -> Callable[[], None]:
    """A function that counts the characters of the next text when it has been translated."""
    sizes = [*map(len, texts)]
    usage.expect(sum(sizes))
    rest = iter(sizes)
    return lambda: usage.add(next(rest))


def _sentence_keys(request: SentenceRequest | None) -> list[tuple[str, bool]]:
    return [(text, request.aligned) for text in request.texts] if request else []


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
