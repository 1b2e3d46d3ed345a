"""`attend`: the right numbers, for the pieces really read and written, at the price of the layers asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_readers import attend_with_torch

from headwise.core.attention import DotProduct, MultiHeadAttention
from headwise.errors import UserError
from headwise.pytorch.inspect.recording import attentions, cross_attentions, recording
from headwise.runtime.search.translator import TextTranslator
from headwise.view.record import AttentionRecord

TranslatorOf = Callable[[str], TextTranslator]
SOURCE = "Der Hund sieht die Männer."
ATTENDING = ["post", "pre", "bahdanau", "luong", "reversed", "conv"]
LAYERS = {"post": (2, 3, 3), "pre": (2, 2, 2), "conv": (0, 0, 2), "summary": (0, 0, 0)}


def recorded(record: AttentionRecord) -> list[np.ndarray]:
    return [layer for layers in (record.encoder, record.decoder, record.cross) for layer in layers if layer is not None]


@pytest.mark.parametrize("variant", [*ATTENDING, "summary"])
@pytest.mark.parametrize("tgt", [None, "A dog runs", ""])
def test_rows_sum_to_one(variant: str, tgt: str | None, translator_of: TranslatorOf) -> None:
    record = attend_with_torch(translator_of(variant), SOURCE, tgt)
    src, out = len(record.src_pieces), len(record.tgt_pieces)
    layers = (record.encoder, record.decoder, record.cross)
    assert tuple(map(len, layers)) == LAYERS.get(variant, (0, 0, 1))
    n_heads = 2 if variant in ("post", "pre") else 1
    for stack, shape in zip(layers, [(src, src), (out, out), (out, src)], strict=True):
        assert all(layer is not None and layer.shape == (n_heads, *shape) for layer in stack)
    for layer in recorded(record):
        assert layer.dtype == np.float32
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-6)


def test_pieces_and_words(translator_of: TranslatorOf) -> None:
    record = attend_with_torch(translator_of("post"), "Der Hund\n", " A dog ")
    assert (record.text, record.translation) == ("Der Hund", "A dog")
    assert record.src_pieces == ["▁Der", "▁Hund", "</s>"]
    assert record.tgt_pieces == ["▁A", "▁dog", "</s>"]
    assert [word.text for word in record.src_words] == ["Der", "Hund"]
    assert [(word.start, word.stop) for word in record.tgt_words] == [(0, 1), (1, 2)]


@pytest.mark.parametrize("variant", ATTENDING)
@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 3}, {"sample": True}], ids=str)
def test_the_path_of_the_search_is_followed(
    variant: str, settings: dict[str, Any], translator_of: TranslatorOf
) -> None:
    """Step by step with a cache, as a search goes: the same weights, for the pieces that the search chose."""
    translator = translator_of(variant)
    network: Any = translator.model
    (translation,) = translator.translate([SOURCE], **settings)
    record = attend_with_torch(translator, SOURCE, **settings)
    assert record.tgt_pieces[: len(translation.pieces)] == translation.pieces
    assert record.translation == translation.text
    config = translator.config.changed(settings)
    (hypothesis,) = translator.search(translator.segment([SOURCE], config), [], config)[0]
    src = torch.tensor([[*translator.tokenizer.encode(SOURCE), translator.tokenizer.eos_id]])
    src_mask = torch.ones_like(src, dtype=torch.bool)
    network.eval()
    with torch.inference_mode():
        cache = network.start_cache(network.encode(src, src_mask), src_mask)
        for i, token in enumerate([translator.tokenizer.bos_id, *hypothesis.tokens][: len(record.tgt_pieces)]):
            with recording(cross_attentions(network)) as weights:
                network.decode(torch.tensor([[token]]), cache.memory, src_mask, cache)
            for layer, step in zip(record.cross, weights.values(), strict=True):
                np.testing.assert_allclose(layer[:, i : i + 1], step[0], atol=1e-5)


def test_a_translation_that_reached_its_longest_length_has_no_end_mark(translator_of: TranslatorOf) -> None:
    record = attend_with_torch(
        translator_of("post"), SOURCE, max_length_factor=0.0, max_length_extra=2, min_length_factor=1.0
    )
    assert len(record.tgt_pieces) == 2 and "</s>" not in record.tgt_pieces


def test_a_prefix_is_followed(translator_of: TranslatorOf) -> None:
    record = attend_with_torch(translator_of("post"), SOURCE, prefix="A dog")
    assert record.tgt_pieces[:2] == ["▁A", "▁dog"]


def test_asked_layers_only(translator_of: TranslatorOf, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, calls = translator_of("post"), []
    explicit = DotProduct.weights

    def counted(kernel: DotProduct, q: Any, k: Any, mask: Any) -> Any:
        calls.append(tuple(q.shape))
        return explicit(kernel, q, k, mask)

    monkeypatch.setattr(DotProduct, "weights", counted)
    everything = attend_with_torch(translator, SOURCE, "A dog")
    assert len(calls) == 8
    calls.clear()
    some = attend_with_torch(translator, SOURCE, "A dog", layers={"cross": [-1], "encoder": [0]})
    assert len(calls) == 2
    assert [layer is None for layer in (*some.encoder, *some.decoder, *some.cross)] == [0, 1, 1, 1, 1, 1, 1, 0]
    np.testing.assert_array_equal(some.cross[2], everything.cross[2])
    calls.clear()
    attend_with_torch(translator, SOURCE, "A dog", layers=[])
    assert calls == []


def test_a_layer_that_only_one_stack_has(translator_of: TranslatorOf) -> None:
    record = attend_with_torch(translator_of("post"), SOURCE, "A dog", layers=[2])
    assert [layer is None for layer in (*record.encoder, *record.decoder, *record.cross)] == [1, 1, 1, 1, 0, 1, 1, 0]


def test_asked_heads_only(translator_of: TranslatorOf) -> None:
    both, one = (attend_with_torch(translator_of("post"), SOURCE, "A dog", heads=heads) for heads in (None, [1]))
    for all_heads, second in zip(recorded(both), recorded(one), strict=True):
        np.testing.assert_array_equal(all_heads[1:], second)


@pytest.mark.parametrize("variant", ATTENDING)
def test_recording_changes_no_output_and_leaves_nothing_behind(variant: str, translator_of: TranslatorOf) -> None:
    translator = translator_of(variant)
    network: Any = translator.model
    before, calm = translator.translate([SOURCE]), attend_with_torch(translator, SOURCE)
    state = {name: set(vars(module)) for name, module in network.named_modules()}
    network.train()
    for layer, expected in zip(recorded(attend_with_torch(translator, SOURCE)), recorded(calm), strict=True):
        np.testing.assert_array_equal(layer, expected)  # without dropout, whatever mode the model is in
    assert network.training
    assert translator.translate([SOURCE]) == before
    assert {name: set(vars(module)) for name, module in network.named_modules()} == state
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())


@pytest.mark.parametrize("variant", ATTENDING)
def test_hidden_states_while_recording_are_equal(variant: str, translator_of: TranslatorOf) -> None:
    network: Any = translator_of(variant).model.train(False)
    src, tgt = torch.tensor([[9, 8, 7, 2]]), torch.tensor([[1, 5, 6]])
    chosen = {name: module for stack in attentions(network).values() for name, module in stack.items()}
    with torch.inference_mode():
        plain = network(src, tgt, src > 0)
        with recording(chosen):
            assert torch.equal(network(src, tgt, src > 0), plain)


# --- Independent oracles


def multi_head_inputs(network: nn.Module, run: Callable[[], Any]) -> dict[str, tuple[torch.Tensor, ...]]:
    """What every attention of the network was called with."""
    seen: dict[str, tuple[torch.Tensor, ...]] = {}
    handles = [
        module.register_forward_pre_hook(lambda _, inputs, name=name: seen.__setitem__(name, inputs))
        for name, module in network.named_modules()
        if isinstance(module, MultiHeadAttention)
    ]
    run()
    for handle in handles:
        handle.remove()
    return seen


def by_hand(attention: MultiHeadAttention, x: np.ndarray, memory: np.ndarray, causal: bool) -> np.ndarray:
    """Equation 1 in numpy, head by head."""
    parameters = {name: value.detach().double().numpy() for name, value in attention.named_parameters()}
    queries = x @ parameters["q_proj.weight"].T + parameters["q_proj.bias"]
    keys = memory @ parameters["k_proj.weight"].T + parameters["k_proj.bias"]
    width, heads = queries.shape[1] // attention.n_heads, []
    for h in range(attention.n_heads):
        part = slice(h * width, (h + 1) * width)
        scores = queries[:, part] @ keys[:, part].T / np.sqrt(width)
        for i in range(len(x)) if causal else ():
            scores[i, i + 1 :] = -np.inf
        weights = np.exp(scores - scores.max(1, keepdims=True))
        heads.append(weights / weights.sum(1, keepdims=True))
    return np.stack(heads)


def by_torch(attention: MultiHeadAttention, x: torch.Tensor, memory: torch.Tensor, causal: bool) -> np.ndarray:
    """The same weights in torch's own module."""
    theirs = nn.MultiheadAttention(x.size(-1), attention.n_heads, batch_first=True)
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        theirs.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1) if causal else None  # True hides
        _, weights = theirs(x, memory, memory, attn_mask=hidden, need_weights=True, average_attn_weights=False)
    return weights[0].numpy()


@pytest.mark.parametrize("variant", ["post", "pre"])
def test_weights_are_those_of_two_oracles(variant: str, translator_of: TranslatorOf) -> None:
    translator = translator_of(variant)
    network: Any = translator.model
    network.eval()
    record = attend_with_torch(translator, SOURCE, "A dog runs")
    seen = multi_head_inputs(network, lambda: attend_with_torch(translator, SOURCE, "A dog runs", layers=[]))
    for stack, modules in attentions(network).items():
        for (name, module), found in zip(modules.items(), getattr(record, stack), strict=True):
            x, memory = seen[name][:2]
            x, memory = x.clone(), (x if memory is None else memory).clone()  # None is self-attention
            causal = stack == "decoder"
            expected = by_hand(module, x[0].double().numpy(), memory[0].double().numpy(), causal)
            np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(found, by_torch(module, x, memory, causal), atol=1e-5, err_msg=name)


def test_columns_stand_in_the_order_of_the_source_though_it_is_read_backwards(translator_of: TranslatorOf) -> None:
    """Luong's dot score by hand, of states that are put back into order."""
    translator = translator_of("reversed")
    network: Any = translator.model
    network.eval()
    record = attend_with_torch(translator, "Der Hund sieht", "A")
    x = network.src_embeddings.weight[[*translator.tokenizer.encode("Der Hund sieht"), 2]] * network.scale
    with torch.no_grad():
        states, last = network.encoder.rnn(x.flip(0)[None])
        query, _ = network.decoder.rnn(network.tgt_embeddings.weight[None, 1:2] * network.scale, last)
        expected = (query @ states.flip(1).mT).softmax(-1)
    np.testing.assert_allclose(record.cross[0][0, :1], expected[0], atol=1e-5)


# --- What users get wrong


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"src": " \n"}, "blank"),
        ({"layers": [3]}, "layer 3 does not exist: they go from 0 to 2"),
        ({"layers": {"encoder": [2]}}, "encoder attention: layer 2 does not exist: they go from 0 to 1"),
        ({"layers": {"self": [0]}}, "unknown kind of attention 'self'"),
        ({"heads": [2]}, "encoder attention, layer 0: head 2 does not exist: they go from 0 to 1"),
        ({"beam": 2}, "beam"),
        ({"prefix": "A", "tgt": "A"}, "prefix and tgt exclude each other"),
        ({"src": "Hund " * 10, "max_source_length": 8}, "max_source_length = 8"),
    ],
)
def test_what_users_get_wrong(arguments: dict[str, Any], message: str, translator_of: TranslatorOf) -> None:
    with pytest.raises(UserError, match=message):
        attend_with_torch(translator_of("post"), **{"src": SOURCE, **arguments})


def test_layers_of_a_model_without_attention(translator_of: TranslatorOf) -> None:
    with pytest.raises(UserError, match="this model has none"):
        attend_with_torch(translator_of("summary"), SOURCE, layers=[0])


@pytest.mark.parametrize("source", ["<s> </s> <2de>", "日本語\u3000😀", "e\u0301\ud800", "x" * 200])
def test_odd_texts(source: str, translator_of: TranslatorOf) -> None:
    record = attend_with_torch(translator_of("bahdanau"), source, source)
    assert record.cross[0].shape[1:] == (len(record.tgt_pieces), len(record.src_pieces))
