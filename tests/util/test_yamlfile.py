"""Texts that would take a machine down, and an item added to a study file's list with nothing else changed."""

import re

import pytest
import yaml

from diffcredit.errors import UserError
from diffcredit.util.yamlfile import parse_yaml, with_item, without_item

ITEM = {"name": "my.module:Warmth", "percentile": 90, "as": "ä: 1"}

BLOCK = """# a study
name: x
properties:   # what counts
  - {name: colourfulness}   # vivid
  # the second
  - name: cluster_entropy
    clusters: 8   # eight

  # what comes next
design: {seed: 0}
"""


LISTS = pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        "properties:\n- name: a\n- b\nkeep: images\n",
        "properties:\n- name: a\n- b",
        "properties: [a, {name: b}]  # two\nname: x\n",
        "properties: [\n  a,\n  b   # last\n]\n",
        "name: x\nproperties:\n    - a\n# the end\n",
        "properties:\r\n  - a\r\nname: x\r\n",
        "properties:\n  - name: a\n    explanation: |\n      several\n      # lines\nname: x\n",
        "properties:\n  - name: a\n    note: >-\n      folded\n\nname: x\n",
    ],
)


@LISTS
def test_one_more_item_and_all_else_as_it_was(text):
    changed = with_item(text, "properties", ITEM)
    before, after = yaml.safe_load(text), yaml.safe_load(changed)
    assert after["properties"] == [*before["properties"], ITEM]
    assert {key: value for key, value in after.items() if key != "properties"} == {
        key: value for key, value in before.items() if key != "properties"
    }
    for comment in re.findall("#.*", text):
        assert comment in changed


@LISTS
def test_one_item_fewer_and_all_else_as_it_was(text):
    longer = with_item(text, "properties", ITEM)
    assert without_item(longer, "properties", len(yaml.safe_load(text)["properties"])).rstrip() == text.rstrip()
    shorter, before = yaml.safe_load(without_item(longer, "properties", 0)), yaml.safe_load(longer)
    assert shorter == before | {"properties": before["properties"][1:]}


def test_the_comment_of_what_follows_stays_with_it():
    changed = with_item(BLOCK, "properties", ITEM)
    assert changed.index("clusters: 8   # eight") < changed.index("my.module:Warmth") < changed.index("# what comes")


@pytest.mark.parametrize(
    "text", ["name: x\n", "properties: a\n", "[a]\n", "properties: []\n", "a: &p [x]\nproperties: *p\n"]
)
def test_no_list_no_change(text):
    with pytest.raises(ValueError, match="properties"):
        with_item(text, "properties", ITEM)
    with pytest.raises(ValueError, match="properties"):
        without_item(text, "properties", 0)


def merging(levels):
    """Each level merges the one before nine times: the loader would copy 9^levels pairs."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (merging(30), "over 10,000 values, aliases counted"),
        ("a: &a {b: *a}", "over 10,000 values, aliases counted"),
        ("\n".join(f"k{i}: 1" for i in range(20_000)), "over 10,000 values, aliases counted"),
        ("a: 1" + ":1" * 100_000, "a number of 200,001 characters; at most 100 are accepted"),
        ("a: 0x" + "f" * 5000, "a number of 5,002 characters; at most 100 are accepted"),
        ("a: !!float '1" + ":1" * 5000 + "'", "a number of 10,001 characters; at most 100 are accepted"),
        ("[" * 60 + "]" * 60, "nested too deeply"),
        ("- " * 400_000, "nested too deeply"),
        ("!" + "x" * 500_000, "could not determine a constructor"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_would_take_for_ever(text, said):
    with pytest.raises(UserError, match=said) as caught:
        parse_yaml(text, "study.yaml")
    assert len(str(caught.value)) < 500


def test_what_a_study_may_well_hold():
    text = "\n".join(f"k{i}: [1, 0x1f, 2.5, 1e-3, 1:30, 2001-01-01, &a{i} x, *a{i}]" for i in range(100))
    assert parse_yaml(text, "study.yaml") == yaml.safe_load(text.replace("1e-3", "1.0e-3"))
    deep = "[" * 49 + "]" * 49
    assert parse_yaml(deep, "study.yaml") == yaml.safe_load(deep)
    assert parse_yaml(merging(3), "study.yaml") == yaml.safe_load(merging(3))
