"""Where a redirect may lead: to the same origin, with the same method and body, once. Pure."""

from urllib.parse import urljoin, urlsplit

from pd_users.endpoint import Endpoint, shown_url
from pd_users.failures import ExchangeError

KEEPING = (307, 308)  # these keep the method and the body
MOVING = (301, 302, 303)  # with these a POST would become a GET


def redirected(endpoint: Endpoint, target: str, status: int, location: str, method: str) -> str:
    """The request target that ``location`` means; ExchangeError where it is not followed."""
    if not location:
        raise ExchangeError("redirect", f"redirect {status} without a Location")
    try:
        there = urlsplit(urljoin(f"{endpoint.origin}{target}", location))
        origin = (
            there.scheme,
            there.hostname,
            there.port or (443 if there.scheme == "https" else 80),
        )
    except ValueError:
        raise ExchangeError(
            "redirect", f"redirect {status} to {shown_url(location)}, which is no URL"
        ) from None
    if origin != (endpoint.scheme, endpoint.host, endpoint.port):
        raise ExchangeError(
            "redirect",
            f"redirect {status} to {shown_url(location)}: another server than {endpoint.origin}, so neither "
            "key nor body go there; make it the base URL if it is meant",
        )
    if status not in KEEPING and method != "GET":
        raise ExchangeError(
            "redirect",
            f"redirect {status} to {shown_url(location)}: it would turn the {method} into a GET, so it is not "
            "followed; correct the base URL",
        )
    return there.path + (f"?{there.query}" if there.query else "")
