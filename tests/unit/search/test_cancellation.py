"""Searches that another thread cancels, in both engines."""

from collections.abc import Sequence
from threading import Thread
from typing import Any

import pytest
import torch

from headwise.config.model import TransformerConfig
from headwise.config.settings import SearchSettings
from headwise.contract import SearchCancelled
from headwise.pytorch.architectures.transformer import build_model
from headwise.pytorch.search.compiled import pack_network
from headwise.pytorch.search.stepwise import engine_of
from headwise.runtime.native.network import CompiledNetwork
from headwise.runtime.search.cancellation import Cancellation, check_cancelled, set_when_cancelled
from headwise.runtime.search.engine import decode_tokens

SOURCES = [[5, 6, 7], [8, 9]]
LONG = SearchSettings(min_length_extra=300, max_length_extra=300)
PHRASES = [[[7, 8]], [[9]]]


def cancel_elsewhere(cancellation: Cancellation) -> None:
    """Cancel from another thread."""
    thread = Thread(target=cancellation.cancel)
    thread.start()
    thread.join()


@pytest.fixture
def model() -> Any:
    config = TransformerConfig(vocab_size=12, d_model=8, d_ff=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1)
    return build_model(config)


@pytest.mark.parametrize(
    ("settings", "phrases"),
    [({"beam_size": 1}, None), ({"beam_size": 3}, None), ({"sample": True}, None), ({"beam_size": 3}, PHRASES)],
    ids=["greedy", "beam", "sampling", "phrases"],
)
def test_torch_stops_before_the_next_step(model: Any, settings: Any, phrases: Any) -> None:
    cancellation, steps, decode = Cancellation(), [0], model.decode

    def counted(*arguments: Any) -> torch.Tensor:
        steps[0] += 1
        if steps[0] == 3:
            cancel_elsewhere(cancellation)
        return decode(*arguments)

    model.decode = counted
    with cancellation.context(), pytest.raises(SearchCancelled):
        decode_tokens(engine_of(model), SOURCES, LONG.changed(settings), phrases=phrases)
    assert steps == [3]


class CancelsItself:
    """The compiled library, with a search that is cancelled when it has begun; counts searches that end."""

    def __init__(self, network: CompiledNetwork, cancellation: Cancellation) -> None:
        self.network, self.cancellation, self.ended = network, cancellation, 0

    def search(self, sources: Sequence[Sequence[int]], *arguments: Any) -> Any:
        cancel_elsewhere(self.cancellation)
        found = self.network.search(sources, *arguments)
        self.ended += 1
        return found

    begin = search


@pytest.mark.parametrize("threads", [1, 2])
def test_the_library_stops(model: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.runtime.search.engine.usable_threads", lambda: threads)
    cancellation = Cancellation()
    engine = CancelsItself(pack_network(model.eval(), "float32"), cancellation)
    with cancellation.context(), pytest.raises(SearchCancelled):
        decode_tokens(engine, SOURCES, LONG.changed({"batch_tokens": 1}))
    assert engine.ended == 0


def test_a_context_that_is_not_cancelled_changes_nothing(model: Any) -> None:
    for engine in (engine_of(model), pack_network(model.eval(), "float32")):
        expected = decode_tokens(engine, SOURCES, LONG)
        with Cancellation().context():
            assert decode_tokens(engine, SOURCES, LONG) == expected
            assert decode_tokens(engine, SOURCES, LONG) == expected, "another search of the same context"


def test_a_cancelled_context_begins_no_search(model: Any) -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellation.context(), pytest.raises(SearchCancelled):
        decode_tokens(engine_of(model), SOURCES, LONG)
    check_cancelled()  # nothing is cancelled outside
    with set_when_cancelled(torch.zeros(1, dtype=torch.int32).numpy()) as nothing:
        assert nothing is None
