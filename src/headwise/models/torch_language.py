"""Language models in torch: networks that the library lacks, embeddings, and inputs of the inspector."""

from typing import Any

from headwise.checkpoint.adapters import open_tensors
from headwise.contract import TextNetwork
from headwise.generation.fill import Filling, fillings
from headwise.generation.permutation import ContentStream, LeftToRight, QueryStream
from headwise.generation.torch_encoder import DecoderEmbedder, TorchEncoder
from headwise.generation.torch_text import TorchText
from headwise.generation.vectors import TextEmbedder, pad_id_of, text_embedder
from headwise.inspect.importance import Example
from headwise.inspect.inputs import ContinuedText
from headwise.models.inputs import next_tokens, text_to_continue
from headwise.models.torch_model import ModelInTorch


class DecoderInTorch(ModelInTorch):
    """A decoder alone in torch."""

    def observed(self, given: str) -> ContinuedText:
        """A text as the inspector reads it."""
        return text_to_continue(self.model, given, self.model.max_len)

    def example(self, given: str, target: Any) -> Example:
        """A text and the loss of its prediction."""
        return next_tokens(self.observed(given).values)

    def text_network(self, form: Any) -> TextNetwork:
        """A torch module that predicts the next token."""
        return TorchText(form)

    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return _embedder(self.model, DecoderEmbedder(self.network), self.model.config.decoder.d_model)


class XLNetInTorch:
    """An XLNet in torch."""

    def __init__(self, model: Any) -> None:
        """`model` is an `XLNetModel`."""
        self.model = model

    def text_network(self, form: Any) -> TextNetwork:
        """A torch module that predicts the next token."""
        return TorchText(LeftToRight(form))

    def fill_mask(self, text: str, top: int) -> list[list[Filling]]:
        model = self.model
        top = min(top, model.config.vocab_size)
        return fillings(
            lambda mask_id: TorchEncoder(QueryStream(model.network, mask_id), 0), text, model.path, model.tokenizer, top
        )

    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        return _embedder(self.model, ContentStream(self.model.network), self.model.config.d_model)


def _embedder(model: Any, network: Any, d_model: int) -> TextEmbedder:
    texts = TorchEncoder(network, pad_id_of(model.hf_config))
    return text_embedder(texts, model.tokenizer, d_model, model.max_len, model.path, open_tensors)
