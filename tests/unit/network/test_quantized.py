"""Integer products: close to the float ones, and no row of a batch changes another."""

import pytest
import torch
from torch import nn

from sightline.network.quantized import ChosenOutputs, Int8Linear, fuse, int8_available

pytestmark = pytest.mark.skipif(not int8_available(), reason="this processor has no int8 products in torch")


def layer(d_in: int, d_out: int) -> Int8Linear:
    return Int8Linear(torch.randn(d_out, d_in), torch.randn(d_out))


@pytest.mark.parametrize(("d_in", "d_out"), [(64, 48), (512, 100), (13, 7)])
def test_error_is_that_of_rounding(d_in: int, d_out: int) -> None:
    weight, bias, x = torch.randn(d_out, d_in), torch.randn(d_out), torch.randn(20, d_in)
    error = Int8Linear(weight, bias)(x) - (x @ weight.T + bias)
    # Rounding to a step is uniform, of standard deviation step / sqrt(12); steps are 1/127 of a maximum, for weights
    # at worst of twice the maximum.
    expected = (d_in / 12) ** 0.5 / 127 * (x.abs().amax() ** 2 + (2 * weight.abs().amax()) ** 2) ** 0.5
    assert error.std() < expected


def test_a_row_is_the_same_whatever_stands_beside_it() -> None:
    """To the last bit, for any number of rows and however large its neighbours are."""
    linear = layer(96, 72)
    x = torch.randn(70, 96)
    neighbours = torch.randn(70, 96) * 10.0 ** torch.randint(-3, 4, (70, 1))
    alone = torch.cat([linear(row) for row in x.split(1)])
    assert torch.equal(linear(x), alone)
    assert torch.equal(linear(torch.cat([neighbours, x]))[70:], alone)
    assert torch.equal(linear(x.flip(0)).flip(0), alone)


def test_inputs_after_relu_are_rounded_half_as_coarsely() -> None:
    weight, x = torch.randn(200, 256), torch.randn(20, 256).relu()
    signed, unsigned = (Int8Linear(weight, None, after_relu)(x) - x @ weight.T for after_relu in (False, True))
    assert unsigned.std() < 0.9 * signed.std()


@pytest.mark.parametrize("factor", [1e-20, 1e-3, 1e6])
def test_the_size_of_a_row_does_not_matter(factor: float) -> None:
    linear = Int8Linear(torch.randn(30, 40), None)
    x = torch.randn(5, 40)
    torch.testing.assert_close(linear(x * factor) / factor, linear(x), rtol=1e-4, atol=1e-3)


def test_extreme_products_do_not_overflow() -> None:
    """All inputs and weights at their largest, with either sign: what would saturate sums of 16 bits."""
    signs = torch.tensor([1.0, -1.0]).repeat(64)
    linear = Int8Linear(torch.stack([torch.ones(128), signs, -torch.ones(128)]), None)
    x = torch.stack([torch.ones(128), signs, -torch.ones(128)])
    torch.testing.assert_close(
        linear(x), torch.tensor([[128.0, 0, -128], [0, 128, 0], [-128, 0, 128]]), rtol=0.01, atol=1e-3
    )


@pytest.mark.parametrize("period", [[1, 0], [0, 1], [1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 1, 0, 0, 0, 0], [1, -1]])
@pytest.mark.parametrize("after_relu", [False, True])
def test_only_neighbours_share_16_bits(period: list[int], after_relu: bool) -> None:
    """If any other two weights were summed with them, one of these patterns would saturate."""
    weight = torch.tensor(period * (64 // len(period)), dtype=torch.float)
    x = weight.relu() if after_relu else weight
    linear = Int8Linear(weight.unsqueeze(0), None, after_relu)
    assert linear(x.unsqueeze(0)).item() == pytest.approx(float(x @ weight), rel=0.01)


def test_a_row_of_zeros_yields_the_bias_and_one_of_nan_yields_nan() -> None:
    linear = layer(8, 4)
    assert linear.bias is not None
    torch.testing.assert_close(linear(torch.zeros(1, 8))[0], linear.bias)
    assert linear(torch.full((1, 8), torch.nan)).isnan().all()


@pytest.mark.parametrize("compute", ["float32", "int8"])
def test_fused_layers_stand_side_by_side(compute: str) -> None:
    first, second = nn.Linear(16, 8), nn.Linear(16, 4)
    x = torch.randn(3, 16)
    expected = torch.cat([first(x) * 0.5, second(x)], -1)
    tolerance = 1e-6 if compute == "float32" else 0.05
    torch.testing.assert_close(fuse([first, second], compute, [0.5, 1.0])(x), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("compute", ["float32", "int8"])
@pytest.mark.parametrize("bias", [True, False])
def test_chosen_outputs_are_those_of_the_whole_layer(compute: str, bias: bool) -> None:
    """In int8 to the last bit, for every output has its own scale."""
    linear, rows, x = nn.Linear(48, 90, bias), torch.tensor([3, 4, 17, 88]), torch.randn(5, 48)
    with torch.no_grad():
        whole = fuse([linear], compute)(x)[:, rows]
        chosen = ChosenOutputs(linear, compute)(rows)(x)
    if compute == "int8":
        assert torch.equal(chosen, whole)
    torch.testing.assert_close(chosen, whole)
