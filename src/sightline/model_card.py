"""The README.md of a model directory: what the model is, how it was made and how to use it."""

from collections.abc import Mapping
from typing import Any

from sightline.config import RunConfig


def model_card(
    config: RunConfig,
    about: Mapping[str, Any],
    n_parameters: int,
    figures: Mapping[str, float],
    what: str,
    signature: str,
) -> str:
    """Markdown. `figures` are those of the validation set, `what` the step or average they belong to.

    `signature` is sacreBLEU's of the BLEU among them.
    """
    model, corpus = config.model, about["corpus"]
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in corpus["dropped"].items()) or "none"
    start = f" from the weights of `{about['init']}`" if about.get("init") else ""
    return f"""# A translation model made with Sightline

| | |
|---|---|
| architecture | {model.architecture}: {model.n_encoder_layers} + {model.n_decoder_layers} layers, d_model \
{model.d_model}, d_ff {model.d_ff}, {model.n_heads} heads, {model.norm_position}-norm |
| parameters | {n_parameters:,} |
| vocabulary | {model.vocab_size:,} {config.data.subword} pieces |
| training data | {", ".join(corpus["train"])}: {corpus["pairs"]:,} pairs (dropped: {dropped}) |
| validation data | {", ".join(corpus["valid"])} |
| recipe | {about["recipe"]}{start}, seed {config.train.seed}; every setting is in `config.json` |
| weights | {what} |
| validation | {_figures(config, figures, signature)} |
| made with | sightline {about["sightline"]}, torch {about["torch"]}, Python {about["python"]} |

```sh
sightline translate . input.txt -o output.txt
```

```python
import sightline

model = sightline.load(".")
print(model.translate(["..."])[0].text)
```
"""


def _figures(config: RunConfig, figures: Mapping[str, float], signature: str) -> str:
    shown = [f"loss {figures['loss']:.4f} nats a piece"]
    if "bleu" in figures:
        search = f"beam {config.decode.beam_size}, length penalty {config.decode.length_penalty}"
        shown.append(f"BLEU {figures['bleu']:.2f} (`{signature}`; {search}; first {config.train.validate_bleu} pairs)")
    return ", ".join(shown)
