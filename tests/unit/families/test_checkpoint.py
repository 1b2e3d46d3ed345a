"""Reading folders in the Hugging Face layout: what is refused, and what files may look like."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import sightline
from sightline.errors import UserError
from sightline.families.checkpoint import read_checkpoint
from sightline.model.build_family import FamilyNetwork

TOKENS = torch.tensor([[3, 1, 4, 1, 5]])


def change(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    """Edit the tensors of a checkpoint in place."""
    tensors = {key: tensor.clone() for key, tensor in load_file(folder / "model.safetensors").items()}
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def rename(folder: Path, name: Callable[[str], str]) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {name(key): tensor.clone() for key, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors")


def output(network: FamilyNetwork) -> Tensor:
    return network(TOKENS)


# --- What is refused ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "berd"}, "unknown model_type 'berd'; did you mean 'bert'"),
        ({"sparsity": 3, "zeal": "b"}, r"not understood: sparsity = 3, zeal = 'b'"),
        ({"hidden_act": "mish"}, "hidden_act = 'mish' is not supported, only relu, gelu"),
        ({"is_decoder": True}, "is_decoder = True is not supported, only False"),
        ({"architectures": ["BertForQuestionAnswering"]}, "BertForQuestionAnswering is not supported, only BertForM"),
        ({"hidden_size": None}, "config.json: has no 'hidden_size'"),
    ],
)
def test_a_configuration_that_is_not_understood(changes: dict[str, Any], message: str, write: Any) -> None:
    folder = write("bert")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))
    with pytest.raises(UserError, match=message):
        sightline.load(folder, "cpu")


@pytest.mark.parametrize("rope", [{"rope_type": "yarn", "factor": 2.0}, {"rope_theta": 1e4, "twist": 1}])
def test_rotary_positions_of_an_unknown_kind(rope: dict[str, Any], write: Any) -> None:
    with pytest.raises(UserError, match=r"rope_type = 'yarn'|rope_parameters.twist = 1"):
        write("llama", rope_parameters=rope)


def test_all_misfits_are_named_at_once(write: Any) -> None:
    folder = write("bert")

    def damage(tensors: dict[str, Tensor]) -> None:
        del tensors["bert.encoder.layer.1.output.dense.weight"]
        tensors["bert.encoder.layer.2.output.dense.weight"] = torch.zeros(8, 12)
        tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(12, 8)

    change(folder, damage)
    with pytest.raises(UserError) as raised:
        sightline.load(folder, "cpu")
    for problem in (
        "missing bert.encoder.layer.1.output.dense.weight",
        "unexpected bert.encoder.layer.2.output.dense.weight",
        "bert.embeddings.word_embeddings.weight is [12, 8], should be [11, 8]",
    ):
        assert problem in str(raised.value)


def test_a_folder_without_weights(write: Any) -> None:
    folder = write("bert")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has neither model\.safetensors nor"):
        sightline.load(folder, "cpu")


def test_a_damaged_file(write: Any) -> None:
    folder = write("bert")
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        sightline.load(folder, "cpu")


# --- What files may look like ---


def test_shards_are_one_checkpoint(write: Any) -> None:
    folder = write("llama")
    expected = output(read_checkpoint(folder).network)
    tensors = load_file(folder / "model.safetensors")
    parts = {"a.safetensors": sorted(tensors)[:7], "b.safetensors": sorted(tensors)[7:]}
    for name, keys in parts.items():
        save_file({key: tensors[key].clone() for key in keys}, folder / name)
    index = {"weight_map": {key: name for name, keys in parts.items() for key in keys}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    assert torch.equal(output(read_checkpoint(folder).network), expected)


def test_an_old_file_of_tensors_is_read_with_a_warning(write: Any) -> None:
    folder = write("gpt2")
    expected = output(read_checkpoint(folder).network)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match="an old format"):
        assert torch.equal(output(read_checkpoint(folder).network), expected)


class Payload:
    """What an attacker would put into a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


def test_an_old_file_of_more_than_tensors_is_refused(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("gpt2")
    torch.save({"lm_head.weight": Payload()}, folder / "pytorch_model.bin", pickle_module=pickle)
    (folder / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match="an old format"), pytest.raises(UserError, match="cannot be read as tensors"):
        read_checkpoint(folder)
    assert "must not run" not in capsys.readouterr().out


def test_a_network_saved_without_its_name(write: Any) -> None:
    """As the first GPT-2 was; buffers that say nothing are passed over."""
    folder = write("gpt2")
    expected = output(read_checkpoint(folder).network)
    rename(folder, lambda key: key.removeprefix("transformer."))
    change(folder, lambda tensors: tensors.update({"h.0.attn.bias": torch.ones(1, 1, 16, 16)}))
    assert torch.equal(output(read_checkpoint(folder).network), expected)


def test_old_names_of_norms(write: Any) -> None:
    folder = write("bert")
    expected = output(read_checkpoint(folder).network)
    rename(
        folder, lambda k: k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    )
    assert torch.equal(output(read_checkpoint(folder).network), expected)


def test_a_head_that_repeats_the_embeddings_is_tied(write: Any) -> None:
    folder = write("gpt2")
    change(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].clone()}))
    network = read_checkpoint(folder).network
    assert network.head.output.weight is network.embeddings.tokens.weight


def test_a_head_that_should_be_tied_and_is_not_is_the_files(write: Any) -> None:
    folder = write("gpt2")
    head = torch.randn(11, 8)
    change(folder, lambda tensors: tensors.update({"lm_head.weight": head}))
    checkpoint = read_checkpoint(folder)
    assert torch.equal(checkpoint.network.head.output.weight, head)
    assert not checkpoint.config.tie_head


def test_shared_embeddings_under_the_name_of_a_stack(write: Any) -> None:
    folder = write("bart")
    expected = read_checkpoint(folder).network(TOKENS, TOKENS)
    rename(folder, lambda key: key.replace("model.shared", "model.encoder.embed_tokens"))
    assert torch.equal(read_checkpoint(folder).network(TOKENS, TOKENS), expected)


def test_parameters_are_views_of_the_file(write: Any) -> None:
    """Nothing is copied that need not be: parts of one tensor lie in one block of memory, as in the file."""
    attention = read_checkpoint(write("gpt2")).network.decoder.layers[0].self_attn
    blocks = {getattr(attention, name).weight.untyped_storage().data_ptr() for name in ("q_proj", "k_proj", "v_proj")}
    assert len(blocks) == 1
