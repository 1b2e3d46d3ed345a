"""Text embeddings: from strings to an array, by the settings of the folder (`sentences`) and `embed`.

Every model with a state for each token can embed. A text that is too long is cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.errors import UserError
from headwise.evaluate.retrieval import RetrievalReport, retrieval_report
from headwise.models.encoding.embed import embed
from headwise.models.encoding.library_encoder import EncoderNetwork
from headwise.models.encoding.sentences import OpenTensors, SentenceSettings, read_sentence_settings
from headwise.models.model import refuse_single
from headwise.runtime.tokenizers.vocabulary import Vocabulary, marks_around

BATCH = 32  # texts in a batch for retrieval
LISTED = 10  # truncated texts that a warning lists


@dataclass(frozen=True)
class Cut:
    """A text that was truncated."""

    index: int  # among the texts
    tokens: int  # before, special tokens included


@dataclass(frozen=True)
class TextEmbedder:
    """A network, its vocabulary, and the settings of its embeddings."""

    network: EncoderNetwork
    vocabulary: Vocabulary
    d_model: int  # width of the network's states
    settings: SentenceSettings
    longest: int  # text that is read, in tokens, special tokens included; 0 = any

    def __call__(
        self, texts: Sequence[str], pooling: str, normalize: bool | None, batch_size: int, prompt: str | None
    ) -> tuple[np.ndarray, list[Cut]]:
        """`Model.embed`, with the truncated texts instead of a warning."""
        refuse_single(texts, "embed")
        chosen, encode = self.settings.changed(pooling, normalize), self.vocabulary.encode
        prompt_text, specials = chosen.prompt(prompt), encode("")
        whole = [self._whole(prompt_text, text) for text in texts]
        read = [truncated_ids(ids, self.longest, specials) for ids in whole]
        cuts = [Cut(i, len(ids)) for i, ids in enumerate(whole) if len(read[i]) < len(ids)]
        prefix = encode(prompt_text) if prompt_text and not chosen.pool_prompt else []
        skip = len(prefix) - marks_around(specials, prefix)[1] if prefix else 0
        width = chosen.width(self.d_model)
        return embed(self.network, read, chosen.poolings, chosen.steps, width, batch_size, skip), cuts

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts with the default prompt, truncated."""
        prompt, specials = self.settings.prompt(None), self.vocabulary.encode("")
        return [truncated_ids(self._whole(prompt, text), self.longest, specials) for text in texts]

    def _whole(self, prompt: str, text: str) -> list[int]:
        return self.vocabulary.encode((prompt + text).lower() if self.settings.lowercase else prompt + text)


def retrieval_of(embedder: TextEmbedder, queries: Sequence[str], texts: Sequence[str]) -> RetrievalReport:
    """The accuracy of retrieving, for each query, the text with its number among all distinct texts."""
    distinct, numbers = distinct_texts(texts)
    return retrieval_report(embed_default(embedder, queries), embed_default(embedder, distinct), numbers)


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Distinct texts, and the number of each text among them.

    >>> distinct_texts(["b", "a", "b"])
    (['b', 'a'], [0, 1, 0])
    """
    numbers = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return [*numbers], [numbers[text] for text in texts]


def embed_default(embedder: TextEmbedder, texts: Sequence[str]) -> np.ndarray:
    """The embeddings of texts with the default settings, (texts, width)."""
    return embedder(texts, "", None, BATCH, None)[0]


def text_embedder(
    network: EncoderNetwork,
    vocabulary: Vocabulary,
    d_model: int,
    max_len: int | None,
    folder: Path,
    open_tensors: OpenTensors,
) -> TextEmbedder:
    """The embedder with the settings of `folder`, see `read_sentence_settings`; `max_len` is the limit of the network,
    if it has one.
    """
    settings = read_sentence_settings(folder, open_tensors)
    longest = min(filter(None, (settings.max_tokens, max_len)), default=0)
    return TextEmbedder(network, vocabulary, d_model, settings, longest)


def pad_id_of(hf_config: Mapping[str, Any]) -> int:
    """The id of padding in a config.json; 0 if it has none."""
    return max(0, hf_config.get("pad_token_id") or 0)


def truncated_ids(ids: list[int], longest: int, specials: Sequence[int]) -> list[int]:
    """A text truncated to `longest` tokens, with its last special tokens; 0 = unchanged. `specials` are the ids of "".

    >>> truncated_ids([8, 5, 6, 7, 2], 4, specials=[8, 2])
    [8, 5, 6, 2]
    """
    if not longest or len(ids) <= longest:
        return ids
    if longest <= len(specials):
        raise UserError(f"the longest text read is {longest} tokens, {len(specials)} of them special: no room for text")
    n_suffix = marks_around(specials, ids)[1]
    return [*ids[: longest - n_suffix], *ids[len(ids) - n_suffix :]]


def truncation_warning(cuts: Sequence[tuple[str, int]], longest: int) -> str:
    """A warning that lists truncated texts with their lengths in tokens.

    >>> truncation_warning([("line 3", 600)], 512)
    'longer than the limit of 512 tokens, truncated: line 3 (600)'
    """
    listed = ", ".join(f"{name} ({tokens:,})" for name, tokens in cuts[:LISTED])
    more = f" and {len(cuts) - LISTED:,} more" if len(cuts) > LISTED else ""
    return f"longer than the limit of {longest:,} tokens, truncated: {listed}{more}"
