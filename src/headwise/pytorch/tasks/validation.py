"""Translations of validation texts during training, by the search of the finished model.

An untrained network does not end its sentences. If the first texts show this, the output length of the others is
limited, which saves time.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from headwise.config.settings import SearchSettings
from headwise.contract import EncoderDecoder, SearchEngine
from headwise.core.transformer import Transformer
from headwise.pytorch.search.compiled import native_available, pack_network
from headwise.pytorch.search.stepwise import TorchEngine
from headwise.runtime.search.translator import TextTranslator, Translation
from headwise.text.tokens.tokenizer import Tokenizer

FIRST, CHUNK = 32, 250  # texts per batch: the first ones, and the others
TOO_LONG = 2.0  # times the length of the references
SLACK, EXTRA = 1.5, 5  # the limit: SLACK times the references' tokens per source token, plus EXTRA tokens

TextPairs = Sequence[tuple[str, str]]


def validation_translations(
    network: EncoderDecoder,
    tokenizer: Tokenizer,
    config: SearchSettings,
    max_len: int | None,
    pairs: TextPairs,
) -> Iterator[list[str]]:
    """Translations of the sources, a few texts at a time."""
    if not pairs:
        return
    translator = TextTranslator(search_engine_of(network), tokenizer, config, max_len)
    first = pairs[:FIRST]
    found = translator.translate([src for src, _ in first])
    bounds = _bounds(found, [len(tokenizer.encode(tgt)) for _, tgt in first], config)
    yield [translation.text for translation in found]
    for start in range(FIRST, len(pairs), CHUNK):
        found = translator.translate([src for src, _ in pairs[start : start + CHUNK]], **bounds)
        yield [translation.text for translation in found]


def search_engine_of(network: EncoderDecoder) -> SearchEngine:
    """The compiled library with the network's parameters if it supports the network, otherwise PyTorch."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if isinstance(network, Transformer) and on_cpu and native_available(network):
        return pack_network(network, "float32")
    return TorchEngine(network)


def _bounds(found: Sequence[Translation], references: Sequence[int], config: SearchSettings) -> dict[str, Any]:
    """Length limits for the remaining texts; none if the network ends its sentences."""
    written, wanted = sum(len(translation.pieces) for translation in found), sum(references)
    if written <= TOO_LONG * wanted:
        return {}
    factor = SLACK * wanted / sum(len(translation.source_pieces) + 1 for translation in found)
    return {
        "max_length_factor": min(factor, config.max_length_factor),
        "max_length_extra": min(EXTRA, config.max_length_extra),
    }


@contextmanager
def progress_bar(total: int, show: bool) -> Iterator["tqdm[Any]"]:
    """A progress bar for the `total` texts of a validation, if stderr is a terminal."""
    live = show and sys.stderr.isatty()
    with tqdm(total=total, desc="validating", unit="text", disable=not live, dynamic_ncols=True, leave=False) as bar:
        yield bar
