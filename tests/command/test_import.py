"""A workload file of DLIO becomes a site file that the gate runs by; demand in the report."""

from __future__ import annotations

import re

import pytest

from tests.command.running import SMALL_LOADER, Gate, assert_one_verdict

# The shape of mlcommons/storage configs/dlio/workload/unet3d_h100.yaml, the bytes divided by 1,000
# and the step a hundred times as long.
SMALL = """
model: {name: unet3d, type: cnn}
framework: pytorch
workflow: {generate_data: False, train: True}
dataset: {data_folder: data/unet3d/, format: npz, record_length_bytes: 146600,
          record_length_bytes_resize: 2097}
reader: {data_loader: pytorch, batch_size: 7, read_threads: 1}
train: {epochs: 5, computation_time: 32.3}
metric: {au: 0.85}
"""
FEW = ("--set=limits.min_memory_headroom_gib=0", "--set=shm.min_free_gib=0")


@pytest.mark.timeout(120)
def test_an_imported_workload_runs_without_a_gpu(gate: Gate) -> None:
    (gate.folder / "unet3d.yaml").write_text(SMALL)
    made = gate.run("thresholds", "import", "unet3d.yaml", "--output=site.yaml", reports=False)
    assert made.code == 0, made.stderr
    assert made.stdout == "site.yaml: written; preflight run --thresholds site.yaml\n"
    assert gate.run("thresholds", "validate", "site.yaml", reports=False).code == 0
    ran = gate.run("run", "--thresholds=site.yaml", "--gpu=none", "--check=dataloader", *FEW)
    assert_one_verdict(ran, 0)
    reading = ran.result("dataloader")["reading"]
    demand = round(7 / 32.3, 6)
    assert (reading["demand_samples_per_s"], reading["demand_from"]) == (demand, "site")
    assert (reading["batch_size"], reading["num_workers"]) == (7, 1)
    assert reading["limit_samples_per_s"] == pytest.approx(0.85 * demand)
    assert ran.finding("dataloader.supply")["observed"] > demand
    stated = ran.report["settings"]["values"]["dataloader.demand_samples_per_s"]
    assert stated["source"] == "unet3d.yaml: batch_size 7 / computation_time 32.3 s"
    assert stated["from"].startswith("site.yaml:")


def test_without_output_it_is_printed(gate: Gate) -> None:
    (gate.folder / "unet3d.yaml").write_text(SMALL)
    printed = gate.run("thresholds", "import", "unet3d.yaml", reports=False)
    gate.run("thresholds", "import", "unet3d.yaml", "--output=site.yaml", reports=False)
    assert printed.stdout == (gate.folder / "site.yaml").read_text()
    assert printed.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("unet3d.yaml", "--output=site.yaml"), "site.yaml: exists: remove it, or name another"),
        (("unet3d.yaml", "--output=no/site.yaml"), "no/site.yaml: No such file or directory"),
        (("nothing.yaml",), "nothing.yaml: No such file or directory"),
        ((".",), ".: Is a directory"),
        (("site.yaml",), "site.yaml: no DLIO workload"),
    ],
)
def test_wrong_use_is_one_line_and_a_2(gate: Gate, arguments: tuple[str, ...], says: str) -> None:
    site = gate.folder / "site.yaml"
    site.write_text("kind: site\n")
    (gate.folder / "unet3d.yaml").write_text(SMALL)
    ran = gate.run("thresholds", "import", *arguments, reports=False)
    assert ran.code == 2 and ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"preflight: {says}")
    assert site.read_text() == "kind: site\n"


@pytest.mark.parametrize(
    "page", [("thresholds", "--help"), ("explain", "dataloader")], ids=" ".join
)
def test_the_importer_is_told_of(gate: Gate, page: tuple[str, ...]) -> None:
    told = gate.run(*page, reports=False, env={"COLUMNS": "200"}).stdout
    assert re.search(r"DLIO.{,60}import|import .{,40}DLIO", " ".join(told.split()))


def test_the_report_says_what_several_ranks_are_held_to(gate: Gate) -> None:
    (gate.folder / "empty").mkdir()  # and so nothing needs to be measured
    ran = gate.run(
        "run", "--gpu=a100-pcie", "--workload=resnet50", "--check=dataloader", *SMALL_LOADER,
        "--set=loader.ranks=2", "--data=empty",
    )  # fmt: skip
    readings = ran.result("dataloader")["reading"]
    assert len(readings) == 2
    for reading in readings:
        assert reading["demand_samples_per_s"] == pytest.approx(0.85 * 1396)
        assert reading["demand_from"] == "gpu table x 0.85 (2 ranks)"
    values = ran.report["settings"]["values"]
    assert values["dataloader.demand_samples_per_s"]["value"] == 1396
    assert values["dataloader.multi_gpu_demand_samples_per_s"]["value"] == pytest.approx(1186.6)
