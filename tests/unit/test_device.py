"""Which device a name means; torch is asked only where there may be more than the CPU."""

from pathlib import Path

import pytest
import torch

from headwise import device
from headwise.device import (
    CAPTURE,
    DEFER,
    OFFLOAD,
    PACK,
    choose_device,
    decoding_precision,
    device_name,
    existing_device,
    is_on,
    trains_in_bfloat16,
)
from headwise.errors import UserError


@pytest.mark.parametrize(("drivers", "expected"), [((), "cpu"), (("null",), "cuda")])
def test_auto_is_cuda_where_torch_sees_a_device(
    drivers: tuple[str, ...], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "DRIVERS", drivers)
    monkeypatch.setattr(device.sys, "platform", "linux")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert device_name("auto") == expected
    assert choose_device("auto") == torch.device(expected)


def test_elsewhere_torch_is_always_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "DRIVERS", ())
    monkeypatch.setattr(device.sys, "platform", "win32")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_name("auto") == "cuda" and device_name("cuda:1") == "cuda:1"


@pytest.mark.parametrize("name", ["tpu", "mps", "cuda:", "cuda:-1"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"--device {name}: [^\n]+$"):
        device_name(name)


@pytest.mark.parametrize(("name", "n_devices"), [("cuda", 0), ("cuda:99", 0), ("cuda:99", 1), ("cuda:2", 2)])
def test_devices_that_are_not_there(name: str, n_devices: int) -> None:
    with pytest.raises(UserError, match=f"--device {name}: [^\n]+$") as error:
        existing_device(name, n_devices)
    assert (str(n_devices) if n_devices else "no CUDA device") in str(error.value).removeprefix(f"--device {name}")


def test_a_device_with_a_number_becomes_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and events are otherwise those of the first device."""
    chosen: list[torch.device] = []
    monkeypatch.setattr(device, "_n_devices", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert [choose_device(name) for name in ("cuda:1", "cuda")] == [torch.device("cuda:1"), torch.device("cuda")]
    assert chosen == [torch.device("cuda:1")]


@pytest.mark.parametrize(
    ("precision", "capability", "expected"),
    [
        ("auto", (0, 0), False),  # a CPU, where `resolve_auto` has decided
        ("auto", (7, 5), False),
        ("auto", (8, 0), True),
        ("auto", (12, 0), True),
        ("bf16", (0, 0), True),
        ("float32", (9, 0), False),
    ],
)
def test_training_precision(precision: str, capability: tuple[int, int], expected: bool) -> None:
    assert trains_in_bfloat16(precision, capability) is expected


def test_what_no_gpu_has_run_is_switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = (Path(__file__).parents[2] / "docs/how-to/scaling.md").read_text(encoding="utf-8")
    for switch in (CAPTURE, DEFER, OFFLOAD, PACK):
        assert f"`{switch}=1`" in scaling
        monkeypatch.delenv(switch, raising=False)
        assert not is_on(switch)
        for value, expected in (("1", True), ("0", False), ("", False)):
            monkeypatch.setenv(switch, value)
            assert is_on(switch) is expected
        monkeypatch.setenv(switch, "yes")
        with pytest.raises(UserError, match=f"{switch}=yes: [^\n]+$"):
            is_on(switch)


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
