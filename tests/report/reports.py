"""Reports that every format is tested on; one for each way a run can end."""

from __future__ import annotations

from typing import Any

from preflight.model import Finding, Node, Rate, Report, Result, Setting, SettingsRecord
from preflight.outcome import Blame, Outcome

NODE = Node(name="gpu-b17", name_from="NODE_NAME", hostname="preflight-x7k2p")
OPTIONS = {
    "report_only": False, "exit_on": "any", "check": [], "skip": [], "waive": [],
    "data": "/data", "deadline_s": 120,
}  # fmt: skip


def report(*results: Result, **changes: Any) -> Report:
    """A complete report of a passing run, changed as told."""
    fields: dict[str, Any] = {
        "preflight_version": "0.1.0",
        "complete": True,
        "outcome": Outcome.PASS,
        "exit_code": 0,
        "reason": None,
        "started_at": "2027-01-15T03:12:44Z",
        "duration_s": 13.912,
        "node": NODE,
        "facts": {"gpus": []},
        "settings": SettingsRecord(layers=("default.yaml", "cpu.yaml"), options=OPTIONS),
        "results": results,
    }
    return Report(**(fields | changes))


def result(check: str, outcome: Outcome, *findings: Finding, **changes: Any) -> Result:
    fields: dict[str, Any] = {"required": True, "duration_s": 0.204, "findings": findings}
    return Result(check=check, outcome=outcome, **(fields | changes))


def settings(**options: Any) -> SettingsRecord:
    return SettingsRecord(layers=("default.yaml", "cpu.yaml"), options=OPTIONS | options)


WORKERS = Finding(
    id="limits.workers_per_cpu", outcome=Outcome.WARN, observed=2.0, comparison="at_most",
    limit=1.0, unit="workers/CPU", blame=Blame.SETUP,
    cause="4 loader workers share 2.0 CPUs (a quota on a 64-CPU node)",
    remedy="give the container 4 CPUs or set loader.num_workers to 2",
)  # fmt: skip
SHM = Finding(
    id="shm.need", outcome=Outcome.PASS, subject="/dev/shm", observed=4.0, comparison="at_least",
    limit=0.1122, unit="GiB",
)  # fmt: skip
SUPPLY = Finding(
    id="dataloader.supply", outcome=Outcome.FAIL, subject="rank 0", observed=811.9,
    comparison="at_least", limit=2511.0, unit="samples/s",
    source="MLPerf Storage v2.0 rules, AU 90 %",
    cause="the loader workers used all of the 2.0-CPU quota",
    remedy="give the container 7 CPUs (2,790 / 811.9 x 2.0 = 6.9)", blame=Blame.SETUP,
)  # fmt: skip
SUPPLY_RATE = Rate(
    value=811.9, low=790, high=835, unit="samples/s", blocks=8, discarded=1,
    samples=(799.1, 830.7, 805.2, 788.8, 841.0, 797.9, 822.4, 812.6),
)  # fmt: skip

SHM_RESULT = result(
    "shm", Outcome.PASS, SHM, reading={"need_gib": 0.1122, "free_gib": 4.0, "written_gib": 0.1122}
)

FAILING = report(
    result(
        "limits", Outcome.WARN, WORKERS, duration_s=0.021,
        reading={"effective_cpus": 2.0, "planned_workers": 4, "memory_headroom_gib": 15.59},
    ),
    SHM_RESULT,
    result(
        "dataloader", Outcome.FAIL, SUPPLY, duration_s=11.377,
        reading={
            "supply_samples_per_s": SUPPLY_RATE.model_dump(mode="json"),
            "demand_samples_per_s": 2790, "demand_from": "site", "feed_ratio": 0.291,
            "early": False, "first_batch_s": 0.41, "corrupt_samples": 0,
        },
    ),
    outcome=Outcome.FAIL, exit_code=1, reason="dataloader: 812 samples/s of 2,511 needed",
    facts={
        "cpu": {"online": 64, "affinity": 64, "quota": 2.0, "effective": 2.0,
                "from": "cgroup v2 cpu.max"},
        "memory": {"limit_gib": 16.0, "headroom_gib": 15.59, "from": "cgroup v2 memory.max"},
        "shm": {"size_gib": 4.0, "free_gib": 4.0}, "gpus": [],
        "torch": {"version": "2.13.0+cpu", "cuda": None},
        "environment": {"NVIDIA_VISIBLE_DEVICES": None},
    },
    settings=SettingsRecord(
        layers=("default.yaml", "cpu.yaml", "site.yaml"), options=OPTIONS,
        values={
            "loader.num_workers": Setting.model_validate({"value": 4, "from": "site.yaml:3"}),
            "dataloader.demand_samples_per_s": Setting.model_validate(
                {"value": 2790, "from": "site.yaml:6", "source": "lambdal v2-fp16, H100 SXM5"}
            ),
            "dataloader.min_feed_ratio": Setting.model_validate(
                {"value": 0.9, "from": "default.yaml:31",
                 "source": "MLPerf Storage v2.0 rules, AU 90 %"}
            ),
        },
    ),
)  # fmt: skip
"""The worked example of a run that fails, host only."""

PASSING = report(
    result(
        "gpus", Outcome.PASS,
        Finding(id="gpus.count", outcome=Outcome.PASS, observed=8, comparison="at_least", limit=8,
                unit="GPUs"),
        *(
            Finding(id="gpus.name", outcome=Outcome.PASS, subject=f"GPU {index}",
                    observed="NVIDIA H100 80GB HBM3")
            for index in range(2)
        ),
        reading={"count": 8}, duration_s=0.31,
    ),
    SHM_RESULT,
    result(
        "pinned_copy", Outcome.PASS,
        Finding(id="pinned_copy.verified", outcome=Outcome.PASS, subject="GPU 0", observed=True),
        Finding(id="pinned_copy.h2d_fraction", outcome=Outcome.PASS, subject="GPU 0",
                observed=1.1057, comparison="at_least", limit=0.85, unit="of the link"),
        reading=[{"h2d": Rate(value=53.07, low=52.99, high=53.11, unit="GB/s", blocks=10,
                              discarded=0, samples=(53.1,) * 10).model_dump(mode="json")}],
        duration_s=2.2, required=False,
    ),
    settings=settings(data=None),
)  # fmt: skip
"""A pass on a GPU node, without --data; one of its checks is not required."""

MIXED = report(
    result(
        "driver_cuda", Outcome.PASS,
        Finding(id="driver_cuda.driver_floor", outcome=Outcome.PASS, observed="570.133.20",
                comparison="at_least", limit="525.60.13",
                source="CUDA 13.2.2 release notes, table 2"),
    ),
    result(
        "pinned_copy", Outcome.SKIP, reason="GH200: a coherent link has no PCIe verdict",
        duration_s=0.0,
    ),
    result(
        "shm", Outcome.WARN,
        SHM.model_copy(update={
            "outcome": Outcome.WARN, "would_be": Outcome.FAIL, "waived": True, "observed": 0.0625,
            "cause": "/dev/shm is 64 MiB, Docker's default", "blame": Blame.SETUP,
            "remedy": "start the container with --shm-size=1g (Kubernetes: an emptyDir with "
            "medium: Memory at /dev/shm)",
        }),
    ),
    result(
        "storage", Outcome.WARN,
        Finding(id="storage.readable", outcome=Outcome.WARN, would_be=Outcome.ERROR,
                subject="/data", cause="no permission to read /data [Errno 13]",
                remedy="run as a user that may read it: id 1000 owns it", blame=Blame.SETUP),
        required=False, reason="no permission to read /data",
    ),
    result(
        "dataloader", Outcome.ERROR,
        Finding(id="dataloader.supply", outcome=Outcome.ERROR, subject="rank 1", observed=2490.4,
                comparison="at_least", limit=2511.0, unit="samples/s", blame=Blame.SHARED,
                cause="others used CPU in 5 of 8 blocks",
                remedy="run again when the neighbours are quiet, or reserve CPUs"),
        Finding(id="dataloader.corrupt_samples", outcome=Outcome.PASS, subject="rank 1",
                observed=0.0, comparison="at_most", limit=1.0, unit="%"),
        reason="others used CPU in 5 of 8 blocks", partial=True, duration_s=20.08,
        output="\x1b[33mUserWarning\x1b[0m: <worker 3> said `|` & left\r\n" + "progress 10 %\r",
    ),
    outcome=Outcome.ERROR, exit_code=0,
    settings=settings(allow_undecided=True, waive=["shm.need"]).model_copy(update={
        "warnings": ("PREFLIGHT_DAAT is not an option: did you mean PREFLIGHT_DATA?",)
    }),
)  # fmt: skip
"""Undecided, with a skip, a waiver, a check that is not required, and --allow-undecided."""

USAGE = report(
    outcome=Outcome.ERROR, exit_code=2, duration_s=0.0,
    reason="site.yaml:3: gpus.min_cuont is not a key: did you mean min_count?",
    facts={}, settings=SettingsRecord(),
)  # fmt: skip
"""A threshold file that is wrong: nothing was measured."""

NOT_REACHED = {"outcome": Outcome.ERROR, "reason": "not reached", "duration_s": 0.0}

INCOMPLETE = report(
    SHM_RESULT,
    Result(check="dataloader", required=True, findings=(), **NOT_REACHED),
    Result(check="feed", required=False, findings=(), **NOT_REACHED),
    complete=False, outcome=Outcome.ERROR, exit_code=3, reason="still running: dataloader",
)  # fmt: skip
"""What lies on disk while the loader is measured, and for ever if the kernel kills everything."""

INTERRUPTED = report(SHM_RESULT, exit_code=130, reason="interrupted (SIGINT) before dataloader")
"""Stopped by hand when everything had passed so far."""

REPORTS = {
    "failing": FAILING,
    "passing": PASSING,
    "mixed": MIXED,
    "usage": USAGE,
    "incomplete": INCOMPLETE,
    "interrupted": INTERRUPTED,
}
