import re
import tomllib
from pathlib import Path

from rpml.runtime.environment import EXTRAS

ROOT = Path(__file__).parents[2]
FOR_DEVELOPERS = {"all", "docs", "dev"}


def test_every_extra_is_listed_by_doctor_and_readme():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf8"))["project"]
    declared = set(project["optional-dependencies"]) - FOR_DEVELOPERS
    assert set(EXTRAS) == declared
    table = (ROOT / "README.md").read_text(encoding="utf8").split("| extra | adds |")[1]
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table.split("\n\n")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == declared
