"""An item added to a study file's list, and nothing else changed."""

import re

import pytest
import yaml

from diffcredit.yamlfile import with_item

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


@pytest.mark.parametrize(
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
def test_one_more_item_and_all_else_as_it_was(text):
    changed = with_item(text, "properties", ITEM)
    before, after = yaml.safe_load(text), yaml.safe_load(changed)
    assert after["properties"] == [*before["properties"], ITEM]
    assert {key: value for key, value in after.items() if key != "properties"} == {
        key: value for key, value in before.items() if key != "properties"
    }
    for comment in re.findall("#.*", text):
        assert comment in changed


def test_the_comment_of_what_follows_stays_with_it():
    changed = with_item(BLOCK, "properties", ITEM)
    assert changed.index("clusters: 8   # eight") < changed.index("my.module:Warmth") < changed.index("# what comes")


@pytest.mark.parametrize(
    "text", ["name: x\n", "properties: a\n", "[a]\n", "properties: []\n", "a: &p [x]\nproperties: *p\n"]
)
def test_no_list_no_change(text):
    with pytest.raises(ValueError, match="properties"):
        with_item(text, "properties", ITEM)
