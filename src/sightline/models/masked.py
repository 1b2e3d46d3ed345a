"""An encoder with a head for what is masked (BERT and its relatives): how well it tells what is hidden of a text.

To fill in masks that a text has is `ReadingModel`'s; here a part of a text is hidden, as in training. Not here: what is
hidden (`data/masking.py`).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sightline.checkpoint.vocabulary import bare, fingerprint
from sightline.data.documents import Cutter, prepare_documents
from sightline.data.masking import MaskedText, Masking, joints_of
from sightline.evaluate.language import MaskedReport
from sightline.generation.chat import mark_of, tokenizer_settings
from sightline.generation.fill import mask_of, told
from sightline.generation.reading import longest_text
from sightline.generation.sides import FamilySide
from sightline.models.reading import ReadingModel

AT_ONCE = 4096  # tokens


class MaskedModel(ReadingModel):
    """BERT, RoBERTa and their relatives with their head."""

    usual_task = "mlm"

    def evaluate(self, paths: Sequence[str]) -> MaskedReport:  # pyright: ignore[reportIncompatibleMethodOverride]
        """How well the model tells pieces that are hidden of files of text, always the same ones, in blocks as long as
        it reads.
        """
        text = prepare_documents(paths, self.cutter, progress=False)
        hidden = self.hidden(text.tokens, self.max_len, self.masking())
        return MaskedReport(*told(self.network, hidden.fixed(AT_ONCE)), read=len(text), files=len(paths))

    @property
    def max_len(self) -> int:
        """The longest text that the network can take."""
        return longest_text(self.config.encoder) or AT_ONCE

    @property
    def cutter(self) -> Cutter:
        """How documents become tokens: with the mark that stands behind a text between them."""
        encode, _, behind = bare(self.tokenizer)
        origin, size = fingerprint(self.path), self.config.vocab_size
        return Cutter(lambda texts: [encode(text) for text in texts], [], behind, origin, size)

    def hidden(self, tokens: NDArray[np.int32], length: int, masking: Masking) -> MaskedText:
        """Tokens in blocks of `length` with the vocabulary's marks around each."""
        _, before, behind = bare(self.tokenizer)
        return MaskedText(tokens, length, before, behind, masking)

    def masking(self, share: float = 0.15, whole_words: bool = False) -> Masking:
        """What is hidden of a text: pieces, or whole words."""
        side, ids = self._side, range(self.config.vocab_size)
        known = [i for i in ids if side.piece(i) and not side.is_mark(i)]
        _, mask_id = mask_of(self.tokenizer, mark_of(tokenizer_settings(self.path), "mask_token"))
        joints = joints_of(side.pieces(ids)) if whole_words else None
        return Masking(mask_id, np.array(known, np.int64), share, joints)

    @cached_property
    def _side(self) -> FamilySide:
        return FamilySide(self.tokenizer, self.tokenizer.encode, 0, 0, 0)
