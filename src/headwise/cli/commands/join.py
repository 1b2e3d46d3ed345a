"""Example: headwise join hf:google/vit-base-patch16-224-in21k hf:openai-community/gpt2 runs/captioner"""

import argparse
from pathlib import Path

from headwise.runtime.checkpoint.hub import folder_of


def add_options(parser: argparse.ArgumentParser) -> None:
    vit = "a ViT or DeiT: a Hugging Face folder, OWNER/NAME from the local cache, or hf:OWNER/NAME"
    parser.add_argument("looks", metavar="VIT", help=vit)
    parser.add_argument("writes", metavar="GPT2", help="a GPT-2, in the same way")
    parser.add_argument(
        "out", metavar="OUT", help="new folder to write; train it with `headwise train --task caption --init OUT`"
    )


def run(options: argparse.Namespace) -> None:
    """Write the captioner; its cross-attention is new."""
    from headwise.pytorch.checkpoint.compose import write_composed

    write_composed(folder_of(options.looks), folder_of(options.writes), Path(options.out))
    print(f"{options.out}: a captioner, whose attention to a picture is random until it is trained")
