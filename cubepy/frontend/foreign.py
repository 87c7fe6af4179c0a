"""What words of CUDA, Numba, OpenCL, HIP, Metal and Triton are called here."""

from __future__ import annotations

from types import ModuleType

# fmt: off
_ROWS = (
    ("the position in the cube is cp.UNIT_POS_X, cp.UNIT_POS_Y, cp.UNIT_POS_Z",
     "threadIdx get_local_id thread_position_in_threadgroup hipThreadIdx_x block_thread_idx"),
    ("the position in the cube, counted over all axes, is cp.UNIT_POS",
     "thread_index_in_threadgroup get_local_linear_id"),
    ("the position of the cube is cp.CUBE_POS_X, cp.CUBE_POS_Y, cp.CUBE_POS_Z",
     "blockIdx get_group_id threadgroup_position_in_grid hipBlockIdx_x program_id"),
    ("the units of a cube are cp.CUBE_DIM_X, cp.CUBE_DIM_Y, cp.CUBE_DIM_Z",
     "blockDim get_local_size threads_per_threadgroup hipBlockDim_x"),
    ("the cubes of a launch are cp.CUBE_COUNT_X, cp.CUBE_COUNT_Y, cp.CUBE_COUNT_Z",
     "gridDim get_num_groups threadgroups_per_grid hipGridDim_x num_programs"),
    ("the position in the launch is cp.ABSOLUTE_POS_X, _Y and _Z; cp.ABSOLUTE_POS counts all axes",
     "get_global_id thread_position_in_grid grid global_id get_global_linear_id"),
    ("the units of a launch along an axis are cp.CUBE_COUNT_X * cp.CUBE_DIM_X",
     "gridsize get_global_size threads_per_grid"),
    ("the barrier of a cube is cp.sync_cube()",
     "__syncthreads syncthreads sync_threads barrier threadgroup_barrier debug_barrier"),
    ("the barrier of a plane is cp.sync_plane()",
     "__syncwarp syncwarp simdgroup_barrier sub_group_barrier"),
    ("cp.sync_storage() orders the unit's accesses to global memory",
     "__threadfence threadfence mem_fence atomic_thread_fence"),
    ("the position in the plane is cp.UNIT_POS_PLANE",
     "laneid lane_id get_sub_group_local_id thread_index_in_simdgroup"),
    ("a plane has cp.PLANE_DIM units: 32 on CUDA, 1 on a CPU",
     "warpSize warpsize get_sub_group_size threads_per_simdgroup"),
    ("it is cp.plane_shuffle(value, lane)",
     "__shfl_sync shfl_sync __shfl simd_shuffle sub_group_shuffle"),
    ("it is cp.plane_shuffle_xor(value, mask)",
     "__shfl_xor_sync shfl_xor_sync simd_shuffle_xor sub_group_shuffle_xor"),
    ("it is cp.plane_shuffle_up(value, delta)", "__shfl_up_sync shfl_up_sync simd_shuffle_up"),
    ("it is cp.plane_shuffle_down(value, delta)",
     "__shfl_down_sync shfl_down_sync simd_shuffle_down"),
    ("it is cp.plane_ballot(condition), a u64", "__ballot_sync ballot_sync simd_ballot"),
    ("it is cp.plane_any(condition)", "__any_sync any_sync simd_any"),
    ("it is cp.plane_all(condition)", "__all_sync all_sync simd_all"),
    ("it is cp.plane_sum(value)", "simd_sum sub_group_reduce_add warp_reduce"),
    ("the number of set bits is cp.popcount(value)", "__popc __popcll popc bit_count"),
    ("the number of leading zeros is cp.clz(value)", "__clz __clzll"),
    ("of n bits it is n - cp.clz(value)", "bit_length"),
    ("index the tensor, as in x[i]", "__ldg"),
    ("it is cp.atomic.add(x, index, value)", "atomicAdd atomic_add atomic_fetch_add_explicit"),
    ("it is cp.atomic.max(x, index, value)", "atomicMax atomic_max"),
    ("it is cp.atomic.min(x, index, value)", "atomicMin atomic_min"),
    ("it is cp.atomic.exchange(x, index, value)", "atomicExch atomic_xchg"),
    ("it is cp.atomic.cas(x, index, expected, value)", "atomicCAS atomic_cas atomic_cmpxchg"),
    ("memory of the cube is cp.shared(shape, dtype)", "__shared__ shared_memory threadgroup"),
    ("memory of the unit is cp.local(shape, dtype)", "local_memory"),
    ("comptime parameters are annotated cp.Comptime", "constexpr"),
    ("a loop is unrolled by `for i in cp.unroll(range(n))`", "static_range"),
    ("kernels and helpers are both decorated with @cp.cube", "jit kernel device_function"),
    ("write -(-a // b)", "cdiv"),
)
# fmt: on
FOREIGN = {word: answer for answer, words in _ROWS for word in words.split()}
_LANGUAGES = ("numba", "triton", "cupyx", "pyopencl", "taichi", "warp")


def translation(name: str) -> str:
    """What a word of another language is called here; nothing where it is none."""
    return FOREIGN.get(name, "")


def is_foreign(module: ModuleType) -> bool:
    """Whether a module belongs to a library with a kernel language of its own."""
    return module.__name__.partition(".")[0] in _LANGUAGES
