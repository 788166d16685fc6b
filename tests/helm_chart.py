"""Helm's own library on a chart, for tests: renders or lints it without a cluster.

    python helm_chart.py render|lint CHART RELEASE < VALUES.json

It is a process of its own, since Go's runtime, which the library brings, takes signals over.
"""

import json
import sys

from helm_python import Chart, lint
from helm_python.errors import HelmError

_INFO = 1
"""Severity of a finding that says no more than what is recommended."""


def render(chart: str, release: str, values: dict[str, object]) -> str:
    """The manifests, as YAML. Raises HelmError."""
    found = Chart.load(chart).render(values, name=release, is_install=True)
    return "\n---\n".join(text for name, text in found.items() if name.endswith(".yaml"))


def findings(chart: str, values: dict[str, object]) -> str:
    """Warnings and errors of `helm lint --strict`, a line each."""
    report = lint(chart, values, strict=True)
    return "\n".join(str(each) for each in report["messages"] if each["severity"] > _INFO)


if __name__ == "__main__":
    what, path, name = sys.argv[1:]
    given = json.load(sys.stdin)
    try:
        print(render(path, name, given) if what == "render" else findings(path, given))
    except HelmError as error:
        sys.exit(str(error))
