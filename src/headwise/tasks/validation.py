"""What a translator that is still being trained makes of texts, by the search it is made for: a validation scores them.

A network that has learnt nothing yet ends no sentence: it writes as much as it may. That is seen from the first texts,
and the others are then cut off about where a translation of theirs would end.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tqdm import tqdm

from headwise.config.settings import SearchSettings
from headwise.contract import EncoderDecoder, SearchEngine
from headwise.data.tokenizer import Tokenizer
from headwise.decode.stepwise import TorchEngine
from headwise.decode.translator import TextTranslator, Translation
from headwise.network.compiled import native_available, pack_network
from headwise.network.transformer import Transformer

FIRST, CHUNK = 32, 250  # texts translated at once: those that are looked at, and the others
TOO_LONG = 2.0  # times the references of the first texts: what writes more has not learnt to end
SLACK, EXTRA = 1.5, 5  # a bound then is SLACK times what references have for a piece of the source, and EXTRA pieces

TextPairs = Sequence[tuple[str, str]]


def validation_texts(
    network: EncoderDecoder,
    tokenizer: Tokenizer,
    config: SearchSettings,
    max_len: int | None,
    pairs: TextPairs,
) -> Iterator[list[str]]:
    """What the network as it is now makes of texts that have references, a few texts at a time."""
    if not pairs:
        return
    translator = TextTranslator(searching(network), tokenizer, config, max_len)
    first = pairs[:FIRST]
    found = translator.translate([src for src, _ in first])
    bounds = _bounds(found, [len(tokenizer.encode(tgt)) for _, tgt in first], config)
    yield [translation.text for translation in found]
    for start in range(FIRST, len(pairs), CHUNK):
        found = translator.translate([src for src, _ in pairs[start : start + CHUNK]], **bounds)
        yield [translation.text for translation in found]


def searching(network: EncoderDecoder) -> SearchEngine:
    """The network's parameters in the compiled library where it takes them, else the network itself."""
    on_cpu = next(network.parameters()).device.type == "cpu"
    if isinstance(network, Transformer) and on_cpu and native_available(network):
        return pack_network(network, "float32")
    return TorchEngine(network)


def _bounds(found: Sequence[Translation], references: Sequence[int], config: SearchSettings) -> dict[str, Any]:
    """Settings for the texts after those `found`; none where the network ends its sentences."""
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
    """A bar for `total` texts while a validation runs, if standard error is a terminal."""
    live = show and sys.stderr.isatty()
    with tqdm(total=total, desc="validating", unit="text", disable=not live, dynamic_ncols=True, leave=False) as bar:
        yield bar
