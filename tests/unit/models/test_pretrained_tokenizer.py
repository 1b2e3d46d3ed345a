"""Special tokens of sources and targets in training, by family; expected values are from `transformers`."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headwise.config.data import TranslationData
from headwise.errors import UserError
from headwise.runtime.tokenizers.pretrained_tokenizer import PretrainedTokenizer
from headwise.text.files.alignment import words_of_tokens
from headwise.text.tokens.pair_tokenizer import PairTokenizer
from headwise.text.tokens.tokenizer import Tokenizer
from headwise.view.words import words_spelled

Make = Callable[..., Any]
BOS, END = 0, 2
DE, FR = 5, 6  # of `tiny_families.MARKS`
BART = {"model_type": "bart", "decoder_start_token_id": 2}
MBART = {"model_type": "mbart", "decoder_start_token_id": 2}


def bare_tokenizer(model: Any, *languages: str) -> PretrainedTokenizer:
    return model.between(*languages)._translator.tokenizer


def whole(side: PretrainedTokenizer) -> tuple[list[int], list[int], list[int]]:
    """Source, decoder input and target, of one letter each."""
    source, target = [*side.source.encode("a"), side.source.eos_id], side.encode("b")
    return source, [side.bos_id, *target], [*target, side.eos_id]


@pytest.mark.parametrize(
    ("kind", "changes", "languages", "source", "read", "wanted"),
    [
        ("marian", {}, (), ["a", END], [1, "b"], ["b", END]),
        ("t5", {}, (), ["a", END], [1, "b"], ["b", END]),
        ("m2m", {}, ("de", "fr"), [DE, "a", END], [2, FR, "b"], [FR, "b", END]),
        ("marian", MBART, ("__de__", "__fr__"), ["a", END, DE], [FR, "b"], ["b", END]),
        ("marian", BART, (), ["a", END], [2, BOS, "b"], [BOS, "b", END]),
    ],
)
def test_special_tokens(
    make: Make,
    kind: str,
    changes: dict[str, Any],
    languages: tuple[str, ...],
    source: Sequence[Any],
    read: Sequence[Any],
    wanted: Sequence[Any],
) -> None:
    extra = {"tokenizer_class": "MBartTokenizer"} if changes == MBART else {}
    model = make(kind, changes, {"forced_bos_token_id": BOS} if changes == BART else None, **extra)
    ids = [[model.vocabulary.id_of(one) if isinstance(one, str) else one for one in row]
           for row in (source, read, wanted)]  # fmt: skip
    assert list(whole(bare_tokenizer(model, *languages))) == ids


NLLB = {"tokenizer_class": "NllbTokenizer"}
IN_FRONT, BEHIND, FORCED = [DE, "a", END], ["a", END, DE], [2, FR, "b"]


@pytest.mark.parametrize(
    ("kind", "changes", "settings", "source", "read"),
    [
        ("m2m", {}, {**NLLB, "legacy_behaviour": True}, BEHIND, FORCED),
        ("m2m", {}, {**NLLB, "legacy_behaviour": False}, IN_FRONT, FORCED),
        ("m2m", {}, {"tokenizer_class": "M2M100Tokenizer", "legacy_behaviour": True}, IN_FRONT, FORCED),
        ("marian", {**MBART, "tokenizer_class": "MBartTokenizer"}, {}, BEHIND, [FR, "b"]),
        ("marian", MBART, {}, BEHIND, [FR, "b"]),
        ("marian", MBART, {"tokenizer_class": "MBartTokenizerFast"}, BEHIND, [FR, "b"]),
        ("marian", {**MBART, "tokenizer_class": "MBart50Tokenizer"}, {}, IN_FRONT, FORCED),
        (
            "marian",
            {**MBART, "tokenizer_class": "MBartTokenizer"},
            {"tokenizer_class": "MBart50Tokenizer"},
            IN_FRONT,
            FORCED,
        ),
    ],
)
def test_where_the_code_of_a_language_stands(
    make: Make,
    kind: str,
    changes: dict[str, Any],
    settings: dict[str, Any],
    source: Sequence[Any],
    read: Sequence[Any],
) -> None:
    """As the class of the tokenizer says: of tokenizer_config.json, config.json or the family."""
    model = make(kind, changes, None, **settings)
    found = whole(bare_tokenizer(model, "__de__", "__fr__"))[:2]
    ids = [[model.vocabulary.id_of(one) if isinstance(one, str) else one for one in row] for row in (source, read)]
    assert list(found) == ids


def test_both_tokenizers_implement_the_protocol(make: Make) -> None:
    assert isinstance(bare_tokenizer(make("marian")), PairTokenizer)
    assert isinstance(Tokenizer.train(["a dog"], TranslationData(vocab_size=270)), PairTokenizer)


def test_words_exclude_special_tokens(make: Make) -> None:
    changes = {"task_specific_params": {"translation_de_to_it": {"prefix": "to it: "}}}
    source = bare_tokenizer(make("t5", changes), "de", "it").source
    ids, numbers = words_of_tokens(source, "ab c ")
    assert source.decode(ids) == "to it: ab c "
    assert numbers.tolist() == [-1] * len("to it: ") + [0, 0, 1, 1, -1]


def test_pieces_of_words_and_special_tokens(make: Make) -> None:
    side = bare_tokenizer(make("m2m"), "de", "fr")
    ids = [*side.encode("né un"), side.eos_id]
    assert [(word.text, word.start, word.stop) for word in words_spelled(side, ids)] == [("né", 1, 4), ("un", 4, 7)]
    assert side.pieces(ids)[0] == "__fr__"


def test_unknown_and_missing_languages(make: Make) -> None:
    model = make("m2m")
    with pytest.raises(UserError, match=r"source_language.*target_language"):
        model.between()
    with pytest.raises(UserError, match="no such code"):
        model.between("de", "xx")


def test_between_equals_explicit_languages(make: Make) -> None:
    model = make("m2m", None, {"max_length": 8})
    told = model.translate(["a b"], source_language="de", target_language="fr")
    assert model.between("de", "fr").translate(["a b"]) == told != model.translate(["a b"])
