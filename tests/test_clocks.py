"""The two watches of the client: how late its loop is, and the kernel's clock beside its own."""

import time
from collections.abc import Iterator

import gevent
import pytest

from pd_users.kernel_clock import KernelClock
from pd_users.loop_lag import LoopLag


@pytest.fixture
def lag() -> Iterator[LoopLag]:
    watch = LoopLag()
    yield watch
    watch.stop()


@pytest.mark.process  # in real time
def test_an_idle_loop_is_not_late(lag: LoopLag) -> None:
    gevent.sleep(0.03)
    lag.reset()
    gevent.sleep(0.1)
    assert lag.quantile_s(0.9) < 0.005
    assert lag.busy_share < 0.5


@pytest.mark.process  # in real time
def test_the_lag_of_this_iteration_is_the_work_before_it(lag: LoopLag) -> None:
    seen = []

    def blocker() -> None:
        time.sleep(0.03)
        gevent.get_hub().loop.run_callback(lambda: seen.append(lag.now_s()))

    gevent.spawn(blocker).join()
    gevent.sleep(0.001)
    assert 0.03 <= seen[0] < 0.1


@pytest.mark.process  # in real time
def test_quantiles_are_those_of_a_byte_that_comes_at_random(lag: LoopLag) -> None:
    lag.reset()
    began = time.monotonic()
    for _ in range(5):
        time.sleep(0.03)  # the loop is held up
        gevent.sleep(0.02)
    busy = 0.15 / (time.monotonic() - began)
    assert lag.busy_share == pytest.approx(busy, abs=0.1)
    # The wait is spread evenly over a busy period: half of the busy time waits longer than 15 ms.
    assert lag.quantile_s(1 - busy / 2) == pytest.approx(0.015, abs=0.008)
    assert lag.quantile_s(1 - busy / 10) == pytest.approx(0.027, abs=0.008)
    lag.reset()
    assert lag.quantile_s(0.5) == 0.0


def test_one_watch_a_process() -> None:
    assert LoopLag.shared() is LoopLag.shared()


def test_the_offset_moves_wall_time_to_monotonic_time() -> None:
    clock = KernelClock()
    apart_s = time.time() - clock.offset_ns / 1e9 - time.monotonic()
    assert apart_s == pytest.approx(0, abs=1e-3)
    clock.close()


def test_a_jump_is_counted_once_and_small_drift_is_followed() -> None:
    clock = KernelClock()
    right_ns = clock.offset_ns
    clock.offset_ns += 400_000
    clock.refresh()
    assert clock.jumps == 0
    clock.offset_ns = right_ns - 50_000_000
    clock.refresh()
    clock.refresh()
    assert clock.jumps == 1
    assert clock.offset_ns == pytest.approx(right_ns, abs=200_000)
    clock.close()
