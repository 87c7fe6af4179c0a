"""Seeds that once failed, each with what was wrong; they are checked for ever."""

FINDS: dict[int, str] = {
    1035112: "folding a sum gave its constant to an unrelated constant that stood before it",
    1036790: "LLVM's vectoriser of straight-line code mixed up the lanes of a choice",
    1030145: "LLVM takes NaN for the least integer where the CPU itself converts f16 to i16",
    100245: "sums of lines of odd width combined the lanes in another order than the definition",
}
