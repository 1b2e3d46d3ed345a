"""Spoken digits for fine-tuning a Whisper: lists of recordings, and a small Whisper with random weights.

    python benchmarks/spoken_digits.py ../shared/data/speech/fsdd-open.tar.gz runs/digits

400 clips of the Free Spoken Digit Dataset (CC BY-SA 4.0), ten takes of ten digits by four speakers. `train.tsv` has the
takes 0 to 7 of three speakers, `valid.tsv` their takes 8 and 9, `speaker.tsv` all takes of the fourth speaker, who is
not in the training data. The Whisper has 0.3 M parameters, English only, letters as tokens, and a window of 1.5 s. Its
results are in `results/spoken-digits_*`.
"""

import argparse
import json
import tarfile
from pathlib import Path

import machine
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from headwise.core.build import build
from headwise.families.whisper import FAMILY
from headwise.pytorch.checkpoint.write import write_checkpoint

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
HELD_OUT = "theo"  # a speaker
TRAINING_TAKES = 8  # of ten
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>", *(f"<|{i / 50:.2f}|>" for i in range(76)))
SHAPE = {
    "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": 64, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256, "num_mel_bins": 80, "max_source_positions": 75, "max_target_positions": 16, "dropout": 0.1,
}  # fmt: skip


def list_of(takes: Path) -> dict[str, list[str]]:
    """The lines of each file: sound file, tab, word."""
    found: dict[str, list[str]] = {"train": [], "valid": [], "speaker": []}
    for sound in sorted(takes.glob("*.wav")):
        digit, speaker, take = sound.stem.split("_")
        part = "train" if int(take) < TRAINING_TAKES else "valid"
        line = f"{takes.name}/{sound.name}\t{DIGITS[int(digit)]}\n"
        found["speaker" if speaker == HELD_OUT else part].append(line)
    return found


def write_whisper(folder: Path) -> None:
    """Write a Whisper with a vocabulary of bytes, sinusoidal encoder positions and random weights."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate((*alphabet, *SPECIAL))}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    end, start, no_timestamps = (tokenizer.token_to_id(token) for token in SPECIAL[:3])
    ids = {"eos_token_id": end, "pad_token_id": end, "bos_token_id": end, "decoder_start_token_id": start}
    values = {**SHAPE, **ids, "vocab_size": tokenizer.get_vocab_size()}
    config = FAMILY.config_from_hf(values)
    torch.manual_seed(1)
    network = build(config)
    with torch.no_grad():
        network.src_embeddings.positions.copy_(sinusoids(*network.src_embeddings.positions.shape))
    write_checkpoint(folder, network, config, values)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"no_timestamps_token_id": no_timestamps, "is_multilingual": False}
    (folder / "generation_config.json").write_text(json.dumps({**ids, **settings, "max_length": 16}))


def sinusoids(length: int, width: int) -> torch.Tensor:
    """Sines, then cosines, as in OpenAI's model."""
    rates = 10_000 ** (-torch.arange(width // 2) / (width // 2 - 1))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.cat([angles.sin(), angles.cos()], 1)


def main() -> None:
    """Write the lists, the recordings and the model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("archive", type=Path, help="fsdd-open.tar.gz")
    parser.add_argument("out", type=Path)
    machine.add_quick_option(parser)
    options = parser.parse_args()
    with tarfile.open(options.archive) as archive:
        archive.extractall(options.out, filter="data")
    for name, lines in list_of(options.out / "fsdd").items():
        (options.out / f"{name}.tsv").write_text("".join(lines))
        print(f"{name}.tsv: {len(lines)} recordings")
    write_whisper(options.out / "whisper-random")


if __name__ == "__main__":
    main()
