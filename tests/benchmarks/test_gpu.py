"""The page of the GPU benchmark, which is measured where there is one."""

import json
from pathlib import Path

import benchmarks.gpu
import pytest
from benchmarks.gpu.page import write_page
from benchmarks.gpu.profile import KINDS, _kind

HERE = Path(benchmarks.gpu.__file__).parent


def test_the_page_follows_from_the_results(tmp_path):
    write_page(json.loads((HERE / "results.json").read_text(encoding="utf-8")), tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == (HERE / "results.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("product", 1),
        ("sm90_xmma_dgrad_implicit_gemm_bf16bf16", 1),
        ("weight_windows", 2),
        ("sm90_xmma_wgrad_indexed_implicit_gemm", 2),
        ("norm", 3),
        ("norm_slopes", 3),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", 4),
        ("nvjet_sm90_tst_64x256_64x5", 5),
        ("triton_poi_fused_add_norm_slopes_view_27", 0),
    ],
)
def test_kernels_are_told_apart(kernel, kind):
    assert _kind(kernel) == [*KINDS][kind]
