"""Each class of tokenizers of transformers, with what it can save: the same ids for texts, and the same texts back."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from headwise.errors import UserError
from headwise.runtime.tokenizers.vocabulary import Vocabulary, bare, read_vocabulary

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

SENTENCES = [f"{who} {does} {when} in the {where}" for who in ("the dog", "a cat", "my sister", "The DOG")
             for does in ("runs", "sleeps") for when in ("quietly", "again")
             for where in ("garden", "street")]  # fmt: skip
SENTENCES += ["1,000, 2 na\u00efve caf\u00e9 . , ' ? it 's n't"] * 4
ODD = ["", " ", "  the  dog ", "a\tcat\nruns", "a\u00a0cat\u3000here", "dog\u200bcat", "\x00dog\x07",
       "na\u00efve CAF\u00c9",
       "``hi'' 'x'", "1,000, 2", "a\u0301", "\ufb01ne \u2460", "dog\u2581cat", "\u2581dog", "it 's a dog , is n't it ?",
       "\u0085dog\u2028cat", "\U0001f600 dog\r\ncat", "\ufeffdog"]  # fmt: skip
FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
BPE = {"model_type": "bpe", "byte_fallback": True}


@dataclass(frozen=True)
class Kind:
    """A class, the family of its models, how its vocabulary is made, and settings that it reads."""

    family: str
    make: Callable[[Path], None]
    special: Sequence[str]
    settings: Sequence[Mapping[str, Any]] = ()
    always: Mapping[str, Any] = field(default_factory=dict)


def pieces(name: str, size: int = 120, **settings: Any) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SENTENCES), model_prefix=str(folder / name), vocab_size=size,
            hard_vocab_limit=False, minloglevel=2, num_threads=1, **settings,
        )  # fmt: skip

    return make


def words(*listed: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / "vocab.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")

    return make


def merges(*special: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        trained = tokenizers.ByteLevelBPETokenizer()
        trained.train_from_iterator(SENTENCES, vocab_size=320, special_tokens=list(special), show_progress=False)
        trained.save_model(str(folder))

    return make


WORDS = ("the", "dog", "cat", "Dog", "DOG", "##s", "a", "caf", "##e", "##\u00e9", "hi", "`", "'", ".", ",", "it", "s")
BRACKETS = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "pad_piece": "<pad>",
            "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}  # fmt: skip
NAMED = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]", "bos_piece": "[CLS]",
         "eos_piece": "[SEP]", "unk_piece": "[UNK]"}  # fmt: skip
GEMMA = {**BPE, "pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, "bos_piece": "<bos>", "eos_piece": "<eos>",
         "user_defined_symbols": ["<mask>", "<turn>"], "normalization_rule_name": "identity",
         "remove_extra_whitespaces": False, "add_dummy_prefix": False}  # fmt: skip
XLNET = {"unk_id": 0, "bos_id": 1, "eos_id": 2,
         "control_symbols": ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]}  # fmt: skip
ENDED = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LOWER = ({"do_lower_case": True}, {"do_lower_case": False})
BLANK = ({"add_prefix_space": False}, {"add_prefix_space": True})
KINDS = {
    "T5Tokenizer": Kind("t5", pieces("spiece", **ENDED), ["<extra_id_0>", "<extra_id_10>"], [{"extra_ids": 20}]),
    "PegasusTokenizer": Kind("pegasus", pieces("spiece", **ENDED), ["<mask_1>", "<mask_2>"], [{"offset": 9}]),
    "AlbertTokenizer": Kind("albert", pieces("spiece", **BRACKETS), ["[MASK]"], [*LOWER, {"keep_accents": True}]),
    "XLNetTokenizer": Kind("xlnet", pieces("spiece", **XLNET), ["<mask>", "<sep>", "<eop>"], LOWER),
    "DebertaV2Tokenizer": Kind("deberta-v2", pieces("spm", **NAMED), ["[MASK]"], [*LOWER, {"split_by_punct": True}]),
    "XLMRobertaTokenizer": Kind("xlm-roberta", pieces("sentencepiece.bpe"), ["<mask>", "</s>"], BLANK),
    "CamembertTokenizer": Kind("camembert", pieces("sentencepiece.bpe"), ["<mask>", "<s>NOTUSED"], BLANK),
    "MBartTokenizer": Kind("mbart", pieces("sentencepiece.bpe"), ["<mask>", "de_DE"]),
    "MBart50Tokenizer": Kind("mbart", pieces("sentencepiece.bpe"), ["<mask>", "sl_SI"]),
    "NllbTokenizer": Kind(
        "m2m_100", pieces("sentencepiece.bpe", model_type="bpe"), ["<mask>", "deu_Latn"], [{"legacy_behaviour": True}],
        {"src_lang": "eng_Latn", "additional_special_tokens": ["eng_Latn", "deu_Latn"]},
    ),
    "LlamaTokenizer": Kind(
        "llama", pieces("tokenizer", 360, **BPE), ["<s>", "</s>", "<unk>"],
        [{"legacy": True}, {"legacy": None}, {"add_eos_token": True}, *BLANK], {"add_bos_token": True},
    ),
    "GemmaTokenizer": Kind(
        "gemma", pieces("tokenizer", 360, **GEMMA), ["<mask>", "<turn>"], (), {"add_bos_token": True}
    ),
    "BertTokenizer": Kind(
        "bert", words("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS), ["[MASK]", "[UNK]"],
        [*LOWER, {"strip_accents": True, "do_lower_case": False}, {"tokenize_chinese_chars": False},
         {"mask_token": "<m>"}],
    ),
    "MPNetTokenizer": Kind("mpnet", words(*FAIRSEQ[:4], *WORDS, "[UNK]", "<mask>"), ["<mask>", "<unk>"], LOWER),
    "GPT2Tokenizer": Kind("gpt2", merges("<|endoftext|>"), ["<|endoftext|>"], [*BLANK, {"add_bos_token": True}]),
    "RobertaTokenizer": Kind("roberta", merges(*FAIRSEQ), ["<mask>", "</s>"], BLANK),
    "BartTokenizer": Kind("bart", merges(*FAIRSEQ), ["<mask>", "</s>"]),
    "GPTNeoXTokenizer": Kind("gpt_neox", merges("<|endoftext|>"), ["<|endoftext|>"], BLANK),
    "Qwen2Tokenizer": Kind("qwen2", merges("<|endoftext|>"), ["<|endoftext|>"]),
}  # fmt: skip
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"split_special_tokens": True},
    {"clean_up_tokenization_spaces": True},
    {"image_token": "<image>"},
    {"extra_special_tokens": ["<x>", "eng_Latn", "deu_Latn"]},
)
FLAGS: tuple[dict[str, Any], ...] = (
    {}, {"lstrip": True}, {"rstrip": True}, {"single_word": True}, {"normalized": True, "special": False},
    {"normalized": True, "special": False, "lstrip": True, "rstrip": True},
)  # fmt: skip
# Classes of transformers that give the ids of added_tokens.json to tokens of their own.
THEIR_OWN_IDS = ("DebertaV2Tokenizer", "NllbTokenizer", "GPTNeoXTokenizer")
ADDED = {f"<add{i}>": flags for i, flags in enumerate(FLAGS)} | {"Cow": {"special": False, "normalized": True}}


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def entry(token: str, **flags: Any) -> dict[str, Any]:
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"content": token, **plain, **flags}


def theirs_of(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def add_by_id(folder: Path, theirs: Any) -> list[str]:
    """Tokens of all kinds in `added_tokens_decoder`."""
    listed = {str(i): token.__getstate__() for i, token in theirs.added_tokens_decoder.items()}
    listed |= {str(len(theirs) + n): entry(token, **flags) for n, (token, flags) in enumerate(ADDED.items())}
    path = folder / "tokenizer_config.json"
    write_json(path, {**read_json(path), "added_tokens_decoder": listed})
    return [*ADDED]


def texts(special: Sequence[str]) -> list[str]:
    """200 texts: each special token beside words, blanks and marks, and between odd texts."""
    found = ["the dog runs quietly in the garden", *ODD]
    for one in special:
        found += [one, f"the dog {one} a cat", f"the dog{one}a cat", f"dog  {one}\ncat", f"{one}{one}.", one.upper()]
    between = product(ODD, special, ODD[::-1])
    return [*found, *map("".join, islice(between, 0, None, 1 + len(special)))][:200]


def check(folder: Path, special: Sequence[str], config: Mapping[str, Any]) -> Vocabulary:
    """Ids and texts of both are the same. The code of a language is not part of our vocabulary's ids."""
    theirs, ours = theirs_of(folder), read_vocabulary(folder, config)
    has_code = hasattr(theirs, "src_lang")
    encode = bare(ours)[0] if has_code else ours.encode
    for text in texts(special):
        ids = theirs(text, add_special_tokens=not has_code).input_ids
        assert encode(text) == ids, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    assert [ours.id_of(one) for one in special] == theirs.convert_tokens_to_ids(list(special))
    return ours


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the vocabulary of a class, made once."""
    folders: dict[str, Path] = {}

    def folder_of(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            KINDS[name].make(folders[name])
            write_json(folders[name] / "config.json", {"model_type": KINDS[name].family, "vocab_size": 4000})
        return folders[name]

    return folder_of


def prepared(made: Callable[[str], Path], folder: Path, name: str, **settings: Any) -> dict[str, Any]:
    """A copy with these settings, and its config.json."""
    shutil.copytree(made(name), folder, dirs_exist_ok=True)
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": name, **KINDS[name].always, **settings})
    return read_json(folder / "config.json")


@pytest.mark.parametrize("saved", [False, True], ids=["file", "tokenizer.json"])
@pytest.mark.parametrize("name", KINDS)
def test_special_and_added_tokens(made: Callable[[str], Path], name: str, saved: bool, tmp_path: Path) -> None:
    """In the files of the class itself, and in the tokenizer.json that it saves."""
    config = prepared(made, tmp_path, name)
    special = [*KINDS[name].special, *add_by_id(tmp_path, theirs_of(tmp_path))]
    if saved:
        theirs_of(tmp_path).save_pretrained(tmp_path)
    check(tmp_path, special, config)


@pytest.mark.few(12)
@pytest.mark.parametrize("name", [name for name in KINDS if name not in THEIR_OWN_IDS])
def test_added_tokens_json(made: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    config = prepared(made, tmp_path, name)
    n = len(theirs_of(tmp_path))
    write_json(tmp_path / "added_tokens.json", {"<add0>": n, "<add1>": n + 1})
    check(tmp_path, [*KINDS[name].special, "<add0>", "<add1>"], config)


def test_ids_that_the_files_leave_to_the_class(made: Callable[[str], Path], tmp_path: Path) -> None:
    """DeBERTa's mask follows its pieces, and the added token follows the mask, as its id says."""
    config = prepared(made, tmp_path, "DebertaV2Tokenizer")
    n = len(theirs_of(tmp_path))
    write_json(tmp_path / "added_tokens.json", {"<add0>": n})
    vocabulary = read_vocabulary(tmp_path, config)
    assert (vocabulary.id_of("[MASK]"), vocabulary.id_of("<add0>")) == (n - 1, n)
    assert vocabulary.encode("[MASK]<add0>")[1:-1] == [n - 1, n]
    write_json(tmp_path / "added_tokens.json", {"<add0>": n + 7})
    with pytest.raises(UserError, match=rf"added_tokens.json: <add0> cannot have the id {n + 7}"):
        read_vocabulary(tmp_path, config)


@pytest.mark.few(9)
@pytest.mark.parametrize("name", KINDS)
def test_each_setting(made: Callable[[str], Path], name: str, tmp_path: Path) -> None:
    """In the class's own files, with the tokenizer.json that it saves, and against one with other settings."""
    default = tmp_path / "default"
    prepared(made, default, name)
    theirs_of(default).save_pretrained(default)
    for n, settings in enumerate([*SETTINGS, *KINDS[name].settings]):
        folder = tmp_path / str(n)
        config = prepared(made, folder, name, **settings)
        special = [*KINDS[name].special, *settings.get("extra_special_tokens", [])[:1]]
        special += [settings[key] for key in settings if key == "image_token"]
        check(folder, special, config)
        if not {"image_token", "extra_special_tokens", "extra_ids", "offset", "mask_token"} & settings.keys():
            shutil.copy(default / "tokenizer.json", folder)
            check(folder, special, config)


@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast", None])
def test_tokens_in_the_settings_alone(made: Callable[[str], Path], name: str | None, tmp_path: Path) -> None:
    """tokenizer.json does not know them."""
    config = prepared(made, tmp_path, "BertTokenizer")
    theirs_of(tmp_path).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    write_json(path, {key: value for key, value in {**read_json(path), "tokenizer_class": name}.items() if value})
    check(tmp_path, ["[MASK]", *add_by_id(tmp_path, theirs_of(tmp_path))], config)


def test_a_tokenizer_json_without_a_class_is_used_as_it_is(made: Callable[[str], Path], tmp_path: Path) -> None:
    config = prepared(made, tmp_path, "BertTokenizer", do_lower_case=False)
    theirs_of(tmp_path).save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    ids = read_vocabulary(tmp_path, {"vocab_size": 4000}).encode("Dog dog")
    assert len(set(ids)) == 4
    for family in ("bert", "modernbert"):
        write_json(tmp_path / "config.json", {**config, "model_type": family})
        assert (
            read_vocabulary(tmp_path, read_json(tmp_path / "config.json")).encode("Dog")
            == theirs_of(tmp_path)("Dog").input_ids
        )


def test_default_tokens_have_room_in_the_network(made: Callable[[str], Path], tmp_path: Path) -> None:
    """A token of the class that no file names stays text where the network has no row for it."""
    prepared(made, tmp_path, "DebertaV2Tokenizer")
    n = len(theirs_of(tmp_path)) - 1
    assert read_vocabulary(tmp_path, {"vocab_size": n}).id_of("[MASK]") is None
    assert read_vocabulary(tmp_path, {"vocab_size": n + 1}).id_of("[MASK]") == n


def test_pegasus_masks_have_the_ids_that_the_file_says(made: Callable[[str], Path], tmp_path: Path) -> None:
    listed = {"2": entry("<mask_1>"), "3": entry("<mask_2>")}
    masks = {"mask_token": "<mask_2>", "mask_token_sent": "<mask_1>"}
    config = prepared(made, tmp_path, "PegasusTokenizer", added_tokens_decoder=listed, **masks)
    assert read_vocabulary(tmp_path, config).encode("<mask_1><mask_2>") == [2, 3, 1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", {"added_tokens_decoder": {"9": {"text": "<a>"}}}),
        ("special_tokens_map.json", {"mask_token": ["<mask>"]}),
    ],
)
def test_a_damaged_token(made: Callable[[str], Path], name: str, content: Any, tmp_path: Path) -> None:
    config = prepared(made, tmp_path, "T5Tokenizer")
    write_json(tmp_path / name, content)
    with pytest.raises(UserError, match=r"is no token") as caught:
        read_vocabulary(tmp_path, config)
    assert "\n" not in str(caught.value)


# --- Models of SentencePiece, used as they are ---


def write_marian(folder: Path, separate: bool, **settings: Any) -> dict[str, Any]:
    german = [
        "der Hund rennt",
        "eine Katze isst heute",
        "unser Lehrer wartet im Garten",
        "ein Pferd in der K\u00fcche",
    ] * 4
    lists: list[dict[str, int]] = [{"</s>": 0, "<unk>": 1}, {"</s>": 0, "<unk>": 1}]
    for n, (side, sentences) in enumerate((("source", SENTENCES), ("target", german))):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences), model_prefix=str(folder / side), vocab_size=60,
            hard_vocab_limit=False, minloglevel=2, num_threads=1,
        )  # fmt: skip
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model, ids = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm")), lists[n * separate]
        for i in range(model.get_piece_size()):
            ids.setdefault(model.id_to_piece(i), len(ids))
    lists[0] |= {">>fra<<": len(lists[0]), "<pad>": len(lists[0]) + 1}
    write_json(folder / "vocab.json", lists[0])
    if separate:
        write_json(folder / "target_vocab.json", lists[1])
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate, **settings}
    write_json(folder / "tokenizer_config.json", settings)
    return {"model_type": "marian", "vocab_size": 400}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("by_id", [False, True])
def test_marian(settings: dict[str, Any], by_id: bool, tmp_path: Path) -> None:
    config = write_marian(tmp_path, separate=False, **settings)
    write_json(tmp_path / "config.json", config)
    special = ["</s>", "<unk>", "<pad>", *settings.get("extra_special_tokens", [])]
    if by_id and not special[3:] and "image_token" not in settings:
        special += add_by_id(tmp_path, theirs_of(tmp_path))
    vocabulary = check(tmp_path, special, config)
    assert vocabulary.encode(">>fra<< the dog")[0] == vocabulary.id_of(">>fra<<")


@pytest.mark.parametrize("separate", [False, True])
def test_pieces_that_only_one_of_two_models_has(separate: bool, tmp_path: Path) -> None:
    """A translation may have pieces of both models, such as names that were copied."""
    config = write_marian(tmp_path, separate)
    vocabulary = read_vocabulary(tmp_path, config)
    assert vocabulary.written is not None
    target = vocabulary.written.encode("eine Katze wartet")
    assert vocabulary.decode(target) == "eine Katze wartet"
    if not separate:
        source = vocabulary.encode("the dog")
        assert vocabulary.decode(source) == "the dog"
        theirs = theirs_of(tmp_path)
        only_target, only_source = (  # a piece that begins a word
            next(
                p for p in theirs.get_vocab() if len(p) > 2 and p[0] == "\u2581" and one.piece_to_id(p) == one.unk_id()
            )
            for one in (theirs.spm_source, theirs.spm_target)
        )
        mixed = [vocabulary.id_of(piece) or 0 for piece in (only_target, only_source)]
        expected = f"{only_target}{only_source}".replace("\u2581", " ").strip()
        assert vocabulary.decode(mixed) == theirs.decode(mixed, skip_special_tokens=True) == expected


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("codes", [None, "wmt21"])
def test_m2m(by_id: bool, codes: str | None, tmp_path: Path) -> None:
    """Its languages are listed nowhere."""
    pieces("sentencepiece.bpe")(tmp_path)
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "sentencepiece.bpe.model"))
    listed = ["<s>", "<pad>", "</s>", "<unk>", *(model.id_to_piece(i) for i in range(3, model.get_piece_size()))]
    write_json(tmp_path / "vocab.json", {piece: i for i, piece in enumerate(listed)})
    settings = {"tokenizer_class": "M2M100Tokenizer", **({"language_codes": codes} if codes else {})}
    write_json(tmp_path / "tokenizer_config.json", settings)
    config = {"model_type": "m2m_100", "vocab_size": len(listed) + 108}
    write_json(tmp_path / "config.json", config)
    theirs = theirs_of(tmp_path)
    languages = [f"__{code}__" for code in ("is", "de", "ha" if codes else "zu")]
    if by_id:
        added = {str(len(listed) + 100): entry("<add>", lstrip=True)}
        write_json(tmp_path / "tokenizer_config.json", {**settings, "added_tokens_decoder": added})
    vocabulary = check(tmp_path, ["</s>", "<unk>", *(["<add>"] if by_id else [])], config)
    assert [vocabulary.id_of(code) for code in languages] == theirs.convert_tokens_to_ids(languages)
    assert vocabulary.decode([vocabulary.id_of("__de__") or 0, *vocabulary.encode("the dog")]) == "the dog"


@pytest.mark.parametrize("settings", [{"language_codes": "m2m"}, {"sp_model_kwargs": {"enable_sampling": True}}])
def test_settings_of_sentencepiece_models_that_are_not_understood(settings: dict[str, Any], tmp_path: Path) -> None:
    pieces("sentencepiece.bpe")(tmp_path)
    write_json(tmp_path / "vocab.json", {"<unk>": 0})
    write_json(tmp_path / "tokenizer_config.json", settings)
    with pytest.raises(UserError, match=next(iter(settings))):
        read_vocabulary(tmp_path, {"model_type": "m2m_100"})
