"""How a launch plan lies in memory for the native executor: words at fixed places.

Data only. `jit` writes tables in this layout, `executor_ir` reads them.
"""

from __future__ import annotations

from enum import IntEnum

MAX_LEAVES = 24
"""Values of one launch, those inside tuples and dataclasses counted one by one."""
MAX_RANK = 8
MAX_SLOTS = 60
MAX_PARAMETERS = 24
MAX_OPERANDS = 32
HUGE = 1 << 31
"""Extents, strides, items and cubes beyond which the general way launches, so that no product of
two wraps."""
MAX_SPAN = 1 << 48
"""Bytes that an array may reach along an axis."""


class Head(IntEnum):
    """The words at the beginning of a table. `..._AT` are places in bytes from there."""

    PARAMETERS = 0
    POSITIONAL = 1
    NAMES_AT = 2
    """For each parameter its name, and its default; 0 for none."""
    FUNCTION = 3
    """The function whose parameters these are; 0 where they cannot change."""
    CODE = 4
    DEFAULTS = 5
    KWDEFAULTS = 6
    GENERATION = 8
    PLANS = 9
    PLANS_AT = 10
    RECORDS = 11
    RECORDS_AT = 12
    """For each known dataclass: the type, the number of its fields, the place of their names."""
    SIZE = 16


PARAMETER_WORDS = 3
"""Name, default, and whether it is comptime."""
RECORD_WORDS = 3


class Plan(IntEnum):
    """The words at the beginning of a plan; places are counted from there."""

    BYTES = 0
    LEAVES = 1
    LEAVES_AT = 2
    SLOTS = 3
    SLOTS_AT = 4
    CAPTURES = 5
    CAPTURES_AT = 6
    NOALIAS = 7
    ABOVE = 8
    """The largest of all extents, strides and units is above this,"""
    LIMIT = 9
    """and at most this."""
    FLAT = 10
    COLLAPSE = 11
    WIDTH = 12
    GRID = 13
    GRID_LEAF = 14
    AXES = 15
    DIVISOR_X = 16
    DIVISOR_Y = 17
    DIVISOR_Z = 18
    MAX_X = 19
    MAX_Y = 20
    MAX_Z = 21
    UNITS = 22
    ENTRY = 23
    NAME = 24
    LOADED = 25
    """What is handed to Python's half of a launch, which keeps the code alive."""
    STATE = 26
    """The address of the words of `state`."""
    INLINE_WORK = 27
    LACKING_AT = 28
    """Where in the block a kernel says how much memory it asked for in vain; 0: for none at all."""
    GPU = 29
    """The words of `Gpu` of the device that runs it, 0 for this process's CPU. For a GPU `ENTRY` is
    the driver's handle of the function, `NAME` the kernel's number in the log of launches, and
    `LOADED` what raises the error of a status."""
    SHARED = 30
    DIM_X = 31
    DIM_Y = 32
    DIM_Z = 33
    CLUSTER_X = 34
    """Cubes along each axis are whole multiples of these."""
    CLUSTER_Y = 35
    CLUSTER_Z = 36
    MAPS = 37
    """Words of the argument block that hold the address of an array of which the kernel takes a
    tensor map,"""
    MAPS_AT = 38
    """and for each its place in the block and the map, at another address."""
    QUEUE = 39
    """Of `GPU`, which follows from whose the arrays are: see `Queue`."""
    SIZES_AT = 40
    """For OpenCL the bytes of each argument, 0 for addresses. `GPU` is the address of the words of
    `Cl` then, and `ENTRY` a kernel object that nobody else uses."""
    SIZE = 41


class Queue(IntEnum):
    """The stream of a launch on a GPU: the one in which torch works, the device's own, on CubePy's
    arrays, or the one in which CuPy works; or an OpenCL device's only queue."""

    TORCH = 0
    OWN = 1
    CUPY = 2
    OPENCL = 3


class Program(IntEnum):
    """The words at the beginning of a program, which its steps follow; see `jit.programs`."""

    OPERANDS = 0
    STEPS = 1
    DEVICE = 2
    """0 for the CPU, else one more than the number of the GPU that all steps run on."""
    QUEUE = 3
    """See `Queue`; of operands in another place than its arrays, Python launches."""
    WRITTEN = 4
    """A bit for each operand that a step writes."""
    SIZE = 5


class Step(IntEnum):
    """The words of a step behind those of `Plan`, of which it has those of code; places are counted
    from its beginning."""

    BLOCK = 41
    """Words of the argument block,"""
    BLOCK_AT = 42
    """and where it stands without addresses."""
    HOLES = 43
    HOLES_AT = 44
    """For each address the word of the block, the number of the operand, and what is added."""
    COUNT = 45
    WORK = 46
    SIZE = 47


HOLE_WORDS = 3
MAP_WORDS = 16
"""A tensor map, at an address that is a multiple of `MAP_ALIGNMENT`; a row of `MAPS_AT` has one
word before it."""
MAP_ALIGNMENT, MAP_UNIT = 64, 16
"""The latter: of the addresses of arrays that have maps."""
MAX_MAPS = 8


class Gpu(IntEnum):
    """What launches on a GPU need of its driver: addresses of functions, the primary context, the
    number of the device, and where the last launches are noted."""

    LAUNCH = 0
    GET_CONTEXT = 1
    SET_CONTEXT = 2
    CONTEXT = 3
    ORDINAL = 4
    LOG = 5
    REPLACE_ADDRESS = 6
    """The function that gives a tensor map another address; 0 if there is none."""
    GET_DEVICE = 7
    DEVICE = 8
    """What the driver calls the device."""
    STREAM = 9
    """The device's own queue, where the words of `Order` are, and the device."""
    ORDER = 10
    QUEUES = 11
    ATTRIBUTES = 12
    """Those of all launches, and how many."""
    ATTRIBUTE_COUNT = 13
    SIZE = 14


class Cl(IntEnum):
    """What launches on an OpenCL device need: addresses of functions, the queue, and what the
    owners of its memory have in common."""

    SET_NUMBER = 0
    SET_POINTER = 1
    ENQUEUE = 2
    QUEUE = 3
    OWNER = 4
    SIZE = 5


class Order(IntEnum):
    """What native launches in a device's own queue share with Python, which keeps the order."""

    MARK = 0
    """The mark of the queue without an event yet; memory that has it needs neither a wait nor a
    new mark."""
    UNDER_WAY = 1
    """Launches that native code was allowed, and has not put into the queue yet."""
    SIZE = 2


class Memo(IntEnum):
    """The words of a bound launch: the last launch, which the next one may be like."""

    PLAN = 0
    """The address of its plan; 0 for none. Its table's data is kept by the bound launch."""
    CUBES = 1
    WORK = 2
    ARRAYS = 3
    """Rows of `Remembered`."""
    BLOCK = 4
    ROWS = BLOCK + MAX_SLOTS + 4


class Remembered(IntEnum):
    """What stood in an array, of CubePy's own on a GPU: its memory, and whether it is written."""

    OBJECT = 0
    ADDRESS = 1
    RANK = 2
    DTYPE = 3
    FLAGS = 4
    AXES = 5
    """`MAX_RANK` extents, and as many strides in bytes."""


REMEMBERED_WORDS = Remembered.AXES + 2 * MAX_RANK
MAX_REMEMBERED = 8
MEMO_WORDS = Memo.ROWS + MAX_REMEMBERED * REMEMBERED_WORDS


class Guards(IntEnum):
    """The words at the beginning of an object's guards, which follow; see `jit.guards`."""

    GENERAL = 0
    """What is called with the object where no guard holds."""
    COUNT = 1
    SIZE = 2


class Guard(IntEnum):
    """The words at the beginning of a guard; places are counted from there."""

    BYTES = 0
    TARGET = 1
    NAMES = 2
    """The names of the keywords that are added as a tuple, 0 for none, and their values."""
    ADDED = 3
    ADDED_AT = 4
    WORDS = 5
    """Addresses, and what must be there."""
    WORDS_AT = 6
    VARIABLES = 7
    """Context variables, and what they must hold."""
    VARIABLES_AT = 8
    ARGUMENTS = 9
    """How many arguments there must be, and what was seen of each: rows of `Seen`."""
    SEEN_AT = 10
    SIZE = 11


class Seen(IntEnum):
    """What a guard saw of an argument."""

    TYPE = 0
    """The class of an array; 0 for others, which are equal to `WHAT`."""
    WHAT = 1
    """NumPy's descriptor, or DLPack's type."""
    RANK = 2
    DEVICE = 3
    AXES = 4
    """`MAX_RANK` extents, and as many strides: NumPy's in bytes, torch's in elements."""


SEEN_WORDS = Seen.AXES + 2 * MAX_RANK

LOGGED = 16
"""Launches that a log holds: behind the number of all there ever were, for each the stream and the
number of the kernel."""


class Collapse(IntEnum):
    """What must be true of line tensors: see `jit.plan`."""

    ANY = 0
    SAME_SHAPES = 1
    OTHER_SHAPES = 2


class Grid(IntEnum):
    """Where the cube count comes from: the launcher's numbers, an argument, a shape in the
    launcher's numbers, or an array of the launcher that is no argument."""

    FIXED = 0
    ARGUMENT = 1
    SHAPE = 2
    ARRAY = 3


class Rule(IntEnum):
    """What a value must be. The words behind it are those in brackets."""

    ARRAY = 0
    """[class, mask]"""
    NUMBER = 1
    """[type, whether small (2: any)]"""
    VALUE = 2
    """[type, the number's bits]"""
    SAME = 3
    """[object]"""
    TEXT = 4
    """[string]"""
    FUNCTION = 5
    """[type, code, globals, how many defaults, how many captured values, the place of both]"""
    STRUCT = 6
    """[type, how many values follow]"""
    MAP = 7
    """[class, mask, box, swizzle, pixels, the place of extents and strides in bytes]"""


RULE_WORDS = 10
IS_WRITTEN, IS_LINE = 8, 9
"""Words of a rule, for arrays."""


class Slot(IntEnum):
    """What a word of the argument block holds: [of which value, axis or `Packed`]."""

    ADDRESS = 0
    EXTENT = 1
    STRIDE = 2
    NUMBER = 3
    SIZE_OF = 4


class Packed(IntEnum):
    """How a number is written: [least, most, mask] for integers."""

    INTEGER = 0
    F32 = 1
    F64 = 2
    BOOL = 3


SLOT_WORDS = 6


class Capture(IntEnum):
    """How a captured name is read: [owner, name, object]."""

    ITEM = 0
    ATTRIBUTE = 1
    CELL = 2
    MODULE = 3
    """An attribute that stands in the module's dictionary."""
    ABSENT = 4
    """A name that a dictionary must not have."""


CAPTURE_WORDS = 4


class Leaf(IntEnum):
    """The words of a value that was read."""

    OBJECT = 0
    KIND = 1
    TYPE = 2
    VALUE = 3
    """An array's address; a number as a word or the bits of a double; how many values follow."""
    CLASS = 4
    RANK = 5
    SHAPE_AT = 6
    BYTE_STRIDES_AT = 7
    STRIDES_AT = 8
    LOW = 9
    HIGH = 10
    ELEMENTS = 11
    LARGEST = 12
    OWNER = 13
    """What owns the memory of one of CubePy's own arrays on a GPU."""
    SIZE = 16


class Kind(IntEnum):
    """What a value is."""

    OTHER = 0
    ARRAY = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    STRUCT = 5
    MAP = 6


def array_class(
    dtype: int,
    rank: int,
    axis: int | None,
    is_linear: bool,
    alignment: int,
    is_writeable: bool,
    place: int,
) -> int:
    """An array's class in a word. `dtype`: its place in the table; `alignment`: a key of `ALIGNED`,
    or 0; `place`: 0 on the host, else one more than the number of its GPU."""
    unit = 0 if axis is None else axis + 1
    flags = is_linear * LINEAR | ALIGNED.get(alignment, 0) | is_writeable * WRITEABLE
    return dtype | rank << 8 | unit << 16 | flags | place << PLACE_SHIFT


LINEAR, WRITEABLE, PLACE_SHIFT, MAX_PLACE = 1 << 24, 1 << 26, 32, 0xFFFF
ALIGNED = {64: 1 << 25, 16: 1 << 27}  # by what rows begin at multiples of, in bytes
OWN_PLACE, OPENCL_PLACE, CUPY_PLACE = MAX_PLACE, MAX_PLACE - 1, 1 << 15
"""The place of CubePy's own arrays on GPUs of NVIDIA and on OpenCL devices; on which one, their
owner says. And that of CuPy's, to which the number of their GPU is added."""


class Chosen(IntEnum):
    """What is known of the pool that settings choose, see `native.chosen`."""

    STATE = 0
    SETTING = 1
    """What a block of settings said of the number of threads: that object, 0 where it said
    nothing."""
    GENERATION = 2
    """Of the settings of the process."""
    UNTIL = 3
    """When the cores that the process may use are to be looked up again, in ns."""
    SIZE = 4


class Context(IntEnum):
    """The process's addresses that the executor reads: objects, functions, places of fields."""

    NONE = 0
    NDARRAY = 1
    FLOAT = 2
    INT = 3
    BOOL = 4
    TRUE = 5
    STR = 6
    DTYPES = 7
    """How many rows there are in the table of dtypes, and where they are:"""
    DTYPES_AT = 8
    """the descriptor, the logarithm of the size."""
    NUMBERS = 9
    NUMBERS_AT = 10
    """The types of NumPy's scalars: type, kind, how it is read."""
    OVERRIDES = 11
    GENERATION = 12
    GENERAL = 13
    """The launch in Python: the launcher and its arguments."""
    REST = 14
    """What completes a launch: (loaded, block, first, count, work)."""
    CRASH_SLOT = 15
    TABLE = 16
    """Where launchers keep their table, the array they cover, and their numbers;"""
    WHAT = 17
    CELLS = 18
    DATA = 19
    """where a table keeps its data: a tuple that begins with bytes."""
    ARRAY = 20
    """CubePy's array type, and where it keeps its memory, and that its owner."""
    MEMORY_OF = 21
    OWNER_OF = 22
    TENSOR = 23
    """torch's tensor type, and its function that fills a DLTensor."""
    FILL = 24
    IS_NEG = 25
    FALSE = 26
    DLTYPES_AT = 27
    """For each row of dtypes the DLPack type: code, bits and lanes in a word."""
    EXCEPTION = 28
    INLINE = 29
    """The pool's routine that runs cubes in the caller."""
    TUPLE = 30
    DICT = 31
    LAUNCHER = 32
    """The class of launchers, what their `_entry` is, and where they keep kernel and grid;"""
    ENTRY = 33
    KERNEL = 34
    GRID = 35
    LAUNCHERS = 36
    """where kernels keep the launchers of numbers, those that cover numbers, the table of those
    that cover arrays, and the last grid of numbers with its launcher."""
    COVERS = 37
    KERNEL_TABLE = 38
    GETITEM = 39
    """The methods of kernels in Python."""
    OVER = 40
    BOUND = 41
    """The call of bound launches in Python, and where they keep launcher, arguments and names."""
    BOUND_LAUNCHER = 42
    BOUND_ARGS = 43
    BOUND_NAMES = 44
    CHECKED = 45
    """The names of the settings that code depends on."""
    OPT_LEVEL = 46
    PROGRAM = 47
    """The call of programs in Python, and where they keep their data."""
    PROGRAM_DATA = 48
    STREAM = 49
    """torch's function that gives its current stream on a GPU; 0 while it was not tried."""
    IMPL_AT = 50
    """Where tensors keep their implementation, and that its dispatch keys; 0: not known;"""
    KEYS_AT = 51
    NEGATIVE = 52
    """the key of those that are negated lazily."""
    PARAMETER = 53
    """torch's type of a module's parameters, which are tensors."""
    REQUIRES_GRAD = 54
    TENSOR_MAP = 55
    """The class of tensor maps, and where they keep array, box, swizzle and pixels."""
    MAP_ARRAY = 56
    MAP_BOX = 57
    MAP_SWIZZLE = 58
    MAP_PIXELS = 59
    ADDRESS_OF = 60
    """Where memory keeps address, dtype, extents, strides in bytes, and whether it is writeable."""
    DTYPE_OF = 61
    SHAPE_OF = 62
    STRIDES_OF = 63
    WRITEABLE_OF = 64
    OWN_DTYPES_AT = 65
    """For each row of dtypes CubePy's own."""
    ALLOCATION = 66
    """The class of what owns memory of a GPU, 0 while none was seen, and where it keeps the device,
    the marks of the last write and of what the device's own queue read since, and whether it is
    shared."""
    QUEUES_OF = 67
    WRITE_OF = 68
    READ_OF = 69
    SHARED_OF = 70
    CUPY = 71
    """CuPy's class, 0 while none was seen, its function that gives the stream of the current GPU,
    and where arrays keep the vectors of extents and strides, dtype and pointer, and that its
    address and, where there are several GPUs, the number of its own; 0 where there is one."""
    CUPY_STREAM = 72
    CUPY_SHAPE = 73
    CUPY_STRIDES = 74
    CUPY_DTYPE = 75
    CUPY_DATA = 76
    CUPY_ADDRESS = 77
    SHARED_MEMORY = 78
    """The class of what owns memory of OpenCL devices, 0 while none was seen, and where it keeps
    what identifies the device."""
    DYING_OF = 79
    GUARDS = 80
    """Where guarded objects keep their guards: a tuple that begins with bytes."""
    BOUND_DATA = 81
    """Where bound launches keep the data of the table of what they remember."""
    MODULE = 82
    """The type of modules, of which classes can be others."""
    CUPY_DEVICE = 83
    INTERRUPTED = 84
    """Where the exception is kept that made the main thread leave a cube."""
    CHOSEN = 85
    """The words of `Chosen`, and what is looked up in a block of settings beside them."""
    NUM_THREADS = 86
    SHARE = 87
    """The pool's routines that run cubes with a team, go on with that and end it, and that which
    takes SIGINT."""
    RESUME = 88
    CANCEL = 89
    LISTEN = 90
    LOOK = 91
    """What is called between two slices of time: a function that does nothing."""
    KEYBOARD_INTERRUPT = 92
    CRASH_SLOTS = 93
    """Where names of kernels stand that run without the GIL."""
    HEARD = 94
    """When the main thread last saw to it that SIGINT comes to the pool; native code writes it."""
    RECENT_GRID = 95
    RECENT = 96
    GRAD_AT = 97
    """Where implementations of tensors keep a pointer that is null without gradients, 0: not known;
    and torch's function that says whether gradients are recorded now."""
    GRAD_MODE = 98
    FORWARD_MODE = 99
    """torch's module of dual tensors, 0 if it does not say whether there are some; the name of what
    says so, and the number that says no."""
    DUAL_LEVEL = 100
    NO_LEVEL = 101
    SIZE = 102


NUMBER_ROW_WORDS = 3
DTYPE_ROW_WORDS = 2
