"""Energy of CPU packages from the kernel's powercap tree (RAPL), where the kernel lets us read it.

Since 2020 (CVE-2020-8694) `energy_uj` is readable by root only; virtual machines rarely have it at all. Both cases are
said in words. The counters wrap at `max_energy_range_uj`; a wrap is undone here, as long as a zone is read more often
than it wraps (about once a minute at 250 W for the usual 32-bit range; the sampler reads every tick).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from servegate_action.records import Absent

POWERCAP = Path("/sys/class/powercap")


@dataclass(slots=True)
class _Zone:
    """One package domain and what is needed to undo its wraps."""

    energy: Path
    range_uj: int
    last_uj: int
    total_uj: int = 0

    def advance(self) -> int:
        """µJ since opening."""
        now = int(self.energy.read_text())
        step = now - self.last_uj
        self.total_uj += step if step >= 0 else step + self.range_uj
        self.last_uj = now
        return self.total_uj


@dataclass(slots=True)
class Rapl:
    """All package domains of the machine, as one counter that starts at 0."""

    zones: list[_Zone] = field(default_factory=list)

    def energy_mj(self) -> int:
        """Millijoules since opening, all packages together. Raises OSError when the kernel takes the permission away."""
        return sum(zone.advance() for zone in self.zones) // 1000


def open_rapl(root: Path = POWERCAP) -> Rapl | Absent:
    """The package counters, or why there are none. Sub-zones (core, uncore, dram) are parts of packages: not summed."""
    packages = [
        zone
        for zone in sorted(root.glob("intel-rapl:*"))
        if zone.name.count(":") == 1 and _text(zone / "name").startswith("package")
    ]
    if not packages:
        return Absent(absent="this machine shows no RAPL package counter (virtual machines rarely do)")
    rapl = Rapl()
    for zone in packages:
        energy = zone / "energy_uj"
        try:
            first = int(energy.read_text())
            span = int((zone / "max_energy_range_uj").read_text())
        except PermissionError:
            return Absent(absent=f"{energy} is readable by root only (CVE-2020-8694)")
        except (OSError, ValueError) as error:
            return Absent(absent=f"{energy} cannot be read: {error}")
        rapl.zones.append(_Zone(energy=energy, range_uj=span, last_uj=first))
    return rapl


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
