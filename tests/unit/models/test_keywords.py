"""What a keyword argument means does not depend on who trained the model: one trained here, and a pretrained Marian."""

import dataclasses
import inspect
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from tiny_families import write_tiny
from unit.checkpoint.test_compiled import small_model

import headwise
from headwise.config.search_arguments import SearchArguments
from headwise.config.settings import ABSOLUTE, SETTINGS, SearchSettings
from headwise.errors import UserError
from headwise.models.translation.translator import Translator

TEXTS = ["a dog", "two men", ""]
TARGETS = ["ein Hund", "zwei", "nichts"]
SHORT = {"max_new_tokens": 6}
LANGUAGES = {"source_language", "target_language", "instruction"}


@pytest.fixture(params=["trained here", "pretrained"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Translator:
    if request.param == "pretrained":
        write_tiny(tmp_path / "model", "marian")
    else:
        small_model(tmp_path / "model")
    found: Any = headwise.load(tmp_path / "model", "cpu")
    assert type(found) is Translator
    return found


def text_of(model: Translator, **arguments: Any) -> list[str]:
    return [one.text for one in model.translate(TEXTS, **{**SHORT, **arguments})]


def test_both_have_the_same_arguments(model: Translator) -> None:
    """All are tried below; a new one needs a test of its own here."""
    named = {
        name: set(inspect.signature(getattr(model, name)).parameters) for name in ("translate", "stream", "evaluate")
    }
    assert named["translate"] == {"texts", "prefix", "draft", "glossary", *LANGUAGES, "settings"}
    assert named["stream"] == {"text", "prefix", "draft", "glossary", *LANGUAGES, "settings"}
    assert named["evaluate"] == {"sources", "references", "metrics", "tokenize", "multi30k", "arguments"}
    tried = {"beam_size", "n_best", "length_penalty", "early_stopping", "max_length_factor", "max_length_extra"}
    tried |= {"min_length_factor", "min_length_extra", "no_repeat_ngram", "sample", "temperature", "top_k", "top_p"}
    tried |= {"repetition_penalty"}
    tried |= {"seed", "stop", "batch_size", "batch_tokens", "max_source_length", "shortlist", "draft_length", "compute"}
    assert {field.name for field in dataclasses.fields(SearchSettings)} == tried


def test_a_prefix_begins_every_output(model: Translator) -> None:
    for text in text_of(model, prefix="two")[:2]:
        assert text.startswith("two")
    streamed = "".join(model.stream(TEXTS[0], prefix="two", **SHORT))
    assert streamed == text_of(model, prefix="two", beam_size=1)[0]
    report = model.evaluate(TEXTS[:2], [TARGETS[:2]], prefix="two", metrics=["BLEU"], **SHORT)
    assert report.hypotheses == text_of(model, prefix="two")[:2]


def test_an_instruction_is_read_before_the_text(model: Translator) -> None:
    told = [f"say: {text}" for text in TEXTS[:2]]
    wanted = [one.text for one in model.translate(told, **SHORT)]
    assert text_of(model, instruction="say: ")[:2] == wanted
    assert "".join(model.stream(TEXTS[0], instruction="say: ", **SHORT)) == "".join(model.stream(told[0], **SHORT))
    report = model.evaluate(TEXTS[:2], [TARGETS[:2]], instruction="say: ", metrics=["BLEU"], **SHORT)
    assert report.hypotheses == wanted
    scores = model.score(TEXTS[:2], TARGETS[:2], instruction="say: ")
    assert [one.log_prob for one in scores] == [one.log_prob for one in model.score(told, TARGETS[:2])]


def test_an_unknown_language_is_an_error(model: Translator) -> None:
    calls: list[Any] = [
        lambda **given: model.translate(TEXTS, **given),
        lambda **given: list(model.stream(TEXTS[0], **given)),
        lambda **given: model.score(TEXTS[:2], TARGETS[:2], **given),
        lambda **given: model.align(TEXTS[:2], TARGETS[:2], **given),
        lambda **given: model.evaluate(TEXTS[:2], [TARGETS[:2]], **given),
        lambda **given: model.between(**given).translate(TEXTS),
    ]
    for call in calls:
        with pytest.raises(UserError, match="xx"):
            call(target_language="xx")


def test_a_draft_changes_nothing_but_the_time(model: Translator) -> None:
    greedy = text_of(model, beam_size=1)
    assert text_of(model, draft="input") == text_of(model, draft="input", draft_length=2) == greedy
    assert "".join(model.stream(TEXTS[0], draft="input", **SHORT)) == greedy[0]


def test_a_draft_from_a_translation_memory(model: Translator, tmp_path: Path) -> None:
    """A table of pairs, or a memory in XML: both propose the same tokens."""
    table, memory = tmp_path / "a.tsv", tmp_path / "a.tmx"
    table.write_text(f"{TEXTS[0]}\t{TARGETS[0]}\n", encoding="utf-8")
    sides = (f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in (("en", TEXTS[0]), ("de", TARGETS[0])))
    content = f'<tmx version="1.4"><header srclang="en"/><body><tu>{"".join(sides)}</tu></body></tmx>'
    memory.write_text(content, encoding="utf-8")
    expected, proposed = (model.draft(str(path)) for path in (table, memory))
    assert expected and proposed
    source = model._translator.tokenizer.source.encode(TEXTS[0])
    first = list(expected.start(source)([], 6))
    assert first and list(proposed.start(source)([], 6)) == first
    assert text_of(model, draft=str(memory)) == text_of(model, beam_size=1)


def test_a_draft_has_the_tokenizer_of_the_model(
    model: Translator, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    if request.node.callspec.params["model"] == "pretrained":
        small_model(other)
    else:
        write_tiny(other, "marian")
    with pytest.raises(UserError, match=r"other.*tokenizer"):
        model.translate(TEXTS, draft=str(other))


def test_a_glossary_is_kept_to(model: Translator) -> None:
    assert "men" in text_of(model, glossary=[("dog", "men")])[0]
    assert text_of(model, glossary=[("cat", "men")]) == text_of(model)
    with pytest.raises(UserError, match="glossary"):
        list(model.stream(TEXTS[0], glossary=[("dog", "men")]))


def test_lengths(model: Translator) -> None:
    for found in model.translate(TEXTS[:2], max_new_tokens=3, min_new_tokens=3):
        assert len(found.pieces) == 3
    for found in model.translate(TEXTS[:2], max_length_factor=0.0, max_length_extra=2):
        assert len(found.pieces) <= 2
    factor = {"min_length_factor": 0.0, "min_length_extra": 4, "max_length_factor": 0.0, "max_length_extra": 4}
    assert [len(found.pieces) for found in model.translate(TEXTS[:2], **factor)] == [4, 4]
    long = " ".join(["a dog"] * 20)
    assert model.translate([long], max_source_length=10, **SHORT)[0].parts > 1
    assert model.translate([long], max_source_length=0, **SHORT)[0].parts >= 1


def test_searches(model: Translator) -> None:
    several = model.translate(TEXTS[:2], n_best=3, **SHORT)
    assert [len(one.alternatives) for one in several] == [2, 2]
    assert [one.text for one in several] == text_of(model, beam_size=max(3, model.decode_config.beam_size))[:2]
    for settings in ({"early_stopping": True}, {"early_stopping": "never"}, {"length_penalty": 1.5}):
        assert len(text_of(model, beam_size=3, **settings)) == 3
    twice = model.translate(TEXTS[:2], no_repeat_ngram=1, max_new_tokens=8)
    assert all(len({*one.pieces}) == len(one.pieces) for one in twice)
    sampled = {"sample": True, "temperature": 2.0, "top_k": 40, "top_p": 0.9}
    assert text_of(model, seed=3, **sampled) == text_of(model, seed=3, **sampled) != text_of(model, seed=4, **sampled)
    whole = text_of(model)
    assert text_of(model, batch_size=1) == text_of(model, batch_tokens=16) == whole
    stop = whole[0][1:2] or "a"
    assert stop not in text_of(model, stop=[stop])[0]
    assert len(text_of(model, compute="int8")) == 3


@pytest.mark.parametrize(
    "settings",
    [{"beams": 2}, {"beam_size": 0}, {"temperature": 0.0}, {"n_best": 3, "beam_size": 2}, {"shortlist": True}],
)
def test_what_makes_no_sense_is_an_error(model: Translator, settings: dict[str, Any]) -> None:
    messages = []
    for call in (lambda: model.translate(TEXTS, **settings), lambda: model.evaluate(TEXTS, [TARGETS], **settings)):
        with pytest.raises(UserError) as raised:
            call()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_word_links_and_scores(model: Translator) -> None:
    links = model.align(TEXTS[:2], TARGETS[:2], head=model.alignment_head)
    assert links == model.align(TEXTS[:2], TARGETS[:2]) and all(links)
    both = model.align(TEXTS[:2], TARGETS[:2], reverse=model)
    assert len(both) == 2
    assert all(one.log_prob < 0 for one in model.score(TEXTS[:2], TARGETS[:2]))


def test_scores_of_several_metrics(model: Translator) -> None:
    report = model.evaluate(TEXTS[:2], [TARGETS[:2]], metrics=["BLEU", "chrF++"], tokenize="char", **SHORT)
    assert len(report.scores) == 2


def test_editors_know_the_settings_of_a_call() -> None:
    """Each field of `SearchSettings`, with its choices, and the lengths in tokens."""
    hints = get_type_hints(SearchArguments)
    assert hints.keys() == {*get_type_hints(SearchSettings), *ABSOLUTE}
    for name in ("early_stopping", "compute"):
        literals = [hint for hint in (hints[name], *get_args(hints[name])) if get_origin(hint) is Literal]
        assert get_args(literals[0]) == SETTINGS[f"decode.{name}"].choices
    for method in (Translator.translate, Translator.translate_lines, Translator.stream, Translator.generate):
        assert inspect.signature(method).parameters["settings"].annotation == "Unpack[SearchArguments]"
