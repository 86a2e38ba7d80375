"""A machine of ours: any GPUs and any faults, for the real TensorFlow and the real nvidia-ml-py, without a GPU.

Small C libraries (`stand_ins/`) take the places of `libcuda.so.1`, `libnvidia-ml.so.1` and the CUDA user libraries.
They are compiled once a test run and read one text file that describes the machine. A test asks the fixture `machine`:

    from tests.machine import A100, T4, gpu, instance

    def test_both_are_listed(machine):
        m = machine(gpus=[T4, A100])                      # in PCI order, which is NVML's; CUDA lists the A100 first
        done = m.python("import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())")
        assert done.stdout == "2\n"

What a process sees:

    m.python(source, CUDA_VISIBLE_DEVICES="1")            # variables of the process; None unsets one
    m.run([sys.executable, "-m", "hwprobe", "check"], timeout=60)      # killed with its group at the limit
    subprocess.Popen(..., env=m.environment(CUDA_DEVICE_ORDER="PCI_BUS_ID"))
    m.gpus[0].uuid, m.gpus[0].pci_bus_id                  # as they were placed, in NVML's order
    m.calls("nvmlInit", "nvmlShutdown"), m.allocations    # what the libraries were asked; m.forget_calls()

Faults of a GPU: `A100.lost()`, `T4.refusing(4)`, `T4.failing(nvmlDeviceGetName=999, cuDeviceGetName=3)`,
`T4.hanging("nvmlDeviceGetName")`, `T4.hidden_from_cuda()`, `T4.hidden_from_nvml()`, and other facts:
`T4.using("3 GiB", by=4711)`, `A100.mig_on()`, `A100.mig_on("2g.20gb", instance("1g.10gb", index=3))`,
`A100.but(ecc_uncorrected=3, compute_mode="prohibited", fabric_state="in_progress")`, `T4.at("0000000F:01:00.0")`.

Faults of the machine: `nvml_init=18`, `cu_init=802`, `fail={"nvmlDeviceGetCount": 999}`, `hang=["nvmlInit"]`,
`stubborn=["nvmlInit"]` (SIGTERM does not help), `crash=["cuInit"]`, `slow={"nvmlInit": 500}` (milliseconds),
`lacks=["nvmlDeviceGetMemoryInfo_v2"]` (the symbol is not in the library), `missing=["libcudnn.so.9"]`,
`broken=["libcudnn.so.9"]` (a file that is no library), `count_after=(1, 1)` (after one call NVML counts one GPU).
A name without `_v2` means the function in every version; one that ends in `*`, all that begin so. The stand-ins export
every function of nvidia-ml-py 13 and most of CUDA's; one that nobody wrote says NOT_SUPPORTED.

Other choices: `driver="535.104.05"` (None: no driver at all), `cuda="12.2"`, `toolkit="11.8"` or `"12.2"` or None,
`cudnn="9.1.0"`, `library_version` and `kernel_driver` where they differ from the driver, `mig_devices_per_process`,
`files={"proc/cpuinfo": cpuinfo(flags="amx_bf16"), ".dockerenv": "", "dev/nvidia0": None}` under the folder that the
host probe of a process on this machine takes for `/`.

Importing TensorFlow costs seconds. Many cases share one import, each in its own forked process:

    ends = python_in_forks([Case(machine(gpus=[T4]), source), Case(machine(gpus=[A100]), source, {"TF_...": "1"})])
"""

from tests.machine.boards import (
    A100,
    A100_40GB,
    B200,
    GB10,
    GT_1030,
    GTX_980,
    GTX_1080_TI,
    GTX_1660_TI,
    H100,
    H200,
    K80,
    L4,
    P100,
    RTX_3090,
    RTX_4090,
    RTX_5090,
    T4,
    T1200,
    V100,
)
from tests.machine.forks import Case, python_in_forks
from tests.machine.gpus import Gpu, Instance, gpu, instance
from tests.machine.machine import Call, Machine
from tests.machine.root import cpuinfo, driver_version, meminfo
from tests.machine.workshop import NoCompilerError, Workshop, find_compiler

__all__ = [
    "A100",
    "A100_40GB",
    "B200",
    "GB10",
    "GTX_980",
    "GTX_1080_TI",
    "GTX_1660_TI",
    "GT_1030",
    "H100",
    "H200",
    "K80",
    "L4",
    "P100",
    "RTX_3090",
    "RTX_4090",
    "RTX_5090",
    "T4",
    "T1200",
    "V100",
    "Call",
    "Case",
    "Gpu",
    "Instance",
    "Machine",
    "NoCompilerError",
    "Workshop",
    "cpuinfo",
    "driver_version",
    "find_compiler",
    "gpu",
    "instance",
    "meminfo",
    "python_in_forks",
]
