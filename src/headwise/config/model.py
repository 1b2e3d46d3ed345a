"""The [model] section of each architecture: the shape of its network. Symbols of the paper's Table 3 in brackets.

"The paper" is Vaswani et al. 2017, arXiv:1706.03762; defaults are its base model.
"""

from dataclasses import dataclass
from typing import Any

from headwise.config.setting import POSITIVE, RATE, choice, setting
from headwise.config.tasks import TASKS
from headwise.errors import UserError

ARCHITECTURES = ("transformer", "recurrent", "conv")
POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "none")


def _architecture(name: str) -> Any:
    return setting(name, "the kind of network; conv is ConvS2S", choices=ARCHITECTURES)


@dataclass(frozen=True)
class ModelConfig:
    """Settings of all architectures."""

    architecture: str = _architecture("transformer")
    task: str = choice(tuple(TASKS), "what the network is trained for")
    vocab_size: int = setting(0, "size of the vocabulary; 0 until a tokenizer is known", derived=True)
    pad_id: int = setting(0, "id of the padding token", derived=True)
    n_inputs: int = setting(0, "columns of the series; 0 until the data are known", derived=True, task="forecast")
    n_outputs: int = setting(0, "classes, or steps ahead; 0 until the data are known", derived=True, task="classes")
    image_size: int = setting(224, "pixels a side of a picture as it is read", POSITIVE, task="pictures")
    patch_size: int = setting(16, "pixels a side of a patch, the token of a picture", POSITIVE, task="pictures")
    pooling: str = choice(("mean", "first", "last"), "encoder states that stand for the whole", task="pooled")
    d_model: int = setting(512, "width of the residual stream, embeddings and recurrent states [d_model]", POSITIVE)
    n_encoder_layers: int = setting(6, "encoder layers [N]", POSITIVE, task="encoder")
    n_decoder_layers: int = setting(6, "decoder layers [N]", POSITIVE, task="writes")
    dropout: float = setting(0.1, "on every sub-layer output and on embeddings [P_drop]", RATE)
    tied_embeddings: str = choice(("all", "target", "none"), "target: all but the source's", task="writes")

    def check(self) -> None:
        """`UserError` for values that contradict each other."""


@dataclass(frozen=True)
class PositionedConfig(ModelConfig):
    """Settings of architectures with positions."""

    positions: str = choice(POSITIONS, "learned: Table 3, row E; rotary, relative: in attention")
    max_len: int = setting(1024, "longest sequence that learned positions address, tokens", POSITIVE)


@dataclass(frozen=True)
class TransformerConfig(PositionedConfig):
    """The Transformer."""

    d_ff: int = setting(2048, "inner width of the feed-forward network [d_ff]", POSITIVE)
    n_heads: int = setting(8, "attention heads [h]", POSITIVE)
    d_k: int = setting(0, "width of a query or key per head [d_k]; 0 = d_model / n_heads")
    d_v: int = setting(0, "width of a value per head [d_v]; 0 = d_model / n_heads")
    encoder_heads: tuple[int, ...] = setting((), "heads left by pruning, per layer; () = n_heads", task="encoder")
    decoder_heads: tuple[int, ...] = setting((), "the same of the decoder's self-attention", task="decoder")
    cross_heads: tuple[int, ...] = setting((), "the same of the attention over the source", task="decoder")
    norm_position: str = choice(("post", "pre"), "norm(x + f(x)), the paper's, or x + f(norm(x))")
    norm: str = choice(("layer", "rms"), "rms: without mean and bias (arXiv:1910.07467)")
    activation: str = choice(("relu", "gelu", "silu"), "activation of the feed-forward network")
    gated: bool = setting(False, "feed-forward networks have a gate (arXiv:2002.05202)")
    biases: bool = setting(True, "linear layers have biases")
    n_kv_heads: int = setting(0, "heads of keys and values; 0 = n_heads (arXiv:2305.13245)")
    normalise_heads: bool = setting(False, "a norm on every head's queries and keys")

    def check(self) -> None:
        """`UserError` for a network that cannot be built."""
        if self.d_model % self.n_heads and not (self.d_k and self.d_v):
            raise UserError(
                f"model.d_model = {self.d_model} is not a multiple of model.n_heads = {self.n_heads}: "
                "change one of them or set model.d_k and model.d_v"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise UserError(f"model.d_model = {self.d_model}: sinusoidal positions need an even width")
        if self.positions == "rotary" and (self.d_k or self.d_model // self.n_heads) % 2:
            raise UserError("model.positions = rotary rotates pairs of a head's components: set an even model.d_k")
        if self.n_kv_heads and (self.n_heads % self.n_kv_heads or self.encoder_heads or self.cross_heads):
            raise UserError(
                f"model.n_kv_heads = {self.n_kv_heads}: model.n_heads = {self.n_heads} must be a multiple of it, "
                "without pruned heads"
            )
        self._check_heads("encoder_heads", self.n_encoder_layers)
        self._check_heads("decoder_heads", self.n_decoder_layers)
        self._check_heads("cross_heads", self.n_decoder_layers)

    def _check_heads(self, name: str, n_layers: int) -> None:
        counts: tuple[int, ...] = getattr(self, name)
        if counts and not (len(counts) == n_layers and all(1 <= count <= self.n_heads for count in counts)):
            raise UserError(
                f"model.{name} = {list(counts)}: must be a number from 1 to model.n_heads = {self.n_heads} for each "
                f"of {n_layers} layers"
            )


@dataclass(frozen=True)
class RecurrentConfig(ModelConfig):
    """Recurrent networks: RNN, LSTM, GRU."""

    architecture: str = _architecture("recurrent")
    cell: str = choice(("gru", "lstm", "rnn"), "cell of the layers; rnn has a tanh only")
    attention: str = choice(("additive", "dot", "general", "none"), "additive: Bahdanau's", task="decoder")
    bidirectional: bool = setting(True, "the encoder reads in both directions")
    input_feeding: bool = setting(False, "the last attention joins the next input", task="decoder")
    reverse_source: bool = setting(False, "the encoder reads back to front", task="decoder")

    def check(self) -> None:
        """`UserError` for attention that does not match the states."""
        if self.attention == "dot" and self.bidirectional:
            raise UserError(
                "model.attention = dot needs states of the same width, but bidirectional ones are twice as wide: "
                "set model.bidirectional=false or model.attention=general"
            )
        if self.input_feeding and self.attention not in ("dot", "general"):
            raise UserError(f"model.input_feeding is for model.attention = dot or general, not {self.attention}")


@dataclass(frozen=True)
class ConvConfig(PositionedConfig):
    """Convolutional networks: ConvS2S."""

    architecture: str = _architecture("conv")
    kernel_width: int = setting(3, "positions a layer sees, odd", POSITIVE)

    def check(self) -> None:
        """`UserError` for kernels and positions that ConvS2S does not support."""
        if self.kernel_width % 2 == 0:
            raise UserError(f"model.kernel_width = {self.kernel_width}: must be odd, for a symmetric window")
        if self.positions != "learned":
            raise UserError(
                "model.architecture = conv needs learned positions: set model.positions=learned and model.max_len"
            )


MODELS: dict[str, type[ModelConfig]] = {
    "transformer": TransformerConfig,
    "recurrent": RecurrentConfig,
    "conv": ConvConfig,
}


def longest_sequence(config: ModelConfig) -> int | None:
    """The longest sequence that the network supports, tokens; None without a limit."""
    return config.max_len if isinstance(config, PositionedConfig) and config.positions == "learned" else None
