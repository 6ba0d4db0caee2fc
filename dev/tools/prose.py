#!/usr/bin/env python3
"""Count the habits of prose and naming that make the source hard to read. ``tasks.py lint`` runs it.

    prose.py                fail if a count differs from ``prose.json``: counts may only fall
    prose.py --list RULE    print the places of a rule
    prose.py --counts       print the number of hits of each rule
    prose.py --write        record the counts

A line with ``# prose: ok`` is not checked.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).with_suffix(".json")
COMMAND = "python dev/tools/prose.py"

# Word lists ---------------------------------------------------------------------------------------------

IMPERATIVE = frozenset(
    """abort accept access accumulate acquire add adapt adjust advance align allocate allow analyse append apply
    approximate arrange assemble assert assign attach await avoid batch begin bind block bound branch broadcast build
    bypass cache calculate call cancel canonicalise cast catch change check choose chunk clamp classify clean clear
    clip clone close collapse collect combine compare compile complete compose compress compute concatenate configure
    confirm connect consume construct convert copy count create decide declare decode decompose decompress decorate
    deduplicate defer define delegate delete deliver derive describe deserialise detach detect determine disable
    discard disconnect dispatch display divide download draw drop dump emit enable encode enforce ensure enter
    enumerate erase escape estimate evaluate examine exclude execute exit expand explain export expose extend extract
    factor fail fetch fill filter find finalise finish fix flag flatten flush fold forget fork format forward free
    freeze fuse gather generate get group guard guess handle hash hide identify ignore implement import include
    increment index infer inherit initialise inline insert inspect install instantiate interleave interpolate
    interpret intersect invalidate invert invoke iterate join jump label launch limit link list load locate lock log
    look-up lookup loop lower make map mark mask match materialise maximise measure merge minimise mirror modify
    monitor mount move multiply name narrow normalise notify number obtain omit open optimise order output overlap
    override overwrite pack pad parse partition patch pause perform permute persist pick pin place plan plot pop
    populate post predict prefix prepare prepend preserve prevent print process produce profile propagate protect
    provide prune publish pull push query queue quote raise read rebuild receive recompute record recover reduce
    redirect refer refine refresh register reject release reload remap remember remove rename render reorder repair
    repeat replace replay replicate report represent request requeue require reset reshape resize resolve respond
    restart restore restrict resume retain retry return reuse reverse revert rewrite roll rotate round route run
    sample save scale scan schedule search seek select send separate serialise serve set shard share shift show shrink
    shuffle shut sign signal simplify simulate skip slice solve sort specialise split squeeze stack stage start stop
    store stream strip submit substitute subtract sum summarise supply suppress suspend swap switch synchronise take
    tag test tighten tile time toggle touch trace track transfer transform translate transpose traverse treat trigger
    trim truncate try turn unbind undo unflatten unfuse unlink unlock unpack unregister unroll unsqueeze unwrap
    update upgrade upload use validate verify view visit wait walk warn widen wrap write yield zero zip see
    lay round-trip fsync sha256 hand lend keep cut
    advise aggregate annotate back coalesce concat correct cover deserialize differ enqueue fit forbid grow hoist
    interrupt isolate judge kill lengthen meet mix observe poll probe rechunk relax relocate reread rerun reshard
    serialize settle shorten suggest sync tokenise unmark vary""".split()
)
"""Verbs that may begin the docstring of a function."""

WEAK = frozenset(
    """let hold take give put say tell ask note look state prove do go have leave carry follow end answer
    throw mean stand hear come bring""".split()
)
"""Verbs of speech and handling: each has a technical verb that says which act is meant."""

NAME_VERBS = IMPERATIVE | frozenset(
    """is has have are was can may must should needs need does supports contains includes to as from with without on
    main command init setup teardown test visit post pre do keep tell ask let say put give hold follow cut prove note
    shape size count index name order label copy plan stage record bound slice sum hash mask stem cli
    requires ensures exists holds concerns accepts matches checks repr iter next len enter exit new call getitem contains refit answer look""".split()
)
"""First words of names that are accepted: verbs, predicates and conversions. Words that are also verbs pass."""

IRREGULAR = frozenset(
    """taken told made known held kept written given drawn laid shown shrunk said sent met seen gone done begun
    stood lent bound found lost meant spoken thrown worn broken chosen fallen forgotten frozen gotten grown
    hidden learnt proven risen sewn shaken sung sunk stolen striven sworn torn woken woven undone left""".split()
)
NOT_PARTICIPLES = frozenset(
    "need needed embed feed seed speed shed red bed fed led exceed proceed succeed".split()
)
PREPOSITIONS = frozenset("out of for at in by up from on to as into over anew off".split())

PRIVATE_NAMES = frozenset(
    """mover movers pen pens cone cones ground nursery site sites told apart foreign border borders legality legal
    predicted behind lone surroundings surely obstacle obstacles peer carrier fragile emptiness drained asker
    vocabulary known followed homes laid ours theirs words word rounds pictures curable rescued noted maker makers
    foresee foreseen twin ask asks asking answer tell tells telling look looks looked drawn listed refit""".split()
)
"""Tokens of module, class and function names that belong to the private vocabulary ."""

PRIVATE_NOUNS = (
    r"movers?|pens?|cones?|nursery|nurseries|foreign|(?<!hosting )(?<!to the )sites?(?! (?:around|that the page))|peers?"
    r"|obstacles?|surroundings|rubbish|lone(?! surrogate)|maker"
    r"|the texts?(?= (?:says?|does|do|and)\b)"
)
ODD_WORDS = (
    r"(?<!far )apart|anew|alike|behind|beside|surely|perhaps|nobody|anybody|somebody|whatever|whoever|meanwhile|at hand"
    r"|goes? on|going on|one behind the other|in the place of|comes? of|as it is there"
    r"|the other way round|the very (?:bytes|same)|ends? the process|turns? (?:out|them) (?:round|to)?|of use"
)


# Rules ------------------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """A habit: what it looks at, and what to write instead."""

    name: str
    kind: str  # what it looks at: "doc" (first words), "prose", "name", "comment"
    instead: str
    pattern: re.Pattern[str] | None = None


def _prose(name: str, instead: str, pattern: str, flags: int = re.I) -> Rule:
    return Rule(name, "prose", instead, re.compile(pattern, flags))


RULES = [
    Rule("doc-not-imperative", "doc", "begin the docstring of a function with an imperative verb"),
    Rule("doc-weak-verb", "doc", "let/hold/take/give/say/prove ... -> the technical verb"),
    Rule("doc-return-what", "doc", "'Return what ...' -> name the object that is returned"),
    Rule("doc-noise", "doc", "says only what the name says: add a fact or delete"),
    _prose(
        "where-for-if",
        "'where' for a condition -> 'if'",
        r"\b(?:none|nothing|false|true|error|empty|absent|unknown|zeros?) where\b"
        r"|\bwhere (?:(?:it|they|that|this|one) (?!(?:is|are) (?:read|stored|written|defined|used|found|called)\b)"
        r"|(?:there|none|nothing|no|not|nobody|only|both|all|neither|either|necessary|such|what)\b)"
        r"|, where (?:its?|the|a|an) (?-i:[a-z ]{1,25}?) (?:is|are|has|have|does|do|can|may)\b",
    ),
    _prose(
        "known-of",
        "'what is known of x' -> 'the inferred type and shape of x'",
        r"\bknown (?:of|about)\b|\bknown as far\b|\bas far as (?:it|they|that) (?:is|are) known\b",
    ),
    _prose(
        "free-relative",
        "'what is ...' as a noun -> name the thing",
        r"(?<!matter )\bwhat (?:is|are|was|were|it|they|he|a|an|the|of|has|have|had|can|may|must|does|do|did|of|goes"
        r"|comes|stands|lies|makes|gives|takes|reads|nobody|nothing|only|all|several|follows|holds|belongs|makes|differs"
        r"|each|some|others?|one|no|none|another|we|users?|runtimes?|callers?|splits?|nodes?)\b",
    ),
    _prose(
        "of-which",
        "'of which', 'of whose' -> two sentences, or 'whose'",
        r"(?<!bytes )(?<!bit )(?<!axes )(?<!many )\bof (?:which|whom|whose)\b(?! (?:files?|inputs?|elements?|tensors?|run)\b)",
    ),
    _prose(
        "is-no",
        "'is no list' -> 'is not a list'; 'has not' -> 'does not have'",
        r"(?<!there )(?<!there, )\b(?:is|are|was|were|be|becomes?|became) (?-i:no|none)\b"
        r"(?! (?:longer|more|later|larger|wider|less|such))"
        r"|\b(?:has|have|had) not\b(?! (?:been|yet|changed|already|run|read|reached|started|done|\w+ed\b))"
        r"|, and (?:no|not) \w+$",
    ),
    _prose(
        "elliptic-none",
        "'None: it reads others', 'none is none' -> 'None if ...'",
        r"\bNone: |(?<!if )(?<!has )\bnone (?:is|are|where|does|can|has|for)\b|\bof none\b|[;,] none\b|\bas none\b",
        0,
    ),
    _prose(
        "fronted-of",
        "'of an unnamed node, its ...' -> put the noun first",
        r"(?:^|[.;:,] )of (?:a|an|the|each|some|all|no|what|its|one|another|those|such|several|other|it|unnamed"
        r"|integers|floats|which|weights|small|large|parts|every|this|these)\b",
    ),
    _prose(
        "also-those",
        "'also those that' -> 'including'",
        r"\balso (?:that|those|of|in|what|the|one|where|behind|when|by|with|if|an|a)\b|\btheir own, too\b",
    ),
    _prose(
        "so-many",
        "'so many' -> 'n', 'at most n', 'the given number'",
        r"(?<!wants )(?<!every )\bso (?:many|much|few)\b(?! that)",
    ),
    _prose(
        "speech-verb",
        "say/tell/ask/hear/answer -> set, specify, report, request, return",
        r"\b(?:says?|said|saying|tells?|told|telling|asks|asked|asking|hears?|heard|speaks?|spoken)\b",
    ),
    _prose(
        "give-take",
        "give/take -> return, produce, pass; accept, read, require",
        r"(?<!body )(?<!bytes it )(?<!long it )\b(?:gives?|gave|giving|takes|took)\b"
        r"(?! (?:up|effect|place|advantage|longer|time|too|about|more|less|fewer|part|\d|X\b|at least|at most|so|no memory"
        r"|as (?:many|long)|linear|minutes|seconds))",
    ),
    _prose(
        "stand-lie",
        "stand/lie/stay -> be, appear, be stored",
        r"\b(?:stands?|stood|standing|lies|lying|lie)\b(?! (?:for|outside|alone)\b)",
    ),
    _prose(
        "prove",
        "prove -> check, validate (errors); 'proved' -> checked, valid",
        r"\b(?:prove[sdn]?|proving|proofs?)\b",
    ),
    _prose(
        "state",
        "state/stated -> set, declare, specify",
        r"\b(?:stated|restated?|restates|stating|can state|(?:which|it|that|model|opset|node) states)\b",
    ),
    _prose("private-noun", "private vocabulary -> the field's word", rf"\b(?:{PRIVATE_NOUNS})\b"),
    _prose(
        "odd-word", "apart, anew, behind, alike, beside, nobody ... -> plain word", rf"\b(?:{ODD_WORDS})\b"
    ),
    Rule("that-chain", "prose", "three or more that/which/who/whose in one sentence -> split it"),
    Rule("semicolons", "prose", "two or more semicolons in one sentence -> sentences or a list"),
    Rule("comment-fragment", "comment", "'# of the writer' -> a clause with a subject and a verb"),
    Rule("name-participle", "name", "participle as the name of a function -> verb"),
    Rule("name-no-verb", "name", "a function whose name has no verb -> verb first"),
    Rule("name-most-least", "name", "most/least in a name -> max/min"),
    Rule("name-private", "name", "private vocabulary in a module, class or function name"),
]


class Hit(NamedTuple):
    """A place where a rule applies."""

    rule: str
    file: str
    line: int
    text: str


class Text(NamedTuple):
    """A docstring, comment or message."""

    line: int
    kind: str  # "docstring", "comment", "message"
    text: str


# Extraction -------------------------------------------------------------------------------------------

_ROLE = re.compile(r":[a-z:]+:`~?([^`]*)`")
_LITERAL = re.compile(r"``[^`]*``|`[^`]*`")


def clean(text: str) -> str:
    """Remove doctests and literals, whose words are not prose."""
    lines, in_doctest = [], False
    for line in text.splitlines():
        stripped = line.strip()
        in_doctest = stripped.startswith(">>>") or (in_doctest and bool(stripped))
        if not in_doctest:
            lines.append(stripped)
    text = "\n".join(lines)
    return _LITERAL.sub("X", _ROLE.sub("X", text))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a cleaned text; entries of lists and of ``Args:`` are sentences too."""
    for block in re.split(r"\n\s*\n|\n(?=[\w*, ]{1,40}: )|\n(?=- )", text):
        joined = re.sub(r"^(?:[\w*]+): ", "", " ".join(block.split()))
        yield from filter(None, re.split(r"(?<=[.!?])\s+(?=[A-Z`(:])", joined))


def is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is a property."""
    for one in node.decorator_list:
        name = ast.unparse(one)
        if name.split("(")[0].split(".")[-1] in ("property", "cached_property", "setter", "getter"):
            return True
    return False


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is an overload."""
    return any(ast.unparse(one).endswith("overload") for one in node.decorator_list)


def message_of(node: ast.AST) -> str:
    """Return the strings of an expression as one text, ``X`` for each placeholder."""
    parts = []
    for one in ast.walk(node):
        if isinstance(one, ast.JoinedStr):
            parts.append(
                "".join(
                    part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X"
                    for part in one.values
                )
            )
        elif isinstance(one, ast.Constant) and isinstance(one.value, str) and " " in one.value:
            parts.append(one.value)
    texts: list[str] = []
    for part in parts:  # the pieces of an f-string are constants of their own, too
        if not any(part in other for other in texts):
            texts.append(part)
    return " | ".join(text for text in texts if " " in text.strip())


class File:
    """One source file: its definitions, and every text in it that a person reads."""

    def __init__(self, path: Path, root: Path) -> None:
        self.name = str(path.relative_to(root))
        self.path = path
        source = path.read_text("utf-8")
        self.lines = source.splitlines()
        self.tree = ast.parse(source)
        self.texts: list[Text] = []
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.classes: list[ast.ClassDef] = []
        self.owner: dict[ast.AST, str] = {}
        self._visit(self.tree)
        self._comments(source)

    def ok(self, line: int) -> bool:
        """Return whether a line is exempt."""
        return 0 < line <= len(self.lines) and "# prose: ok" in self.lines[line - 1]

    def _visit(self, node: ast.AST) -> None:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for one in body:  # docstrings, and strings below attributes
                value = one.value if isinstance(one, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    self.texts.append(Text(one.lineno, "docstring", clean(value.value)))
        if isinstance(node, ast.Raise) and node.exc is not None:
            text = message_of(node.exc)
            if text:
                self.texts.append(Text(node.lineno, "message", text))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append(child)
                self.owner[child] = node.name if isinstance(node, ast.ClassDef) else ""
            elif isinstance(child, ast.ClassDef):
                self.classes.append(child)
            self._visit(child)

    def _comments(self, source: str) -> None:
        block: list[str] = []
        start = last = 0
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                continue
            line, text = token.start[0], token.string.lstrip("#").strip()
            if re.match(r"(noqa|type:|fmt:|ruff|pragma|mypy|prose:|!)", text):
                continue
            alone = token.line.strip().startswith("#")
            if block and alone and line == last + 1:
                block.append(text)
            else:
                self._flush(start, block)
                block, start = [text], line
            last = line if alone else 0
        self._flush(start, block)

    def _flush(self, line: int, block: list[str]) -> None:
        text = _LITERAL.sub("X", " ".join(block))
        if len(text.split()) > 1:
            self.texts.append(Text(line, "comment", text))


# Checks -----------------------------------------------------------------------------------------------


def _tokens(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name)]


def _is_participle(word: str) -> bool:
    if word in NOT_PARTICIPLES or word in IMPERATIVE:
        return False
    return word in IRREGULAR or (word.endswith("ed") and len(word) > 4)


_STOP = frozenset(
    "a an the of it its is are that this these those for in on to as and or with by one return yield".split()
)


def _stem(word: str) -> str:
    for end in ("ies", "ing", "es", "ed", "s"):
        if word.endswith(end) and len(word) > len(end) + 2:
            return word[: -len(end)].rstrip("e")
    return word.rstrip("e")


EXEMPT_CLASSES = frozenset({"SplitPredicates"})
"""Classes whose methods are the words of conditions in TOML, and whose docstrings are texts of the documentation."""
OPERATOR_TABLES = re.compile(r"convert/layers/|splitops_compare/adapters/")
"""Files whose functions are named after operators, or by the protocol of adapters."""


def check_docs(file: File) -> Iterator[Hit]:
    """Check how docstrings begin, and whether they say more than the name."""
    for node in file.functions:
        doc = ast.get_docstring(node)
        if not doc or is_overload(node) or node.name.startswith("test_"):
            continue
        line = node.body[0].lineno
        first = doc.split("\n\n")[0].replace("\n", " ")
        words = re.findall(r"[A-Za-z][\w-]*", clean(first))
        if not words:
            continue
        head = words[0].lower()
        if not is_property(node) and file.owner.get(node) not in EXEMPT_CLASSES:
            nothing = re.match(r"Do nothing\b|Tell autograd\b", first)
            if head in WEAK and not nothing:
                yield Hit("doc-weak-verb", file.name, line, f"{node.name}: {first}")
            elif head not in IMPERATIVE and not nothing:
                yield Hit("doc-not-imperative", file.name, line, f"{node.name}: {first}")
            if re.match(
                r"(Return|Yield|Write|Print|Say|Tell|Note|Read|Show|Put|Make|Add|Add to) "
                r"(what|whatever|who|where)\b",
                first,
            ):
                yield Hit("doc-return-what", file.name, line, f"{node.name}: {first}")
        names = {_stem(word) for word in (*_tokens(node.name), *_tokens(file.owner.get(node, "")))}
        content = {_stem(word.lower()) for word in words if word.lower() not in _STOP}
        whole = len(doc.split()) == len(first.split())
        if whole and file.owner.get(node) not in EXEMPT_CLASSES and content and content <= names:
            yield Hit("doc-noise", file.name, line, f"{node.name}: {first}")
    for node in file.classes:
        doc = ast.get_docstring(node)
        if doc and "\n" not in doc:
            content = {
                _stem(word.lower()) for word in re.findall(r"[A-Za-z]+", doc) if word.lower() not in _STOP
            }
            if content and content <= {_stem(word) for word in _tokens(node.name)}:
                yield Hit("doc-noise", file.name, node.body[0].lineno, f"{node.name}: {doc}")


_RELATIVE = re.compile(
    r"\b(?:that|who|whom|whose)\b|\bwhich\b(?! (?:bytes?|bits?|files?|ranks?|tensors?|rules?|columns?|parts?|axes|axis|element)\b)"
)
_FRAGMENT = re.compile(
    r"(?:of|which|such as|also|none|by|(?:that|one that|those|what)\b(?!.* (?:is|are|was|would|has|can|does|lies)\b))\b",
    re.I,
)


def check_prose(file: File) -> Iterator[Hit]:
    """Check the sentences of docstrings, comments and messages."""
    for text in file.texts:
        if file.ok(text.line):
            continue
        for sentence in sentences(text.text):
            shown = f"[{text.kind}] {sentence}"
            for rule in RULES:
                if rule.pattern is not None:
                    for _ in rule.pattern.finditer(sentence):
                        yield Hit(rule.name, file.name, text.line, shown)
            if len(_RELATIVE.findall(sentence)) >= 3:
                yield Hit("that-chain", file.name, text.line, shown)
            if sentence.count(";") >= 2 and text.kind == "docstring" and sentence[:1].isupper():
                yield Hit("semicolons", file.name, text.line, shown)
        if text.kind == "comment" and text.text[:1].islower() and _FRAGMENT.match(text.text):
            yield Hit("comment-fragment", file.name, text.line, text.text)


def check_names(file: File) -> Iterator[Hit]:
    """Check the names of modules, classes and functions."""
    module = file.path.stem
    if module != "__init__" and PRIVATE_NAMES & set(_tokens(module)):
        yield Hit("name-private", file.name, 1, f"module {file.name}")
    elif module == "__init__" and PRIVATE_NAMES & set(_tokens(file.path.parent.name)):
        yield Hit("name-private", file.name, 1, f"package {file.name}")
    for node in file.classes:
        if PRIVATE_NAMES & set(_tokens(node.name)):
            yield Hit("name-private", file.name, node.lineno, f"class {node.name}")
    for node in file.functions:
        if node.name.startswith("__") or file.ok(node.lineno):
            continue
        if re.match(r"visit_|test_", node.name):
            continue
        words = _tokens(node.name)
        if not words:
            continue
        owner = file.owner.get(node, "")
        shown = f"{owner + '.' if owner else ''}{node.name}"
        if PRIVATE_NAMES & set(words) and not (words[-1:] == ["border"] and "explain" in file.name):
            yield Hit("name-private", file.name, node.lineno, shown)
        if {"most", "least"} & set(words):
            yield Hit("name-most-least", file.name, node.lineno, shown)
        if is_property(node) or is_overload(node) or owner in EXEMPT_CLASSES:
            continue
        if _is_participle(words[0]) and (len(words) == 1 or words[1] in PREPOSITIONS):
            yield Hit("name-participle", file.name, node.lineno, shown)
        elif words[0] not in NAME_VERBS and not OPERATOR_TABLES.search(file.name):
            yield Hit("name-no-verb", file.name, node.lineno, shown)
    for one in ast.walk(file.tree):
        target = one.target if isinstance(one, ast.AnnAssign) else None
        if isinstance(target, ast.Name) and {"most", "least"} & set(_tokens(target.id)):
            yield Hit("name-most-least", file.name, one.lineno, target.id)


# Main -------------------------------------------------------------------------------------------------


def check(root: Path) -> list[Hit]:
    """Check all Python files below a folder."""
    hits: list[Hit] = []
    for path in sorted(root.rglob("*.py")):
        file = File(path, root)
        for checks in (check_docs, check_prose, check_names):
            hits += checks(file)
    return hits


def count_hits(hits: list[Hit]) -> dict[str, int]:
    """Return the number of hits of each rule."""
    counts = Counter(hit.rule for hit in hits)
    return {rule.name: counts[rule.name] for rule in RULES}


def main() -> None:
    """Compare the counts with the recorded ones, record them, or print places."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "src", ROOT / "compare/src"])
    parser.add_argument("--list", metavar="RULE", choices=[rule.name for rule in RULES])
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    hits = [hit for folder in options.folders for hit in check(folder)]
    counts = count_hits(hits)
    if options.list:
        for hit in hits:
            if hit.rule == options.list:
                print(f"{hit.file}:{hit.line}: {hit.text}")
    elif options.counts:
        for rule in RULES:
            print(f"{counts[rule.name]:6}  {rule.name:20} {rule.instead}")
        print(f"{len(hits):6}  total")
    elif options.write:
        RECORDED.write_text(json.dumps(counts, indent=2) + "\n")
    else:
        recorded = json.loads(RECORDED.read_text())
        for name, count in counts.items():
            if count > recorded.get(name, 0):
                print(f"{name}: {count} hits, {recorded.get(name, 0)} before; see {COMMAND} --list {name}")
        if counts != recorded:
            sys.exit(f"The counts differ from {RECORDED.name}. If they are lower: {COMMAND} --write")


if __name__ == "__main__":
    main()
