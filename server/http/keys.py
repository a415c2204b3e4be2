"""Who calls: API keys, and the tenants that they stand for. It knows no HTTP but one header."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from core.errors import SettingsError
from core.request import DEFAULT_TENANT
from core.routes import Route
from telemetry.books.ledger import MAX_TENANTS, OTHER

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_KEY: Final = re.compile(r"[\x21-\x7e]+")  # what a header carries as it is


@dataclass(frozen=True, slots=True)
class Caller:
    """Who may pass. `sees_all`: there is nobody whose requests are hidden from it."""

    tenant: str | None  # None: an operator, who looks and asks for nothing
    sees_all: bool


class Keyring:
    """Keys by tenant; without any, everybody is the default tenant.

    A scrape key is an operator's: it alone opens /metrics, and all of /debug.
    """

    def __init__(self, texts: Sequence[str] | None, scrape_key: str | None = None) -> None:
        keys = parse_keys(texts, "--api-key") if texts is not None else {}
        self._keys = {tenant: key.encode() for tenant, key in keys.items()}
        self._scrape_key = None if scrape_key is None else scrape_key.encode()
        if scrape_key is not None and (
            not _KEY.fullmatch(scrape_key) or scrape_key in keys.values()
        ):
            raise SettingsError("--scrape-key: it must be printable ASCII, and no tenant's key")

    def caller(self, path: str, authorization: Sequence[str]) -> Caller | None:
        """Tell who calls `path`, by all `Authorization` headers; None: it may not."""
        if len(authorization) > 1:
            return None
        given = authorization[0] if authorization else ""
        watches = path == Route.METRICS or path.startswith("/debug/")
        if watches and self._scrape_key is not None:
            scheme, _, key = given.partition(" ")
            same = hmac.compare_digest(key.strip().encode("latin-1"), self._scrape_key)
            if same and scheme.lower() == "bearer":
                return Caller(None, sees_all=True)
            if path == Route.METRICS or not self._keys:
                return None
        tenant = self.tenant_of(given)
        return None if tenant is None else Caller(tenant, sees_all=len(self._keys) < 2)

    def tenant_of(self, authorization: str) -> str | None:
        """Tell whose key a header holds; None where it is nobody's.

        Cost: every key is compared, to its end, so that the time taken tells nothing of them.
        """
        if not self._keys:
            return DEFAULT_TENANT
        scheme, _, given = authorization.partition(" ")
        known = {
            hmac.compare_digest(given.strip().encode("latin-1"), key): tenant
            for tenant, key in self._keys.items()
        }
        return known.get(True) if scheme.lower() == "bearer" else None


def parse_keys(texts: Sequence[str], source: str) -> dict[str, str]:
    """Read each `NAME=KEY`, or a bare key of the default tenant.

    Returns: the key of each tenant.
    Raises:
        SettingsError: one cannot be used; told by its place, since a slip may show a secret.
    """
    keys: dict[str, str] = {}
    if not texts:
        raise SettingsError(f"{source}: must not be empty")
    for place, text in enumerate(texts, 1):
        name, named, key = text.partition("=")
        if not named:
            name, key = DEFAULT_TENANT, text
        if fault := _fault(name, key, keys):
            raise SettingsError(f"{source}: key {place} of {len(texts)}: {fault}")
        keys[name] = key
    return keys


def _fault(name: str, key: str, earlier: Mapping[str, str]) -> str | None:
    """Say what is wrong with a key beside those before it."""
    if not key.strip("="):
        return f"it must not be empty; one with an = in it needs a name: {DEFAULT_TENANT}=KEY"
    if not _NAME.fullmatch(name):
        return "its name must be 1 to 64 letters, digits and ._- and begin with one of the first"
    if name == OTHER:
        return f"the name {OTHER!r} is reserved"
    if not _KEY.fullmatch(key):
        return "it may hold printable ASCII without spaces only"
    if name in earlier:
        return "its name is taken by one before it"
    if key in earlier.values():
        return "it is the same as one before it"
    if len(earlier) == MAX_TENANTS:
        return f"there may be {MAX_TENANTS} names at most"
    return None
