"""Texts to trees, trees over trees, and which file lies on which."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight.settings.layers import chain, find, match_gpu, read, shipped_layers
from preflight.settings.strict_yaml import parse, parse_value
from preflight.settings.tree import Branch, Node, SettingsError, Value, flatten, merge, plain

SHIPPED = Path(__file__).parents[2] / "thresholds"

# (name, bytes of the file, line, what the error has to say)
REFUSED: list[tuple[str, bytes, int, str]] = [
    ("not UTF-8", b"a: 1\nb: \xff\n", 2, "not UTF-8"),
    ("not YAML", b"a: 1\nb: [1, 2\nc: 3\n", 3, "not YAML"),
    ("not YAML, colon", b"a: 1\nb: c: d\n", 2, "mapping values are not allowed here"),
    ("not text", b"a: 1\nb: \x00\n", 2, "U+0000"),
    ("bad escape", b'a: 1\nb: "\\UFFFFFFFF"\n', 2, "names no character"),
    ("half a character", b'a: 1\nb: "\\uD800"\n', 2, "U+D800"),
    ("escape sequence", b'a: "\\e[31m"\n', 1, "U+001B"),
    ("tab", b"a:\n\tb: 1\n", 2, "a tab: write spaces"),
    ("tab in a value", b"a: 1\nb:\t2\n", 2, "a tab: write spaces"),
    ("two documents", b"a: 1\n---\nb: 2\n", 2, "second document"),
    ("list on top", b"- 1\n", 1, "not a mapping"),
    ("text on top", b"hello\n", 1, "not a mapping"),
    ("empty", b"# nothing\n", 1, "the file is empty"),
    ("duplicate key", b"a:\n  b: 1\n  c: 2\n  b: 3\n", 4, "duplicate key b (first on line 2)"),
    ("duplicate on top", b"a: 1\n'a': 2\n", 2, "duplicate key a (first on line 1)"),
    ("alias", b"a: 1\nb: *x\n", 2, "alias *x"),
    ("anchor", b"a: 1\nb: &x 2\n", 2, "anchor &x"),
    ("anchor on a mapping", b"a: &x\n  b: 2\n", 1, "anchor &x"),
    ("tag", b"a: 1\nb: !!int '2'\n", 2, "tag tag:yaml.org,2002:int"),
    ("python tag", b"a: !!python/object/apply:os.system ['id']\n", 1, "tag"),
    ("lone tag", b"a: ! b\n", 1, "tag !"),
    ("base 60", b"a:\n  timeout_s: 1:30\n", 2, "'1:30' is base 60"),
    ("base 60 float", b"a: 1:30.5\n", 1, "base 60"),
    ("old octal", b"a: 1\nb: 010\n", 2, "'010' begins with a 0"),
    ("no octal", b"a: 09\n", 1, "begins with a 0"),
    ("leading zero", b"a: 010.5\n", 1, "begins with a 0"),
    ("new octal", b"a: 0o10\n", 1, "'0o10' is octal"),
    ("hexadecimal", b"a: 0x1F\n", 1, "'0x1F' is hexadecimal"),
    ("binary", b"a: 0b101\n", 1, "'0b101' is binary"),
    ("underscore", b"a: 1_000\n", 1, "'1_000' has an underscore"),
    ("underscore float", b"a: 1_0.5\n", 1, "has an underscore"),
    ("yes", b"a: yes\n", 1, "'yes' is a boolean only in some YAML: write true or false"),
    ("no", b"a: NO\n", 1, "write true or false"),
    ("on", b"a: On\n", 1, "write true or false"),
    ("off", b"a: [off]\n", 1, "write true or false"),
    ("nan", b"a: .nan\n", 1, "not a finite number"),
    ("bare nan", b"a: NaN\n", 1, "not a finite number"),
    ("inf", b"a: -.inf\n", 1, "not a finite number"),
    ("too large", b"a: 1e999\n", 1, "too large"),
    ("huge", b"a: " + b"9" * 5000 + b"\n", 1, "too large"),
    ("no value", b"a: 1\nb:\nc: 2\n", 2, "no value: write one, or null"),
    ("no item", b"a:\n  - 1\n  -\n", 3, "no value"),
    ("null in a list", b"a:\n  - 1\n  - null\n", 3, "a list holds numbers and text only"),
    ("mapping in a list", b"a: [{b: 1}]\n", 1, "a list holds numbers and text only"),
    ("list in a list", b"a: [[1]]\n", 1, "a list holds numbers and text only"),
    ("dotted key", b"a: 1\nshm.margin: 2\n", 2, "key 'shm.margin'"),
    ("mapping as key", b"? {a: 1}\n: 2\n", 1, "a key is one word"),
    ("no key", b"{'': 2}\n", 1, "a key is one word"),
    ("source alone", b"a:\n  b: {source: x}\n", 2, "{value: 48, source: ...}"),
    ("beside a value", b"a: {value: 1, source: x, note: y}\n", 1, "and nothing else"),
    ("source of null", b"a: {value: null, source: x}\n", 1, "and nothing else"),
    ("source is a number", b"a: {value: 1, source: 2024}\n", 1, "source is a text"),
    ("source is empty", b"a: {value: 1, source: ''}\n", 1, "source is a text"),
    ("depth", b"a: " + b"{a: " * 10 + b"1" + b"}" * 10, 1, "nested more than 10 deep"),
    ("depth of lists", b"a: " + b"[" * 20_000, 1, "nested more than 10 deep"),
    ("size", b"#" * 65_531 + b"\na: 1\n", 1, "more than 64 KiB"),
]


@pytest.mark.parametrize(
    ("data", "line", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(data: bytes, line: int, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(data, "site.yaml")
    text = str(caught.value)
    assert text.startswith(f"site.yaml:{line}: ")
    assert says in text
    assert text.count("\n") <= 1
    assert len(text) < 300


def test_values_places_and_sources() -> None:
    text = b"""\
kind: site
a:
  whole: 12
  real: 1.5
  small: 1e-3
  flag: true
  gone: null
  day: 2024-01-31
  version: 450.80.02
  quoted: "1:30"
  octal_text: '010'
  list: [3, 224,
         "x"]
  sourced: {value: 48, source: "a: list"}
  below:
    value: 0.9
    source: >-
      two
      lines
  unsourced: {value: 3}
"""
    leaves = dict(flatten(parse(text, "site.yaml")))
    assert {key: leaf.value for key, leaf in leaves.items()} == {
        "kind": "site", "a.whole": 12, "a.real": 1.5, "a.small": 0.001, "a.flag": True,
        "a.gone": None, "a.day": "2024-01-31", "a.version": "450.80.02", "a.quoted": "1:30",
        "a.octal_text": "010", "a.list": [3, 224, "x"], "a.sourced": 48, "a.below": 0.9,
        "a.unsourced": 3,
    }  # fmt: skip
    assert type(leaves["a.whole"].value) is int
    assert leaves["a.whole"].place == "site.yaml:3"
    assert leaves["a.list"].place == "site.yaml:12"
    assert leaves["a.below"] == Value(0.9, "site.yaml:15", "two lines")
    assert leaves["a.sourced"].source == "a: list"
    assert leaves["a.unsourced"].source is None


def test_a_mark_at_the_start_and_windows_lines_are_harmless() -> None:
    assert plain(parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n", "f")) == {"a": 1, "b": 2}


def test_sixty_four_kib_and_ten_levels_are_taken() -> None:
    parse(b"#" * (64 * 1024 - 6) + b"\na: 1\n", "f")
    parse(b"a: " + b"{a: " * 9 + b"1" + b"}" * 9, "f")


@pytest.mark.parametrize(
    ("text", "value"), [("0.95", 0.95), ("[1, 2]", [1, 2]), ("null", None), ("jpeg", "jpeg")]
)
def test_value_of_an_option(text: str, value: object) -> None:
    assert parse_value(text, "--set", "a.b") == Value(value, "--set")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no value"),
        ("  ", "no value"),
        ("1:30", "base 60"),
        ("{b: 1}", "a mapping cannot be set"),
        ("{value: 1}", "a mapping cannot be set"),
        ("[1", "not YAML"),
        ("a\n---\nb", "second document"),
        ("\udcff", "U+DCFF"),
    ],
)
def test_refused_value_of_an_option(text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=r"^--set: a\.b: .*" + re.escape(says)):
        parse_value(text, "--set", "a.b")


yamlish = st.text(
    alphabet=st.sampled_from(
        list("ab01.:-?,[]{}&*!|>'\"%@`#~<= \n\t\\uxUN_\u0085\u2028é\ufeff\x00")
    )
)


@settings(deadline=None)
@given(st.one_of(yamlish, st.text()))
@example("%YAML 2.0\n---\na: 1")
@example("%TAG ! tag:x,2000:\n---\n!a b")
@example('a: "\\x')
@example("a: |99999999999999999999\n")
@example("<<: {a: 1}")
@example("=: =")
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        tree = parse(text.encode("utf-8", "surrogatepass"), "f.yaml")
    except SettingsError as error:
        assert re.match(r"f\.yaml:\d+: ", str(error))
    else:
        assert isinstance(plain(tree), dict)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_parse_or_are_refused(data: bytes) -> None:
    try:
        parse(data, "f.yaml")
    except SettingsError as error:
        assert re.match(r"f\.yaml:\d+: ", str(error))


@settings(deadline=None)
@given(st.one_of(yamlish, st.text()))
def test_any_option_parses_or_is_refused(text: str) -> None:
    try:
        parse_value(text, "--set", "a.b")
    except SettingsError as error:
        assert str(error).startswith("--set: a.b: ")


# --- merging


def tree(values: dict[str, object], place: str) -> Branch:
    def node(value: object) -> Node:
        if isinstance(value, dict):
            return tree(value, place)
        return Value(value, place, f"source of {place}")  # type: ignore[arg-type]

    return Branch({key: node(value) for key, value in values.items()}, place)


def test_merge() -> None:
    lower = tree({"a": {"x": 1, "y": [1, 2], "z": 3}, "b": 4, "c": {"d": 5}}, "low")
    upper = tree({"a": {"x": 2, "y": [3], "z": None, "w": None}, "b": {"e": 6}, "c": 7}, "high")
    merged = merge(lower, upper)
    assert plain(merged) == {"a": {"x": 2, "y": [3]}, "b": {"e": 6}, "c": 7}
    assert dict(flatten(merged))["a.x"] == Value(2, "high", "source of high")


def test_replacing_a_number_replaces_its_source() -> None:
    lower = parse(b"a: {b: {value: 48, source: x}}", "low.yaml")
    upper = parse(b"a: {b: 22}", "high.yaml")
    assert dict(flatten(merge(lower, upper)))["a.b"] == Value(22, "high.yaml:1", None)


def test_null_removes_only_what_lies_below() -> None:
    trees = [tree({"a": {"x": 1, "y": 2}}, "1"), tree({"a": None}, "2"), tree({"a": {"x": 3}}, "3")]
    assert plain(reduce(merge, trees)) == {"a": {"x": 3}}


keys = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(st.integers(), st.booleans(), st.lists(st.integers(), max_size=2))
any_tree = st.recursive(
    st.one_of(scalars, st.none()), lambda inner: st.dictionaries(keys, inner), max_leaves=8
).filter(lambda value: isinstance(value, dict))
# Keys are always mappings or always leaves, as in sections that passed their models.
shaped_tree = st.dictionaries(
    st.sampled_from(["p", "q"]), st.dictionaries(keys, scalars), max_size=2
)


@settings(deadline=None)
@given(st.lists(any_tree, min_size=1, max_size=4))
def test_later_wins(values: list[dict[str, object]]) -> None:
    trees = [tree(value, str(number)) for number, value in enumerate(values)]
    merged = dict(flatten(reduce(merge, trees, Branch({}, ""))))
    last = dict(flatten(trees[-1]))
    for key, leaf in last.items():
        assert (leaf.value is None) == (key not in merged)
        assert leaf.value is None or merged[key] == leaf
    for key, leaf in merged.items():
        assert leaf.value is not None
        assert dict(flatten(trees[int(leaf.place)]))[key] == leaf
        # Nothing above it says anything about this key.
        assert not any(key in dict(flatten(above)) for above in trees[int(leaf.place) + 1 :])


@settings(deadline=None)
@given(shaped_tree, shaped_tree, shaped_tree)
def test_merge_is_associative(
    one: dict[str, object], two: dict[str, object], three: dict[str, object]
) -> None:
    a, b, c = tree(one, "1"), tree(two, "2"), tree(three, "3")
    assert dict(flatten(merge(merge(a, b), c))) == dict(flatten(merge(a, merge(b, c))))


# --- files


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped folder, beside the working directory of the test."""
    folder = tmp_path / "shipped"
    write(
        folder,
        {
            "default.yaml": "kind: base\ndescription: the default\n",
            "cpu.yaml": "kind: base\nextends: default\n",
            "gpu/l4.yaml": 'kind: gpu\nmatch: ["NVIDIA L4"]\n',
            "gpu/forgot.yaml": "match_not: x\n",
            "workload/resnet50.yaml": "kind: workload\n",
        },
    )
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return folder


def names_of(text: str, shipped: Path) -> list[str]:
    top = find(text, ("base", "site"), "--thresholds", Path(), shipped)
    return [layer.name for layer in chain(top, shipped)]


def test_chains(shipped: Path) -> None:
    write(
        Path(),
        {
            "site.yaml": "shm: {margin: 2}\n",
            "alone.yaml": "extends: none\n",
            "on_cpu.yaml": "extends: cpu\n",
            "conf/rack.yaml": "extends: ../on_cpu.yaml\n",
            "own_base.yaml": "kind: base\nextends: default\n",
        },
    )
    assert names_of("default", shipped) == ["default.yaml"]
    assert names_of("cpu", shipped) == ["default.yaml", "cpu.yaml"]
    assert names_of("site.yaml", shipped) == ["default.yaml", "site.yaml"]
    assert names_of("alone.yaml", shipped) == ["alone.yaml"]
    assert names_of("conf/rack.yaml", shipped) == [
        "default.yaml", "cpu.yaml", "conf/../on_cpu.yaml", "conf/rack.yaml",
    ]  # fmt: skip
    assert names_of("own_base.yaml", shipped) == ["default.yaml", "own_base.yaml"]


def test_a_chain_of_four_is_taken_and_a_fifth_is_not(shipped: Path) -> None:
    write(Path(), {f"s{n}.yaml": f"\nextends: s{n + 1}.yaml\n" for n in range(1, 5)})
    write(Path(), {"s5.yaml": "description: x\n"})
    assert names_of("s2.yaml", shipped) == [
        "default.yaml", "s5.yaml", "s4.yaml", "s3.yaml", "s2.yaml",
    ]  # fmt: skip
    with pytest.raises(SettingsError, match=r"^s4\.yaml:2: extends: more than 4 site files"):
        names_of("s1.yaml", shipped)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "\nextends: defualt\n", "a.yaml:2: .*defualt. Did you mean default?"),
        ("a.yaml", "extends: zzz\n", "a.yaml:1: .*zzz. Known: cpu, default."),
        ("a.yaml", "extends: ./b.yaml\n", "a.yaml:1: .*/b.yaml. Did you mean a.yaml?"),
        ("a.yaml", "extends: a.yaml\n", "a.yaml:1: extends goes round.*a.yaml -> a.yaml"),
        ("a.yaml", "extends: [default]\n", "a.yaml:1: extends: needs a text"),
        ("a.yaml", "extends: null\n", "a.yaml:1: extends: needs a text"),
        ("a.yaml", "description: 5\n", "a.yaml:1: description: needs a text"),
        ("a.yaml", "kind: bass\n", "a.yaml:1: kind: bass is no kind. Did you mean base?"),
        ("a.yaml", "kind: gpu\n", "--thresholds: a.yaml is of kind gpu, and kind base or site"),
        ("a.yaml", "match: [x]\n", "a.yaml:1: match: belongs into a file of kind gpu"),
        ("a.yaml", "kind: gpu\nmatch: ['(']\n", "a.yaml:2: match: '\\(' is not a regular"),
        ("a.yaml", "kind: gpu\nmatch: [5]\n", "a.yaml:2: match: 5 is not a regular"),
        ("a.yaml", "kind: gpu\nmatch: []\n", "a.yaml:2: match: needs a list"),
        ("a.yaml", "kind: gpu\nmatch: x\n", "a.yaml:2: match: needs a list"),
        ("b.yaml", "", "--thresholds: there is no threshold file a.yaml. Did you mean b.yaml?"),
        ("a.yaml/x", "", "a.yaml:1: not a regular file"),
        ("a.yaml", "kind: base\nextends: ./site.yml\n", "a.yaml:2: site.yml is of kind site"),
        ("a.yaml", "extends: shipped/gpu/l4.yaml\n", "a.yaml:1: there is no threshold file"),
    ],
)
def test_refused_files(name: str, text: str, says: str, shipped: Path) -> None:
    write(Path(), {name: text})
    if "site.yml" in text:
        write(Path(), {"site.yml": "kind: site\n"})
    with pytest.raises(SettingsError, match="^" + says.replace("?", r"\?")):
        names_of("a.yaml", shipped)


def test_a_circle_of_two(shipped: Path) -> None:
    write(Path(), {"a.yaml": "extends: b.yaml\n", "b.yaml": "\nextends: ./a.yaml\n"})
    with pytest.raises(SettingsError, match=r"^b\.yaml:2: .*a\.yaml -> b\.yaml -> a\.yaml"):
        names_of("a.yaml", shipped)


def test_a_shipped_gpu_file_without_its_kind(shipped: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--gpu: gpu/forgot\.yaml is of kind site.*kind: gpu"):
        find("forgot", ("gpu",), "--gpu", Path(), shipped)
    with pytest.raises(SettingsError, match=r"^--gpu: .* l40. Did you mean l4\?"):
        find("l40", ("gpu",), "--gpu", Path(), shipped)


def test_a_name_too_long_is_an_error_of_the_option(shipped: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--thresholds: "):
        names_of("x" * 5000, shipped)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As root every file may be read, so the refusal is put in place of the file's open().
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "x.yaml").write_text("a: 1\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(SettingsError, match=r"^x\.yaml:1: cannot be read: Permission denied"):
        read(tmp_path / "x.yaml", "x.yaml")


def test_read_says_when_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^x\.yaml:1: there is no such file"):
        read(tmp_path / "x.yaml", "x.yaml")


def test_two_files_that_match_one_gpu(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "gpu/a.yaml": 'kind: gpu\nmatch: ["NVIDIA L4"]\n',
            "gpu/b.yaml": 'kind: gpu\nmatch: ["NVIDIA L4.*", "Tesla T4"]\n',
        },
    )
    layers = shipped_layers("gpu", tmp_path)
    assert getattr(match_gpu("Tesla T4", layers), "name", None) == "gpu/b.yaml"
    assert getattr(match_gpu("NVIDIA L40", layers), "name", None) == "gpu/b.yaml"
    assert match_gpu("NVIDIA A10", layers) is None
    assert match_gpu("The NVIDIA L4", layers) is None
    with pytest.raises(SettingsError, match=r"^gpu/b\.yaml: .*'NVIDIA L4' .*gpu/a\.yaml"):
        match_gpu("NVIDIA L4", layers)
