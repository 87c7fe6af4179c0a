"""Seeds that once failed, each with what was wrong; they are checked for ever."""

FINDS: dict[int, str] = {
    100245: "sums of lines of odd width combined the lanes in another order than the definition",
}
