"""What models of the families do: `generate`, `fill`, `embed`, `label`, `caption` and `transcribe`."""

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cli.files import in_file, lines_of, out_file, output
from sightline.cli.options import (
    FAMILY,
    input_option,
    language_options,
    model_options,
    refuse_unread,
    whole,
)
from sightline.cli.replacing import binary_output
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.generation.output import Output
    from sightline.models.model import Model

UNASKED = ("early_stopping", "sample", "stop", "compute")  # which no option, or one of another kind, is for


def add(commands: Any) -> None:
    """Register the commands of this module."""
    _generate_options(commands)
    _fill_options(commands)
    _embed_options(commands)
    _label_options(commands)
    _caption_options(commands)
    _transcribe_options(commands)


def generation_options(parser: argparse.ArgumentParser) -> None:
    """An option for every setting of generation; those not given leave the model's own."""
    from sightline.generation.settings import GIVEN

    group = parser.add_argument_group("generation (default: the model's own settings)")
    for name in (name for name in GIVEN if name not in UNASKED):
        kind, flag = type(GIVEN[name].default), "--" + name.replace("_", "-")
        group.add_argument(flag, type=kind, metavar="N", help=GIVEN[name].help)
    group.add_argument("--sample", action=argparse.BooleanOptionalAction, default=None, help=GIVEN["sample"].help)
    group.add_argument("--stop", action="append", metavar="STRING", help=GIVEN["stop"].help)


def generation_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What was given of `generation_options`."""
    from sightline.generation.settings import GIVEN

    given = {name: getattr(options, name, None) for name in GIVEN if name != "compute"}
    return {name: value for name, value in given.items() if value is not None}


def compute_option(parser: argparse.ArgumentParser, more: tuple[str, ...] = ()) -> None:
    """`--compute` of the commands for these models; `translate` has it among its decoding options."""
    numbers = "numbers to compute with (default: on a CPU float32, elsewhere those of the file)"
    parser.add_argument("--compute", choices=("float32", "float16", "bfloat16", *more), help=numbers)


def family_model(options: argparse.Namespace, verb: str, what: str) -> Any:
    """The model, if it has that verb; otherwise a `UserError`."""
    from sightline.models.load import load

    model = load(options.model, options.device, _numbers_of_file(options) or "auto")
    if not hasattr(model, verb):
        family = getattr(getattr(model, "config", None), "family", "")
        raise UserError(f"{options.model}: a model{f' of {family}' if family else ''} that cannot {what}")
    for name in getattr(getattr(model, "generation", None), "unused", ()):
        print(f"{options.model}: generation_config.json asks for {name}, which is not supported", file=sys.stderr)
    return model


def _numbers_of_file(options: argparse.Namespace) -> str | None:
    """What the parameters are read as; 8-bit integers are made of them when a model first decodes."""
    return None if options.compute == "int8" else options.compute


def _with_compute(options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of one call, with what `--compute` asks of more than loading."""
    settings = {name: value for name, value in settings.items() if name != "compute"}
    return {**settings, "compute": "int8"} if options.compute == "int8" else settings


# --- generate ---


def _generate_options(commands: Any) -> None:
    parser = commands.add_parser("generate", help="let a language model write on, or rewrite a text")
    model_options(parser, what=FAMILY)
    compute_option(parser, ("int8",))
    prompts = "text to write on from, or to rewrite; several are written at once (default: lines of standard input)"
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help=prompts)
    parser.add_argument("--chat", action="store_true", help="each PROMPT is what a user says to a chat model")
    parser.add_argument("--prefix", default="", help="what is put before each text, such as 'summarize: ' for T5")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="jsonl adds tokens and scores")
    language_options(parser)
    generation_options(parser)
    parser.set_defaults(run=run_generate)


def run_generate(options: argparse.Namespace) -> None:
    """Write, for a single prompt piece by piece."""
    model = family_model(options, "generate", "write text")
    settings, wishes = _with_compute(options, generation_settings(options)), _wishes(options, model)
    refuse_unread(settings, model.generation)
    prompts = options.prompts or [line.removesuffix("\n") for line in sys.stdin]
    texts = [[{"role": "user", "content": text}] if options.chat else text for text in prompts]
    if len(texts) == 1 and options.format == "text" and _is_certain(model, settings):
        for piece in model.stream(texts[0], **settings, **wishes):
            print(piece, end="", flush=True)
        print()
        return
    for written in model.generate(texts, **settings, **wishes):
        print(format_output(written, options.format), flush=True)


def _wishes(options: argparse.Namespace, model: Any) -> dict[str, Any]:
    """What only models with an encoder are asked, and only those without one are."""
    wishes = {name: getattr(options, name) for name in ("prefix", "source_language", "target_language")}
    given = {name: value for name, value in wishes.items() if value}
    encoder = hasattr(model, "languages")
    if given and not encoder:
        name = next(iter(given)).replace("_", "-")
        raise UserError(f"--{name} is for models that read a text before they write; put it into the prompt")
    if options.chat and encoder:
        raise UserError("--chat is for models that write on; this one rewrites texts")
    return given


def _is_certain(model: Any, settings: dict[str, Any]) -> bool:
    """Whether nothing that has been written will be taken back."""
    searched = {name: value for name, value in settings.items() if name != "compute"}
    chosen = model.generation.changed(searched)
    return chosen.n_best == 1 and (chosen.sample or chosen.beam_size == 1)


def format_output(written: "Output", style: str) -> str:
    """An object of JSON, or the text with its alternatives below it."""
    if style == "jsonl":
        from dataclasses import asdict

        return json.dumps(asdict(written), ensure_ascii=False)
    return "\n".join([written.text, *(other.text for other in written.alternatives)])


def score_text(options: argparse.Namespace, model: "Model") -> None:
    """`sightline score` with a language model: the perplexity of one text, as an object of JSON."""
    from sightline.data.corpus import read_lines

    found = model.perplexity("\n".join(read_lines(options.source)), options.stride)
    record = {"log_prob": finite(found.log_prob), "perplexity": finite(found.perplexity), "tokens": found.tokens}
    with output(options.output) as file:
        file.write(json.dumps(record, allow_nan=False) + "\n")
    print(f"perplexity {found.perplexity:.6g} over {found.tokens:,} tokens", file=sys.stderr)


def finite(number: float) -> float | None:
    """A number for JSON, which knows no infinity: null stands for what is impossible, and for its perplexity."""
    return number if math.isfinite(number) else None


# --- fill and embed ---


def _fill_options(commands: Any) -> None:
    parser = commands.add_parser("fill", help="fill in what is masked in a text (BERT and its relatives)")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    parser.add_argument("text", metavar="TEXT", help="with [MASK] or <mask>, as the model writes it")
    parser.add_argument(
        "--top", type=whole(1), default=5, metavar="N", help="guesses for each mask (default: %(default)s)"
    )
    parser.set_defaults(run=run_fill)


def top_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--top", type=whole(1), default=5, metavar="N", help=f"{what} (default: %(default)s)")


def run_fill(options: argparse.Namespace) -> None:
    """Guesses with their probabilities, a line each; a blank line between masks."""
    model = family_model(options, "fill_mask", "fill masks")
    print_ranked([[(one.probability, one.text) for one in mask] for mask in model.fill_mask(options.text, options.top)])


def print_ranked(groups: list[list[tuple[float, str]]]) -> None:
    """Probabilities and names, a line each, a blank line between groups."""
    print("\n\n".join("\n".join(f"{share:.4f}  {name}" for share, name in group) for group in groups))


def _embed_options(commands: Any) -> None:
    parser = commands.add_parser("embed", help="turn lines of text into vectors (BERT and its relatives)")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    input_option(parser)
    out = "a .npy file, float32 (lines, width), or lines of JSON (default: those, on standard output)"
    parser.add_argument("-o", "--output", type=out_file, default="-", help=out)
    group = parser.add_argument_group("vectors (default: as the model's modules.json says; the mean, of length 1)")
    pooling = "of all tokens' states: their mean, maximum, ..., or the first or last one's"
    choices = ("mean", "first", "last", "max", "mean_sqrt_len", "weighted_mean")
    group.add_argument("--pooling", choices=choices, default="", help=pooling)
    length = "make vectors of length 1, so that products are cosines, or leave them as long as they are"
    group.add_argument("--normalize", action=argparse.BooleanOptionalAction, default=None, help=length)
    prompt = "put this prompt of the model's before each line; '' is none"
    group.add_argument("--prompt", metavar="NAME", help=prompt)
    parser.add_argument("--batch-size", type=whole(1), default=16, metavar="N", help="lines computed with at once")
    parser.set_defaults(run=run_embed)


def run_embed(options: argparse.Namespace) -> None:
    """A vector for each line."""
    from sightline.data.corpus import display_name
    from sightline.generation.vectors import in_words

    model = family_model(options, "embed", "embed texts")
    settings = model.embedder.settings
    settings.changed(options.pooling, options.normalize).width(model.embedder.d_model)
    settings.prompt(options.prompt)
    _name_prompts(settings, options)
    lines, cuts = lines_of(options.input, "embed"), list[tuple[str, int]]()
    if options.output.endswith(".npy"):
        _save_array(Path(options.output), _embedded(model, lines, options, cuts))
    else:
        with output(options.output) as file:
            for vectors in _embedded(model, lines, options, cuts):
                file.writelines(json.dumps([round(x, 6) for x in vector]) + "\n" for vector in vectors.tolist())
    if cuts:
        print(f"{display_name(options.input)}: {in_words(cuts, model.embedder.longest)}", file=sys.stderr)


def _name_prompts(settings: Any, options: argparse.Namespace) -> None:
    """Say which prompts nobody has asked for."""
    names = ", ".join(name for name, text in settings.prompts.items() if text)
    if names and options.prompt is None and not settings.default_prompt:
        print(f"{options.model}: has prompts that --prompt puts before each line: {names}", file=sys.stderr)


def _embedded(
    model: Any, lines: Iterable[str], options: argparse.Namespace, cuts: list[tuple[str, int]]
) -> Iterator[Any]:
    """Vectors of a thousand lines at a time, at least once; which lines were cut is added to `cuts`."""
    waiting, done = iter(lines), 0
    while (chunk := list(islice(waiting, 1000))) or not done:
        asked = (options.pooling, options.normalize, options.batch_size, options.prompt)
        vectors, found = model.embedder(chunk, *asked)
        cuts += [(f"line {done + cut.index + 1}", cut.tokens) for cut in found]
        yield vectors
        done += len(chunk)
        if len(chunk) < 1000:
            return


def _save_array(path: Path, parts: Iterable[Any]) -> None:
    import numpy as np

    with binary_output(str(path)) as file:
        np.save(file, np.concatenate(list(parts)))


# --- label, caption and transcribe ---


def _label_options(commands: Any) -> None:
    parser = commands.add_parser("label", help="say what a picture shows (ViT and its relatives)")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    parser.add_argument("picture", type=in_file, metavar="IMAGE", help="image file: PNG, JPEG, ...")
    top_option(parser, "labels")
    parser.set_defaults(run=run_label)


def run_label(options: argparse.Namespace) -> None:
    """Labels with their probabilities, a line each."""
    model = family_model(options, "label", "label pictures")
    print_ranked([[(one.probability, one.name) for one in model.label(options.picture, options.top)]])


def _caption_options(commands: Any) -> None:
    parser = commands.add_parser("caption", help="say in words what pictures show (ViT with GPT-2)")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    parser.add_argument("pictures", type=in_file, nargs="+", metavar="IMAGE", help="image file: PNG, JPEG, ...")
    style = "text: a caption a line, its alternatives below it; jsonl adds file, tokens and scores"
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help=style)
    generation_options(parser)
    parser.set_defaults(run=run_caption)


def run_caption(options: argparse.Namespace) -> None:
    """A caption for each picture, in their order."""
    from dataclasses import asdict

    model = family_model(options, "caption", "write captions")
    settings = generation_settings(options)
    refuse_unread(settings, model.generation)
    for picture, written in zip(options.pictures, model.caption(options.pictures, **settings), strict=True):
        record = {"picture": picture, **asdict(written)}
        print(json.dumps(record, ensure_ascii=False) if options.format == "jsonl" else format_output(written, "text"))


def _transcribe_options(commands: Any) -> None:
    parser = commands.add_parser("transcribe", help="write down what is said in a recording (Whisper)")
    model_options(parser, what=FAMILY)
    compute_option(parser)
    parser.add_argument("sound", type=in_file, metavar="AUDIO", help="sound file: WAV, FLAC, ...")
    parser.add_argument("--language", default="", metavar="CODE", help="what is spoken, such as en (default: detected)")
    tasks = ("transcribe", "translate")
    parser.add_argument("--task", choices=tasks, default=tasks[0], help="translate: into English")
    parser.add_argument("--timestamps", action="store_true", help="say when: a line for each segment")
    parser.add_argument("--beam-size", type=int, metavar="N", help="hypotheses kept; 1 is greedy")
    again = "draw again, hotter, what repeats itself or is unlikely, and skip silence"
    parser.add_argument("--fallback", action="store_true", help=again)
    parser.add_argument("--condition", action="store_true", help="go by what was understood in earlier windows")
    parser.add_argument("--format", choices=("text", "jsonl"), default="text", help="jsonl has all segments")
    parser.set_defaults(run=run_transcribe)


def run_transcribe(options: argparse.Namespace) -> None:
    """What was said."""
    from dataclasses import asdict

    model = family_model(options, "transcribe", "transcribe sound")
    settings: dict[str, Any] = {"fallback": options.fallback, "condition": options.condition}
    settings |= {} if options.beam_size is None else {"beam_size": options.beam_size}
    found = model.transcribe(options.sound, options.language, options.task, options.timestamps, **settings)
    if options.format == "jsonl":
        print(json.dumps(asdict(found), ensure_ascii=False))
    elif options.timestamps:
        for segment in found.segments:
            print(f"{segment.start:8.2f} {segment.end:8.2f}  {segment.text}")
    else:
        print(found.text)
