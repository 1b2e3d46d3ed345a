"""Warnings about data that are too few for what is asked of them, a line each."""

from collections.abc import Iterator

# The recipe `tiny` needs some 10,000 pairs even of such simple text as captions: 29,000 give a BLEU of 39, 2,900 of 22
# (benchmarks/results/little-text_1-core-cpu-avx2_2026-11-23.md).
PAIRS = 10_000
# A corpus BLEU of 200 captions has a 95 % interval of about 4 to each side, of 100 of 6, of 50 of 9 (bootstrap).
VALIDATION_PAIRS = 200
# Sennrich and Zhang (2019, arXiv:1905.11901) find far better translations of 5,000 pairs with 2,000 merges than with
# 14,000, which is with about 100 occurrences a piece instead of 20.
OCCURRENCES, BETTER = 20, 50  # of a piece in the training text, on average: warned about if fewer, and recommended
SMALLEST = 300  # pieces worth recommending


def few_training_pairs(pairs: int) -> Iterator[str]:
    """Of a translator that is trained from scratch."""
    if pairs < PAIRS:
        yield (
            f"warning: --train has {pairs:,} pairs, too few to train a translator from scratch (at least {PAIRS:,}): "
            "fine-tune a pretrained model on them with `sightline tune MODEL`, or add pairs"
        )


def few_validation_pairs(pairs: int) -> Iterator[str]:
    """Of figures that say little."""
    if pairs < VALIDATION_PAIRS:
        yield (
            f"warning: --valid has {pairs:,} pairs, too few to compare models (at least {VALIDATION_PAIRS}): its loss "
            "and BLEU may be off by several points; hold out more, for example --valid 500pairs"
        )


def large_vocabulary(vocab_size: int, tokens: int) -> Iterator[str]:
    """Of a tokenizer trained on so many tokens.

    >>> list(large_vocabulary(8000, 800_000))
    []
    >>> next(large_vocabulary(8000, 60_000)).partition(": set ")[2]
    'data.vocab_size=1200'
    """
    better = max(SMALLEST, tokens // BETTER // 100 * 100)
    if tokens < OCCURRENCES * vocab_size and better < vocab_size:
        yield (
            f"warning: a vocabulary of {vocab_size:,} pieces is too large for {tokens:,} training tokens, which is "
            f"{tokens / vocab_size:.1f} for each (at least {OCCURRENCES}): set data.vocab_size={better}"
        )
