"""Bad configurations, command lines and captures: one sentence, no traceback, no hang, and nothing is unpickled."""

import json
import math
import pickle
from pathlib import Path

import pytest
import torch
import typer.main
from bad_files import CONFIG, TEXT, fuzz, require_sound, run
from hypothesis import example, given
from hypothesis import strategies as st

import precision
from precision.cli.app import app
from precision.errors import UsageError
from precision.inputs.capture_file import CallTensors, write
from precision.sweep.config import Sweep, parse_config
from precision.sweep.grid import plan

# Configurations

WORDS = st.sampled_from(
    [
        "eager", "eager[max_subtraction=maybe]", "eager[", "<script>", "a|b", "../..", "normal", "large[std=nan]",
        "large[std=1e400]", "offset[mean=inf]", "rope[start=99999999999]", "captured[call=1.0]", "captured[call=-0]",
        "captured[call=99999999999999999999]", "captured[file=/dev/zero]", "captured[file=.]", "zoo/",
        "zoo/residue[q_len=1000000000]", "zoo/residue[q_len=60000,batch=60000,heads=60000]", "zoo/nan-lost[kv_len=-3]",
        "zoo/nan-lost[kv_len=0,place=k]", "zoo/gqa[q_heads=5]", "fp8", "FP32", "bool[keep=0]", "additive[slope=inf]",
        "captured", "zoo/causal-shape", "log_dk", "none", "bert-base", "llama", "",
    ]
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-2, 9), st.sampled_from([10**30, -(10**30), 2**31, 2**63]), st.floats(), st.just(5e-324)
)
# Integers of more digits than Python writes out.
HUGE = st.sampled_from(["9" * 5000, "0x" + "f" * 5000])
VALUES = st.recursive(
    WORDS | TEXT | NUMBERS | st.booleans(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(TEXT, each, max_size=2),
    max_leaves=5,
)


def as_toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + "".join(c if c.isalnum() else f"\\U{ord(c):08x}" for c in value) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{as_toml(key)} = {as_toml(each)}" for key, each in value.items()) + "}"
    return str(value)  # integers and floats, nan and inf included


@st.composite
def configurations(draw):
    """A small sweep with a few keys spoilt."""
    good = {"name": "s", "methods": ["eager", "sdpa-math"], "dtype": ["fp16"], "q_len": 2, "d_k": [2, 4]}
    sweep = {key: as_toml(value) for key, value in good.items() if draw(st.integers(0, 9))}
    for key in draw(st.lists(st.sampled_from(list(Sweep.model_fields)), min_size=1, max_size=2)):
        sweep[key] = draw(HUGE | VALUES.map(as_toml) | WORDS.map(as_toml))
    if not draw(st.integers(0, 9)):
        sweep[as_toml(draw(TEXT))] = as_toml(draw(VALUES))
    lines = "\n".join(f"{key} = {value}" for key, value in sweep.items())
    return f"title = {as_toml(draw(TEXT | VALUES))}\n[[sweep]]\n{lines}\n"


@fuzz(300)
@given(configurations())
@example("a = " + "[" * 100_000)
@example("title = 1\nsweep = " + "{a = " * 2000 + "1" + "}" * 2000)
def test_any_configuration_is_planned_or_refused(text):
    said = "planned"
    try:
        plan(parse_config(text))
    except UsageError as error:
        said = str(error)
    assert said == "planned" or 10 < len(said) < 700


@fuzz(25)
@given(st.binary(max_size=200) | TEXT.map(str.encode))
def test_any_bytes_are_no_configuration(here, content):
    (here / "random.toml").write_bytes(content)
    status, _, err = run("run", "random.toml")
    require_sound(status, err)
    assert status == 2


def test_a_product_that_never_ends_is_refused():
    axes = "\n".join(f"{key} = {list(range(1, 101))}" for key in ("batch", "q_len", "kv_len", "d_k", "d_v", "seed"))
    text = CONFIG.replace("q_len = 2\nd_k = 4", axes)
    with pytest.raises(UsageError, match=r"product of 2,000,000,000,000 cases"):
        plan(parse_config(text))


@pytest.mark.parametrize("path", ["/dev/zero", "x" * 5000, "\udcff.toml", "a folder", "capture.safetensors", ""])
def test_what_is_no_configuration_file(here, path):
    status, _, err = run("run", path)
    require_sound(status, err)
    assert status == 2


# Command lines

ODD = st.sampled_from(
    [
        "", " ", "-", "--", "---x", "-1", "0", "1", "nan", "1e400", "99999999999999999999", "x" * 5000,
        "é🙂\u2028", "\udcff",
        ".", "..", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem", "nowhere/x", "a folder", "tiny.toml",
        "store.sqlite", "store.sqlite:1", "store.sqlite:99", ":1", "store.sqlite:", "capture.safetensors",
        "all", ":", "a:b",
        "tiny.toml:f", ".py:f", "..:f", "os:nothing", "math:pi", "eager", "eager[", "'; DROP TABLE rows; --",
        "$(x)", "*=1",
        "fp16", "cpu", "cuda", "table", "csv", "rows.csv", "a folder/x.parquet", "no/x.csv",
    ]
)  # fmt: skip
# What these would do with a sound first argument takes minutes.
HEAVY = {"check": "nowhere.py:f", "claims": "no-such-claim", "reproduce": "no-such-result", "capture": "no-such-recipe"}
COMMANDS = typer.main.get_command(app).commands


@st.composite
def command_lines(draw):
    """Any command, with any of its options and odd values."""
    name = draw(st.sampled_from(sorted(COMMANDS)))
    line = [name]
    for parameter in COMMANDS[name].params:
        if parameter.param_type_name == "argument":
            first = st.just(HEAVY[name]) if name in HEAVY else ODD | st.just("tiny.toml")
            line += [draw(first)] if name in HEAVY or draw(st.booleans()) else []
        elif draw(st.integers(0, 3)) == 0:
            line += [draw(st.sampled_from(parameter.opts))]
            line += [] if parameter.is_flag else [draw(ODD)]
    if name == "run" and len(line) > 1 and line[1].startswith("-"):
        line.insert(1, "tiny.toml")  # not the default, which takes minutes
    return line + draw(st.lists(ODD, max_size=1)) * (name not in ("run", *HEAVY))


@fuzz(25)
@given(command_lines())
@example(["run", "tiny.toml", "--store", ""])
@example(["run", "tiny.toml", "--out", "tiny.toml"])
@example(["report", "1", "--out", "/dev/null"])
def test_any_command_line_is_answered(here, line):
    if line == ["run"] or "--help" in line:
        return
    status, _, err = run(*line)
    require_sound(status, err)


# Capture files


def uses_capture(here, content):
    """Status and stderr of a run on a capture file of that content."""
    (here / "spoilt.safetensors").write_bytes(content)
    (here / "captured.toml").write_text(
        'title = "t"\n[[sweep]]\nname = "s"\nmethods = "eager"\ndtype = "fp32"\n'
        'inputs = "captured[file=spoilt.safetensors]"'
    )
    return run("run", "captured.toml", "--device", "cpu")


def header_of(content):
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def with_header(header, data):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@st.composite
def spoilt_captures(draw, content):
    """The bytes of a capture cut off, overwritten, or with a header that lies."""
    way = draw(st.sampled_from(["cut", "overwrite", "length", "field", "metadata"]))
    if way == "cut":
        return content[: draw(st.integers(0, len(content) - 1))]
    if way == "overwrite":
        at, new = draw(st.integers(0, len(content) - 1)), draw(st.binary(min_size=1, max_size=16))
        return content[:at] + new + content[at + len(new) :]
    if way == "length":
        return draw(st.sampled_from([0, 1, 2**20, 2**31, 2**63, 2**64 - 1])).to_bytes(8, "little") + content[8:]
    header, data = header_of(content)
    if way == "field":
        tensor = header[draw(st.sampled_from([name for name in header if name[0] != "_"]))]
        tensor[draw(st.sampled_from(sorted(tensor)))] = draw(
            st.sampled_from(
                ["F16", "I64", "BOOL", "F8_E4M3", [], [1, 2, 3, 4], [0, 2, 3, 4], [2**62, 4, 1, 1], [-1], [0, 0]]
            )
            | VALUES
        )
    else:
        (key,) = header["__metadata__"]
        metadata = json.loads(header["__metadata__"][key])
        place = draw(st.sampled_from([metadata, metadata["calls"][0]]))
        place[draw(st.sampled_from(sorted(place)))] = draw(VALUES)
        header["__metadata__"][key] = json.dumps(metadata)
    return with_header(header, data)


@fuzz(20)
@given(st.data())
def test_any_capture_file_is_used_or_refused(here, data):
    content = (here / "capture.safetensors").read_bytes()
    status, _, err = uses_capture(here, data.draw(spoilt_captures(content)))
    require_sound(status, err)


@fuzz(3)
@given(st.lists(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 3e38, 1e-45, 1.0]), min_size=12, max_size=12))
def test_any_number_may_be_captured(here, numbers):
    tensor = torch.tensor(numbers).reshape(1, 1, 3, 4)
    call = CallTensors("odd", tensor, tensor.flip(2), tensor.flip(3), scale=1e300)
    write(here / "odd.safetensors", [call], model="m", source="s")
    status, _, err = uses_capture(here, (here / "odd.safetensors").read_bytes())
    assert (status, err) == (0, "")


class Trap:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (Path("mark"),)


def test_nothing_is_ever_unpickled(here, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("something was unpickled")

    for module, names in ((pickle, ("load", "loads", "Unpickler")), (torch, ("load",))):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    torch.save(Trap(), here / "torch.pt")
    for content in (pickle.dumps(Trap()), (here / "torch.pt").read_bytes(), b"\x80\x04."):
        status, _, err = uses_capture(here, content)
        assert status == 2 and "not a whole safetensors file" in err
    assert not (here / "mark").exists()
    sources = [path.read_text() for path in Path(precision.__file__).parent.rglob("*.py")]
    assert not [text for text in sources if "import pickle" in text or "torch.load" in text]


@pytest.mark.parametrize("call", ["1", "1.0", "+1", " 1"])
def test_a_call_is_the_same_however_its_number_is_written(call):
    lines = f'title = "t"\n[[sweep]]\nname = "s"\nmethods = "eager"\ndtype = "fp32"\ninputs = "captured[call={call}]"'
    (task,) = plan(parse_config(lines))
    assert task.problem.inputs == "captured[call=1]"
