"""Translation of the sentences of texts by a served model, with placeholders, addresses and emoji preserved.

A sentence without codes is queued as it is. One with codes goes through the segment pipeline that files use
(`documents.segments`). See `translation` for the splitting of texts, and `documents` for documents.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwise.documents.segment_memory import SegmentMemory
from headwise.documents.segments import (
    SentenceOutput,
    SentenceRequest,
    TranslatedSentence,
    has_words,
    translate_segments,
)
from headwise.documents.unit import Parts, codes_of, plain
from headwise.serve.models import PairModel, SentenceOptions, SentenceTranslation

KnownSentences = dict[tuple[str, bool], SentenceTranslation]  # by text, and whether its alignment was requested


def is_queued_as_it_is(parts: Parts, memory: SegmentMemory | None = None) -> bool:
    """Whether a sentence needs no protection, and is not in the memory."""
    return has_words(parts) and not codes_of(parts) and not (memory and memory.recall(parts))


async def translate_protected(
    model: PairModel, sentences: Sequence[Parts], options: SentenceOptions, memory: SegmentMemory | None = None
) -> list[SentenceTranslation]:
    """Translate sentences that need protection or are in a memory; the alternatives have every code, too."""
    recall = memory.recall if memory else lambda parts: None
    if any(has_words(parts) and not recall(parts) for parts in sentences):
        await load_model(model, options)
    known: KnownSentences = {}
    ranked: list[list[TranslatedSentence]] = []
    for rank in range(options.n_best):
        steps = translate_segments([(parts, "") for parts in sentences], model.supports_markers, recall)
        ranked.append(await run_steps(model, steps, options, rank, known))
    return [_joined(*found, known, options) for found in zip(sentences, zip(*ranked, strict=True), strict=True)]


async def load_model(model: PairModel, options: SentenceOptions) -> None:
    """Load a model before its steps begin: its vocabulary decides whether markers are used."""
    if not model.is_loaded:
        await model.ask([""], options)


async def run_steps(
    model: PairModel,
    steps: Generator[SentenceRequest, list[SentenceOutput], Any],
    options: SentenceOptions,
    rank: int,
    known: KnownSentences,
) -> Any:
    """The result of steps that request sentences, with the translations of a rank; `known` ones are not repeated."""
    request, result = await asyncio.to_thread(_next_step, steps, None)
    while request:
        new = [text for text in dict.fromkeys(request.texts) if (text, request.aligned) not in known]
        wanted = replace(options, aligned=request.aligned or options.aligned)
        translations = await model.ask(new, wanted)
        known |= {(text, request.aligned): one for text, one in zip(new, translations, strict=True)}
        outputs = [sentence_output(known[text, request.aligned], rank) for text in request.texts]
        request, result = await asyncio.to_thread(_next_step, steps, outputs)
    return result


def _next_step(
    steps: Generator[SentenceRequest, list[SentenceOutput], Any], answers: list[SentenceOutput] | None
) -> tuple[SentenceRequest | None, Any]:
    """The next sentences to translate, or the result at the end."""
    try:
        return next(steps) if answers is None else steps.send(answers), None
    except StopIteration as end:
        return None, end.value


def sentence_output(one: SentenceTranslation, rank: int) -> SentenceOutput:
    """Alternatives use the alignment of the best translation, because they share most words."""
    links = None if one.alignment is None else frozenset(one.alignment)
    return SentenceOutput(nth_best(one, rank)[0], one.log_prob, one.n_tokens[1] + 1, links)


def nth_best(one: SentenceTranslation, rank: int) -> tuple[str, float]:
    """The translation of a sentence with this rank, from 0, or its last one; with its score."""
    texts = ((one.text, one.score), *one.alternatives)
    return texts[min(rank, len(texts) - 1)]


def _joined(
    parts: Parts,
    ranked: Sequence[TranslatedSentence],
    known: Mapping[Any, SentenceTranslation],
    options: SentenceOptions,
) -> SentenceTranslation:
    """The result for a sentence; unchanged if its codes cannot be preserved."""
    source, best = plain(parts), ranked[0]
    if best.asked is None:
        return SentenceTranslation(source, plain(best.parts) or source, 0.0, 0.0, (0, 0), warning=best.warning)
    texts = [
        (plain(one.parts), nth_best(known[one.asked], rank)[1])
        for rank, one in enumerate(ranked)
        if one.asked is not None
    ]
    model_output = known[best.asked]
    return SentenceTranslation(
        source,
        texts[0][0],
        texts[0][1],
        model_output.log_prob,
        model_output.n_tokens,
        tuple(texts[1:]),
        _alignment(source, texts[0][0], best.asked[0], model_output) if options.aligned else None,
        warning=best.warning,
    )


def _alignment(source: str, text: str, asked: str, output: SentenceTranslation) -> tuple[tuple[int, int], ...] | None:
    """The word alignment, if both sides have as many words as the model read and wrote."""
    same = len(source.split()) == len(asked.split()) and len(text.split()) == len(output.text.split())
    return output.alignment if same else None
