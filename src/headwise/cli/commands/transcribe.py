"""Example: headwise transcribe hf:openai/whisper-small speech.wav --timestamps"""

import argparse
import json
from dataclasses import asdict
from typing import Any

from headwise.cli.generation import pretrained_options
from headwise.cli.loading import model_with
from headwise.cli.options import format_option
from headwise.cli.rules import in_file


def add_options(parser: argparse.ArgumentParser) -> None:
    pretrained_options(parser)
    parser.add_argument("sound", type=in_file, metavar="AUDIO", help="sound file: WAV, FLAC, ...")
    language = "language of the speech, such as en (default: detected)"
    parser.add_argument("--language", default="", metavar="CODE", help=language)
    task = "translate: into English (default: %(default)s)"
    parser.add_argument("--task", choices=("transcribe", "translate"), default="transcribe", help=task)
    parser.add_argument("--timestamps", action="store_true", help="print a line with times for each segment")
    beam = "hypotheses kept; 1 is greedy (default: the model's own)"
    parser.add_argument("--beam-size", type=int, metavar="N", help=beam)
    fallback = "decode repetitive or improbable segments again with a higher temperature, and skip silence"
    parser.add_argument("--fallback", action="store_true", help=fallback)
    parser.add_argument("--condition", action="store_true", help="give each window the text of earlier ones as context")
    format_option(parser, "jsonl has all segments")


def run(options: argparse.Namespace) -> None:
    """Print the transcript."""
    model = model_with("transcribe", options, "transcribe sound")
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
