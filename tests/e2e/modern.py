"""Users whose keys withstand a quantum computer, and what their messages say of themselves."""

import json

from test_key_rotation import Users

# As `bulla seal inspect` names them.
SIGNS, READS = "ML-DSA-65 with SHA384", "ML-KEM-768 with HKDF and SHA256, AES-256 key wrap"
OLD_READS = "ephemeral ECDH with SHA256, AES-256 key wrap"


class Modern(Users):
    """Users with P-256 keys at first; `modernise` gives them ML-DSA and ML-KEM keys beside."""

    def modernise(self, name, signs="ml-dsa-65", reads="ml-kem-768"):
        others = [option for other in self.identities if other != name for option in ("--share", other)]
        for kind in (signs, reads):
            self.cert("create", "--ring", name, "--dn", self.dn(name), "--key", kind, "--signer", "demo", *others)


def inspected(site, tmp_path, message):
    path = tmp_path / "message.der"
    path.write_bytes(bytes(message.body))
    return json.loads(site.qm.run("seal", "inspect", path, "--json").stdout)
