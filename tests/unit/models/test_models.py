"""Methods of loaded models, and their commands."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_families import HEARING

import headwise
from headwise.cli import main
from headwise.errors import UserError
from headwise.models.encoding.encoder import MaskedModel
from headwise.models.language.language_model import LanguageModel
from headwise.models.language.output import decode_after
from headwise.models.model import refuse_single
from headwise.models.speech.speech_model import LibrarySpeech
from headwise.models.speech.transcribe import WindowEncoder, detect_language
from headwise.models.translation.translator import Translator
from headwise.pytorch.models.speech import TorchSpeech
from headwise.pytorch.models.vision import PictureClassifier
from headwise.runtime.checkpoint.compiled import described
from headwise.runtime.checkpoint.generation_config import generation_config
from headwise.runtime.native.library import library
from headwise.runtime.tokenizers.vocabulary import Vocabulary

Make = Callable[..., Any]

PROMPTS = ["Once upon", "a", "The old man", "it"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<user>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}:{% endif %}"
)


def test_model_classes(make: Make) -> None:
    kinds = {LanguageModel: "gpt2", Translator: "t5", MaskedModel: "bert", PictureClassifier: "vit"}
    for kind, name in kinds.items():
        assert type(make(name)) is kind


@pytest.mark.parametrize("settings", [{}, {"sample": True, "temperature": 2.0}, {"beam_size": 3}])
def test_outputs_do_not_depend_on_the_batch(make: Make, settings: dict[str, Any]) -> None:
    model = make("gpt2")
    together = model.generate(PROMPTS, max_new_tokens=12, **settings)
    alone = [model.generate([prompt], max_new_tokens=12, **settings)[0] for prompt in PROMPTS]
    assert [written.tokens for written in together] == [written.tokens for written in alone]
    assert all(len(written.tokens) <= 12 for written in together)


@pytest.mark.parametrize("settings", [{}, {"sample": True, "temperature": 2.0}])
def test_streaming_gives_the_same_output(make: Make, settings: dict[str, Any]) -> None:
    model = make("gpt2")
    for prompt in PROMPTS:
        pieces = list(model.stream(prompt, max_new_tokens=12, **settings))
        assert "".join(pieces) == model.generate([prompt], max_new_tokens=12, **settings)[0].text
        assert all(pieces)


def test_the_space_before_an_output_is_kept() -> None:
    """Some vocabularies drop the space before the first word of a text, but an output continues a text."""
    words = {1: "a", 2: "dog", 3: "runs"}
    vocabulary = Vocabulary(lambda text: [1, 2], lambda ids: " ".join(words[i] for i in ids), {}.get)
    assert decode_after(vocabulary, [1, 2])([3]) == " runs"


def test_several_samples_of_one_prompt(make: Make) -> None:
    """Best first, and independent of the batch."""
    model = make("gpt2")
    settings = {"sample": True, "temperature": 2.0, "n_best": 3, "max_new_tokens": 6}
    found = [[one, *one.alternatives] for one in model.generate(PROMPTS, **settings)]
    assert all(len({tuple(one.tokens) for one in ranked}) == 3 for ranked in found)
    assert all(ranked == sorted(ranked, key=lambda one: -one.score) for ranked in found)
    alone = model.generate(PROMPTS[2:3], **settings)[0]
    assert [one.tokens for one in found[2]] == [one.tokens for one in (alone, *alone.alternatives)]


def test_the_beam_is_at_least_n_best(make: Make) -> None:
    model = make("gpt2")
    (written,) = model.generate(["it"], n_best=3, max_new_tokens=4)
    assert len(written.alternatives) == 2
    with pytest.raises(UserError, match="n_best = 3 is more than beam_size = 2"):
        model.generate(["it"], n_best=3, beam_size=2)


def test_command_line_with_prefix_and_languages(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    model = make("t5", {"task_specific_params": {"translation_en_to_de": {"prefix": "to German: "}}})
    wishes = ["--prefix", "say: ", "--source-language", "en", "--target-language", "de", "--max-new-tokens", "4"]
    for more in ([], ["--beam-size", "2"], ["--format", "jsonl"]):
        assert main(["generate", str(model.path), "A text", *wishes, *more]) == 0
    given = {"prefix": "say: ", "source_language": "en", "target_language": "de", "max_new_tokens": 4}
    assert capsys.readouterr().out.startswith("".join(model.stream("A text", **given)) + "\n")


def test_stop_strings(make: Make) -> None:
    model = make("gpt2")
    for settings in ({"sample": True, "temperature": 3.0}, {"beam_size": 2}):
        whole = model.generate(["Once upon"], max_new_tokens=30, **settings)[0]
        assert whole.ended == "length"
        stop = next(c for c in whole.text[3:] if c not in whole.text[:3] and c.isascii())
        found = model.generate(["Once upon"], max_new_tokens=30, stop=["never there", stop], **settings)[0]
        assert stop not in found.text
        if "sample" in settings:
            assert found.ended == "stop"
            assert found.text == whole.text.partition(stop)[0]
            assert len(found.tokens) < len(whole.tokens)
            assert "".join(model.stream("Once upon", max_new_tokens=30, stop=stop, **settings)) == found.text


def test_outputs_fit_the_positions(make: Make) -> None:
    """60 learned positions hold the prompt and all of the output but its last token."""
    model = make("gpt2")
    assert len(model.generate(["x" * 50], max_new_tokens=40)[0].tokens) == 11
    with pytest.raises(UserError, match="61 tokens is longer than the model's 60"):
        model.generate(["x" * 61])


def test_settings_of_old_files() -> None:
    """BART's forced start token, and the padding id -1 of the first LLaMA."""
    old = {"bos_token_id": 7, "eos_token_id": 2, "pad_token_id": -1, "force_bos_token_to_be_generated": True}
    settings = generation_config(old, old, has_encoder=True)
    assert (settings.special.forced, settings.special.pad_id) == ((7,), 2)
    assert generation_config({}, {**old, "pad_token_id": 0}, has_encoder=True).special.pad_id == 0


def test_settings_of_file_and_call(make: Make) -> None:
    file = {"do_sample": True, "top_k": 3, "temperature": 0.7, "repetition_penalty": 1.3, "min_p": 0.1}
    model = make("gpt2", generation=file | {"max_new_tokens": 7, "eos_token_id": [2, 4]})
    chosen, special = model.generation.settings, model.generation.special
    assert (chosen.sample, chosen.top_k, chosen.temperature) == (True, 3, 0.7)
    assert (special.eos_id, special.other_ends) == (2, (4,))
    assert chosen.repetition_penalty == 1.3
    assert model.generation.unused == ("min_p",)
    assert len(model.generate(["a"])[0].tokens) <= 7
    drawn = {model.generate(["a"], seed=seed)[0].text for seed in range(5)}
    assert len(drawn) > 1
    assert len({model.generate(["a"], seed=seed, sample=False)[0].text for seed in range(5)}) == 1


def test_lengths_of_encoder_decoders_count_the_start_token(make: Make) -> None:
    model = make("t5", generation={"max_length": 9, "min_length": 5})
    settings = model.generation.settings
    assert (settings.max_length_extra, settings.min_length_extra) == (8, 4)
    assert 4 <= len(model.generate(["a dog"])[0].tokens) <= 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 2}, "unknown setting 'beams'"),
        ({"temperature": 0.0}, "temperature = 0.0: must be greater than 0"),
        ({"n_best": 2, "beam_size": 1}, "n_best = 2 is more than beam_size = 1"),
        ({"max_new_tokens": 0}, "max_new_tokens = 0: must be greater than 0"),
        ({"early_stopping": "soon"}, "unknown value for early_stopping 'soon'"),
        ({"stop": [""]}, "stop: an empty string"),
        ({"end_ids": (1,)}, "unknown setting 'end_ids'"),
    ],
)
def test_invalid_settings(make: Make, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make("gpt2").generate(["a"], **settings)


def test_an_empty_prompt_is_the_start_token(make: Make) -> None:
    model = make("gpt2")
    assert model.encode("") == [0]
    with pytest.raises(UserError, match="an empty prompt"):
        make("gpt2", {"bos_token_id": None}).generate([""])


def test_chat(make: Make) -> None:
    model = make("gpt2", chat_template=TEMPLATE, bos_token={"content": "<s>"})
    chat = [{"role": "user", "content": "hi"}]
    assert model.encode(chat) == [0, 4, *model.encode("hi"), 2, *model.encode(":")]
    assert model.generate([chat], max_new_tokens=3) == model.generate(["<s><user>hi</s>:"], max_new_tokens=3)
    with pytest.raises(UserError, match="takes a list of conversations"):
        refuse_single(chat, "generate")
    with pytest.raises(UserError, match="has no chat template"):
        make("gpt2").generate([chat])
    with pytest.raises(UserError, match="rejects these messages"):
        make("gpt2", chat_template="{{ ''.__class__.__mro__ }}").generate([chat])
    with pytest.raises(UserError, match=r"rejects these messages .*only users"):
        make("gpt2", chat_template="{{ raise_exception('only users') }}").generate([chat])


def test_perplexity_of_a_long_text(make: Make) -> None:
    """Windows of all 60 positions; a text that fits one is read in one."""
    model = make("gpt2")
    text = "the quick brown fox jumps over the lazy dog, and again"
    tokens = torch.tensor([model.encode(text)])
    log_probs = model.network(tokens)[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])
    found = model.perplexity(text)
    assert found.log_prob == pytest.approx(float(log_probs.sum().detach()), rel=1e-5)
    assert found.perplexity == pytest.approx(np.exp(-found.log_prob / (tokens.size(1) - 1)))
    assert model.perplexity(text * 4, stride=10).tokens == 4 * len(text) - 1
    with pytest.raises(UserError, match="stride = 60: must be from 1 to 59"):
        model.perplexity(text, stride=60)


def test_encoder_decoders(make: Make) -> None:
    model = make("t5", {"task_specific_params": {"translation_en_to_de": {"prefix": "to de: "}}})
    texts = ["a dog runs", "x", "two men"]
    found = model.generate(texts, max_new_tokens=9, beam_size=2)
    alone = [model.generate([text], max_new_tokens=9, beam_size=2)[0] for text in texts]
    assert [written.tokens for written in found] == [written.tokens for written in alone]
    asked = model.translate(["a dog"], source_language="en", target_language="de", max_new_tokens=9)
    (written,) = model.generate(["a dog"], instruction="to de: ", max_new_tokens=9)
    told = (written.text, written.score, written.token_log_probs[: len(written.tokens)])
    assert [(one.text, one.score, one.token_log_probs) for one in asked] == [told]
    assert len(asked[0].pieces) == len(written.tokens) and "".join(asked[0].source_pieces).endswith("dog")
    assert asked[0].text == "".join(model.stream("a dog", instruction="to de: ", max_new_tokens=9))
    assert asked[0].score != model.generate(["a dog"], max_new_tokens=9)[0].score
    assert model.languages.encode("a dog", "", "fr") == model.vocabulary.encode(">>fr<< a dog")  # as for Marian
    with pytest.raises(UserError, match="language 'it': this model"):
        model.translate(["a dog"], source_language="en", target_language="it")


def test_language_codes(make: Make) -> None:
    model = make("m2m")
    known = model.languages
    assert known.encode("ab", "de", "fr") == [known.code("de"), *model.vocabulary.encode("ab")]
    assert known.special(model.generation.special, "fr").forced == (known.code("fr"),) == (6,)
    assert model.between("de", "fr").translate(["ab"], max_new_tokens=9) != model.between("de", "de").translate(
        ["ab"], max_new_tokens=9
    )
    with pytest.raises(UserError, match="language 'xx': this model has no such code; codes look like de"):
        model.translate(["ab"], source_language="de", target_language="xx")
    old = make("m2m", tokenizer_class="MBartTokenizer").languages
    assert old.encode("ab", "de", "fr") == [*model.vocabulary.encode("ab"), known.code("de")]
    assert old.special(model.generation.special, "fr").bos_id == known.code("fr")


def test_filling_and_embedding(make: Make) -> None:
    model = make("bert")
    first, second = model.fill_mask("a <mask> in <mask>", top=3)
    assert len(first) == len(second) == 3
    assert first[0].probability >= first[1].probability
    assert first[0].text == model.tokenizer.decode([first[0].token])
    with pytest.raises(UserError, match=r"no.*model's.*<mask>"):
        model.fill_mask("a dog")
    vectors = model.embed(["a", "a longer text", "a"])
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose((vectors**2).sum(1), 1, rtol=1e-5)
    assert (model.embed(["a"], normalize=False) ** 2).sum() != pytest.approx(1)
    with pytest.raises(UserError, match=r"'maxx'.*'max'"):
        model.embed(["a"], pooling="maxx")


def test_electra_generators_and_t5_encoders(make: Make) -> None:
    """ELECTRA's generator, and T5's encoder without decoder."""
    generator = make("bert", {"model_type": "electra", "architectures": ["ElectraForMaskedLM"], "embedding_size": 8})
    assert len(generator.fill_mask("a <mask>", top=3)[0]) == 3
    assert make("t5", {"architectures": ["T5EncoderModel"]}).embed(["a", "a longer text"]).shape == (2, 16)


def test_half_precision(make: Make) -> None:
    """Scores and embeddings stay float32."""
    assert half(make("gpt2")).generate(PROMPTS, max_new_tokens=5, beam_size=2)[0].score < 0
    assert half(make("gpt2")).perplexity("a longer text").perplexity > 1
    assert half(make("t5")).generate(PROMPTS, max_new_tokens=5, beam_size=2)[0].score < 0
    assert half(make("m2m")).between("de", "fr").translate(PROMPTS, max_new_tokens=5)[0].score < 0
    model = half(make("bert"))
    assert model.fill_mask("a <mask>")[0][0].probability > 0
    assert model.embed(["a"]).dtype == np.float32
    model = half(make("whisper", generation=HEARING))
    window = np.random.default_rng(1).standard_normal((8, 100), np.float32)
    assert detect_language(WindowEncoder(model.speech_network()), window, model.special_tokens) == "en"


def half(model: Any) -> Any:
    """The same model, computing in bfloat16."""
    return headwise.load(model.path, "cpu", dtype="bfloat16")


def test_labels(make: Make, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    model = make("vit")
    image.new("RGB", (20, 10), (200, 30, 90)).save(tmp_path / "picture.png")
    found = model.label(tmp_path / "picture.png", top=9)
    assert {one.name for one in found} == {"cat", "dog", "owl"}
    assert sum(one.probability for one in found) == pytest.approx(1)
    assert sum(one.probability for one in half(model).label(tmp_path / "picture.png")) == pytest.approx(1)
    with pytest.raises(UserError, match="no such file"):
        model.label(tmp_path / "nothing.png")


def test_captions(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One image or several, in Python and on the command line; special tokens may be in the decoder's settings."""
    image = pytest.importorskip("PIL.Image")
    model = make("captions", changes={"decoder_start_token_id": None, "eos_token_id": None})
    assert (model.generation.special.bos_id, model.generation.special.eos_id) == (0, 2)
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for i, path in enumerate(paths):
        image.new("RGB", (20, 10 + i), (90 * i, 30, 90)).save(path)
    settings = {"max_new_tokens": 7, "beam_size": 3, "n_best": 2}
    found = model.caption(paths, **settings, batch_size=2)
    alone = [model.caption([path], **settings)[0] for path in paths]
    assert [one.tokens for one in found] == [one.tokens for one in alone] and len({one.text for one in found}) > 1
    assert len(half(model).caption(paths, max_new_tokens=7)) == 3
    flags = ["--max-new-tokens", 7, "--beam-size", 3, "--n-best", 2]
    lines = [line for one in found for line in (one.text, one.alternatives[0].text)]
    assert run(capsys, "caption", model.path, *paths, *flags).splitlines() == "\n".join(lines).splitlines()
    records = map(json.loads, run(capsys, "caption", model.path, *paths, *flags, "--format", "jsonl").splitlines())
    said = [(record["picture"], record["text"], record["tokens"]) for record in records]
    assert said == [(path, one.text, one.tokens) for path, one in zip(paths, found, strict=True)]
    with pytest.raises(UserError, match="no such file"):
        model.caption([tmp_path / "nothing.png"])
    with pytest.raises(UserError, match="caption"):
        model.caption(paths[0])


def test_transcribing(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sound of 2.5 seconds with windows of one second."""
    soundfile = pytest.importorskip("soundfile")
    model, path = make("whisper", generation=HEARING), tmp_path / "sound.wav"
    times = np.arange(40_000) / 16_000
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * 440 * times * (1 + times)), 16_000)
    found = model.transcribe(path)
    assert (found.language, found.text) == ("en", " ".join(segment.text for segment in found.segments))
    starts = [segment.start for segment in found.segments]
    assert starts == sorted(starts)
    assert starts[0] <= 0.2
    assert starts[-1] >= 1.0
    assert model.transcribe(path, "en").text == model.transcribe(path, timestamps=False).text == found.text
    soundfile.write(path, np.sin(times[:9_000] * 900), 16_000)
    assert [(one.start, one.end) for one in model.transcribe(path, timestamps=False).segments] == [(0.0, 0.56)]
    lines = run(capsys, "transcribe", model.path, path, "--timestamps", "--source-language", "en").splitlines()
    assert len(lines) == len(model.transcribe(path).segments)
    with pytest.raises(UserError, match="language 'xx': this model knows en"):
        model.transcribe(path, "xx")


TRANSCRIPTIONS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "in a beam": {"beam_size": 3},
    "with context": {"condition": True},
    "without timestamps": {"timestamps": False, "fallback": False},
    "into English": {"task": "translate", "language": "en"},
}


@pytest.mark.few(3)
@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
@pytest.mark.parametrize("options", TRANSCRIPTIONS.values(), ids=TRANSCRIPTIONS)
def test_library_and_torch_transcribe_alike(
    make: Make, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same texts, times and samples at higher temperatures, which a random network needs."""
    soundfile = pytest.importorskip("soundfile")
    model, path = make("whisper", generation=HEARING, marks=["<|startofprev|>", "<|nospeech|>"]), tmp_path / "sound.wav"
    times, searched = np.arange(40_000) / 16_000, set[str]()
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * 440 * times * (1 + times)), 16_000)
    for kind in (LibrarySpeech, TorchSpeech):
        search = kind.search
        monkeypatch.setattr(kind, "search", lambda *given, of=search: searched.add(of.__qualname__) or of(*given))
    found = model.transcribe(path, **options)
    assert searched == {"LibrarySpeech.search"}
    monkeypatch.setattr(model.folder.stored, "form", lambda compute: model.network)
    assert model.transcribe(path, **options) == found and searched == {"LibrarySpeech.search", "TorchSpeech.search"}


def test_speech_in_other_precisions(make: Make, tmp_path: Path) -> None:
    """The library computes with 8-bit integers, and says so where it is missing."""
    soundfile = pytest.importorskip("soundfile")
    model, path = make("whisper", generation=HEARING), tmp_path / "sound.wav"
    soundfile.write(path, np.sin(np.arange(9_000) / 9), 16_000)
    if library() is None:
        with pytest.raises(UserError, match="compute = int8"):
            model.transcribe(path, compute="int8")
    else:
        assert model.transcribe(path, compute="int8").language == "en"
    with pytest.raises(UserError, match="float16"):
        model.transcribe(path, compute="float16")


def test_several_recordings_become_files(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    soundfile = pytest.importorskip("soundfile")
    monkeypatch.chdir(tmp_path)
    model = make("whisper", generation=HEARING)
    for number, name in enumerate(("one.wav", "two.wav", "one.flac")):
        soundfile.write(name, np.sin(np.arange(9_000) * (number + 1) / 20), 16_000)
    found = [model.transcribe(name) for name in ("one.wav", "two.wav")]
    assert run(capsys, "transcribe", model.path, "one.wav", "two.wav") == ""
    assert [Path(name).read_text() for name in ("one.txt", "two.txt")] == [f"{one.text}\n" for one in found]
    run(capsys, "transcribe", model.path, "one.wav", "--format", "json", "--out", "new/folder")
    assert json.loads(Path("new/folder/one.json").read_text()) == json.loads(json.dumps(asdict(found[0])))
    assert json.loads(run(capsys, "transcribe", model.path, "one.wav", "--format", "jsonl"))["text"] == found[0].text
    for sounds, why in (
        (["one.wav", "one.flac", "--format", "srt"], "one.wav and one.flac would both be written into one.srt"),
        (["two.wav", "--out", "."], "two.txt: exists already; move it away or name another folder with --out"),
        (["one.wav", "never.wav", "--format", "srt"], "never.wav: no such file"),
        (["one.wav", "--format", "srt", "--timestamps"], "--timestamps is for --format text"),
    ):
        assert main(["transcribe", str(model.path), *sounds]) == 2
        assert why in capsys.readouterr().err
    assert not Path("one.srt").exists() and Path("two.txt").read_text() == f"{found[1].text}\n"


# --- The command line ---


def run(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    assert main([str(argument) for argument in arguments]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_generate_command(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    model = make("gpt2")
    expected = [written.text for written in model.generate(PROMPTS, max_new_tokens=5)]
    assert run(capsys, "generate", model.path, PROMPTS[0], "--max-new-tokens", 5) == expected[0] + "\n"
    lines = run(capsys, "generate", model.path, *PROMPTS, "--max-new-tokens", 5, "--format", "jsonl").splitlines()
    assert [json.loads(line)["text"] for line in lines] == expected
    assert main(["generate", str(model.path), "a", "--prefix", "b"]) == 2
    assert "--prefix is for models that read a text" in capsys.readouterr().err
    assert main(["fill", str(model.path), "a"]) == 2
    assert "a model of gpt2 that cannot fill masks" in capsys.readouterr().err


def test_commands_with_compute(make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a dog\n")
    model = make("bert")
    found = run(capsys, "embed", model.path, tmp_path / "lines", "--compute", "bfloat16")
    np.testing.assert_allclose(json.loads(found), half(model).embed(["a dog"])[0], atol=1e-6)
    assert np.abs(json.loads(found) - model.embed(["a dog"])[0]).max() > 1e-5
    asked = ["--source-language", "de", "--target-language", "fr", "--format", "jsonl"]
    model = make("m2m")
    found = json.loads(run(capsys, "translate", model.path, tmp_path / "lines", *asked, "--compute", "bfloat16"))
    assert found["score"] == pytest.approx(half(model).between("de", "fr").translate(["a dog"])[0].score)


@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
def test_bfloat16_in_the_library(make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """For loading and for decoding, in all commands."""
    (tmp_path / "lines").write_text("a dog\n")
    model, languages = make("m2m"), {"source_language": "de", "target_language": "fr"}
    exact, rounded = (model.translate(["a dog"], **languages, compute=x)[0].score for x in ("float32", "bfloat16"))
    loaded = half(model)
    assert loaded.compiled and loaded.translate(["a dog"], **languages)[0].score == pytest.approx(rounded, 1e-3)
    assert rounded != exact and rounded == pytest.approx(exact, abs=0.05)
    asked = ["--source-language", "de", "--target-language", "fr", "--format", "jsonl", "--compute", "bfloat16"]
    translate, generate = ("translate", model.path, tmp_path / "lines"), ("generate", model.path, "a dog")
    calls = (translate, generate, (*translate, "--ensemble", model.path))
    found = [json.loads(run(capsys, *call, *asked))["score"] for call in calls]
    assert found == pytest.approx([rounded] * 3, 1e-3)


@pytest.mark.skipif(library() is None, reason="the compiled library is missing")
def test_commands_with_int8(make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a dog\n")
    model = make("m2m")
    asked = ["--source-language", "de", "--target-language", "fr", "--format", "jsonl", "--compute", "int8"]
    languages = {"source_language": "de", "target_language": "fr"}
    exact, rounded = (model.translate(["a dog"], **languages, compute=x)[0].score for x in ("float32", "int8"))
    found = json.loads(run(capsys, "translate", model.path, tmp_path / "lines", *asked))
    assert found["score"] == rounded != exact and rounded == pytest.approx(exact, abs=0.05)
    assert json.loads(run(capsys, "generate", model.path, "a dog", *asked))["score"] == rounded
    with pytest.raises(UserError, match="lacks a part of this network"):
        make("t5").generate(["a dog"], compute="int8")
    asked, model = ["--format", "jsonl", "--max-new-tokens", "5", "--compute", "int8"], make("gpt2")
    exact, rounded = (model.generate(["a dog"], max_new_tokens=5, compute=x)[0].score for x in ("float32", "int8"))
    assert json.loads(run(capsys, "generate", model.path, "a dog", *asked))["score"] == rounded != exact


def test_commands_of_families(make: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a dog\nb\n")
    model = make("gpt2")
    scored = json.loads(run(capsys, "score", model.path, "--source", tmp_path / "lines", "--stride", 2))
    text = "a dog\nb"
    assert scored["tokens"] == len(model.encode(text)), "all but the first, and the end"
    assert scored["log_prob"] < model.perplexity(text, stride=2).log_prob
    assert (scored["window"], scored["stride"]) == (60, 2)
    read = ["--source", tmp_path / "lines", "--window", 4, "--stride", 3]
    assert json.loads(run(capsys, "score", model.path, *read))["window"] == 4
    assert "window 4, stride 3)" in run(capsys, "evaluate", model.path, *read)
    assert main(["evaluate", str(model.path), *map(str, read[:2]), "--window", "99"]) == 2
    assert "--window 99: the model reads at most 60 tokens at once" in capsys.readouterr().err
    model = make("m2m")
    asked = ("--source-language", "de", "--target-language", "fr", "--beam-size", 2)
    lines = run(capsys, "translate", model.path, tmp_path / "lines", *asked, "--length-penalty", 1.5).splitlines()
    found = model.between("de", "fr").translate(["a dog", " ", "b"], beam_size=2, length_penalty=1.5)
    assert found[1].text == ""
    del found[1]
    assert lines == [written.text.replace("\n", "\t") for written in found]
    model = make("bert")
    assert len(run(capsys, "fill", model.path, "a <mask>", "--top", 2).splitlines()) == 2
    run(capsys, "embed", model.path, tmp_path / "lines", "-o", tmp_path / "vectors.npy")
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), model.embed(["a dog", "b"]))
    first = run(capsys, "embed", model.path, tmp_path / "lines").splitlines()[0]
    np.testing.assert_allclose(json.loads(first), model.embed(["a dog"])[0], atol=1e-5)


PACK = ", pack" if library() else ""
OF_PAIRS = (
    "translate, generate, score, evaluate, align, inspect, explore, prune, distill, backtranslate, shortlist, serve, "
    "tune, export"
)


def test_info_of_families(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten lines at most, the rest with --all; with the precision of the file and of the computation."""
    folder = make("t5", {"task_specific_params": {"translation_en_to_de": {"prefix": "to German: "}}}).path
    tensors = {key: tensor.half() for key, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    size = (folder / "model.safetensors").stat().st_size
    *lines, search = run(capsys, "info", folder, "--device", "cpu").splitlines()
    assert search.startswith("search         beam_size 1,")
    assert lines == [
        "model          t5",
        f"for            {OF_PAIRS}",
        "languages      en to de",
        "architecture   encoder of 1 layer, d_model 16, d_ff 24, 2 heads; "
        "decoder of 1 layer, d_model 16, d_ff 24, 2 heads",
        f"parameters     {sum(tensor.numel() for tensor in tensors.values()):,}",
        "vocabulary     265 tokens",
        f"on disk        {size / 1e3:.1f} kB in float16",
        "computed by    torch, in float32",
    ]
    everything = run(capsys, "info", folder, "--all")
    assert "relative_buckets = 32" in everything
    assert not any(absent in everything for absent in ("patch_size", "n_mels", "rotary", "null"))
    *_, by, _ = run(capsys, "info", make("m2m").path, "--device", "cpu").splitlines()
    assert by == f"computed by    {described() if library() else 'torch'}, in float32"


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("gpt2", [f"for            generate, embed, score, evaluate, inspect, explore, prune, export{PACK}"]),
        (
            "bert",
            [
                "for            fill, embed, evaluate, inspect, explore, prune, export",
                "model          bert (BertForMaskedLM)",
            ],
        ),
        ("vit", ["for            label, evaluate, inspect, explore, prune, export", "classes        cat, dog, owl"]),
        (
            "m2m",
            [
                f"for            {OF_PAIRS}{PACK}",
                "languages      deu_Latn, fra_Latn",
            ],
        ),
        ("captions", ["for            caption, evaluate, inspect, explore, prune, export"]),
        (
            "whisper",
            [f"for            transcribe, evaluate, inspect, explore, prune, export{PACK}", "languages      en"],
        ),
    ],
)
def test_info_lists_the_commands(kind: str, rows: list[str], make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    generation = HEARING if kind == "whisper" else None
    model = make(kind, generation=generation, additional_special_tokens=["fra_Latn", {"content": "deu_Latn"}, "<mask>"])
    lines = run(capsys, "info", model.path).splitlines()
    assert {*rows} <= {*lines}
    assert len(lines) <= 10
