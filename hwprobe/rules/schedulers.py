"""HWP308 and HWP311: what a scheduler and a launcher of several processes gave to this one."""

from __future__ import annotations

from hwprobe.findings import Action, Explanation, Rule, Severity
from hwprobe.report import Report
from hwprobe.rules.presence import nvidia_gpu_expected
from hwprobe.rules.verdict import PASS, Case, NotApplicable, Problem, RuleCheck, Verdict
from hwprobe.rules.visible_devices import NO_DEV_FILES, VARIABLE

SLURM_WITHOUT_GPU = Rule(
    id="HWP308",
    name="slurm-no-gpu",
    title="This Slurm job was given no GPU",
    severity=Severity.WARNING,
    action=Action.USER,
    hides_gpus=True,
    explanation=Explanation(
        checks="In a Slurm job: whether it was allotted GPUs.",
        matters="Slurm writes the word NoDevFiles into CUDA_VISIBLE_DEVICES, or sets nothing at all. Nothing hides the "
        "node's GPUs in the second case: the job then computes on GPUs that belong to other jobs.",
        fix="Ask for GPUs: `#SBATCH --gres=gpu:1` (or `--gpus=1`).",
        reference="ray-project/ray#7014; Slurm generic resources guide",
    ),
)

_ALLOTTED = (
    *("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS"),
    *("SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK"),
)
_NONE_MEANT = (None, "", "0")


def slurm_gave_gpus(case: Case) -> Verdict:
    """HWP308."""
    host = case.report.host
    if host.scheduler != "slurm":
        return NotApplicable(reason="not in a Slurm job")
    if not nvidia_gpu_expected(case.report):
        return NotApplicable(reason="this node has no NVIDIA GPU")
    value = host.environment.get(VARIABLE)
    if value is not None and value.strip() != NO_DEV_FILES:
        return PASS
    if value is None and was_allotted_gpus(case.report):
        return PASS
    seen = len(case.report.visible_devices)
    others = f"; it sees {seen} of the node's GPUs all the same, which may be other jobs'" if seen else ""
    return (
        Problem(
            subject="slurm",
            message="this Slurm job was given no GPU" + (others if value is None else f" ({VARIABLE}={NO_DEV_FILES})"),
            evidence={VARIABLE: value, "visible": seen},
            fix=("#SBATCH --gres=gpu:1",),
        ),
    )


def was_allotted_gpus(report: Report) -> bool:
    """Whether Slurm's variables say that this job was allotted GPUs."""
    return any(report.host.environment.get(name) not in _NONE_MEANT for name in _ALLOTTED)


LOCAL_RANK = Rule(
    id="HWP311",
    name="local-rank-exceeds-gpus",
    title="The local rank is no index of a visible GPU",
    severity=Severity.INFO,
    action=Action.USER,
    explanation=Explanation(
        checks="Under a launcher of several processes: whether the local rank is below the number of visible GPUs.",
        matters="Scripts that pick the GPU with their local rank as its index fail where each process sees one GPU "
        "of its own. Where nobody gave each process its own MIG instance, all of them see the same one: an error.",
        fix="Let each process use GPU 0 of those that it sees; give each rank its own MIG instance with "
        "`CUDA_VISIBLE_DEVICES=MIG-<uuid>`.",
        reference="tensorflow/tensorflow#57385",
    ),
)

_LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")


def local_rank_is_an_index(case: Case) -> Verdict:
    """HWP311."""
    report, environment = case.report, case.report.host.environment
    name = next((one for one in _LOCAL_RANKS if environment.get(one, "").isdigit()), None)
    instances = [one for gpu in report.visible_devices if gpu.mig is not None for one in gpu.mig.instances]
    usable = sum(bool(one.visible) for one in instances)
    seen = len([gpu for gpu in report.visible_devices if gpu.mig is None or not gpu.mig.instances]) + usable
    if name is None or seen == 0:
        return NotApplicable(reason="no launcher of several processes, or no visible GPU")
    rank = int(environment[name])
    if rank < seen:
        return PASS
    shared = len(instances) > usable and VARIABLE not in environment
    return (
        Problem(
            subject=name,
            message=f"local rank {rank} and {seen} visible GPU{'' if seen == 1 else 's'}: no GPU has the rank as its "
            "index" + (", and every rank sees the same MIG instance" if shared else ""),
            evidence={name: rank, "visible": seen},
            fix=(
                f"{VARIABLE}=MIG-<uuid of its own>   # for each rank; nvidia-smi -L lists them"
                if shared
                else "tf.config.list_physical_devices('GPU')[0]   # the first GPU that the process sees, not [rank]",
            ),
            severity=Severity.ERROR if shared else None,
        ),
    )


RULES: tuple[RuleCheck, ...] = (
    RuleCheck(SLURM_WITHOUT_GPU, slurm_gave_gpus),
    RuleCheck(LOCAL_RANK, local_rank_is_an_index),
)
