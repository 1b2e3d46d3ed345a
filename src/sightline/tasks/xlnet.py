"""What a run says of an XLNet that it starts from, whichever of its heads it trains.

Not here: what is learnt (`permutation_modelling`, `labelling`).
"""

from sightline.config.settings import ModelConfig
from sightline.models.xlnet import XLNetModel


def xlnet_rows(model: XLNetModel) -> dict[str, str]:
    """What the model card says of it."""
    shape = model.config
    sizes = f"d_model {shape.d_model}, d_ff {shape.d_ff}, {shape.n_heads} heads"
    return {
        "architecture": f"xlnet: {shape.n_layers} layer{'s' * (shape.n_layers > 1)}, {sizes}",
        "vocabulary": f"{shape.vocab_size:,} pieces of `{model.path.absolute().name}`",
    }


def in_words(model: XLNetModel, task: str) -> ModelConfig:
    """An XLNet in the words of a recipe, as far as they go: `shape_of`, backwards."""
    shape = model.config
    return ModelConfig(
        task=task,
        vocab_size=shape.vocab_size,
        pad_id=int(model.hf_config.get("pad_token_id") or 0),
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        n_heads=shape.n_heads,
        n_encoder_layers=shape.n_layers,
        dropout=shape.dropout,
        activation=shape.activation.partition("_")[0],
        positions="relative",
    )
