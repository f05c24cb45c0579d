"""Certificates for keys that withstand a quantum computer, from an authority that has such a key itself: what can be asked
for, and what is refused by name."""

import json

import pytest

from manager import BULLA, run, wait_until

SIGN = """#!/bin/sh
cd {folder} && rm -f new.pem && cat > request.csr &&
{bulla} cert sign request.csr --signer company --out new.pem --data {folder}/data >&2 &&
cat new.pem {folder}/ca.pem
"""
CONFIGURATION = """
[authorities.company]
command = ["{folder}/sign"]
seconds = 20
trust = "{folder}/ca.pem"
[rings.orders]
authority = "company"
dn = "CN=orders,O=Demo"
key = "{key}"
[certificates.server]
authority = "company"
dn = "CN=mq"
names = ["dns:localhost"]
key = "{key}"
"""


@pytest.fixture
def data(tmp_path):
    """A data directory, and an authority elsewhere with an ML-DSA key."""
    folder = tmp_path / "company"
    folder.mkdir()
    made = run("cert", "create", "--ca", "company", "--dn", "CN=Company", "--key", "ml-dsa-87", "--data", folder / "data")
    assert made.returncode == 0, made
    (folder / "ca.pem").write_bytes((folder / "data/authorities/company/ca.pem").read_bytes())
    (folder / "sign").write_text(SIGN.format(folder=folder, bulla=BULLA))
    (folder / "sign").chmod(0o755)
    data = tmp_path / "qm"
    data.mkdir(mode=0o700)
    return data


def configure(data, key):
    file = data / "enrolment.toml"
    file.write_text(CONFIGURATION.format(folder=data.parent / "company", key=key))
    file.chmod(0o600)


def said(done):
    return (done.stdout + done.stderr).decode()


def test_a_ring_gets_an_ml_dsa_key_from_an_authority_with_one(data):
    configure(data, "ml-dsa-65")
    done = run("key", "enrol", "orders", "--data", data)
    assert done.returncode == 0 and "has its first key" in said(done), done
    listed = said(run("cert", "list", "--ring", "orders", "--data", data))
    assert "ML-DSA" in listed and "CN=orders,O=Demo" in listed, listed


def test_no_authority_is_asked_for_an_ml_kem_key_which_signs_no_request(data):
    configure(data, "ml-kem-768")
    for command in (("key", "enrol", "orders"), ("cert", "renew", "server")):
        done = run(*command, "--data", data)
        assert done.returncode == 1 and "a key of type ML-KEM signs nothing, so no request either" in said(done), done
    assert not (data.parent / "company/request.csr").exists()


def keys(data):
    """The keys of the ring of `orders`, by serial number."""
    listed = json.loads(run("cert", "list", "--ring", "orders", "--json", "--data", data).stdout)
    return {one["serial"]: (one["key_type"], one["key_size"]) for one in listed if one["private_key"]}


def test_with_keys_of_both_kinds_each_renews_as_its_kind_can(data):
    """`key` is for those whose place it can take, and the other key of the ring is not held up."""
    configure(data, "p256")
    assert run("key", "enrol", "orders", "--data", data).returncode == 0
    company = data.parent / "company/data"
    beside = ("--ring", data / "rings/orders", "--dn", "CN=orders,O=Demo", "--key", "ml-dsa-65", "--signer", "company")
    made = run("cert", "create", *beside, "--data", company)
    assert made.returncode == 0, made
    before = keys(data)
    configure(data, "p384")
    for serial in before:
        # A certificate must begin a second after the one before, and this authority's begins when it is asked.
        enrol = lambda: said(run("key", "enrol", "orders", "--serial", serial, "--data", data))  # noqa: E731,B023
        wait_until(lambda: "seals from now on" in enrol(), f"the key {serial} is renewed")  # noqa: B023
    after = keys(data)
    new = sorted(key for serial, key in after.items() if serial not in before)
    assert (len(after), new) == (4, [("ML-DSA", 65), ("NISTECC", 384)]), after
    unknown = run("key", "enrol", "orders", "--serial", "4711", "--data", data)
    assert unknown.returncode != 0 and "no key with serial number 4711" in said(unknown), unknown


def test_an_ml_dsa_key_takes_no_old_key_s_place(data):
    configure(data, "p256")
    assert run("key", "enrol", "orders", "--data", data).returncode == 0
    configure(data, "ml-dsa-65")
    done = run("key", "enrol", "orders", "--data", data)
    assert done.returncode == 4 and "`bulla cert create` makes one beside it" in said(done), done
