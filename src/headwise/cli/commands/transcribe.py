"""Example: headwise transcribe hf:openai/whisper-small speech.wav --format srt"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwise.cli.files import output
from headwise.cli.generation import pretrained_options
from headwise.cli.loading import model_with
from headwise.cli.options import format_option, setting_option
from headwise.cli.rules import FlagRule, in_file
from headwise.config.settings import INTEGERS, SETTINGS
from headwise.errors import UserError, writing
from headwise.models.speech.transcript_formats import FORMATS

RULES = (FlagRule(("timestamps",), lambda o: o.timestamps and o.format != "text", "is for --format text"),)


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser, INTEGERS)
    sounds = "sound files: WAV, FLAC, ..."
    parser.add_argument("sounds", nargs="+", type=in_file, metavar="AUDIO", help=sounds)
    language = "language of the speech, such as en (default: detected)"
    parser.add_argument("--source-language", default="", metavar="CODE", help=language)
    parser.add_argument("--translate", action="store_true", help="translate into English")
    timestamps = "print each segment on a line with its times; --no-timestamps decodes without times"
    parser.add_argument("--timestamps", action=argparse.BooleanOptionalAction, default=None, help=timestamps)
    setting_option(parser, "beam_size", SETTINGS["decode.beam_size"])
    fallback = "decode repetitive or improbable segments again at higher temperatures, and skip silence (default: yes)"
    parser.add_argument("--fallback", action=argparse.BooleanOptionalAction, default=True, help=fallback)
    parser.add_argument(
        "--condition", action="store_true", help="use the transcript so far as context for the next 30 seconds"
    )
    format_option(parser, "srt and vtt: subtitles; json: one object with all segments", tuple(FORMATS))
    _keep_former_name(parser)
    out = "folder to write a file for each recording into (default: standard output, or for several recordings the "
    out += "current folder)"
    parser.add_argument("--out", metavar="DIR", help=out)


def _keep_former_name(parser: argparse.ArgumentParser) -> None:
    """Read `--format jsonl` as json."""

    def former(name: str) -> str:
        return "json" if name == "jsonl" else name

    former.__name__ = "str"  # of a value of any command
    parser._option_string_actions["--format"].type = former


def run(options: argparse.Namespace) -> None:
    """Write the transcripts."""
    outputs = _outputs(options.sounds, options.out, FORMATS[options.format][0])
    model = model_with(options, "transcribe sound")
    settings: dict[str, Any] = {"fallback": options.fallback, "condition": options.condition}
    settings |= {} if options.beam_size is None else {"beam_size": options.beam_size}
    settings |= {} if options.timestamps is None else {"timestamps": options.timestamps}
    settings |= {"compute": options.compute} if options.compute in INTEGERS else {}
    task = "translate" if options.translate else "transcribe"
    for sound, path in zip(options.sounds, outputs, strict=True):
        found = model.transcribe(sound, options.source_language, task, **settings)
        with output(path, "--out") as file:
            file.write(_timed_lines(found) if options.timestamps else FORMATS[options.format][1](found))


def _timed_lines(found: Any) -> str:
    return "".join(f"{segment.start:8.2f} {segment.end:8.2f}  {segment.text}\n" for segment in found.segments)


def _outputs(sounds: Sequence[str], folder: str | None, ending: str) -> list[str]:
    """The file for each transcript, "-" for standard output.

    Raises:
        UserError: a recording does not exist, or a transcript would replace a file or that of another recording.
    """
    if missing := [sound for sound in sounds if not Path(sound).exists()]:
        raise UserError(f"{missing[0]}: no such file")
    if folder is None and len(sounds) == 1:
        return ["-"]
    out, names = Path(folder or "."), dict[str, str]()
    for sound in sounds:
        path = str(out / f"{Path(sound).stem}{ending}")
        if path in names:
            raise UserError(f"{names[path]} and {sound} would both be written into {path}; transcribe one at a time")
        if Path(path).exists():
            raise UserError(f"{path}: exists already; move it away or name another folder with --out")
        names[path] = sound
    with writing(f"--out {out}"):
        out.mkdir(parents=True, exist_ok=True)
    return list(names)
