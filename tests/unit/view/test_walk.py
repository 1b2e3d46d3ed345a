"""The walk: every step equals its operation on its operands, in float64, and the last ones are those of the model."""

import itertools
from collections.abc import Callable, Iterator
from copy import deepcopy
from math import erf, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_readers import attend_with_torch

from headwise.core.build import build
from headwise.core.transformer import EncoderOnly
from headwise.errors import UserError
from headwise.families.registry import FAMILIES
from headwise.pytorch.inspect.inputs import ContinuedText, EncodedInput
from headwise.pytorch.inspect.walk import figure_of, walk_pair, walk_record
from headwise.runtime.search.translator import TextTranslator
from headwise.view.record import TEMPERATURES, Axis, WalkRecord, WalkStep

SRC, TGT = "A dog runs .", "Der Hund sieht ."
# Sums of at most 100 products of numbers below 100, each rounded to 2^-53.
CLOSE: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
# Tables of positions are float32: an angle below 100 is rounded to 2^-18, and what it rotates is below 100.
TABLES: dict[str, Any] = {"rtol": 1e-3, "atol": 1e-3}
FLOAT32: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}  # Gemma's norms, whatever the network computes in

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": 30}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "vocab_size": 30}
GEMMA = {"model_type": "gemma2", "head_dim": 4, "num_key_value_heads": 2, "sliding_window": 4, **SIZES}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"model_type": "bert", "architectures": ["BertForMaskedLM"], "max_position_embeddings": 40, **SIZES},
    "bert without a head": {"model_type": "bert", "architectures": ["BertModel"], **SIZES},
    "albert": {"model_type": "albert", "embedding_size": 8, **SIZES},
    "mpnet": {"model_type": "mpnet", "architectures": ["MPNetForMaskedLM"], **SIZES},
    "modernbert": {"model_type": "modernbert", "local_attention": 4, **SIZES},
    "deberta-v2": {
        "model_type": "deberta-v2",
        "architectures": ["DebertaV2ForMaskedLM"],
        "relative_attention": True,
        "position_buckets": 4,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "pos_att_type": "p2c|c2p",
        "position_biased_input": False,
        **SIZES,
    },
    "gpt2": {"model_type": "gpt2", **GPT2},
    "llama": {"model_type": "llama", "num_key_value_heads": 2, **SIZES},
    "gpt_neox": {"model_type": "gpt_neox", **SIZES, "num_attention_heads": 2},
    "qwen3": {"model_type": "qwen3", "num_key_value_heads": 2, "head_dim": 4, **SIZES},
    "mistral": {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 3, **SIZES},
    "gemma2": {**GEMMA, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0, "query_pre_attn_scalar": 9},
}
T5 = {"model_type": "t5", "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4}
T5GEMMA = {key: value for key, value in GEMMA.items() if key not in ("model_type", "vocab_size")}
PAIRS: dict[str, dict[str, Any]] = {
    "t5gemma": {"model_type": "t5gemma", "encoder": {**T5GEMMA, "hidden_size": 20}, "decoder": T5GEMMA},
    "t5": T5,
    "t5 v1.1": {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(erf)(x / sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def drawn(config: dict[str, Any]) -> nn.Module:
    """A network in float64, with parameters large enough that every one of them matters."""
    torch.manual_seed(1)
    network = build(FAMILIES[config["model_type"]].config_from_hf(config)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return network


def single(name: str) -> WalkRecord:
    """The walks of an encoder or decoder alone through ten tokens."""
    network: Any = drawn(CONFIGS[name])
    axis = Axis([f"▁{i}" for i in range(10)])
    kind = EncodedInput if isinstance(network, EncoderOnly) else ContinuedText
    ids = torch.arange(3, 23, 2)[None]
    return walk_record(network, kind("a text", ids, axis, [], lambda ids: [f"▁{i}" for i in ids]))


class Reader:
    """A translator whose network is replaced."""

    def __init__(self, translator: TextTranslator, model: nn.Module) -> None:
        self.translator, self.model, self.tokenizer = translator, model, translator.tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.translator, name)


@pytest.fixture(scope="module")
def walked(translator_of: Callable[[str], TextTranslator]) -> Callable[[str], WalkRecord]:
    """The walks of a family or variant, made once."""
    kept: dict[str, WalkRecord] = {}

    def make(name: str) -> WalkRecord:
        if name in CONFIGS:
            return single(name)
        translator = translator_of(name if name not in PAIRS else "post")
        vocabulary = {"vocab_size": translator.model.output.out_features}
        network = drawn({**PAIRS[name], **vocabulary}) if name in PAIRS else deepcopy(translator.model).double()
        return walk_pair(Reader(translator, network), SRC, TGT)  # pyright: ignore[reportArgumentType]

    return lambda name: kept.setdefault(name, kept.get(name) or make(name))


def all_walks(record: WalkRecord) -> Iterator[list[WalkStep]]:
    for stack, figure in record.figure.items():
        for layer, heads in enumerate(figure.heads):
            for head in range(heads):
                yield record.steps(stack, layer, head)


# --- The operations, as `WalkStep` documents them ---


def add(step: WalkStep, *operands: np.ndarray) -> np.ndarray:
    return np.sum(operands, axis=0)


def norm(step: WalkStep, x: np.ndarray) -> np.ndarray:
    mean = x.mean(-1, keepdims=True) if step.settings["kind"] == "layer" else 0.0
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + step.settings["eps"])
    return (x - mean) / deviation * step.weight + (0 if step.bias is None else step.bias)


def projection(step: WalkStep, x: np.ndarray) -> np.ndarray:
    assert step.weight is not None
    y = step.settings.get("scale", 1.0) * x @ step.weight + (0 if step.bias is None else step.bias)
    return capped(step, y)


def capped(step: WalkStep, y: np.ndarray) -> np.ndarray:
    return step.settings["cap"] * np.tanh(y / step.settings["cap"]) if "cap" in step.settings else y


def rotate(step: WalkStep, x: np.ndarray) -> np.ndarray:
    assert step.weight is not None
    angles, n = np.arange(len(x))[:, None] * step.weight, len(step.weight)
    first, second, rest = x[:, :n], x[:, n : 2 * n], x[:, 2 * n :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], 1)


def scores(step: WalkStep, q: np.ndarray, k: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    found = capped(step, step.settings["scale"] * q @ k.T) + (0 if bias is None else bias)
    return np.where(np.isfinite(step.values), found, -np.inf)


def softmax(step: WalkStep, x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def concat(step: WalkStep, x: np.ndarray) -> np.ndarray:
    return step.values  # the other heads; `test_heads_are_concatenated`


def activation(step: WalkStep, x: np.ndarray, up: np.ndarray | None = None) -> np.ndarray:
    return ACTIVATIONS[str(step.settings["function"])](x) * (1 if up is None else up)


def probabilities(step: WalkStep, logits: np.ndarray) -> np.ndarray:
    assert step.bias is not None
    return np.exp(logits - step.bias[:, None])


OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "add": add,
    "norm": norm,
    "projection": projection,
    "rotate": rotate,
    "scores": scores,
    "softmax": softmax,
    "weighted-sum": lambda step, weights, values: weights @ values,
    "concat": concat,
    "activation": activation,
    "probabilities": probabilities,
    "same": lambda step, x: x,
}


@pytest.mark.parametrize("name", ["bert", "gemma2", "post"])
def test_the_sentence_of_the_embeddings_says_whether_they_are_scaled(
    walked: Callable[[str], WalkRecord], name: str
) -> None:
    for steps in all_walks(walked(name)):
        assert ("√d_model" in steps[0].sentence) == (steps[0].settings["scale"] != 1) == (name != "bert")


@pytest.mark.parametrize("name", [*CONFIGS, *PAIRS, "post", "pre"])
def test_every_step_equals_its_operation(walked: Callable[[str], WalkRecord], name: str) -> None:
    for steps in all_walks(walked(name)):
        known: dict[str, WalkStep] = {}
        for step in steps:
            assert step.id not in known
            assert step.values.dtype == np.float64 or step.operation == "position"
            if step.operands:
                operands = [known[operand].values for operand in step.operands]
                close = TABLES if step.operation == "rotate" else CLOSE
                close = FLOAT32 if name in ("gemma2", "t5gemma") and step.operation == "norm" else close
                np.testing.assert_allclose(step.values, OPERATIONS[step.operation](step, *operands), **close)
            else:
                assert step.operation in ("embedding", "position", "given"), step.id
            known[step.id] = step


@pytest.mark.parametrize("name", [*CONFIGS, *PAIRS, "post", "pre"])
def test_a_layer_begins_where_the_one_below_ends(walked: Callable[[str], WalkRecord], name: str) -> None:
    """What is "given" is computed in another walk; so the chain reaches from the embeddings to the output."""
    record = walked(name)
    for stack, figure in record.figure.items():
        walks = [by_id(record.steps(stack, layer, 0)) for layer in range(len(figure.heads))]
        last = "ffn.norm" if figure.norm == "post" else "ffn.add"
        for below, above in itertools.pairwise(walks):
            np.testing.assert_allclose(below[last].values, above["input"].values, **CLOSE)
        np.testing.assert_allclose(walks[-1][last].values, walks[0]["top"].values, **CLOSE)
    if len(record.figure) == 2:
        memory = by_id(record.steps("decoder", 0, 0))["memory"].values
        np.testing.assert_array_equal(memory, by_id(record.steps("encoder", 0, 0))["output"].values)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "post"])
def test_heads_are_concatenated(walked: Callable[[str], WalkRecord], name: str) -> None:
    record = walked(name)
    for stack, figure in record.figure.items():
        walks = [by_id(record.steps(stack, 1, head)) for head in range(figure.heads[1])]
        for place in (block for block in figure.blocks if block != "ffn"):
            joined = np.concatenate([walk[f"{place}.weighted-sum"].values for walk in walks], 1)
            np.testing.assert_allclose(walks[0][f"{place}.concat"].values, joined, **CLOSE)


def by_id(steps: list[WalkStep]) -> dict[str, WalkStep]:
    return {step.id: step for step in steps}


def test_the_agreed_ids_in_their_order(walked: Callable[[str], WalkRecord]) -> None:
    attention = ["queries", "keys", "values", "scores", "softmax", "weighted-sum", "concat", "heads", "add", "norm"]
    ids = [step.id for step in walked("post").steps("decoder", 1, 0)]
    cross = [f"cross_attn.{name}" for name in attention]
    assert ids == [
        *("embeddings", "position-codes", "embedded", "input"),
        *(f"self_attn.{name}" for name in attention),
        *("memory", *cross),
        *("ffn.up", "ffn.inside", "ffn.outside", "ffn.add", "ffn.norm", "top", "output", "logits", "probabilities"),
    ]
    before = [step.id for step in walked("pre").steps("encoder", 0, 0)]
    assert before[3:5] == ["self_attn.norm", "self_attn.queries"]
    assert before[-5:] == ["ffn.inside", "ffn.outside", "ffn.add", "top", "output"]


def test_positions_are_sines_and_cosines(walked: Callable[[str], WalkRecord]) -> None:
    codes = by_id(walked("post").steps("encoder", 0, 0))["position-codes"]
    assert codes.settings == {"kind": "sinusoidal"}
    position, pair = np.arange(codes.values.shape[0])[:, None], np.arange(8)
    angles = position / 10000 ** (2 * pair / 16)
    np.testing.assert_allclose(codes.values[:, 0::2], np.sin(angles), atol=1e-6)  # a float32 near 1
    np.testing.assert_allclose(codes.values[:, 1::2], np.cos(angles), atol=1e-6)


def test_the_masks_are_named(walked: Callable[[str], WalkRecord]) -> None:
    masks = {
        name: by_id(walked(name).steps("", 0, 0))["self_attn.scores"].settings["mask"]
        for name in ("bert", "gpt2", "mistral", "post")
    }
    assert masks == {"bert": "", "gpt2": "causal", "mistral": "window", "post": ""}
    near = by_id(walked("modernbert").steps("", 1, 0))["self_attn.scores"]
    distance = np.abs(np.arange(10)[:, None] - np.arange(10))
    assert near.settings["mask"] == "local"
    np.testing.assert_array_equal(np.isinf(near.values), distance > 2)
    hidden = np.isinf(by_id(walked("gpt2").steps("", 0, 0))["self_attn.scores"].values)
    np.testing.assert_array_equal(hidden, np.triu(np.ones_like(hidden), 1))


def test_grouped_heads_share_keys_but_not_queries(walked: Callable[[str], WalkRecord]) -> None:
    walks = [by_id(walked("llama").steps("decoder", 0, head)) for head in range(4)]
    keys, queries = ([walk[f"self_attn.{name}"].values for walk in walks] for name in ("keys", "queries"))
    np.testing.assert_array_equal(keys[0], keys[1])
    assert not np.array_equal(keys[1], keys[2])
    assert not np.array_equal(queries[0], queries[1])


@pytest.mark.parametrize(
    ("name", "stack", "expected"),
    [
        ("bert", "encoder", (["self_attn", "ffn"], "post", "added", False, "probabilities")),
        ("bert without a head", "encoder", (["self_attn", "ffn"], "post", "added", False, "states")),
        ("gpt2", "decoder", (["self_attn", "ffn"], "pre", "added", True, "probabilities")),
        ("deberta-v2", "encoder", (["self_attn", "ffn"], "post", "relative", False, "probabilities")),
        ("llama", "decoder", (["self_attn", "ffn"], "pre", "rotary", True, "probabilities")),
        ("gpt_neox", "decoder", (["self_attn", "ffn"], "parallel", "rotary", True, "probabilities")),
        ("gemma2", "decoder", (["self_attn", "ffn"], "sandwich", "rotary", True, "probabilities")),
        ("t5gemma", "encoder", (["self_attn", "ffn"], "sandwich", "rotary", False, "memory")),
        ("t5", "encoder", (["self_attn", "ffn"], "pre", "relative", False, "memory")),
        ("t5", "decoder", (["self_attn", "cross_attn", "ffn"], "pre", "relative", True, "probabilities")),
    ],
)
def test_the_figure_is_that_of_the_network(name: str, stack: str, expected: Any) -> None:
    figure = figure_of(drawn({"vocab_size": 30, **(CONFIGS | PAIRS)[name]}))[stack]
    assert (list(figure.blocks), figure.norm, figure.positions, figure.causal, figure.output) == expected


@pytest.mark.parametrize("variant", ["post", "pre"])
def test_softmax_is_what_attend_records(translator_of: Callable[[str], TextTranslator], variant: str) -> None:
    translator = translator_of(variant)
    record, walks = attend_with_torch(translator, SRC, TGT), walk_pair(translator, SRC, TGT)
    for stack, place, layers in (
        ("encoder", "self_attn", record.encoder),
        ("decoder", "self_attn", record.decoder),
        ("decoder", "cross_attn", record.cross),
    ):
        found, weights = by_id(walks.steps(stack, 1, 0))[f"{place}.softmax"].values, layers[1]
        assert weights is not None
        np.testing.assert_allclose(found, weights[0], rtol=1e-4, atol=1e-5)  # float32, other kernels


def test_output_probabilities_are_the_models(translator_of: Callable[[str], TextTranslator]) -> None:
    translator = translator_of("post")
    *_, output, logits, last = walk_pair(translator, SRC, TGT).steps("decoder", 0, 0)
    assert (output.id, logits.id, last.id) == ("output", "logits", "probabilities")
    with torch.no_grad():
        likeliest = translator.model.logits(torch.from_numpy(output.values)).softmax(-1).max(-1).values
    np.testing.assert_allclose(last.values.max(1), likeliest.numpy(), rtol=1e-4)
    assert len(last.columns) == last.values.shape[1] == 24


def test_predictions_are_those_of_the_whole_vocabulary(translator_of: Callable[[str], TextTranslator]) -> None:
    """The most probable tokens of each row, whatever other rows have, with probabilities at other temperatures."""
    translator = translator_of("post")
    *_, output, _, last = walk_pair(translator, SRC, TGT).steps("decoder", 0, 0)
    with torch.no_grad():
        logits = translator.model.logits(torch.from_numpy(output.values)).double()
    pieces = translator.tokenizer.pieces(list(range(logits.size(1))))
    assert len(last.predictions) == len(logits) and last.settings["temperatures"] == list(TEMPERATURES)
    for row, prediction in zip(logits, last.predictions, strict=True):
        found = {one.piece: one.log_prob for one in prediction.candidates}
        best = row.topk(8)
        assert list(found) == [pieces[i] for i in best.indices]
        for temperature, total in zip((1.0, *TEMPERATURES), (0.0, *prediction.totals), strict=True):
            wanted = (row / temperature).softmax(0)[best.indices].tolist()
            shares = [np.exp(log / temperature - total) for log in found.values()]
            np.testing.assert_allclose(shares, wanted, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_score_that_is_too_large_is_not_masked(dtype: torch.dtype) -> None:
    """Scores below the range of the numbers would become -inf, as those of masked keys."""
    network: Any = drawn(CONFIGS["gpt2"]).to(dtype)
    query, key = network.decoder.layers[0].self_attn.q_proj, network.decoder.layers[0].self_attn.k_proj
    large = torch.finfo(dtype).max ** 0.5
    with torch.no_grad():
        for part, sign in ((query, large), (key, -large)):
            part.weight.zero_()
            part.bias.fill_(sign)
    axis = Axis([f"▁{i}" for i in range(5)])
    shown = ContinuedText("a text", torch.arange(3, 13, 2)[None], axis, [], lambda ids: [f"▁{i}" for i in ids])
    scores = by_id(walk_record(network, shown).steps("decoder", 0, 0))["self_attn.scores"]
    np.testing.assert_array_equal(np.isneginf(scores.values), ~np.tri(5, dtype=bool))


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "post"])
def test_rows_and_columns_have_names(walked: Callable[[str], WalkRecord], name: str) -> None:
    for steps in all_walks(walked(name)):
        for step in steps:
            assert len(step.rows) == step.values.shape[0], step.id
            assert not step.columns or len(step.columns) == step.values.shape[1], step.id
            assert step.name and step.sentence.endswith(".") and step.formula


@pytest.mark.parametrize(
    ("place", "complaint"),
    [
        (("encoder", 9, 0), "no layer 9: they go from 0 to 1"),
        (("decoder", 0, 2), "no head 2: they go from 0 to 1"),
        (("middle", 0, 0), "this model has encoder and decoder"),
    ],
)
def test_places_that_are_not_there(
    walked: Callable[[str], WalkRecord], place: tuple[str, int, int], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        walked("post").steps(*place)


def test_only_transformers_are_walked_through(translator_of: Callable[[str], TextTranslator]) -> None:
    with pytest.raises(UserError, match="another architecture"):
        walk_pair(translator_of("bahdanau"), SRC, TGT)
    assert figure_of(translator_of("bahdanau").model) == {}
