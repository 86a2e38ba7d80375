"""NVML's numbers in words. Source: nvml.h of CUDA 13.5 and nvidia-ml-py 13.615.71."""

from __future__ import annotations

NOT_SUPPORTED = 3
NOT_FOUND = 6
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16

ERRORS: dict[int | None, tuple[str | None, str]] = {
    1: ("NVML_ERROR_UNINITIALIZED", "NVML is not initialized"),
    2: ("NVML_ERROR_INVALID_ARGUMENT", "invalid argument"),
    3: ("NVML_ERROR_NOT_SUPPORTED", "not supported"),
    4: ("NVML_ERROR_NO_PERMISSION", "no permission"),
    5: ("NVML_ERROR_ALREADY_INITIALIZED", "already initialized"),
    6: ("NVML_ERROR_NOT_FOUND", "not found"),
    7: ("NVML_ERROR_INSUFFICIENT_SIZE", "insufficient size"),
    8: ("NVML_ERROR_INSUFFICIENT_POWER", "external power cables are not attached"),
    9: ("NVML_ERROR_DRIVER_NOT_LOADED", "the NVIDIA driver is not loaded"),
    10: ("NVML_ERROR_TIMEOUT", "the driver gave up waiting"),
    11: ("NVML_ERROR_IRQ_ISSUE", "the kernel found an interrupt issue with a GPU"),
    12: ("NVML_ERROR_LIBRARY_NOT_FOUND", "the NVML library was not found"),
    13: ("NVML_ERROR_FUNCTION_NOT_FOUND", "this driver or this binding lacks the function"),
    14: ("NVML_ERROR_CORRUPTED_INFOROM", "the board's infoROM is corrupted"),
    15: ("NVML_ERROR_GPU_IS_LOST", "the GPU has fallen off the bus or is otherwise out of reach"),
    16: ("NVML_ERROR_RESET_REQUIRED", "the GPU must be reset before it can be used again"),
    17: ("NVML_ERROR_OPERATING_SYSTEM", "the operating system blocked the request"),
    18: ("NVML_ERROR_LIB_RM_VERSION_MISMATCH", "the NVML library and the loaded kernel module differ in version"),
    19: ("NVML_ERROR_IN_USE", "the GPU is in use"),
    20: ("NVML_ERROR_MEMORY", "out of memory"),
    21: ("NVML_ERROR_NO_DATA", "no data"),
    22: ("NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", "not available with ECC on"),
    23: ("NVML_ERROR_INSUFFICIENT_RESOURCES", "insufficient resources"),
    24: ("NVML_ERROR_FREQ_NOT_SUPPORTED", "frequency not supported"),
    25: ("NVML_ERROR_ARGUMENT_VERSION_MISMATCH", "this driver does not know the structure's version"),
    26: ("NVML_ERROR_DEPRECATED", "the function was withdrawn"),
    27: ("NVML_ERROR_NOT_READY", "not ready"),
    28: ("NVML_ERROR_GPU_NOT_FOUND", "no GPU was found"),
    29: ("NVML_ERROR_INVALID_STATE", "invalid state"),
    30: ("NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", "this kind of reset is not supported"),
    999: ("NVML_ERROR_UNKNOWN", "an internal driver error, seen also when a GPU falls off the bus"),
}

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
    18: "NVIDIA RTX Virtual Game Development",
}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
DRIVER_MODELS = {0: "wddm", 1: "tcc", 2: "mcdm"}
VIRTUALIZATIONS = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}

UNIFIED_NAMES = frozenset({"GB10", "N1X", "nvgpu", "Orin", "Thor", "Xavier", "Tegra"})
"""Words in the names of chips whose GPU has no memory of its own. GH200 and GB200 do have their own."""
