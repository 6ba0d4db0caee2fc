"""Files from outside: whatever they hold, one clear ModelError, in bounded time and memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ir_helpers import needs_openvino, run_by_openvino, run_ir, stated

from splitops.errors import ModelError, SplitError
from splitops.models.formats import openvino as ir
from splitops.models.formats.openvino import document, reader
from splitops.models.formats.openvino.nodes import to_nodes
from splitops.models.graph.split_nodes import iter_split_nodes
from splitops.spec import ELEMENT_TYPES

XML = """<?xml version="1.0"?>
<net name="model" version="11">
<layers>
<layer id="0" name="data" type="Parameter" version="opset1">
<data shape="6,4" element_type="f32"/>
<output><port id="0" precision="FP32" names="data"><dim>6</dim><dim>4</dim></port></output>
</layer>
<layer id="1" name="axis" type="Const" version="opset1">
<data element_type="i64" shape="" offset="0" size="8"/>
<output><port id="0" precision="I64"/></output>
</layer>
<layer id="2" name="lengths" type="Const" version="opset1">
<data element_type="i64" shape="2" offset="8" size="16"/>
<output><port id="0" precision="I64"><dim>2</dim></port></output>
</layer>
<layer id="3" name="split" type="VariadicSplit" version="opset1">
<input>
<port id="0" precision="FP32"><dim>6</dim><dim>4</dim></port>
<port id="1" precision="I64"/>
<port id="2" precision="I64"><dim>2</dim></port>
</input>
<output>
<port id="3" precision="FP32"><dim>2</dim><dim>4</dim></port>
<port id="4" precision="FP32"><dim>4</dim><dim>4</dim></port>
</output>
</layer>
<layer id="4" name="first" type="Result" version="opset1" output_names="first">
<input><port id="0" precision="FP32"><dim>2</dim><dim>4</dim></port></input>
</layer>
<layer id="5" name="rest" type="Result" version="opset1" output_names="rest">
<input><port id="0" precision="FP32"><dim>4</dim><dim>4</dim></port></input>
</layer>
</layers>
<edges>
<edge from-layer="0" from-port="0" to-layer="3" to-port="0"/>
<edge from-layer="1" from-port="0" to-layer="3" to-port="1"/>
<edge from-layer="2" from-port="0" to-layer="3" to-port="2"/>
<edge from-layer="3" from-port="3" to-layer="4" to-port="0"/>
<edge from-layer="3" from-port="4" to-layer="5" to-port="0"/>
</edges>
</net>
"""
BIN = np.array([0, 2, -1], "<i8").tobytes()
DATA = np.arange(24, dtype=np.float32).reshape(6, 4)


def changed(*pairs: tuple[str, str]) -> bytes:
    text = XML
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


def rejected(content: bytes, weights: bytes = BIN) -> str:
    """Read, and return the one line of the error."""
    with pytest.raises(ModelError) as caught:
        ir.from_bytes(content, weights)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def test_the_model_is_good_before_it_is_spoilt() -> None:
    outputs = run_ir(ir.from_bytes(XML.encode(), BIN), {"data": DATA})
    assert outputs["first"].tolist() == DATA[:2].tolist()
    assert outputs["rest"].tolist() == DATA[2:].tolist()


NUMBERS = {
    "version": 'version="11"',
    "layer id": 'layer id="3"',
    "port id": 'port id="4"',
    "from-layer": 'from-layer="2"',
    "to-port": 'to-port="2"',
    "offset": 'offset="8"',
    "size": 'size="16"',
    "shape": 'shape="6,4"',
}
WRITINGS = ["{}", " {}", "{} ", "{}.0", "{}.", "+{}", "0{}", "{}abc", "0x{}", "{}e0"]


@needs_openvino
def test_numbers_are_read_as_openvino_reads_them(tmp_path: Path) -> None:
    """Every writing of every number by which the parts of a file refer to one another."""
    jobs, ours = [], {}
    for place, old in NUMBERS.items():
        name, digits = old.removesuffix('"').split('="')
        for writing in WRITINGS:
            path = tmp_path / f"{len(ours)}.xml"
            path.write_bytes(changed((old, f'{name}="{writing.format(digits)}"')))
            path.with_suffix(".bin").write_bytes(BIN)
            jobs.append({"xml": str(path), "inputs": [stated(DATA, ELEMENT_TYPES["float32"])], "by": "CPU"})
            try:
                ir.read(path)
                ours[place, writing] = True
            except ModelError:
                ours[place, writing] = False
    answers = run_by_openvino(tmp_path, jobs)
    theirs = {key: "error" not in answer for key, answer in zip(ours, answers, strict=True)}
    assert ours == theirs
    assert {True, False} == set(theirs.values())


STRUCTURE: dict[str, tuple[list[tuple[str, str]], str]] = {
    "id twice": (
        [('id="1" name="axis"', 'id="0" name="axis"')],
        "'axis' and Parameter layer 'data' have the same id 0",
    ),
    "port twice": (
        [('<port id="1" precision="I64"/>\n', '<port id="0" precision="I64"/>\n')],
        "'split' has two ports with id 0",
    ),
    "port of input and output": ([('<port id="3"', '<port id="2"')], "'split' has two ports with id 2"),
    "two inputs of one name": (
        [
            (
                "</layers>",
                '<layer id="9" name="data" type="Parameter"><data shape="1" element_type="f32"/>'
                '<output><port id="0" names="data"/></output></layer></layers>',
            )
        ],
        "two inputs are named 'data'",
    ),
    "edge from nowhere": (
        [('from-layer="0"', 'from-layer="77"')],
        "an edge ends at layer 77, which does not exist",
    ),
    "edge to nowhere": (
        [('to-layer="5"', 'to-layer="77"')],
        "an edge ends at layer 77, which does not exist",
    ),
    "edge from unknown port": (
        [('from-layer="3" from-port="4"', 'from-layer="3" from-port="9"')],
        "output port 9, which VariadicSplit layer 'split' does not have",
    ),
    "edge from input port": (
        [('from-layer="3" from-port="4"', 'from-layer="3" from-port="0"')],
        "output port 0, which VariadicSplit layer 'split' does not have",
    ),
    "edge to unknown port": (
        [('to-layer="3" to-port="2"', 'to-layer="3" to-port="8"')],
        "input port 8, which VariadicSplit layer 'split' does not have",
    ),
    "edge to output port": (
        [('to-layer="3" to-port="2"', 'to-layer="3" to-port="3"')],
        "input port 3, which VariadicSplit layer 'split' does not have",
    ),
    "two edges to one port": (
        [('to-layer="3" to-port="2"', 'to-layer="3" to-port="1"')],
        "input port 1 of VariadicSplit layer 'split' has two edges",
    ),
    "missing edge": (
        [('<edge from-layer="0" from-port="0" to-layer="3" to-port="0"/>', "")],
        "input port 0 of VariadicSplit layer 'split' has no edge",
    ),
    "cycle of one": (
        [('from-layer="0" from-port="0" to-layer="3"', 'from-layer="3" from-port="3" to-layer="3"')],
        "'split' depends on its own output",
    ),
    "no layers": ([("<layers>", "<other>"), ("</layers>", "</other>")], "0 <layers> sections"),
    "layers twice": ([("</layers>", "</layers><layers/>")], "2 <layers> sections"),
    "no edges": ([("<edges>", "<other>"), ("</edges>", "</other>")], "0 <edges> sections"),
    "other in layers": ([("</layers>", "<leyer/></layers>")], "<layers> has a <leyer>"),
    "other in ports": (
        [('</output>\n</layer>\n<layer id="1"', '<prot/></output>\n</layer>\n<layer id="1"')],
        "<output> has a <prot>",
    ),
    "data twice": ([('<data shape="6,4" element_type="f32"/>', "<data/><data/>")], "two <data>"),
    "inputs twice": ([("</input>\n<output>", "</input><input/>\n<output>")], "two <input>"),
    "no id": ([('id="3" name="split"', 'name="split"')], "a <layer> has no id"),
    "no name": ([('name="split" ', "")], "layer '3' has no name"),
    "no type": ([('type="VariadicSplit" ', "")], "layer '3' has no type"),
    "no port id": ([('<port id="4"', "<port")], "a <port> has no id"),
    "no edge end": ([('to-layer="5" ', "")], "a <edge> has no to-layer"),
    "negative id": ([('id="3" name="split"', 'id="-3" name="split"')], "id = -3 is less than 0"),
    "id of text": (
        [('id="3" name="split"', 'id="three" name="split"')],
        "id = 'three' is not a 64-bit integer",
    ),
    "id too large": ([('id="3" name="split"', 'id="4294967296" name="split"')], "more than 2147483647"),
    "id past 64 bits": (
        [('id="3" name="split"', 'id="99999999999999999999" name="split"')],
        "not a 64-bit integer",
    ),
    "dim of text": (
        [("<dim>6</dim><dim>4</dim></port></output>", "<dim>six</dim></port></output>")],
        "a dim = 'six'",
    ),
    "dim below -1": (
        [("<dim>6</dim><dim>4</dim></port></output>", "<dim>-2</dim></port></output>")],
        "a dim = -2",
    ),
    "65 dims": (
        [("<dim>6</dim><dim>4</dim></port></output>", "<dim>1</dim>" * 65 + "</port></output>")],
        "more than 64",
    ),
    "parameter without type": ([(' element_type="f32"', "")], "element_type = None"),
    "parameter of unknown type": ([('element_type="f32"', 'element_type="f33"')], "element_type = 'f33'"),
    "parameter without shape": ([('<data shape="6,4" ', "<data ")], "has no shape"),
    "shape of text": ([('shape="6,4"', 'shape="6,x"')], "'x' is not a 64-bit integer"),
    "negative shape": ([('shape="6,4"', 'shape="6,-4"')], "-4 is less than 0"),
    "empty range": ([('shape="6,4"', 'shape="6..4,4"')], "the range '6..4' of shape contains no size"),
    "shape of 65": ([('shape="6,4"', f'shape="{"1," * 64}1"')], "more than 64 dimensions"),
    "constant without ports": (
        [('<output><port id="0" precision="I64"/></output>', "")],
        "'axis' has 0 input and 0 output ports",
    ),
    "constant with input": (
        [
            (
                '<data element_type="i64" shape="" offset="0" size="8"/>',
                '<data element_type="i64" shape="" offset="0" size="8"/><input><port id="7"/></input>',
            )
        ],
        "'axis' has 1 input",
    ),
    "result with output": (
        [
            (
                'name="rest" type="Result" version="opset1" output_names="rest">',
                'name="rest" type="Result"><output><port id="1"/></output>',
            )
        ],
        "'rest' has 1 input and 1 output",
    ),
    "version 9": ([('version="11"', 'version="9"')], "IR version 9 is not supported"),
    "version 12": ([('version="11"', 'version="12"')], "IR version 12 is not supported"),
    "no version": ([(' version="11"', "")], "a <net> has no version"),
    "not a net": ([("<net ", "<model "), ("</net>", "</model>")], "the XML is a <model>"),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(name: str) -> None:
    pairs, message = STRUCTURE[name]
    assert message in rejected(changed(*pairs))


CONSTANTS: dict[str, tuple[tuple[str, str], str]] = {
    "negative offset": (('offset="8"', 'offset="-8"'), "offset = -8 is less than 0"),
    "negative size": (('size="16"', 'size="-16"'), "size = -16 is less than 0"),
    "offset of text": (('offset="8"', 'offset="8x"'), "offset = '8x'"),
    "no offset": ((' offset="8"', ""), "the constant has no offset"),
    "no size": ((' size="16"', ""), "the constant has no size"),
    "outside the file": (('offset="8"', 'offset="9"'), "needs bytes 9 to 25, but the weights have 24 bytes"),
    "far outside": (('offset="8"', f'offset="{(1 << 63) - 1}"'), "but the weights have 24 bytes"),
    "offset past 64 bits": (('offset="8"', f'offset="{1 << 64}"'), "is not a 64-bit integer"),
    "offset plus size overflows": (
        ('offset="8" size="16"', f'offset="{(1 << 63) - 8}" size="16"'),
        "weights have 24",
    ),
    "size too small": (('size="16"', 'size="8"'), "size = 8, but shape [2] of i64 requires 16"),
    "size too large": (
        ('offset="8" size="16"', 'offset="0" size="24"'),
        "size = 24, but shape [2] of i64 requires 16",
    ),
    "shape too large": (('shape="2"', 'shape="3"'), "size = 16, but shape [3] of i64 requires 24"),
    "shape of every memory": (('shape="2"', 'shape="4611686018427387904,2"'), "larger than any memory"),
    "shape that wraps to 16 bytes": (
        ('shape="2"', 'shape="4294967296,4294967296,2"'),
        "larger than any memory",
    ),
    "empty shape of every memory": (
        ('shape="2"', 'shape="0,4611686018427387904,4"'),
        "larger than any memory",
    ),
    "unknown shape": (('shape="2"', 'shape="?"'), "of a constant is not static"),
    "shape of unknown rank": (('shape="2"', 'shape="..."'), "of a constant is not static"),
    "unknown type": (
        ('element_type="i64" shape="2"', 'element_type="i65" shape="2"'),
        "element_type = 'i65'",
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants(name: str) -> None:
    pair, message = CONSTANTS[name]
    error = rejected(changed(pair))
    assert message in error
    assert "node 'lengths'" in error


def test_cycle_of_many() -> None:
    layers = "".join(
        f'<layer id="{i}" name="l{i}" type="Relu"><input><port id="0"/></input>'
        '<output><port id="1"/></output></layer>'
        for i in range(1000)
    )
    edges = "".join(
        f'<edge from-layer="{i}" from-port="1" to-layer="{(i + 1) % 1000}" to-port="0"/>' for i in range(1000)
    )
    content = f'<net name="n" version="11"><layers>{layers}</layers><edges>{edges}</edges></net>'
    assert "depends on its own output" in rejected(content.encode())


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    builder = ir.Builder()
    value = builder.parameter("data", "f32", (1,))
    for _ in range(20_000):
        (value,) = builder.layer("Convert", [value], {"destination_type": "f32"})
    builder.result(value, "out")
    model = ir.from_bytes(*ir.to_bytes(builder.model()))
    assert run_ir(model, {"data": np.ones(1, np.float32)})["out"].tolist() == [1.0]


BOMB = """<?xml version="1.0"?><!DOCTYPE net [<!ENTITY a "aaaaaaaaaa">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<net name="&c;" version="11"><layers/><edges/></net>"""


@pytest.mark.parametrize(
    "content",
    [
        BOMB,
        '<!DOCTYPE net SYSTEM "file:///etc/passwd"><net name="n" version="11"><layers/><edges/></net>',
        '<!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]><net name="&x;" version="11"/>',
        '<!DOCTYPE net><net name="n" version="11"><layers/><edges/></net>',
    ],
    ids=["entity bomb", "external document type", "external entity", "document type"],
)
def test_document_types_and_entities(content: str) -> None:
    assert "document type or entities, which are rejected" in rejected(content.encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "malformed"),
        (b"\0" * 100, "malformed"),
        (b"PK\x03\x04", "malformed"),
        (XML.encode()[1:], "malformed"),
        (XML.replace('"1.0"', '"1.0" encoding="utf-7"').encode(), "malformed"),
        (XML.replace('name="model"', 'name="&undefined;"').encode(), "malformed"),
        (XML.replace('name="model"', 'name="a" name="b"').encode(), "malformed"),
        (XML.replace('name="model"', 'name="\x01"').encode(), "malformed"),
        (XML.encode().replace(b"model", b"m\xff\xfe"), "malformed"),
    ],
    ids=["empty", "zeros", "zip", "cut front", "utf-7", "entity", "attribute twice", "control", "not utf-8"],
)
def test_not_xml(content: bytes, message: str) -> None:
    assert message in rejected(content)


def test_nesting_is_bounded() -> None:
    deep = "<a>" * 100_000 + "</a>" * 100_000
    assert "nested more than 128 levels deep" in rejected(
        changed(("</net>", f"<rt_info>{deep}</rt_info></net>"))
    )
    fine = "<a>" * 100 + "</a>" * 100
    model = ir.from_bytes(changed(("</net>", f"<rt_info>{fine}</rt_info></net>")), BIN)
    assert ir.to_bytes(model)[0].count(b"<a") == 100


def test_size_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.xml"
    path.write_text(XML)
    with monkeypatch.context() as patched:
        patched.setattr(document, "MAX_BYTES", 1000)
        patched.setattr(reader, "MAX_BYTES", 1000)
        with pytest.raises(ModelError, match="more than 1000"):
            ir.from_bytes(XML.encode(), BIN)
        with pytest.raises(ModelError, match="more than the limit of 1000"):
            ir.read(path)
    monkeypatch.setattr(document, "_MAX_ELEMENTS", 50)
    with pytest.raises(ModelError, match="more than 50 elements and attributes"):
        ir.from_bytes(XML.encode(), BIN)


def test_every_truncation_of_the_xml() -> None:
    content = XML.encode()
    for end in range(len(content.rstrip())):
        rejected(content[:end])


def test_every_truncation_of_the_bin(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text(XML)
    for end in range(len(BIN)):
        path.with_suffix(".bin").write_bytes(BIN[:end])
        with pytest.raises(ModelError, match=r"weights have \d+.*model '.*model.xml', node"):
            ir.read(path)


def test_missing_bin(tmp_path: Path) -> None:
    path = tmp_path / "model.xml"
    path.write_text(XML)
    with pytest.raises(
        ModelError, match=r"its bytes, but cannot open '.*/model.bin': no such .*model '.*model.xml'"
    ):
        ir.read(path)
    builder = ir.Builder()
    builder.result(builder.parameter("data", "f32", (2,)), "out")
    path.write_bytes(ir.to_bytes(builder.model())[0])
    assert run_ir(ir.read(path), {"data": DATA[0, :2]})["out"].tolist() == [0.0, 1.0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """A folder, a pipe that nobody writes to, a device: an error and no waiting."""
    path = tmp_path / "model.xml"
    path.write_text(XML)
    weights = tmp_path / "model.bin"
    for make, remove in [(weights.mkdir, weights.rmdir), (lambda: os.mkfifo(weights), weights.unlink)]:
        make()
        with pytest.raises(ModelError, match=r"not a regular file|is a directory"):
            ir.read(path)
        remove()
    for odd in (tmp_path, Path("/dev/zero"), tmp_path / "none.xml", tmp_path / "a\0b.xml"):
        with pytest.raises(ModelError, match="cannot open"):
            ir.read(odd)


@pytest.mark.parametrize("element_type", ["i64", "boolean"])
def test_a_constant_of_no_elements_may_take_one_byte(element_type: str) -> None:
    """OpenVINO writes it so."""

    def network(size: int) -> bytes:
        return (
            '<net name="n" version="11"><layers><layer id="0" name="none" type="Const" version="opset1">'
            f'<data element_type="{element_type}" shape="0" offset="0" size="{size}"/>'
            '<output><port id="0"><dim>0</dim></port></output></layer></layers><edges/></net>'
        ).encode()

    for size in (0, 1):
        (layer,) = ir.from_bytes(network(size), b"\0\0").graph.layers
        assert layer.constant is not None
        assert layer.constant.read_array(layer.where).shape == (0,)
    assert "requires 0" in rejected(network(2), b"\0\0")


def string_constant(content: bytes, shape: str = "2") -> bytes:
    return (
        '<net name="n" version="11"><layers><layer id="0" name="text" type="Const">'
        f'<data element_type="string" shape="{shape}" offset="0" size="{len(content)}"/>'
        '<output><port id="0"/></output></layer>'
        '<layer id="1" name="out" type="Result"><input><port id="0"/></input></layer></layers>'
        '<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/></edges></net>'
    ).encode()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([3, 0, 1, 2], "has 3 strings, but its shape has 2"),
        ([-1, 0, 1, 2], "has -1 strings"),
        ([2, 0, 2, 1], "the string offsets"),
        ([2, 1, 1, 2], "the string offsets"),
        ([2, 0, 1, 4], "the string offsets"),
        ([2, 0, -1, 2], "the string offsets"),
        ([2, 0, 1, 2**31 - 1], "the string offsets"),
    ],
)
def test_lying_strings(numbers: list[int], message: str) -> None:
    content = np.array(numbers, "<i4").tobytes() + b"abc"
    model = ir.from_bytes(string_constant(content), content)
    with pytest.raises(ModelError, match=message):
        run_ir(model, {})


def test_strings_shorter_than_their_table() -> None:
    assert "requires 16" in rejected(string_constant(b"\2\0\0\0"), b"\2\0\0\0")
    huge = string_constant(b"\2\0\0\0", shape="1000000000000")
    assert "requires 4000000000008" in rejected(huge, b"\2\0\0\0")


def test_bytes_that_are_not_utf8_come_back_unchanged() -> None:
    content = np.array([2, 0, 1, 3], "<i4").tobytes() + b"\xffab"
    model = ir.from_bytes(string_constant(content), content)
    with pytest.raises(ModelError, match=r"a string that is not UTF-8.*engine='openvino' may run it"):
        run_ir(model, {})
    assert ir.to_bytes(model)[1] == content


AMPLIFIERS: dict[str, Callable[[ir.Builder], ir.Output]] = {}


def amplifier(make: Callable[[ir.Builder], ir.Output]) -> Callable[[ir.Builder], ir.Output]:
    AMPLIFIERS[make.__name__] = make
    return make


@amplifier
def concat_of_itself(builder: ir.Builder) -> ir.Output:
    value = builder.const(np.zeros(1000, np.uint8))
    for _ in range(60):
        (value,) = builder.layer("Concat", [value, value], {"axis": 0})
    return value


@amplifier
def gather_of_gathers(builder: ir.Builder) -> ir.Output:
    value = builder.const(np.zeros(1000, np.float32))
    indices, axis = builder.const(np.zeros(1000, np.int32)), builder.const(np.array(0))
    (table,) = builder.layer("Gather", [indices, indices, axis], version="opset8")
    (table,) = builder.layer("Unsqueeze", [table, axis])
    for _ in range(12):
        (table,) = builder.layer("Concat", [table] * 10, {"axis": 0})
    return builder.layer("Gather", [value, table, axis], version="opset8")[0]


@pytest.mark.parametrize("name", AMPLIFIERS)
def test_results_larger_than_the_memory(name: str) -> None:
    """Small files that ask for huge results, in a process whose memory is bounded."""
    builder = ir.Builder()
    builder.result(AMPLIFIERS[name](builder), "out")
    xml, weights = ir.to_bytes(builder.model())
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from splitops.models.formats import openvino as ir; from splitops.errors import ModelError\n"
        "import splitops\n"
        "length = int(sys.argv[1]); content = sys.stdin.buffer.read()\n"
        "try: splitops.run(ir.from_bytes(content[:length], content[length:]), {}, engine='reference')\n"
        "except ModelError as error: print(error); sys.exit(3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(len(xml))],
        input=xml + weights,
        capture_output=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 3, done.stderr.decode()[-500:]
    assert b"memory" in done.stdout


def test_random_damage() -> None:
    """Thousands of damaged files: each is read and run, or rejected with a SplitError, and nothing else."""
    rng = random.Random(11)
    tokens = [
        b"-1",
        b"0",
        b"9" * 19,
        b"1e9",
        b"?",
        b"...",
        b"",
        b"f16",
        b"Split",
        b"Result",
        b"Concat",
        b"<dim>7</dim>",
    ]
    good = 0
    for _ in range(4000):
        content = bytearray(XML.encode())
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(content))
            match rng.randrange(3):
                case 0:
                    content[at] = rng.randrange(256)
                case 1:
                    content[at : at + rng.randrange(1, 30)] = rng.choice(tokens)
                case 2:
                    begin = rng.randrange(len(content))
                    content[at:at] = content[begin : begin + rng.randrange(60)]
        try:
            model = ir.from_bytes(bytes(content), BIN)
            again = ir.from_bytes(*ir.to_bytes(model))
            for one in (model, again):
                list(iter_split_nodes(to_nodes(one)))
                if all(layer.type in KNOWN for layer in one.graph.layers):
                    run_ir(one, {ir.make_input_names(one)[0]: DATA} if one.inputs else {})
            good += 1
        except SplitError:
            continue
    assert good > 50


KNOWN = {"Parameter", "Const", "Result", "VariadicSplit", "Split", "Concat"}
