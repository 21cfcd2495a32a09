"""Where to send: a base URL taken apart, with the key, the headers and the way there. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

from workloads.errors import ConfigError

_ROUTES = ("/chat/completions", "/completions", "/models")
_VERSION = re.compile(r"/v\d+(?:alpha|beta)?\d*$")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SECRET_QUERY = re.compile(r"(?i)[?&][\w.-]*(key|token|secret|password|signature|sig|auth)[\w.-]*=")
_UNSENDABLE = re.compile(r"[^\t\x20-\x7e\xa0-\xff]")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One HTTP origin and what every request to it carries. Shows no secret in its repr."""

    scheme: str
    host: str
    port: int
    base_path: str = ""  # before ``api``; no slash at its end
    api: str = "/v1"  # what stands for /v1 there; some vendors have /v4, or nothing
    query: str = ""
    key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str = field(default="", repr=False)
    verify: bool | str = True  # False: any certificate; a path: that CA bundle

    @property
    def origin(self) -> str:
        """scheme://host:port, for people to read."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """The Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.scheme) else f"{host}:{self.port}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Whatever must not be seen in any output."""
        values = (self.key, *self.headers.values())
        return tuple(value for value in values if len(value) >= 6)

    def target(self, path: str) -> str:
        """The request target of ``path``: /v1/... goes to the API, anything else beside it."""
        if path == "/v1" or path.startswith("/v1/"):
            path = self.api + path.removeprefix("/v1")
        joined = self.base_path + path
        return f"{joined}{'&' if '?' in joined else '?'}{self.query}" if self.query else joined


def parse_base_url(
    url: str,
    key: str = "",
    headers: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    verify: bool | str = True,
) -> Endpoint:
    """The endpoint that a base URL means, however far its path goes; or ConfigError.

    ``environ`` is where HTTPS_PROXY, HTTP_PROXY and NO_PROXY are looked up; without it, nowhere.
    """
    parts = _split(url.strip())
    host, port = (parts.hostname or "").rstrip("."), parts.port or _default_port(parts.scheme)
    base_path, api = _base_and_api(parts.path)
    return Endpoint(
        scheme=parts.scheme,
        host=host,
        port=port,
        base_path=base_path,
        api=api,
        query=parts.query,
        key=clean_key(key),
        headers=_checked(headers or {}),
        proxy=proxy_for(parts.scheme, host, port, environ or {}),
        verify=verify,
    )


def _split(url: str) -> SplitResult:
    shown = shown_url(url)
    if "://" not in url:
        raise ConfigError(
            f"The base URL {shown!r} has no scheme: write http://{shown} or https://{shown}."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(
            f"The base URL {shown!r} cannot be read: expected http://HOST:PORT, port 1 to 65535."
        ) from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"The base URL {shown!r} must begin with http:// or https://.")
    if not parts.hostname or port == 0 or re.search(r"[\s\x00-\x1f\x7f-\U0010ffff]", url):
        raise ConfigError(f"The base URL {shown!r} is not a URL: expected http://HOST:PORT.")
    if parts.username is not None:
        raise ConfigError(
            f"The base URL of {parts.hostname} holds a user name or password: give the key by "
            "its own option or environment variable instead."
        )
    if _SECRET_QUERY.search(f"?{parts.query}"):
        raise ConfigError(
            f"The base URL of {parts.hostname} holds a key in its query: give it by --api-key-env "
            "or --api-key-file, and its header in a channel file (auth_header)."
        )
    if parts.fragment:
        raise ConfigError(f"The base URL {shown!r} has a fragment (#...): leave it out.")
    return parts


def shown_url(url: str) -> str:
    """A URL for people: on one line, never with a user, a password or a query."""
    scheme, mark, rest = url.strip().partition("://")
    whole = rest if mark else scheme
    rest = re.split(r"[?#]", whole, maxsplit=1)[0]
    if "@" in whole[len(rest) :] and "@" not in rest:
        rest = "***"  # a password may hold a question mark
    rest = rest.rsplit("@", 1)[-1]
    text = f"{scheme}://{rest}" if mark else rest
    return "".join(c for c in text[:100] if c.isprintable())


def _base_and_api(path: str) -> tuple[str, str]:
    """What comes before the API's version in a URL's path, and that version."""
    path = re.sub(r"/{2,}", "/", path).rstrip("/")
    routed = False
    for route in _ROUTES:
        if path.endswith(route):
            path, routed = path.removesuffix(route), True
            break
    if version := _VERSION.search(path):
        return path[: version.start()], version.group()
    return path, "" if routed else "/v1"


def clean_key(key: str) -> str:
    """A key without what a file or a copy leaves around it; or ConfigError."""
    key = key.strip().strip("\ufeff\u200b").strip()
    if re.search(r"[^\x21-\x7e]", key):
        raise ConfigError(
            "The API key holds a space, a line end or a character that is not ASCII: check how it "
            "was copied (it is not shown here)."
        )
    return key


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    checked = {}
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name):
            raise ConfigError(f"The header name {name[:40]!r} is not allowed in HTTP.")
        if name.lower() in ("host", "content-length", "transfer-encoding", "connection"):
            raise ConfigError(f"The header {name} is set by the client itself: leave it out.")
        if _UNSENDABLE.search(value.strip()):
            raise ConfigError(f"The value of header {name} holds a character HTTP does not allow.")
        checked[name] = value.strip()
    return checked


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def proxy_for(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> str:
    """The proxy on the way to ``host`` by the environment's rules, or ''; none to this machine."""
    if _is_loopback(host):
        return ""
    settings = {name.lower(): value for name, value in environ.items() if name.lower() in _PROXY}
    proxy = settings.get(f"{scheme}_proxy") or settings.get("all_proxy") or ""
    no_proxy = {"no": settings.get("no_proxy", "")}
    if not proxy or proxy_bypass_environment(f"{host}:{port}", no_proxy):
        return ""
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    parts = urlsplit(proxy)
    if parts.scheme != "http" or not parts.hostname:
        shown = shown_url(proxy)
        raise ConfigError(
            f"{scheme.upper()}_PROXY names {shown!r}: only http:// proxies are supported; set "
            f"NO_PROXY={host} to go without."
        )
    return proxy


_PROXY = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
