"""Heads silenced, put back and left out: always against the attention written out without them."""

from typing import Any

import pytest
import torch
from torch import Tensor
from unit.native.stepping import Steps

from headwise.config.model import RecurrentConfig, TransformerConfig
from headwise.config.settings import RunConfig, check
from headwise.core.attention import split_heads
from headwise.core.build import build as build_family
from headwise.core.build import load_parameters, parameters_of
from headwise.core.transformer import Transformer
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.inspect.heads import (
    Head,
    HeadMask,
    all_heads,
    heads_by_layer,
    heads_left,
    heads_of,
    multi_head_attentions,
    parameters_without,
)
from headwise.pytorch.search.inference import PrecisionVariants
from headwise.runtime.native.library import library
from headwise.runtime.native.network import CompiledNetwork

SHAPE = {"vocab_size": 11, "d_model": 12, "d_ff": 16, "n_heads": 3, "n_encoder_layers": 2, "n_decoder_layers": 2}
SRC = torch.tensor([[7, 5, 10, 3, 2], [4, 9, 2, 0, 0]])
SRC_MASK = SRC != 0
TGT_IN = torch.tensor([[1, 8, 8, 4], [1, 3, 6, 0]])
REMOVED = {
    Head("encoder", 0, 1),
    Head("encoder", 0, 2),
    Head("decoder", 1, 0),
    Head("cross", 0, 2),
    Head("cross", 1, 1),
}


def build(**changes: Any) -> Transformer:
    model = build_model(TransformerConfig(**{**SHAPE, **changes})).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    return model


def hidden(model: Any) -> Tensor:
    with torch.no_grad():
        return model.states(SRC, TGT_IN, SRC_MASK)


def smaller(model: Transformer, removed: set[Head]) -> Transformer:
    left = heads_left(model, removed)
    shape = {f"{part}_heads": counts for part, counts in left.items()}
    pruned = build_model(check(RunConfig(model=TransformerConfig(**{**SHAPE, **shape}))).model).double().eval()
    load_parameters(pruned, parameters_without(model, removed), "the parameters")
    return pruned


def test_every_head_has_its_place() -> None:
    model = build()
    assert len(all_heads(model)) == 3 * 3 * 2
    assert multi_head_attentions(model)["cross", 1] is model.decoder.layers[1].cross_attn
    assert multi_head_attentions(model)["decoder", 0] is model.decoder.layers[0].self_attn
    assert multi_head_attentions(model)["encoder", 1] is model.encoder.layers[1].self_attn
    assert heads_of(model, heads_by_layer(REMOVED)) == REMOVED


def test_a_silent_head_adds_nothing() -> None:
    """The attention's output is that of the other heads, each projected by itself, and the bias."""
    model = build()
    attention = multi_head_attentions(model)["cross", 0]
    x, memory = torch.randn(2, 4, 12).double(), torch.randn(2, 5, 12).double()
    k, v = attention.keys_and_values(memory, None)
    q = split_heads(attention.q_proj(x), attention.n_heads)
    heads = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    columns = attention.o_proj.weight.split(4, 1)
    without = attention.o_proj.bias + heads[:, 0] @ columns[0].T + heads[:, 1] @ columns[1].T
    without = without.detach()
    HeadMask(model).set({Head("cross", 0, 2)})
    with torch.no_grad():
        torch.testing.assert_close(attention(x, memory, None), without)


def test_masks_replace_each_other_and_leave_no_trace() -> None:
    model = build()
    before, parameters = hidden(model), {name: p.clone() for name, p in parameters_of(model).items()}
    mask = HeadMask(model)
    assert mask.set(REMOVED) == frozenset()
    masked = hidden(model)
    assert not torch.allclose(masked, before)
    assert mask.set({Head("cross", 0, 0)}) == REMOVED
    alone = hidden(model)
    assert mask.set(REMOVED) == {Head("cross", 0, 0)}
    assert torch.equal(hidden(model), masked)
    mask.set(set())
    assert torch.equal(hidden(model), before)
    assert all(torch.equal(p, parameters[name]) for name, p in parameters_of(model).items())
    other = HeadMask(model)
    other.set({Head("cross", 0, 0)})
    assert torch.equal(hidden(model), alone)


def test_pruned_model_is_the_masked_one_without_the_weights() -> None:
    model = build()
    pruned = smaller(model, REMOVED)
    HeadMask(model).set(REMOVED)
    torch.testing.assert_close(hidden(pruned), hidden(model))
    assert heads_left(model, REMOVED) == {"encoder": (1, 3), "decoder": (3, 2), "cross": (2, 2)}
    fewer = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in pruned.parameters())
    assert fewer == len(REMOVED) * (3 * (12 * 4 + 4) + 12 * 4)  # W^Q, W^K, W^V with biases, and W^O


def test_heads_of_other_widths() -> None:
    model = build(d_k=2, d_v=5)
    left = {f"{part}_heads": counts for part, counts in heads_left(model, REMOVED).items()}
    pruned = build_model(TransformerConfig(**{**SHAPE, "d_k": 2, "d_v": 5, **left})).double().eval()
    load_parameters(pruned, parameters_without(model, REMOVED), "the parameters")
    HeadMask(model).set(REMOVED)
    torch.testing.assert_close(hidden(pruned), hidden(model))


@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
@pytest.mark.parametrize("compute", ["float32", "int8", "bfloat16"])
def test_forms_for_decoding_follow_masks_and_pruning(compute: str) -> None:
    """Step by step through the prepared form, as search does it."""
    model = build().float()
    forms = PrecisionVariants(model)

    def steps(form: Any) -> Tensor:
        form = Steps(form) if isinstance(form, CompiledNetwork) else form
        with torch.inference_mode():
            cache = form.start_cache(form.encode(SRC, SRC_MASK), SRC_MASK)
            parts = [form.decode(TGT_IN[:, t : t + 1], cache.memory, cache.src_mask, cache) for t in range(4)]
            return torch.cat(parts, 1).float()

    tolerance = {"float32": 1e-5, "int8": 0.15, "bfloat16": 0.15}[compute]
    whole = steps(forms(compute))
    pruned = smaller(model.double(), REMOVED).float()
    model.float()
    mask = HeadMask(model)
    mask.set(REMOVED)
    masked = steps(forms(compute))
    assert (masked - whole).abs().max() > 2 * tolerance
    torch.testing.assert_close(masked[0], hidden(model)[0], atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(steps(PrecisionVariants(pruned)(compute))[0], masked[0], atol=tolerance, rtol=tolerance)
    mask.set(set())
    torch.testing.assert_close(steps(forms(compute)), whole)


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"middle": {0: [0]}}, "unknown part 'middle'"),
        ({"encoder": {2: [0]}}, "encoder has no layer 2; its layers are 0 to 1"),
        ({"decoder": {-1: [0]}}, "decoder has no layer -1"),
        ({"cross": {1: [0, 3]}}, "cross layer 1 has no head 3; its heads are 0 to 2"),
    ],
)
def test_heads_that_are_not_there(chosen: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        heads_of(build(), chosen)


def test_other_architectures_have_no_heads() -> None:
    model = build_network(RecurrentConfig(vocab_size=9, d_model=8, n_encoder_layers=1))
    with pytest.raises(UserError, match="only Transformers have heads"):
        heads_of(model, {"cross": {0: [0]}})


@pytest.mark.parametrize("counts", [(2,), (0, 1), (4, 1), (1, 1, 1)])
def test_head_counts_that_do_not_fit(counts: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"model.cross_heads = .*from 1 to model.n_heads = 3 for each of 2 layers"):
        check(RunConfig(model=TransformerConfig(**SHAPE, cross_heads=counts)))


def test_heads_of_layers_with_the_same_parameters_are_not_masked() -> None:
    """A head of one layer of an ALBERT would be masked in all of them."""
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8, "vocab_size": 9}
    values = {"embedding_size": 4, "num_hidden_layers": 2, **sizes}
    for groups, refused in ((1, True), (2, False)):
        model = build_family(FAMILIES["albert"].config_from_hf({**values, "num_hidden_groups": groups}))
        assert len(all_heads(model)) == 6
        before = {name: value.clone() for name, value in parameters_of(model).items()}
        mask = HeadMask(model)
        if refused:
            with pytest.raises(UserError, match="the layers of this model share their parameters"):
                mask.set({Head("encoder", 1, 2)})
            assert not mask.heads and all(
                torch.equal(before[name], value) for name, value in parameters_of(model).items()
            )
        else:
            mask.set({Head("encoder", 1, 2)})
            assert not model.encoder.layers[1].self_attn.o_proj.weight[:, 8:].any()
            assert model.encoder.layers[0].self_attn.o_proj.weight[:, 8:].all()
