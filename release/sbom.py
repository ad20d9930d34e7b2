"""Write the SBOM of a release, in CycloneDX's JSON: the locked packages, torch, and the data that is bundled.

Run by ``make release``. The same files and ``SOURCE_DATE_EPOCH`` give the same bytes.
"""

import hashlib
import os
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

from release.lock import LOCK, OWN, ROOT, Locked, read_lock

HEAD = "src/diffcredit/properties/laion/sa_0_4_vit_l_14_linear.pth"
ANY_TIME = 1580601600  # what hatchling takes where SOURCE_DATE_EPOCH is not set

_licence = LicenseFactory()


def make_bom(project: dict, lock: list[Locked], when: int = ANY_TIME) -> Bom:
    """Return the SBOM of ``project``, the table of ``pyproject.toml``."""
    own = Component(
        type=ComponentType.APPLICATION,
        name=OWN,
        version=project["version"],
        description=project["description"],
        licenses=[_licence.make_with_expression(project["license"])],
        bom_ref=OWN,
    )
    packages = {each.name: _package(each) for each in lock} | {"torch": _torch(project["dependencies"])}
    bundled = bundled_data().values()
    bom = Bom(components=[*packages.values(), *bundled], serial_number=_serial(own, lock))
    bom.metadata.timestamp = datetime.fromtimestamp(when, UTC)
    bom.metadata.component = own
    required = [packages[each.name] for each in lock if OWN in each.parents]
    bom.register_dependency(own, [packages["torch"], *required, *bundled])
    for name, package in packages.items():
        bom.register_dependency(package, [packages[each.name] for each in lock if name in each.parents])
    return bom


def bundled_data() -> dict[str, Component]:
    """Return what the wheel has of others, by the file that has its licence."""
    return {
        "src/diffcredit/contributions/openmoji/LICENSE.txt": Component(
            type=ComponentType.DATA,
            name="openmoji-subset",
            description="Images of the demo: a subset of OpenMoji, rasterised; its designers are in ATTRIBUTION.md.",
            licenses=[_licence.make_with_id("CC-BY-SA-4.0")],
            external_references=[_link(ExternalReferenceType.WEBSITE, "https://openmoji.org")],
            bom_ref="openmoji-subset",
        ),
        "src/diffcredit/properties/laion/LICENSE.txt": Component(
            type=ComponentType.MACHINE_LEARNING_MODEL,
            name="sa_0_4_vit_l_14_linear",
            description="The linear head of LAION's aesthetic predictor for CLIP ViT-L/14, unchanged.",
            licenses=[_licence.make_with_id("MIT")],
            hashes=[_sha256(hashlib.sha256((ROOT / HEAD).read_bytes()).hexdigest())],
            external_references=[_link(ExternalReferenceType.VCS, "https://github.com/LAION-AI/aesthetic-predictor")],
            bom_ref="sa_0_4_vit_l_14_linear",
        ),
    }


def main(folder: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock = read_lock(LOCK.read_text(encoding="utf-8"))
    bom = make_bom(project, lock, int(os.environ.get("SOURCE_DATE_EPOCH", ANY_TIME)))
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    (folder / f"{OWN}-{project['version']}.cdx.json").write_text(text + "\n", encoding="utf-8")


def _package(locked: Locked) -> Component:
    purl = PackageURL("pypi", name=locked.name, version=locked.version)
    # one hash for each file that may be installed, so they belong to its distribution rather than to the package
    files = _link(ExternalReferenceType.DISTRIBUTION, purl.to_string(), [_sha256(each) for each in locked.hashes])
    return Component(
        name=locked.name, version=locked.version, purl=purl, external_references=[files], bom_ref=locked.name
    )


def _torch(requirements: list[str]) -> Component:
    accepted = next(each for each in requirements if re.match(r"torch\b(?!-)", each))
    return Component(
        name="torch",
        purl=PackageURL("pypi", name="torch"),
        description="Installed by itself, in the build that fits the machine.",
        properties=[Property(name="diffcredit:accepted", value=accepted)],
        bom_ref="torch",
    )


def _serial(own: Component, lock: list[Locked]) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{own.name} {own.version} {lock}")


def _link(kind: ExternalReferenceType, url: str, hashes: list[HashType] | None = None) -> ExternalReference:
    return ExternalReference(type=kind, url=XsUri(url), hashes=hashes)


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
