"""Example: headwise transcribe hf:openai/whisper-small speech.wav --timestamps"""

import argparse
import json
from dataclasses import asdict
from typing import Any

from headwise.cli.generation import pretrained_options
from headwise.cli.loading import model_with
from headwise.cli.options import format_option, setting_option
from headwise.cli.rules import in_file
from headwise.config.settings import SETTINGS


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser)
    parser.add_argument("sound", type=in_file, metavar="AUDIO", help="sound file: WAV, FLAC, ...")
    language = "language of the speech, such as en (default: detected)"
    parser.add_argument("--source-language", default="", metavar="CODE", help=language)
    parser.add_argument("--translate", action="store_true", help="translate into English")
    parser.add_argument("--timestamps", action="store_true", help="print each segment on a line with its times")
    setting_option(parser, "beam_size", SETTINGS["decode.beam_size"], usual=False)
    fallback = "decode repetitive or improbable segments again at a higher temperature, and skip silence"
    parser.add_argument("--fallback", action="store_true", help=fallback)
    parser.add_argument(
        "--condition", action="store_true", help="use the transcript so far as context for the next 30 seconds"
    )
    format_option(parser, "jsonl: one object with all segments")


def run(options: argparse.Namespace) -> None:
    """Print the transcript."""
    model = model_with("transcribe", options, "transcribe sound")
    settings: dict[str, Any] = {"fallback": options.fallback, "condition": options.condition}
    settings |= {} if options.beam_size is None else {"beam_size": options.beam_size}
    task = "translate" if options.translate else "transcribe"
    found = model.transcribe(options.sound, options.source_language, task, options.timestamps, **settings)
    if options.format == "jsonl":
        print(json.dumps(asdict(found), ensure_ascii=False))
    elif options.timestamps:
        for segment in found.segments:
            print(f"{segment.start:8.2f} {segment.end:8.2f}  {segment.text}")
    else:
        print(found.text)
