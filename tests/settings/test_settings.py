"""Files, environment and flags to one set of settings; and what is said when they are wrong."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from preflight.checks import discover
from preflight.checks.contract import DemandLimits, Limits
from preflight.settings import (
    Request,
    Settings,
    describe,
    list_shipped,
    resolve,
    validate_file,
)
from preflight.settings.schema import schema
from preflight.settings.tree import SettingsError

HERE = Path(__file__).parents[1]
SHIPPED = HERE.parent / "thresholds"
GOLDEN = HERE / "golden" / "merge"


class Driver(Limits):
    min_driver_by_cuda_major: dict[str, str]


class Gpus(Limits):
    min_count: int = Field(ge=0)


class LimitsCheck(Limits):
    max_workers_per_cpu: float = Field(gt=0)
    min_memory_headroom_gib: float = Field(ge=0)


class Shm(Limits):
    min_free_gib: float = Field(ge=0)
    margin: float = Field(ge=1)
    write: Literal["none", "bounded", "full"]


class PinnedCopy(Limits):
    min_fraction_of_link_by_gen: dict[str, float]
    warn_fraction_of_link_by_gen: dict[str, float]
    link_gb_per_s_x16: dict[str, float]
    min_h2d_gb_per_s: float | None = Field(default=None, gt=0)


class Dataloader(DemandLimits):
    min_feed_ratio: float = Field(gt=0)
    min_samples_per_s: float
    max_corrupt_percent: float = Field(ge=0, le=100)

    @model_validator(mode="after")
    def _together(self) -> Dataloader:
        if self.max_corrupt_percent > 50 and self.min_feed_ratio > 1:
            raise ValueError("no loader that drops half its samples feeds more than all")
        return self


CHECKS: Mapping[str, type[Limits]] = {
    "driver_cuda": Driver,
    "gpus": Gpus,
    "limits": LimitsCheck,
    "shm": Shm,
    "pinned_copy": PinnedCopy,
    "dataloader": Dataloader,
}
THRESHOLDS = GOLDEN / "thresholds"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settle(text: str = "", **asked: Any) -> Settings:
    """Resolve a site file with this text over the golden thresholds."""
    if text:
        Path("site.yaml").write_text(text)
        asked.setdefault("thresholds", "site.yaml")
    return resolve(Request(**asked), CHECKS, THRESHOLDS)


def refusal(text: str = "", **asked: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        settle(text, **asked)
    said = str(caught.value)
    assert said.count("\n") <= 1
    return said


# --- the worked example


def golden(monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.chdir(GOLDEN)
    request = Request(
        thresholds="site.yaml",
        gpu="h100-sxm",
        gpu_from="NVML name",
        set_environment=["pinned_copy.timeout_s=30"],
        set_options=["dataloader.min_feed_ratio=0.95"],
    )
    return resolve(request, CHECKS, THRESHOLDS)


# key, value, from, source
TABLE = [
    ("loader.batch_size", 256, "workload/resnet50.yaml:3", None),
    ("loader.num_workers", 12, "site.yaml:3", None),
    ("gpus.min_count", 8, "site.yaml:2", None),
    ("pinned_copy.min_h2d_gb_per_s", 22, "site.yaml:4", None),
    ("pinned_copy.timeout_s", 30, "PREFLIGHT_SET", None),
    ("dataloader.min_feed_ratio", 0.95, "--set", None),
    (
        "dataloader.demand_samples_per_s",
        2790,
        "gpu/h100-sxm.yaml:4: demand_samples_per_s.resnet50",
        "lambdal/deeplearning-benchmark v2-fp16, H100 SXM5",
    ),
    (
        "dataloader.min_samples_per_s",
        100,
        "default.yaml:32",
        "below half of one decoding worker's usual 209 to 302",
    ),
    (
        "driver_cuda.min_driver_by_cuda_major.12",
        "525.60.13",
        "default.yaml:17",
        "CUDA 13.2.2 release notes, table 2",
    ),
    ("workload", "resnet50", "site.yaml:1", None),
    ("gpu", "h100-sxm", "NVML name", None),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_golden_merge(row: tuple[str, Any, str, str | None], monkeypatch: Any) -> None:
    assert row in describe(golden(monkeypatch))


def test_golden_models(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = golden(monkeypatch)
    assert settings.layers == (
        "default.yaml", "gpu/h100-sxm.yaml", "workload/resnet50.yaml", "site.yaml",
    )  # fmt: skip
    assert settings.run.checks == (
        "driver_cuda", "gpus", "limits", "shm", "pinned_copy", "dataloader",
    )  # fmt: skip
    assert settings.run.deadline_s == 120
    assert (settings.gpu, settings.workload) == ("h100-sxm", "resnet50")
    assert settings.loader.num_workers == 12
    assert settings.sample.shape == (3, 224, 224)
    assert settings.expect.gpu_sharing == "exclusive"
    limits: Any = settings.limits
    assert set(limits) == set(CHECKS)
    assert limits["pinned_copy"].min_h2d_gb_per_s == 22
    assert limits["driver_cuda"].min_driver_by_cuda_major["11"] == "450.80.02"
    assert limits["dataloader"].demand_samples_per_s == 2790
    assert limits["dataloader"].demand_from == "gpu table"
    assert limits["dataloader"].reference_demand_samples_per_s is None
    assert "dataloader.demand_from" not in settings.values
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.gpu = "none"  # type: ignore[misc]


# --- demand


def demand(settings: Settings) -> tuple[float | None, str | None, float | None]:
    limits: Any = settings.limits["dataloader"]
    return (
        limits.demand_samples_per_s,
        limits.demand_from,
        limits.reference_demand_samples_per_s,
    )


def test_demand_is_the_first_that_is_stated() -> None:
    named = {"gpu": "h100-sxm", "workload": "resnet50"}
    site = "dataloader: {demand_samples_per_s: {value: 3000, source: ours}}\n"
    assert demand(settle(site, **named)) == (3000, "site", None)
    assert settle(site).values["dataloader.demand_samples_per_s"].source == "ours"
    set_item = ["dataloader.demand_samples_per_s=3100"]
    assert demand(settle(site, **named, set_options=set_item)) == (3100, "set", None)
    assert demand(settle(site, **named, set_environment=set_item)) == (3100, "set", None)
    assert demand(settle(**named)) == (2790, "gpu table", None)
    table = "demand_samples_per_s: {resnet50: 2500}\n"
    settings = settle(table, **named)
    assert demand(settings) == (2500, "gpu table", None)
    place = settings.values["dataloader.demand_samples_per_s"].from_
    assert place == "site.yaml:1: demand_samples_per_s.resnet50"


def test_without_a_workload_the_table_is_only_a_reference() -> None:
    settings = settle(gpu="h100-sxm")
    assert demand(settings) == (None, None, 2790)
    row = settings.values["dataloader.reference_demand_samples_per_s"]
    assert row.from_ == "gpu/h100-sxm.yaml:4: demand_samples_per_s.resnet50"


def test_no_figure_no_demand() -> None:
    assert demand(settle(workload="resnet50")) == (None, None, None)
    Path("mine.yaml").write_text("kind: workload\nloader: {batch_size: 9}\n")
    settings = settle(workload="./mine.yaml", gpu="h100-sxm")
    assert demand(settings) == (None, None, None)
    assert settings.loader.batch_size == 9
    assert settings.layers[-1] == "mine.yaml"


def test_a_workload_of_ones_own_has_the_figure_of_its_name() -> None:
    Path("resnet50.yaml").write_text("kind: workload\nloader: {batch_size: 9}\n")
    settings = settle(workload="./resnet50.yaml", gpu="h100-sxm")
    assert demand(settings) == (2790, "gpu table", None)
    assert settings.loader.batch_size == 9


def test_checks_without_the_field_take_no_part() -> None:
    class Plain(Limits):
        min_feed_ratio: float
        min_samples_per_s: float
        max_corrupt_percent: float

    request = Request(gpu="h100-sxm", workload="resnet50")
    settings = resolve(request, {**CHECKS, "dataloader": Plain}, THRESHOLDS)
    assert "dataloader.demand_samples_per_s" not in settings.values


# --- demand of several GPUs


TOGETHER = "multi_gpu_demand_samples_per_s: {resnet50: {value: 2757, source: eight}}\n"


def together(settings: Settings) -> tuple[float | None, str | None]:
    limits: Any = settings.limits["dataloader"]
    return limits.multi_gpu_demand_samples_per_s, limits.multi_gpu_demand_from


def test_several_gpus_have_their_own_figure_or_a_share_of_ones() -> None:
    named = {"gpu": "h100-sxm", "workload": "resnet50"}
    settings = settle(**named)
    assert together(settings) == (2371.5, "gpu table x 0.85")
    row = settings.values["dataloader.multi_gpu_demand_samples_per_s"]
    assert row.from_ == (
        "gpu/h100-sxm.yaml:4: demand_samples_per_s.resnet50 x consumer.multi_gpu_demand_ratio"
    )
    assert row.source == "lambdal/deeplearning-benchmark v2-fp16, H100 SXM5"
    settings = settle(TOGETHER, **named)
    assert together(settings) == (2757, "gpu table, multi-GPU")
    row = settings.values["dataloader.multi_gpu_demand_samples_per_s"]
    assert (row.from_, row.source) == (
        "site.yaml:1: multi_gpu_demand_samples_per_s.resnet50",
        "eight",
    )
    assert "dataloader.multi_gpu_demand_from" not in settings.values
    ratio = settle("consumer: {multi_gpu_demand_ratio: 0.5}\n", **named)
    assert together(ratio) == (1395, "gpu table x 0.5")


def test_a_figure_for_several_above_the_one_for_one_is_not_its_pair() -> None:
    # The site says that this GPU takes 2,000 in its job; what eight took in another is beside it.
    text = "demand_samples_per_s: {resnet50: 2000}\n" + TOGETHER
    settings = settle(text, gpu="h100-sxm", workload="resnet50")
    assert together(settings) == (1700, "gpu table x 0.85")


def test_a_stated_demand_has_no_other_one_for_several_gpus() -> None:
    named = {"gpu": "h100-sxm", "workload": "resnet50"}
    site = "dataloader: {demand_samples_per_s: 3000}\n"
    for settings in (
        settle(site + TOGETHER, **named),
        settle(**named, set_options=["dataloader.demand_samples_per_s=3100"]),
        settle(workload="resnet50"),
    ):
        assert together(settings) == (None, None)


def test_without_a_workload_the_reference_has_both_figures() -> None:
    settings = settle(gpu="h100-sxm")
    assert demand(settings) == (None, None, 2790)
    assert together(settings) == (2371.5, "gpu table x 0.85")


def test_the_ratio_is_a_share() -> None:
    said = refusal("consumer: {multi_gpu_demand_ratio: 1.2}\n")
    assert said.startswith("site.yaml:1: consumer.multi_gpu_demand_ratio: must be at most 1")


def test_the_jobs_demand_holds_for_every_check_that_states_none() -> None:
    class Other(DemandLimits):
        pass

    Path("site.yaml").write_text(
        "run: {checks: [dataloader, other]}\nother: {required: true, timeout_s: 5}\n"
        "dataloader: {demand_samples_per_s: {value: 3000, source: ours}}\n"
    )
    checks = {**CHECKS, "other": Other}

    def other(*items: str) -> tuple[float | None, str | None, str]:
        request = Request(
            thresholds="site.yaml", gpu="h100-sxm", workload="resnet50", set_options=items
        )
        settings = resolve(request, checks, THRESHOLDS)
        limits: Any = settings.limits["other"]
        row = settings.values["other.demand_samples_per_s"]
        return limits.demand_samples_per_s, limits.demand_from, row.from_

    assert other() == (3000, "site", "site.yaml:3: dataloader.demand_samples_per_s")
    assert other("dataloader.demand_samples_per_s=9") == (
        9, "set", "--set: dataloader.demand_samples_per_s",
    )  # fmt: skip
    assert other("other.demand_samples_per_s=8") == (8, "set", "--set")
    assert other("dataloader.demand_samples_per_s=null") == (
        2790, "gpu table", "gpu/h100-sxm.yaml:4: demand_samples_per_s.resnet50",
    )  # fmt: skip


# --- layers, flags, origins


def test_flags_beat_files_and_say_so() -> None:
    site = "workload: resnet50\ngpu: h100-sxm\nrun: {deadline_s: 60}\n"
    settings = settle(site)
    assert settings.layers[1:3] == ("gpu/h100-sxm.yaml", "workload/resnet50.yaml")
    assert settings.values["run.deadline_s"].from_ == "site.yaml:3"
    settings = settle(
        site, workload="none", gpu="none", deadline_s=30.0, workload_from="PREFLIGHT_WORKLOAD"
    )
    assert settings.layers == ("default.yaml", "site.yaml")
    assert (settings.workload, settings.gpu) == ("none", "none")
    assert settings.values["workload"].from_ == "PREFLIGHT_WORKLOAD"
    assert settings.values["gpu"].from_ == "--gpu"
    assert settings.run.deadline_s == 30
    assert settings.values["run.deadline_s"].from_ == "--deadline"


def test_later_items_win_and_null_removes() -> None:
    items = ["shm.margin=2", "shm.margin=3", "pinned_copy.min_h2d_gb_per_s=null"]
    settings = settle("", gpu="h100-sxm", set_environment=["shm.margin=9"], set_options=items)
    assert settings.values["shm.margin"].value == 3
    assert "pinned_copy.min_h2d_gb_per_s" not in settings.values
    settings = settle("pinned_copy: null\nrun: {checks: [shm]}\n")
    assert "pinned_copy" not in settings.limits
    assert "gpus" in settings.limits  # a section that is not listed is still validated


def test_lists_are_set_too() -> None:
    assert settle(set_options=["run.checks=[shm, limits]"]).run.checks == ("shm", "limits")


def test_a_path_is_relative_to_the_file_that_names_it() -> None:
    Path("conf").mkdir()
    Path("conf/mine.yaml").write_text("kind: workload\nloader: {batch_size: 9}\n")
    Path("conf/site.yaml").write_text("workload: ./mine.yaml\n")
    settings = settle(thresholds="conf/site.yaml")
    assert settings.layers == ("default.yaml", "conf/mine.yaml", "conf/site.yaml")
    assert settings.values["loader.batch_size"].from_ == "conf/mine.yaml:2"


# --- what is refused: text of site.yaml, beginning of the error, what else it says

REFUSED = [
    ("shm: {}\nshn: {}\n", "site.yaml:2: shn: unknown section or check.", "Did you mean shm?"),
    ("zzz: 1\n", "site.yaml:1: zzz: unknown section or check.", "Known: consumer, dataloader"),
    ("shm:\n  min_fre_gib: 1\n", "site.yaml:2: shm.min_fre_gib: ", "Did you mean min_free_gib?"),
    ("shm:\n  zzz: null\n", "site.yaml:2: shm.zzz: unknown key.", "Known: margin, min_free_gib"),
    ("shm: 5\n", "site.yaml:1: shm: needs a mapping of keys, got 5", ""),
    ("run: [shm]\n", "site.yaml:1: run: needs a mapping of keys", ""),
    (
        "\npinned_copy:\n  min_h2d_gb_per_s: 48GB/s\n",
        'site.yaml:3: pinned_copy.min_h2d_gb_per_s: needs a number, got "48GB/s"',
        "the unit stands in the key's name, write 48",
    ),
    ("shm: {timeout_s: 10 s}\n", "site.yaml:1: shm.timeout_s: ", "unit stands in the key's name"),
    ('shm: {margin: "1.5"}\n', "site.yaml:1: shm.margin: needs a number", "without quotes"),
    ("shm: {margin: true}\n", "site.yaml:1: shm.margin: needs a number, got true", ""),
    ("shm: {margin: 0.5}\n", "site.yaml:1: shm.margin: must be at least 1, got 0.5", ""),
    ("shm: {min_free_gib: -1}\n", "site.yaml:1: shm.min_free_gib: must be at least 0, got -1", ""),
    ("shm: {timeout_s: 0}\n", "site.yaml:1: shm.timeout_s: must be more than 0, got 0", ""),
    ("shm: {required: 1}\n", "site.yaml:1: shm.required: needs true or false, got 1", ""),
    ("shm: {margin: [1]}\n", "site.yaml:1: shm.margin: needs a number, got [1]", ""),
    ("shm: {margin: {a: 1}}\n", "site.yaml:1: shm.margin: needs a number, got a mapping", ""),
    ("shm: {write: ful}\n", "site.yaml:1: shm.write: needs none, bounded or full, got", ""),
    ("stats: {alpha_pass: 1}\n", "site.yaml:1: stats.alpha_pass: must be less than 1", ""),
    (
        "dataloader: {max_corrupt_percent: 101}\n",
        "site.yaml:1: dataloader.max_corrupt_percent: must be at most 100",
        "",
    ),
    ("loader: {batch_size: 6.5}\n", "site.yaml:1: loader.batch_size: needs a whole number", ""),
    (
        'loader: {num_workers: "12"}\n',
        "site.yaml:1: loader.num_workers: needs a whole number or auto, got",
        "write it without quotes",
    ),
    ("sample: {shape: [3, x]}\n", "site.yaml:1: sample.shape: item 2 needs a whole number", ""),
    ("sample: {shape: []}\n", "site.yaml:1: sample.shape: needs at least 1 items", ""),
    ("run: {checks: []}\n", "site.yaml:1: run.checks: needs at least 1 items", ""),
    ("run:\n  checks: [shn]\n", "site.yaml:2: run.checks: unknown check shn.", "mean shm?"),
    ("run: {checks: [shm, shm]}\n", "site.yaml:1: run.checks: shm is listed twice", ""),
    ("shm: null\n", "default.yaml:4: run.checks: shm is listed, but there is no section shm", ""),
    ("shm: {margin: null}\n", "site.yaml:1: shm: margin is missing", "add it"),
    ("loader: null\n", "site.yaml:1: the section loader is missing", "extend"),
    ("extends: none\n", "site.yaml:1: gpu is missing: write `gpu:`", ""),
    ("workload: null\n", "site.yaml:1: workload is missing", ""),
    ("extends: none\ngpu: none\nworkload: none\n", "site.yaml:1: the section run is missing", ""),
    ("gpu: 4090\n", "site.yaml:1: gpu: needs the name of a file, or none", ""),
    ("\ngpu: h100\n", "site.yaml:2: there is no threshold file h100.", "Did you mean h100-sxm?"),
    ("workload: resnet\n", "site.yaml:1: there is no threshold file resnet.", "resnet50?"),
    ("gpu: ../site.yaml\n", "site.yaml:1: there is no threshold file ../site.yaml", ""),
    ("gpu: ./site.yaml\n", "site.yaml:1: site.yaml is of kind site, and kind gpu is needed", ""),
    ("dataloader: {demand_from: me}\n", "site.yaml:1: dataloader.demand_from: is worked out", ""),
    (
        "dataloader: {multi_gpu_demand_samples_per_s: 5}\n",
        "site.yaml:1: dataloader.multi_gpu_demand_samples_per_s: is worked out",
        "",
    ),
    (
        "multi_gpu_demand_samples_per_s: {resnet50: 0}\n",
        "site.yaml:1: multi_gpu_demand_samples_per_s.resnet50: must be more than 0",
        "",
    ),
    (
        "demand_samples_per_s: {resnet50: -1}\n",
        "site.yaml:1: demand_samples_per_s.resnet50: must be more than 0",
        "",
    ),
    (
        'demand_samples_per_s: {resnet50: "9"}\n',
        "site.yaml:1: demand_samples_per_s.resnet50: needs a number",
        "without quotes",
    ),
    (
        "\ndataloader: {max_corrupt_percent: 90, min_feed_ratio: 2}\n",
        "site.yaml:2: dataloader: no loader that drops half its samples",
        "",
    ),
]


@pytest.mark.parametrize(("text", "begins", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_refused_site_file(text: str, begins: str, says: str) -> None:
    said = refusal(text)
    assert said.startswith(begins)
    assert says in said


SET_REFUSED = [
    ("dataloader.min_feed_ratoi=1", ": dataloader.min_feed_ratoi: unknown key."),
    ("dataloadr.min_feed_ratio=1", ": dataloadr: unknown section or check."),
    ("shm.margin=1.5x", ': shm.margin: needs a number, got "1.5x"'),
    ("shm.margin=1:30", ": shm.margin: '1:30' is base 60"),
    ("shm.margin=", ": shm.margin: no value"),
    ("shm.margin=\t1", ": shm.margin: a tab"),
    ("shm.margin={value: 2}", ": shm.margin: a mapping cannot be set"),
    ("shm.margin", ": 'shm.margin': write SECTION.KEY=VALUE"),
    ("shm=1", ": 'shm=1': write SECTION.KEY=VALUE"),
    ("shm..margin=1", ": 'shm..margin=1': write SECTION.KEY=VALUE"),
    ("=1", ": '=1': write SECTION.KEY=VALUE"),
    ("shm.margin.x=1", ": shm.margin: needs a number, got a mapping"),
    ("workload.x=1", ": workload: needs the name of a file"),
    ("kind.x=1", ": kind: unknown section"),
    ("shm.margin=null", ": shm: margin is missing"),
]


@pytest.mark.parametrize(("item", "says"), SET_REFUSED, ids=[row[0] for row in SET_REFUSED])
def test_refused_set(item: str, says: str) -> None:
    assert refusal(set_options=[item]).startswith(f"--set{says}")
    assert refusal(set_environment=[item]).startswith(f"PREFLIGHT_SET{says}")


class Deep(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    floor_gb_per_s: float = Field(gt=0, description="a floor")


class Nested(Limits):
    alone: Deep
    free: dict[str, str] = Field(default_factory=dict)


def test_sections_in_sections() -> None:
    checks = {**CHECKS, "nested": Nested}

    def error_of(text: str) -> str:
        Path("site.yaml").write_text(text)
        with pytest.raises(SettingsError) as caught:
            resolve(Request(thresholds="site.yaml"), checks, THRESHOLDS)
        return str(caught.value)

    said = error_of("nested:\n  alone:\n    floor_gb_per_sec: 1\n")
    assert said == (
        "site.yaml:3: nested.alone.floor_gb_per_sec: unknown key. Did you mean floor_gb_per_s?"
    )
    said = error_of("nested:\n  required: true\n  timeout_s: 1\n  alone: {}\n")
    assert said.startswith("site.yaml:4: nested.alone: floor_gb_per_s is missing")
    said = error_of("nested:\n  free:\n    a: {b: c}\n")
    assert said.startswith("site.yaml:3: nested.free.a: needs a text, got a mapping")
    jsonschema.validate(
        {"nested": {"alone": {"floor_gb_per_s": {"value": 1, "source": "x"}}}}, schema(checks)
    )
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"nested": {"alone": {"floor_gb_per_sec": 1}}}, schema(checks))


def test_refused_options() -> None:
    assert refusal(deadline_s=-1.0).startswith("--deadline: run.deadline_s: must be more than 0")
    for number in (float("nan"), float("inf")):
        assert refusal(deadline_s=number).startswith("--deadline: run.deadline_s: must be a finite")
    assert refusal(thresholds="defualt").startswith(
        "--thresholds: there is no threshold file defualt. Did you mean default?"
    )
    said = refusal(gpu="a100", gpu_from="PREFLIGHT_GPU")
    assert said.startswith("PREFLIGHT_GPU: there is no threshold file a100.")
    assert refusal(workload="./x.yaml").startswith("--workload: there is no threshold file")


def shipped_with(tmp_path: Path, name: str, text: str) -> Path:
    for path in THRESHOLDS.rglob("*.yaml"):
        copy = tmp_path / "shipped" / path.relative_to(THRESHOLDS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (tmp_path / "shipped" / name).write_text(text)
    return tmp_path / "shipped"


CHOSEN_REFUSED = [
    ("gpu/x.yaml", "kind: gpu\nrun: {deadline_s: 1}\n", "2: run: does not belong into a gpu file"),
    ("gpu/x.yaml", "kind: gpu\nworkload: none\n", "2: workload: does not belong into a gpu file"),
    ("gpu/x.yaml", "kind: gpu\nshm: {margin: a}\n", "2: shm.margin: needs a number"),
    ("gpu/x.yaml", "kind: gpu\nmatch: ['(']\n", "2: match: '(' is not a regular expression"),
    (
        "workload/x.yaml",
        "kind: workload\ndemand_samples_per_s: {x: 1}\n",
        "2: demand_samples_per_s: does not belong into a workload file",
    ),
]


@pytest.mark.parametrize(("name", "text", "says"), CHOSEN_REFUSED)
def test_auto_validates_every_file_that_could_be_chosen(
    name: str, text: str, says: str, tmp_path: Path
) -> None:
    shipped = shipped_with(tmp_path, name, text)
    with pytest.raises(SettingsError, match="^" + re.escape(f"{name}:{says}")):
        resolve(Request(), CHECKS, shipped)
    resolve(Request(gpu="h100-sxm"), CHECKS, shipped)


@pytest.mark.parametrize("kind", ["gpu", "workload"])
def test_a_chosen_file_of_ones_own_is_validated(kind: str) -> None:
    Path("own.yaml").write_text(f"kind: {kind}\nrun: {{deadline_s: 1}}\n")
    said = refusal(**{"gpu": "none", kind: "./own.yaml"})
    assert said.startswith(f"own.yaml:2: run: does not belong into a {kind} file")


def test_what_is_worked_out_is_not_offered() -> None:
    said = refusal("dataloader: {zzz: 1}\n")
    assert "demand_samples_per_s" in said
    assert "demand_from" not in said
    assert "reference_demand" not in said


# --- validate, list, schema


def test_validate_file() -> None:
    validate_file(GOLDEN / "site.yaml", CHECKS, THRESHOLDS)
    for path in THRESHOLDS.rglob("*.yaml"):
        validate_file(path, CHECKS, THRESHOLDS)
    Path("w.yaml").write_text("kind: workload\nloader: {batchsize: 1}\n")
    with pytest.raises(SettingsError, match=r"^w\.yaml:2: loader\.batchsize: .*mean batch_size\?"):
        validate_file(Path("w.yaml"), CHECKS, THRESHOLDS)
    Path("s.yaml").write_text("workload: resnet51\n")
    with pytest.raises(SettingsError, match=r"^s\.yaml:1: .*resnet51"):
        validate_file(Path("s.yaml"), CHECKS, THRESHOLDS)
    with pytest.raises(SettingsError, match=r"^none:1: there is no such file"):
        validate_file(Path("none"), CHECKS, THRESHOLDS)


def real_checks() -> dict[str, type[Limits]]:
    return {id: check.limits for id, check in discover().items()}


def test_shipped_files_are_listed_described_and_valid() -> None:
    shipped = list_shipped(SHIPPED)
    assert [(file.kind, file.name) for file in shipped if file.kind != "gpu"] == [
        ("base", "cpu"), ("base", "default"), ("base", "quick"),
        ("workload", "bert_large"), ("workload", "efficientnet_b0"),
        ("workload", "efficientnet_b4"), ("workload", "flux"), ("workload", "llm_pretrain"),
        ("workload", "resnet50"), ("workload", "retinanet"), ("workload", "ssd300"),
        ("workload", "unet3d"), ("workload", "vit_s16"),
    ]  # fmt: skip
    assert all(file.description for file in shipped)
    for path in SHIPPED.rglob("*.yaml"):
        validate_file(path, real_checks(), SHIPPED)


def test_shipped_sets() -> None:
    checks = real_checks()
    default, cpu, quick = (
        resolve(Request(thresholds=name), checks, SHIPPED) for name in ("default", "cpu", "quick")
    )
    gpu, loaded = ("driver_cuda", "gpus"), ("storage", "dataloader", "feed")
    assert default.run.checks == (*gpu, "limits", "shm", "pinned_copy", *loaded)
    assert quick.run.checks == (*gpu, "limits", "shm", "pinned_copy")
    assert cpu.run.checks == ("limits", "shm", *loaded)
    assert quick.values["shm.write"].value == "none"
    assert (cpu.gpu, cpu.loader.batch_size, cpu.consumer.host_cpus) == ("none", 32, 0)
    assert cpu.layers == ("default.yaml", "cpu.yaml")
    assert default.values["dataloader.min_feed_ratio"].source


def test_the_gpus_name_chooses_the_layer_under_gpu_auto_alone() -> None:
    name = "NVIDIA H100 80GB HBM3"
    auto, other, none = (
        resolve(Request(gpu=gpu), real_checks(), SHIPPED, gpu_name=name)
        for gpu in (None, "h200", "none")
    )
    assert auto.layers == ("default.yaml", "gpu/h100-sxm.yaml")
    assert (other.layers[1:], none.layers[1:]) == (("gpu/h200.yaml",), ())


def floors(text: str = "", **asked: Any) -> tuple[Any, set[str]]:
    """The pinned_copy limits of a site file, and which of the two floors count as the site's."""
    Path("floors.yaml").write_text(text or "{}")
    request = Request(thresholds="floors.yaml", gpu="h100-sxm", **asked)
    limits: Any = resolve(request, real_checks(), SHIPPED).limits["pinned_copy"]
    return limits, {"min_h2d_gb_per_s", "min_d2h_gb_per_s"} & set(limits.site_floors)


def test_a_floor_of_a_shipped_file_is_not_the_sites_and_one_of_its_own_is() -> None:
    limits, ours = floors()
    assert (limits.min_h2d_gb_per_s, ours) == (48, set())
    limits, ours = floors("pinned_copy: {min_h2d_gb_per_s: 22}")
    assert (limits.min_h2d_gb_per_s, ours) == (22, {"min_h2d_gb_per_s"})
    _, ours = floors(set_options=["pinned_copy.min_d2h_gb_per_s=20"])
    assert ours == {"min_d2h_gb_per_s"}


def test_a_gpu_file_alone_makes_no_check_of_a_set_that_stands_alone() -> None:
    default = (SHIPPED / "default.yaml").read_text().replace("kind: base\n", "", 1)
    section = default.index("\npinned_copy:")
    end = default.index("\nstorage:")
    alone = default[:section] + default[end:]
    alone = alone.replace("gpu: auto", "gpu: h100-sxm").replace(" pinned_copy,", "")
    Path("alone.yaml").write_text("extends: none\n" + alone)
    settings = resolve(Request(thresholds="alone.yaml"), real_checks(), SHIPPED)
    assert "pinned_copy" not in settings.limits
    assert settings.layers == ("gpu/h100-sxm.yaml", "alone.yaml")


def test_every_shipped_demand_belongs_to_a_workload_and_has_a_source() -> None:
    workloads = {file.name for file in list_shipped(SHIPPED) if file.kind == "workload"}
    checks = real_checks()
    for file in list_shipped(SHIPPED):
        if file.kind != "gpu":
            continue
        values = resolve(Request(gpu=file.name), checks, SHIPPED).values
        table = {
            key.partition(".")[2]: value
            for key, value in values.items()
            if key.startswith(("demand_samples_per_s.", "multi_gpu_demand_samples_per_s."))
        }
        assert set(table) <= workloads
        assert all(value.source for value in table.values())


# Each on a GPU that has a figure for it.
WORKLOADS = {
    "bert_large": "a100-sxm", "efficientnet_b0": "a100-sxm", "efficientnet_b4": "v100-sxm",
    "flux": "b200", "llm_pretrain": "h100-sxm", "resnet50": "h100-sxm", "retinanet": "b200",
    "ssd300": "h200", "unet3d": "h100-sxm", "vit_s16": "h100-sxm",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [file.name for file in list_shipped(SHIPPED) if file.kind == "workload"]
)
def test_every_workload_resolves(name: str) -> None:
    settings = resolve(Request(workload=name, gpu=WORKLOADS[name]), real_checks(), SHIPPED)
    limits: Any = settings.limits["dataloader"]
    assert limits.demand_from == "gpu table"
    assert settings.workload == name


def test_schema_takes_what_the_files_hold() -> None:
    document = schema(CHECKS)
    jsonschema.Draft202012Validator.check_schema(document)
    validator = jsonschema.Draft202012Validator(document)
    for path in [GOLDEN / "site.yaml", *THRESHOLDS.rglob("*.yaml")]:
        validator.validate(yaml.safe_load(path.read_text()))
    real = jsonschema.Draft202012Validator(schema(real_checks()))
    for path in SHIPPED.rglob("*.yaml"):
        real.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "document",
    [
        {"shn": {}},
        {"shm": {"min_fre_gib": 1}},
        {"shm": {"margin": "1"}},
        {"shm": {"margin": 0.5}},
        {"shm": {"margin": {"value": 0.5}}},
        {"shm": {"margin": {"value": 2, "note": "x"}}},
        {"dataloader": {"demand_from": "me"}},
        {"kind": "bass"},
        {"loader": {"num_workers": "many"}},
        {"demand_samples_per_s": {"resnet50": 0}},
    ],
)
def test_schema_refuses(document: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema(CHECKS))


def test_schema_takes_null_sources_and_parts() -> None:
    document = {
        "shm": {"margin": {"value": 2, "source": "x"}, "write": None},
        "gpus": None,
        "loader": {"num_workers": "auto"},
        "driver_cuda": {"min_driver_by_cuda_major": {"12": {"value": "1", "source": "x"}}},
    }
    jsonschema.validate(document, schema(CHECKS))
