"""Adapters are those of `peft`: what it saves means the same here, what is trained here means the same there, and every
matrix has the same gradient.
"""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tiny_families import write_tiny

from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig
from headwise.config.training import TrainConfig
from headwise.core.transformer import EncoderOnly, Transformer
from headwise.models.load import pretrained_model
from headwise.pytorch.checkpoint.adapter_layout import AdapterLayout, adaptable, head_entries
from headwise.pytorch.checkpoint.tuned import SameLayout
from headwise.pytorch.tasks.heads import network_with_head, with_head
from headwise.pytorch.tasks.pretrained import make_trainable
from headwise.pytorch.training.low_rank import adapt, merged
from headwise.runtime.checkpoint.adapter_folders import MATRICES
from headwise.runtime.checkpoint.layout import ADAPTER, read_json
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what both import
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's, of configurations and of what it imports
M2M = {"scale_embedding": False, "activation_function": "relu"}  # which transformers would have otherwise
CASES: dict[str, tuple[str, str, dict[str, Any], list[str]]] = {  # kind, class, changes, peft's layers and ours
    "marian": ("marian", "MarianMTModel", {}, ["q_proj", "v_proj"]),
    "m2m_100": ("m2m", "M2M100ForConditionalGeneration", M2M, ["q_proj", "fc1"]),
    "t5": ("t5", "T5ForConditionalGeneration", {"num_layers": 2}, ["q", "v"]),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"n_layer": 2}, ["c_attn", "mlp.c_proj"]),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {}, ["query_key_value"]),
    "llama": ("llama", "LlamaForCausalLM", {}, ["q_proj", "v_proj"]),
    "bert": ("bert", "BertForMaskedLM", {}, ["query", "value"]),
    "albert": ("albert", "AlbertForMaskedLM", {}, ["query", "ffn_output"]),
    "modernbert": ("modernbert", "ModernBertForMaskedLM", {}, ["Wqkv", "mlp.Wo"]),
    "deberta": ("deberta-v2", "DebertaV2ForMaskedLM", {}, ["query_proj", "value_proj"]),
    "distilbert": ("distilbert", "DistilBertForMaskedLM", {}, ["q_lin", "v_lin"]),
}
READ = torch.tensor([[20, 21, 22, 30, 2], [40, 41, 50, 9, 2]])


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Any, Path, list[str]]:
    """A family, its folder of peft's with random adapters, and the layers that have them."""
    kind, name, changes, layers = CASES[request.param]
    write_tiny(tmp_path / "base", kind, changes)
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=layers, init_lora_weights=False)
    torch.manual_seed(5)
    wrapped = peft.get_peft_model(theirs, config)
    wrapped.save_pretrained(tmp_path / "adapters")
    return request.param, wrapped, tmp_path, layers


def their_logits(theirs: Any) -> torch.Tensor:
    asked = {"decoder_input_ids": READ} if theirs.config.is_encoder_decoder else {}
    return theirs.eval()(input_ids=READ, **asked).logits


def our_logits(network: Any) -> torch.Tensor:
    network.eval()
    if isinstance(network, Transformer):
        return network.logits(network.states(READ, READ, torch.ones_like(READ, dtype=torch.bool)))
    return network.logits(network.encode(READ) if isinstance(network, EncoderOnly) else network.decode(READ))


def test_what_peft_saves_means_the_same_here(case: tuple[str, Any, Path, list[str]]) -> None:
    _, theirs, folder, _ = case
    ours, base = read_folder(folder / "adapters").network, read_folder(folder / "base").network
    expected = their_logits(theirs)
    torch.testing.assert_close(our_logits(ours), expected, atol=2e-5, rtol=1e-4)
    assert (our_logits(base) - expected).abs().max() > 0.01


def test_the_root_of_the_rank_divides_where_it_is_asked_for(tmp_path: Path) -> None:
    write_tiny(tmp_path / "base", "llama")
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=4, lora_alpha=12, target_modules=["q_proj"], init_lora_weights=False, use_rslora=True)
    wrapped = peft.get_peft_model(theirs, config)
    wrapped.save_pretrained(tmp_path / "adapters")
    found = our_logits(read_folder(tmp_path / "adapters").network)
    torch.testing.assert_close(found, their_logits(wrapped), atol=2e-5, rtol=1e-4)


def adapted_network(case: tuple[str, Any, Path, list[str]]) -> tuple[Any, AdapterLayout]:
    """Ours in training, with the matrices that peft has drawn; and where its adapters would be written to."""
    _, _, folder, names = case
    model: Any = pretrained_model(read_folder(folder / "base", dtype="float32"))
    layers = adaptable(model.network, model, names)
    network = make_trainable(model.network, 0.0)
    groups = [[name.removesuffix(".weight") for name in entry.names] for entry in layers]
    adapt(network, groups, 4, 12.0, 0.0, [])
    layout = AdapterLayout(SameLayout(model), folder / "base", TrainConfig(lora_rank=4, lora_alpha=12.0), layers)
    there = load_file(folder / "adapters" / MATRICES)
    with torch.no_grad():
        for entry, group in zip(layers, groups, strict=True):
            key = f"base_model.model.{entry.key.removesuffix('.weight')}"
            first, *_ = modules = [network.get_submodule(name) for name in group]
            first.lora_A.copy_(there[f"{key}.lora_A.weight"])
            rows = replace(entry, marks=entry.marks.strip("^+")).to_own(there[f"{key}.lora_B.weight"])
            for module, values in zip(modules, rows.values(), strict=True):
                module.lora_B.copy_(values)
    return network, layout


def test_every_matrix_has_the_same_gradient(case: tuple[str, Any, Path, list[str]], tmp_path: Path) -> None:
    theirs = case[1]
    network, layout = adapted_network(case)
    expected, found = their_logits(theirs), our_logits(network)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)
    with merged(network):
        torch.testing.assert_close(our_logits(network), expected, atol=2e-5, rtol=1e-4)
    torch.manual_seed(7)
    weight = torch.randn_like(expected)
    (expected * weight).sum().backward()
    (found * weight).sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.requires_grad}
    assert all("lora" in name for name in gradients)
    layout.write_weights(tmp_path, gradients, "")
    ours = load_file(tmp_path / MATRICES)
    wanted = {name.replace(".default", ""): p.grad for name, p in theirs.named_parameters() if p.requires_grad}
    assert ours.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-4, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}")


def test_what_is_written_here_means_the_same_there(case: tuple[str, Any, Path, list[str]], tmp_path: Path) -> None:
    name, theirs, folder, _ = case
    network, layout = adapted_network(case)
    out = tmp_path / "written"
    task = "translate" if theirs.config.is_encoder_decoder else "mlm" if "bert" in name else "lm"
    config = RunConfig(model=TransformerConfig(task=task), train=layout.train)
    layout.write_settings(out, config, None, {})
    layout.write_weights(out, dict(network.named_parameters()), "")
    base = getattr(transformers, CASES[name][1]).from_pretrained(folder / "base")
    again = peft.PeftModel.from_pretrained(base, out)
    expected = their_logits(theirs)
    torch.testing.assert_close(their_logits(again), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(our_logits(read_folder(out).network), expected, atol=2e-5, rtol=1e-4)
    assert {*load_file(out / MATRICES)} == {*load_file(folder / "adapters" / MATRICES)}
    assert read_json(out / ADAPTER)["base_model_name_or_path"] == str(folder / "base")


@pytest.mark.parametrize(
    ("task", "architecture", "head"),
    [
        ("tag", "BertForTokenClassification", ["classifier"]),
        ("answer", "BertForQuestionAnswering", ["qa_outputs"]),
        ("embed", "BertModel", None),
    ],
)
def test_peft_loads_adapters_with_new_heads(
    tmp_path: Path, task: str, architecture: str, head: list[str] | None
) -> None:
    write_tiny(tmp_path / "base", "bert")
    base: Any = pretrained_model(read_folder(tmp_path / "base", dtype="float32"))
    model = with_head(
        base, {"tag": "token_class", "answer": "span", "embed": "none"}[task], ["A", "B"] * (task == "tag")
    )
    network = network_with_head(base, model, {}, 0.0)
    layers, heads = adaptable(network, model, ["q_proj"]), head_entries(network, model)
    adapt(network, [[name.removesuffix(".weight") for name in entry.names] for entry in layers], 4, 12.0, 0.0, [])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    config = RunConfig(model=TransformerConfig(task=task), train=TrainConfig(lora_rank=4, lora_alpha=12.0))
    layout = AdapterLayout(SameLayout(model), tmp_path / "base", config.train, layers, heads)
    layout.write_settings(tmp_path / "out", config, None, {})
    layout.write_weights(tmp_path / "out", dict(network.named_parameters()), "")
    assert read_json(tmp_path / "out" / ADAPTER)["modules_to_save"] == head
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path / "base")
    found = peft.PeftModel.from_pretrained(theirs, tmp_path / "out").eval()(input_ids=READ)
    ours: Any = read_folder(tmp_path / "out").network.eval()
    mask = torch.ones_like(READ, dtype=torch.bool)
    expected = {
        "tag": lambda: (found.logits, ours(READ, mask)),
        "answer": lambda: (torch.stack([found.start_logits, found.end_logits], -1), ours(READ, mask)),
        "embed": lambda: (found.last_hidden_state, ours.encode(READ, mask)),
    }[task]()
    torch.testing.assert_close(*expected, atol=2e-5, rtol=1e-4)
