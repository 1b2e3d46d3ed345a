"""The axes along which Transformers differ, the paper's own among them, and nothing else: what `build` builds from.

A field exists because some family needs it; behind each stands who forced it. What all of them share is the paper.
How a family's own configuration, or a recipe's [model], maps to these is in `headwise.families`.
"""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class RotaryConfig:
    """Rotary positions (`rotary.Rotary`)."""

    width: int  # components of a head that are turned, even; fewer than all: GPT-NeoX
    base: float = 10000.0  # of the rates
    scaling: str = "none"  # "linear" (LLaMA 2 long), "llama3" (LLaMA 3.1) or "none"
    factor: float = 1.0  # by which positions are stretched
    low: float = 1.0  # llama3: turns in `trained_len` positions below which a pair is slowed
    high: float = 4.0  # llama3: turns above which it is left alone
    trained_len: int = 8192  # llama3: positions the model was trained on first


@dataclass(frozen=True)
class StackConfig:
    """One stack of layers and the embeddings before it. Symbols as in `config.ModelConfig`."""

    d_model: int
    n_layers: int
    n_heads: int
    d_ff: int
    d_head: int  # width of a head; not always d_model / n_heads (T5, Gemma, Qwen3)
    d_v: int = 0  # width of its values; 0 = d_head (the paper's Table 3)
    n_kv_heads: int = 0  # heads of keys and values; 0 = n_heads (LLaMA 2)
    heads: tuple[int, ...] = ()  # heads left in each layer by pruning; () = n_heads in all
    cross_heads: tuple[int, ...] = ()  # the same of a decoder's attention to the source
    dropout: float = 0.0  # in training, on every sub-layer output and on embeddings
    attention_bias: str = "qkvo"  # projections with a bias: "" (T5, LLaMA), "qkv" (Qwen2), "qvo" (Whisper)
    score_scale: float = 0.0  # factor on the scores; 0 = d_head^-1/2; 1 (T5)
    score_cap: float = 0.0  # scores stay below; 0 = no cap (Gemma 2)
    normalise_heads: bool = False  # every head's queries and keys go through a norm (Qwen3)
    windows: tuple[int, ...] = ()  # positions a layer sees back, for each layer, 0 = all; () = all (Mistral)
    activation: str = "gelu"  # see `feed_forward.ACTIVATIONS`
    gated: bool = False  # gated feed-forward network (T5 v1.1, LLaMA)
    ffn_bias: bool = True  # (T5, LLaMA: none)
    norm: str = "layer"  # "layer_unbiased" (PaLM), "rms" (T5, LLaMA) or "rms_shifted" (Gemma)
    norm_eps: float = 1e-5
    norm_position: str = "pre"  # or "post" (BERT, BART), "sandwich" (Gemma 2)
    parallel: str = "no"  # sub-layers side by side: "two_norms" (GPT-NeoX) or "one_norm" (PaLM)
    # "sinusoidal_interleaved" (the paper), "sinusoidal" in halves (Marian), "sinusoidal_tensor2tensor" (M2M-100),
    # "learned" or "none".
    positions: str = "none"
    max_len: int = 0  # rows of learned positions that are for tokens
    position_offset: int = 0  # row of the first token (BART: 2)
    count_from: int = -1  # positions are counted without padding, which has this id; -1 = with it (RoBERTa, M2M-100)
    rotary: RotaryConfig | None = None  # (GPT-NeoX, LLaMA)
    relative_buckets: int = 0  # of relative positions; 0 = none (T5)
    relative_distance: int = 128  # beyond which all distances are one
    embedding_scale: float = 1.0  # sqrt(d_model) in the paper (Marian, Gemma)
    embedding_norm: bool = False  # (BERT, BART)
    d_embedding: int = 0  # width of the embeddings where a projection follows; 0 = d_model (ELECTRA)
    n_types: int = 0  # segments; 0 = no such table (BERT)


@dataclass(frozen=True)
class NetworkConfig:
    """A network: an encoder alone, a decoder alone, or both."""

    family: str  # the name of its table in `headwise.families`
    vocab_size: int = 0
    encoder: StackConfig | None = None
    decoder: StackConfig | None = None
    front: str = "tokens"  # before the first stack: "tokens", "patches" (ViT) or "audio" (Whisper)
    image_size: tuple[int, int] = (0, 0)  # height and width, pixels
    patch_size: int = 0  # pixels a side
    n_channels: int = 0
    n_prefix: int = 0  # vectors before the patches: 1 (ViT) or 2 (DeiT)
    n_mels: int = 0
    head: str = "language"  # "masked", "replaced", "text_class", "token_class", "span", "image_class", "none"
    head_activation: str = "gelu"
    head_bias: bool = False
    n_classes: int = 0
    n_class_states: int = 1  # first states that are classified: 2 (DeiT with its teacher)
    share_embeddings: bool = True  # encoder and decoder have one table (not Marian's with two vocabularies)
    tgt_vocab_size: int = 0  # where the decoder's differs; 0 = vocab_size
    tie_head: bool = True  # the head's matrix is the table of embeddings
    logit_scale: float = 1.0  # factor on the hidden states before the head (T5: d_model^-1/2)
    logit_cap: float = 0.0  # logits stay below; 0 = no cap (Gemma 2)

    def as_dict(self) -> dict[str, Any]:
        """Nested plain dictionary, ready for JSON."""
        return asdict(self)
