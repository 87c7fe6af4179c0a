"""Words that the Metal Shading Language reads for itself: everything is in one namespace."""

from __future__ import annotations

from cubepy.compilers.cstyle.reserved import C_FUNCTIONS, C_WORDS, CPP_WORDS, vector_words, words

_SCALARS = "bool char uchar short ushort int uint long ulong half float bfloat packed_float"
_OWN = words(
    """
    metal kernel vertex fragment device constant thread threadgroup threadgroup_imageblock
    object_data ray_data visible stitchable mesh object intersection bfloat as_type select
    unit_position cube_position cube_counts Arguments atomic_int atomic_uint atomic_bool atomic_long
    atomic_ulong atomic_float atomic memory_order memory_order_relaxed memory_order_seq_cst
    thread_scope thread_scope_device mem_flags mem_none mem_device mem_threadgroup mem_texture
    threadgroup_barrier simdgroup_barrier atomic_thread_fence atomic_store_explicit
    atomic_load_explicit atomic_exchange_explicit atomic_compare_exchange_weak_explicit
    atomic_fetch_add_explicit atomic_fetch_sub_explicit atomic_fetch_min_explicit
    atomic_fetch_max_explicit atomic_fetch_and_explicit atomic_fetch_or_explicit
    atomic_fetch_xor_explicit simd_vote simd_all simd_any simd_ballot simd_active_threads_mask
    simd_broadcast simd_broadcast_first simd_is_first simd_max simd_min simd_or simd_and simd_xor
    simd_product simd_sum simd_shuffle simd_shuffle_up simd_shuffle_down simd_shuffle_xor
    simd_shuffle_rotate_up simd_shuffle_rotate_down simd_shuffle_and_fill_up quad_all quad_any
    simd_shuffle_and_fill_down simd_prefix_exclusive_sum simd_prefix_inclusive_sum quad_broadcast
    quad_max quad_min quad_sum quad_shuffle quad_shuffle_xor quad_ballot quad_vote
    simdgroup_matrix simdgroup_float8x8 simdgroup_half8x8 simdgroup_load simdgroup_store
    simdgroup_multiply simdgroup_multiply_accumulate texture1d texture2d texture3d texturecube
    depth2d sampler access sample read write read_write filter address coord compare_func
    array array_ref vec matrix packed_vec patch_control_point command_buffer compute_command
    render_command imageblock raytracing acceleration_structure ray intersector function_constant
    absdiff addsat subsat hadd rhadd clz ctz popcount mad24 madhi madsat mul24 mulhi reverse_bits
    rotate extract_bits insert_bits mad mix saturate sign smoothstep step degrees radians dot cross
    distance distance_squared length length_squared normalize reflect refract faceforward transpose
    determinant all any fast precise powr sincos fract trunc isordered isunordered isnormal median3
    max3 min3 fmedian3 fmax3 fmin3 nan os_log numeric_limits uint8_t discard_fragment dfdx dfdy
    fwidth get_num_samples pack_float_to_unorm4x8 unpack_unorm4x8_to_float enable_if is_same
    M_E_F M_LOG2E_F M_LOG10E_F M_LN2_F M_LN10_F M_PI_F M_PI_2_F M_PI_4_F M_1_PI_F M_SQRT2_F MAXHALF
    M_2_PI_F M_2_SQRTPI_F M_SQRT1_2_F HUGE_VALH M_E_H M_LOG2E_H M_LOG10E_H M_LN2_H M_LN10_H M_PI_H
    M_PI_2_H M_PI_4_H M_1_PI_H M_2_PI_H M_2_SQRTPI_H M_SQRT2_H M_SQRT1_2_H INT_MAX INT_MIN UINT_MAX
    LONG_MAX LONG_MIN ULONG_MAX SHRT_MAX SHRT_MIN USHRT_MAX CHAR_MAX CHAR_MIN SCHAR_MAX SCHAR_MIN
    UCHAR_MAX CHAR_BIT FLT_MAX FLT_MIN FLT_EPSILON FLT_DIG FLT_MANT_DIG FLT_MAX_10_EXP FLT_MAX_EXP
    FLT_MIN_10_EXP FLT_MIN_EXP FLT_RADIX FP_ILOGB0 FP_ILOGBNAN HALF_MAX HALF_MIN HALF_EPSILON
    HALF_DIG HALF_MANT_DIG HALF_MAX_10_EXP HALF_MAX_EXP HALF_MIN_10_EXP HALF_MIN_EXP HALF_RADIX
    """
)
RESERVED = C_WORDS | CPP_WORDS | C_FUNCTIONS | _OWN | vector_words(_SCALARS, (2, 3, 4))
