"""What a run that starts from a translator has changed: its validation pairs, by the model before it and by its own."""

from collections.abc import Iterator, Sequence
from typing import Any

from sightline.checkpoint.layout import is_family
from sightline.checkpoint.read import read_folder
from sightline.config.settings import WITH_DECODER, longest_sequence
from sightline.decode.translator import Translator
from sightline.evaluate.significance import paired_bootstrap
from sightline.tasks.job import TrainRequest, say
from sightline.tasks.trainable import start_of
from sightline.tasks.validation import progress_bar, searching

CHUNK = 50  # texts translated between two looks at the clock


def before_and_after(request: TrainRequest, job: Any) -> None:
    """Say what the run has changed, on the validation pairs that are searched.

    The difference is judged by a paired bootstrap (Koehn 2004); these pairs have chosen the best model, which makes it
    look better than other pairs would.
    """
    pairs = [job.searched(row) for row in range(min(len(job.valid), job.config.train.validate_bleu))]
    if not pairs:
        return
    sources = [src for src, _ in pairs]
    translations = list[list[str]]()
    with progress_bar(2 * len(pairs), request.show) as bar:
        for path in (request.init, request.out):
            translations.append([])
            for texts in in_chunks(_translator(path, request), sources):
                translations[-1] += texts
                bar.update(len(texts))
    before, after = translations
    compared = paired_bootstrap(before, after, [tgt for _, tgt in pairs], metrics=["BLEU", "chrF++"])
    figures = (f"{one.name} {one.a.score:.2f} and {one.b.score:.2f} (p {one.p_value:.3f})" for one in compared.values())
    say(request, f"before and after, on {len(pairs):,} pairs validated on: {', '.join(figures)}")


def _translator(path: str, request: TrainRequest) -> Any:
    """The translator in a folder, of ours or a published one."""
    if is_family(path):
        return start_of("translate").read(path).between(request.source_language, request.target_language)
    folder = read_folder(path, tasks=WITH_DECODER, published=False)
    config = folder.config
    return Translator(searching(folder.network), folder.tokenizer, config.decode, longest_sequence(config.model))


def in_chunks(model: Any, sources: Sequence[str]) -> Iterator[list[str]]:
    """The translations of all sources, a line each, a few at a time."""
    for start in range(0, len(sources), CHUNK):
        yield [" ".join(one.text.split()) for one in model.translate(sources[start : start + CHUNK])]
