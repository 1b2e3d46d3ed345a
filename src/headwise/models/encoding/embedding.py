"""Models that turn texts into vectors. Nothing here needs torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from headwise.models.encoding.vectors import truncation_warning
from headwise.models.model import Model


class EmbeddingModel(Model):
    """A model whose states are pooled to a vector for each text."""

    embedder: Any
    """Turns texts into vectors, a `models.encoding.vectors.TextEmbedder`."""

    def embed(
        self,
        texts: Sequence[str],
        pooling: str = "",
        normalize: bool | None = None,
        batch_size: int = 16,
        prompt: str | None = None,
    ) -> np.ndarray:
        """A vector for each text, float32 (texts, width); a text longer than the model reads is cut, with a warning.

        Defaults come from the folder's `modules.json`; without one, the mean, normalised to length 1.

        Args:
            pooling: over the states of all tokens, special tokens included: "mean", "max", "mean_sqrt_len" (the sum
                over the square root of their number) or "weighted_mean" (the n-th counts n times); or the state of the
                "first" or "last" token.
            normalize: scale each vector to length 1, so that dot products are cosines.
            prompt: the name of one of the model's prompts, which is put before each text; "" = none.

        Raises:
            UserError: the folder asks for something unsupported, or a name is unknown.
        """
        vectors, cuts = self.embedder(texts, pooling, normalize, batch_size, prompt)
        if cuts:
            listed = truncation_warning([(f"texts[{cut.index}]", cut.tokens) for cut in cuts], self.embedder.longest)
            warnings.warn(listed, stacklevel=2)
        return vectors
