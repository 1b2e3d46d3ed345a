"""The predictions of a translation model at each position, layer by layer, and the beam of a translation.

Predictions of a layer come from the logit lens (nostalgebraist 2020, lesswrong.com/posts/AcKRB8wDpdaN6v6ru): its output
passes the final norm and the output projection as if it were the last layer. See `attend` for attention and
`predictions` for other inputs.
"""

from typing import Any

from headwise.errors import UserError
from headwise.runtime.search.translator import TextTranslator
from headwise.view.beam import search_with_tree
from headwise.view.pair import found_pair, given_pair, read_source
from headwise.view.reader import PairReader
from headwise.view.record import Trace


def trace(
    translator: TextTranslator,
    reader: PairReader,
    src: str,
    tgt: str | None = None,
    top: int = 10,
    prefix: str = "",
    **overrides: Any,
) -> Trace:
    """Follow a translation position by position.

    Distributions are those of the model in float32, before constraints such as a forced prefix. Only Transformers have
    predictions of each layer (others: of the last one) and a residual stream (others: empty).

    Args:
        translator, reader, src, tgt, prefix, **overrides: as for `attend`; with `tgt` there is no search and no beam.
        top: candidates of each position and layer.

    Raises:
        UserError: as for `attend`.
    """
    check_top(top)
    config = translator.settings(overrides)
    source = read_source(translator, src, config)
    if tgt is not None:
        return Trace(reader.predictions(given_pair(translator, src, source, tgt, prefix), top), [])
    hypothesis, beam = search_with_tree(translator, source, translator.encode_prefix(prefix), config)
    return Trace(reader.predictions(found_pair(translator, src, source, hypothesis), top), beam)


def check_top(top: int) -> None:
    """`UserError` for a number of candidates below 1."""
    if top < 1:
        raise UserError(f"top = {top}: must be at least 1")
