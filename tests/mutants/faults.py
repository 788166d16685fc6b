"""Faults of one place in a module's source: another comparison, sign, number or condition, or a statement left out."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "*",
    ast.LShift: ">>",
    ast.RShift: "<<",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.BitXor: "&",
}
BLOCKS = (ast.If, ast.While, ast.IfExp)


@dataclass(frozen=True, slots=True)
class Fault:
    """Replacement of ``source[start:end]``, as bytes of UTF-8, by other text."""

    kind: str
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Returns the module with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def faults(source: bytes) -> list[Fault]:
    """Returns every fault of a module, in the order of its lines; some cannot be compiled."""
    tree = ast.parse(source)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return sorted(set(_found(tree, source, starts)), key=lambda f: (f.start, f.end, f.text))


def compiles(source: bytes) -> bool:
    """Returns whether a module's source can be compiled."""
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _found(tree: ast.Module, source: bytes, starts: list[int]) -> Iterator[Fault]:
    silent = _silent(tree)

    def place(node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def between(kind: str, left: ast.expr, right: ast.expr, text: str) -> Fault:
        start, end = place(left)[1], place(right)[0]
        # Parentheses stay where they are.
        gap = source[start:end].decode()
        inner = gap.strip(") (\n\t")
        return Fault(
            kind, left.lineno, start, end, gap.replace(inner, f" {text} ", 1) if inner else gap
        )

    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.Compare):
            left = node.left
            for operator, right in zip(node.ops, node.comparators, strict=True):
                yield between("comparison", left, right, COMPARISONS[type(operator)])
                left = right
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield between("operator", node.left, node.right, OPERATORS[type(node.op)])
        elif isinstance(node, ast.BoolOp):
            word = "or" if isinstance(node.op, ast.And) else "and"
            yield between("condition", node.values[0], node.values[1], word)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start, end = place(node)[0], place(node.operand)[0]
            yield Fault("sign", node.lineno, start, end, "")
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            value = node.value
            text = str(not value) if isinstance(value, bool) else str(int(str(value)) + 1)
            yield Fault("number", node.lineno, *place(node), text)
        elif isinstance(node, BLOCKS):
            yield Fault("condition", node.test.lineno, *place(node.test), "(False)")
        if isinstance(node, ast.Expr | ast.AugAssign):
            yield Fault("statement", node.lineno, *place(node), "pass")


def _silent(tree: ast.Module) -> set[int]:
    """Returns the nodes without behaviour: docstrings, annotations, what is for the type checker, decorators."""
    silent: set[int] = set()

    def mute(node: ast.AST | None) -> None:
        if node is not None:
            silent.update(id(inner) for inner in ast.walk(node))

    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                mute(node)
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=annotation):
                mute(annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                for part in (node.returns, *node.decorator_list):
                    mute(part)
            case ast.ClassDef():
                for part in (*node.bases, *node.decorator_list):
                    mute(part)
            case ast.If() if "TYPE_CHECKING" in ast.dump(node.test):
                mute(node)
            case ast.Call() if ast.unparse(node.func) in ("cast", "TypeVar"):
                mute(node)
    return silent
