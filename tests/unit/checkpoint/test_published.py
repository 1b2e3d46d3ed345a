"""Reading folders in the Hugging Face layout: what is refused, and what files may look like."""

import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import write_tiny
from torch import Tensor

import headwise
from headwise.core.build import FamilyNetwork, parameters_of
from headwise.errors import UserError
from headwise.models.pretrained import longest_text
from headwise.pytorch.checkpoint.imported import write_imported
from headwise.pytorch.checkpoint.precision import dtype_for
from headwise.pytorch.checkpoint.published import read_checkpoint, unread_tensors
from headwise.runtime.checkpoint.read import read_folder

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
        ({"sparsity": 3, "zeal": "b"}, r"not supported: sparsity = 3, zeal = 'b'"),
        ({"hidden_act": "mish"}, "hidden_act = 'mish' is not supported, only relu, gelu"),
        ({"is_decoder": True}, "is_decoder = True is not supported, only False"),
        ({"hidden_size": None}, "config.json: has no 'hidden_size'"),
    ],
)
def test_a_configuration_that_is_not_understood(changes: dict[str, Any], message: str, write: Any) -> None:
    folder = write("bert")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))
    with pytest.raises(UserError, match=message):
        headwise.load(folder, "cpu")


def configure(folder: Path, **changes: Any) -> None:
    """Change a config.json; None removes a key."""
    values = json.loads((folder / "config.json").read_text()) | changes
    values = {key: value for key, value in values.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))


# --- What the tensors say ---


@pytest.mark.parametrize("family", ["bert", "gpt2", "gpt_neox"])
def test_the_tensors_identify_a_family(family: str, write: Any) -> None:
    folder = write(family)
    expected = read_checkpoint(folder)
    configure(folder, model_type=None, architectures=None)
    with pytest.warns(UserWarning, match=f"no model_type.*{family}"):
        found = read_checkpoint(folder)
    assert found.config == expected.config
    assert found.network.state_dict().keys() == expected.network.state_dict().keys()


@pytest.mark.parametrize(("n_types", "family"), [(2, "bert"), (1, "roberta")])
def test_encoders_without_a_prefix_differ_in_their_segments(n_types: int, family: str, write: Any) -> None:
    """As rxnfp's encoder, saved without its name."""
    folder = write("bert", type_vocab_size=n_types)
    rename(folder, lambda key: key.removeprefix("bert."))
    change(folder, lambda tensors: [tensors.pop(key) for key in [*tensors] if key.startswith("cls.")])
    configure(folder, model_type=None, architectures=None)
    with pytest.warns(UserWarning, match=f"read as {family}, which its tensors fit"):
        assert read_checkpoint(folder).config.head == "none"


def test_families_with_the_same_tensors_are_listed(write: Any) -> None:
    folder = write("llama")
    configure(folder, model_type=None)
    with pytest.raises(
        UserError, match=r'config\.json: has no model_type, and its tensors fit .*llama.*; add "model_type"'
    ):
        read_checkpoint(folder)


def test_a_class_of_another_project_is_read_by_its_tensors(write: Any) -> None:
    """As AntiBERTy's, which has further heads."""
    folder = write("bert")
    expected = output(read_checkpoint(folder).network)
    configure(folder, architectures=["BertWithSpecies"])
    change(folder, lambda tensors: tensors.update({"cls.species.weight": torch.ones(3, 8)}))
    with pytest.warns(UserWarning) as said:
        found = read_checkpoint(folder)
    assert torch.equal(output(found.network), expected) and found.config.head == "masked"
    assert [str(one.message).removeprefix(str(folder)) for one in said] == [
        "/config.json: architectures = BertWithSpecies is unknown; read as BertForMaskedLM, which its tensors fit",
        ": cls.species.weight of another head: not read",
    ]


def test_a_discriminator_of_deberta_v3_is_read_without_its_head(tmp_path: Path) -> None:
    """Its files name no class, and have absolute positions that are not added and heads of the pretraining."""
    write_tiny(tmp_path, "deberta-v2", {"architectures": ["DebertaV2Model"]})
    values = json.loads((tmp_path / "config.json").read_text())
    del values["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["deberta.embeddings.position_embeddings.weight"] = torch.ones(60, 16)
    tensors["mask_predictions.dense.weight"] = torch.ones(16, 16)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.warns(match=r"mask_predictions.dense.weight of another head: not read"):
        found = read_checkpoint(tmp_path)
    assert found.config.head == "none" and found.config.encoder.positions == "none"


HEADLESS = [  # a class of each family, and a tensor of its head
    ("bert", "BertForMaskedLM", "cls.predictions.transform.dense.weight"),
    ("bert", "BertForSequenceClassification", "classifier.weight"),  # its pooler is in the file
    ("albert", "AlbertForMaskedLM", "predictions.dense.weight"),
    ("distilbert", "DistilBertForQuestionAnswering", "qa_outputs.weight"),
    ("deberta-v2", "DebertaV2ForTokenClassification", "classifier.weight"),
    ("modernbert", "ModernBertForMaskedLM", "head.dense.weight"),
    ("llama", "LlamaForCausalLM", "lm_head.weight"),
    ("vit", "ViTForImageClassification", "classifier.weight"),
]


def write_headless(folder: Path, kind: str, name: str) -> Any:
    """Write a model whose file lacks the head of the class in config.json; its config.json with the head."""
    write_tiny(folder, kind, {"architectures": [name], "tie_word_embeddings": kind != "llama"})
    prefix = {"albert": "albert.", "deberta-v2": "deberta.", "llama": "model.", "modernbert": "model."}.get(kind, kind)
    change(folder, lambda tensors: [tensors.pop(key) for key in [*tensors] if not key.startswith(prefix)])


@pytest.mark.parametrize(("kind", "name", "key"), HEADLESS)
def test_a_file_without_its_head_is_read_as_the_body(kind: str, name: str, key: str, tmp_path: Path) -> None:
    """As all-mpnet-base-v2 is published."""
    write_headless(tmp_path, kind, name)
    with pytest.warns(UserWarning, match=rf"{tmp_path.name}: has no .*{key}.*without a head"):
        found = headwise.load(tmp_path, "cpu")
        parameters = parameters_of(found.network)
    assert found.head in ("none", "embedding")
    stored = load_file(tmp_path / "model.safetensors")
    size = sum(value.numel() for key, value in stored.items() if "pooler" not in key)
    assert sum(value.numel() for value in parameters.values()) == size
    with pytest.raises(UserError, match=f"lacks the head of {name}"):
        _ = found.fill_mask


def test_half_a_head_is_damage(write: Any) -> None:
    folder = write("bert")
    change(folder, lambda tensors: tensors.pop("cls.predictions.transform.dense.weight"))
    with pytest.raises(UserError, match=r"missing cls\.predictions\.transform\.dense\.weight$"):
        headwise.load(folder, "cpu")


def test_a_class_without_its_head_still_names_the_family(tmp_path: Path) -> None:
    """BERT has the tensors of RoBERTa, but counts its positions otherwise."""
    write_tiny(
        tmp_path, "bert", {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "type_vocab_size": 2}
    )
    change(tmp_path, lambda tensors: [tensors.pop(key) for key in [*tensors] if key.startswith("lm_head.")])
    rename(tmp_path, lambda key: key.removeprefix("roberta."))
    configure(tmp_path, model_type=None)
    with pytest.warns(UserWarning, match="read without a head"), pytest.warns(UserWarning, match="read as roberta"):
        assert read_checkpoint(tmp_path).config.family == "roberta"


def test_tensors_inside_the_network_are_not_passed_over(write: Any) -> None:
    folder = write("bert")
    configure(folder, architectures=["BertWithAdapters"])
    change(folder, lambda tensors: tensors.update({"bert.encoder.layer.0.adapter.weight": torch.ones(3, 8)}))
    with pytest.raises(UserError, match=r"architectures = BertWithAdapters.*not.*only BertForMaskedLM"):
        read_checkpoint(folder)


def test_the_number_of_classes_is_that_of_the_tensors(write: Any) -> None:
    """As rxnfp's, whose config.json lists two."""
    folder = write("bert")
    configure(folder, architectures=["BertForSequenceClassification"], id2label=None, num_labels=2)
    head = {"bert.pooler.dense.weight": torch.eye(8), "bert.pooler.dense.bias": torch.ones(8)}
    head |= {"classifier.weight": torch.ones(5, 8), "classifier.bias": torch.ones(5)}

    def other_head(tensors: dict[str, Tensor]) -> None:
        for key in [key for key in tensors if key.startswith("cls.")]:
            del tensors[key]
        tensors.update(head)

    change(folder, other_head)
    with pytest.warns(UserWarning, match=r"5 classes.*config\.json.*2"):
        found = read_checkpoint(folder)
    assert output(found.network).shape == (1, 5)


def test_unknown_keys_are_ignored_on_request(write: Any) -> None:
    folder = write("bert")
    expected = output(read_checkpoint(folder).network)
    configure(folder, zeal="b", sparsity=3)
    for keys, message in (
        (["zeal"], "not supported: sparsity = 3"),
        (["zeal", "sparsity", "hidden_size"], "hidden_size cannot be ignored; its unknown keys are sparsity, zeal"),
    ):
        with pytest.raises(UserError, match=message), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            headwise.load(folder, "cpu", ignore_keys=keys)
    with pytest.warns(UserWarning, match="sparsity = 3, zeal = 'b'"):
        assert torch.equal(output(headwise.load(folder, "cpu", ignore_keys=["zeal", "sparsity"]).network), expected)


@pytest.mark.parametrize("key", ["seed", "mask_token_id", "max_seq_length", "sentence_transformers"])
def test_keys_of_training_and_tokens_are_harmless(key: str, write: Any) -> None:
    folder = write("bert")
    expected = output(read_checkpoint(folder).network)
    configure(folder, **{key: 3})
    assert torch.equal(output(read_checkpoint(folder).network), expected)


@pytest.mark.parametrize("rope", [{"rope_type": "yarn", "factor": 2.0}, {"rope_theta": 1e4, "twist": 1}])
def test_rotary_positions_of_an_unknown_kind(rope: dict[str, Any], write: Any) -> None:
    with pytest.raises(UserError, match=r"rope_parameters\.(rope_type = 'yarn'|twist = 1)"):
        write("llama", rope_parameters=rope)


def test_all_misfits_are_named_at_once(write: Any) -> None:
    folder = write("bert")

    def damage(tensors: dict[str, Tensor]) -> None:
        del tensors["bert.encoder.layer.1.output.dense.weight"]
        tensors["bert.encoder.layer.2.output.dense.weight"] = torch.zeros(8, 12)
        tensors["bert.embeddings.word_embeddings.weight"] = torch.zeros(12, 8)

    change(folder, damage)
    with pytest.raises(UserError) as raised:
        headwise.load(folder, "cpu")
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
        headwise.load(folder, "cpu")


def test_a_damaged_file(write: Any) -> None:
    folder = write("bert")
    (folder / "model.safetensors").write_bytes(b"not a safetensors file")
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        headwise.load(folder, "cpu")


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


def test_shards_may_be_links_as_in_the_cache_of_the_hub(write: Any, tmp_path: Path) -> None:
    folder = write("llama")
    expected = output(read_checkpoint(folder).network)
    (tmp_path / "blobs").mkdir()
    (folder / "model.safetensors").rename(tmp_path / "blobs" / "3f2a")
    (folder / "model-1-of-1.safetensors").symlink_to(Path("..", "blobs", "3f2a"))
    index = {"weight_map": dict.fromkeys(load_file(tmp_path / "blobs" / "3f2a"), "model-1-of-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(output(read_checkpoint(folder).network), expected)


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "before_1.6"])
def test_an_old_file_of_tensors_is_read_with_a_warning(archive: bool, write: Any) -> None:
    folder = write("gpt2")
    expected = output(read_checkpoint(folder).network)
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin", _use_new_zipfile_serialization=archive)
    (folder / "model.safetensors").unlink()
    with pytest.warns(UserWarning, match="an old format"):
        assert torch.equal(output(read_checkpoint(folder).network), expected)


def shard(folder: Path, archive: bool = True) -> Path:
    """Put the tensors of a checkpoint into two old files and an index; gives the index."""
    tensors = load_file(folder / "model.safetensors")
    files = {key: f"pytorch_model-{i % 2}.bin" for i, key in enumerate(tensors)}
    for name in set(files.values()):
        part = {key: tensor for key, tensor in tensors.items() if files[key] == name}
        torch.save(part, folder / name, _use_new_zipfile_serialization=archive)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    (folder / "model.safetensors").unlink()
    return folder / "pytorch_model.bin.index.json"


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "before_1.6"])
def test_old_files_in_shards(archive: bool, write: Any) -> None:
    folder = write("llama")
    expected = output(read_checkpoint(folder).network)
    shard(folder, archive)
    with pytest.warns(UserWarning, match="an old format"):
        assert torch.equal(output(read_checkpoint(folder).network), expected)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "pytorch_model-9.bin"}, r"index\.json: names pytorch_model-9\.bin, which is missing"),
        ({"a": "../model.bin"}, r"index\.json: names \.\./model\.bin, which is outside of the folder"),
        ({"a": "/tmp/model.bin"}, r"index\.json: names /tmp/model\.bin, which is outside of the folder"),
        ({"a": "x/../../model.bin"}, "which is outside of the folder"),
        ({"a": "..\\model.bin"}, "which is outside of the folder"),
        ({"a": "C:\\model.bin"}, "which is outside of the folder"),
        ({"a": 3}, "index.json: has no 'weight_map' from the names"),
        ([], "index.json: has no 'weight_map' from the names"),
    ],
)
def test_a_damaged_index(weight_map: Any, message: str, write: Any) -> None:
    folder = write("gpt2")
    shard(folder).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UserError, match=message):
        read_checkpoint(folder)


@pytest.mark.filterwarnings("ignore:.*an old format")
def test_an_old_file_that_holds_more_than_the_network(write: Any) -> None:
    folder = write("gpt2")
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(2), "steps": 7}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin: cannot be read as tensors alone; it holds more"):
        read_checkpoint(folder)


@pytest.mark.filterwarnings("ignore:.*an old format")
def test_an_old_file_with_views_is_imported(write: Any, tmp_path: Path) -> None:
    """As rxnfp's bert_pretrained, whose pooler, which the network does not use, is a transposed view."""
    folder = write("bert")
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.pooler.dense.weight"] = torch.arange(64.0).view(8, 8).t()
    tensors["bert.pooler.dense.bias"] = torch.arange(16.0)[::2]
    torch.save(tensors, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    write_imported(tmp_path / "out", read_folder(folder))
    found = unread_tensors(tmp_path / "out")
    assert all(torch.equal(found[key], tensors[key]) for key in ("bert.pooler.dense.weight", "bert.pooler.dense.bias"))


@pytest.mark.filterwarnings("ignore:.*an old format")
@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(1).expand(1 << 20, 1 << 20),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        {"a": torch.zeros(1)},
    ],
    ids=["expanded", "sparse", "without values", "nested"],
)
def test_an_old_file_with_other_tensors_than_plain_ones(tensor: Any, write: Any) -> None:
    """The first would take 4 TiB."""
    folder = write("gpt2")
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": tensor}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin: (its tensors are more than|cannot be read as tensors)"):
        read_checkpoint(folder)


@pytest.mark.filterwarnings("ignore:.*an old format")
def test_an_old_file_that_is_compressed(write: Any) -> None:
    """What unpacks to a thousand times its size."""
    folder = write("gpt2")
    (folder / "model.safetensors").unlink()
    torch.save({"lm_head.weight": torch.zeros(1000)}, folder / "plain.bin")
    with ZipFile(folder / "plain.bin") as plain, ZipFile(folder / "pytorch_model.bin", "w", ZIP_DEFLATED) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    with pytest.raises(UserError, match=r"pytorch_model\.bin: its archive is compressed"):
        read_checkpoint(folder)


class Payload:
    """What an attacker would put into a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this must not run",)


@pytest.mark.parametrize("archive", [True, False], ids=["archive", "before_1.6"])
def test_an_old_file_of_more_than_tensors_is_refused(
    archive: bool, write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write("gpt2")
    values, path = {"lm_head.weight": Payload()}, folder / "pytorch_model.bin"
    torch.save(values, path, pickle_module=pickle, _use_new_zipfile_serialization=archive)
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


# --- Numbers ---


def dtypes(network: FamilyNetwork) -> set[torch.dtype]:
    return {parameter.dtype for parameter in network.parameters()}


def halve(folder: Path, wanted: str = "", dtype: torch.dtype = torch.float16) -> None:
    """Store the tensors whose names contain `wanted` in other numbers."""
    change(folder, lambda tensors: tensors.update({k: t.to(dtype) for k, t in tensors.items() if wanted in k}))


def test_floats_of_several_kinds_become_one(write: Any) -> None:
    """Of the same key in two precisions, too: the first GPT-2 has its head twice."""
    folder = write("gpt2")
    halve(folder, "weight")
    change(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["transformer.wte.weight"].float()}))
    halve(folder, "ln_f", torch.float64)
    network = headwise.load(folder, "cpu").network
    assert dtypes(network) == dtypes(read_checkpoint(folder).network) == {torch.float32}
    assert torch.equal(network.head.output.weight, network.embeddings.tokens.weight)
    assert dtypes(headwise.load(folder, "cpu", dtype="bfloat16").network) == {torch.bfloat16}


def test_other_devices_keep_the_numbers_of_the_file(write: Any) -> None:
    folder = write("llama")
    halve(folder, dtype=torch.bfloat16)
    assert dtypes(read_checkpoint(folder).network) == {torch.bfloat16}
    assert dtype_for("auto", torch.device("cuda")) is None
    assert dtypes(headwise.load(folder, "cpu").network) == {torch.float32}
    with pytest.raises(UserError, match=r"'float61'.*'float16'"):
        headwise.load(folder, "cpu", dtype="float61")


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.int8, "int8"), (torch.float8_e4m3fn, "float8_e4m3fn"), (torch.uint8, "uint8")]
)
def test_weights_in_eight_bits_are_refused(dtype: torch.dtype, name: str, write: Any) -> None:
    folder, key = write("llama"), "model.layers.1.mlp.down_proj.weight"
    halve(folder, key, dtype)
    with pytest.raises(UserError, match=rf"model\.safetensors: {key} is {name}; only float32, float16 and bfloat16"):
        headwise.load(folder, "cpu")


def test_weights_that_are_whole_numbers_do_not_fit(write: Any) -> None:
    folder = write("llama")
    halve(folder, "model.norm.weight", torch.int64)
    with pytest.raises(UserError, match=r"model\.norm\.weight.*int64.*float32"):
        headwise.load(folder, "cpu")


@pytest.mark.parametrize("ending", ["qweight", "weight.absmax", "SCB", "weight_scale_inv", "weight_packed"])
def test_what_quantisation_puts_beside_weights_is_refused(ending: str, write: Any) -> None:
    folder, key = write("llama"), f"model.layers.0.mlp.up_proj.{ending}"
    change(folder, lambda tensors: tensors.update({key: torch.zeros(3, dtype=torch.int32)}))
    with pytest.raises(UserError, match=rf"model\.safetensors: {key}"):
        headwise.load(folder, "cpu")


@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_a_configuration_of_quantised_weights_is_refused(method: str, write: Any) -> None:
    folder = write("llama")
    values = json.loads((folder / "config.json").read_text())
    quantised = {**values, "quantization_config": {"quant_method": method, "bits": 4}}
    (folder / "config.json").write_text(json.dumps(quantised))
    with pytest.raises(UserError, match=rf"config\.json: quantization_config says '{method}'; only float32, float16"):
        headwise.load(folder, "cpu")


def test_the_shard_of_a_refused_tensor_is_named(write: Any) -> None:
    folder, key = write("llama"), "model.layers.1.mlp.down_proj.weight"
    halve(folder, key, torch.int8)
    name = json.loads(shard(folder).read_text())["weight_map"][key]
    with pytest.warns(UserWarning, match="an old format"), pytest.raises(UserError, match=f"{name}: {key} is int8"):
        headwise.load(folder, "cpu")


@pytest.mark.parametrize("kind", ["marian", "m2m_100", "pegasus"])
def test_long_lines_are_translated_in_parts_where_a_table_of_positions_ends(kind: str, tmp_path: Path) -> None:
    write_tiny(tmp_path, "m2m", {"model_type": kind, "max_position_embeddings": 24})
    model = headwise.load(tmp_path, "cpu")
    assert longest_text(model.config.encoder) == longest_text(model.config.decoder) == 24
    long, short = model.translate(["a dog runs. " * 4, "a dog runs."], beam_size=1, max_length_extra=60)
    assert long.parts == 2 and short.parts == 1
    assert max(len(one.tokens) for one in model.generate(["a dog"], max_new_tokens=60)) <= 24


@pytest.mark.parametrize("kind", ["gpt2", "bert", "marian"])
def test_checkpoints_of_compiled_modules(tmp_path: Path, kind: str) -> None:
    """torch.compile adds a word to the names of a module, or of one inside it."""
    write_tiny(tmp_path, kind)
    expected = dict(read_folder(tmp_path).network.named_parameters())
    for name in (
        lambda key: f"_orig_mod.{key}",
        lambda key: key.removeprefix("_orig_mod.").replace(".", "._orig_mod.", 1),
    ):
        rename(tmp_path, name)
        found = dict(read_folder(tmp_path).network.named_parameters())
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        assert headwise.load(tmp_path, "cpu").info()["family"] == kind
