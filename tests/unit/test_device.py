"""Which device a name means; torch is asked only where there may be more than the CPU."""

import pytest
import torch

from headwise import device
from headwise.device import choose_device, decoding_precision, device_name
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


@pytest.mark.parametrize(
    ("name", "capability", "overflows", "expected"),
    [
        ("cpu", (0, 0), False, "float32"),
        ("cpu", (9, 0), False, "float32"),
        ("cuda", (6, 1), False, "float32"),
        ("cuda", (7, 0), False, "float16"),
        ("cuda:1", (9, 0), False, "float16"),
        ("cuda", (7, 5), True, "float32"),
        ("cuda", (8, 0), True, "bfloat16"),
        ("cuda", (10, 0), True, "bfloat16"),
    ],
)
def test_decoding_precision(name: str, capability: tuple[int, int], overflows: bool, expected: str) -> None:
    assert decoding_precision(name, capability, overflows) == expected
