"""Study files: a valid one whose values are replaced, removed or added to, and one whose text is damaged."""

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

VALID: dict[str, Any] = {
    "name": "fuzz",
    "seed": 1,
    "results": "results",
    "device": "cpu",
    "contributions": {"source": "openmoji", "resolution": 16, "holdout": 0.1},
    "model": {"family": "ddpm", "preset": "tiny", "train": {"steps": 2, "batch_size": 8, "learning_rate": 1e-3}},
    "retraining": {"method": "sparsified", "recover_steps": 2, "steps": 1, "name": "few steps"},
    "sampling": {"steps": 2, "images": 4, "scheduler": "ddim"},
    "properties": [{"name": "heldout_loss", "time_steps": 2}, "colourfulness", {"name": "cluster_entropy", "as": "x"}],
    "surrogates": ["pools"],
    "design": {"full_replicates": 1, "distribution": "uniform"},
    "stop": {"any": [{"evaluations": 16}, {"correlation": 0.9}]},
    "validation": {"shares": [0.5], "retrainings": [{"method": "fine_tune"}]},
    "ledger": "postgresql+psycopg://me:s3cret@host/name",
}
TEXT = yaml.safe_dump(VALID, sort_keys=False)

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([10**15, 10**30, -(10**30), 2**63, 1e300, float("inf"), float("nan"), 0.5]),
    st.dates(),
    st.binary(max_size=3),
    st.text(max_size=5),
    st.sampled_from(
        ["hostile_plugin:Thing", "os:abort", ":", "..", "../../x", "/", "\0", "\x1b[2J", "auto", "x" * 5000, "lora"]
    ),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), inner, max_size=3)
    ),
    max_leaves=5,
)
_KEYS = st.one_of(
    st.sampled_from([*VALID, "keep", "threads", "features", "weights", "pretrained"]), st.text(max_size=5)
)
_TOKENS = ["{", "}", "[", "]", "*a", "&a ", "<<: ", "!!int ", "!!python/name:os.system ", "|\n", ": ", "- ", "? ", "\t"]
_TOKENS += [
    "#",
    "%YAML 9.9\n",
    "---\n",
    "...\n",
    "'",
    '"',
    "\\",
    "\n",
    "0x",
    "1:1:1",
    "1e999",
    ".nan",
    "~",
    "\ufeff",
    "\x85",
]


def _places(content: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested mappings and lists."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [each for key, value in items for each in [(*here, key), *_places(value, (*here, key))]]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """The valid study with one to three values replaced, removed or added."""
    content = copy.deepcopy(VALID)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(_places(content) or [("name",)]))
        section: Any = content
        for key in place[:-1]:
            section = section[key]
        action = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if action == "replace":
            section[place[-1]] = draw(_VALUES)
        elif action == "remove":
            section.pop(place[-1], None) if isinstance(section, dict) else section.pop(place[-1])
        elif isinstance(section, dict):
            section[draw(_KEYS)] = draw(_VALUES)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=draw(st.booleans())).encode("utf-8", "surrogatepass")


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """The valid study's text with pieces of YAML put in, and pieces of it taken out."""
    text = TEXT
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(TEXT))), draw(st.sampled_from([0, 0, 1, 5, 30]))
        put = draw(st.one_of(st.sampled_from(_TOKENS), st.text(max_size=3))) * draw(st.sampled_from([1, 1, 1, 2, 100]))
        text = text[:start] + put + text[start + length :]
    return text.encode("utf-8", "surrogatepass")
