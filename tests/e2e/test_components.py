"""What the program is made of: which licences and sources pass, and what the list of components names."""

import copy
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
sys.path.insert(0, str(TOP / "tools"))

import components  # noqa: E402

RULES = tomllib.loads((TOP / "deny.toml").read_text())
CRATE = {
    "name": "crate",
    "version": "1.0.0",
    "license": "MIT",
    "source": components.CRATES_IO,
    "manifest_path": "/elsewhere/Cargo.toml",
    "dependencies": [],
}


@pytest.mark.parametrize(
    ("expression", "good"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Zlib", True),
        ("MIT/Apache-2.0", True),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("Apache-2.0 WITH LLVM-exception OR MIT", True),
    ],
)
def test_a_licence_passes_where_its_terms_can_be_met(expression, good):
    assert components.satisfied(expression, {"MIT", "Apache-2.0", "Zlib"}) == good


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, []),
        ({"license": "AGPL-3.0-only"}, ["crate 1.0.0: licence AGPL-3.0-only is not allowed"]),
        ({"license": None}, ["crate 1.0.0: no licence is declared"]),
        ({"name": "aws-lc-rs"}, ["aws-lc-rs 1.0.0: banned"]),
        ({"source": "git+https://example.org/x"}, ["crate 1.0.0: comes from git+https://example.org/x"]),
        ({"source": None}, ["crate 1.0.0: lies outside this repository"]),
    ],
)
def test_a_crate_that_deny_toml_does_not_want_is_named(change, says):
    assert list(components.findings({"id": {"id": "id"} | CRATE | change}, {}, RULES)) == says


def test_a_crate_may_be_there_for_the_sake_of_its_wrapper_alone():
    ring = {"id": {"id": "id"} | CRATE | {"name": "ring"}}
    assert list(components.findings(ring, {"id": {"async-nats"}}, RULES)) == []
    found = list(components.findings(ring, {"id": {"async-nats", "other"}}, RULES))
    assert found == ["ring 1.0.0: banned, but other uses it"]


def test_two_versions_of_a_crate_and_any_version_of_one_are_named():
    both = {name: {"id": name} | CRATE | {"version": version} for name, version in (("one", "1.0.0"), ("two", "2.0.0"))}
    assert list(components.findings(both, {}, RULES)) == ["crate: 1.0.0 and 2.0.0 are both built"]
    own = copy.deepcopy(CRATE) | {"source": None, "manifest_path": str(TOP / "crates/x/Cargo.toml")}
    own["dependencies"] = [{"name": "other", "req": "*"}]
    found = list(components.findings({"own": own | {"id": "own"}}, {}, RULES))
    assert found == ["crate 1.0.0: takes any version of other"]


def test_the_list_of_components_names_what_is_built_in_and_is_the_same_each_time(tmp_path):
    for file in (tmp_path / "one", tmp_path / "two"):
        subprocess.run([TOP / "tools/components.py", "sbom", file], check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    listed = json.loads((tmp_path / "one").read_text())
    assert (listed["bomFormat"], listed["metadata"]["component"]["name"]) == ("CycloneDX", "bulla")
    refs = {part["bom-ref"]: part for part in listed["components"]}
    [openssl] = [ref for ref in refs if ref.startswith("pkg:generic/openssl@4.")]
    assert any(ref.startswith("pkg:pypi/ipp-crypto-static@") for ref in refs)
    assert any(ref.startswith("pkg:cargo/clap@") for ref in refs)
    assert not any(ref.startswith("pkg:cargo/proptest@") for ref in refs), "only tests need it"
    assert all(part["licenses"] for part in refs.values())
    needed = {ref for each in listed["dependencies"] for ref in each["dependsOn"]}
    assert openssl in needed and needed <= set(refs)
