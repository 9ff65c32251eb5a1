"""A Kerberos realm of this machine: MIT's KDC with a database of its own.

with KerberosRealm(folder) as realm:
    keytab = realm.add("kafka/localhost")
    realm.environment   # names its krb5.conf and ticket cache, for brokers and clients

The programs are those of Debian's packages krb5-kdc and krb5-admin-server, which `make soak`
installs where it can.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.harness.store_servers import free_port
from tests.harness.waiting import eventually

REALM: Final = "SPARKLOG.TEST"
CLOCK_SKEW_S: Final = 3
_KRB5_CONF: Final = """\
[libdefaults]
  default_realm = {default_realm}
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  ticket_lifetime = 1h
  clockskew = {skew_s}
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
"""
_KDC_CONF: Final = """\
[kdcdefaults]
  kdc_listen = ""
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    max_life = 10h
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""
_SBIN: Final = "/usr/sbin:/usr/local/sbin:/sbin"


class KerberosRealm:
    """A running KDC and its files."""

    def __init__(self, folder: Path, realm: str = REALM) -> None:
        """Prepare a realm whose files are in `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.realm = realm
        self._port = free_port()
        self._kdc: subprocess.Popen[bytes] | None = None

    @property
    def krb5_conf(self) -> Path:
        """Return the path of the realm's krb5.conf."""
        return self.folder / "krb5.conf"

    @property
    def environment(self) -> Mapping[str, str]:
        """Return the variables of processes in the realm."""
        return {
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
            "KRB5RCACHENAME": f"file2:{self.folder / 'replays'}",
        }

    def __enter__(self) -> KerberosRealm:
        self.write_krb5_conf(self.krb5_conf, self.realm)
        text = _KDC_CONF.format(realm=self.realm, port=self._port, folder=self.folder)
        (self.folder / "kdc.conf").write_text(text)
        self.run("kdb5_util", "-r", self.realm, "create", "-s", "-P", "of the test")
        self._kdc = subprocess.Popen(
            [program("krb5kdc"), "-n", "-r", self.realm],
            env={**os.environ, **self.environment},
            stderr=subprocess.DEVNULL,
        )
        log = self.folder / "kdc.log"
        eventually(lambda: log.exists() and "commencing operation" in log.read_text(), "the KDC")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._kdc is not None
        self._kdc.terminate()
        self._kdc.wait(30)

    def write_krb5_conf(self, path: Path, default_realm: str) -> None:
        """Write a krb5.conf that knows this realm and has another default realm."""
        path.write_text(
            _KRB5_CONF.format(
                default_realm=default_realm,
                realm=self.realm,
                port=self._port,
                skew_s=CLOCK_SKEW_S,
            )
        )

    def add(self, principal: str, *options: str) -> Path:
        """Create a principal with a random key, and return a keytab with the key.

        `options` are those of kadmin's `addprinc`, such as `-maxlife 10s`.
        """
        name = f"{principal}@{self.realm}"
        self.kadmin(" ".join(("addprinc", "-randkey", *options, name)))
        return self.keytab(principal)

    def keytab(self, principal: str) -> Path:
        """Change the key of a principal, add it to the principal's keytab, and return that."""
        name = f"{principal}@{self.realm}"
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self.kadmin(f"ktadd -k {path} {name}")
        return path

    def kadmin(self, command: str) -> str:
        """Run a command of kadmin on the database, and return what it prints."""
        return self.run("kadmin.local", "-r", self.realm, "-q", command)

    def kinit(self, principal: str, keytab: Path, *options: str) -> None:
        """Put a ticket of a principal into the cache of the realm's environment."""
        self.run("kinit", *options, "-k", "-t", str(keytab), f"{principal}@{self.realm}")

    def run(self, name: str, *words: str) -> str:
        """Run one of MIT's programs, and return what it prints."""
        made = subprocess.run(
            [program(name), *words],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        return made.stdout


def program(name: str) -> str:
    """Return the path of one of MIT's programs."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:{_SBIN}")
    assert found, f"{name} is not installed: `make soak` shows how to install Kerberos"
    return found
