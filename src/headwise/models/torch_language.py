"""The part of a language model that needs torch: networks that the compiled library lacks, embeddings, inspection."""

from functools import cached_property
from typing import Any

from headwise.contract import TextNetwork
from headwise.generation.fill import Filling, fillings
from headwise.generation.permutation import ContentStream, LeftToRight, QueryStream
from headwise.generation.torch_encoder import DecoderEmbedder, TorchEncoder
from headwise.generation.torch_text import TorchText
from headwise.generation.vectors import TextEmbedder, embed_texts, pad_id_of, text_embedder
from headwise.inspect.importance import Example
from headwise.inspect.inputs import ContinuedText
from headwise.models.inputs import next_tokens, text_to_continue
from headwise.models.introspection import (
    attend_input,
    input_head_importance,
    inspect_input,
    mask_model_heads,
    prune_model,
    trace_input,
    walk_input,
    walks_of_input,
)


class TorchLanguage:
    """The methods of `models.language_model.LanguageModel` that need its torch module."""

    attend, trace, look_inside = attend_input, trace_input, inspect_input
    walk, walks = walk_input, walks_of_input
    head_importance, embed = input_head_importance, embed_texts
    mask_heads = mask_model_heads

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def network(self) -> Any:
        """The torch module."""
        return self.model.network

    @property
    def permutation(self) -> bool:
        """Whether it is an XLNet."""
        return self.model.head == "permutation"

    def prune(self, *given: Any, **options: Any) -> Any:
        """`Model.prune`."""
        return prune_model(self.model, *given, **options)

    def text_network(self, form: Any) -> TextNetwork:
        """A torch module that predicts the next token."""
        return TorchText(LeftToRight(form) if self.permutation else form)

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filling]]:
        """As of `Model`; masks do not see each other."""
        model, top = self.model, min(top, self.model.config.vocab_size)
        return fillings(
            lambda mask_id: TorchEncoder(QueryStream(self.network, mask_id), 0), text, model.path, model.tokenizer, top
        )

    def observed(self, given: str) -> ContinuedText:
        """A text as the inspector reads it."""
        return text_to_continue(self.model, given, self.model.max_len)

    def example(self, given: str, target: Any) -> Example:
        """A text and the loss of its prediction."""
        return next_tokens(self.observed(given).values)

    @cached_property
    def embedder(self) -> TextEmbedder:
        """Turns texts into vectors."""
        model, permutation = self.model, self.permutation
        network = ContentStream(self.network) if permutation else DecoderEmbedder(self.network)
        d_model = (model.config if permutation else model.config.decoder).d_model
        texts = TorchEncoder(network, pad_id_of(model.hf_config))
        return text_embedder(texts, model.tokenizer, d_model, model.max_len, model.path)
