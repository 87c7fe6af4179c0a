"""Sampling on fake clocks: what is interleaved, dropped, paired and when it ends."""

from dataclasses import dataclass, field

import pytest

from bench.measure import Machinery, Plan, Sample, Samples, measure, read_waiting, summarise


@dataclass
class Machine:
    """Time passes only when somebody works or sleeps; `steal` is who disturbs which call."""

    now: int = 0
    waited: int = 0
    trace: list[str] = field(default_factory=list)

    def machinery(self) -> Machinery:
        return Machinery(lambda: self.now, lambda: self.waited, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)
        self.trace.append("sleep")

    def work(self, name: str, seconds: float, disturbed=lambda count: False):
        count = 0

        def call() -> None:
            nonlocal count
            count += 1
            self.trace.append(name)
            self.now += round(seconds * 1e9)
            if disturbed(count):
                self.now += round(9 * seconds * 1e9)
                self.waited += round(9 * seconds * 1e9)

        return call


PLAN = Plan(rounds=8, limit=1000.0, least=2, warm=0.05)


def test_medians_and_ratios():
    machine = Machine()
    calls = {"a": machine.work("a", 0.1), "b": machine.work("b", 0.3)}
    samples = measure(calls, PLAN, machine.machinery())
    assert samples.taken == 8
    assert samples.median("a") == pytest.approx(0.1)
    assert samples.ratio("a", over="b") == pytest.approx(3)
    assert samples.spread("a") == pytest.approx(0, abs=1e-9)
    assert samples.fastest(("a", "b")) == "a"


def test_rounds_interleave_in_changing_order():
    machine = Machine()
    calls = {name: machine.work(name, 0.1) for name in "abc"}
    measure(calls, Plan(rounds=4, least=1, warm=0), machine.machinery())
    after = machine.trace[machine.trace.index("sleep") :]
    turns = [name for name in after if name != "sleep"]
    rounds = ["".join(turns[k : k + 3]) for k in range(0, 12, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(set(rounds)) > 1


def test_short_calls_are_warmed_and_come_in_bursts():
    machine = Machine()
    calls = {"short": machine.work("short", 0.001), "long": machine.work("long", 0.5)}
    plan = Plan(rounds=1, least=1, warm=0.25, bursts=3, burst=0.004)
    measure(calls, plan, machine.machinery())
    after = machine.trace[machine.trace.index("sleep") :]
    assert after.count("short") == 250 + 3 * 4
    assert after.count("long") == 1


def test_a_second_call_that_is_slow_does_not_plan_a_turn():
    """What runs for the second time may compile what serves all later calls."""
    machine = Machine()
    call = machine.work("a", 0.001, disturbed=lambda count: count == 2)
    measure({"a": call}, Plan(rounds=1, least=1, warm=0.005, burst=0.003), machine.machinery())
    turn = machine.trace[machine.trace.index("sleep") + 1 :]
    assert len(turn) > 5


def test_disturbed_samples_are_dropped():
    machine = Machine()
    noisy = machine.work("a", 0.1, disturbed=lambda count: count % 3 == 0)  # one burst each
    calls = {"a": noisy, "b": machine.work("b", 0.2)}
    samples = measure(calls, PLAN, machine.machinery())
    assert samples.taken > 8
    assert len(samples.clean("a")) >= 8
    assert samples.median("a") == pytest.approx(0.1)
    assert samples.ratio("a", over="b") == pytest.approx(2)
    assert not samples.is_noisy("a", "b")


def test_the_clean_bursts_of_a_turn_count():
    bursts = [Sample(1.0, 0.01), Sample(5.0, 0.5), Sample(2.0, 0.0), Sample(3.0, 0.0)]
    assert summarise(bursts) == Sample(2.0, 0.01)
    assert summarise([Sample(5.0, 0.5), Sample(6.0, 0.4)]) == Sample(6.0, 0.4)


def test_the_limit_ends_a_row_that_is_always_disturbed():
    machine = Machine()
    calls = {"a": machine.work("a", 0.1, disturbed=lambda count: count > 2)}
    samples = measure(calls, Plan(rounds=8, limit=10.0, least=2, warm=0), machine.machinery())
    assert samples.is_noisy("a")
    assert 9 <= samples.taken <= 11
    assert samples.median("a") == pytest.approx(1.0)


def test_the_least_rounds_are_taken_whatever_they_cost():
    machine = Machine()
    samples = measure({"a": machine.work("a", 60.0)}, Plan(limit=1.0, least=5), machine.machinery())
    assert samples.taken == 5


def test_a_call_that_returns_a_sample_has_measured_itself():
    machine, own = Machine(), iter([Sample(0.0)] + [Sample(0.25), Sample(9.0, waited=0.5)] * 20)
    samples = measure({"a": lambda: next(own)}, PLAN, machine.machinery())
    assert samples.median("a") == 0.25
    assert samples.taken == 2 * PLAN.rounds - 1


def test_ratios_are_paired_by_round():
    slow_phase = [Sample(1.0), Sample(1.0), Sample(10.0), Sample(10.0), Sample(10.0)]
    samples = Samples({"a": slow_phase, "b": [Sample(2 * s.seconds) for s in slow_phase]})
    assert samples.ratio("a", over="b") == 2


def test_noisy_rows_keep_the_least_disturbed_quarter():
    rounds = [Sample(float(k), waited=0.1 * (k + 1)) for k in range(16)]
    samples = Samples({"a": rounds})
    assert samples.kept("a") == [0, 1, 2, 3]
    assert samples.is_noisy("a")


def test_waiting_is_a_count_that_never_falls():
    first = read_waiting()
    assert 0 <= first <= read_waiting()
