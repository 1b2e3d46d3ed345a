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
    SentenceRequest,
    SentenceTranslation,
    TranslatedSentence,
    has_words,
    translate_segments,
)
from headwise.documents.unit import Parts, codes_of, plain
from headwise.runtime.search.translator import Translation
from headwise.serve.models import PairModel, SentenceOptions

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
    steps: Generator[SentenceRequest, list[SentenceTranslation], Any],
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
        outputs = [nth_best(known[text, request.aligned], rank) for text in request.texts]
        request, result = await asyncio.to_thread(_next_step, steps, outputs)
    return result


def _next_step(
    steps: Generator[SentenceRequest, list[SentenceTranslation], Any], answers: list[SentenceTranslation] | None
) -> tuple[SentenceRequest | None, Any]:
    """The next sentences to translate, or the result at the end."""
    try:
        return next(steps) if answers is None else steps.send(answers), None
    except StopIteration as end:
        return None, end.value


def nth_best(one: SentenceTranslation, rank: int) -> SentenceTranslation:
    """The translation of a sentence with this rank, from 0, or its last one.

    Alternatives have the alignment of the best one, because they share most words.
    """
    ranked = (one, *one.alternatives)
    best = ranked[min(rank, len(ranked) - 1)]
    return replace(one, text=best.text, score=best.score)


def _joined(
    parts: Parts,
    ranked: Sequence[TranslatedSentence],
    known: Mapping[Any, SentenceTranslation],
    options: SentenceOptions,
) -> SentenceTranslation:
    """The result for a sentence; unchanged if its codes cannot be preserved."""
    source, best = plain(parts), ranked[0]
    if best.asked is None:
        return SentenceTranslation(plain(best.parts) or source, source=source, warning=best.warning)
    text, output = plain(best.parts), known[best.asked]
    others = [
        Translation(plain(one.parts), nth_best(known[one.asked], rank).score)
        for rank, one in enumerate(ranked)
        if rank and one.asked is not None
    ]
    # The word alignment is kept if both sides have as many words as the model read and wrote.
    same = len(source.split()) == len(best.asked[0].split()) and len(text.split()) == len(output.text.split())
    links = output.links if options.aligned and same else None
    return replace(output, source=source, text=text, alternatives=tuple(others), links=links, warning=best.warning)
