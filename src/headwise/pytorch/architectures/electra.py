"""ELECTRA pretraining (arXiv:2003.10555, section 2): a generator and a discriminator.

Both share the embeddings of tokens, positions and segments (section 3.2); each has its own norm, as in `transformers`.
Only the discriminator is saved. Masking, sampling and the loss are in `pytorch.tasks.replaced_modelling`.
"""

from torch import nn

from headwise.core.embeddings import TypedEmbeddings
from headwise.core.transformer import EncoderOnly


class Electra(nn.Module):
    """Both networks with shared tables; the generator's output matrix is tied to the token table."""

    def __init__(self, discriminator: EncoderOnly, generator: EncoderOnly) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        shared, front = discriminator.embeddings, generator.embeddings
        assert isinstance(shared, TypedEmbeddings) and isinstance(front, TypedEmbeddings)
        front.tokens, front.positions, front.types = shared.tokens, shared.positions, shared.types
        generator.head.get_submodule("output").weight = shared.tokens.weight
