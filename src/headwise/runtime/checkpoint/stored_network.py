"""The network of a model folder: the compiled library reads its parameters, the torch module is made on request.

Importing this module needs no torch; what the compiled library does not support is imported where it is used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from headwise.config.network import NetworkConfig
from headwise.contract import SearchEngine
from headwise.runtime.checkpoint.compiled import compiled
from headwise.runtime.checkpoint.compiled_encoder import compiled_encoder
from headwise.runtime.checkpoint.layout import PACKED
from headwise.runtime.checkpoint.manifest import Digests
from headwise.runtime.checkpoint.packed import FileStates, read_packed
from headwise.runtime.formats.weights import Arrays
from headwise.runtime.native.encoder import CompiledEncoder
from headwise.runtime.native.linear import NUMBERS
from headwise.runtime.native.network import CompiledNetwork

Built = tuple[Any, Any]  # a torch module in evaluation mode, and what gives its forms for decoding


@dataclass(frozen=True)
class LibraryParameters:
    """The parameters of a network that the compiled library supports, in files."""

    axes: NetworkConfig
    arrays: Arrays  # by our names
    folder: Path
    digests: Digests
    files: Sequence[str]  # of the weights in this folder, checked when they are read

    def check(self) -> None:
        """`UserError` if the manifest lists other files."""
        self.digests.check(self.files)

    def states(self) -> FileStates:
        """The size and the times of each file. Nobody can set the time of a change, so a replaced file shows."""
        paths = [self.folder / name for name in self.files]
        found = [path.stat() for path in paths if path.is_file()]
        return [[one.st_size, one.st_mtime_ns, one.st_ctime_ns] for one in found]

    def network(self, compute: str) -> Any:
        """A `CompiledNetwork` or a `CompiledEncoder`.

        It is read from a packed file, without reading weights that have not changed since they were packed, or packed
        while the digests of the weights are computed.
        """
        if packed := self._packed(compute):
            return compiled(self.axes, *packed)
        self.digests.begin(self.files)
        build: Any = compiled if self.axes.decoder else compiled_encoder
        network = build(self.axes, self.arrays, compute)
        self.digests.check(self.files)
        return network

    def _packed(self, compute: str) -> tuple[Any, ...] | None:
        path = self.folder / PACKED.format(compute)
        if not path.is_file():
            return None

        def check(packed: FileStates) -> None:
            if packed != self.states():
                self.check()

        return read_packed(path, self.axes, self.arrays, compute, self._listed(), check)

    def digest(self) -> str:
        """The digest of the weights, of several files those of all; `UserError` if the manifest lists other files."""
        self.check()
        return self._listed()

    def _listed(self) -> str:
        return " ".join(map(self.digests.digest_of, self.files))


class StoredNetwork:
    """A network that is read from its folder when it is needed.

    On a CPU the compiled library takes the parameters from the file, and torch is not needed until something asks for
    the `network`.
    """

    def __init__(self, build: Callable[[], Built], parameters: LibraryParameters | None) -> None:
        """`build` makes the torch module; it is called at once if the library cannot take the network."""
        self._build_torch = build
        self.parameters = parameters
        self._network: Any = None
        self._forms: Any = None
        self._compiled: dict[str, Any] = {}
        self._lock = RLock()  # a model may be used in several threads
        if parameters is None:
            self._build()

    @property
    def network(self) -> Any:
        """The torch module, in evaluation mode. It may be changed, so from now on the library packs its parameters."""
        with self._lock:
            if self._network is None:
                self._build()
        return self._network

    def with_network(self, network: Any) -> "StoredNetwork":
        """Another network of the same kind, such as one that is being trained."""
        from headwise.pytorch.architectures.registry import decoding_variants

        return StoredNetwork(lambda: (network, decoding_variants(network, "float32")), None)

    @property
    def changed(self) -> bool:
        """Whether the network computes anything else than its files."""
        return bool(getattr(self._forms, "changed", False))

    @property
    def in_library(self) -> bool:
        """Whether the compiled library supports it."""
        if self.parameters is not None:
            return True
        from headwise.pytorch.search.compiled import native_available

        return native_available(self._network)

    @property
    def unsupported(self) -> str:
        """The part of the network that the compiled library does not support; "" if it supports all."""
        if self.parameters:
            return ""
        from headwise.pytorch.search.compiled import unsupported_module

        return unsupported_module(self._network)

    @property
    def dtype(self) -> str:
        """The precision of the parameters, such as "float32"."""
        if self.parameters:
            return "float32"
        return str(next(iter(self.network.parameters())).dtype).removeprefix("torch.")

    @property
    def automatic(self) -> str:
        """The precision of decoding for "auto"."""
        return getattr(self._forms, "automatic", "float32") if self.dtype == "float32" else self.dtype

    @property
    def n_parameters(self) -> int:
        """Number of trained values, shared ones counted once."""
        if parameters := self.parameters:  # another thread may be building the module
            return sum(int(np.prod(shape)) for shape in parameters.arrays.shapes.values())
        return sum(parameter.numel() for parameter in self.network.parameters())

    def engine(self, compute: str) -> SearchEngine:
        """The search engine for this precision: the compiled library, or torch if the library does not support it."""
        if searcher := self.searcher(compute):
            return searcher
        form = self.form(compute)
        from headwise.pytorch.search.stepwise import engine_of

        return engine_of(form)

    def form(self, compute: str) -> Any:
        """The network in this precision: in the compiled library, or a torch module if the library cannot."""
        if searcher := self.searcher(compute):
            return searcher
        _ = self.network
        return self._forms(compute)

    def searcher(self, compute: str) -> CompiledNetwork | None:
        """An encoder-decoder in the compiled library; None if only the torch module will do."""
        found = self._in_library(compute)
        assert found is None or isinstance(found, CompiledNetwork)
        return found

    def encoder(self, compute: str) -> CompiledEncoder | None:
        """An encoder in the compiled library; None if only the torch module will do."""
        found = self._in_library(compute)
        assert found is None or isinstance(found, CompiledEncoder)
        return found

    def _in_library(self, compute: str) -> Any:
        compute = "float32" if compute == "auto" else compute
        with self._lock:
            if self.parameters is None or compute not in NUMBERS:
                return None
            if compute not in self._compiled:
                self._compiled[compute] = self.parameters.network(compute)
            return self._compiled[compute]

    def _build(self) -> None:
        if self.parameters:
            self.parameters.check()
        self._network, self._forms = self._build_torch()
        self.parameters, self._compiled = None, {}
