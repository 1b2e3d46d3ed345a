"""A file that declares its languages gets this one from a model of several, or an error; memories of several languages
are refused."""

import json
import re
import shutil
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import headwise
from headwise.cli import main
from headwise.cli.pivot import followed_by
from headwise.config.data import TranslationData
from headwise.config.model import TransformerConfig
from headwise.config.settings import RunConfig, SearchSettings
from headwise.core.build import parameters_of
from headwise.documents.memory import memories_as_tsv
from headwise.documents.reading import parse_document
from headwise.documents.segment_memory import read_segment_memory
from headwise.documents.unit import plain
from headwise.errors import UserError
from headwise.pytorch.architectures.registry import build_network
from headwise.pytorch.tasks.job import TrainRequest
from headwise.pytorch.tasks.parallel_text import with_memories
from headwise.runtime.checkpoint.trained import write_settings, write_weights
from headwise.serve.files import parse_upload
from headwise.text.files.corpus import Corpus
from headwise.text.files.file_checks import check_file_language, declaration_warnings, parse_pairs
from headwise.text.language_codes import LANGUAGE_NAMES, contradicts, document_language, language_pair_in
from headwise.text.tokens.tokenizer import Tokenizer

TEXT, TAGS = "A dog", ("<2de>", "<2fr>", "<2pt_BR>")
SHAPE: Any = {"d_model": 16, "d_ff": 24, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "max_len": 40}
TERMS = {"fr": "chien", "en": "dog"}
FILES = {
    "a.xlf": '<xliff version="1.2"><file source-language="en" target-language="@"><body><trans-unit id="1"><source>'
    "A dog</source></trans-unit></body></file></xliff>",
    "c.xlf": '<xliff version="1.2"><file source-language="en"><body><trans-unit id="1"><source>A dog</source>'
    '<target xml:lang="@" state="new"></target></trans-unit></body></file></xliff>',
    "b.xliff": '<xliff version="2.0" srcLang="en" trgLang="@"><file id="f"><unit id="1"><segment><source>A dog</source>'
    "</segment></unit></file></xliff>",
    "a.ts": '<TS version="2.1" sourcelanguage="en" language="@"><context><message><source>A dog</source>'
    '<translation type="unfinished"></translation></message></context></TS>',
    "a.po": 'msgid ""\nmsgstr ""\n"Language: @\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "A dog"\n'
    'msgstr ""\n',
    "b.po": 'msgid ""\nmsgstr ""\n"X-Source-Language: en\\n"\n"Language: @\\n"\n\nmsgid "A dog"\nmsgstr ""\n',
    "a.tmx": '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>A dog</seg></tuv></tu><tu>'
    '<tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="@"><seg>b</seg></tuv></tu></body></tmx>',
}


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def write_model(path: Path, tags: tuple[str, ...], **about: Any) -> None:
    tokenizer = Tokenizer.train(["A dog runs."] * 3, TranslationData(vocab_size=280), tags)
    shape = TransformerConfig(vocab_size=tokenizer.vocab_size, tied_embeddings="none", **SHAPE)
    torch.manual_seed(5)
    network = build_network(shape).eval()
    with torch.no_grad():  # far from uniform, so that the languages differ
        network.output.weight *= 9
    write_settings(path, RunConfig(model=shape, decode=SearchSettings(beam_size=1)), tokenizer, about)
    write_weights(path, parameters_of(network), "# A model\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_model(folder / "several", TAGS)
    for name in ("plain", "fr-it", "it-fr", "en-fr"):
        write_model(folder / name, ())
    return folder


@pytest.fixture
def translate(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """Fills a file with the command; returns its first text, or the complaint."""

    def run(name: str, declared: str, *options: str, model: str = "several") -> str:
        file, out = tmp_path / name, tmp_path / f"out{Path(name).suffix}"
        out.unlink(missing_ok=True)
        file.write_text(FILES[name].replace("@", declared), encoding="utf-8")
        code = main(["translate", str(folder / model), str(file), "-o", str(out), "--device", "cpu", *options])
        complaint = capsys.readouterr().err
        assert (code, out.exists()) in ((0, True), (2, False)), complaint
        assert code == 0 or (complaint.count("\n") == 1 and name in complaint)
        return complaint if code else letters(plain(parse_document(str(out), out.read_bytes()).units[0].target))

    yield run


@pytest.mark.parametrize("name", FILES)
def test_the_declared_language_chooses_the_target(name: str, folder: Path, translate: Any) -> None:
    model = headwise.load(folder / "several", device="cpu")
    wanted = {code: letters(model.translate([TEXT], target_language=code)[0].text) for code in ("de", "fr", "pt_BR")}
    assert len({*wanted.values()}) == 3
    for declared, code in {"fr": "fr", "de": "de", "fr-CA": "fr", "pt-BR": "pt_BR", "pt": "pt_BR"}.items():
        assert translate(name, declared) == wanted[code]
    assert translate(name, "fr", "--target-language", "fr") == wanted["fr"]
    if not name.endswith(".tmx"):  # which can have more languages
        complaint = translate(name, "fr", "--target-language", "de")
        assert "'fr'" in complaint and "'de'" in complaint
    complaint = translate(name, "it")
    assert "'it'" in complaint and "pt_BR" in complaint
    assert translate(name, "it", model="plain")  # which has one language, as far as it is known


@pytest.mark.parametrize("name", FILES)
def test_a_file_in_other_languages_than_the_model_is_refused(name: str, translate: Any) -> None:
    """Those of the command line hold, or else those of the model's name."""
    assert translate(name, "fr-CA", model="en-fr")
    complaint = translate(name, "it", model="en-fr")
    assert "line 1: its translations are in 'it'" in complaint and "'fr'" in complaint
    assert translate(name, "it", "--languages", "en-it", model="en-fr")
    if name != "a.po":  # which declares no source language
        for options in (("--languages", "de-fr"), ("--source-language", "deu_Latn")):
            complaint = translate(name, "fr", *options, model="plain")
            assert "'en'" in complaint or "en, fr" in complaint
            assert "'de'" in complaint
        complaint = translate(name, "fr", model="it-fr")
        assert "line 1: its texts are in 'en'" in complaint and "'it'" in complaint


def test_glossaries_and_memories_are_read_in_the_languages_of_the_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of its folder if no others are given: a file of terms does not say in which direction it is read."""
    sides = [f'<langSet xml:lang="{code}"><tig><term>{term}</term></tig></langSet>' for code, term in TERMS.items()]
    (tmp_path / "terms.tbx").write_text(f"<martif><termEntry>{''.join(sides)}</termEntry></martif>", encoding="utf-8")
    (tmp_path / "terms.csv").write_text("fr-FR,en\nchien,dog\n", encoding="utf-8")
    (tmp_path / "a.txt").write_text(f"{TEXT}\n", encoding="utf-8")
    (tmp_path / "a.tmx").write_text(filled("a.tmx", "fr"), encoding="utf-8")
    run = ["translate", str(folder / "en-fr"), str(tmp_path / "a.txt"), "-o", str(tmp_path / "out"), "--device", "cpu"]
    for name in ("terms.tbx", "terms.csv"):
        assert main([*run, "--glossary", str(tmp_path / name)]) == 0
        assert "1 of 1 required terms" in capsys.readouterr().err and "chien" in (tmp_path / "out").read_text()
        other = str(folder / "fr-it")
        assert main(["translate", other, *run[2:], "--glossary", str(tmp_path / name)]) == 2
        assert "'it'" in capsys.readouterr().err
    model = headwise.load(folder / "en-fr", device="cpu")
    for name in ("terms.tbx", "terms.csv"):
        assert "chien" in model.translate([TEXT], glossary=tmp_path / name)[0].text
    assert main([*run, "--memory", str(tmp_path / "a.tmx")]) == 0
    for wrong, complaint in (("it-fr", "no text in 'it'"), ("fr-it", "no text in 'it'")):
        assert main(["translate", str(folder / wrong), *run[2:], "--memory", str(tmp_path / "a.tmx")]) == 2
        assert complaint in capsys.readouterr().err
        assert main(["evaluate", str(folder / wrong), "--source", str(tmp_path / "a.tmx"), "--device", "cpu"]) == 2
        assert complaint in capsys.readouterr().err


def test_a_filled_file_declares_the_target_language(folder: Path, tmp_path: Path) -> None:
    pages = {
        "a.html": '<html lang="en"><p>A dog</p>',
        "a.arb": '{"@@locale": "en", "a": "A dog"}',
        "a.yml": "en:\n  a: A dog\n",
        "a.xlf": FILES["a.xlf"].replace(' target-language="@"', ""),
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        asked = ["translate", str(folder / "several"), str(tmp_path / name), "-o", str(tmp_path / f"out-{name}")]
        assert main([*asked, "--target-language", "pt_BR", "--device", "cpu"]) == 0
        declared = {"a.html": 'lang="pt"', "a.arb": '"@@locale": "pt"', "a.yml": "pt:", "a.xlf": 'target-language="pt"'}
        assert declared[name] in (tmp_path / f"out-{name}").read_text(encoding="utf-8")


def test_a_filled_file_of_flutter_declares_its_language() -> None:
    page = b'{\n  "@@locale": "en",\n  "a": "A dog"\n}\n'
    document = parse_document("app.arb", page, ("en", "pt-BR"))
    assert document.filled({0: ("C\u00e3o",)}).decode() == '{\n  "@@locale": "pt_BR",\n  "a": "C\u00e3o"\n}\n'
    assert document.filled({}) == page
    for languages in (("", ""), ("de", "en"), ("de", "en_GB")):
        assert b'"@@locale": "en"' in parse_document("app.arb", page, languages).filled({0: ("x",)})


def test_a_contradiction_is_of_codes_that_can_be_compared() -> None:
    for one, other in (
        ("fr", "fra_Latn"),
        ("sr@latin", "sr"),
        ("he", "heb_Hebr"),
        ("iw", "he"),
        ("nb_NO", "no"),
        ("zh", ""),
        ("en-US", "en_XX"),
        ("und", "deu"),
        ("fil", "tl"),
        ("hr", "hbs_Latn"),
        ("yue_Hant", "zh-TW"),
        ("ig", "ibo_Latn"),
    ):
        assert not contradicts(one, other)
        assert not contradicts(other, one)
    assert contradicts("pcm", "en-NG") and contradicts("de", "gsw_Latn") and contradicts("hsb", "pl")


CODES = st.sampled_from(["en", "de", "de-AT", "de_DE", "fr", "fra", "pt-BR", "pt", "zh-Hans", "zho_Hant", "und", "x-a"])


@given(source=CODES, target=CODES, languages=st.tuples(CODES | st.just(""), CODES | st.just("")))
def test_what_a_file_declares_is_compared_with_what_is_wanted(source: str, target: str, languages: Any) -> None:
    """In every format that declares languages; a translation memory has texts in several, of which it takes those."""
    for name, text in FILES.items():
        data = text.replace('"en"', f'"{source}"').replace("-Language: en", f"-Language: {source}").replace("@", target)
        declared = (source if name != "a.po" else "", target)
        if name == "a.tmx":
            continue
        clash = any(a and b and contradicts(a, b) for a, b in zip(declared, languages, strict=True))
        try:
            parse_document(name, data.encode(), languages)
            refused = False
        except UserError as error:
            assert re.match(rf"{name}: line \d+: its (texts|translations) are in '", str(error))
            refused = True
        assert refused == clash


def test_a_file_with_parts_in_several_languages_is_refused() -> None:
    parts = [FILES["a.xlf"].replace("@", code).partition("<file")[2].partition("</xliff>")[0] for code in ("de", "fr")]
    for declared, complaint in (("fr", "'fr', as it declares, and others in 'de'"), ("de-AT", "")):
        data = f'<xliff version="1.2"><file{parts[0]}\n<file{parts[1].replace("fr", declared)}</xliff>'.encode()
        if complaint:
            with pytest.raises(UserError, match=f"a.xlf: line 2: .*{complaint}; split it"):
                parse_document("a.xlf", data)
        else:
            assert len(parse_document("a.xlf", data).units) == 2


def filled(name: str, target: str) -> str:
    """One of the files, with a translation."""
    text = FILES[name].replace("@", target)
    for empty, full in (
        ("</source></trans-unit>", "</source><target>Ein Hund</target></trans-unit>"),
        ("</source></segment>", "</source><target>Ein Hund</target></segment>"),
        ('msgstr ""\n', 'msgstr "Ein Hund"\n'),
    ):
        before, found, after = text.rpartition(empty)
        text = before + (full if found else "") + after
    return text


def test_memories_of_several_languages_are_refused(tmp_path: Path) -> None:
    """Of one command, and of a folder such as that of a program with a catalogue for each language."""
    for code in ("de", "fr"):
        for name in ("a.po", "a.xlf", "a.tmx"):
            (tmp_path / code).mkdir(exist_ok=True)
            (tmp_path / code / name).write_text(filled(name, code), encoding="utf-8")
    german = [str(tmp_path / "de" / name) for name in ("a.po", "a.xlf", "a.tmx")]
    _, report = memories_as_tsv(german)
    assert (report.kept, report.languages) == (2, ("en", "de"))
    assert memories_as_tsv([str(tmp_path / "de" / "a.po")])[1].languages == ("", "de")
    assert memories_as_tsv(german, ("en-GB", "de-DE"))[1].languages == ("en-GB", "de-DE")
    for read in (memories_as_tsv, read_segment_memory):
        for name in ("a.po", "a.xlf"):
            with pytest.raises(UserError, match=f"fr/{name}: line 1: its translations are in 'fr', .* not in 'de'"):
                read([german[0], str(tmp_path / "fr" / name)])
            with pytest.raises(UserError, match=f"fr/{name}: line 1: its translations are in 'fr', .* not in 'de'"):
                read([str(tmp_path / "fr" / name)], ("en", "de"))
    with pytest.raises(UserError, match=r"fr/a\.po: .*'fr', as it declares, not in 'de'"):
        memories_as_tsv([str(tmp_path)])


def test_a_model_keeps_the_languages_that_its_memories_declare(tmp_path: Path) -> None:
    (tmp_path / "a.xlf").write_text(filled("a.xlf", "de"), encoding="utf-8")
    (tmp_path / "b.po").write_text(filled("a.po", "fr"), encoding="utf-8")
    request = TrainRequest("tiny", [str(tmp_path / "a.xlf")], [str(tmp_path / "a.xlf")], "out", show=False)
    assert with_memories(request).languages == ("en", "de")
    assert with_memories(replace(request, languages=("en-GB", "de-AT"))).languages == ("en-GB", "de-AT")
    with pytest.raises(UserError, match=r"b\.po.*'fr'.*'de'"):  # the validation pairs are of another language
        with_memories(replace(request, valid=[str(tmp_path / "b.po")]))
    alone = with_memories(replace(request, train=[str(tmp_path / "b.po")], valid=[str(tmp_path / "b.po")]))
    assert alone.languages == ("", "")


def test_the_server_refuses_a_file_in_another_language() -> None:
    for name, text in FILES.items():
        parse_upload(name, text.replace("@", "fr").encode(), ("en", "fr"), 1000)
        if not name.endswith(".tmx"):  # which can have more languages
            with pytest.raises(UserError, match=f"{name}.*'fr'.*'de'"):
                parse_upload(name, text.replace("@", "fr").encode(), ("en", "de"), 1000)
    parse_upload("a.pot", FILES["a.po"].replace("@", "en").encode(), ("en", "de"), 1000)


def test_the_first_of_two_models_writes_what_the_second_reads(folder: Path, tmp_path: Path) -> None:
    first = headwise.load(folder / "several", device="cpu")

    def joined(then: str, text: str = "A dog", model: Any = first) -> Any:
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        options = {"then": str(folder / then), "model": "several", "input": str(tmp_path / "a.txt")}
        given = {"device": "cpu", "compute": None, "command": "translate", "ray": None}
        return followed_by(model, Namespace(**options, **given, source_language="", target_language=""))

    assert joined("fr-it").first.target_language == "fr"
    for then, what in (("it-fr", "'it'"), ("plain", "unknown")):
        with pytest.raises(UserError, match=rf"{then}.*{what}.*pt_BR|{then} translates from it.*{what}.*pt_BR"):
            joined(then)
    assert joined("it-fr", "<2de> A dog").first is first  # the texts choose
    plain_one = headwise.load(folder / "plain", device="cpu")
    assert joined("it-fr", model=plain_one).first is plain_one


@given(code=CODES, wanted=CODES | st.just(""), ending=st.sampled_from(["", ".gz", ".txt", ".txt.gz"]))
def test_the_name_of_a_text_is_compared_with_what_is_wanted(code: str, wanted: str, ending: str) -> None:
    clash = code not in ("und", "x-a") and contradicts(code, wanted)
    for side, is_target in (("source", False), ("target", True)):
        refused = ""
        try:
            check_file_language("--text", f"a/news.{code}{ending}", wanted, is_target)
        except UserError as error:
            refused = str(error)
        what = f"--text a/news.{code}{ending}: is in '{code}' by its name, but the {side} language is '{wanted}'; "
        assert refused.startswith(what) if clash else not refused


def test_names_that_name_no_language() -> None:
    for name in ("a.src", "a.tgt", "a.tok", "a.py", "a", "-", "/dev/fd/63", "a.de.bpe", "und.und"):
        check_file_language("--text", name, "en")
    check_file_language("--source", "a.sl", "en")  # source and target language, not Slovenian and Tagalog
    check_file_language("--target", "a.tl", "de", is_target=True)
    assert language_pair_in(["a.sl", "a.tl"], []) is None
    assert language_pair_in(["hf:x?src=en&tgt=de"], []) == ("en", "de") and language_pair_in(["hf:x"], []) is None
    parse_pairs("--train", ["hf:x?src=en&tgt=de_DE", "hf:x"], ("eng", "de"))
    with pytest.raises(UserError, match=r"--train hf:x\?src=de&tgt=en: is in 'de' by its name, .* language is 'en'"):
        parse_pairs("--train", ["hf:x?src=de&tgt=en"], ("en", "de"))
    assert language_pair_in(["a.eng_Latn.txt", "a.pt_BR.gz"], []) == ("en", "pt")


def test_every_command_reads_texts_in_the_languages_of_their_names(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for code in ("en", "fr"):
        Path(f"a.{code}").write_text("".join(f"{TEXT} {n}\n" for n in range(20)), encoding="utf-8")
    Path("terms.tsv").write_text("dog\tchien\n", encoding="utf-8")
    model, pair = str(folder / "en-fr"), ["--languages", "en-fr"]
    sides, cpu = ["--source", "a.en", "--target", "a.fr"], ["--device", "cpu"]
    commands = {
        "translate": [model, "a.en", "-o", "out.txt", *cpu],
        "translate --sentences": [model, "a.en", "--sentences", "-o", "out.txt", *cpu],
        "evaluate": [model, "--source", "a.en", "--reference", "a.fr", *cpu],
        "evaluate --hypothesis": ["--hypothesis", "a.fr", "--reference", "a.fr", *pair],
        "score": [model, *sides, "-o", "out.jsonl", *cpu],
        "align": [model, *sides, "-o", "out.txt", *cpu],
        "backtranslate": [model, "--text", "a.en", "-o", "out.tsv", *cpu],
        "distill": [model, "--train", "a.en", "a.fr", "-o", "out.tsv", *cpu],
        "annotate": ["--train", "a.en", "a.fr", "--glossary", "terms.tsv", "-o", "out.tsv", *pair],
        "shortlist": [str(shutil.copytree(model, "copy/en-fr")), "--train", "a.en", "a.fr"],
        "check-corpus": ["a.en", "a.fr", *pair],
        "split": ["a.en", "a.fr", *pair, "--valid", "2pairs", "--out", "parts"],
        "train": [*("--recipe", "demo", "--train", "a.en", "a.fr", "--valid", "5pairs", "--out", "model", *pair)],
        "tune": [model, "--train", "a.en", "a.fr", "--out", "tuned", *pair],
    }
    swapped = {"a.en": "a.fr", "a.fr": "a.en"}
    for command, options in commands.items():
        wrong = [command.split()[0], *(swapped.get(option, option) for option in options)]
        assert main(wrong) == 2, command
        complaint = capsys.readouterr().err
        assert "by its name, but the" in complaint and complaint.count("\n") == 1, command
        if command.split()[0] not in ("train", "tune"):
            assert main([command.split()[0], *options]) == 0, (command, capsys.readouterr().err)
            capsys.readouterr()
    assert not Path("model").exists() and not Path("tuned").exists()
    assert main(["translate", model, "a.fr", "--languages", "fr-en", "-o", "out.txt", *cpu]) == 0


def test_models_of_other_languages_do_not_work_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In an ensemble, as the second of two models, and for word links in the opposite direction."""
    en_fr, it_fr, fr_it, plain = (headwise.load(folder / name, "cpu") for name in ("en-fr", "it-fr", "fr-it", "plain"))
    assert headwise.load([folder / "en-fr", folder / "plain"], "cpu").translate([TEXT])
    with pytest.raises(UserError, match=r"it-fr: translates from it to fr, and .*en-fr from en to fr; an ensemble"):
        headwise.load([folder / "en-fr", folder / "it-fr"], "cpu")
    for reverse in (fr_it, plain):
        assert it_fr.align([TEXT], [TEXT], reverse=reverse) and plain.align([TEXT], [TEXT], reverse=reverse)
    with pytest.raises(UserError, match=r"reverse: .*fr-it translates from fr to it, .* not the opposite of en to fr"):
        en_fr.align([TEXT], [TEXT], reverse=fr_it)
    (folder / "b.txt").write_text(TEXT, encoding="utf-8")
    command = ["translate", str(folder / "en-fr"), str(folder / "b.txt"), "--device", "cpu", "--then"]
    assert main([*command, str(folder / "fr-it")]) == 0 and main([*command, str(folder / "plain")]) == 0
    capsys.readouterr()
    assert main([*command, str(folder / "it-fr")]) == 2
    assert "it-fr translates from it, but " in (complaint := capsys.readouterr().err) and "into fr" in complaint


@pytest.mark.parametrize(
    "cells", ["en\tfr", "English\tFrench", "eng\tpcm", "eng_Latn\tfra_Latn", "English text\tFrench (Canada)"]
)
def test_the_header_of_a_table_is_compared_with_the_languages(
    cells: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "a.tsv", tmp_path / "out.jsonl"
    table.write_text(f"{cells}\n" + "".join(f"{TEXT} {n}\tun {n}\n" for n in range(20)), encoding="utf-8")
    assert main(["score", str(folder / "en-fr"), "--source", str(table), "-o", str(out), "--device", "cpu"]) == 0
    assert f"a.tsv: line 1 ({cells.replace(chr(9), ' TAB ')}) looks like a header" in capsys.readouterr().err
    files = ["--train", str(table), "--valid", "5pairs", "--out", str(tmp_path / "model")]
    for command in (
        ["score", str(folder / "fr-it"), "--source", str(table), "-o", str(out), "--device", "cpu"],
        ["train", "--recipe", "demo", *files, "--languages", "fr-en"],
    ):
        assert main(command) == 2
        complaint = capsys.readouterr().err
        assert "a.tsv: line 1: its source column is '" in complaint and "the source language is 'fr'" in complaint
    assert not (tmp_path / "model").exists()


def test_commands_that_take_training_files_read_them_as_training_does(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translation memories give the same as a table of their pairs; headers and memories must have the languages."""
    monkeypatch.chdir(tmp_path)
    texts = [(f"{TEXT} {n}", f"un {n}") for n in range(20)]
    table = "".join(f"{source}\t{target}\n" for source, target in texts)
    for name, rows in (("a", table), ("header", f"en\tfr\n{table}"), ("other", f"it\tfr\n{table}"), ("terms", "a\tun")):
        Path(f"{name}.tsv").write_text(rows, encoding="utf-8")
    for code in ("en", "it"):
        units = "".join(
            f'<tu><tuv xml:lang="{code}"><seg>{source}</seg></tuv><tuv xml:lang="fr"><seg>{target}</seg></tuv></tu>'
            for source, target in texts
        )
        memory = f'<tmx version="1.4"><header srclang="{code}"/><body>{units}</body></tmx>'
        Path("a.tmx" if code == "en" else "other.tmx").write_text(memory, encoding="utf-8")
    model, pair, cpu = str(folder / "en-fr"), ["--languages", "en-fr"], ["--device", "cpu"]
    shortlisting = str(shutil.copytree(model, "copy/en-fr"))
    commands: dict[str, tuple[list[str], str]] = {
        "annotate": (["--train", "FILE", "--glossary", "terms.tsv", "-o", "annotated.tsv", *pair], "annotated.tsv"),
        "distill": ([model, "--train", "FILE", "-o", "distilled.tsv", *cpu], "distilled.tsv"),
        "shortlist": ([shortlisting, "--train", "FILE"], "copy/en-fr/shortlist.safetensors"),
        "split": (["FILE", *pair, "--valid", "5pairs", "--out", "parts"], "parts"),
        "score": ([model, "--source", "FILE", "-o", "scores.jsonl", *cpu], "scores.jsonl"),
        "check-corpus": (["FILE", *pair], "nothing"),
    }

    def run(command: str, file: str) -> tuple[int, str, dict[str, bytes]]:
        options, written = commands[command]
        code = main([command, *(file if one == "FILE" else one for one in options)])
        files = [path for path in Path(written).rglob("*") if path.is_file()] or [Path(written)]
        contents = {path.name: path.read_bytes() for path in files if path.is_file()}
        if written == "parts":
            shutil.rmtree(written, ignore_errors=True)
        return code, capsys.readouterr().err, contents

    for command in commands:
        of_table, of_memory = run(command, "a.tsv"), run(command, "a.tmx")
        assert (of_table[0], of_memory[0]) == (0, 0), (command, of_memory)
        assert of_memory[2] == of_table[2] and any(of_table[2].values()) == (command != "check-corpus"), command
        assert "a.tmx: 20 units: 20 pairs" in of_memory[1], command
        code, warning, _ = run(command, "header.tsv")
        assert code == 0 and ("looks like a header" in warning or command == "check-corpus"), command
        for file, what in (("other.tsv", "line 1: its source column is 'it'"), ("other.tmx", "no text in 'en'")):
            code, complaint, _ = run(command, file)
            assert code == 2 and what in complaint and complaint.count("\n") == 1, (command, complaint)


@given(code=CODES, wanted=CODES | st.just(""), side=st.sampled_from(["source", "target"]), data=st.data())
def test_fields_of_a_jsonl_file_are_compared_with_the_languages(
    code: str, wanted: str, side: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Names of fields as datasets have them; the pair field has both codes."""
    code = code.replace("-", "_")  # the pair has one hyphen
    known = code not in ("und", "x_a") and document_language(code) in LANGUAGE_NAMES
    prefix = data.draw(st.sampled_from({"source": ["src", "source"], "target": ["tgt", "trg", "target"]}[side]))
    name = data.draw(st.sampled_from(["{}_lang", "{}Lang", "{}-language", "{}_language_code", "{}.lang"])).format(
        prefix
    )
    pair = f"{code}-xx" if side == "source" else f"xx-{code}"
    field, value = data.draw(st.sampled_from([(name, code), ("lp", pair), ("language_pair", pair)]))
    path = tmp_path_factory.mktemp("fields") / "a.jsonl"
    lines = [{"src": "a", "tgt": "b"}, {"src": "a", "tgt": "b", field: value, "score": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    corpus, languages = Corpus((str(path),)), (wanted, "") if side == "source" else ("", wanted)
    if known and contradicts(code, wanted):
        what = f"--train {path}: line 2: '{field}' is '{value}', but the {side} language is '{wanted}'; choose files"
        with pytest.raises(UserError, match=re.escape(what)):
            list(declaration_warnings("--train", corpus, [("a", "b")], languages))
        return
    unread = "'score'" if known else f"'{field}', 'score'"
    assert list(declaration_warnings("--train", corpus, [("a", "b")], languages)) == [
        f'--train {path}: only "src" and "tgt" are read, not {unread}'
    ]


@pytest.mark.parametrize(("ending", "declared"), [(".tsv", "en\tfr\n"), (".jsonl", "")])
def test_the_declarations_of_shards_are_read(
    ending: str, declared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first shard that is not empty; the validation pairs are checked as those of other trainings."""
    monkeypatch.chdir(tmp_path)
    pairs = [{"src": f"{TEXT} {n}", "tgt": f"un {n}", "src_lang": "en"} for n in range(20)]
    rows = (json.dumps(one) if ending == ".jsonl" else f"{one['src']}\t{one['tgt']}" for one in pairs)
    Path(f"0{ending}").write_text("", encoding="utf-8")
    Path(f"1{ending}").write_text(declared + "\n".join(rows) + "\n", encoding="utf-8")
    Path("v.tsv").write_text(f"{TEXT}\tun\n" * 5, encoding="utf-8")
    for code in ("en", "fr"):
        Path(f"v.{code}").write_text(f"{TEXT}\n" * 5, encoding="utf-8")
    for languages, valid, what in (
        ("de-fr", ["v.tsv"], f"1{ending}: line 1: "),
        ("en-fr", ["v.fr", "v.en"], "--valid v.fr: is in 'fr' by its name"),
    ):
        files = ["--train", f"stream:?{ending}", "--valid", *valid, "--out", "model", "--languages", languages]
        assert main(["train", "--recipe", "demo", "--set", "train.max_steps=1", *files]) == 2
        assert what in (complaint := capsys.readouterr().err), complaint
    assert not Path("model").exists()
