"""The tensors of adapters (LoRA) by the layer that they change, and the weights of that layer with them.

See `adapter_settings` for the settings and `adapters` for the tensors of the model.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from headwise.errors import UserError
from headwise.runtime.checkpoint.adapter_settings import AdapterSettings

PREFIX = "base_model.model."  # of every key
EMBEDDING = "embedding"  # part of the names for embeddings, whose weights are transposed
ENDS = {  # of the names of the tensors that a layer can have: what they are
    ".lora_A.weight": "A",
    ".lora_B.weight": "B",
    ".lora_B.bias": "bias",
    ".lora_embedding_A": "embedding A",
    ".lora_embedding_B": "embedding B",
    ".lora_magnitude_vector": "lengths",
    ".lora_magnitude_vector.weight": "lengths",
    ".token_adapter.trainable_tokens_delta": "tokens",
}


@dataclass(frozen=True)
class AdaptedLayer:
    """A layer by its name in peft, and the tensors of its adapter by the words of `ENDS`."""

    name: str
    parts: Mapping[str, Tensor]
    settings: AdapterSettings
    path: Path  # the file, for messages

    def merged(self, weight: Tensor, transposed: bool) -> Tensor:
        """The weights of the layer with those of the adapter.

        LoRA adds `scale * B A` to W (d_out, d_in). DoRA (https://arxiv.org/abs/2402.09353) scales each row of the sum
        to a length that was trained, too. The file may have W transposed, and always has those of embeddings so.
        Trained tokens are new rows of embeddings.
        """
        if "tokens" in self.parts:
            return self._with_rows(weight, self.parts["tokens"])
        transposed = transposed or "embedding A" in self.parts
        rows = weight.float().t() if transposed else weight.float()
        rows = self._sum(rows, self.scale * (self._matrix("B") @ self._matrix("A")))
        if "lengths" in self.parts:
            lengths = self.parts["lengths"].float().flatten()
            self._check(len(lengths) == len(rows), f"{len(lengths)} lengths for {len(rows)} rows")
            rows = rows * (lengths / rows.norm(dim=1))[:, None]
        return rows.t().contiguous() if transposed else rows

    def biased(self, bias: Tensor) -> Tensor:
        """The bias of the layer with that of the adapter."""
        return self._sum(bias.float(), self.scale * self.parts["bias"].float())

    @property
    def scale(self) -> float:
        """The factor of the product of A and B."""
        return self.settings.scale(self.name)

    def check(self) -> None:
        """`UserError` unless these are the tensors that the settings ask for, and fit together."""
        found, settings = {*self.parts}, self.settings
        wanted = {"A", "B"} | ({"lengths"} if settings.dora else set()) | ({"bias"} if settings.biased else set())
        if "embedding A" in found:
            wanted = {"embedding A", "embedding B"} | (wanted & {"lengths"})
        wanted = {"tokens"} if "tokens" in found else wanted
        listed = ", ".join(sorted(wanted))
        self._check(found == wanted, f"has {', '.join(sorted(found))}; its settings ask for {listed}")
        if "tokens" not in found:
            a, b, rank = self._matrix("A"), self._matrix("B"), settings.rank(self.name)
            self._check(a.dim() == b.dim() == 2, "A or B is no matrix")
            self._check(len(a) == b.shape[1] == rank, f"is of rank {len(a)} and {b.shape[1]}, its settings say {rank}")

    def _matrix(self, name: str) -> Tensor:
        return self.parts[f"{EMBEDDING} {name}" if f"{EMBEDDING} {name}" in self.parts else name].float()

    def _with_rows(self, weight: Tensor, rows: Tensor) -> Tensor:
        tokens = self.settings.tokens_of(self.name)
        fits = tuple(rows.shape) == (len(tokens), weight.shape[-1])
        self._check(fits, f"is {list(rows.shape)} for {len(tokens)} tokens of width {weight.shape[-1]}")
        self._check(
            max(tokens, default=0) < len(weight), f"trained tokens up to {max(tokens, default=0)} of {len(weight)}"
        )
        weight = weight.clone()
        weight[list(tokens)] = rows.to(weight.dtype)
        return weight

    def _sum(self, weight: Tensor, added: Tensor) -> Tensor:
        self._check(weight.shape == added.shape, f"is {list(added.shape)}, the layer is {list(weight.shape)}")
        return weight + added

    def _check(self, fits: bool, problem: str) -> None:
        if not fits:
            raise UserError(f"{self.path}: {self.name}: {problem}")


def split_parts(
    tensors: Mapping[str, Tensor], settings: AdapterSettings, path: Path
) -> tuple[dict[str, Tensor], list[AdaptedLayer]]:
    """Tensors of the model that were trained in full, by their names in peft; and the layers with adapters.

    Raises:
        UserError: a name is unknown, or a layer has not the tensors that the settings ask for.
    """
    whole: dict[str, Tensor] = {}
    layers: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        end = next((end for end in ENDS if name.endswith(end)), "")
        if not key.startswith(PREFIX) or (not end and re.search(r"\.(lora_|token_adapter)", name)):
            raise UserError(f"{path}: {key}: is not understood; merge it with peft")
        if end:
            layers.setdefault(name.removesuffix(end), {})[ENDS[end]] = tensor
        else:
            whole[name.replace(".modules_to_save.", ".")] = tensor
    if not tensors:
        raise UserError(f"{path}: has no tensors")
    adapted = [AdaptedLayer(name, parts, settings, path) for name, parts in layers.items()]
    for layer in adapted:
        layer.check()
    return whole, adapted
