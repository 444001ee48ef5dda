import subprocess
import sys


def test_the_table_of_formats_loads_nothing_heavy():
    code = (
        "import preflight.report, sys;"
        "heavy = {'rich', 'junit_xml', 'pydantic', 'preflight.model'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
