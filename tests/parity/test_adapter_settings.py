"""Every setting of `peft` that changes a merged network means the same here; the others are refused by name."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny

from headwise.cli import main
from headwise.core.transformer import EncoderOnly, Transformer
from headwise.errors import UserError
from headwise.runtime.checkpoint.adapter_folders import MATRICES, PICKLED_MATRICES, describe_adapters
from headwise.runtime.checkpoint.layout import ADAPTER
from headwise.runtime.checkpoint.read import read_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what both import
    transformers = pytest.importorskip("transformers")
    peft = pytest.importorskip("peft")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

pytestmark = pytest.mark.filterwarnings("ignore")  # peft's, of tied embeddings and of configurations
KINDS: dict[str, tuple[str, dict[str, Any], list[str]]] = {  # class, changes of the model, layers with adapters
    "llama": ("LlamaForCausalLM", {"tie_word_embeddings": True, "attention_bias": True}, ["q_proj", "v_proj"]),
    "gpt2": ("GPT2LMHeadModel", {"tie_word_embeddings": True}, ["c_attn", "mlp.c_proj"]),
    "bert": ("BertForMaskedLM", {"tie_word_embeddings": True}, ["query", "output.dense"]),
    "marian": ("MarianMTModel", {"tie_word_embeddings": True}, ["q_proj", "fc1"]),
    "t5": ("T5ForConditionalGeneration", {}, ["q", "wo"]),
}
EMBEDDINGS = {"llama": "embed_tokens", "gpt2": "wte", "bert": "word_embeddings"}  # others: embed_tokens
EVERYWHERE: dict[str, dict[str, Any]] = {
    "dora": {"use_dora": True},
    "patterns": {"rank_pattern": {"q_proj|query|c_attn|q": 2}, "alpha_pattern": {"q_proj|query|c_attn|q": 3.5}},
    "root of the rank": {"use_rslora": True, "alpha_pattern": {".*proj": 5}},
    "embeddings": {"target_modules": ["EMBEDDING"]},
    "dora of embeddings": {"target_modules": ["EMBEDDING"], "use_dora": True},
    "trained embeddings": {"modules_to_save": ["EMBEDDING"]},
    "trained tokens": {"trainable_token_indices": [40, 21, 9]},
}
SOME: dict[tuple[str, str], dict[str, Any]] = {
    ("llama", "bias of B"): {"lora_bias": True},
    ("marian", "bias of B"): {"lora_bias": True, "use_rslora": True},
    ("bert", "all biases"): {"bias": "all"},
    ("llama", "biases of layers"): {"bias": "lora_only"},
    ("llama", "head"): {"modules_to_save": ["lm_head"]},
    ("llama", "adapter of the head"): {"target_modules": ["lm_head"]},
    ("gpt2", "both"): {"modules_to_save": ["wte", "lm_head"]},
    ("marian", "both"): {"modules_to_save": ["embed_tokens", "lm_head"]},
    ("llama", "tied copies"): {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    ("llama", "tied adapters"): {"target_modules": ["embed_tokens"], "ensure_weight_tying": True},
    ("llama", "tied dora"): {"target_modules": ["embed_tokens"], "ensure_weight_tying": True, "use_dora": True},
    ("llama", "tokens by name"): {"trainable_token_indices": {"lm_head": [21, 9]}},
    ("llama", "different tokens"): {"trainable_token_indices": {"embed_tokens": [21, 9], "lm_head": [22, 2]}},
    ("llama", "equal tokens"): {"trainable_token_indices": {"embed_tokens": [21, 9], "lm_head": [21, 9]}},
    ("marian", "tokens by name"): {"trainable_token_indices": {"embed_tokens": [21, 9]}},
    ("llama", "some layers"): {"layers_to_transform": [0], "exclude_modules": ["v_proj"]},
    ("llama", "orthogonal"): {"init_lora_weights": "orthogonal"},
    ("llama", "gaussian"): {"init_lora_weights": "gaussian"},
}
CASES = {(kind, name): settings for kind in KINDS for name, settings in EVERYWHERE.items()} | SOME
READ = torch.tensor([[20, 21, 22, 30, 2], [40, 41, 50, 9, 2]])


def write_adapters(folder: Path, kind: str, settings: dict[str, Any]) -> Any:
    """A tiny model in `base` and random adapters in `adapters`; peft's network as it is read from there."""
    name, changes, layers = KINDS[kind]
    write_tiny(folder / "base", kind, changes)
    settings = json.loads(json.dumps(settings).replace("EMBEDDING", EMBEDDINGS.get(kind, "embed_tokens")))
    config = peft.LoraConfig(**{"r": 4, "lora_alpha": 12, "target_modules": layers, **settings})
    torch.manual_seed(5)
    wrapped = peft.get_peft_model(getattr(transformers, name).from_pretrained(folder / "base"), config)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.2)
    wrapped.save_pretrained(folder / "adapters")
    return peft.PeftModel.from_pretrained(
        getattr(transformers, name).from_pretrained(folder / "base"), folder / "adapters"
    )


def their_logits(theirs: Any) -> torch.Tensor:
    more = {"decoder_input_ids": READ} if theirs.config.is_encoder_decoder else {}
    with torch.no_grad():
        return theirs.eval()(input_ids=READ, **more).logits


def our_logits(folder: Path) -> torch.Tensor:
    network: Any = read_folder(folder).network
    with torch.no_grad():
        if isinstance(network, Transformer):
            return network.logits(network.states(READ, READ, torch.ones_like(READ, dtype=torch.bool)))
        return network.logits(network.encode(READ) if isinstance(network, EncoderOnly) else network.decode(READ))


@pytest.mark.few(8)
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_setting_means_the_same(case: tuple[str, str], tmp_path: Path) -> None:
    theirs = write_adapters(tmp_path, case[0], CASES[case])
    expected = their_logits(theirs)
    assert (our_logits(tmp_path / "base") - expected).abs().max() > 0.01
    torch.testing.assert_close(our_logits(tmp_path / "adapters"), expected, atol=1e-4, rtol=1e-4)


def change(folder: Path, **values: Any) -> None:
    """Change settings in the adapter_config.json of `folder`."""
    path = folder / ADAPTER
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ordinary adapters of a tiny LLaMA."""
    folder = tmp_path_factory.mktemp("llama")
    write_adapters(folder, "llama", {})
    return folder / "adapters"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("init_lora_weights", name)
            for name in ("pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga", "new")
        ),
        ("alora_invocation_tokens", [5, 6]),
        ("use_qalora", True),
        ("use_bdlora", {"nblocks": 2}),
        ("kasa_config", {"beta": 0.1}),
        ("monteclora_config", {"samples": 3}),
        ("arrow_config", {"top_k": 1}),
        ("layer_replication", [[0, 1], [0, 1]]),
        ("target_parameters", ["experts"]),
        ("key_of_the_future", 1),
        ("bias", "some"),
        ("lora_alpha", "12"),
        ("alpha_pattern", {"q_proj": "8"}),
        ("alpha_pattern", {"(": 8}),
        ("rank_pattern", ["q_proj"]),
        ("r", 4.5),
        ("use_dora", "yes"),
        ("modules_to_save", "lm_head"),
        ("trainable_token_indices", {"lm_head": [-1]}),
    ],
)
def test_unsupported_settings_are_named(adapters: Path, tmp_path: Path, name: str, value: Any) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(adapters, copied)
    change(copied, **{name: value})
    with pytest.raises(UserError) as caught:
        read_folder(copied)
    assert name in str(caught.value) and "copied/adapter_config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"r": 2}, "rank 4"),
        ({"rank_pattern": {"q_proj": 3}}, "settings say 3"),
        ({"use_dora": True}, "lengths"),
        ({"lora_bias": True}, "bias"),
    ],
)
def test_matrices_that_the_settings_do_not_describe(
    adapters: Path, tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(adapters, copied)
    change(copied, **settings)
    with pytest.raises(UserError, match=words) as caught:
        read_folder(copied)
    assert "q_proj" in str(caught.value) and MATRICES in str(caught.value)


@pytest.mark.parametrize(
    ("end", "values", "words"),
    [
        ("lora_A.weight", None, "q_proj: has B"),
        ("lora_B.weight", torch.ones(7, 4), r"is \[7, 16\], the layer is \[16, 16\]"),
        ("lora_C.weight", torch.ones(4, 4), "q_proj.lora_C.weight: is not understood"),
        ("lora_magnitude_vector", torch.ones(16), "q_proj: has A, B, lengths"),
        ("token_adapter.trainable_tokens_delta", torch.ones(3, 16), "is .3, 16. for 0 tokens"),
    ],
)
def test_matrices_that_do_not_fit(
    adapters: Path, tmp_path: Path, end: str, values: torch.Tensor | None, words: str
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(adapters, copied)
    tensors = load_file(adapters / MATRICES)
    key = next(key for key in tensors if "q_proj" in key).partition(".lora")[0] + "." + end
    if values is None:
        del tensors[key]
    elif "token" in end:
        tensors = {key: values}
    else:
        tensors[key] = values
    save_file(tensors, copied / MATRICES)
    with pytest.raises(UserError, match=words):
        read_folder(copied)


def test_settings_that_are_off_or_without_effect(adapters: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(adapters, copied)
    off = {"key_of_the_future": None, "another": False, "third": {}, "use_qalora": False, "layer_replication": None}
    change(copied, lora_dropout=0.5, megatron_core="megatron.core", peft_version="9.0", eva_config={"rho": 2.0}, **off)
    assert torch.equal(our_logits(copied), our_logits(adapters))


def test_pickled_matrices(adapters: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(adapters, copied)
    torch.save(load_file(adapters / MATRICES), copied / PICKLED_MATRICES)
    (copied / MATRICES).unlink()
    assert torch.equal(our_logits(copied), our_logits(adapters))
    assert "rank 4" in describe_adapters(copied)


def test_the_outputs_of_several_kinds_are_added(adapters: Path, tmp_path: Path) -> None:
    """Each change is relative to the model, in any order."""
    write_adapters(tmp_path, "llama", {"use_dora": True, "target_modules": ["q_proj", "embed_tokens"]})
    change(tmp_path / "adapters", base_model_name_or_path=str(adapters.parent / "base"))
    first, second = (read_folder(folder).network for folder in (adapters, tmp_path / "adapters"))
    base = dict(read_folder(adapters.parent / "base").network.named_parameters())
    for pair in ((adapters, tmp_path / "adapters"), (tmp_path / "adapters", adapters)):
        both = dict(read_folder(Path("+".join(map(str, pair)))).network.named_parameters())
        for name, start in base.items():
            expected = first.get_parameter(name) + second.get_parameter(name) - start
            torch.testing.assert_close(both[name], expected, atol=1e-5, rtol=1e-5)


def test_modules_that_two_adapters_trained_in_full_cannot_be_added(tmp_path: Path) -> None:
    write_adapters(tmp_path, "llama", {"modules_to_save": ["lm_head"]})
    first, second = tmp_path / "adapters", tmp_path / "second"
    shutil.copytree(first, second)
    read_folder(Path(f"{first}+{second}"))  # the same ones
    tensors = load_file(first / MATRICES)
    save_file({key: value + (1 if "lm_head" in key else 0) for key, value in tensors.items()}, second / MATRICES)
    with pytest.raises(UserError, match=r"second: trained lm_head\.weight in full"):
        read_folder(Path(f"{first}+{second}"))


def test_an_export_keeps_embeddings_that_are_no_longer_tied(tmp_path: Path) -> None:
    theirs = write_adapters(tmp_path, "llama", {"modules_to_save": ["embed_tokens"]})
    assert main(["export", str(tmp_path / "adapters"), "--to", "hf", str(tmp_path / "merged")]) == 0
    again = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(their_logits(again), their_logits(theirs), atol=1e-4, rtol=1e-4)
