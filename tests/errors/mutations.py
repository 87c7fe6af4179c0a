"""Malformed kernels: the AST of a valid one with nodes deleted, repeated, swapped or replaced.

What comes out may be a right kernel or a wrong one, and often is a strange one. `MUTATIONS` lists
the ways; each changes a function in place, and gives False where it found nothing to change.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from random import Random

STRANGE = """
None
True
"text"
-1
1.5
2**70
1e400
()
(1, 2)
[]
{"a": 1}
{1, 2}
...
b"bytes"
1j
cp
cp.f32
cp.Line[cp.f32, 4](1)
cp.PLANE_DIM
cp.ABSOLUTE_POS
cp.ABSOLUTE_POS_Z
cp.shared(4, cp.f32)
cp.local((2, 2), cp.i8, fill=0)
cp.plane_sum(1)
cp.sync_cube()
cp.where(True, 1, 2)
cp.load
cp.unroll
cp.unroll(range(3))
cp.unroll(3)
cp.comptime(cp.UNIT_POS)
cp.atomic
cp.atomic.add
cp.bitcast(1.0, cp.i32)
cp.bitcast(1, "no type")
cp.target()
cp.nothing
print
print("x")
range
range(3)
range(cp.UNIT_POS)
range(1, 2, 0)
int
len
max
max(())
min()
sum
sum((1, 2))
abs("x")
divmod(1, 0)
isinstance(1, int)
type
type(1)
zip((1, 2), (3, 4))
enumerate(cp.UNIT_POS)
lambda: 1
lambda v: v + 1
(lambda v: v)(1)
(lambda *v: v)(1, 2)
(lambda v, **more: v)(1, w=2)
nobody
f"{1}"
f"{cp.UNIT_POS}"
f"{cp.UNIT_POS:>3}"
[v for v in (1, 2)]
[v for v in range(cp.UNIT_POS)]
[v async for v in (1, 2)]
{v for v in (1, 2)}
{v: v for v in (1, 2)}
(v for v in (1, 2))
(name := 1)
(yield)
(yield 1)
not cp.f32
-cp
cp.UNIT_POS[0]
cp.UNIT_POS.real
cp.UNIT_POS.dtype
cp.UNIT_POS()
1 if cp.UNIT_POS else None
(1, 2) if cp.UNIT_POS else (3, 4)
cp.f32(1, 2)
cp.f32()
cp.f32("x")
cp.i8(300)
1 in (1, 2)
cp.UNIT_POS in (1, 2)
cp.UNIT_POS is None
cp.UNIT_POS is 1
1 @ 2
cp.UNIT_POS @ 2
cp.UNIT_POS ** -1
cp.UNIT_POS ** 0.5
~1.5
1 << -1
1 << 70
(1, 2)[5]
(1, 2)[cp.UNIT_POS]
(1, 2)["a"]
"text"[0]
open
__name__
__import__("os")
""".strip().splitlines()

STATEMENTS = """
try: {}
finally: pass
---
with cp: {}
---
while cp.UNIT_POS: {}
---
while True: {}
---
while False: {}
else: {}
---
for name in range(3): {}
---
for name in (1, 2.5, None): {}
---
for name in cp.UNIT_POS: {}
---
for a, b in ((1, 2), (3,)): {}
---
for a, b in range(cp.UNIT_POS): {}
---
for k in cp.unroll(range(3)):
    if cp.UNIT_POS: continue
    {}
    break
---
if cp.UNIT_POS: {}
---
if cp.UNIT_POS == 0: pass
else: {}
---
if cp.Line[cp.f32, 4](1): {}
---
if cp.UNIT_POS == 1: return
---
def inner(): {}
inner()
---
def inner(v):
    if v > 1: return v
    return (v, v)
inner(cp.UNIT_POS)
---
def inner(v): return inner(v)
inner(cp.UNIT_POS)
---
class inner: pass
---
match cp.UNIT_POS:
    case 0: {}
    case 1 | 2: pass
    case _: {}
---
match cp.UNIT_POS:
    case (a, b): {}
    case {{"k": v}}: pass
    case cp.f32(): pass
---
match (cp.UNIT_POS, 1):
    case (a, b) if a: {}
    case [a, *rest]: pass
---
async def inner(): pass
---
global name
---
import os
---
from os import path
---
raise ValueError("x")
---
del cp
---
assert cp.UNIT_POS, "x"
---
assert False
---
name: cp.i32 = 1.5
---
name: nobody = 1
---
name: cp.f32
---
name = 1
name = (1, 2)
---
name = None
if cp.UNIT_POS: name = 1.5
print(name)
---
if cp.UNIT_POS: name = 1
print(name)
---
name = 1
for k in range(cp.UNIT_POS): name = "text"
---
first, *rest = (1, 2, 3)
---
first, second = 1
---
first.attribute = 1
---
cp.attribute = 1
---
cp.UNIT_POS[0] = 1
---
(1, 2)[0] = 3
---
undefined += 1
---
return 1
---
return
---
break
---
continue
---
pass
---
print(*(1, 2))
---
print(**{{"sep": ""}})
---
cp.sync_cube()
---
if cp.UNIT_POS: cp.sync_cube()
---
while cp.UNIT_POS: cp.sync_plane()
---
cp.static_assert(cp.UNIT_POS)
---
type name = int
""".strip().split("---\n")

Mutation = Callable[[ast.FunctionDef, Random], bool]


def mutate(node: ast.FunctionDef, random: Random) -> str:
    """Change a function in one to three places; gives the names of the changes."""
    names: list[str] = []
    decorators, node.decorator_list = node.decorator_list, []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        mutation = random.choice(MUTATIONS)
        if any(_places(node)) and mutation(node, random):
            names.append(mutation.__name__)
    node.decorator_list = decorators
    ast.fix_missing_locations(node)
    return " ".join(names)


def _blocks(node: ast.FunctionDef) -> list[list[ast.stmt]]:
    """Every list of statements in a function."""
    return [
        block
        for inner in ast.walk(node)
        for name in ("body", "orelse")
        if isinstance(block := getattr(inner, name, None), list) and block
    ]


def _places(node: ast.FunctionDef) -> Iterator[tuple[ast.AST, str, int | None]]:
    """Where expressions that are read stand: parent, field, and position in a list."""
    for parent in ast.walk(node):
        for field, value in ast.iter_fields(parent):
            if isinstance(parent, ast.JoinedStr) or field in _NO_PLACES:
                continue
            values = value if isinstance(value, list) else [value]
            for k, child in enumerate(values):
                if isinstance(child, ast.expr) and not _is_target(child):
                    yield parent, field, k if isinstance(value, list) else None


_NO_PLACES = ("decorator_list", "returns", "annotation", "format_spec")


def _is_target(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", ast.Load()), ast.Load)


def _pick(node: ast.FunctionDef, random: Random) -> tuple[ast.AST, str, int | None]:
    return random.choice(list(_places(node)))


def _get(place: tuple[ast.AST, str, int | None]) -> ast.expr:
    parent, field, k = place
    value = getattr(parent, field)
    return value if k is None else value[k]


def _set(place: tuple[ast.AST, str, int | None], value: ast.expr) -> None:
    parent, field, k = place
    if k is None:
        setattr(parent, field, value)
    else:
        getattr(parent, field)[k] = value


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _index(text: str) -> ast.expr:
    subscript = _parsed(f"x[{text}]")
    assert isinstance(subscript, ast.Subscript)
    return subscript.slice


def delete_statement(node: ast.FunctionDef, random: Random) -> bool:
    block = random.choice(_blocks(node))
    del block[random.randrange(len(block))]
    if not block:
        block.append(ast.Pass())
    return True


def repeat_statement(node: ast.FunctionDef, random: Random) -> bool:
    block, other = random.choice(_blocks(node)), random.choice(_blocks(node))
    other.insert(random.randint(0, len(other)), copy.deepcopy(random.choice(block)))
    return True


def swap_statements(node: ast.FunctionDef, random: Random) -> bool:
    block = random.choice(_blocks(node))
    a, b = random.randrange(len(block)), random.randrange(len(block))
    block[a], block[b] = block[b], block[a]
    return a != b


def insert_statement(node: ast.FunctionDef, random: Random) -> bool:
    """A statement that people might try, alone or around one that stands there."""
    block = random.choice(_blocks(node))
    k = random.randrange(len(block))
    text = random.choice(STATEMENTS)
    if text.startswith("type ") or "{}" not in text:
        inner = text.replace("{{", "{").replace("}}", "}")
    else:
        inner = text.replace("{{", "{").replace("}}", "}").replace("{}", "__hole__")
    try:
        made = ast.parse(inner).body
    except SyntaxError:
        return False  # a form of a later Python
    for holder in [n for m in made for n in ast.walk(m)]:
        for name in ("body", "orelse"):
            held = getattr(holder, name, None)
            if isinstance(held, list) and any(_is_hole(s) for s in held):
                setattr(holder, name, [copy.deepcopy(block[k]) if _is_hole(s) else s for s in held])
    block[k : k + random.randint(0, 1)] = made
    return True


def _is_hole(statement: ast.AST) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Name)
        and statement.value.id == "__hole__"
    )


def replace_by_strange(node: ast.FunctionDef, random: Random) -> bool:
    _set(_pick(node, random), _parsed(random.choice(STRANGE)))
    return True


def replace_by_other(node: ast.FunctionDef, random: Random) -> bool:
    """Another expression of the same function."""
    _set(_pick(node, random), copy.deepcopy(_get(_pick(node, random))))
    return True


def replace_by_part(node: ast.FunctionDef, random: Random) -> bool:
    place = _pick(node, random)
    parts = [n for n in ast.walk(_get(place)) if isinstance(n, ast.expr) and not _is_target(n)]
    _set(place, random.choice(parts))
    return True


def change_operator(node: ast.FunctionDef, random: Random) -> bool:
    found = [n for n in ast.walk(node) if isinstance(n, ast.BinOp | ast.AugAssign | ast.UnaryOp)]
    if not found:
        return False
    chosen = random.choice(found)
    if isinstance(chosen, ast.UnaryOp):
        chosen.op = random.choice(ast.unaryop.__subclasses__())()
    else:
        chosen.op = random.choice(ast.operator.__subclasses__())()
    return True


def change_comparison(node: ast.FunctionDef, random: Random) -> bool:
    found = [n for n in ast.walk(node) if isinstance(n, ast.Compare)]
    if not found:
        return False
    chosen = random.choice(found)
    chosen.ops[0] = random.choice(ast.cmpop.__subclasses__())()
    return True


def change_arguments(node: ast.FunctionDef, random: Random) -> bool:
    """A call with one argument more, or fewer, or by a keyword."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    if not found:
        return False
    chosen, extra = random.choice(found), _parsed(random.choice(STRANGE))
    way = random.randrange(4)
    if way == 0 and chosen.args:
        chosen.args.pop(random.randrange(len(chosen.args)))
    elif way == 1:
        chosen.keywords.append(ast.keyword(random.choice(("line", "fill", "a", None)), extra))
    elif way == 2:
        chosen.args.append(ast.Starred(extra, ast.Load()))
    else:
        chosen.args.append(extra)
    return True


def rename(node: ast.FunctionDef, random: Random) -> bool:
    """A name becomes another name of the function; attributes too."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    if attributes and random.random() < 0.4:
        pool = [a.attr for a in attributes] + ["flat", "shape", "sum", "dtype", "size", "T", "x"]
        random.choice(attributes).attr = random.choice(pool)
    elif names:
        random.choice(names).id = random.choice(names).id
    return True


def misuse_index(node: ast.FunctionDef, random: Random) -> bool:
    """More indices, fewer, slices, and things that are none."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Subscript)]
    if not found:
        return False
    texts = ("0:", "::2", "::-1", "...", "None", "1, 2", "0, 0, 0", "-1", "2**70", "1.5", "'a'")
    random.choice(found).slice = _index(random.choice(texts))
    return True


MUTATIONS: tuple[Mutation, ...] = (
    delete_statement,
    repeat_statement,
    swap_statements,
    insert_statement,
    insert_statement,
    replace_by_strange,
    replace_by_strange,
    replace_by_strange,
    replace_by_other,
    replace_by_other,
    replace_by_part,
    change_operator,
    change_comparison,
    change_arguments,
    rename,
    misuse_index,
)
