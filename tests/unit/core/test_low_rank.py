"""LoRA: its formula, what is trained, and merging."""

import pytest
import torch
from torch import nn

from headwise.config.model import TransformerConfig
from headwise.core.masks import PackedRows
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.training.low_rank import LowRankLinear, adapt, linear, merged
from headwise.pytorch.training.packed import attention_for, packed_states
from headwise.pytorch.training.step import real_states


def layer(bias: bool = True, dropout: float = 0.0) -> LowRankLinear:
    torch.manual_seed(2)
    adapted = LowRankLinear(nn.Linear(6, 4, bias), nn.Parameter(torch.randn(2, 6)), 3.0, dropout)
    nn.init.normal_(adapted.lora_B)
    return adapted


def test_the_formula() -> None:
    adapted, x = layer(), torch.randn(5, 6)
    expected = x @ adapted.weight.T + adapted.bias + 3.0 / 2 * (x @ adapted.lora_A.T) @ adapted.lora_B.T
    torch.testing.assert_close(adapted(x), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_merged_layer_computes_the_same(bias: bool) -> None:
    adapted, x = layer(bias), torch.randn(5, 6)
    whole = adapted.merge()
    assert type(whole) is nn.Linear and (whole.bias is None) is not bias
    torch.testing.assert_close(whole(x), adapted(x))


def test_dropout_is_on_the_adapters_input_only() -> None:
    adapted, x = layer(dropout=0.999), torch.randn(5, 6)
    torch.testing.assert_close(adapted.train()(x), nn.functional.linear(x, adapted.weight, adapted.bias))
    assert not torch.allclose(adapted.eval()(x), nn.functional.linear(x, adapted.weight, adapted.bias))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.o_proj = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o_proj(self.q_proj(x) * self.k_proj(x))


def test_training_starts_from_the_original_and_changes_adapters_only() -> None:
    torch.manual_seed(1)
    network, x = Small(), torch.randn(3, 6)
    before, kept = network(x), {name: p.clone() for name, p in network.named_parameters()}
    adapt(network, [["q_proj", "k_proj"]], 2, 4.0, 0.0, whole=["o_proj.bias"])
    torch.testing.assert_close(network(x), before)
    trained = {name: p for name, p in network.named_parameters() if p.requires_grad}
    assert trained.keys() == {"q_proj.lora_A", "q_proj.lora_B", "k_proj.lora_B", "o_proj.bias"}
    bound = 6**-0.5  # as in peft: Kaiming-uniform with a = sqrt(5)
    assert 0.5 * bound < trained["q_proj.lora_A"].abs().max() <= bound
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(x).square().sum().backward()
        optimizer.step()
    assert not torch.allclose(network(x), before)
    after = dict(network.named_parameters())
    assert all(torch.equal(after[name], value) for name, value in kept.items() if name != "o_proj.bias")


def test_merged_context() -> None:
    network, x = Small(), torch.randn(3, 6)
    adapt(network, [["q_proj"]], 2, 4.0, 0.0, whole=[])
    nn.init.normal_(network.get_parameter("q_proj.lora_B"))
    adapted, expected = network.q_proj, network(x)
    with merged(network):
        assert type(linear(network, "q_proj")) is nn.Linear
        torch.testing.assert_close(network(x), expected)
        network.eval()
    assert network.q_proj is adapted and not adapted.training


def test_packed_training_with_adapters() -> None:
    torch.manual_seed(1)
    c = TransformerConfig(
        vocab_size=20, d_model=16, d_ff=24, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, dropout=0.0
    )
    network = build_network(c)
    names = [name for name, module in network.named_modules() if name.endswith(("q_proj", "v_proj", "up_proj"))]
    adapt(network, [[name] for name in names], 2, 4.0, 0.0, whole=[])
    for name, parameter in network.named_parameters():
        if name.endswith("lora_B"):
            nn.init.normal_(parameter)
    src, tgt = torch.tensor([[5, 6, 7], [8, 9, 0]]), torch.tensor([[2, 4, 5, 6], [2, 7, 0, 0]])
    inputs = src, tgt, PackedRows(src != 0, 5), PackedRows(tgt != 0, 6)
    attend = attention_for(network, src != 0, tgt != 0)
    if attend is None:
        pytest.skip("needs the compiled library")
    packed = packed_states(network, *inputs, attend)
    torch.testing.assert_close(packed, network.states(src, tgt, src != 0)[tgt != 0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(real_states(network, *inputs), packed)
    packed.square().sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in network.parameters())
