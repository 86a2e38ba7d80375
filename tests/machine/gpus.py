"""Describes GPUs and MIG instances: the builder, and sentences that change what it made."""

from __future__ import annotations

import dataclasses
import re
import uuid

NAMES = uuid.UUID("6f9619ff-8b86-d011-b42d-00c04fc964ff")
"""Makes the UUID of a GPU from its name and place, the same in every run."""

BRANDS = {"Quadro": 1, "Tesla": 2, "GeForce": 5, "NVIDIA RTX": 13, "NVIDIA": 14, "GeForce RTX": 15}
COMPUTE_MODES = {"default": 0, "exclusive_thread": 1, "prohibited": 2, "exclusive_process": 3}
VIRTUALIZATION = {"none": 0, "passthrough": 1, "vgpu": 2, "host_vgpu": 3, "host_vsga": 4}
DRIVER_MODELS = {"wddm": 0, "tcc": 1, "mcdm": 2}
FABRIC_STATES = {"not_supported": 0, "not_started": 1, "in_progress": 2, "completed": 3}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

Fault = tuple[str, str, int]
"""Kind (`fail`, `hang`, `stubborn`, `crash`, `slow`), function, number."""


def size(text: str | int) -> int:
    """Bytes of `15360 MiB`, or of a number of bytes."""
    if isinstance(text, int):
        return text
    number, unit = text.split()
    return int(float(number) * UNITS[unit])


def architecture_of(capability: tuple[int, int]) -> int:
    """NVML's number of the architecture."""
    if capability[0] == 7:
        return 6 if capability[1] >= 5 else 5
    if capability[0] == 8:
        return 8 if capability[1] == 9 else 7
    return {3: 2, 5: 3, 6: 4, 9: 9, 10: 10, 11: 10, 12: 10}.get(capability[0], 0xFFFFFFFF)


@dataclasses.dataclass(frozen=True)
class Instance:
    """One MIG instance. `index` is its place in NVML's list, which may have holes."""

    profile: str
    index: int | None = None
    uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int = 0
    multiprocessors: int = 14
    memory_total: int = 0
    memory_used: int = 0
    memory_reserved: int = 0
    faults: tuple[Fault, ...] = ()

    @property
    def slices(self) -> int:
        """Seventh parts of the GPU."""
        return int(self.profile.split("g")[0])

    def failing(self, **codes: int) -> Instance:
        """This instance, with these functions failing with these codes."""
        return dataclasses.replace(self, faults=(*self.faults, *_failures(codes)))


def instance(
    profile: str, *, memory: str | int | None = None, multiprocessors: int | None = None, **facts: object
) -> Instance:
    """A MIG instance by profile: `instance("1g.10gb")`."""
    match = re.fullmatch(r"(\d)g\.(\d+)gb", profile)
    assert match, f"a MIG profile looks like 1g.10gb, not {profile}"
    total = size(memory) if memory is not None else int(match[2]) * UNITS["GiB"] - 512 * UNITS["MiB"]
    made = Instance(profile, multiprocessors=multiprocessors or 14 * int(match[1]), memory_total=total)
    return dataclasses.replace(made, **facts)  # type: ignore[arg-type]


def _failures(codes: dict[str, int]) -> tuple[Fault, ...]:
    return tuple(("fail", function, code) for function, code in codes.items())


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU. None means that the board does not support the fact: NVML answers NOT_SUPPORTED."""

    name: str
    compute_capability: tuple[int, int]
    memory_total: int
    pci_device_id: str
    multiprocessors: int
    clock_mhz: int = 1500
    uuid: str | None = None
    pci_bus_id: str | None = None
    pci_subsystem_id: int = 0x12A210DE
    speed: int | None = None
    """Rank in CUDA's fastest-first order; multiprocessors times clock where nobody says otherwise."""
    memory_used: int = 0
    memory_reserved: int = 0
    memory_readable: bool = True
    """False: NVML does not support the memory calls (unified memory); CUDA still tells the total."""
    integrated: bool = False
    brand: str = "NVIDIA"
    architecture: int | None = None
    minor_number: int = 0
    persistence: int | None = 1
    compute_mode: str | None = "default"
    virtualization: str | None = "none"
    driver_model: str | None = None
    pcie_generation: int = 4
    pcie_width: int = 16
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_corrected: int = 0
    ecc_uncorrected: int = 0
    retired_pending: bool | None = None
    remapped_correctable: int = 0
    remapped_uncorrectable: int = 0
    remapped_pending: bool | None = None
    remapped_failed: bool = False
    fabric_state: str | None = None
    fabric_status: int = 0
    fabric_health: int = 0
    mig_mode: bool | None = None
    mig_pending: bool | None = None
    mig_maximum: int = 7
    instances: tuple[Instance, ...] = ()
    processes: tuple[tuple[int, int], ...] = ()
    in_nvml: bool = True
    in_cuda: bool = True
    faults: tuple[Fault, ...] = ()

    def but(self, **changes: object) -> Gpu:
        """This GPU with other facts: `A100.but(compute_mode="prohibited", ecc_uncorrected=3)`."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def at(self, pci_bus_id: str) -> Gpu:
        """This GPU in another slot: `T4.at("00000000:65:00.0")`."""
        return self.but(pci_bus_id=pci_bus_id)

    def lost(self, *, after_handle: bool = False) -> Gpu:
        """Fallen off the bus: every NVML call about it says GPU_IS_LOST, CUDA does not list it.

        With `after_handle`, NVML still hands out its handle first.
        """
        allowed = {"nvmlDeviceGetHandle*": 0} if after_handle else {}
        return self.failing(**allowed, **{"nvmlDeviceGet*": 15}).hidden_from_cuda()

    def refusing(self, code: int) -> Gpu:
        """NVML counts it and refuses its handle with `code`."""
        ways = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleByPciBusId")
        return self.failing(**dict.fromkeys(ways, code))

    def failing(self, **codes: int) -> Gpu:
        """With these functions failing: `T4.failing(nvmlDeviceGetName=999, cuDeviceGetName=3)`."""
        return self.but(faults=(*self.faults, *_failures(codes)))

    def hanging(self, *functions: str, stubborn: bool = False) -> Gpu:
        """With these functions never returning; `stubborn` ones ignore SIGTERM too."""
        kind = "stubborn" if stubborn else "hang"
        return self.but(faults=(*self.faults, *((kind, function, 0) for function in functions)))

    def using(self, memory: str | int, by: int | None = None) -> Gpu:
        """With memory in use, by the process of that id."""
        used = size(memory)
        processes = self.processes if by is None else (*self.processes, (by, used))
        return self.but(memory_used=self.memory_used + used, processes=processes)

    def mig_on(self, *instances: str | Instance) -> Gpu:
        """In MIG mode with these instances, or with none: `A100.mig_on("2g.20gb", "2g.20gb")`."""
        made = tuple(instance(each) if isinstance(each, str) else each for each in instances)
        return self.but(mig_mode=True, mig_pending=True, instances=made)

    def hidden_from_cuda(self) -> Gpu:
        """NVML knows it, CUDA does not."""
        return self.but(in_cuda=False)

    def hidden_from_nvml(self) -> Gpu:
        """CUDA knows it, NVML does not."""
        return self.but(in_nvml=False)

    def placed(self, position: int) -> Gpu:
        """With every fact that depends on its place: PCI bus id, UUIDs, numbers of its instances."""
        own = self.uuid or f"GPU-{uuid.uuid5(NAMES, f'{self.name} {position}')}"
        instances = []
        for index, each in enumerate(self.instances):
            number = each.index if each.index is not None else index
            instances.append(
                dataclasses.replace(
                    each,
                    index=number,
                    gpu_instance=each.gpu_instance if each.gpu_instance is not None else 7 + number,
                    uuid=each.uuid or f"MIG-{uuid.uuid5(NAMES, f'{own} {number}')}",
                )
            )
        return self.but(
            uuid=own,
            pci_bus_id=self.pci_bus_id or f"00000000:{0x0A + 3 * position:02X}:00.0",
            instances=tuple(instances),
        )

    @property
    def pci_address(self) -> tuple[int, int, int]:
        """Domain, bus and device."""
        assert self.pci_bus_id is not None
        domain, bus, rest = self.pci_bus_id.split(":")
        return int(domain, 16), int(bus, 16), int(rest.split(".")[0], 16)


def gpu(
    name: str,
    compute_capability: str,
    *,
    memory: str | int,
    pci_device_id: str,
    multiprocessors: int,
    **facts: object,
) -> Gpu:
    """A GPU: `gpu("Tesla T4", "7.5", memory="15360 MiB", pci_device_id="1EB8", multiprocessors=40)`."""
    major, minor = compute_capability.split(".")
    made = Gpu(name, (int(major), int(minor)), size(memory), pci_device_id, multiprocessors)
    return made.but(**facts)
