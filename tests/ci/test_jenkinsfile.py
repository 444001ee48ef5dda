"""The Jenkinsfile, run by Groovy of the version inside Jenkins with stand-ins for its steps.

Proven: it parses, its shell runs, each exit code ends in the result that ci/README.md says, the
report is published whatever happened, and training starts after a pass alone. Not proven, for want
of a Jenkins: Declarative's own validation, the sandbox, the docker agent, the real junit step.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from tests.ci.templates import JENKINSFILE, Node, jenkins_builds

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(shutil.which("groovy") is None, reason="Debian's groovy is not installed"),
]

# exit code of preflight, a report -> result of the build, what its log has to say
CASES = {
    (0, True): ("SUCCESS", "Put the training here"),
    (0, False): ("FAILURE", "no report was left"),
    (1, True): ("FAILURE", "cannot keep its GPU fed"),
    (2, True): ("FAILURE", "set up wrong"),
    (2, False): ("FAILURE", "set up wrong"),
    (3, True): ("UNSTABLE", "undecided"),
    (3, False): ("FAILURE", "no report was left"),
    (127, True): ("FAILURE", "not started (exit code 127)"),
    (137, True): ("FAILURE", "no verdict (exit code 137"),
    (137, False): ("FAILURE", "no verdict (exit code 137"),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, bool], dict[str, Any]]:
    """What a build came to in each case: one Java for all of them."""
    nodes = []
    for code, report in CASES:
        node = Node(tmp_path_factory.mktemp("node") / "node")
        environment = node.environment(code, report)
        (node.folder / "environment.json").write_text(json.dumps(environment))
        nodes.append(node)
    return dict(zip(CASES, jenkins_builds(JENKINSFILE, nodes), strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_result(builds: dict[tuple[int, bool], dict[str, Any]], case: tuple[int, bool]) -> None:
    build = builds[case]
    result, words = CASES[case]
    assert build["result"] == result
    assert any(words in said for said in build["said"]), build["said"]
    assert build["stages"] == (["preflight", "train"] if result == "SUCCESS" else ["preflight"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_report_is_published(
    builds: dict[tuple[int, bool], dict[str, Any]], case: tuple[int, bool]
) -> None:
    build = builds[case]
    assert build["junit"] == {
        "testResults": "preflight-reports/preflight.xml", "allowEmptyResults": False,
    }  # fmt: skip
    assert build["archive"] == "preflight-reports/*"
    assert build["timeouts"] == [{"time": 10, "unit": "MINUTES"}]
    assert set(build["agent"]) == {"label", "image", "args"}
    assert "--entrypoint=" in build["agent"]["args"].split()
