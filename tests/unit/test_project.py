"""What the project says of itself, to people and to the Snakemake workflow catalog."""

import tomllib

import yaml

from assize.records import ROOT


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_workflow_catalog_finds_it():
    """The catalog lists what has rules/*.smk or a Snakefile, and both words in its README."""
    readme = (ROOT / "README.md").read_text().lower()
    assert "snakemake" in readme
    assert "workflow" in readme
    included = (ROOT / "Snakefile").read_text()
    rules = sorted(path.name for path in (ROOT / "rules").glob("*.smk"))
    assert rules
    assert [name for name in rules if f'include: "rules/{name}"' not in included] == []
