"""What the GitLab template asks of its runner, and the README's job that trains behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ci.templates import Node, gitlab, gitlab_script, readme_blocks


def test_gitlab_limits_time_and_keeps_the_report() -> None:
    template = gitlab()
    gate = template[".preflight"]
    assert gate["timeout"]
    assert gate["artifacts"]["when"] == "always"
    assert gate["artifacts"]["reports"]["junit"] == "preflight-reports/preflight.xml"
    assert "allow_failure" not in gate
    assert template[".preflight-undecided-warns"] == {"allow_failure": {"exit_codes": [3]}}
    assert template["preflight"] == {"stage": ".pre", "extends": [".preflight"]}


@pytest.mark.parametrize(("code", "trains"), [(0, True), (1, False), (3, False)])
def test_readme_example_trains_only_after_a_pass(tmp_path: Path, code: int, trains: bool) -> None:
    (example,) = [block for block in readme_blocks("yaml") if "include" in block]
    node = Node(tmp_path / "node")
    (node.folder / "bin" / "python").write_text('#!/bin/sh\necho "trained $1"\n')
    (node.folder / "bin" / "python").chmod(0o755)
    ended = node.run("gitlab bash", node.environment(code, True), gitlab_script(example))
    assert ended.code == code
    assert ("trained train.py" in ended.output) == trains
