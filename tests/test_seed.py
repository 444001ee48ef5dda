from __future__ import annotations

from preflight.seed import seed_of


def test_node_boot_and_time_each_change_the_seed() -> None:
    seeds = {
        seed_of(node, boot, at_ns)
        for node in ("gpu-1", "gpu-2")
        for boot in ("4b6a", "9c1d", None)
        for at_ns in (1, 2)
    }
    assert len(seeds) == 12
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_the_same_run_has_the_same_seed() -> None:
    assert seed_of("gpu-1", "4b6a\n", 7) == seed_of("gpu-1", "4b6a", 7)


def test_a_name_that_is_no_text_is_none_the_less_a_name() -> None:
    assert seed_of("gpu-\udcff", None, 7) == seed_of("gpu-\udcff", None, 7)
