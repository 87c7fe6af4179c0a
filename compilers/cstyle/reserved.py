"""Words that no identifier of the output may be, because C or C++ or GNU read them otherwise."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


C_WORDS = words(
    """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while bool true false half NULL NAN INFINITY HUGE_VAL HUGE_VALF MAXFLOAT
    asm typeof linux unix i386 main size_t ptrdiff_t intptr_t uintptr_t uchar ushort uint ulong
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t arguments printf complex
    imaginary noreturn thread_local
    """
)
CPP_WORDS = words(
    """
    alignas alignof and and_eq bitand bitor catch char8_t char16_t char32_t class compl concept
    constexpr consteval constinit const_cast co_await co_return co_yield decltype delete
    dynamic_cast explicit export friend mutable namespace new noexcept not not_eq nullptr operator
    or or_eq private protected public reinterpret_cast requires static_assert static_cast template
    this throw try typeid typename using virtual wchar_t xor xor_eq std
    """
)
_FUNCTIONS = words(
    """
    abs labs llabs div ldiv fabs fmin fmax fma fmod remainder floor ceil trunc round rint nearbyint
    sqrt cbrt rsqrt hypot exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2
    sinh cosh tanh asinh acosh atanh erf erfc erfinv erfcinv erfcx lgamma tgamma gamma pow ldexp
    frexp modf copysign signbit isnan isinf isfinite isnormal logb ilogb scalbn scalbln nextafter
    fdim remquo lrint llrint lround llround sincos sinpi cospi tanpi normcdf normcdfinv j0 j1 jn y0
    y1 yn min max clamp select index memcpy memset memmove malloc free alloca exit abort assert
    """
)
C_FUNCTIONS = frozenset(f"{name}{suffix}" for name in _FUNCTIONS for suffix in ("", "f", "l"))


def vector_words(scalars: str, widths: tuple[int, ...]) -> frozenset[str]:
    """Names of vector types: `float4`."""
    return frozenset(f"{scalar}{width}" for scalar in scalars.split() for width in widths)
