"""What of a language model needs torch: networks that the library lacks, embeddings, inputs of the inspector."""

from typing import Any

from headwise.checkpoint.adapters import open_tensors
from headwise.contract import TextNetwork
from headwise.generation.fill import Filling, fillings
from headwise.generation.permutation import ContentStream, LeftToRight, QueryStream
from headwise.generation.torch_encoder import DecoderEmbedder, TorchEncoder
from headwise.generation.torch_text import TorchText
from headwise.generation.vectors import TextEmbedder, embed_texts, pad_id_of, text_embedder
from headwise.inspect.importance import Example
from headwise.inspect.inputs import ContinuedText
from headwise.models.inputs import next_tokens, text_to_continue

__all__ = ["embed_texts", "embedder", "example", "fill_mask", "observed", "text_network"]


def text_network(model: Any, form: Any) -> TextNetwork:
    """A torch module that predicts the next token."""
    return TorchText(LeftToRight(form) if model.head == "permutation" else form)


def fill_mask(model: Any, text: str, top: int = 5) -> list[list[Filling]]:
    """As of `Model`; masks do not see each other."""
    top = min(top, model.config.vocab_size)
    return fillings(
        lambda mask_id: TorchEncoder(QueryStream(model.network, mask_id), 0), text, model.path, model.tokenizer, top
    )


def observed(model: Any, given: str) -> ContinuedText:
    """A text as the inspector reads it."""
    return text_to_continue(model, given, model.max_len)


def example(model: Any, given: str, target: Any) -> Example:
    """A text and the loss of its prediction."""
    return next_tokens(observed(model, given).values)


def embedder(model: Any) -> TextEmbedder:
    """Turns texts into vectors."""
    permutation = model.head == "permutation"
    network = ContentStream(model.network) if permutation else DecoderEmbedder(model.network)
    d_model = (model.config if permutation else model.config.decoder).d_model
    texts = TorchEncoder(network, pad_id_of(model.hf_config))
    return text_embedder(texts, model.tokenizer, d_model, model.max_len, model.path, open_tensors)
