"""A software bill of materials (CycloneDX 1.6, JSON) of installed packages or of wheels, from their own metadata.

    python3 deploy/sbom.py PATH... > sbom.cdx.json

PATH is a site-packages folder or a wheel. The same packages give the same bytes: there is no time in it, and the serial
number is made from the content. Only packages of Python are listed; what a base image brings has its own list.
"""

import json
import re
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normalised(name: str) -> str:
    """Returns a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reference(found: Distribution) -> str:
    return f"pkg:pypi/{normalised(found.metadata['Name'])}@{found.version}"


def _licences(found: Distribution) -> list[dict[str, object]]:
    """Returns the licence as the package states it: an SPDX expression, or the names of former metadata."""
    metadata = found.metadata
    (expression,) = metadata.get_all("License-Expression") or [""]
    if expression:
        return [{"expression": expression}]
    classified = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and not line.endswith(":: OSI Approved")
    ]
    stated = "".join(metadata.get_all("License") or []).strip().partition("\n")[0]
    names = classified or ([stated] if stated else [])
    return [{"license": {"name": name}} for name in names]


def _needs(found: Distribution, there: dict[str, str]) -> list[str]:
    """Returns the listed packages that this one requires, extras included where they are there."""
    names = [_NAME.match(line) for line in found.requires or []]
    wanted = {normalised(name.group()) for name in names if name is not None}
    return sorted(there[name] for name in wanted if name in there)


def bill(paths: Iterable[str]) -> dict[str, object]:
    """Returns the bill of what is at ``paths``, whose subject is Syncret where it is among them."""
    packages = {normalised(d.metadata["Name"]): d for d in distributions(path=list(paths))}
    there = {name: _reference(found) for name, found in packages.items()}
    components = {
        name: {
            "type": "application" if name == "syncret" else "library",
            "bom-ref": there[name],
            "name": found.metadata["Name"],
            "version": found.version,
            "purl": there[name],
            "licenses": _licences(found),
        }
        for name, found in sorted(packages.items())
    }
    subject = components.pop("syncret", None)
    body = {
        "metadata": {"component": subject} if subject else {},
        "components": list(components.values()),
        "dependencies": [
            {"ref": there[name], "dependsOn": _needs(found, there)}
            for name, found in sorted(packages.items())
        ],
    }
    serial = uuid.uuid5(NAMESPACE, json.dumps(body, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **body,
    }


def text(paths: Iterable[str]) -> str:
    """Returns the bill as a file has it."""
    return json.dumps(bill(paths), indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1:]))
