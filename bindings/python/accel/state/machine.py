# SPDX-License-Identifier: Apache-2.0
"""Properties of this machine and this process's surroundings, found out without the engine."""

import dataclasses
import functools
import importlib.metadata
import logging
import operator
import os
import platform
import re
import subprocess
import sys

from .environment import get_int_from_env, parse_flag_from_env

COMPARISONS = {">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "<=": operator.le, "<": operator.lt}


def are_libraries_initialized(*library_names):
    """The given packages that are imported already."""
    return [name for name in library_names if name in sys.modules]


def _version(text):
    """The numbers of a version, "2.13.0+cpu" as (2, 13, 0)."""
    return tuple(int(number) for number in re.match(r"\d+(?:\.\d+)*", str(text)).group().split("."))


def compare_versions(library_or_version, operation, requirement_version):
    """Compares the version of an installed package, or a version, with another one."""
    if operation not in COMPARISONS:
        raise ValueError(f"operation={operation!r}: expected one of {', '.join(COMPARISONS)}")
    text = str(library_or_version)
    found = _version(text if text[:1].isdigit() else importlib.metadata.version(text))
    wanted = _version(requirement_version)
    longest = max(len(found), len(wanted))
    return COMPARISONS[operation](found + (0,) * (longest - len(found)), wanted + (0,) * (longest - len(wanted)))


def is_torch_version(operation, version):
    """Compares the version of the installed torch with another one."""
    return compare_versions("torch", operation, version)


@dataclasses.dataclass
class CPUInformation:
    """A process's place in its job, as launchers say it in the environment."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1


def get_cpu_distributed_information():
    """The place in the job that torchrun, MPI and MVAPICH give a process."""
    mpi = ("OMPI_COMM_WORLD_{}", "MV2_COMM_WORLD_{}")
    names = {"rank": ("RANK", "PMI_RANK", *mpi), "world_size": ("WORLD_SIZE", "PMI_SIZE", *mpi),
             "local_rank": ("LOCAL_RANK", "MPI_LOCALRANKID", *mpi), "local_world_size": ("LOCAL_WORLD_SIZE", "MPI_LOCALNRANKS", *mpi)}
    ends = {"rank": "RANK", "world_size": "SIZE", "local_rank": "LOCAL_RANK", "local_world_size": "LOCAL_SIZE"}
    return CPUInformation(**{field: get_int_from_env([name.format(ends[field]) for name in variables], getattr(CPUInformation, field))
                             for field, variables in names.items()})


def _ask_nvidia(what):
    """A line for each GPU, by the driver's own program."""
    return subprocess.check_output(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"], text=True).strip().splitlines()


def get_gpu_info():
    """The names of the NVIDIA GPUs, and how many there are."""
    names = [line.strip() for line in _ask_nvidia("name")]
    return names, len(names)


def get_driver_version():
    """The version of NVIDIA's driver."""
    return _ask_nvidia("driver_version")[0].strip()


def check_cuda_p2p_ib_support():
    """Whether GPUs can copy from one to another: those of the RTX 40 series need a newer driver for it."""
    try:
        names, count = get_gpu_info()
        return count < 2 or not any("RTX 40" in name for name in names) or compare_versions(get_driver_version(), ">=", "550.40.07")
    except (OSError, subprocess.SubprocessError):
        return True


def check_cuda_fp8_capability():
    """Whether the first GPU computes in 8-bit floating point: as the driver's program says, else torch."""
    try:
        capability = tuple(map(int, _ask_nvidia("compute_cap")[0].split(".")))
    except (OSError, subprocess.SubprocessError):
        if "torch" not in sys.modules:
            raise
        capability = sys.modules["torch"].cuda.get_device_capability()
    return capability >= (8, 9)


def override_numa_affinity(local_process_index, verbose=None):
    """Binds this thread, and those that it starts, to the processors near the accelerator of a rank."""
    from .. import capi

    capi.accel_set_numa_affinity(local_process_index)
    if parse_flag_from_env("ACCELERATE_DEBUG_MODE") if verbose is None else verbose:
        log_affinity(local_process_index)


def log_affinity(local_process_index):
    """Logs on which processors this process runs."""
    processors = sorted(os.sched_getaffinity(0))
    logging.getLogger("accel.utils.environment").info("Assigning %d cpu cores to process %d: %s", len(processors), local_process_index, processors)


@functools.cache
def set_numa_affinity(local_process_index, verbose=None):
    """override_numa_affinity(), once for each rank."""
    override_numa_affinity(local_process_index, verbose)


def check_os_kernel():
    """Warns of Linux kernels before 5.5."""
    system = platform.uname()
    if system.system == "Linux" and _version(system.release)[:2] < (5, 5):
        logging.getLogger(__name__).warning(f"Linux {system.release}: 5.5.0 or later is recommended")
