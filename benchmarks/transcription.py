"""Speech recognition compared with faster-whisper: the same Whisper, recordings and settings.

    python benchmarks/transcription.py MODEL [MODEL ...] [--speech LIST.tsv] [--computes float32 int8] [--beams 1 5]
        [--threads 1] [--turns 5] [--cores 0]

A MODEL is a folder of CTranslate2, which faster-whisper reads; Headwise reads what `headwise import` makes of it. Both
transcribe every recording with timestamps and temperature fallback (five samples), in English, without earlier text as
context and without voice activity detection. Each has its own process, and they take turns. LIST.tsv has lines of a
sound file, a tab and its transcript; without it, espeak-ng reads a text aloud, which takes several windows of 30 s. The
word error rates of both show whether they do equal work. Writes `results/transcription_*`.

faster-whisper is not in `peers.txt`: `pip install faster-whisper==1.2.1`.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import machine
import numpy as np
from spoken_digits import write_whisper
from turns import speed_ratio, take_turns
from workers import Worker

import headwise
from headwise.evaluate.transcripts import transcript_report
from headwise.text.files.audio import read_audio
from headwise.text.files.recordings import read_recordings

TEXT = """
The history of the garden begins long before the house was built. A farmer kept bees near the river, and his daughter
sold honey in the market every Saturday. When the railway came, visitors walked up the hill to see the roses, and some
of them stayed for lunch. In the winter of eighteen ninety two a storm broke the old glass house, and the family decided
to build a larger one with iron beams. The new building was finished in the following spring, and lemon trees were
planted along the southern wall. Today a small team of gardeners looks after more than three hundred kinds of flowers.
They begin work early in the morning, before the first guests arrive, and they finish when the light fades. Children
like to feed the ducks by the pond, while their parents read on the benches under the oak. If you visit in June, bring a
hat, because there is little shade on the upper path. The tea room serves bread, cheese and apple cake until five in the
afternoon. Dogs are welcome, but they must stay on a lead near the sheep.
"""
VOICES = ("en-us", "en-gb")
WORDS_A_MINUTE = 150
OURS, THEIRS = "Headwise", "faster-whisper"
Work = Callable[[], list[str]]  # transcribes all recordings


def spoken(folder: Path) -> Path:
    """A list of recordings of `TEXT`, read aloud by espeak-ng; tones with --quick."""
    text, lines = " ".join(TEXT.split()), []
    for voice in VOICES:
        sound = folder / f"{voice}.wav"
        if machine.QUICK:
            tone(sound)
        else:
            espeak = ["espeak-ng", "-v", voice, "-s", str(WORDS_A_MINUTE), "-w", str(sound), text]
            subprocess.run(espeak, check=True)
        lines.append(f"{sound}\t{text}\n")
    found = folder / "speech.tsv"
    found.write_text("".join(lines), encoding="utf-8")
    return found


def tone(path: Path) -> None:
    """A second of a rising tone."""
    import soundfile

    soundfile.write(path, 0.3 * np.sin(np.linspace(0, 60, 16_000) ** 2), 16_000)


def ours(model: str, sounds: Sequence[str], compute: str, beams: int, language: str, threads: int) -> Work:
    """Headwise."""
    loaded: Any = headwise.load(model, "cpu")
    settings = {"beam_size": beams, "compute": compute}
    return lambda: [loaded.transcribe(sound, language, **settings).text for sound in sounds]


def theirs(model: str, sounds: Sequence[str], compute: str, beams: int, language: str, threads: int) -> Work:
    """faster-whisper with the same settings; its samples at a temperature are five, too."""
    from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports]

    loaded = WhisperModel(model, device="cpu", compute_type=compute, cpu_threads=threads)
    settings = {"beam_size": beams, "best_of": 5, "condition_on_previous_text": False, "language": language or "en"}

    def transcribe() -> list[str]:
        found = [loaded.transcribe(sound, **settings)[0] for sound in sounds]
        return [" ".join(segment.text.strip() for segment in segments) for segments in found]

    return transcribe


def imported(model: Path, folder: Path) -> Path:
    """What `headwise import` makes of a model of CTranslate2."""
    from headwise.cli import main as command

    if command(["import", str(model), str(folder)]):
        raise SystemExit(f"{model} cannot be imported")
    return folder


def measured(
    contenders: dict[str, tuple[Any, str]], arguments: Sequence[Any], threads: int, turns: int
) -> tuple[dict[str, list[float]], dict[str, list[str]]]:
    """Seconds of each contender in each turn, and what it wrote in the last one."""
    workers = {
        name: Worker(make, model, *arguments, threads, threads=threads) for name, (make, model) in contenders.items()
    }
    written: dict[str, list[str]] = {}

    def contender(name: str) -> Callable[[int], float]:
        def run(turn: int) -> float:
            reply = workers[name]()
            written[name] = reply.value
            return reply.seconds

        return run

    seconds = take_turns({name: contender(name) for name in workers}, turns, warm_up=1)
    for worker in workers.values():
        worker.close()
    return seconds, written


def row(
    case: Sequence[object], seconds: dict[str, list[float]], written: dict[str, list[str]], texts: Sequence[str]
) -> list[object]:
    """A row of the table."""
    times = [f"{statistics.median(took):.2f}" for took in seconds.values()]
    rates = [f"{100 * transcript_report(texts, said).wer:.1f}" for said in written.values()]
    ratio = speed_ratio(seconds[OURS], seconds[THEIRS]) if THEIRS in seconds else ""
    return [*case, *times, ratio, *rates]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL", help="folders of CTranslate2")
    parser.add_argument("--speech", metavar="LIST.tsv", help="recordings with transcripts (default: by espeak-ng)")
    parser.add_argument("--computes", nargs="+", default=["float32", "int8"], help="(default: float32 int8)")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5], help="(default: 1 5)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--turns", type=int, default=machine.pick(5, 1), help="(default: %(default)s)")
    machine.add_machine_options(parser)
    options = parser.parse_args()
    machine.prepare(options)
    about, rows, data = machine.description(max(options.threads)), [], {}
    with tempfile.TemporaryDirectory() as folder:
        recordings = list(read_recordings(options.speech or str(spoken(Path(folder)))))
        sounds, texts = [one.sound for one in recordings], [one.text for one in recordings]
        seconds_of_sound = sum(len(read_audio(sound)) for sound in sounds) / 16_000
        for model in options.models or [Path(folder) / "random"]:
            contenders = contenders_of(model, Path(folder) / f"{model.name}-headwise")
            language = "en" if multilingual(Path(contenders[OURS][1])) else ""
            for compute in options.computes:
                for beams in options.beams:
                    for threads in options.threads:
                        case = model.name, compute, beams, threads
                        arguments = sounds, compute, beams, language
                        seconds, written = measured(contenders, arguments, threads, options.turns)
                        rows.append(row(case, seconds, written, texts))
                        data[", ".join(map(str, case))] = {"seconds": seconds, "texts": written}
                        print(*rows[-1], sep="  ", flush=True)
    names = list(contenders)
    header = ["model", "weights", "beams", "threads", *(f"{name}, s" for name in names), "times faster (quartiles)"]
    table = machine.table([*header, *(f"{name}, WER %" for name in names)], rows)
    path = machine.result_path("transcription")
    about_sound = f"{len(sounds)} recordings, {seconds_of_sound:.0f} s."
    sections = [__doc__.split("\n\n", 2)[2].strip(), about_sound, table]
    machine.write_result(path, "Speech recognition compared with faster-whisper", about, sections, data)
    print(f"{table}\nwritten to {path}.md")


def contenders_of(model: Path, folder: Path) -> dict[str, tuple[Any, str]]:
    """What makes each contender, and its model; with --quick a random one, and Headwise alone."""
    if not model.is_dir():
        write_whisper(folder)
        return {OURS: (ours, str(folder))}
    return {OURS: (ours, str(imported(model, folder))), THEIRS: (theirs, str(model))}


def multilingual(folder: Path) -> bool:
    """Whether an imported model asks for a language."""
    values = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    return bool(values.get("lang_to_id"))


if __name__ == "__main__":
    if not machine.QUICK and not shutil.which("espeak-ng"):
        print("without espeak-ng, name recordings with --speech")
    main()
