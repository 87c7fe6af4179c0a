"""Generates the minimax coefficients of `cubepy/lang/math`.

`python tools/minimax.py [name ...]` prints, for each named fit (default: all), the coefficients in
Horner order (highest power first) and the largest weighted error (log2).

Method: the Remez exchange on a fixed Chebyshev grid, in mpmath. Rational fits linearise
P - f Q = +-E Q / w with E from the previous step. Coefficients are rounded to the target type from
the lowest power up, and the rest are fitted again after each rounding.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Function = Callable[[mp.mpf], mp.mpf]


@dataclass(frozen=True)
class Fit:
    """Approximate `function` on [low, high]; error times `weight` is what is made equal."""

    function: Function
    weight: Function
    low: mp.mpf
    high: mp.mpf
    degree: int
    bits: int = 24
    denominator: int = 0
    exact: int = 0  # the numerator's lowest coefficients that are kept in 2 * bits


def rounded(value: mp.mpf, bits: int) -> mp.mpf:
    with mp.workprec(bits):
        return +value


def chebyshev_grid(low: mp.mpf, high: mp.mpf, count: int) -> list[mp.mpf]:
    middle, half = (low + high) / 2, (high - low) / 2
    return [middle - half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]


def alternating_extrema(errors: Sequence[mp.mpf], wanted: int) -> list[int]:
    """The largest error of each run of equal sign; of those, `wanted` large ones that alternate."""
    picks: list[int] = []
    for index, error in enumerate(errors):
        if picks and (errors[picks[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[picks[-1]]):
                picks[-1] = index
        else:
            picks.append(index)
    while len(picks) > wanted:
        choice = range(len(picks)) if len(picks) >= wanted + 2 else (0, len(picks) - 1)
        smallest = min(choice, key=lambda i: abs(errors[picks[i]]))
        picks.pop(smallest)
        if 0 < smallest < len(picks):
            left, right = smallest - 1, smallest
            picks.pop(left if abs(errors[picks[left]]) < abs(errors[picks[right]]) else right)
    return picks


class Exchange:
    """One fit's grid, with the values of the function and the weight on it."""

    def __init__(self, fit: Fit) -> None:
        self.fit = fit
        self.grid = chebyshev_grid(
            mp.mpf(fit.low), mp.mpf(fit.high), 30 * (fit.degree + fit.denominator + 2)
        )
        self.values = [fit.function(x) for x in self.grid]
        self.weights = [abs(fit.weight(x)) for x in self.grid]

    def sign(self, index: int, lowest: int) -> int:
        """Powers from an odd one up change sign at 0, so the alternation does too."""
        return -1 if lowest % 2 and self.grid[index] < 0 else 1

    def error(self, index: int, top: dict[int, mp.mpf], bottom: dict[int, mp.mpf]) -> mp.mpf:
        x = self.grid[index]
        p = sum(c * x**k for k, c in top.items())
        q = sum(c * x**k for k, c in bottom.items())
        return (p / q - self.values[index]) * self.weights[index]

    def solve(
        self, fixed_top: dict[int, mp.mpf], fixed_bottom: dict[int, mp.mpf]
    ) -> tuple[dict[int, mp.mpf], dict[int, mp.mpf], mp.mpf]:
        """Best remaining coefficients of numerator and denominator, with some held fixed."""
        free_top = [k for k in range(self.fit.degree + 1) if k not in fixed_top]
        free_bottom = [k for k in range(self.fit.denominator + 1) if k not in fixed_bottom]
        unknowns = len(free_top) + len(free_bottom)
        worst = mp.mpf(0)
        if not unknowns:
            errors = [self.error(i, fixed_top, fixed_bottom) for i in range(len(self.grid))]
            return fixed_top, fixed_bottom, max(abs(e) for e in errors)
        count = unknowns + 1
        lowest = min(free_top) if free_top and not free_bottom else 0
        picks = [
            int((1 - mp.cos(mp.pi * i / (count - 1))) / 2 * (len(self.grid) - 1))
            for i in range(count)
        ]
        top, bottom, level = dict(fixed_top), dict(fixed_bottom), mp.mpf(0)
        best = (mp.inf, top, bottom)
        for _ in range(25):
            for _ in range(12 if free_bottom else 1):
                rows, right = [], []
                for sign, index in enumerate(picks):
                    x, f = self.grid[index], self.values[index]
                    ripple = (-1) ** sign * self.sign(index, lowest) / self.weights[index]
                    g = f + ripple * level
                    q_fixed = sum(c * x**k for k, c in fixed_bottom.items())
                    p_fixed = sum(c * x**k for k, c in fixed_top.items())
                    last = -ripple * (sum(c * x**k for k, c in bottom.items()) or 1)
                    rows.append(
                        [x**k for k in free_top] + [-g * x**k for k in free_bottom] + [last]
                    )
                    right.append(g * q_fixed - p_fixed)
                answer = mp.lu_solve(mp.matrix(rows), mp.matrix(right))
                top = fixed_top | dict(zip(free_top, answer[: len(free_top)], strict=True))
                bottom = fixed_bottom | dict(
                    zip(free_bottom, answer[len(free_top) : unknowns], strict=True)
                )
                step = answer[unknowns]
                level += step
                if abs(step) < abs(level) * mp.mpf("1e-6"):
                    break
            errors = [self.error(i, top, bottom) for i in range(len(self.grid))]
            worst = max(abs(e) for e in errors)
            best = min(best, (worst, top, bottom), key=lambda found: found[0])
            new = alternating_extrema(
                [e * self.sign(i, lowest) for i, e in enumerate(errors)], count
            )
            if len(new) < count or worst < abs(level) * mp.mpf("1.001"):
                break
            picks = new
            if not free_bottom:
                level = mp.mpf(0)
        return best[1], best[2], best[0]


def coefficients(fit: Fit) -> tuple[list[float], list[float], mp.mpf]:
    """Rounded numerator and denominator, lowest power first, and the error's largest size."""
    bottom: dict[int, mp.mpf] = {0: mp.mpf(1)}
    if fit.denominator:
        _, found, _ = Exchange(fit).solve({}, bottom)
        bottom = {k: rounded(c, fit.bits) for k, c in found.items()}
        fit = over_denominator(fit, [bottom[k] for k in sorted(bottom)])
    exchange = Exchange(fit)
    fixed: dict[int, mp.mpf] = {}
    top, _, worst = exchange.solve(fixed, {0: mp.mpf(1)})
    for power in range(fit.degree + 1):
        fixed[power] = rounded(top[power], fit.bits * 2 if power < fit.exact else fit.bits)
        top, _, worst = exchange.solve(fixed, {0: mp.mpf(1)})
    return [top[k] for k in sorted(top)], [bottom[k] for k in sorted(bottom)], worst


def over_denominator(fit: Fit, denominator: Sequence[mp.mpf]) -> Fit:
    """The fit of the numerator alone, for a denominator already chosen."""

    def q(x: mp.mpf) -> mp.mpf:
        return mp.polyval(list(reversed(denominator)), x)

    return replace(
        fit,
        function=lambda x: fit.function(x) * q(x),
        weight=lambda x: fit.weight(x) / q(x),
        denominator=0,
    )


def shown(value: mp.mpf, bits: int) -> str:
    return str(np.float32(float(value))) if bits == 24 else repr(float(value))


def table(values: Sequence[mp.mpf], bits: int) -> str:
    lines, line = [], "   "
    for value in reversed(values):
        word = f" {shown(value, bits)},"
        if len(line) + len(word) > 98:
            lines.append(line)
            line = "   "
        line += word
    return "(\n" + "\n".join([*lines, line]) + "\n)"


LN2 = mp.log(2)
ROOT_HALF, ROOT_TWO = mp.sqrt(mp.mpf(1) / 2), mp.sqrt(2)


def exponential(base_log: mp.mpf, degree: int, bits: int, half: mp.mpf) -> Fit:
    """b**r = 1 + r Q(r); relative error."""
    return Fit(
        lambda r: mp.expm1(r * base_log) / r,
        lambda r: r * mp.exp(-r * base_log),
        -half,
        half,
        degree,
        bits,
    )


def exponential_tail(degree: int, bits: int, half: mp.mpf) -> Fit:
    """e**r - 1 = r + r^2 Q(r); error relative to e**r - 1."""
    return Fit(
        lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.expm1(r), -half, half, degree, bits
    )


def logarithm(degree: int, bits: int) -> Fit:
    """log(1 + f) = f - f^2 / 2 + f^3 Q(f); relative error."""
    return Fit(
        lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
        lambda f: f**3 / mp.log1p(f),
        ROOT_HALF - 1,
        ROOT_TWO - 1,
        degree,
        bits,
    )


def logarithm_odd(degree: int, bits: int) -> Fit:
    """atanh(s) = s + s^3 Q(s^2); relative error; s = f / (2 + f)."""
    return odd(mp.atanh, degree, bits, mp.mpf("0.1716"))


def odd(function: Function, degree: int, bits: int, high: mp.mpf) -> Fit:
    """function(s) = s + s^3 Q(s^2); relative error."""

    def tail(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        return (function(s) / s - 1) / z

    def weight(z: mp.mpf) -> mp.mpf:
        s = mp.sqrt(z)
        return z * s / function(s)

    return Fit(tail, weight, mp.mpf(0), high**2, degree, bits)


def even(function: Function, degree: int, bits: int, high: mp.mpf) -> Fit:
    """function(s) - 1 = s^2 Q(s^2); error relative to the function."""
    return Fit(
        lambda z: (function(mp.sqrt(z)) - 1) / z,
        lambda z: z / function(mp.sqrt(z)),
        mp.mpf(0),
        high**2,
        degree,
        bits,
    )


def ratio(function: Function, degree: int, denominator: int, bits: int, high: mp.mpf) -> Fit:
    """function(s) = s P(s^2) / Q(s^2); relative error."""

    def quotient(z: mp.mpf) -> mp.mpf:
        return function(mp.sqrt(z)) / mp.sqrt(z)

    return Fit(quotient, lambda z: 1 / quotient(z), mp.mpf(0), high**2, degree, bits, denominator)


def scaled_erfc(degree: int, bits: int, center: mp.mpf, high: mp.mpf) -> Fit:
    """erfc(a) exp(a^2) (a + center) as a polynomial of q = (a - center) / (a + center)."""

    def value(q: mp.mpf) -> mp.mpf:
        a = center * (1 + q) / (1 - q)
        return mp.erfc(a) * mp.exp(a * a) * (a + center)

    return Fit(
        value, lambda q: 1 / value(q), mp.mpf(-1), (high - center) / (high + center), degree, bits
    )


HALF_LN2 = LN2 / 2 * mp.mpf("1.002")
FITS: dict[str, Callable[[], Fit]] = {
    "exp_f32": lambda: exponential(mp.mpf(1), 5, 24, HALF_LN2),
    "exp2_f32": lambda: exponential(LN2, 5, 24, mp.mpf("0.5002")),
    "exp10_f32": lambda: exponential(mp.log(10), 5, 24, HALF_LN2 / mp.log(10)),
    "expm1_f32": lambda: exponential_tail(4, 24, HALF_LN2),
    "log_f32": lambda: logarithm(7, 24),
    "log_odd_f32": lambda: logarithm_odd(2, 24),
    "sin_f32": lambda: odd(mp.sin, 4, 24, mp.pi / 2 + mp.mpf("0.01")),
    "tan_f32": lambda: odd(mp.tan, 5, 24, mp.pi / 4 + mp.mpf("0.01")),
    "asin_f32": lambda: odd(mp.asin, 4, 24, mp.mpf("0.5")),
    "atan_f32": lambda: odd(mp.atan, 8, 24, mp.mpf(1)),
    "sinh_f32": lambda: odd(mp.sinh, 2, 24, HALF_LN2),
    "cosh_f32": lambda: even(mp.cosh, 2, 24, HALF_LN2),
    "erf_f32": lambda: ratio(mp.erf, 5, 5, 24, mp.mpf("3.94")),
    "erfc_f32": lambda: scaled_erfc(9, 24, mp.mpf(2), mp.mpf("10.1")),
    "exp_f64": lambda: exponential(mp.mpf(1), 10, 53, HALF_LN2),
    "exp2_f64": lambda: exponential(LN2, 10, 53, mp.mpf("0.5002")),
    "exp10_f64": lambda: exponential(mp.log(10), 10, 53, HALF_LN2 / mp.log(10)),
    "expm1_f64": lambda: exponential_tail(10, 53, HALF_LN2),
    "log_odd_f64": lambda: logarithm_odd(7, 53),
    "pow_f64": lambda: replace(logarithm_odd(8, 53), exact=1),
    "sin_f64": lambda: odd(mp.sin, 7, 53, mp.pi / 2 + mp.mpf("0.0001")),
    "tan_f64": lambda: ratio(mp.tan, 4, 4, 53, mp.pi / 4 + mp.mpf("0.0001")),
    "asin_f64": lambda: odd(mp.asin, 11, 53, mp.mpf("0.5")),
    "atan_f64": lambda: odd(mp.atan, 19, 53, mp.mpf(1)),
    "sinh_f64": lambda: odd(mp.sinh, 4, 53, HALF_LN2),
    "cosh_f64": lambda: even(mp.cosh, 5, 53, HALF_LN2),
    "erf_f64": lambda: ratio(mp.erf, 12, 0, 53, mp.mpf(1)),
    "erfc_f64": lambda: scaled_erfc(22, 53, mp.mpf(3), mp.mpf("27.3")),
}


def main(names: Sequence[str]) -> None:
    for name in names or FITS:
        fit = FITS[name]()
        top, bottom, worst = coefficients(fit)
        print(f"{name}: error 2^{float(mp.log(worst, 2)):.2f}")
        print("P =", table(top, fit.bits))
        if fit.denominator:
            print("Q =", table(bottom, fit.bits))


if __name__ == "__main__":
    main(sys.argv[1:])
