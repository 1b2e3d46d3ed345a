"""Ours = `torch.nn`, weights copied, in float64: attention, layers, stacks and the whole Transformer.

https://docs.pytorch.org/docs/stable/generated/torch.nn.Transformer.html. Its boolean masks say who may NOT attend.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from headwise.config.model import TransformerConfig
from headwise.core.attention import MultiHeadAttention
from headwise.core.layers import DecoderLayer, EncoderLayer
from headwise.core.masks import causal_mask
from headwise.core.transformer import Transformer
from headwise.pytorch.architectures.transformer import build_model

D_MODEL, N_HEADS, D_FF = 12, 3, 20
SRC = torch.tensor([[7, 5, 10, 3, 8, 2], [4, 9, 2, 0, 0, 0]])
TGT = torch.tensor([[1, 8, 8, 4, 5], [1, 3, 6, 0, 0]])
SRC_MASK, TGT_REAL = SRC != 0, TGT != 0
CAUSAL = causal_mask(5, 5, torch.device("cpu"))
TIGHT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Also for the modules of torch made inside."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=["post", "pre"])
def norm_position(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def ours(norm_position: str) -> Transformer:
    """Two layers a side, every parameter random: fresh norms and biases would hide a mix-up."""
    config = TransformerConfig(
        vocab_size=11,
        d_model=D_MODEL,
        d_ff=D_FF,
        n_heads=N_HEADS,
        n_encoder_layers=2,
        n_decoder_layers=2,
        dropout=0.0,
        norm_position=norm_position,
    )
    model = build_model(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model


def copy(ours: nn.Linear | nn.LayerNorm, theirs: nn.Linear | nn.LayerNorm) -> None:
    theirs.load_state_dict(ours.state_dict())


def torch_attention(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    copy(ours.o_proj, theirs.out_proj)
    return theirs


def torch_encoder_layer(ours: EncoderLayer) -> nn.TransformerEncoderLayer:
    norm_first = ours.ffn_sublayer.norm_first
    theirs = nn.TransformerEncoderLayer(D_MODEL, N_HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    theirs.self_attn = torch_attention(ours.self_attn)
    copy(ours.ffn.up_proj, theirs.linear1)
    copy(ours.ffn.down_proj, theirs.linear2)
    copy(ours.self_attn_sublayer.norm, theirs.norm1)
    copy(ours.ffn_sublayer.norm, theirs.norm2)
    return theirs


def torch_decoder_layer(ours: DecoderLayer) -> nn.TransformerDecoderLayer:
    norm_first = ours.ffn_sublayer.norm_first
    theirs = nn.TransformerDecoderLayer(D_MODEL, N_HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    theirs.self_attn = torch_attention(ours.self_attn)
    theirs.multihead_attn = torch_attention(ours.cross_attn)
    copy(ours.ffn.up_proj, theirs.linear1)
    copy(ours.ffn.down_proj, theirs.linear2)
    copy(ours.self_attn_sublayer.norm, theirs.norm1)
    copy(ours.cross_attn_sublayer.norm, theirs.norm2)
    copy(ours.ffn_sublayer.norm, theirs.norm3)
    return theirs


def torch_transformer(ours: Transformer) -> nn.Transformer:
    """torch's stacks, and the final norms ours has (with post-norm torch's constructor adds a superfluous one)."""
    encoder = nn.TransformerEncoder(
        torch_encoder_layer(ours.encoder.layers[0]), 2, final_norm(ours.encoder.norm), enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(torch_decoder_layer(ours.decoder.layers[0]), 2, final_norm(ours.decoder.norm))
    theirs = nn.Transformer(D_MODEL, N_HEADS, batch_first=True, custom_encoder=encoder, custom_decoder=decoder)
    encoder.layers = nn.ModuleList(map(torch_encoder_layer, ours.encoder.layers))  # after the constructor, which
    decoder.layers = nn.ModuleList(map(torch_decoder_layer, ours.decoder.layers))  # overwrites every matrix
    return theirs


def final_norm(ours: nn.Module) -> nn.LayerNorm | None:
    if not isinstance(ours, nn.LayerNorm):
        return None
    theirs = nn.LayerNorm(D_MODEL)
    copy(ours, theirs)
    return theirs


def test_multi_head_attention(ours: Transformer) -> None:
    attention = ours.decoder.layers[0].cross_attn
    x, memory = torch.randn(2, 5, D_MODEL), torch.randn(2, 6, D_MODEL)
    expected, _ = torch_attention(attention)(x, memory, memory, key_padding_mask=~SRC_MASK)
    torch.testing.assert_close(attention(x, memory, SRC_MASK[:, None, None]), expected, **TIGHT)


def test_encoder_layer(ours: Transformer) -> None:
    layer, x = ours.encoder.layers[0], torch.randn(2, 6, D_MODEL)
    expected = torch_encoder_layer(layer)(x, src_key_padding_mask=~SRC_MASK)
    torch.testing.assert_close(layer(x, SRC_MASK[:, None, None]), expected, **TIGHT)


def test_decoder_layer(ours: Transformer) -> None:
    layer, x, memory = ours.decoder.layers[0], torch.randn(2, 5, D_MODEL), torch.randn(2, 6, D_MODEL)
    expected = torch_decoder_layer(layer)(x, memory, tgt_mask=~CAUSAL, memory_key_padding_mask=~SRC_MASK)
    torch.testing.assert_close(layer(x, memory, CAUSAL[None, None], SRC_MASK[:, None, None]), expected, **TIGHT)


def test_encoder(ours: Transformer) -> None:
    expected = torch_transformer(ours).encoder(ours.src_embeddings(SRC), src_key_padding_mask=~SRC_MASK)
    torch.testing.assert_close(ours.encode(SRC, SRC_MASK), expected, **TIGHT)


def torch_forward(ours: Transformer, theirs: nn.Transformer) -> Tensor:
    """torch masks padding in the target as well; ours leaves that to causality."""
    return theirs(
        ours.src_embeddings(SRC),
        ours.tgt_embeddings(TGT),
        tgt_mask=~CAUSAL,
        src_key_padding_mask=~SRC_MASK,
        tgt_key_padding_mask=~TGT_REAL,
        memory_key_padding_mask=~SRC_MASK,
    )


def test_transformer(ours: Transformer) -> None:
    expected = torch_forward(ours, torch_transformer(ours))
    torch.testing.assert_close(ours.states(SRC, TGT, SRC_MASK)[TGT_REAL], expected[TGT_REAL], **TIGHT)


def test_gradients(ours: Transformer) -> None:
    """Of the embeddings, which lie below everything else."""
    theirs = torch_transformer(ours)
    table = ours.src_embeddings.tokens.weight
    direction = torch.randn(2, 5, D_MODEL) * TGT_REAL.unsqueeze(-1)
    expected = torch.autograd.grad((torch_forward(ours, theirs) * direction).sum(), table)
    gradient = torch.autograd.grad((ours.states(SRC, TGT, SRC_MASK) * direction).sum(), table)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)
