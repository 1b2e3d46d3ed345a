"""What is kept of a run's translations belongs to the model that made them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headwise.config.settings import SearchSettings
from headwise.errors import UserError
from headwise.lab.results.hypotheses import EvaluationSet, Hypotheses, describe_decoding
from headwise.runtime.search.translator import Translation

TEXTS = EvaluationSet("news", ["a", "b"], [["a", "b"]])


class Echo:
    """Gives back what it gets; `then` happens meanwhile."""

    def __init__(self, then: Any = lambda: None) -> None:
        self.decode_config = SearchSettings()
        self.then = then

    def settings(self, **overrides: Any) -> SearchSettings:
        return replace(self.decode_config, **overrides)

    def translate(self, texts: Sequence[str], prefix: str = "", **overrides: Any) -> list[Translation]:
        self.then()
        return [Translation(f"{text}\r\u2028", 0.0, 0.0, [], [], [], 1) for text in texts]


@pytest.fixture
def run(make_run: Any) -> Any:
    run = make_run("a")
    for name in ("model.safetensors", "tokenizer.json"):
        (run.path / name).write_text("one", encoding="utf-8")
    return run


def of(run: Any, monkeypatch: pytest.MonkeyPatch, model: Echo, **overrides: Any) -> list[str]:
    monkeypatch.setattr("headwise.lab.results.hypotheses.load_translator", lambda *_: model)
    return Hypotheses(run, "cpu", overrides, lambda _: None).of(TEXTS)


def test_lines_are_kept_as_they_are(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    first = of(run, monkeypatch, Echo())
    assert first == ["a\r\u2028", "b\r\u2028"]
    assert of(run, monkeypatch, Echo(lambda: pytest.fail("translated again"))) == first


def test_a_model_that_changes_meanwhile_leaves_nothing(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    changing = Echo(lambda: (run.path / "model.safetensors").write_text("two", encoding="utf-8"))
    with pytest.raises(UserError, match="its model changed meanwhile"):
        of(run, monkeypatch, changing)
    assert not (run.path / "hypotheses").exists()


def test_how_runs_were_decoded_is_said_once_where_it_is_the_same(run: Any, make_run: Any) -> None:
    both = {"a": Hypotheses(run, "cpu", {}, print), "b": Hypotheses(make_run("b"), "cpu", {}, print)}
    assert describe_decoding(both) == ["beam 4, length penalty 0.6"]
    both["b"] = Hypotheses(make_run("c"), "cpu", {"beam_size": 1}, print)
    assert describe_decoding(both) == ["a: beam 4, length penalty 0.6", "b: beam 1, length penalty 0.6"]
