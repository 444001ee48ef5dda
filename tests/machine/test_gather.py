from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.facts import Cpu, Facts, Memory, Pressure, Processes, Shm, System
from preflight.gpu_facts import GpuHost
from preflight.machine.cgroup import read_cgroups
from preflight.machine.cpu import throttling
from preflight.machine.facts import ENVIRONMENT, gather
from preflight.machine.memory import oom_kills
from preflight.machine.root import host
from tests.fakes import FixtureRoot, machine_names

MIB_8 = 8 << 20
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}

# What each fixture root does not say otherwise.
CPU = dict(quota=None, period_s=None, weight=100, request=None, steal_percent=3.0, load_1m=1.5)
SHM = dict(fs_type="tmpfs", read_only=False, stale_gib=0.0, stale_files=())
PIDS = dict(pids_max=None, pids_current=12, nproc=None, nofile=1048576, memlock_bytes=MIB_8)
CALM = Pressure(cpu=1.25, memory=0.0, io=0.5)
SYSTEM = dict(kernel="6.8.0-60-generic", machine="x86_64", cgroup="v2", numa_nodes=1)

EXPECTED: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "bare_metal": (
        {},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=64, affinity=64, effective=64.0, from_="online CPUs")
                | dict(weight=None, steal_percent=0.0, load_1m=3.1)
            ),
            memory=Memory(
                limit_gib=None,
                headroom_gib=480.0,
                from_="MemAvailable",
                total_gib=512.0,
                available_gib=480.0,
            ),
            shm=Shm(
                **SHM
                | dict(size_gib=256.0, free_gib=255.0, stale_gib=1.0)
                | dict(
                    stale_files=(
                        "/dev/shm/torch_4321_0",
                        "/dev/shm/old/checkpoint",
                        "/dev/shm/sem.lock",
                    )
                )
            ),
            processes=Processes(
                **PIDS | dict(pids_max=680000, pids_current=300, nproc=2060000, nofile=1024)
            ),
            pressure=Pressure(cpu=0.0, memory=0.0, io=0.0),
            system=System(**SYSTEM | dict(numa_nodes=2), container=None),
        ),
    ),
    "docker_v2_quota": (
        {},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=16, affinity=16, effective=1.5, from_="cgroup v2 cpu.max")
                | dict(quota=1.5, period_s=0.1)
            ),
            # 8 GiB - 1 GiB + 100 + 200 + 24 - 12 MiB
            memory=Memory(
                limit_gib=8.0,
                headroom_gib=7.3047,
                from_="cgroup v2 memory.max",
                total_gib=64.0,
                available_gib=56.0,
            ),
            shm=Shm(**SHM, size_gib=1.0, free_gib=1.0),
            processes=Processes(**PIDS | dict(pids_max=512)),
            pressure=CALM,
            system=System(**SYSTEM, container="docker"),
        ),
    ),
    "docker_v1": (
        {},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=8, affinity=4, effective=2.5, from_="cgroup v1 cpu.cfs_quota_us")
                | dict(quota=2.5, period_s=0.1, weight=174)
            ),
            # 4 GiB - 3 GiB + 1536 + 512 - 96 - 32 MiB
            memory=Memory(
                limit_gib=4.0,
                headroom_gib=2.875,
                from_="cgroup v1 memory.limit_in_bytes",
                total_gib=32.0,
                available_gib=28.0,
            ),
            shm=Shm(**SHM, size_gib=0.0625, free_gib=0.0625),
            processes=Processes(**PIDS | dict(pids_current=9)),
            pressure=Pressure(cpu=None, memory=None, io=None),
            system=System(
                **SYSTEM | dict(kernel="5.4.0-200-generic", cgroup="v1"),
                container="docker",
                root=True,
            ),
        ),
    ),
    "kubernetes_v2_private": (
        POD | {"PREFLIGHT_CPU_REQUEST": "8"},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=96, affinity=96, effective=8.0, from_="cgroup v2 cpu.max")
                | dict(quota=8.0, period_s=0.1, weight=532, request=8.0, load_1m=40.0)
            ),
            memory=Memory(
                limit_gib=32.0,
                headroom_gib=30.0,
                from_="cgroup v2 memory.max",
                total_gib=768.0,
                available_gib=700.0,
            ),
            shm=Shm(**SHM, size_gib=0.0625, free_gib=0.0625),
            processes=Processes(**PIDS | dict(pids_max=4096, pids_current=20)),
            pressure=CALM,
            system=System(**SYSTEM | dict(numa_nodes=2), container="kubernetes"),
        ),
    ),
    "kubernetes_v2_nested": (
        {},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=96, affinity=96, effective=4.0, from_="cgroup v2 cpu.max")
                | dict(quota=4.0, period_s=0.1, weight=303, load_1m=40.0)
            ),
            # The pod: 16 - 6 + 1 GiB; the container alone would leave 21.
            memory=Memory(
                limit_gib=16.0,
                headroom_gib=11.0,
                from_="cgroup v2 memory.max",
                total_gib=768.0,
                available_gib=700.0,
            ),
            shm=Shm(**SHM, size_gib=0.0625, free_gib=0.0625),
            processes=Processes(**PIDS | dict(pids_max=1024, pids_current=1000)),
            pressure=CALM,
            system=System(**SYSTEM | dict(numa_nodes=2), container="kubernetes"),
        ),
    ),
    "kubernetes_emptydir": (
        POD,
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=96, affinity=96, effective=16.0, from_="cgroup v2 cpu.max")
                | dict(quota=16.0, period_s=0.1, weight=942)
            ),
            memory=Memory(
                limit_gib=16.0,
                headroom_gib=15.0,
                from_="cgroup v2 memory.max",
                total_gib=768.0,
                available_gib=700.0,
            ),
            shm=Shm(**SHM, size_gib=64.0, free_gib=64.0),
            processes=Processes(**PIDS | dict(pids_current=3)),
            pressure=CALM,
            system=System(**SYSTEM | dict(numa_nodes=2), container="kubernetes"),
        ),
    ),
    "kubernetes_request_only": (
        POD | {"PREFLIGHT_CPU_REQUEST": "2000m"},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=32, affinity=32, effective=2.0, from_="PREFLIGHT_CPU_REQUEST")
                | dict(weight=174, request=2.0, bound_to=2)
            ),
            memory=Memory(
                limit_gib=None,
                headroom_gib=200.0,
                from_="MemAvailable",
                total_gib=256.0,
                available_gib=200.0,
            ),
            shm=Shm(**SHM, size_gib=0.0625, free_gib=0.0625),
            processes=Processes(**PIDS),
            pressure=CALM,
            system=System(**SYSTEM, container="kubernetes"),
        ),
    ),
    "docker_default_shm": (
        {},
        dict(
            cpu=Cpu(**CPU, online=16, affinity=16, effective=16.0, from_="online CPUs"),
            memory=Memory(
                limit_gib=None,
                headroom_gib=56.0,
                from_="MemAvailable",
                total_gib=64.0,
                available_gib=56.0,
            ),
            shm=Shm(
                **SHM
                | dict(size_gib=0.0625, free_gib=0.0312, stale_gib=0.0312)
                | dict(stale_files=("/dev/shm/torch_77_1",))
            ),
            processes=Processes(**PIDS),
            pressure=CALM,
            system=System(**SYSTEM, container="docker"),
        ),
    ),
    "page_cache_full": (
        {},
        dict(
            cpu=Cpu(**CPU, online=16, affinity=16, effective=16.0, from_="online CPUs"),
            # 4 MiB under the limit + 1 + 13 GiB + 512 - 256 - 4 MiB
            memory=Memory(
                limit_gib=16.0,
                headroom_gib=14.25,
                from_="cgroup v2 memory.max",
                total_gib=64.0,
                available_gib=40.0,
            ),
            shm=Shm(**SHM, size_gib=4.0, free_gib=4.0),
            processes=Processes(**PIDS),
            pressure=CALM,
            system=System(**SYSTEM, container="docker"),
        ),
    ),
    "gpu_node": (
        {},
        dict(
            cpu=Cpu(**CPU, online=32, affinity=32, effective=32.0, from_="online CPUs"),
            memory=Memory(
                limit_gib=None,
                headroom_gib=1945.6,
                from_="MemAvailable",
                total_gib=2048.0,
                available_gib=1945.6,
            ),
            shm=Shm(**SHM, size_gib=64.0, free_gib=64.0),
            system=System(**SYSTEM | dict(numa_nodes=2), container="docker"),
        ),
    ),
    "hybrid": (
        {},
        dict(
            cpu=Cpu(
                **CPU
                | dict(online=2, affinity=2, effective=2.0, from_="online CPUs")
                | dict(steal_percent=0.04, load_1m=1.68)
            ),
            memory=Memory(
                limit_gib=None,
                headroom_gib=23.1386,
                from_="MemAvailable",
                total_gib=23.5406,
                available_gib=23.1386,
            ),
            shm=Shm(**SHM, size_gib=23.5406, free_gib=23.5406),
            processes=Processes(**PIDS | dict(pids_current=None, nproc=96365, nofile=20000)),
            pressure=Pressure(cpu=8.81, memory=0.0, io=0.0),
            system=System(**SYSTEM | dict(kernel="6.18.44", cgroup="hybrid"), container=None),
        ),
    ),
}


def test_every_fixture_has_its_row_and_says_where_it_comes_from() -> None:
    assert machine_names() == sorted(EXPECTED)
    for name in machine_names():
        source = Path(FixtureRoot.named(name).path, "SOURCE").read_text()
        assert source.startswith(("recorded: ", "written after ")), name


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_facts_of(name: str) -> None:
    environ, expected = EXPECTED[name]
    facts = gather(FixtureRoot.named(name), environ)
    assert {group: getattr(facts, group) for group in expected} == expected


def test_only_files_tell_of_gpus() -> None:
    facts = gather(FixtureRoot.named("gpu_node"), {})
    assert len(facts.gpu_host.pci_gpus) == 8 and facts.gpu_host.kernel_module == "580.95.05"
    assert (facts.nvml, facts.gpus, facts.node) == (None, (), None)
    others = [name for name in machine_names() if name != "gpu_node"]
    nothing = GpuHost(kernel_module=None, device_nodes=(), pci_gpus=())
    assert {gather(FixtureRoot.named(name), {}).gpu_host for name in others} == {nothing}


def test_nothing_of_the_environment_but_the_allow_list_gets_in() -> None:
    secrets = {"AWS_SECRET_ACCESS_KEY": "hunter2", "HF_TOKEN": "hunter2", "PATH": "/hunter2"}
    environ = secrets | {"NODE_NAME": "gpu-b17", "TMPDIR": "/scratch"}
    facts = gather(FixtureRoot.named("bare_metal"), environ)
    assert "hunter2" not in facts.model_dump_json()
    assert set(facts.environment) == set(ENVIRONMENT)
    assert facts.environment["NODE_NAME"] == "gpu-b17"
    assert facts.environment["LD_LIBRARY_PATH"] is None


def test_what_decides_about_gpus_is_on_the_list() -> None:
    names = [
        "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA",
        "NVIDIA_DISABLE_REQUIRE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
        "CUDA_MODULE_LOADING", "CUDA_MPS_PIPE_DIRECTORY", "PYTORCH_NVML_BASED_CUDA_CHECK",
        "LD_LIBRARY_PATH",
    ]  # fmt: skip
    environ = {name: name.lower() for name in names}
    facts = gather(FixtureRoot.named("gpu_node"), environ)
    assert environ.items() <= facts.environment.items()


def test_facts_survive_json() -> None:
    facts = gather(FixtureRoot.named("docker_v2_quota"), POD)
    assert Facts.model_validate_json(facts.model_dump_json(by_alias=True)) == facts


def test_the_machine_we_run_on() -> None:
    facts = gather(host(), os.environ)
    assert facts.cpu.affinity == len(os.sched_getaffinity(0))
    assert facts.system.kernel == os.uname().release
    assert 0 < facts.memory.headroom_gib <= facts.memory.total_gib


class _OddRoot(FixtureRoot):
    """A machine whose files are cut off, missing, or not what they should be."""

    seed: int = 0

    def read_text(self, name: str) -> str | None:
        text = super().read_text(name)
        chance = random.Random(f"{self.seed} {name}")
        if text is None or chance.random() < 0.4:
            return text
        where = chance.randrange(len(text) + 1)
        return chance.choice(
            (
                None,
                "",
                text[:where],
                text[:where] + "\0\ufffd\\000 \n-9 : , = " + text[where:],
                text.replace(" ", "\n"),
                text.replace("0", "99999999999999999999"),
                text.replace("1", "nan").replace("2", "-"),
                text.replace("/", "/../"),
                "9" * 5000,
                "0-999999999999",
                "-1 0\n0 -1\n",
            )
        )


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 10**9), name=st.sampled_from(machine_names()))
def test_odd_files_never_raise(seed: int, name: str) -> None:
    root = _OddRoot.named(name)
    object.__setattr__(root, "seed", seed)
    facts = gather(root, {"PREFLIGHT_CPU_REQUEST": str(seed)})
    json.dumps(facts.model_dump(mode="json"), allow_nan=False)
    assert facts.cpu.effective > 0
    assert facts.memory.headroom_gib >= 0
    throttling(root)
    oom_kills(root)


def test_an_empty_root_is_a_machine_of_which_nothing_is_known(tmp_path: Path) -> None:
    calls = Path(FixtureRoot.named("docker_v1").path, "syscalls.json").read_text()
    (tmp_path / "syscalls.json").write_text(calls.replace('"/dev/shm"', '"/nowhere"'))
    facts = gather(FixtureRoot(str(tmp_path)), {})
    assert facts.cpu.effective == facts.cpu.online == 4
    assert (facts.memory.total_gib, facts.memory.headroom_gib) == (32.0, 10.0)
    assert (facts.memory.from_, facts.system.cgroup) == ("MemAvailable", "none")
    assert facts.shm is None


_CHILD = """
import os, sys, time
with open(sys.argv[1], "w") as procs:
    procs.write(str(os.getpid()))
from preflight.machine import cpu, facts, root
end = time.process_time() + 0.2
while time.process_time() < end:
    pass
seen = facts.gather(root.host(), {}).cpu
print(seen.quota, seen.effective, cpu.throttling(root.host()).nr_periods)
"""


@pytest.mark.timeout(60)
@pytest.mark.skipif(os.geteuid() != 0, reason="making a cgroup takes root")
def test_a_real_quota_is_seen_from_inside() -> None:
    hierarchy = read_cgroups(host()).get("cpu")
    if hierarchy is None:
        pytest.skip("no cpu controller is visible here")
    folder = Path(hierarchy.dirs[-1], f"preflight-test.{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        limit = folder / hierarchy.file_name("cpu.cfs_quota_us", "cpu.max")
        if not limit.exists():
            pytest.skip("the cpu controller is not enabled for new cgroups here")
        limit.write_text(hierarchy.file_name("50000", "50000 100000"))
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, str(folder / "cgroup.procs")],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    finally:
        folder.rmdir()
    quota, effective, periods = child.stdout.split()
    assert (float(quota), float(effective)) == (0.5, 0.5)
    # Not nr_throttled: beside other programs a child may never reach even half a CPU.
    assert int(periods) > 0
