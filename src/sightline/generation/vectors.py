"""A vector for a text: from strings, by what its folder asks for (`sentences`) and `embed`, to an array.

Every model with a state for each token can embed. A text that is too long is cut.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from sightline.checkpoint.vocabulary import Vocabulary, marks_around
from sightline.errors import UserError
from sightline.evaluate.retrieval import RetrievalReport, retrieval_report
from sightline.generation.chat import refuse_single
from sightline.generation.embed import TextEncoder, embed
from sightline.generation.sentences import SentenceSettings, read_sentence_settings
from sightline.network.halves import DecoderOnly

BATCH = 32  # texts read at once to be looked for
LISTED = 10  # texts that were cut; of more the number is said


@dataclass(frozen=True)
class Cut:
    """A text that was longer than its model reads."""

    index: int  # among the texts
    tokens: int  # it had, marks included


@dataclass(frozen=True)
class TextEmbedder:
    """A network, its vocabulary, and how the two make a vector of a text."""

    network: TextEncoder
    vocabulary: Vocabulary
    pad_id: int
    d_model: int  # width of the network's states
    settings: SentenceSettings
    longest: int  # text that is read, in tokens, marks included; 0 = any

    def __call__(
        self, texts: Sequence[str], pooling: str, normalize: bool | None, batch_size: int, prompt: str | None
    ) -> tuple[np.ndarray, list[Cut]]:
        """`Model.embed`, with the texts that were cut instead of a warning."""
        refuse_single(texts, "embed")
        chosen, encode = self.settings.changed(pooling, normalize), self.vocabulary.encode
        before, marks = chosen.prompt(prompt), encode("")
        whole = [self._whole(before, text) for text in texts]
        read = [shortened(ids, self.longest, marks) for ids in whole]
        cuts = [Cut(i, len(ids)) for i, ids in enumerate(whole) if len(read[i]) < len(ids)]
        begun = encode(before) if before and not chosen.pool_prompt else []
        skip = len(begun) - marks_around(marks, begun)[1] if begun else 0
        width = chosen.width(self.d_model)
        found = embed(self.network, read, self.pad_id, chosen.poolings, chosen.steps, width, batch_size, skip)
        return found.numpy(), cuts

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """What is read of texts, with the default prompt before each."""
        before, marks = self.settings.prompt(None), self.vocabulary.encode("")
        return [shortened(self._whole(before, text), self.longest, marks) for text in texts]

    def _whole(self, before: str, text: str) -> list[int]:
        return self.vocabulary.encode((before + text).lower() if self.settings.lowercase else before + text)


def retrieved(embedder: TextEmbedder, queries: Sequence[str], texts: Sequence[str]) -> RetrievalReport:
    """How often each query finds the text of its number, among all that differ."""
    there, wanted = numbered(texts)
    return retrieval_report(vectors(embedder, queries), vectors(embedder, there), wanted)


def numbered(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """
    >>> numbered(["b", "a", "b"])
    (['b', 'a'], [0, 1, 0])
    """
    numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return [*numbers], [numbers[text] for text in texts]


def vectors(embedder: TextEmbedder, texts: Sequence[str]) -> np.ndarray:
    """Of texts, (texts, width), as the embedder makes them."""
    return embedder(texts, "", None, BATCH, None)[0]


def text_embedder(
    network: TextEncoder,
    vocabulary: Vocabulary,
    hf_config: Mapping[str, Any],
    d_model: int,
    max_len: int | None,
    folder: Path,
) -> TextEmbedder:
    """As `folder` asks for; `max_len` is the longest text the network can take, where it has a limit."""
    settings = read_sentence_settings(folder)
    longest = min(filter(None, (settings.max_tokens, max_len)), default=0)
    return TextEmbedder(network, vocabulary, max(0, hf_config.get("pad_token_id") or 0), d_model, settings, longest)


def embed_texts(
    self: Any,
    texts: Sequence[str],
    pooling: str = "",
    normalize: bool | None = None,
    batch_size: int = 16,
    prompt: str | None = None,
) -> np.ndarray:
    """`Model.embed` of every model that has an `embedder`."""
    vectors, cuts = self.embedder(texts, pooling, normalize, batch_size, prompt)
    if cuts:
        listed = in_words([(f"texts[{cut.index}]", cut.tokens) for cut in cuts], self.embedder.longest)
        warnings.warn(listed, stacklevel=2)
    return vectors


def shortened(ids: list[int], longest: int, marks: Sequence[int]) -> list[int]:
    """The first ids of a text and the marks behind it, `longest` in all; 0 = as it is. `marks` are an empty text's.

    >>> shortened([8, 5, 6, 7, 2], 4, marks=[8, 2])
    [8, 5, 6, 2]
    """
    if not longest or len(ids) <= longest:
        return ids
    if longest <= len(marks):
        raise UserError(f"the longest text read is {longest} tokens, of which {len(marks)} are marks: too few for any")
    behind = marks_around(marks, ids)[1]
    return [*ids[: longest - behind], *ids[len(ids) - behind :]]


def in_words(cuts: Sequence[tuple[str, int]], longest: int) -> str:
    """What was cut, as names and lengths in tokens, in one sentence.

    >>> in_words([("line 3", 600)], 512)
    'longer than the 512 tokens read, and cut there: line 3 (600)'
    """
    listed = ", ".join(f"{name} ({tokens:,})" for name, tokens in cuts[:LISTED])
    more = f" and {len(cuts) - LISTED:,} more" if len(cuts) > LISTED else ""
    return f"longer than the {longest:,} tokens read, and cut there: {listed}{more}"


class DecoderEmbedder:
    """A decoder as what reads: no state sees what stands behind it, so padding there needs no mask."""

    def __init__(self, network: DecoderOnly) -> None:
        self.network = network

    def parameters(self) -> Iterator[nn.Parameter]:
        """Of the decoder."""
        return self.network.parameters()

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """The decoder's last states."""
        return self.network.decode(src)
