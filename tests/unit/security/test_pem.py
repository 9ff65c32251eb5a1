"""PEM text in settings."""

from __future__ import annotations

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidConfig
from sparklog.security.pem import normal_pem
from tests.harness.certificates import CertificateAuthority

PEM = CertificateAuthority().pem


@pytest.mark.parametrize("line_end", ["\n", "\r\n", " ", "\n\n  "])
def test_pem_is_readable_with_any_line_ends(line_end: str) -> None:
    text = f"comment {PEM}{PEM}".replace("\n", line_end)
    assert normal_pem(text, "s") == PEM + PEM
    assert len(x509.load_pem_x509_certificates(normal_pem(text, "s").encode())) == 2


def test_headers_of_an_old_key_stay() -> None:
    body = "Proc-Type: 4,ENCRYPTED\n\nAAAA"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n"
    assert normal_pem(key, "s") == key


@given(st.text().filter(lambda text: "-----BEGIN" not in text))
def test_text_without_a_block_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"setting=ssl\.keystore\.key"):
        normal_pem(text, "ssl.keystore.key")
