"""ConvS2S: receptive fields, initialisation, gradient scaling, and layers by hand."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from headwise.pytorch.architectures.conv import ConvEncoderLayer, GatedConvolution, NormalizedLinear
from headwise.pytorch.architectures.registry import Network

TIGHT = {"rtol": 0, "atol": 1e-12}


@pytest.mark.parametrize(("n_layers", "kernel_width"), [(1, 3), (2, 3), (3, 3), (2, 5), (4, 1)])
def test_receptive_field_of_the_encoder(n_layers: int, kernel_width: int, build_small: Callable[..., Network]) -> None:
    """A change of one position affects 1 + n (k - 1) positions of the output, symmetrically."""
    model = build_small("conv", n_encoder_layers=n_layers, kernel_width=kernel_width)
    src = torch.randint(4, 11, (1, 21))
    mask = torch.ones_like(src, dtype=torch.bool)
    changed = src.clone()
    changed[0, 10] = 3
    difference = model.encode(src, mask).keys - model.encode(changed, mask).keys
    reached = difference[0].abs().amax(-1).nonzero().squeeze(1).tolist()
    side = n_layers * (kernel_width - 1) // 2
    assert reached == [*range(10 - side, 10 + side + 1)]
    assert len(reached) == 1 + n_layers * (kernel_width - 1)


@pytest.mark.parametrize(("n_layers", "kernel_width"), [(1, 3), (2, 3), (3, 3), (2, 5), (4, 1)])
def test_receptive_field_of_the_decoder(n_layers: int, kernel_width: int, build_small: Callable[..., Network]) -> None:
    """A prediction depends on its position and the n (k - 1) before it."""
    model = build_small("conv", n_decoder_layers=n_layers, kernel_width=kernel_width)
    src, tgt = torch.randint(4, 11, (1, 5)), torch.randint(4, 11, (1, 21))
    mask = torch.ones_like(src, dtype=torch.bool)
    changed = tgt.clone()
    changed[0, 3] = 3
    difference = model.states(src, tgt, mask) - model.states(src, changed, mask)
    reached = difference[0].abs().amax(-1).nonzero().squeeze(1).tolist()
    assert reached == [*range(3, 3 + 1 + n_layers * (kernel_width - 1))]


def test_gated_convolution_is_torchs() -> None:
    """Weights in the order of torch's `conv1d`: (outputs, inputs, k)."""
    gated = GatedConvolution(4, kernel_width=3, dropout=0.1).double()
    with torch.no_grad():
        gated.proj.magnitude.mul_(1.7)
        gated.proj.bias.normal_()
    x = torch.randn(2, 7, 4).double()
    weight = F.normalize(gated.proj.direction, dim=1) * gated.proj.magnitude[:, None]
    kernel = weight.view(8, 3, 4).transpose(1, 2)  # ours: position by position
    expected = F.glu(F.conv1d(x.mT, kernel, gated.proj.bias), dim=1).mT
    torch.testing.assert_close(gated(x), expected, **TIGHT)


def test_gated_convolution_by_hand() -> None:
    """One channel, k = 3: A adds the window up, B is ln 3, so the gate is 3/4."""
    gated = GatedConvolution(1, kernel_width=3, dropout=0.0)
    with torch.no_grad():
        gated.proj.direction.copy_(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
        gated.proj.magnitude.copy_(torch.tensor([math.sqrt(3), 0.0]))
        gated.proj.bias.copy_(torch.tensor([0.0, math.log(3)]))
    torch.testing.assert_close(gated(torch.tensor([[[1.0], [2.0], [5.0], [9.0]]])), torch.tensor([[[6.0], [12.0]]]))


def test_encoder_layer_by_hand() -> None:
    """The layer adds its input and divides by sqrt 2; outside and in padding there are zeros."""
    layer = ConvEncoderLayer(GatedConvolution(1, kernel_width=3, dropout=0.0), dropout=0.0)
    with torch.no_grad():
        layer.conv.proj.direction.copy_(torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]))
        layer.conv.proj.magnitude.copy_(torch.tensor([math.sqrt(3), 0.0]))
        layer.conv.proj.bias.copy_(torch.tensor([0.0, math.log(3)]))
    out = layer(torch.tensor([[[4.0], [8.0], [99.0]]]), torch.tensor([[True, True, False]]))
    torch.testing.assert_close(out[0, :2, 0], torch.tensor([4.0 + 9.0, 8.0 + 9.0]) / math.sqrt(2))


def test_normalized_weight_has_the_length_of_its_magnitude() -> None:
    linear = NormalizedLinear(5, 3).double()
    before = linear(torch.eye(5).double()).detach()
    with torch.no_grad():
        linear.direction.mul_(7.0)  # a direction has no length
    torch.testing.assert_close(linear(torch.eye(5).double()), before, **TIGHT)
    with torch.no_grad():
        linear.magnitude.fill_(2.0)
    lengths = linear(torch.eye(5).double()).norm(dim=0)
    torch.testing.assert_close(lengths, torch.full((3,), 2.0).double(), **TIGHT)


def test_initialisation_of_section_3_5(build_small, configure) -> None:
    from headwise.pytorch.architectures.registry import build_network

    model = build_network(configure("conv", d_model=64, vocab_size=500, dropout=0.2))
    conv = model.encoder.layers[0].conv.proj
    assert conv.direction.std().item() == pytest.approx(math.sqrt(4 * 0.8 / (3 * 64)), rel=0.05)
    assert model.encoder.in_proj.direction.std().item() == pytest.approx(math.sqrt(0.8 / 64), rel=0.05)
    assert model.encoder.out_proj.direction.std().item() == pytest.approx(math.sqrt(1 / 64), rel=0.05)
    for table in (model.src_embeddings.tokens.weight, model.tgt_embeddings.positions.table.weight):
        assert table.std().item() == pytest.approx(0.1, rel=0.05)
    for module in model.modules():
        if isinstance(module, NormalizedLinear):
            assert not module.bias.any()
            torch.testing.assert_close(module.magnitude, module.direction.norm(dim=1))


def test_an_untrained_layer_keeps_the_variance(configure) -> None:
    """The purpose of the initialisation and sqrt(1/2) (sections 3.4 and 3.5)."""
    layer = ConvEncoderLayer(GatedConvolution(256, 3, 0.0), 0.0)
    x = torch.randn(4, 100, 256)
    assert layer(x, torch.ones(4, 100, dtype=torch.bool)).var().item() == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("n_decoder_layers", [1, 4])
def test_gradient_into_the_encoder_is_divided_by_the_number_of_attentions(
    n_decoder_layers: int, build_small: Callable[..., Network]
) -> None:
    model = build_small("conv", n_decoder_layers=n_decoder_layers, tied_embeddings="none")
    src = torch.tensor([[5, 6, 2]])
    mask = torch.ones_like(src, dtype=torch.bool)

    def gradients() -> tuple[torch.Tensor, torch.Tensor]:
        model.zero_grad()
        model.states(src, torch.tensor([[1, 7]]), mask).square().sum().backward()
        return model.encoder.out_proj.bias.grad.clone(), model.decoder.in_proj.bias.grad.clone()

    scaled, decoder = gradients()
    model.encoder.gradient_scale = 1.0
    plain, same = gradients()
    torch.testing.assert_close(scaled * n_decoder_layers, plain, **TIGHT)
    torch.testing.assert_close(decoder, same, **TIGHT)


def test_attention_adds_the_embeddings_to_the_values(build_small: Callable[..., Network]) -> None:
    """Section 3.3: keys are z, values z + e, in half the variance of the sum."""
    model = build_small("conv")
    src = torch.tensor([[5, 6, 2]])
    mask = torch.ones_like(src, dtype=torch.bool)
    memory = model.encode(src, mask)
    torch.testing.assert_close(memory.values, (memory.keys + model.src_embeddings(src)) * math.sqrt(0.5), **TIGHT)


def test_uniform_attention_keeps_the_variance_at_any_length(build_small: Callable[..., Network]) -> None:
    """Section 3.4: the mean of m positions is multiplied by m sqrt(1/m)."""
    model = build_small("conv", n_decoder_layers=1)
    layer, x = model.decoder.layers[0], torch.randn(1, 1, 6).double()
    past, values = torch.zeros(1, 2, 6).double(), torch.randn(1, 9, 6).double()
    keys = torch.zeros_like(values)  # all scores equal
    mask = torch.arange(9)[None] < 4
    out, _ = layer(x, torch.zeros_like(x), keys, values, mask, past)
    h = layer.conv(torch.cat([past, x], 1))
    context = values[:, :4].mean(1, keepdim=True) * 2.0
    torch.testing.assert_close(out, (x + (h + context) * math.sqrt(0.5)) * math.sqrt(0.5), **TIGHT)
