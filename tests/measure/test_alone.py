"""All stages of a rank together, on a real loader."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from preflight.checks.contract import Unit
from preflight.data.generated import Generated, generate
from preflight.machine.root import host
from preflight.measure.alone import Alone, measure_alone
from preflight.measure.dataset import SampleDataset
from preflight.scratch import Scratch
from tests import making
from tests.measure.test_stages import Batched, Busy, Streamed, gb_per_s, storage

pytestmark = pytest.mark.timeout(60)


def unit(said: list[str] | None = None, earlier: Any = None, **changes: Any) -> Unit:
    base = making.job()
    raw = {"codec": "raw", "encoded_bytes": 4096, "shape": (64, 64)}
    job = making.job(
        num_workers=1, batch_size=8,
        sample=base.sample.model_copy(update=raw),
        stats=base.stats.model_copy(update={"stage_s": 0.2}),
        **changes,
    )  # fmt: skip
    return Unit(
        subject="rank 0", machine=host(), limits=making.limits("dataloader"), job=job,
        facts=making.facts(), earlier=earlier or {}, scratch=Scratch("test"),
        progress=(said if said is not None else []).append,
    )  # fmt: skip


def stages_of(
    made: Unit, contents: tuple[bytes, ...] | None = None, gpu: str | None = None
) -> Alone:
    source = generate(made.job.sample, 1, None) if contents is None else Generated(contents)
    loader = DataLoader(SampleDataset(source, made.job.sample, 1), batch_size=8, num_workers=1)
    return measure_alone(made, loader, source, gpu)


def test_all_that_apply_are_there_in_the_order_of_a_sample() -> None:
    said: list[str] = []
    copies = {"subject": "GPU 0", "h2d_gb_per_s": gb_per_s(53.1).model_dump(mode="json")}
    earlier = {"storage": storage(), "pinned_copy": copies}
    seen = stages_of(unit(said, earlier, data="/data"), gpu="GPU 0")
    assert [stage.name for stage in seen.stages] == ["fetch", "decode", "transport", "copy"]
    assert seen.missing == ()
    assert [f"measuring {s} alone" for s in ("transport", "fetch", "decode", "copy")] == said


def test_what_is_missing_has_its_reason_and_the_rest_is_there() -> None:
    seen = stages_of(unit(), contents=(b"",) * 20)
    assert [stage.name for stage in seen.stages] == ["transport"]
    reasons = {tried.name: tried.reason for tried in seen.missing}
    assert list(reasons) == ["fetch", "decode", "copy"]
    assert "in memory" in str(reasons["fetch"])
    assert "16 samples in a row" in str(reasons["decode"])
    assert reasons["copy"] == "does not apply here"


@pytest.mark.parametrize("dataset", [Busy(), Batched(), Streamed(50)])
def test_a_users_own_data_set(dataset: Any) -> None:
    loader = DataLoader(dataset, batch_size=8, num_workers=1)
    seen = measure_alone(unit(dataset="my.data:make"), loader, None, None)
    assert [stage.name for stage in seen.stages] == ["decode", "transport"]
    assert [tried.name for tried in seen.missing] == ["fetch", "copy"]


def test_a_users_data_set_that_raises_loses_no_more_than_its_stages() -> None:
    class Broken(Dataset[Any]):
        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> Any:
            raise OSError(5, "Input/output error")

    copies = {"subject": "GPU 0", "h2d_gb_per_s": gb_per_s(53.1).model_dump(mode="json")}
    made = unit(earlier={"pinned_copy": [copies]}, dataset="my.data:make")
    seen = measure_alone(made, DataLoader(Broken(), batch_size=8), None, "GPU 0")
    assert [stage.name for stage in seen.stages] == ["copy"]
    assert {tried.reason for tried in seen.missing if tried.name != "fetch"} == {
        "OSError: [Errno 5] Input/output error"
    }
