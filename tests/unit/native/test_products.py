"""Matrix products of the library: compared with integers and numpy, bit-identical in any batch."""

from typing import Any

import numpy as np
import pytest

from headwise.runtime.native.arrays import at
from headwise.runtime.native.library import library, needed
from headwise.runtime.native.linear import NUMBERS, Linear

pytestmark = pytest.mark.skipif(library() is None, reason="the compiled library is missing")

SHAPES = [(d_out, d_in) for d_out in (1, 17, 48) for d_in in (8, 100, 512)]
ROWS = (1, 2, 3, 5, 50, 100)
GROUP = 16  # inputs whose products meet: eight in each of two sums of 16 bits


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def inputs(rows: int, d_in: int, after_relu: bool) -> Any:
    """Rows of very different magnitudes; the last one is zero."""
    x = drawn(rows, d_in) * np.float32(10.0) ** np.arange(rows, dtype=np.float32)[:, None].clip(0, 12)
    x[-1:] = 0 if rows > 1 else x[-1:]
    return x.clip(0, None) if after_relu else x


def levels_of(x: Any, after_relu: bool) -> tuple[Any, Any]:
    """Inputs quantised to 7 bits as in `products.c`, minus the value of 0; and the scale."""
    steps = 127 if after_relu else 63
    largest = np.abs(x).max(1, keepdims=True)
    inverse = np.divide(np.float32(steps), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(x * inverse).astype(np.int64), largest / np.float32(steps)


def packed(layer: Linear) -> tuple[Any, Any]:
    """The quantised weights (d_out, d_in) and the scale of each output; W is about scale * level."""
    levels, scales = np.empty((layer.d_out, layer.d_in), np.int8), np.empty(layer.d_out, np.float32)
    needed().headwise_quantised_weights(layer.address, at(levels), at(scales))
    return levels, scales


def in_integers(layer: Linear, x: Any, bias: Any, after_relu: bool) -> Any:
    levels, scales = packed(layer)
    rounded, worth = levels_of(x, after_relu)
    return (rounded @ levels.T.astype(np.int64)).astype(np.float64) * worth * scales + bias


def sums_in_16_bits(levels: Any, x: Any) -> Any:
    """Every 16-bit sum for rows `x` of quantised inputs from 0 to 127, padded with 0."""
    more = -levels.shape[1] % GROUP
    w, x = (np.pad(a.astype(np.int64), [(0, 0), (0, more)]).reshape(len(a), -1, 4, 2, 2) for a in (levels, x))
    products = (w[:, None] * x[None]).sum(-1)  # neighbours, which the processor adds first
    return np.concatenate([products, products.cumsum(3)], 3)


@pytest.mark.parametrize("after_relu", [False, True])
@pytest.mark.parametrize(("d_out", "d_in"), SHAPES)
def test_int8_products_are_exact_integer_sums(d_out: int, d_in: int, after_relu: bool) -> None:
    bias = drawn(d_out)
    layer = Linear(drawn(d_out, d_in), bias, numbers="int8", after_relu=after_relu)
    for rows in ROWS:
        x = inputs(rows, d_in, after_relu)
        wanted = in_integers(layer, x, bias, after_relu)
        size = np.abs(wanted - bias).max(1, keepdims=True) + np.abs(bias).max()
        assert (np.abs(layer(x) - wanted) <= 1e-6 * size).all()


@pytest.mark.parametrize(("d_out", "d_in"), SHAPES)
def test_float32_is_the_product(d_out: int, d_in: int) -> None:
    weight, bias = drawn(d_out, d_in), drawn(d_out)
    layer, bare = Linear(weight, bias), Linear(weight, None)
    for rows in ROWS:
        x = drawn(rows, d_in)
        wanted = x.astype(np.float64) @ weight.T.astype(np.float64)
        np.testing.assert_allclose(bare(x), wanted, rtol=0, atol=1e-6 * d_in)
        np.testing.assert_allclose(layer(x), wanted + bias, rtol=0, atol=1e-6 * d_in)


@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_row_of_zeros_yields_the_bias(numbers: str) -> None:
    bias = drawn(17)
    np.testing.assert_array_equal(Linear(drawn(17, 100), bias, numbers)(np.zeros((2, 100), np.float32)), [bias, bias])


@pytest.mark.parametrize("after_relu", [False, True])
def test_int8_is_near_float32(after_relu: bool) -> None:
    weight, x = drawn(48, 512), drawn(50, 512)
    x = x.clip(0, None) if after_relu else x
    wanted = x @ weight.T
    off = Linear(weight, None, numbers="int8", after_relu=after_relu)(x) - wanted
    assert np.linalg.norm(off) < 0.025 * np.linalg.norm(wanted)


def test_after_a_relu_there_is_one_more_bit() -> None:
    weight, x = np.eye(8, dtype=np.float32), np.array([[0, 0, 0, 0, 0, 0, 1, 127]], np.float32)
    fine, coarse = (Linear(weight, None, "int8", after_relu)(x)[0] for after_relu in (True, False))
    np.testing.assert_allclose(fine, x[0], rtol=1e-6)
    np.testing.assert_allclose(coarse, [0, 0, 0, 0, 0, 0, 0, 127], rtol=1e-6)  # half a level, and even


def spike(d_in: int) -> Any:
    weight = drawn(d_in) / 100
    weight[d_in // 2] = 1000
    return weight


ADVERSARIES: dict[str, Any] = {
    "all equal": lambda d_in: np.ones(d_in),
    "all equal and negative": lambda d_in: -np.ones(d_in),
    "alternating signs": lambda d_in: (-1.0) ** np.arange(d_in),
    "signs by pairs": lambda d_in: (-1.0) ** (np.arange(d_in) // 2),
    "one sign in each of the two sums": lambda d_in: np.where(np.arange(d_in) // 2 % 2, -1.0, 1.0),
    "one huge weight": spike,
    "one huge weight among equal ones": lambda d_in: np.where(np.arange(d_in) == 5, 4.0, 1.0),
    "halves, which round up together": lambda d_in: np.where(np.arange(d_in) % 8, 31.5, 32.4),
    "nothing": np.zeros,
    "random": drawn,
}


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=ADVERSARIES)
@pytest.mark.parametrize("d_in", [8, 100, 512])
def test_no_sum_overflows_16_bits(adversary: Any, d_in: int) -> None:
    """Checked from the weights, and with inputs that maximise and minimise sums."""
    weight = np.stack([adversary(d_in)] * 17).astype(np.float32)
    for after_relu in (False, True):
        layer = Linear(weight, None, numbers="int8", after_relu=after_relu)
        levels, _ = packed(layer)
        assert np.abs(levels.astype(int)).max() <= 127
        positive = np.where(weight[0] > 0, np.float32(1), np.float32(0 if after_relu else -1))
        x = np.stack([positive, positive[::-1], np.ones_like(positive), 1 - positive if after_relu else -positive])
        extreme = levels_of(x, after_relu)[0] + (0 if after_relu else 64)
        assert extreme.min() >= 0 and extreme.max() == 127
        worst = np.stack([np.where(levels[0] > 0, 127, 0), np.where(levels[0] < 0, 127, 0)])  # of all there could be
        for reached in (sums_in_16_bits(levels, extreme), sums_in_16_bits(levels, worst)):
            assert reached.min() >= -(2**15) and reached.max() < 2**15
        wanted = in_integers(layer, x, 0, after_relu)
        np.testing.assert_allclose(layer(x), wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


def test_scales_are_as_fine_as_the_bounds_allow() -> None:
    """Weights of one sign nearly fill 16 bits."""
    levels, scales = packed(Linear(np.ones((1, 512), np.float32), None, numbers="int8"))
    assert (levels == 32).all() and scales[0] == pytest.approx(1 / 32, rel=0.02)  # 8 * 32 of at most 258
    levels, scales = packed(Linear(drawn(48, 512), None, numbers="int8"))
    np.testing.assert_allclose(levels * scales[:, None], drawn(48, 512), atol=0.6 * scales.max())
    heaviest = np.abs(sums_in_16_bits(levels, np.full((1, 512), 127))).max()
    assert (np.abs(levels).max(1) > 60).all() and heaviest < 2**15


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize(("d_out", "d_in"), SHAPES)
def test_a_row_does_not_depend_on_other_rows(d_out: int, d_in: int, numbers: str) -> None:
    layer, x = Linear(drawn(d_out, d_in), drawn(d_out), numbers), inputs(101, d_in, False)
    alone = np.concatenate([layer(row) for row in x[:, None]])
    for rows in ROWS:
        for first in (0, 1):
            np.testing.assert_array_equal(layer(x[first : first + rows]), alone[first : first + rows])


@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.4, 1.0])
@pytest.mark.parametrize("d_in", [4, 60, 512, 2048, 5000])
@pytest.mark.parametrize("d_out", [1, 17, 128])
def test_a_row_that_is_mostly_zero_is_that_of_a_batch(d_out: int, d_in: int, share: float) -> None:
    """Alone, only what is not zero is multiplied; `share` of the inputs are positive."""
    layer, draw = Linear(drawn(d_out, d_in), drawn(d_out), numbers="int8", after_relu=True), np.random.default_rng(1)
    x = inputs(20, d_in, True) * (draw.random((20, d_in)) < share).astype(np.float32)
    x[0], x[1] = 0, 0
    x[0, -1:], x[1, :4] = 3.0, drawn(4)[: x[1, :4].size].clip(0)  # at either end
    np.testing.assert_array_equal(np.concatenate([layer(row) for row in x[:, None]]), layer(x))


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("d_out", [1, 17, 100])
def test_rows_of_a_layer_are_bit_identical(d_out: int, numbers: str) -> None:
    layer, x = Linear(drawn(d_out, 100), drawn(d_out), numbers), drawn(7, 100)
    index = np.random.default_rng(0).integers(0, d_out, 33)
    few = layer.rows(index)
    assert few.d_out == 33 and few.d_in == 100
    np.testing.assert_array_equal(few(x), layer(x)[:, index])
    if numbers == "int8":
        for of_few, of_all in zip(packed(few), packed(layer), strict=True):
            np.testing.assert_array_equal(of_few, of_all[index])


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_non_finite_inputs_give_nan(numbers: str, broken: float) -> None:
    """Also in int8, so that a damaged file is detected."""
    weight, x = drawn(17, 100), drawn(4, 100)
    weight[3, 50] = broken
    assert not np.isfinite(Linear(weight, None, numbers)(x)[:, 3]).any()
    weight, x[1, 99], x[2, 1] = drawn(17, 100), broken, broken
    found = np.isfinite(Linear(weight, None, numbers)(x))
    assert found[[0, 3]].all() and not found[[1, 2]].any()


INT4_GROUP = 32  # inputs with a scale of their own


def levels_of_int4(weight: Any) -> tuple[Any, Any]:
    """Weights of 4 bits (outputs, groups, 32) and the scale of each group, as in `int4.h`."""
    groups = np.pad(weight, [(0, 0), (0, -weight.shape[1] % INT4_GROUP)]).reshape(len(weight), -1, INT4_GROUP)
    largest = np.take_along_axis(groups, np.abs(groups).argmax(2)[..., None], 2) / np.float32(-8)
    bits = largest.view(np.uint32)  # rounded to bfloat16, ties to even
    scales = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales != 0)
    return np.rint(groups * inverse).clip(-8, 7).astype(np.int64), scales


def blocks_of(x: Any, after_relu: bool) -> tuple[Any, Any]:
    """Quantised inputs (rows, blocks, 32), and the scale of each block (rows, 1, blocks)."""
    blocks = np.pad(x, [(0, 0), (0, -x.shape[1] % INT4_GROUP)]).reshape(-1, INT4_GROUP)
    rounded, worth = levels_of(blocks, after_relu)
    return rounded.reshape(len(x), -1, INT4_GROUP), worth.reshape(len(x), 1, -1)


@pytest.mark.parametrize("after_relu", [False, True])
@pytest.mark.parametrize(("d_out", "d_in"), [*SHAPES, (33, 1000), (5, 16)])
def test_int8_products_in_blocks_are_exact_integer_sums_of_each_block(d_out: int, d_in: int, after_relu: bool) -> None:
    """Added in float32: each of the additions rounds by at most half a unit of the sum of the magnitudes."""
    bias = drawn(d_out)
    layer = Linear(drawn(d_out, d_in), bias, "int8", after_relu, in_blocks=True)
    levels, scales = packed(layer)
    levels = np.pad(levels.astype(np.int64), [(0, 0), (0, -d_in % INT4_GROUP)]).reshape(d_out, -1, INT4_GROUP)
    for rows in ROWS:
        x = inputs(rows, d_in, after_relu)
        blocks, worth = blocks_of(x, after_relu)
        terms = np.einsum("rgi,ogi->rog", blocks, levels) * worth.astype(np.float64) * scales[:, None]
        size = np.abs(terms).sum(2) + np.abs(bias)
        assert (np.abs(layer(x) - terms.sum(2) - bias) <= (terms.shape[2] + 4) * 2.0**-24 * size).all()


def test_an_input_a_thousand_times_as_large_changes_its_own_block_only() -> None:
    weight, x = drawn(48, 512), drawn(4, 512)
    apart = Linear(weight, None, "int8", in_blocks=True)
    x[:, 7] *= 1000
    rest = x.copy()
    rest[:, :32] = 0
    exact = rest @ weight.T
    in_one = [layer(x) - layer(x - rest) - exact for layer in (apart, Linear(weight, None, "int8"))]
    assert np.linalg.norm(in_one[0]) < 0.02 * np.linalg.norm(exact) < np.linalg.norm(in_one[1])


@pytest.mark.parametrize("after_relu", [False, True])
@pytest.mark.parametrize(("d_out", "d_in"), [*SHAPES, (33, 1000)])
def test_int4_products_are_exact_integer_sums_of_each_group(d_out: int, d_in: int, after_relu: bool) -> None:
    """Added in float32: each of the additions rounds by at most half a unit of the sum of the magnitudes."""
    weight, bias = drawn(d_out, d_in), drawn(d_out)
    layer = Linear(weight, bias, numbers="int4", after_relu=after_relu)
    levels, scales = levels_of_int4(weight)
    for rows in ROWS:
        x = inputs(rows, d_in, after_relu)
        groups, worth = blocks_of(x, after_relu)
        terms = np.einsum("rgi,ogi->rog", groups, levels) * scales[..., 0].astype(np.float64) * worth
        size = np.abs(terms).sum(2) + np.abs(bias)
        assert (np.abs(layer(x) - terms.sum(2) - bias) <= (terms.shape[2] + 4) * 2.0**-24 * size).all()


def test_int4_is_near_float32_and_an_outlier_stays_in_its_group() -> None:
    """Errors of at most half a step of each group; the largest weight of each group is exact to bfloat16."""
    weight = drawn(48, 512)
    weight[:, 100] *= 1000
    levels, scales = levels_of_int4(weight)
    groups = weight.reshape(48, -1, INT4_GROUP)
    assert (np.abs(levels * scales - groups) <= np.abs(scales) * (1 + 8 * 2.0**-8)).all()  # 7 stands for up to 8
    unit = np.eye(512, dtype=np.float32)
    found = Linear(weight, None, numbers="int4")(unit).T.reshape(groups.shape)
    np.testing.assert_allclose(found, levels * scales, rtol=1e-6)


@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=ADVERSARIES)
def test_no_sum_of_int4_overflows_16_bits(adversary: Any) -> None:
    levels, _ = levels_of_int4(np.stack([adversary(512)] * 2).astype(np.float32))
    assert np.abs(sums_in_16_bits(levels.reshape(2, 512), np.full((1, 512), 127))).max() < 2**15
