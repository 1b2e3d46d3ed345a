"""Sequence-level knowledge distillation (Kim and Rush 2016, arXiv:1606.07947): training on a teacher's translations.

A small student learns more from a large model's output than from human references, which vary more than it can model
(arXiv:2006.10369). The output is a normal training corpus.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import tee

from sacrebleu.metrics.bleu import BLEU

from headwise.runtime.search.translator import Translation
from headwise.text.files.sources import Pair


def distill(
    pairs: Iterable[Pair], translate: Callable[[Iterable[str]], Iterable[Translation]], interpolate: bool = False
) -> Iterator[Pair]:
    """Each source with the teacher's translation and its alternatives, a pair for each different text.

    Args:
        pairs: the training corpus.
        translate: source lines to the teacher's translations, in order.
        interpolate: take only the candidate most similar to the reference by sentence BLEU (section 3.2,
            "sequence-level interpolation").
    """
    ahead, behind = tee(pairs)  # holds as many pairs as `translate` reads ahead
    for (source, reference), found in zip(behind, translate(source for source, _ in ahead), strict=True):
        texts = [closest(found, reference)] if interpolate else hypothesis_texts(found)
        yield from ((source, text) for text in dict.fromkeys(texts) if text)


def closest(translation: Translation, reference: str) -> str:
    """The candidate with the highest sentence BLEU; among equals the more probable one."""
    return max(hypothesis_texts(translation), key=lambda text: SENTENCE_BLEU.sentence_score(text, [reference]).score)


def hypothesis_texts(translation: Translation) -> list[str]:
    """The n-best list, best first."""
    return [translation.text, *(other.text for other in translation.alternatives)]


SENTENCE_BLEU = BLEU(effective_order=True)
