"""ELECTRA while it is trained (arXiv:2003.10555, section 2): one network fills in, another doubts it.

The embeddings of tokens, positions and segments are the same for both (section 3.2); each has a norm of its own, as in
`transformers`. What is kept of it is the discriminator. Not here: what is masked, drawn and told.
"""

from torch import nn

from headwise.network.embeddings import TypedEmbeddings
from headwise.network.halves import EncoderOnly


class Electra(nn.Module):
    """Both networks, sharing tables; the generator's output matrix is the table of tokens, too."""

    def __init__(self, discriminator: EncoderOnly, generator: EncoderOnly) -> None:
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        ours, theirs = discriminator.embeddings, generator.embeddings
        assert isinstance(ours, TypedEmbeddings) and isinstance(theirs, TypedEmbeddings)
        theirs.tokens, theirs.positions, theirs.types = ours.tokens, ours.positions, ours.types
        generator.head.get_submodule("output").weight = ours.tokens.weight
