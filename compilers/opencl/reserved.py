"""Words that OpenCL C reads for itself, beyond C's."""

from __future__ import annotations

from cubepy.compilers.cstyle.reserved import C_FUNCTIONS, C_WORDS, vector_words, words

_NAMES = "char uchar short ushort int uint long ulong float double half bool quad"
_WIDTHS = ("", 2, 3, 4, 8, 16)
_ATOMICS = words(
    """
    add sub inc dec min max and or xor xchg cmpxchg init load store exchange fetch_add fetch_sub
    fetch_or fetch_xor fetch_and fetch_min fetch_max flag_clear flag_test_and_set work_item_fence
    int uint long ulong float double flag size_t intptr_t uintptr_t ptrdiff_t
    compare_exchange_strong compare_exchange_weak
    """
)
_SUB_GROUPS = words(
    """
    all any barrier broadcast reduce_add reduce_min reduce_max scan_inclusive_add shuffle
    shuffle_xor shuffle_up shuffle_down ballot elect
    """
)
_OWN = words(
    """
    kernel global local constant private generic read_only write_only read_write uniform pipe
    image1d_t image1d_array_t image1d_buffer_t image2d_t image2d_array_t image2d_depth_t
    image3d_t sampler_t event_t queue_t ndrange_t clk_event_t reserve_id_t cl_mem_fence_flags
    memory_order memory_scope memory_order_relaxed memory_order_acquire memory_order_release
    memory_order_acq_rel memory_order_seq_cst memory_scope_work_item memory_scope_work_group
    memory_scope_device memory_scope_all_svm_devices memory_scope_sub_group
    get_work_dim get_global_size get_global_id get_local_size get_local_id get_num_groups
    get_group_id get_global_offset get_enqueued_local_size get_local_linear_id
    get_global_linear_id get_sub_group_size get_max_sub_group_size get_num_sub_groups
    get_sub_group_id get_sub_group_local_id barrier mem_fence read_mem_fence write_mem_fence
    work_group_barrier work_group_all work_group_any work_group_broadcast prefetch
    async_work_group_copy async_work_group_strided_copy wait_group_events to_global to_local
    to_private get_fence vec_step shuffle shuffle2 isequal isnotequal isgreater isgreaterequal
    isless islessequal islessgreater isordered isunordered any all bitselect abs_diff add_sat
    sub_sat hadd rhadd clz ctz popcount mad mad_hi mad_sat mad24 mul24 mul_hi rotate upsample
    degrees radians mix sign step smoothstep cross dot distance length normalize fast_distance
    fast_length fast_normalize minmag maxmag nan powr pown rootn fract lgamma_r acospi asinpi
    atanpi atan2pi read_imagef read_imagei read_imageui write_imagef write_imagei write_imageui
    vload_half vstore_half vloada_half vstorea_half as_size_t cl_khr_fp64 cl_khr_fp16
    CHAR_BIT CHAR_MAX CHAR_MIN INT_MAX INT_MIN LONG_MAX LONG_MIN SCHAR_MAX SCHAR_MIN SHRT_MAX
    SHRT_MIN UCHAR_MAX USHRT_MAX UINT_MAX ULONG_MAX FLT_MAX FLT_MIN FLT_EPSILON FLT_DIG DBL_MAX
    DBL_MIN DBL_EPSILON HALF_MAX HALF_MIN M_E M_PI M_PI_2 M_PI_4 M_LN2 M_LN10 M_SQRT2
    CLK_LOCAL_MEM_FENCE CLK_GLOBAL_MEM_FENCE CLK_IMAGE_MEM_FENCE MAX_WORK_DIM kernel_exec
    ATOMIC_FLAG_INIT ATOMIC_VAR_INIT CL_COMPLETE CL_QUEUED CL_RUNNING CL_SUBMITTED
    CL_VERSION_1_0 CL_VERSION_1_1 CL_VERSION_1_2 CL_VERSION_2_0 CL_VERSION_3_0 FP_ILOGB0
    FP_ILOGBNAN as_intptr_t as_ptrdiff_t as_uintptr_t cles_khr_int64 atomic_half
    get_pipe_num_packets get_pipe_max_packets get_kernel_work_group_size kernel_enqueue_flags_t
    memory_scope_all_devices
    """
)
_NUMBERS = """
    E LOG2E LOG10E LN2 LN10 PI PI_2 PI_4 1_PI 2_PI 2_SQRTPI SQRT2 SQRT1_2
"""
_LIMITS = "DIG MANT_DIG RADIX MAX MIN EPSILON MAX_EXP MIN_EXP MAX_10_EXP MIN_10_EXP"
"""Macros of OpenCL C, `M_` and the like before and `_F` behind them."""
RESERVED = (
    C_WORDS
    | C_FUNCTIONS
    | _OWN
    | vector_words(_NAMES, (2, 3, 4, 8, 16))
    | frozenset(f"as_{n}{w}" for n in _NAMES.split() for w in _WIDTHS)
    | frozenset(f"convert_{n}{w}" for n in _NAMES.split() for w in _WIDTHS)
    | frozenset(f"{kind}{w}" for kind in ("vload", "vstore") for w in _WIDTHS)
    | frozenset(f"{kind}_{name}" for kind in ("native", "half") for name in C_FUNCTIONS)
    | frozenset(f"{prefix}_{name}" for prefix in ("atom", "atomic") for name in _ATOMICS)
    | frozenset(f"sub_group_{name}" for name in _SUB_GROUPS)
    | frozenset(f"M_{name}{end}" for name in _NUMBERS.split() for end in ("", "_F", "_H"))
    | frozenset(f"{kind}_{name}" for kind in ("FLT", "DBL", "HALF") for name in _LIMITS.split())
)
