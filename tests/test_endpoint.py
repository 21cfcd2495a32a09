"""Base URLs of every form, keys, headers, proxies, redirects, and the heads made of them."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pd_users.endpoint import Endpoint, clean_key, parse_base_url, proxy_for
from pd_users.failures import ExchangeError
from pd_users.head import close_head, render_head
from pd_users.redirect import redirected
from pd_users.timeouts import timeouts_for
from workloads.errors import ConfigError

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize(
    ("url", "origin", "target"),
    [
        ("http://h:8000", "http://h:8000", CHAT),
        ("http://h:8000/", "http://h:8000", CHAT),
        ("http://h:8000/v1", "http://h:8000", CHAT),
        ("http://h:8000/v1/", "http://h:8000", CHAT),
        ("http://h:8000//v1//", "http://h:8000", CHAT),
        ("http://h:8000/v1/chat/completions", "http://h:8000", CHAT),
        ("http://h:8000/v1/completions", "http://h:8000", CHAT),
        ("http://h:8000/v1/models", "http://h:8000", CHAT),
        (" HTTP://LOCALHOST:80/v1 ", "http://localhost", CHAT),
        ("https://h", "https://h", CHAT),
        ("https://h:443/api", "https://h", f"/api{CHAT}"),
        ("https://h:8443/api/v1/", "https://h:8443", f"/api{CHAT}"),
        ("https://h/api/paas/v4", "https://h", "/api/paas/v4/chat/completions"),
        ("https://h/v1beta1/openai", "https://h", f"/v1beta1/openai{CHAT}"),
        ("https://h/d/gpt/chat/completions?v=2024", "https://h", "/d/gpt/chat/completions?v=2024"),
        ("http://[::1]:8000", "http://[::1]:8000", CHAT),
    ],
)
def test_base_urls(url: str, origin: str, target: str) -> None:
    endpoint = parse_base_url(url)
    assert (endpoint.origin, endpoint.target(CHAT)) == (origin, target)


def test_other_paths_lie_beside_the_api() -> None:
    endpoint = parse_base_url("http://h/api/v4")
    assert endpoint.target("/metrics") == "/api/metrics"
    assert endpoint.target("/v1/models") == "/api/v4/models"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000", "write http://127.0.0.1:8000"),
        ("ftp://h", "must begin with http:// or https://"),
        ("http://", "is not a URL"),
        ("http://h:99999", "cannot be read"),
        ("http://h:0", "is not a URL"),
        ("http://h:80a", "cannot be read"),
        ("http://h/a b", "is not a URL"),
        ("http://user:hunter2@h", "holds a user name or password"),
        ("http://h/#x", "fragment"),
        ("", "has no scheme"),
    ],
)
def test_bad_base_urls_get_one_sentence(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_base_url(url)
    assert str(caught.value).endswith(".")
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=30))
def test_no_url_does_more_than_a_config_error(url: str) -> None:
    for prefix in ("", "http://", "https://h"):
        with suppress(ConfigError):
            endpoint = parse_base_url(prefix + url)
            assert b"\n" not in render_head(endpoint, "POST", endpoint.target(CHAT))[:-2].replace(
                b"\r\n", b""
            )


@pytest.mark.parametrize("around", ["", "\n", "\r\n", "  ", "\ufeff", "\t\ufeff\n"])
def test_a_key_loses_what_a_file_leaves_around_it(around: str) -> None:
    assert clean_key(f"{around}sk-good-key-123{around}") == "sk-good-key-123"


@pytest.mark.parametrize("key", ["sk-a b", "sk-a\nb", "sk-schlüssel"])
def test_a_key_no_header_can_hold_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_base_url("http://h", key)
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("bad name", "x", "not allowed"),
        ("", "x", "not allowed"),
        ("X-A", "a\r\nX-B: c", "does not allow"),
        ("Host", "x", "set by the client"),
        ("content-length", "1", "set by the client"),
    ],
)
def test_bad_headers_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_base_url("http://h", headers={name: value})


def test_nothing_secret_shows_in_a_repr() -> None:
    environ = {"HTTPS_PROXY": "http://user:hunter2@proxy:3128"}
    endpoint = parse_base_url("https://h", "sk-1234567", {"api-key": "secret-9"}, environ=environ)
    assert endpoint.secrets == ("sk-1234567", "secret-9")
    assert all(word not in repr(endpoint) for word in ("sk-1234567", "secret-9", "hunter2"))


@pytest.mark.parametrize(
    ("scheme", "host", "environ", "proxy"),
    [
        ("https", "h.org", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https", "h.org", {"https_proxy": "p:1"}, "http://p:1"),
        ("https", "h.org", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http", "h.org", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("https", "h.org", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https", "h.org", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x,.org"}, ""),
        ("https", "h.org", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
        ("https", "h.org", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "org.h"}, "http://p:1"),
        ("http", "127.0.0.1", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http", "localhost", {"HTTP_PROXY": "http://p:1"}, ""),
        ("http", "::1", {"HTTP_PROXY": "http://p:1"}, ""),
        ("https", "h.org", {}, ""),
    ],
)
def test_proxies_by_the_environment(
    scheme: str, host: str, environ: dict[str, str], proxy: str
) -> None:
    assert proxy_for(scheme, host, 443, environ) == proxy


def test_a_proxy_of_another_kind_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="only http:// proxies") as caught:
        proxy_for("https", "h.org", 443, {"HTTPS_PROXY": "socks5://user:hunter2@p:1"})
    assert "hunter2" not in str(caught.value)


HERE = Endpoint("http", "h", 8000, key="sk-1")


@pytest.mark.parametrize(
    ("status", "location", "method", "target"),
    [
        (307, "/new", "POST", "/new"),
        (308, "http://h:8000/new?x=1", "POST", "/new?x=1"),
        (307, "b", "POST", "/v1/b"),
        (301, "/new", "GET", "/new"),
    ],
)
def test_redirects_that_are_followed(status: int, location: str, method: str, target: str) -> None:
    assert redirected(HERE, "/v1/a", status, location, method) == target


@pytest.mark.parametrize(
    ("status", "location", "words"),
    [
        (307, "http://other:8000/new", "another server"),
        (307, "http://h:9000/new", "another server"),
        (307, "https://h:8000/new", "another server"),
        (302, "/new", "turn the POST into a GET"),
        (307, "", "without a Location"),
        (307, "http://[", "no URL"),
    ],
)
def test_redirects_that_are_refused(status: int, location: str, words: str) -> None:
    with pytest.raises(ExchangeError, match=words) as caught:
        redirected(HERE, "/v1/a", status, location, "POST")
    assert caught.value.name == "redirect"


def test_a_head_holds_what_every_request_needs_once() -> None:
    endpoint = Endpoint("https", "h", 443, key="sk-1", headers={"user-agent": "me", "X-A": "b"})
    head = close_head(render_head(endpoint, "POST", CHAT), {"X-Request-Id": "7"}, b"{}").decode()
    assert head.startswith(f"POST {CHAT} HTTP/1.1\r\nHost: h\r\n")
    assert head.endswith("\r\nX-Request-Id: 7\r\nContent-Length: 2\r\n\r\n")
    for line in (
        "Authorization: Bearer sk-1",
        "Accept-Encoding: identity",
        "user-agent: me",
        "X-A: b",
    ):
        assert head.count(f"\r\n{line}\r\n") == 1
    assert head.lower().count("user-agent") == 1


@pytest.mark.parametrize("value", ["a\r\nb", "a\n", "\r"])
def test_a_request_header_cannot_smuggle_another(value: str) -> None:
    with pytest.raises(ValueError, match="line end"):
        close_head(b"", {"X": value}, None)


@given(st.floats(0.001, 600), st.floats(0.0001, 10), st.floats(1, 1e6))
def test_timeouts_leave_room_over_the_slo_and_are_never_hours(
    ttft_s: float, tpot_s: float, tokens: float
) -> None:
    limits = timeouts_for(ttft_s, tpot_s, tokens)
    assert 30 <= limits.first_byte_s <= 300
    assert 10 <= limits.between_bytes_s <= 60
    assert 120 <= limits.total_s <= 1800
