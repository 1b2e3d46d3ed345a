"""A claim's fingerprint changes with the code of its measurement, and with nothing else."""

import ast
from collections.abc import Iterator

import pytest

from headwise.lab.study import fingerprint as prints
from headwise.lab.study.claims import CLAIMS
from headwise.lab.study.fingerprint import definitions, fingerprint_of

CACHES = (prints._of_module, prints._tree, prints._top_level, prints._imported)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Trees are read anew before and after a test that changes them."""
    for cache in CACHES:
        cache.cache_clear()
    yield
    for cache in CACHES:
        cache.cache_clear()


def change(module: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a module with another text."""
    read = prints._source

    def source(name: str) -> str:
        text = read(name)
        if name == module:
            assert old in text
            return text.replace(old, new)
        return text

    monkeypatch.setattr(prints, "_source", source)
    for cache in CACHES:
        cache.cache_clear()


def changed_claims(module: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    before = {name: fingerprint_of(claim) for name, claim in CLAIMS.items()}
    change(module, old, new, monkeypatch)
    return {name for name, claim in CLAIMS.items() if fingerprint_of(claim) != before[name]}


def test_a_change_of_the_network_counts_for_the_claims_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = changed_claims("core.attention", "q.size(-1) ** -0.5, mask)", "q.size(-1) ** -0.4, mask)", monkeypatch)
    assert changed == {"scaled-dot-product", "layer-cost", "operations"}  # the others use the fused kernel


@pytest.mark.thorough
def test_a_change_of_what_every_transformer_uses_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = changed_claims("core.attention", "return x.transpose(1, 2).flatten(2)", "return x", monkeypatch)
    assert {"translation", "distance", "heads", "warmup", "interpretability", "order", "operations"} <= changed
    assert not {"gradients", "scaled-dot-product"} & changed


@pytest.mark.thorough
def test_a_change_of_a_measurement_counts_for_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_claims("lab.study.gradients", "sample_sequences(256,", "sample_sequences(255,", monkeypatch) == {
        "gradients"
    }


@pytest.mark.thorough
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def measure(", "# A comment.\n\n\ndef measure("),
        ('"""Gradient norms by distance;', '"""Norms of gradients by distance;'),
        ("Panel(", "Panel2("),
        ("MARGIN = 0.1", "MARGIN = 0.2"),
        ("cost=30.0", "cost=31.0"),
    ],
)
def test_text_figures_and_thresholds_do_not_count(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_claims("lab.study.gradients", old, new, monkeypatch) == set()


def test_the_config_that_a_network_keeps_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed_claims("core.build", "network.config = c", "network.config = None", monkeypatch) == set()


def test_names_are_followed_through_imports() -> None:
    found = definitions(("lab.study.scaled_dot_product", "measure"))
    assert ("core.attention", "scaled_dot_product_attention") in found
    assert ("core.attention", "masked_softmax") in found
    assert ("core.attention", "MultiHeadAttention") not in found


def test_the_tree_as_text_has_no_empty_fields() -> None:
    assert (
        prints._dump(ast.parse("f(1)"))
        == "Module(body=[Expr(value=Call(func=Name(id='f'), args=[Constant(value=1)]))])"
    )
    assert (
        prints._dump(ast.parse("x = ''")) == "Module(body=[Assign(targets=[Name(id='x')], value=Constant(value=''))])"
    )


def test_every_experiment_has_its_own_and_claims_share_it() -> None:
    experiments = {claim.measure.__module__ for claim in CLAIMS.values()}
    assert len({fingerprint_of(claim) for claim in CLAIMS.values()}) == len(experiments) < len(CLAIMS)
    assert fingerprint_of(CLAIMS["translation"]) == fingerprint_of(CLAIMS["heads"])
