import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.measure.disturbance import delay_share, disturbance, foreign_cpu_s, own_share


def test_a_neighbour_that_keeps_us_from_the_cpus_disturbs():
    # 0.25 s on 2 CPUs: others took 0.2 of 0.5 CPU seconds, we 0.3, and waited for it.
    assert disturbance(0.25, 2, 0.2, 0.3, 0.45) == pytest.approx(0.4)


def test_a_neighbour_that_we_did_not_wait_for_disturbs_only_as_far_as_we_waited():
    assert disturbance(0.25, 2, 0.2, 0.1, 0.1) == pytest.approx(0.1)


def test_a_neighbour_on_cpus_we_could_not_have_used_does_not_disturb():
    # Waiting for a server: 0.2 of others' CPU seconds, none of them in our way.
    assert disturbance(0.25, 2, 0.2, 0.02, 0.0) == 0.0


def test_our_own_oversubscription_is_not_disturbance():
    # Eight workers on 2 CPUs wait for each other three quarters of the time.
    assert disturbance(0.25, 2, 0.0, 0.5, 0.75) == 0.0


def test_our_own_quota_is_not_disturbance():
    # A quota of 2 used up on a 64-CPU node that others keep busy.
    assert disturbance(0.25, 2, 15.0, 0.5, 0.6) == 0.0


def test_more_own_time_than_the_block_can_hold_is_rounding():
    assert disturbance(0.25, 2, 0.2, 0.52, 0.5) == 0.0


@pytest.mark.parametrize(("foreign", "f"), [(0.0149, 0.0), (0.0151, 0.0302)])
def test_under_three_percent_is_none(foreign, f):
    assert disturbance(0.25, 2, foreign, 0.3, 0.5) == pytest.approx(f)


@pytest.mark.parametrize(("foreign", "delay"), [(None, 0.4), (0.2, None), (None, None)])
def test_what_the_host_hides_is_unknown_and_not_zero(foreign, delay):
    assert disturbance(0.25, 2, foreign, 0.3, delay) is None


@given(
    dt=st.floats(0.01, 30),
    cpus=st.floats(0.1, 512),
    foreign=st.floats(0, 1e4),
    own=st.floats(0, 1e4),
    delay=st.floats(0, 100),
)
def test_it_is_a_share(dt, cpus, foreign, own, delay):
    f = disturbance(dt, cpus, foreign, own, delay)
    assert f == 0.0 or 0.03 <= f <= 1


def test_own_share_of_a_fractional_quota():
    assert own_share(2.0, 1.5, 1.5) == pytest.approx(0.5)


def test_foreign_is_what_is_busy_beside_us():
    assert foreign_cpu_s(0.5, 0.3) == pytest.approx(0.2)
    assert foreign_cpu_s(0.29, 0.3) == 0.0


def test_delay_is_the_larger_of_the_workers_mean_and_the_main_process():
    assert delay_share(0.25, [0.05, 0.15], 0.02) == pytest.approx(0.4)
    assert delay_share(0.25, [0.05, 0.15], 0.2) == pytest.approx(0.8)


def test_a_loader_without_workers_waits_in_the_main_process():
    assert delay_share(0.25, [], 0.1) == pytest.approx(0.4)
