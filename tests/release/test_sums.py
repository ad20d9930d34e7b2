import hashlib

from release import sums


def test_every_file_is_in_it_but_itself(tmp_path):
    (tmp_path / "b.whl").write_bytes(b"wheel")
    (tmp_path / "a.json").write_bytes(b"sbom")
    sums.main(tmp_path)
    sums.main(tmp_path)
    expected = [(hashlib.sha256(b"sbom"), "a.json"), (hashlib.sha256(b"wheel"), "b.whl")]
    text = (tmp_path / "SHA256SUMS").read_text()
    assert text == "".join(f"{digest.hexdigest()}  {name}\n" for digest, name in expected)
