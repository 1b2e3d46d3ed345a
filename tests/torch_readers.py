"""The functions that read pairs, with a torch network as reader."""

from collections.abc import Sequence
from typing import Any

from headwise.models.translation import pair_inspector
from headwise.pytorch.inspect.pair_tensors import PairTensors, with_tensors
from headwise.pytorch.inspect.reader import TorchReader
from headwise.runtime.search.translator import TextTranslator
from headwise.view import alignment, trace
from headwise.view import attend as attention
from headwise.view.pair import read_pair as read_tokens


def reader_of(network: Any) -> TorchReader:
    return TorchReader(network, 0)


def attend_with_torch(translator: TextTranslator, *given: Any, **options: Any) -> Any:
    return attention.attend(translator, reader_of(translator.model), *given, **options)


def trace_with_torch(translator: TextTranslator, *given: Any, **options: Any) -> Any:
    return trace.trace(translator, reader_of(translator.model), *given, **options)


def read_pair_tensors(*given: Any) -> PairTensors:
    return with_tensors(read_tokens(*given))


def align_with_torch(network: Any, *given: Any, **options: Any) -> Any:
    return alignment.align(reader_of(network), *given, **options)


def rank_heads_with_torch(network: Any, *given: Any, **options: Any) -> Any:
    return alignment.rank_heads(reader_of(network), *given, **options)


def score_pairs_with_torch(network: Any, pairs: Sequence[Any], **options: Any) -> Any:
    return pair_inspector.score_pairs(reader_of(network), pairs, **options)


def score_texts_with_torch(network: Any, *given: Any, **options: Any) -> Any:
    return pair_inspector.score_texts(reader_of(network), *given, **options)
