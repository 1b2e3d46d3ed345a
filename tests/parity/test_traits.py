"""The traits of families are those of `transformers`: classes of tokenizers and of heads."""

import pytest

from headwise.families.registry import FAMILIES, OTHERS, traits_of

pytest.importorskip("transformers")
KINDS = [*FAMILIES, *OTHERS]


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokenizer_of_a_family(kind: str) -> None:
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    there = TOKENIZER_MAPPING_NAMES.get(kind)
    assert traits_of(kind).tokenizer == ("" if there == "TokenizersBackend" else there)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if traits_of(kind).head_classes])
def test_the_classes_of_a_family_with_heads(kind: str) -> None:
    from transformers.models.auto import modeling_auto

    pictures = kind in ("deit", "vit")
    mapping = (
        modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
        if pictures
        else (modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES)
    )
    there = mapping[kind]
    name = f"{traits_of(kind).head_classes}For{'Image' if pictures else 'Sequence'}Classification"
    assert name in (there if isinstance(there, tuple) else (there,))


def test_an_unknown_family_has_the_defaults() -> None:
    assert traits_of(None).tokenizer is None and traits_of("new").dropout.paper == 0.1
