#!/usr/bin/env python3
"""What the program is made of.

    tools/components.py check          licences, bans and sources of deny.toml hold for every crate that is built
    tools/components.py sbom [FILE]    a list of components, CycloneDX 1.5: crates, OpenSSL, the library of lanes

`check` reads what it needs of deny.toml, in the words of cargo-deny, so that it takes a second and no installation. Where
`cargo deny` is installed that is asked too, advisories included.
"""

import hashlib
import json
import re
import subprocess
import sys
import uuid
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10 and older
    from pip._vendor import tomli as tomllib

TOP = Path(__file__).resolve().parents[1]
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
# Bytes of `ipp-crypto-static` in tools/lanes.txt, and its version.
LANES = re.compile(r"^(ipp-crypto-static)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


def metadata(target):
    """What cargo builds for a target, tests and benchmarks included."""
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout)


def packages_of(data):
    """The packages that are in the graph, by id."""
    built = {node["id"] for node in data["resolve"]["nodes"]}
    return {package["id"]: package for package in data["packages"] if package["id"] in built}


# --- licences ---


def satisfied(expression, allowed):
    """Whether an SPDX expression can be met with the licences that are allowed. An older `/` is OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        good = both()
        while words[:1] == ["OR"]:
            words.pop(0)
            good = both() or good
        return good

    def both():
        good = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            good = one() and good
        return good

    def one():
        word = words.pop(0)
        if word == "(":
            good = either()
            words.pop(0)
            return good
        if words[:1] == ["WITH"]:
            word = f"{word} WITH {words[1]}"
            del words[:2]
        return word in allowed

    good = either()
    if words:
        raise ValueError(f"{expression}: {words[0]} is out of place")
    return good


# --- check ---


def users_of(data):
    """Names of the packages that use one, by its id."""
    names = {package["id"]: package["name"] for package in data["packages"]}
    users = {}
    for node in data["resolve"]["nodes"]:
        for needed in node["deps"]:
            users.setdefault(needed["pkg"], set()).add(names[node["id"]])
    return users


def findings(packages, users, rules):
    """What speaks against a set of packages, a line each."""
    bans, sources = rules["bans"], rules["sources"]
    names = lambda key: {entry["name"] for entry in bans.get(key, [])}
    allowed = set(rules["licenses"]["allow"])
    # A package that is denied may be there for the sake of its wrappers.
    wrappers = {entry["name"]: set(entry.get("wrappers", [])) for entry in bans["deny"]}
    versions = {}
    for package in packages.values():
        name, licence, source = f"{package['name']} {package['version']}", package["license"], package["source"]
        versions.setdefault(package["name"], set()).add(package["version"])
        if licence is None:
            yield f"{name}: no licence is declared"
        elif not satisfied(licence, allowed):
            yield f"{name}: licence {licence} is not allowed"
        if package["name"] in wrappers:
            used_by = users.get(package["id"], set()) - wrappers[package["name"]]
            if not wrappers[package["name"]]:
                yield f"{name}: banned"
            elif used_by:
                yield f"{name}: banned, but {', '.join(sorted(used_by))} uses it"
        if source and source.startswith("git+") and sources["unknown-git"] == "deny":
            yield f"{name}: comes from {source}"
        elif source and source != CRATES_IO and sources["unknown-registry"] == "deny":
            yield f"{name}: comes from {source}"
        if source is None:
            if TOP not in Path(package["manifest_path"]).parents:
                yield f"{name}: lies outside this repository"
            for needed in package["dependencies"]:
                if needed["req"] == "*" and not needed.get("path") and bans["wildcards"] == "deny":
                    yield f"{name}: takes any version of {needed['name']}"
    for name, found in sorted(versions.items()):
        if len(found) > 1 and name not in names("skip") and bans["multiple-versions"] == "deny":
            yield f"{name}: {' and '.join(sorted(found))} are both built"


def check():
    rules = tomllib.loads((TOP / "deny.toml").read_text())
    found, count = set(), 0
    for target in rules["graph"]["targets"]:
        data = metadata(target)
        packages = packages_of(data)
        count = max(count, len(packages))
        found.update(findings(packages, users_of(data), rules))
    for line in sorted(found):
        print(f"error: {line}", file=sys.stderr)
    if found:
        return 1
    print(f"{count} crates: licences, bans and sources are as deny.toml says")
    deny = subprocess.run(["cargo", "deny", "--version"], cwd=TOP, capture_output=True, check=False)
    if deny.returncode:
        print("advisories are not checked: that takes cargo-deny")
        return 0
    return subprocess.run(["cargo", "deny", "check"], cwd=TOP, check=False).returncode


# --- the list of components ---


def built_for_program(data):
    """Ids of what goes into the program or builds it, and what each of them needs; what only tests need is left out."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    [top] = [package["id"] for package in data["packages"] if package["name"] == "bulla"]
    needs, open_ids = {}, [top]
    while open_ids:
        at = open_ids.pop()
        if at not in needs:
            kinds = lambda needed: {kind["kind"] for kind in needed["dep_kinds"]}
            needs[at] = sorted(needed["pkg"] for needed in nodes[at]["deps"] if kinds(needed) & {None, "build"})
            open_ids += needs[at]
    return top, needs


def component(package, checksums):
    name, version = package["name"], package["version"]
    made = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:cargo/{name}@{version}",
        "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ").replace("  ", " ")}],
    }
    if package["source"] is None:
        del made["purl"]  # it is of this repository
    if (name, version) in checksums:
        made["hashes"] = [{"alg": "SHA-256", "content": checksums[name, version]}]
    return made


def foreign(kind, name, version, licence, **more):
    """A component that is no crate."""
    ref = f"pkg:{kind}/{name}@{version}"
    more = {"bom-ref": ref, "name": name, "version": version, "purl": ref, **more}
    return {"type": "library", **more, "licenses": [{"license": {"id": licence}}]}


def sbom(target="x86_64-unknown-linux-gnu"):
    data = metadata(target)
    packages = packages_of(data)
    top, needs = built_for_program(data)
    locked = tomllib.loads((TOP / "Cargo.lock").read_text())["package"]
    checksums = {(each["name"], each["version"]): each["checksum"] for each in locked if "checksum" in each}
    components = {id: component(packages[id], checksums) for id in needs}
    ref = lambda id: components[id]["bom-ref"]
    graph = {ref(id): [ref(needed) for needed in needs[id]] for id in needs}

    # OpenSSL's version stands behind the plus of the crate that brings its source.
    [source] = [package for package in packages.values() if package["name"] == "openssl-src" and "+" in package["version"]]
    openssl = foreign("generic", "openssl", source["version"].split("+")[1], "Apache-2.0")
    graph[ref(source["id"])].append(openssl["bom-ref"])
    name, version, digest = LANES.search((TOP / "tools/lanes.txt").read_text()).groups()
    lanes = foreign(
        "pypi",
        name,
        version,
        "Apache-2.0",
        description="libcrypto_mb.a of Intel's Cryptography Primitives Library, in libbulla_lanes.so",
        hashes=[{"alg": "SHA-256", "content": digest}],
    )
    graph[ref(top)].append(lanes["bom-ref"])

    program = {**components.pop(top), "type": "application"}
    parts = sorted([*components.values(), openssl, lanes], key=lambda part: part["bom-ref"])
    listed = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": program},
        "components": parts,
        "dependencies": [{"ref": ref, "dependsOn": sorted(graph.get(ref, []))} for ref in sorted({*graph, *(part["bom-ref"] for part in parts)})],
    }
    # The same contents have the same number, so that a list can be made again and compared.
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).digest()
    return {"serialNumber": f"urn:uuid:{uuid.UUID(bytes=digest[:16], version=4)}", **listed}


def main(words):
    match words:
        case ["check"]:
            return check()
        case ["sbom", *file] if len(file) <= 1:
            text = json.dumps(sbom(), indent=2) + "\n"
            if not file:
                sys.stdout.write(text)
                return 0
            Path(file[0]).parent.mkdir(parents=True, exist_ok=True)
            Path(file[0]).write_text(text)
            print(f"{file[0]}: {text.count('bom-ref') - 1} components")
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
