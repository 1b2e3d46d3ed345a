"""Which device a name means; torch is asked only where there may be more than the CPU."""

import pytest
import torch

from headwise import device
from headwise.device import choose_device, device_name
from headwise.errors import UserError


@pytest.mark.parametrize(("drivers", "has_cuda", "expected"), [((), True, "cpu"), (("null",), True, "cuda")])
def test_auto_is_cuda_where_torch_sees_a_device(
    drivers: tuple[str, ...], has_cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "DRIVERS", drivers)
    monkeypatch.setattr(device.sys, "platform", "linux")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    assert device_name("auto") == expected
    assert choose_device("auto") == torch.device(expected)


def test_elsewhere_torch_is_always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "DRIVERS", ())
    monkeypatch.setattr(device.sys, "platform", "win32")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert device_name("auto") == "cuda" and device_name("cuda:1") == "cuda:1"


def test_other_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="--device tpu: use auto, cpu or cuda"):
        device_name("tpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="torch found no CUDA device"):
        device_name("cuda")
