"""Errors of communication between processes."""

import pytest
import torch
import torch.distributed as dist

from headwise.pytorch.training.ranks import Ranks

GLOO = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:30620. This is "
    "typically caused by a remote worker crashing. Check the logs of the remote worker before reporting an error."
)
STACK = "\nException raised from wait at /pytorch/x.cpp:1 (most recent call first):\nframe #0: c10::Error::Error\n"


@pytest.mark.parametrize("stack", ["", STACK])
def test_an_error_of_gloo_is_one_whole_line(stack: str) -> None:
    ranks = Ranks(0, 2, 0, 0, torch.device("cpu"), 4.0, dist.HashStore())
    ranks.store.set("stuck 1", "7")
    ranks.waiting = "the sum of the losses"
    message = str(ranks.timeout_error(RuntimeError(GLOO + stack), 7))
    assert GLOO in message and "step 7, the sum of the losses" in message and "resume with --resume" in message
    assert "\n" not in message and "frame" not in message
    assert ranks.timeout_error(RuntimeError("shapes do not fit"), 7) is None
