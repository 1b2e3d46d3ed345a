"""Encoders in torch: texts as the inspector reads them, batches of masked text, and the loss of a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headwise.evaluate.language import MaskedReport
from headwise.models.encoding.vectors import pad_id_of
from headwise.pytorch.data.masked_sequences import MaskedLines, MaskedText, masked_sequences
from headwise.pytorch.inspect.importance import Example
from headwise.pytorch.inspect.inputs import EncodedInput
from headwise.pytorch.models.inputs import encoded_text, masked_text
from headwise.pytorch.models.model import ModelInTorch
from headwise.pytorch.search.masks import score_masks
from headwise.text.files.documents import PreparedText, prepare_documents
from headwise.text.files.lines import AUTO, BLOCKS, LINES, TextReading, choose_reading
from headwise.text.prepared.masking import Masking

if TYPE_CHECKING:
    from headwise.models.encoding.encoder import MaskedModel

AT_ONCE = 4096  # tokens of a batch


class EncoderInTorch(ModelInTorch):
    """An `EncoderModel` in torch."""

    def observed(self, given: str) -> EncodedInput:
        """A text as the inspector reads it."""
        return encoded_text(self.model, given)

    def example(self, given: str, target: Any) -> Example:
        """A text and the loss of its tokens, some of which are masked."""
        return masked_text(self.observed(given).values, self.model.tokenizer, self.model.mask_id)

    def evaluate_masked(self, paths: Sequence[str], reading: str) -> MaskedReport:
        """`MaskedModel.evaluate`."""
        model = self.model
        data, corpus = (model.training.get(name, {}) for name in ("data", "corpus"))
        known = corpus.get("reading") or data.get("reading", AUTO)
        length = min(data.get("block_length") or model.max_len, model.max_len)
        room = length - sum(map(len, model.around))
        way = choose_reading(paths, reading, model.cutter, room)
        if reading == AUTO and known not in (AUTO, LINES if way.by_line else BLOCKS):
            way = TextReading(known == LINES, "as in training")
        text = prepare_documents(paths, way.tokenizer(model.cutter), progress=False, by_line=way.by_line)
        masking = model.masking(data.get("mask_share", Masking.share), data.get("whole_words", False))
        masked = masked_for(model, text, length, masking, way.by_line)
        scores = score_masks(model.network, masked.fixed(AT_ONCE))
        return MaskedReport(*scores, len(text), len(paths), LINES if way.by_line else BLOCKS, way.reason)


def masked_for(
    model: MaskedModel, text: PreparedText, length: int, masking: Masking, by_line: bool = False
) -> MaskedText | MaskedLines:
    """Text in sequences of at most `length` tokens, with the special tokens of the model, some of them masked."""
    return masked_sequences(text, length, model.around, masking, by_line, pad_id_of(model.hf_config))
