"""The network of a model folder written by `train`, made when it is first needed.

Nothing here needs torch: what builds a network of torch, and searches with it, is handed in (`TorchSide`).
"""

import math
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, Protocol, runtime_checkable

from headwise.checkpoint.compiled import compiled, fits, is_for_library
from headwise.checkpoint.folder import Folder
from headwise.checkpoint.layout import PACKED, WEIGHTS
from headwise.checkpoint.manifest import Digests
from headwise.checkpoint.packed import read_packed
from headwise.checkpoint.weights import WeightsFile
from headwise.config.model import ModelConfig
from headwise.contract import SearchEngine
from headwise.native.network import NUMBERS, CompiledNetwork


@runtime_checkable
class TorchSide(Protocol):
    """What needs torch: `checkpoint.with_torch`, a module."""

    def build_trained(self, config: ModelConfig, weights: WeightsFile, device: str) -> tuple[Any, Any]: ...
    def engine_of(self, model: Any) -> SearchEngine: ...
    def read_published(self, folder: Path, device: str, dtype: str) -> Folder: ...


class Trained:
    """A trained network. On a CPU the compiled library takes its parameters one by one from the file, and torch is not
    needed until somebody asks for the `network`.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: WeightsFile,
        device: str,
        digests: Digests,
        torch_side: Callable[[], TorchSide],
    ) -> None:
        """`UserError` where the weights are not those of such a network, or `digests` has another one of them.

        `torch_side` is called when torch is first needed.
        """
        self._torch_side = torch_side
        self._config = config
        self._weights: WeightsFile | None = weights
        self._device = device
        self._digests = digests
        self._network: Any = None
        self._forms: Any = None  # of the network, as `architectures.decoding_forms` makes them
        self._searchers: dict[str, CompiledNetwork] = {}
        self._lock = RLock()  # a model may be used in several threads
        self.n_parameters = sum(map(math.prod, weights.shapes.values()))  # shared ones are in the file once
        if not (device == "cpu" and is_for_library(config) and fits(config, weights.shapes)):
            self._build()

    @property
    def network(self) -> Any:
        """The torch module, in evaluation mode. Once it is known it may change, and there is no `searcher` any more."""
        with self._lock:
            if self._network is None:
                self._build()
        return self._network

    @property
    def changed(self) -> bool:
        """Whether the network computes anything else than the files say."""
        return bool(getattr(self._forms, "changed", False))

    def engine(self, compute: str) -> SearchEngine:
        """What searches in these numbers: the compiled library, or torch where that cannot."""
        if searcher := self.searcher(compute):
            return searcher
        _ = self.network
        return self._torch_side().engine_of(self._forms(compute))

    def searcher(self, compute: str) -> CompiledNetwork | None:
        """The network in the compiled library; None where only the torch module will do."""
        with self._lock:
            if self._weights is None or compute not in NUMBERS:
                return None
            if compute not in self._searchers:
                self._searchers[compute] = self._compiled(self._weights, compute)
            return self._searchers[compute]

    def _compiled(self, weights: WeightsFile, compute: str) -> CompiledNetwork:
        """From a packed file without reading the weights, or from the weights while their digest is computed."""
        if packed := self._packed(weights, compute):
            return compiled(self._config, *packed)
        self._digests.begin([WEIGHTS])
        network = compiled(self._config, weights, compute)
        self._digests.check([WEIGHTS])
        return network

    def _packed(self, weights: WeightsFile, compute: str) -> tuple[Any, ...] | None:
        """What `compiled` is told of a file that was packed ahead of time; None without one of these weights."""
        path = weights.path.with_name(PACKED.format(compute))
        if not path.is_file():
            return None
        return read_packed(path, self._config, weights, compute, self._digests.digest_of(WEIGHTS))

    def _build(self) -> None:
        assert self._weights is not None
        self._digests.check([WEIGHTS])
        self._network, self._forms = self._torch_side().build_trained(self._config, self._weights, self._device)
        self._weights, self._searchers = None, {}
