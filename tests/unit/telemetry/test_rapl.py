"""Energy of CPU packages out of a powercap tree of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from servegate_action.records import Absent
from servegate_action.telemetry.cpu import CpuBackend, cpu_name
from servegate_action.telemetry.rapl import Rapl, open_rapl


def zone(root: Path, name: str, kind: str, energy: str = "1000000", span: str = "262143328850") -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(f"{kind}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{span}\n")
    return folder


def opened(root: Path) -> Rapl:
    rapl = open_rapl(root)
    assert isinstance(rapl, Rapl)
    return rapl


def test_packages_are_summed_and_their_parts_are_not(tmp_path: Path) -> None:
    first, second = zone(tmp_path, "intel-rapl:0", "package-0"), zone(tmp_path, "intel-rapl:1", "package-1")
    zone(tmp_path, "intel-rapl:0:0", "dram")
    zone(tmp_path, "intel-rapl:2", "psys")
    rapl = opened(tmp_path)
    (first / "energy_uj").write_text("1500000")
    (second / "energy_uj").write_text("1250000")
    assert rapl.energy_mj() == 750


def test_a_wrap_is_undone(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", energy="9000000", span="10000000")
    rapl = opened(tmp_path)
    totals: list[int] = []
    for now in ("500000", "9999999", "1500000"):
        (folder / "energy_uj").write_text(now)
        totals.append(rapl.energy_mj())
    assert totals == [1_500, 10_999, 12_500]


def test_a_machine_without_the_counter_says_so(tmp_path: Path) -> None:
    assert open_rapl(tmp_path) == Absent(
        absent="this machine shows no RAPL package counter (virtual machines rarely do)"
    )


def test_a_counter_that_is_no_number_says_so(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", energy="?")
    found = open_rapl(tmp_path)
    assert isinstance(found, Absent)
    assert "cannot be read" in found.absent


def test_power_is_the_difference_of_two_ticks(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0")
    backend = CpuBackend(powercap=tmp_path, cpus=2)
    first = backend.sample(t_ns=1_000_000_000, tick=0).devices[0]
    (folder / "energy_uj").write_text(str(1_000_000 + 12_500_000))
    second = backend.sample(t_ns=1_250_000_000, tick=1).devices[0]
    assert (first.energy_mj, first.power_mw) == (0, None)
    assert (second.energy_mj, second.power_mw) == (12_500, 50_000)
    facts = backend.static(1)
    assert facts.energy_counter == "RAPL package energy (powercap energy_uj), the whole machine's"
    assert facts.notes == ("energy and power are those of the whole machine",)


def test_a_counter_that_goes_away_is_an_error_of_the_sample(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0")
    backend = CpuBackend(powercap=tmp_path, cpus=2)
    (folder / "energy_uj").unlink()
    sample = backend.sample(t_ns=1, tick=0)
    assert sample.error is not None
    assert sample.error.startswith("RAPL: ")
    assert sample.devices[0].energy_mj is None


@pytest.mark.parametrize(
    "text,name",
    [("processor\t: 0\nmodel name\t: AMD EPYC 9654 96-Core Processor\n", "AMD EPYC 9654 96-Core Processor")],
)
def test_the_processors_name_is_the_kernels(text: str, name: str) -> None:
    assert cpu_name(lambda: text) == name


def test_a_processor_without_a_name_still_has_one() -> None:
    assert cpu_name(lambda: "processor: 0\n")
