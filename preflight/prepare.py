"""From options to a plan: thresholds, a first look at the data, the node's facts, its GPUs.

Only here can a run turn out to be wrong use. What may hang (the data path, NVML) is asked by
children; nothing is measured.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from preflight import checks
from preflight.checks.contract import Unavailable
from preflight.diagnosis.data_paths import ANSWER_LIMIT_S
from preflight.facts import Facts
from preflight.isolate import Stop
from preflight.isolate import run as run_isolated
from preflight.job import DataOn, DataState
from preflight.machine.facts import gather
from preflight.machine.identity import node
from preflight.machine.inventory import answered
from preflight.machine.root import Root
from preflight.plan import Plan, UsageError, check_ids, make_job, make_plan, select
from preflight.run_options import Options
from preflight.seed import seed_of
from preflight.settings import SHIPPED, Settings, resolve
from preflight.settings.layers import match_gpu, shipped_layers
from preflight.try_import import check_spec, try_import

INVENTORY_LIMIT_S = 20.0
"""Where no thresholds say how long NVML may take (gpus.timeout_s)."""


_UNKNOWN_GPU = (
    "no threshold file is for {name!r}: its copies are judged by the link they take "
    "(run.unknown_gpu: link-model), and the rate that it trains at is not known"
)


_ORDER_OF_MODELS = (
    "CUDA_VISIBLE_DEVICES counts, and the GPUs are of several models: CUDA counts the fastest "
    "first, and here they were counted along the PCI bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
)


_PLANNED_BY_THRESHOLDS = (
    "--dataset: what its samples weigh is not known before it runs, so limits, shm and the memory "
    "needed are reckoned with `sample` and `loader` of the thresholds: set them to the job's"
)


@dataclass(frozen=True)
class _FirstLook:
    """What a child saw of --data."""

    state: DataState | None = None
    writable_at: str | None = None
    """Its mount point, where it may be written to."""
    on: DataOn | None = None


class Preparation:
    """The steps in their order: settle, look, plan.

    Raises, in any of them:
        UsageError, SettingsError: options or thresholds are wrong.
        Unavailable: the data path or the module of --dataset could not be looked at.
    """

    settings: Settings

    def __init__(
        self,
        options: Options,
        environ: Mapping[str, str],
        machine: Root,
        stop: Stop,
        progress: Callable[[str, str], None],
    ) -> None:
        self._options, self._environ, self._machine = options, environ, machine
        self._stop, self._progress = stop, progress
        self._known = checks.discover()
        self.notes: list[str] = []

    def settle(self) -> Settings:
        """Every threshold file that could be used is valid, and which checks are to run."""
        options = self._options
        if options.dataset is not None:
            check_spec(options.dataset)
        self._resolve()
        check_ids(self._known, options.check, options.skip, options.waive)
        self._ids = select(self.settings.run.checks, self._known, options.check, options.skip)
        missing = [id for id in self._ids if id not in self.settings.limits]
        if missing:
            raise UsageError(
                f"--check {missing[0]}: the thresholds have no section {missing[0]} to judge it by"
            )
        return self.settings

    def look(self) -> Facts:
        """What is known of data and node; the model of the GPUs may change the settings."""
        self._data = self._look_at_data()
        self._facts = gather(self._machine, self._environ)
        if self._options.dataset is not None:
            self.notes.append(_PLANNED_BY_THRESHOLDS)
        if self.settings.gpu != "none":
            self._progress("inventory", "asking NVML for the GPUs")
            gpus = self.settings.limits.get("gpus")
            self._facts = with_gpus(
                self._facts,
                self._stop,
                limit_s=gpus.timeout_s if gpus else INVENTORY_LIMIT_S,
                total_s=self.settings.run.deadline_s,
            )
            devices = self._facts.cuda_devices()
            names = {device.gpu.name for device in devices}
            # Mixed models are each judged by their link; a MIG slice is not the whole GPU.
            whole = not any(device.gpu.mig for device in devices)
            self._note_odd_choices(names)
            if self.settings.gpu == "auto" and len(names) == 1 and whole:
                self._resolve(name := names.pop())
                if not any(layer.startswith("gpu/") for layer in self.settings.layers):
                    self.notes.append(_UNKNOWN_GPU.format(name=name))
        return self._facts

    def _note_odd_choices(self, names: Set[str | None]) -> None:
        named = self.settings.gpu
        layers = [] if named == "auto" else shipped_layers("gpu", SHIPPED)
        layers = [layer for layer in layers if layer.path.stem == named]
        fits = any(match_gpu(name, layers) for name in names if name is not None)
        if layers and names and not fits:
            found = ", ".join(sorted(map(str, names)))
            self.notes.append(f"gpu: {named} was asked for, and the GPUs here are: {found}")
        environment = self._facts.environment
        visible = environment.get("CUDA_VISIBLE_DEVICES") or ""
        by_number = any(entry.strip().isdecimal() for entry in visible.split(","))
        if (
            by_number
            and len({gpu.name for gpu in self._facts.gpus}) > 1
            and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        ):
            self.notes.append(_ORDER_OF_MODELS)

    def plan(self) -> Plan:
        """What runs, on what, and what does not apply."""
        settings, options = self.settings, self._options
        job = make_job(
            sample=settings.sample, loader=settings.loader, stats=settings.stats,
            consumer=settings.consumer,
            workload=None if settings.workload == "none" else settings.workload,
            facts=self._facts, data=options.data, data_state=self._data.state,
            gpu_sharing=settings.expect.gpu_sharing, seed=self._seed(),
            data_writable_at=self._data.writable_at, data_on=self._data.on, dataset=options.dataset,
            explain=options.explain,
            max_read_gib=settings.run.max_read_gib, pace_ratio=settings.run.pace_ratio,
        )  # fmt: skip
        if options.dataset is not None and any(self._known[i].fan_out == "rank" for i in self._ids):
            self._progress("dataset", f"importing {options.dataset}")
            try_import(job, options.dataset, self._stop, settings.run.deadline_s)
        return make_plan(
            self._ids, self._known, settings.limits, job, self._facts,
            gpu_expected=settings.gpu != "none", deadline_s=settings.run.deadline_s,
            waive=options.waive,
        )  # fmt: skip

    def _seed(self) -> int:
        boot_id = self._machine.read_text("/proc/sys/kernel/random/boot_id")
        return seed_of(node(self._machine, self._environ).name, boot_id, time.time_ns())

    def _resolve(self, gpu_name: str | None = None) -> None:
        limits = {id: check.limits for id, check in self._known.items()}
        self.settings = resolve(self._options.request, limits, SHIPPED, gpu_name=gpu_name)

    def _look_at_data(self) -> _FirstLook:
        """A first look at --data, by a child: the path may hang."""
        path = self._options.data
        if path is None:
            if self.settings.expect.data:
                raise UsageError(
                    "the thresholds expect a data path (expect.data): name it with --data"
                )
            return _FirstLook()
        # A data set of the job's own may read any kind of file.
        codec = self.settings.sample.codec if self._options.dataset is None else "raw"
        ended = run_isolated(
            {
                "task": "look", "path": path, "codec": codec,
                "scratch": secrets.token_hex(4),
            },
            timeout_s=ANSWER_LIMIT_S, stop=self._stop,
        )  # fmt: skip
        if ended.kind == "stopped" or (ended.kind == "timeout" and ended.went):
            return _FirstLook("no_answer")
        if ended.kind != "done":
            text = ended.text or f"the process that looks at it gave no answer ({ended.kind})"
            raise Unavailable(f"--data {path} could not be looked at: {text}")
        state: DataState | None = ended.answer["state"]
        if state is None:
            raise UsageError(
                f"--data {path}: there is no such path; in a container, mount it first "
                "(docker run -v, volumeMounts)"
            )
        on = ended.answer["on"]
        return _FirstLook(
            state, ended.answer["writable_at"], None if on is None else DataOn.model_validate(on)
        )


def with_gpus(
    facts: Facts, stop: Stop, *, limit_s: float = INVENTORY_LIMIT_S, total_s: float = math.inf
) -> Facts:
    """The facts with what NVML tells of the GPUs; a child asks it, since it may hang."""
    ended = run_isolated(
        {"task": "inventory", "limit_s": limit_s, "scratch": secrets.token_hex(4)},
        timeout_s=limit_s,
        total_s=total_s,
        stop=stop,
    )
    nvml, gpus, node = answered(ended, limit_s)
    return facts.model_copy(update={"nvml": nvml, "gpus": gpus, "node": node})
