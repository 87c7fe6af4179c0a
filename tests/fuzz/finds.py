"""Seeds that once failed, each with what was wrong; they are checked for ever."""

FINDS: dict[int, str] = {
    1035112: "folding a sum gave its constant to an unrelated constant that stood before it",
    1036790: "LLVM's vectoriser of straight-line code mixed up the lanes of a choice",
    1030145: "LLVM takes NaN for the least integer where the CPU itself converts f16 to i16",
    100245: "sums of lines of odd width combined the lanes in another order than the definition",
}

WIDE_FINDS: dict[int, str] = {
    100030: "a condition that is itself a conditional lost its parentheses in every C dialect",
    100038: "a cube whose units had all returned read how often a barrier runs, out of bounds",
    500091: "a lane of a line that was bound anew took the type of the line in a loop",
}
"""Seeds of the second generator."""
LANES_FINDS: dict[int, str] = {
    33001268: "blocks of units carried one value through a loop, and took two from it",
    33004356: "the same",
}
"""Seeds of the kernels whose units become lanes."""
TYPED_FINDS: dict[int, str] = {
    100043: "a cast to the type that a chosen literal has anyway left it a literal",
    300086: "the same: an i64 of a chosen literal was refused beside u32",
    300230: "the same: a chosen literal was not rounded by cp.f32 before it became an integer",
    317415: "LLVM divided by a shift of nonzero bits that had shifted them all out",
}
"""Seeds of the programs that are checked against the model."""
