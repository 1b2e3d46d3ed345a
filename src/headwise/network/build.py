"""From axes to modules: the one builder, and the only reader of `axes` in this package.

Choices are strings, looked up once, here. A norm, an activation or a kind of positions is one class in its file and one
entry in a table. Networks that do not translate text are assembled in `build_others.py`, from the same stacks.
"""

from typing import Any

from headwise.network.axes import NetworkConfig
from headwise.network.build_others import assemble
from headwise.network.embeddings import Embeddings
from headwise.network.fresh import initialize
from headwise.network.parts import FamilyNetwork, decoder, encoder, language_head, token_front
from headwise.network.transformer import Transformer


def build(c: NetworkConfig) -> FamilyNetwork:
    """The network of that configuration with fresh parameters from torch's global generator."""
    network = assembled(c)
    initialize(network)
    tie_head(network, c)
    return network


def assembled(c: NetworkConfig) -> FamilyNetwork:
    """Its modules, before anything is shared between head and embeddings."""
    if not (c.encoder and c.decoder and (c.front, c.head) == ("tokens", "language")):
        return assemble(c)
    src_front = token_front(c.encoder, c.vocab_size)
    tgt_front = token_front(c.decoder, c.tgt_vocab_size or c.vocab_size)
    if c.share_embeddings:
        tgt_front.tokens = src_front.tokens
    return Transformer(src_front, tgt_front, encoder(c.encoder), decoder(c.decoder), language_head(c, c.decoder))


def tie_head(network: FamilyNetwork, c: NetworkConfig) -> None:
    """Let the head's matrix be the table of embeddings, where they are one; needed again where either was replaced."""
    front: Any = network.tgt_embeddings if isinstance(network, Transformer) else network.embeddings
    if c.tie_head and isinstance(front, Embeddings):
        network.head.get_submodule("output").weight = front.tokens.weight


# --- Fresh parameters ---


# --- Stacks ---


# --- Attention ---


# --- Fronts ---


# --- Head ---
