"""PEM text in settings: one line or many, in the form that OpenSSL reads.

Source: RFC 7468, KIP-651.
"""

from __future__ import annotations

import re
from typing import Final

from sparklog.core.errors import InvalidConfig

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.S)
_LINE: Final = 64


def normal_pem(text: str, setting: str) -> str:
    """Return the blocks of a PEM text, each in lines; a properties file may have it as one line.

    A key with the headers of the old encryption (`Proc-Type`) stays as it is.

    Raises:
        InvalidConfig: there is no block; the message names the setting only.
    """
    blocks = []
    for found in _BLOCK.finditer(text):
        name, body = found[1], found[2]
        if ":" not in body:
            data = "".join(body.split())
            body = "\n".join(data[at : at + _LINE] for at in range(0, len(data), _LINE))
        blocks.append(f"-----BEGIN {name}-----\n{body.strip()}\n-----END {name}-----\n")
    if not blocks:
        raise InvalidConfig(f"a setting has no PEM block `-----BEGIN …-----`. setting={setting}")
    return "".join(blocks)
