"""Every family computes what `transformers` computes, on tiny random checkpoints that `transformers` writes.

A case is a class of transformers, the settings it is made with and the inputs it is given. All cases go through all
tests: logits, last and inner hidden states, cached decoding, greedy search, half precision, and the way back.
"""

import copy
import json
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from published import PUBLISHED, REFUSED
from side_by_side import stay_double
from torch import Tensor

import headwise
from headwise.cli import main
from headwise.contract import Limits, SearchOptions
from headwise.core.build import build_empty
from headwise.core.search import FREE, beam_search
from headwise.core.transformer import DecoderOnly, EncoderOnly, Transformer
from headwise.families.registry import FAMILIES
from headwise.families.table import entries
from headwise.models.model import Model
from headwise.pytorch.checkpoint.write import write_checkpoint
from headwise.pytorch.inspect.recording import attentions, recording
from headwise.pytorch.search.stepwise import engine_step

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what transformers imports
    transformers = pytest.importorskip("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

VOCAB = 99
BERT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "vocab_size": VOCAB,
    "max_position_embeddings": 40,
    "initializer_range": 0.25,
}
ALBERT = BERT | {"embedding_size": 10, "num_hidden_layers": 3}
MPNET = BERT | {"max_position_embeddings": 250}  # farther than the farthest bucket begins
EXACT = {"num_attention_heads": 3, "global_rope_theta": 1e4}  # rates of rotations are powers of ten
MODERN = BERT | {"num_hidden_layers": 3, "local_attention": 6, "num_attention_heads": 2, "pad_token_id": 0}
DEBERTA = BERT | {  # 2 heads of width 12, or 3 of 8 with one term: transformers rounds other scales to float32
    "num_attention_heads": 2,
    "relative_attention": True, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True,
    "pos_att_type": "p2c|c2p", "position_biased_input": False, "type_vocab_size": 0, "max_position_embeddings": 80,
}  # fmt: skip
LLAMA = BERT | {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 512, "head_dim": 8}
WINDOW = {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1}
BART = {
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 56,
    "vocab_size": VOCAB,
    "max_position_embeddings": 80,
    "init_std": 0.25,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
T5 = {
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 2,
    "num_heads": 5,
    "vocab_size": VOCAB,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "initializer_factor": 1.0,
    "decoder_start_token_id": 0,
}
GEMMA2 = LLAMA | {"sliding_window": 5, "query_pre_attn_scalar": 11, "pad_token_id": 0}
T5GEMMA = {"encoder": GEMMA2, "decoder": GEMMA2, "vocab_size": VOCAB, "decoder_start_token_id": 2}
V11 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
GPT2 = {
    "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 80, "vocab_size": VOCAB, "initializer_range": 0.25,
    "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
VIT = {key: BERT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")} | {
    "image_size": 24, "patch_size": 8, "num_labels": 5, "initializer_range": 0.25,
}  # fmt: skip
WHISPER = {key: value for key, value in BART.items() if key != "max_position_embeddings"} | {
    "num_mel_bins": 7, "max_source_positions": 15, "max_target_positions": 40, "suppress_tokens": None,
    "begin_suppress_tokens": None,
}  # fmt: skip
CAPTIONS = {
    "encoder": VIT | {"model_type": "vit"}, "decoder_start_token_id": 2, "pad_token_id": 2, "eos_token_id": 2,
    "decoder": GPT2 | {"model_type": "gpt2", "add_cross_attention": True, "is_decoder": True},
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10_000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A network to compare: which class of transformers, made with which settings, and how long its texts are."""

    kind: str  # name of the class
    settings: dict[str, Any]
    length: int = 13
    untied: bool = False  # give the head a matrix of its own
    id: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.id}" if self.id else self.kind


CASES = [
    Case("BertForMaskedLM", BERT),
    Case("BertForMaskedLM", BERT | {"tie_word_embeddings": False, "hidden_act": "relu"}, untied=True, id="untied"),
    Case("BertForPreTraining", BERT),
    Case("BertModel", BERT | {"type_vocab_size": 3}, id="headless"),
    Case("BertForSequenceClassification", BERT | {"num_labels": 4}),
    Case("BertForTokenClassification", BERT | {"num_labels": 4}),
    Case("BertForQuestionAnswering", BERT),
    Case("RobertaForMaskedLM", BERT | {"type_vocab_size": 1, "pad_token_id": 1}),
    Case("RobertaForQuestionAnswering", BERT | {"pad_token_id": 1}),
    Case("XLMRobertaForMaskedLM", BERT | {"type_vocab_size": 1, "pad_token_id": 1}),
    Case("CamembertForMaskedLM", BERT | {"type_vocab_size": 1, "pad_token_id": 1}),
    Case("CamembertModel", BERT | {"type_vocab_size": 1, "pad_token_id": 1}, id="headless"),
    Case("RobertaForSequenceClassification", BERT | {"num_labels": 4, "pad_token_id": 1}),
    Case("DistilBertForMaskedLM", {
        "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 40, "vocab_size": VOCAB, "initializer_range": 0.25,
    }),
    Case("DistilBertForSequenceClassification", {
        "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "vocab_size": VOCAB, "initializer_range": 0.25,
        "sinusoidal_pos_embds": True, "activation": "relu",
    }),
    Case("ElectraForPreTraining", BERT | {"embedding_size": 10}),
    Case("ElectraForPreTraining", BERT | {"embedding_size": 24, "hidden_act": "gelu_new"}, id="wide"),
    Case("ElectraForSequenceClassification", BERT | {"embedding_size": 10}),
    Case("ElectraForQuestionAnswering", BERT | {"embedding_size": 10}),
    Case("ElectraForMaskedLM", BERT | {"embedding_size": 10, "hidden_act": "relu"}),
    Case("ElectraForMaskedLM", BERT | {"embedding_size": 24, "tie_word_embeddings": False}, untied=True, id="untied"),
    Case("AlbertForMaskedLM", ALBERT),
    Case("AlbertForMaskedLM", ALBERT | {"num_hidden_layers": 6, "num_hidden_groups": 2, "tie_word_embeddings": False},
         untied=True, id="groups"),
    Case("AlbertForPreTraining", ALBERT),
    Case("AlbertModel", ALBERT | {"hidden_act": "relu"}, id="headless"),
    Case("AlbertForSequenceClassification", ALBERT | {"num_labels": 4}),
    Case("AlbertForTokenClassification", ALBERT | {"num_labels": 4}),
    Case("AlbertForQuestionAnswering", ALBERT),
    Case("MPNetForMaskedLM", MPNET),
    Case("MPNetForMaskedLM", MPNET | {"tie_word_embeddings": False, "hidden_act": "relu"}, length=9, untied=True,
         id="untied"),
    Case("MPNetModel", MPNET, length=30, id="headless"),
    Case("MPNetForSequenceClassification", MPNET | {"num_labels": 4}),
    Case("MPNetForTokenClassification", MPNET | {"num_labels": 4}),
    Case("MPNetForQuestionAnswering", MPNET, length=210),
    Case("ModernBertForMaskedLM", MODERN, length=20),
    Case("ModernBertForMaskedLM", MODERN | {
        "tie_word_embeddings": False, "norm_bias": True, "attention_bias": True, "mlp_bias": True,
        "classifier_bias": True, "classifier_activation": "relu", "hidden_activation": "silu",
        "layer_types": ["sliding_attention", "full_attention", "full_attention"],
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                            "sliding_attention": {"rope_type": "linear", "rope_theta": 50.0, "factor": 2.0}},
    }, length=20, untied=True, id="untied"),
    Case("ModernBertModel", MODERN | EXACT, length=20, id="exact"),
    Case("ModernBertForSequenceClassification", MODERN | {"num_labels": 4, "classifier_pooling": "cls"}),
    Case("ModernBertForSequenceClassification", MODERN | {"num_labels": 4, "classifier_pooling": "mean"}, length=20,
         id="mean"),
    Case("ModernBertForTokenClassification", MODERN | {"num_labels": 4}, length=70),
    Case("ModernBertForQuestionAnswering", MODERN, length=20),
    Case("DebertaV2ForMaskedLM", DEBERTA, length=70),
    Case("DebertaV2ForMaskedLM", DEBERTA | {
        "tie_word_embeddings": False, "pos_att_type": ["c2p"], "num_attention_heads": 3, "hidden_act": "relu",
        "position_biased_input": True, "type_vocab_size": 2, "norm_rel_ebd": "none", "max_relative_positions": 12,
    }, untied=True, length=30, id="untied"),
    Case("DebertaV2Model", DEBERTA | {"pos_att_type": "p2c", "num_attention_heads": 3}, length=30, id="headless"),
    Case("DebertaV2ForSequenceClassification", DEBERTA | {"num_labels": 4, "pooler_hidden_act": "relu"}),
    Case("DebertaV2ForTokenClassification", DEBERTA | {"num_labels": 4}),
    Case("DebertaV2ForQuestionAnswering", DEBERTA),
    Case("GPT2LMHeadModel", GPT2),
    Case("GPT2LMHeadModel", GPT2 | {"n_inner": 30, "activation_function": "relu", "n_head": 4}, id="relu"),
    Case("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "scale_attn_weights": False}, id="untied"),
    Case("GPTNeoXForCausalLM", BERT),
    Case("GPTNeoXModel", BERT, id="headless"),
    Case("GPTNeoXForCausalLM", BERT | {"use_parallel_residual": False, "attention_bias": False, "rotary_pct": 0.5},
         id="in_turn"),
    Case("LlamaForCausalLM", LLAMA),
    Case("LlamaForCausalLM", LLAMA | {"num_key_value_heads": 6, "attention_bias": True, "mlp_bias": True,
                                      "tie_word_embeddings": True, "head_dim": 4}, id="tied"),
    Case("LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3}, length=70, id="llama3"),
    Case("LlamaForCausalLM", LLAMA | {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0}},
         length=70, id="linear"),
    Case("LlamaModel", LLAMA, id="headless"),
    Case("MistralForCausalLM", LLAMA | {"sliding_window": 5}, length=20),
    Case("MistralModel", LLAMA | {"sliding_window": 5}, length=20, id="headless"),
    Case("MistralForCausalLM", LLAMA | {"sliding_window": None}, id="no_window"),
    Case("Qwen2ForCausalLM", LLAMA),
    Case("Qwen2ForCausalLM", LLAMA | WINDOW | {"tie_word_embeddings": True}, length=20, id="window"),
    Case("Qwen2Model", LLAMA | {"tie_word_embeddings": True}, id="headless"),
    Case("Qwen3ForCausalLM", LLAMA),
    Case("Qwen3Model", LLAMA, id="headless"),
    Case("Qwen3ForCausalLM", LLAMA | WINDOW | {"attention_bias": True, "num_key_value_heads": 1}, length=20,
         id="window"),
    Case("GemmaForCausalLM", LLAMA | {"num_key_value_heads": 1}),
    Case("Gemma2ForCausalLM", LLAMA | {"sliding_window": 5, "query_pre_attn_scalar": 11}, length=20),
    Case("Gemma2Model", LLAMA | {"sliding_window": 5, "query_pre_attn_scalar": 11}, length=20, id="headless"),
    Case("T5ForConditionalGeneration", T5, length=50),
    Case("T5EncoderModel", T5, length=50),
    Case("T5EncoderModel", T5 | V11, id="v1.1"),
    Case("MT5EncoderModel", T5, length=50),
    Case("T5ForConditionalGeneration", T5 | V11, untied=True, id="v1.1"),
    Case("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-silu", "num_decoder_layers": 3}, id="gated"),
    Case("MT5ForConditionalGeneration", T5, untied=True, length=50),
    Case("T5GemmaForConditionalGeneration", T5GEMMA, length=20),
    Case("T5GemmaForConditionalGeneration", {
        "encoder": GEMMA2 | {"hidden_size": 36, "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 3},
        "decoder": GEMMA2 | {"final_logit_softcapping": None, "attn_logit_softcapping": None, "attention_bias": True},
        "tie_word_embeddings": False, "decoder_start_token_id": 2,
    }, untied=True, length=20, id="unbalanced"),
    Case("BartForConditionalGeneration", BART),
    Case("BartForConditionalGeneration", BART | {"scale_embedding": True, "tie_word_embeddings": False}, untied=True,
         id="untied"),
    Case("BartModel", BART, id="headless"),
    Case("MBartForConditionalGeneration", BART | {"scale_embedding": True}, length=30),
    Case("MarianMTModel", BART | {"scale_embedding": True, "activation_function": "swish"}, length=70),
    Case("MarianMTModel", BART | {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": VOCAB - 9},
         id="two_vocabularies"),
    Case("M2M100ForConditionalGeneration", BART | {"scale_embedding": True}, length=70),
    Case("PegasusForConditionalGeneration", BART | {"scale_embedding": True, "activation_function": "relu"}, length=70),
    Case("ViTForImageClassification", VIT),
    Case("ViTForImageClassification", VIT | {"image_size": (16, 24), "num_channels": 1, "qkv_bias": False}, id="wide"),
    Case("ViTModel", VIT, id="headless"),
    Case("DeiTForImageClassification", VIT),
    Case("DeiTForImageClassificationWithTeacher", VIT),
    Case("WhisperForConditionalGeneration", WHISPER),
    Case("VisionEncoderDecoderModel", CAPTIONS),
    Case("VisionEncoderDecoderModel", CAPTIONS | {
        "encoder": VIT | {"model_type": "deit", "hidden_size": 30, "image_size": (16, 24)},
        "decoder": CAPTIONS["decoder"] | {"tie_word_embeddings": False, "n_layer": 3, "activation_function": "relu"},
    }, untied=True, id="deit_projected"),
]  # fmt: skip


@dataclass
class Pair:
    """The same network in transformers' hands and in ours, and inputs for both."""

    case: Case
    theirs: Any
    ours: Model
    folder: Path
    inputs: dict[str, Tensor] = field(default_factory=dict)

    @property
    def network(self) -> Any:
        return self.ours.network


def load_theirs(kind: str, folder: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(transformers, kind).from_pretrained(folder, **options).eval()


def make_pair(case: Case, folder: Path) -> Pair:
    """Let transformers write the case into `folder`, and load it with both."""
    with warnings.catch_warnings(), torch.random.fork_rng(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(7)
        kind = getattr(transformers, case.kind)
        theirs = kind(kind.config_class(**case.settings))
        for name, parameter in theirs.named_parameters():
            if "norm" in name.lower() or "bias" in name or ("token" in name and parameter.dim() == 3):
                parameter.add_(torch.randn_like(parameter) * 0.3)  # neither ones nor zeros prove anything
        if hasattr(theirs, "final_logits_bias"):
            theirs.final_logits_bias.normal_()
        if case.untied and theirs.get_output_embeddings() is not None:
            head = theirs.get_output_embeddings()
            head.weight = torch.nn.Parameter(torch.randn_like(head.weight))
        theirs.save_pretrained(folder)
        return Pair(case, load_theirs(case.kind, folder), headwise.load(folder, "cpu"), folder, inputs_of(theirs, case))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(request.param, tmp_path_factory.mktemp("checkpoint"))


def inputs_of(theirs: Any, case: Case) -> dict[str, Tensor]:
    """Two rows of what transformers calls its inputs; tokens avoid the special ones."""
    config = theirs.config
    tokens = torch.randint(5, VOCAB - 10, (2, case.length))
    tgt = torch.randint(5, VOCAB - 10, (2, case.length - 4))
    seen = case.settings.get("encoder", case.settings)
    if "image_size" in seen:
        size, channels = seen["image_size"], getattr(config, "encoder", config).num_channels
        pixels = torch.randn(2, channels, *(size if isinstance(size, tuple) else (size, size)))
        return {"pixel_values": pixels} | ({"decoder_input_ids": tgt} if config.is_encoder_decoder else {})
    if not config.is_encoder_decoder:
        return {"input_ids": tokens}
    if "num_mel_bins" in case.settings:
        return {"input_features": torch.randn(2, 7, 30), "decoder_input_ids": tgt}
    return {"input_ids": tokens, "decoder_input_ids": tgt}


def close(ours: Tensor, theirs: Tensor) -> None:
    largest = theirs.detach().abs().max().item()
    assert largest > 0.1
    atol = max(1e-5, 2e-6 * largest)  # sums are rounded to what they are made of, and in another order elsewhere
    torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-5)


def their_logits(theirs: Any, **inputs: Tensor) -> Tensor:
    output = theirs(**inputs)
    if "start_logits" in output:
        return torch.stack([output.start_logits, output.end_logits], -1)
    for name in ("logits", "prediction_logits"):
        if name in output:
            return output[name]
    if theirs.config.is_encoder_decoder:  # a network saved without its tied head
        return output.last_hidden_state @ theirs.shared.weight.T
    return output.last_hidden_state


def test_logits(pair: Pair) -> None:
    """Whole texts, without a mask."""
    close(pair.network(*pair.inputs.values()), their_logits(pair.theirs, **pair.inputs))


# Parts that transformers computes in float32 whatever the precision: norms, the softmax of T5Gemma, the sinusoids of
# M2M-100, Gemma's scale of embeddings, and the rates of rotations (ModernBERT), which are rounded differently unless
# they are exact.
PARTLY_FLOAT32 = ("Llama", "ModernBert", "Mistral", "Qwen", "GemmaFor", "Gemma2", "T5", "MT5", "M2M100")


@pytest.mark.few(32)
def test_logits_in_float64(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A logit depends on some thousand sums, each rounded to 2^-53 of its size: at most 1e-13 of the largest."""
    stay_double(monkeypatch)
    ours, theirs = copy.deepcopy(pair.network).double(), copy.deepcopy(pair.theirs).double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in pair.inputs.items()}
    found, expected = ours(*inputs.values()), their_logits(theirs, **inputs)
    assert found.dtype == expected.dtype == torch.float64
    if pair.case.kind.startswith(PARTLY_FLOAT32) and pair.case.id != "exact":
        close(found, expected)
    else:
        torch.testing.assert_close(found, expected, atol=1e-13 * expected.abs().max().item(), rtol=0)


@pytest.mark.few(48)
@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_of_padded_rows(pair: Pair, side: str) -> None:
    if "input_ids" not in pair.inputs:
        pytest.skip("pictures and recordings have no padding")
    inputs = dict(pair.inputs)
    mask = torch.ones_like(inputs["input_ids"], dtype=torch.bool)
    mask[0, slice(-4, None) if side == "right" else slice(4)] = False
    inputs["input_ids"] = inputs["input_ids"].masked_fill(~mask, pair.theirs.config.pad_token_id or 0)
    ours = pair.network(*inputs.values(), mask)
    theirs = their_logits(pair.theirs, **inputs, attention_mask=mask.long())
    if isinstance(pair.network, Transformer) or (ours.dim() == 2 and ours.size(1) != mask.size(1)):
        padding_first = side == "left" and pair.case.kind.startswith("Deberta")  # whose padding sees nothing there
        close(ours[1:], theirs[1:]) if padding_first else close(ours, theirs)
    else:
        close(ours[mask], theirs[mask])


@contextmanager
def layer_outputs(network: Any) -> Iterator[dict[str, list[Tensor]]]:
    """What every layer gives, by stack."""
    found: dict[str, list[Tensor]] = {}
    handles = []
    for stack in ("encoder", "decoder"):
        for layer in getattr(network, stack).layers if hasattr(network, stack) else ():
            keep = found.setdefault(stack, []).append
            handles.append(layer.register_forward_hook(lambda module, given, out, keep=keep: keep(out)))
    yield found
    for handle in handles:
        handle.remove()


@pytest.mark.few(32)
def test_hidden_states_of_every_layer(pair: Pair) -> None:
    """Theirs begin with the embeddings and, but for pictures, end with the final norm's output, not the last
    layer's.
    """
    with layer_outputs(pair.network) as ours:
        pair.network(*pair.inputs.values())
    theirs = pair.theirs(**pair.inputs, output_hidden_states=True)
    stacks = ("encoder", "decoder") if isinstance(pair.network, Transformer) else tuple(ours)
    for stack in stacks:
        states = theirs.get(f"{stack}_hidden_states") or theirs["hidden_states"]
        assert len(states) == len(ours[stack]) + 1
        for mine, other in zip(ours[stack][:-1], states[1:-1], strict=True):
            close(mine, other)
        looks = stack == "encoder" and "pixel_values" in pair.inputs
        norm = torch.nn.Identity() if looks else getattr(pair.network, stack).norm
        close(norm(ours[stack][-1]), states[-1])


@pytest.mark.few(32)
def test_attention_of_every_layer(pair: Pair) -> None:
    """What the inspector records of fused kernels is what theirs, written out, returns."""
    stacks = attentions(pair.network)
    with recording({name: module for modules in stacks.values() for name, module in modules.items()}) as ours:
        pair.network(*pair.inputs.values())
    theirs = load_theirs(pair.case.kind, pair.folder, attn_implementation="eager")(
        **pair.inputs, output_attentions=True
    )
    for stack, modules in stacks.items():
        kind = f"{stack}_attentions" if isinstance(pair.network, Transformer) else "attentions"
        if modules:
            assert len(theirs[kind]) == len(modules)
        for name, other in zip(modules, theirs[kind] if modules else (), strict=True):
            torch.testing.assert_close(ours[name], other, atol=1e-5, rtol=0)


@pytest.mark.few(32)
def test_cached_equals_uncached(pair: Pair) -> None:
    """One position a step, and several at once after the first."""
    network = pair.network
    if isinstance(network, EncoderOnly):
        pytest.skip("an encoder decodes nothing")
    *src, tgt = pair.inputs.values()
    if isinstance(network, DecoderOnly):
        whole, cache = network(tgt), network.start_cache(torch.zeros(2, dtype=torch.long))
        steps = [network.decode(part, cache) for part in (tgt[:, :3], *tgt[:, 3:].split(1, 1))]
    else:
        memory = network.encode(*src)
        whole, cache = network(*src, tgt), network.start_cache(memory)
        parts = (tgt[:, :3], *tgt[:, 3:].split(1, 1))
        steps = [network.decode(part, cache.memory, cache.src_mask, cache) for part in parts]
    torch.testing.assert_close(network.logits(torch.cat(steps, 1)), whole, atol=2e-5, rtol=1e-4)


NEW = 8  # tokens to generate
NO_END = 10_000  # an id nobody writes


def limits(prefix: Tensor) -> Limits:
    rows = len(prefix)
    longest = torch.full((rows,), NEW + prefix.size(1))
    return Limits(torch.zeros_like(longest), longest, prefix)


def search(step: Any, cache: Any, prefix: Tensor, start: int, beams: int) -> list[list[int]]:
    options = SearchOptions(
        beam_size=beams, length_penalty=0.0, bos_id=start, eos_id=VOCAB - 1, suppressed=(VOCAB - 1,)
    )
    return [found[0].tokens for found in beam_search(step, cache, limits(prefix), options)]


@pytest.mark.few(48)
@pytest.mark.parametrize("beams", [1, 3])
def test_search_writes_the_same(pair: Pair, beams: int) -> None:
    """Headwise's search over our network, transformers' over theirs; outputs of one length, so nothing ends early."""
    network = pair.network
    if not getattr(pair.theirs, "can_generate", lambda: False)() or isinstance(network, EncoderOnly):
        pytest.skip("generates nothing")
    if "two_vocabularies" in pair.case.name:
        pytest.skip("the suppressed id is not in the smaller vocabulary")
    if "num_decoder_layers" in pair.case.settings:
        pytest.skip("their cache has as many layers as the encoder")
    never = torch.full((1, 1), VOCAB - 1)
    settings = {"max_new_tokens": NEW, "min_new_tokens": NEW, "num_beams": beams, "do_sample": False}
    settings |= {"suppress_tokens": never[0].tolist(), "length_penalty": 0.0, "early_stopping": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(network, DecoderOnly):
            prompt = pair.inputs["input_ids"][:, :6]
            mask = torch.ones_like(prompt)
            theirs = pair.theirs.generate(prompt, attention_mask=mask, eos_token_id=None, pad_token_id=0, **settings)[
                :, 6:
            ]
        else:
            inputs = {name: x for name, x in pair.inputs.items() if not name.startswith("decoder")}
            theirs = transformers.GenerationMixin.generate(pair.theirs, **inputs, eos_token_id=None, **settings)[:, 1:]
    if isinstance(network, DecoderOnly):
        cache = network.start_cache(torch.zeros(2, dtype=torch.long))
        network.decode(prompt[:, :-1], cache)
        last = prompt[:, -1:]
        first = cache.length

        def step(tokens: Tensor, cache: Any) -> Tensor:
            tokens = last if cache.length == first else tokens
            return network.logits(network.decode(tokens, cache)[:, -1])

    else:
        memory = network.encode(*inputs.values())
        cache, step = network.start_cache(memory), engine_step(network)
    start = getattr(pair.theirs.config, "decoder_start_token_id", None)
    free = torch.full((2, 0), FREE)
    with torch.inference_mode():
        ours = search(step, cache, free, 0 if start is None else start, beams)
    assert ours == theirs.tolist()


@pytest.mark.few(32)
def test_the_way_back(pair: Pair, tmp_path: Path) -> None:
    """Exported, transformers loads it and computes the same; imported into our layout, so do we."""
    write_checkpoint(tmp_path, pair.network, pair.ours.config, pair.ours.hf_config)
    again = load_theirs(pair.case.kind, tmp_path)
    torch.testing.assert_close(
        their_logits(again, **pair.inputs), their_logits(pair.theirs, **pair.inputs), atol=0, rtol=0
    )
    assert main(["import", str(pair.folder), str(tmp_path / "ours")]) == 0
    ours = headwise.load(tmp_path / "ours", "cpu")
    assert json.loads(json.dumps(ours.config.as_dict())) == json.loads(json.dumps(pair.ours.config.as_dict()))
    kept = dict(ours.network.named_parameters())
    assert all(torch.equal(kept[name], parameter) for name, parameter in pair.network.named_parameters())
    close(ours.network(*pair.inputs.values()), pair.network(*pair.inputs.values()))  # sums hang on where files put them


HALF = ("float16", "bfloat16")
PARTS = [  # six families that together have every kind of norm, position, activation and attention
    "BertForMaskedLM", "GPTNeoXForCausalLM", "Gemma2ForCausalLM", "T5ForConditionalGeneration", "MarianMTModel",
    "WhisperForConditionalGeneration",
]  # fmt: skip
of_six_families = pytest.mark.parametrize(
    "pair", [case for case in CASES if case.name in PARTS], ids=lambda case: case.name, indirect=True
)


@of_six_families
@pytest.mark.parametrize("precision", HALF)
def test_a_file_in_half_precision_is_computed_in_float32(pair: Pair, precision: str, tmp_path: Path) -> None:
    """As transformers computes the same file when asked to: what it rounded on writing is all that is lost."""
    halved = save_in(precision, pair, tmp_path)
    ours, theirs = headwise.load(halved, "cpu"), load_theirs(pair.case.kind, halved, dtype=torch.float32)
    assert {parameter.dtype for parameter in ours.network.parameters()} == {torch.float32}
    close(ours.network(*pair.inputs.values()), their_logits(theirs, **pair.inputs))


@of_six_families
@pytest.mark.parametrize("precision", HALF)
def test_half_precision_where_it_is_asked_for(pair: Pair, precision: str) -> None:
    """Every part computes in it, and finds about the same."""
    network = headwise.load(pair.folder, "cpu", dtype=precision).network
    found = network(*pair.inputs.values())
    assert found.dtype == getattr(torch, precision)
    exact = pair.network(*pair.inputs.values()).flatten()
    assert torch.cosine_similarity(found.float().flatten(), exact, dim=0) > 0.99


def save_in(precision: str, pair: Pair, folder: Path) -> Path:
    """The pair's checkpoint as transformers writes it in half precision.

    But for the table of sines that a file of Pegasus may hold, rounded like the rest: without it both compute it.
    """
    halved = copy.deepcopy(pair.theirs).to(getattr(torch, precision))
    pegasus = pair.case.kind.startswith("Pegasus")
    kept = {key: x for key, x in halved.state_dict().items() if not (pegasus and "embed_positions" in key)}
    halved.save_pretrained(folder, state_dict=kept)
    return folder


# --- Published checkpoints, as far as their config.json goes ---

LAYERS = {
    "num_hidden_layers", "encoder_layers", "decoder_layers", "n_layer", "n_layers", "num_layers", "num_decoder_layers",
}  # fmt: skip


IDENTIFIED = {"prajjwal1/bert-tiny", "decapoda-research/llama-7b-hf"}  # by their tensors


@pytest.mark.parametrize("name", [n for n in PUBLISHED if n not in {*REFUSED, *IDENTIFIED} and "xlnet" not in n])
def test_a_published_configuration_is_a_network_of_the_same_shape(name: str) -> None:
    """Without numbers, and with one layer: the tensors that transformers makes of it are those we look for."""
    values = PUBLISHED[name] | dict.fromkeys(LAYERS & PUBLISHED[name].keys(), 1)
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        named = values.get("architectures") or [*FAMILIES[values["model_type"]].heads]
        kind = getattr(transformers, named[0])
        network = kind(kind.config_class(**values))
    network.tie_weights()
    made = dict(network.named_parameters()) | {k: x for k, x in network.named_buffers() if k == "final_logits_bias"}
    family = FAMILIES[values["model_type"]]
    config = family.config_from_hf(values)
    if config.family in ("t5", "mt5"):  # the file decides, see `pytorch.checkpoint.published`
        config = replace(config, tie_head=config.tie_head and "lm_head.weight" not in made)
    config = replace(config, head_bias=config.head_bias and "final_logits_bias" in made)
    shapes = {key: tuple(parameter.shape) for key, parameter in build_empty(config).named_parameters()}
    wanted = {entry.key: entry.file_shape(shapes) for entry in entries(family.table(config), config, shapes)}
    prefix = "" if any(key.startswith(family.prefix) for key in made) else family.prefix
    found = {prefix + key: tuple(tensor.shape) for key, tensor in made.items()}
    ignored = {key for key in found.keys() - wanted.keys() if re.search(family.ignored, key) or key in family.same}
    sizes = sorted(math.prod(shape) for key, shape in found.items() if key not in ignored)
    assert sizes == sorted(math.prod(shape) for shape in wanted.values())  # names in memory are not those of files
