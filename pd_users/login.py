"""Who may use the web UI: one user, whose name and password stand in the environment.

Locust's ``--web-login`` shows a login page and leaves to the locustfile who may come in.
"""

from locust.env import Environment

import hmac
import os
import secrets
from typing import Any

import gevent
from flask import Blueprint, redirect, request, session, url_for
from flask_login import UserMixin, login_user
from werkzeug.wrappers import Response

from workloads.errors import ConfigError

USER, PASSWORD = "PD_WEB_USER", "PD_WEB_PASSWORD"
WRONG_S = 1.0  # a wrong password is answered so late: guessing takes long


class _User(UserMixin):  # type: ignore[misc]  # flask_login has no annotations
    def __init__(self, name: str) -> None:
        self.id = name


def add_login(environment: Environment) -> None:
    """Fill Locust's login page, where --web-login asks for it. Raises ConfigError."""
    options: Any = environment.parsed_options
    if not options.web_login:
        return
    name, password = os.environ.get(USER, ""), os.environ.get(PASSWORD, "")
    if not (name and password):
        raise ConfigError(
            f"--web-login: {USER if not name else PASSWORD} is not set, allowed is any text; "
            "set both in the environment of this process."
        )
    _add(environment.web_ui, options.web_base_path or None, name, password)


def _add(web_ui: Any, base_path: str | None, name: str, password: str) -> None:
    app = web_ui.app
    app.config.update(SECRET_KEY=secrets.token_hex(32), SESSION_COOKIE_SAMESITE="Lax")
    web_ui.login_manager.user_loader(lambda found: _User(name) if found == name else None)
    pages = Blueprint("login", __name__, url_prefix=base_path)

    def sign_in() -> Response:
        given = request.form.get("username", ""), request.form.get("password", "")
        # Both are compared in full, whatever the first one says.
        same = [_same(a, b) for a, b in zip(given, (name, password), strict=True)]
        if all(same):
            login_user(_User(name))
            return redirect(url_for("locust.index"))
        gevent.sleep(WRONG_S)
        session["auth_error"] = "Wrong user or password."
        return redirect(url_for("locust.login"))

    pages.add_url_rule("/sign-in", "sign_in", sign_in, methods=["POST"])
    app.register_blueprint(pages)
    web_ui.auth_args = {"username_password_callback": f"{base_path or ''}/sign-in"}


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())
