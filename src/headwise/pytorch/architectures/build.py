"""Builds recurrent and convolutional networks from their configuration."""

from collections.abc import Callable

from torch import nn

from headwise.config.model import ConvConfig, ModelConfig, RecurrentConfig
from headwise.core.extensions.fronts import SeriesEmbeddings
from headwise.core.extensions.pooled import POOLINGS, PooledEncoder, final_states
from headwise.core.positions import LearnedPositions, NoPositions
from headwise.pytorch.architectures.attention import AdditiveAttention, DotAttention, GeneralAttention
from headwise.pytorch.architectures.conv import (
    ConvDecoder,
    ConvDecoderLayer,
    ConvEmbeddings,
    ConvEncoder,
    ConvEncoderLayer,
    Convolutional,
    GatedConvolution,
    NormalizedLinear,
)
from headwise.pytorch.architectures.recurrent import (
    FinalStates,
    ProjectedFinalState,
    Recurrent,
    RecurrentEmbeddings,
    RecurrentEncoder,
    ReversingEncoder,
)
from headwise.pytorch.architectures.recurrent_decoders import (
    AttentionalDecoder,
    BahdanauDecoder,
    InputFeedingDecoder,
    SummaryDecoder,
)

CELLS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def build_recurrent(c: RecurrentConfig) -> Recurrent:
    """A recurrent encoder-decoder: embeddings with standard deviation d_model^-1/2, and torch's initial cells."""
    width = c.d_model * (2 if c.bidirectional else 1)
    encoder = (ReversingEncoder if c.reverse_source else RecurrentEncoder)(_encoder_rnn(c))
    src_tokens, tgt_tokens, output = _tables(c, std=c.d_model**-0.5)
    decoder = DECODERS[c.attention](c, width)
    return Recurrent(src_tokens, tgt_tokens, encoder, _bridge(c), decoder, output, c.dropout)


def build_pooled_recurrent(c: RecurrentConfig) -> PooledEncoder:
    """A pooled recurrent encoder of texts, or of time series if `n_inputs` is set."""
    width = c.d_model * (2 if c.bidirectional else 1)
    embeddings = (
        SeriesEmbeddings(c.n_inputs, c.d_model, NoPositions(), c.dropout)
        if c.n_inputs
        else RecurrentEmbeddings(_table(c, std=c.d_model**-0.5), c.dropout)
    )
    pool = final_states if c.pooling == "last" and c.bidirectional else POOLINGS[c.pooling]
    output = nn.Linear(width, c.n_outputs)
    return PooledEncoder(
        embeddings, RecurrentEncoder(_encoder_rnn(c)), lambda memory: memory[0], pool, output, c.dropout
    )


def build_conv(c: ConvConfig) -> Convolutional:
    """ConvS2S, initialised as in its section 3.5."""
    src_tokens, tgt_tokens, output = _tables(c, std=0.1)
    decoder_layers = [
        ConvDecoderLayer(_gated(c), NormalizedLinear(c.d_model, c.d_model), DotAttention(), c.dropout)
        for _ in range(c.n_decoder_layers)
    ]
    return Convolutional(
        ConvEmbeddings(src_tokens, _positions(c), c.dropout),
        ConvEmbeddings(tgt_tokens, _positions(c), c.dropout),
        _conv_encoder(c, c.n_decoder_layers),
        ConvDecoder(_linear(c), decoder_layers, NormalizedLinear(c.d_model, c.d_model)),
        output,
        c.dropout,
        c.kernel_width,
    )


def build_pooled_conv(c: ConvConfig) -> PooledEncoder:
    """ConvS2S's encoder with pooled states, of texts or of time series."""
    embeddings = (
        SeriesEmbeddings(c.n_inputs, c.d_model, _positions(c), c.dropout)
        if c.n_inputs
        else ConvEmbeddings(_table(c, std=0.1), _positions(c), c.dropout)
    )
    output = nn.Linear(c.d_model, c.n_outputs)
    encoder = _conv_encoder(c, n_attentions=1)
    return PooledEncoder(embeddings, encoder, lambda memory: memory.values, POOLINGS[c.pooling], output, c.dropout)


def _conv_encoder(c: ConvConfig, n_attentions: int) -> ConvEncoder:
    layers = [ConvEncoderLayer(_gated(c), c.dropout) for _ in range(c.n_encoder_layers)]
    return ConvEncoder(_linear(c), layers, NormalizedLinear(c.d_model, c.d_model), n_attentions)


def _bridge(c: RecurrentConfig) -> FinalStates | ProjectedFinalState:
    """How final encoder states become the first decoder states: unchanged if papers and shapes allow it."""
    if c.attention != "additive" and not c.bidirectional and c.n_encoder_layers == c.n_decoder_layers:
        return FinalStates()
    n_states = 2 if c.bidirectional and c.attention == "none" else 1
    return ProjectedFinalState(c.d_model, c.n_decoder_layers, n_states)


def _encoder_rnn(c: RecurrentConfig) -> nn.RNNBase:
    return _rnn(c, c.d_model, c.n_encoder_layers, c.bidirectional)


def _decoder_rnn(c: RecurrentConfig, n_inputs: int) -> nn.RNNBase:
    return _rnn(c, n_inputs, c.n_decoder_layers, False)


def _rnn(c: RecurrentConfig, n_inputs: int, n_layers: int, bidirectional: bool) -> nn.RNNBase:
    between = c.dropout if n_layers > 1 else 0.0  # torch warns of dropout with a single layer
    cell = CELLS[c.cell]
    return cell(n_inputs, c.d_model, n_layers, batch_first=True, dropout=between, bidirectional=bidirectional)


def _summary(c: RecurrentConfig, width: int) -> SummaryDecoder:
    return SummaryDecoder(_decoder_rnn(c, c.d_model))


def _bahdanau(c: RecurrentConfig, width: int) -> BahdanauDecoder:
    return BahdanauDecoder(_decoder_rnn(c, c.d_model + width), AdditiveAttention(c.d_model, width), width)


def _luong(c: RecurrentConfig, width: int) -> AttentionalDecoder:
    cross_attn = DotAttention() if c.attention == "dot" else GeneralAttention(c.d_model, width)
    if c.input_feeding:
        return InputFeedingDecoder(_decoder_rnn(c, 2 * c.d_model), cross_attn, width)
    return AttentionalDecoder(_decoder_rnn(c, c.d_model), cross_attn, width)


def _gated(c: ConvConfig) -> GatedConvolution:
    return GatedConvolution(c.d_model, c.kernel_width, c.dropout)


def _linear(c: ModelConfig) -> NormalizedLinear:
    """A linear layer whose input has dropout."""
    return NormalizedLinear(c.d_model, c.d_model, dropout=c.dropout)


def _positions(c: ConvConfig) -> LearnedPositions:
    positions = LearnedPositions(c.d_model, c.max_len)
    nn.init.normal_(positions.table.weight, std=0.1)
    return positions


def _table(c: ModelConfig, std: float) -> nn.Embedding:
    tokens = nn.Embedding(c.vocab_size, c.d_model)
    nn.init.normal_(tokens.weight, std=std)
    return tokens


def _tables(c: ModelConfig, std: float) -> tuple[nn.Embedding, nn.Embedding, nn.Linear]:
    """Source and target embeddings and the output projection, tied according to `tied_embeddings`."""
    tgt_tokens = nn.Embedding(c.vocab_size, c.d_model)
    src_tokens = tgt_tokens if c.tied_embeddings == "all" else nn.Embedding(c.vocab_size, c.d_model)
    output = nn.Linear(c.d_model, c.vocab_size, bias=False)
    if c.tied_embeddings != "none":
        output.weight = tgt_tokens.weight
    for module in (src_tokens, tgt_tokens, output):
        nn.init.normal_(module.weight, std=std)
    return src_tokens, tgt_tokens, output


DECODERS: dict[str, Callable[[RecurrentConfig, int], SummaryDecoder]] = {
    "none": _summary,
    "additive": _bahdanau,
    "dot": _luong,
    "general": _luong,
}
