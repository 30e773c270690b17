"""What can be changed in one line of C++ or Python: operators, comparisons, constants, conditions, statements."""

import ast
import dataclasses
import io
import re
import tokenize

SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "**": "*", "<<": ">>", ">>": "<<",
    "&": "|", "|": "&", "^": "&",
    "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "//=": "*=", "|=": "&=", "&=": "|=", "&&": "||", "||": "&&",
    "and": "or", "or": "and", "true": "false", "false": "true", "True": "False", "False": "True",
    "min": "max", "max": "min", "std::min": "std::max", "std::max": "std::min",
    "break": "continue", "continue": "break",
}  # fmt: skip
CPP_TOKEN = re.compile(
    r"(?<= )(?:<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\*=|/=|\|=|&=|[<>+\-*/%&|^])(?= |$)"
    r"|\bstd::(?:min|max)\b|\b(?:true|false)\b|\b(?:break|continue)(?=;)"
)
CPP_NUMBER = re.compile(r"(?<![\w.'])(?:\d+\.\d*(?:e[+-]?\d+)?f?|\d+)(?![\w.'])")
CPP_IF = re.compile(r"\b(if|while) \(")
CPP_SKIP = re.compile(
    r"\s*(?:#|template\b|using\b|namespace\b|static_assert\b|TORCH_LIBRARY|m\.def\(|m\.doc\(|friend\b)"
)
CPP_STATEMENT = re.compile(
    r"\s*(?!return|const|auto|static|using|delete|break|continue|throw|else|case|do\b)"
    r"[\w:.<>\[\]*()\->+ ,]*?(?:\(.*\)| [-+*/|&]?= .*);\s*$"
)
CPP_DECLARATION = re.compile(r"\s*[\w:<>]+(?: [\w:<>]+)*[*&]? [*&]?\w+(?:\[.*\])?(?: = |\(|;|,|\{)")


@dataclasses.dataclass(frozen=True, order=True)
class Mutation:
    """Line `line` (from 1) of `file` reads `after` in place of `before`."""

    file: str
    line: int
    before: str
    after: str


def without_text(source: str) -> str:
    """C++ with its comments, strings, characters and preprocessor's lines blanked, every place kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'(?!\w)|^[ \t]*#(?:\\\n|[^\n])*'
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])  # noqa: E731
    return re.sub(pattern, blank, source, flags=re.DOTALL | re.MULTILINE)


def closing(text: str, opened: int) -> int:
    """The place of the parenthesis that closes the one at `opened`, or -1 where it is not on this line."""
    depth = 0
    for i in range(opened, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    return -1


def number_changes(text: str) -> list[str]:
    """Other numbers in place of one: the next, and for 1 the one before; a fraction changes by a tenth too."""
    if text.isdigit():
        return [str(int(text) + 1), *(["0"] if text == "1" else [])]
    return [f"({text} + 1)", f"({text} * 1.1f)" if text.endswith("f") else f"({text} * 1.1)"]


def cpp_changes(code: str) -> list[tuple[int, int, str]]:
    """(begin, end, replacement) of every change of one line of C++, whose comments and strings are blanked."""
    if CPP_SKIP.match(code):
        return []
    found = [(m.start(), m.end(), SWAPS[m[0]]) for m in CPP_TOKEN.finditer(code)]
    for m in CPP_NUMBER.finditer(code):
        found += [(m.start(), m.end(), new) for new in number_changes(m[0])]
    for m in CPP_IF.finditer(code):
        end = closing(code, m.end() - 1)
        if end > 0 and m[1] == "if":
            found.append((m.end(), end, f"!({code[m.end() : end]})"))
    if CPP_STATEMENT.match(code) and code.count("(") == code.count(")") and not CPP_DECLARATION.match(code):
        found.append((len(code) - len(code.lstrip()), len(code.rstrip()), ";"))
    return found


def cpp_mutations(file: str, source: str, left_out: list[range]) -> list[Mutation]:
    """Every mutation of a C++ file outside the ranges of lines `left_out`."""
    found = []
    for i, (line, code) in enumerate(zip(source.splitlines(), without_text(source).splitlines(), strict=True), 1):
        if any(i in each for each in left_out):
            continue
        found += [Mutation(file, i, line, line[:a] + new + line[b:]) for a, b, new in cpp_changes(code)]
    return found


def places_not_run(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a file says rather than computes: annotations, docstrings, imports, raised errors, decorators."""
    nodes: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.JoinedStr):
            nodes.append(node)
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            nodes.append(node.annotation)
        if isinstance(node, ast.FunctionDef):
            nodes += [*node.decorator_list, *([node.returns] if node.returns else [])]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            nodes.append(node)
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in ("Callable", "tuple", "list", "dict")
        ):
            nodes.append(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("warn", "register_fake", "register_autograd")
        ):
            nodes.append(node)
    return [((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in nodes]  # type: ignore[attr-defined]


def python_mutations(file: str, source: str) -> list[Mutation]:
    """Every mutation of a Python file: of tokens, of conditions, and of statements whose result nothing takes."""
    tree, lines = ast.parse(source), source.splitlines()
    silent = places_not_run(tree)
    found: list[Mutation] = []

    def change(line: int, begin: int, end: int, new: str) -> None:
        """Columns count bytes in `ast`, characters in `tokenize`; a line that is not ASCII is left alone."""
        text = lines[line - 1]
        if text.isascii() and not any(a <= (line, begin) < b for a, b in silent):
            found.append(Mutation(file, line, text, text[:begin] + new + text[end:]))

    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, (begin, end) = token.start[0], (token.start[1], token.end[1])
        around = token.line[begin - 1 : begin] == " " and token.line[end : end + 1] == " "
        word = token.type == tokenize.NAME
        if token.type == tokenize.NUMBER:
            for new in number_changes(token.string) if token.start[0] == token.end[0] else []:
                change(line, begin, end, new)
        elif token.string in SWAPS and (word or (token.type == tokenize.OP and around)):
            change(line, begin, end, SWAPS[token.string])
        elif word and token.string == "not":
            change(line, begin, end + 1, "")
    for node in ast.walk(tree):
        test = getattr(node, "test", None)
        if isinstance(node, ast.If | ast.IfExp) and test.lineno == test.end_lineno:
            text = lines[test.lineno - 1][test.col_offset : test.end_col_offset]
            change(test.lineno, test.col_offset, test.end_col_offset, f"(not ({text}))")
        dropped = isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        if dropped and node.lineno == node.end_lineno:
            change(node.lineno, node.col_offset, node.end_col_offset, "pass")
    return found
