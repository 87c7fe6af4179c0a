"""A product of matrices on a processor with nominal properties."""

from cubepy.ir.types import f32
from cubepy.kernels.matmul.problem import ROWS, Problem
from cubepy.targets import cpu_target

TARGET = cpu_target("x86-64-v3")
PROBLEM = Problem(256, 256, 256, (), f32, f32, f32, ROWS, ROWS)
