"""The opener that `docs/formats/sealed-message.md` shows: two libraries and nothing of ours."""

import re
import types
from pathlib import Path

from asn1crypto.cms import ContentInfo
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

PAGE = Path(__file__).parents[2] / "docs/formats/sealed-message.md"


def source():
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return block


def module():
    made = types.ModuleType("opener_of_the_page")
    exec(compile(source(), str(PAGE), "exec"), made.__dict__)
    return made


def decrypt(enveloped, identity):
    """What an envelope holds, by the page's opener."""
    certificate = x509.load_pem_x509_certificate(Path(identity.certificate).read_bytes())
    key = load_pem_private_key(Path(identity.key).read_bytes(), None)
    return module().decrypt(ContentInfo.load(enveloped)["content"], certificate, key)
