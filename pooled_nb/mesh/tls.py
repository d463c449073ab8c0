"""A certificate for the signaling server, read from files and read again when they were renewed."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path

from pooled_nb.errors import BadOption

_MAX_FILE = 1024 * 1024


class Certificate:
    """What the server shows to its clients.

    Parameters
    ----------
    certfile
        PEM: the certificate, then those that vouch for it.
    keyfile
        PEM: its key, without a password; None: it stands in ``certfile``.

    Attributes
    ----------
    context
        What was loaded last: another object after each renewal.

    Raises
    ------
    BadOption
        The files cannot be read, or do not belong together.
    """

    def __init__(self, certfile: str, keyfile: str | None = None) -> None:
        self._certfile, self._keyfile = certfile, keyfile
        self._stamp = self._stamps()
        self.context = self._load()

    def renewed(self) -> bool:
        """Load the files again if they changed; True: there is a new ``context``.

        Raises
        ------
        BadOption
            They changed, and are no good now; the ones before stay in use. Said once for each change.
        """
        stamp = self._stamps()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        # A new one: half a pair, loaded into the living one, would end every new connection.
        self.context = self._load()
        return True

    def names(self) -> list[str]:
        """The names that it is for, those with ``*`` left out; none where they cannot be read."""
        from cryptography import x509

        with contextlib.suppress(OSError, ValueError, x509.ExtensionNotFound):
            with Path(self._certfile).open("rb") as file:
                found = x509.load_pem_x509_certificates(file.read(_MAX_FILE))[0]
            value = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            names = value.get_values_for_type(x509.DNSName)
            addresses = value.get_values_for_type(x509.IPAddress)
            return [name for name in [*names, *map(str, addresses)] if "*" not in name]
        return []

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for file in filter(None, (self._certfile, self._keyfile)):
            try:
                with Path(file).open("rb") as opened:
                    opened.read(1)
            except OSError as error:
                raise BadOption(
                    f"The file {file} cannot be read ({error.strerror or error}).",
                    "Name files in PEM form that this user may read.",
                ) from None
        try:
            # Without this OpenSSL would ask at the terminal, in the middle of the loop.
            context.load_cert_chain(self._certfile, self._keyfile, password=_no_password)
        except _NeedsPasswordError:
            raise BadOption(
                f"The key in {self._keyfile or self._certfile} is locked with a password.",
                "Name one without: openssl pkey -in KEY -out PLAIN takes it off.",
            ) from None
        except (OSError, ValueError) as error:  # of ssl, which says little and repeats nothing of the files
            raise BadOption(self._why(error), "Name the two PEM files of one certificate.") from None
        return context

    def _why(self, error: Exception) -> str:
        if "KEY_VALUES_MISMATCH" in str(error):
            return f"The key in {self._keyfile or self._certfile} is not that of the certificate."
        if self._keyfile is None:
            return f"{self._certfile} does not hold a certificate and its key."
        return f"{self._certfile} and {self._keyfile} are no certificate and key in PEM form."

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        stamps = []
        for file in filter(None, (self._certfile, self._keyfile)):
            try:
                facts = os.stat(file)
            except OSError:
                stamps.append((0, 0))  # half-way through being replaced
            else:
                stamps.append((facts.st_mtime_ns, facts.st_size))
        return tuple(stamps)


class _NeedsPasswordError(Exception):
    pass


def _no_password() -> str:
    raise _NeedsPasswordError
