"""Section 3.3: equation 2, position by position."""

import numpy as np
import torch

from headwise.core.layers import FeedForward


def test_is_equation_2_at_every_position() -> None:
    ffn = FeedForward(d_model=4, d_ff=7).double()
    x = torch.randn(2, 3, 4).double()
    w_1, b_1 = ffn.up_proj.weight.detach().numpy().T, ffn.up_proj.bias.detach().numpy()
    w_2, b_2 = ffn.down_proj.weight.detach().numpy().T, ffn.down_proj.bias.detach().numpy()
    output = ffn(x).detach().numpy()
    for place in np.ndindex(2, 3):
        expected = np.maximum(0, x.numpy()[place] @ w_1 + b_1) @ w_2 + b_2
        np.testing.assert_allclose(output[place], expected, rtol=1e-12)
