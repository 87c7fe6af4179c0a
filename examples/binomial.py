"""American puts on a binomial tree (Cox, Ross and Rubinstein 1979), a unit for each option."""

from typing import Any

import numpy as np

import cubepy as cp

STEPS = 64
RATE, VOLATILITY = 0.02, 0.3  # a year


@cp.cube
def put_kernel(
    spot: cp.Tensor[cp.f32],
    strike: cp.Tensor[cp.f32],
    years: cp.Tensor[cp.f32],
    out: cp.Tensor[cp.f32],
):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        dt = years[i] / STEPS
        up = cp.exp(VOLATILITY * cp.sqrt(dt))
        growth, discount = cp.exp(RATE * dt), cp.exp(-RATE * dt)
        likely = (growth - 1 / up) / (up - 1 / up) * discount
        unlikely = discount - likely
        value = cp.local(STEPS + 1, cp.f32)  # one level of the tree
        price = spot[i] * cp.exp(-VOLATILITY * cp.sqrt(dt) * STEPS)
        for k in range(STEPS + 1):
            value[k] = max(strike[i] - price, 0.0)
            price *= up * up
        for step in range(STEPS - 1, -1, -1):
            price = spot[i] * cp.exp(-VOLATILITY * cp.sqrt(dt) * cp.f32(step))
            for k in range(step + 1):
                held = likely * value[k + 1] + unlikely * value[k]
                now = strike[i] - price
                value[k] = held if held > now else now  # max would ask for NaN as well
                price *= up * up
        out[i] = value[0]


def puts(spot: np.ndarray, strike: np.ndarray, years: np.ndarray, **settings: Any) -> np.ndarray:
    """What each put is worth."""
    out = np.empty_like(spot)
    put_kernel.configure(**settings).over(out, cube_dim=64)(spot, strike, years, out)
    return out


def reference(spot: np.ndarray, strike: np.ndarray, years: np.ndarray) -> np.ndarray:
    """The same tree in NumPy and f64, all options at once."""
    spot, strike = spot.astype(np.float64), strike.astype(np.float64)
    dt = years.astype(np.float64) / STEPS
    up, discount = np.exp(VOLATILITY * np.sqrt(dt)), np.exp(-RATE * dt)
    likely = (np.exp(RATE * dt) - 1 / up) / (up - 1 / up)
    k = np.arange(STEPS + 1)[:, None]
    value = np.maximum(strike - spot * up ** (2 * k - STEPS), 0)
    for step in range(STEPS - 1, -1, -1):
        held = discount * (likely * value[1 : step + 2] + (1 - likely) * value[: step + 1])
        value = np.maximum(held, strike - spot * up ** (2 * k[: step + 1] - step))
    return value[0]


def options(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random prices, strikes and years to expiry."""
    rng = np.random.default_rng(seed)
    ranges = ((80, 120), (80, 120), (0.2, 2))
    spot, strike, years = (rng.uniform(low, high, count).astype(np.float32) for low, high in ranges)
    return spot, strike, years


def main() -> None:
    given = options(10_000)
    np.testing.assert_allclose(puts(*given), reference(*given), rtol=1e-3, atol=1e-2)
    print("binomial options: agree with NumPy")


if __name__ == "__main__":
    main()
