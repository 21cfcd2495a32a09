"""Each failure by name, and what to do about it."""

from collections.abc import Mapping

CURES = {
    "connect": "is the target's address right, and does it listen? Behind a channel: is every P and D registered?",
    "tls": "check the certificate and the host name, or use http:// where the port has no TLS",
    "proxy": "check HTTPS_PROXY, or set NO_PROXY for the target",
    "auth": "the key is missing, wrong or expired: check --api-key-env",
    "not-found": "check the base URL and the model id",
    "rate-limited": "the gateway's quota is reached: raise it; this says nothing of the cluster",
    "unavailable": "nothing behind the gateway took the request: are P and D up and registered?",
    "http-4xx": "the server refuses the request: see the evidence; python -m pd_users.doctor finds the field",
    "http-5xx": "the server failed: see its log",
    "redirect": "use the URL that the redirect names",
    "protocol": "something that is not HTTP answers there",
    "not-a-stream": "the answer is no event stream: a login page, or a model that does not stream",
    "engine-error": "the engine gave up in mid-answer: see its log, a D may be lost or out of KV memory",
    "truncated": "a proxy or a timeout on the way cuts streams off",
    "reset": "the connection broke: see the server's and the proxy's logs",
    "stalled": "no token for too long: a lost KV transfer, or a D that swaps",
    "timeout": "the answer took longer than the total limit",
    "empty": "the model answered with no token: check the model id and max_tokens",
}


def cures_for(failed: Mapping[str, int]) -> list[str]:
    """One line for each failure that occurred, the most frequent first."""
    names = sorted(failed, key=lambda name: -failed[name])
    return [f"{failed[name]} x {name}: {CURES.get(name, 'see the evidence')}" for name in names]
