"""The network of a model as embedding, classification and the like use it: in the compiled library, or with torch."""

from pathlib import Path
from typing import Any

from headwise.config.settings import INTEGERS
from headwise.errors import UserError
from headwise.importing import torch_needed
from headwise.models.encoding.label import BATCH_TOKENS
from headwise.models.encoding.library_encoder import EncoderNetwork, LibraryEncoder
from headwise.models.encoding.vectors import TextEmbedder, text_embedder
from headwise.runtime.checkpoint.stored_network import StoredNetwork
from headwise.runtime.native.library import absence, library

PER_TOKEN = ("token_class", "span")  # heads


def encoder_network(model: Any, batch_tokens: int = BATCH_TOKENS) -> EncoderNetwork:
    """The network of an encoder. Once its torch module is used, which may change it, torch reads texts, too.

    Args:
        model: an `EncoderModel` or a `Classifier`.
        batch_tokens: of a batch of torch.
    """
    stored = model.folder.stored
    encoder = stored.encoder(model.compute) if isinstance(stored, StoredNetwork) else None
    if model.compute in INTEGERS and not encoder:
        why = absence() if library() is None else "does not run this network, or only as it is in its files"
        raise UserError(
            f"{model.path}: compute = {model.compute} is for the compiled library, which {why}; leave it out"
        )
    if encoder:
        return LibraryEncoder(encoder, model.config.pooling, model.config.head in PER_TOKEN)
    with torch_needed():
        from headwise.pytorch.search.encoder import TorchEncoder
    return TorchEncoder(model.network, model.reader.tokenizer.pad_id, batch_tokens)


def encoder_embedder(model: Any, network: EncoderNetwork) -> TextEmbedder:
    """The embedder of texts for the states of `network`, that of an `EncoderModel` or a `Classifier`."""

    def open_pickled(folder: Path) -> Any:
        with torch_needed():
            from headwise.pytorch.checkpoint.adapters import open_tensors
        return open_tensors(folder)

    stack = getattr(model.config, "encoder", None)  # an XLNet has none
    d_model, longest = (stack.d_model, stack.longest) if stack else (model.config.d_model, None)
    return text_embedder(network, model.tokenizer, d_model, longest, model.path, open_pickled)
