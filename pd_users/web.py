"""The web UI's part: options checked before the start, and the /capacity page.

Everything is behind Locust's own login where one is set. The page shows text that came from the
target only as text (``textContent``), never as HTML. Another site's page can neither start or stop
a run nor read one: Locust answers any origin (CORS), so requests from elsewhere are refused here.
"""

from locust.env import Environment
from locust.util.timespan import parse_timespan

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flask import Blueprint, Response, jsonify, request
from werkzeug.datastructures import ImmutableMultiDict

from pd_users.endpoint import shown_url
from pd_users.lifecycle import AVOIDABLE, Lifecycle
from pd_users.live import live_view
from pd_users.options import FLAGS, LISTS, OPTIONS, dest

CHANGING_GETS = ("/stop", "/stats/reset")  # Locust's own: GETs before 2.47
PAGE = Path(__file__).with_name("capacity.html")


def is_foreign(method: str, path: str, host: str, headers: Mapping[str, str]) -> bool:
    """Whether a browser sends this for a page of another site; a link to a page is allowed.

    Browsers say so themselves (Sec-Fetch-Site), older ones by Origin; other programs send neither.
    """
    site, origin = headers.get("Sec-Fetch-Site"), headers.get("Origin")
    if site is not None:
        reads = method in ("GET", "HEAD") and not path.rstrip("/").endswith(CHANGING_GETS)
        is_link = reads and headers.get("Sec-Fetch-Mode") == "navigate"
        return site not in ("same-origin", "none") and not is_link
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def _refuse_foreign() -> Response | None:
    if not is_foreign(request.method, request.path, request.host, dict(request.headers)):
        return None
    return Response("A page of another site may not use this one.", 403, mimetype="text/plain")


def add_pages(environment: Environment, lifecycle: Lifecycle) -> None:
    """Add /capacity and its data, and let a wrong option in the form be answered by a sentence."""
    web_ui: Any = environment.web_ui
    options: Any = environment.parsed_options
    pages = Blueprint("capacity", __name__, url_prefix=options.web_base_path or None)
    views = {
        "/capacity": lambda: Response(PAGE.read_text(encoding="utf-8"), mimetype="text/html"),
        "/capacity/plotly.js": _plotly,
        "/capacity/data": lambda: jsonify(_data(lifecycle)),
        "/capacity/report": lambda: _report(lifecycle),
        "/docs/troubleshooting.md": _troubleshooting,  # where the report's links lead
    }
    for path, view in views.items():
        endpoint = path.strip("/").replace("/", "_").replace(".", "_")
        pages.add_url_rule(path, endpoint, _behind_login(web_ui, view))
    web_ui.app.register_blueprint(pages)
    web_ui.app.before_request(_refuse_foreign)  # Locust's own routes too
    start = web_ui.app.view_functions["locust.swarm"]
    web_ui.app.view_functions["locust.swarm"] = _behind_login(
        web_ui, lambda: _swarm(environment, lifecycle, start)
    )


def _behind_login(web_ui: Any, view: Callable[[], Response]) -> Callable[[], Response]:
    """Locust's own login in front of a view, where one is set."""
    return web_ui.auth_required_if_enabled(view)  # type: ignore[no-any-return]


def _plotly() -> Response:
    from plotly.offline import get_plotlyjs  # noqa: PLC0415  (half a second that not every run needs)

    script = Response(get_plotlyjs(), mimetype="text/javascript")
    script.cache_control.max_age = 86_400
    return script


def _troubleshooting() -> Response:
    page = PAGE.parent.parent / "docs" / "troubleshooting.md"
    if not page.exists():  # installed without the docs
        return Response("docs/troubleshooting.md is in the source tree.", 404)
    return Response(page.read_text(encoding="utf-8"), mimetype="text/plain")


def _report(lifecycle: Lifecycle) -> Response:
    conclusion = lifecycle.conclusion
    if conclusion is None or conclusion.report_path is None:
        return Response("There is no report yet: it is written when a run ends.", 404)
    return Response(conclusion.report_path.read_text(encoding="utf-8"), mimetype="text/html")


def _swarm(
    environment: Environment, lifecycle: Lifecycle, start: Callable[[], Response]
) -> Response:
    """Locust's own start, after our options were read and the target was looked at."""
    if (busy := lifecycle.run) is not None and (busy.is_on or busy.is_finishing):
        return _refuse("A run is on: stop it first. In open loop the rate is fixed at the start.")
    options: Any = environment.parsed_options
    form = request.form.to_dict(flat=False)
    run_time = (form.pop("run_time", [""]) or [""])[0]
    try:
        run_time_s = parse_timespan(run_time) if run_time else None
    except ValueError:
        return _refuse(f"Run time: found {run_time!r}, allowed are 20, 20s, 3m, 2h, 1h20m.")
    _take_over(environment, form)
    users = (form.get("user_count") or [""])[0]
    given = int(users) if users.isdigit() and int(users) != options.num_users else None
    try:
        lifecycle.prepare(run_time_s, given)
    except AVOIDABLE as error:
        return _refuse(str(error))
    form["user_count"] = [str(options.num_users)]
    form.setdefault("spawn_rate", [str(options.spawn_rate)])
    # Locust must not see the run time: its timer would race with ours.
    request.form = ImmutableMultiDict([(k, v) for k, vs in form.items() for v in vs])
    return start()


def _refuse(why: str) -> Response:
    return jsonify({"success": False, "message": why})


def _take_over(environment: Environment, form: dict[str, list[str]]) -> None:
    """Our options out of the form into the parsed ones, each in its own type."""
    options: Any = environment.parsed_options
    if form.get("host", [""])[0]:
        environment.host = options.host = form["host"][0]
    for name in (*OPTIONS, *LISTS, *FLAGS):
        given = form.pop(dest(name), None)  # taken: Locust's reading of lists would fail on ''
        if given is None:
            continue
        value: Any = given[0]
        if name in LISTS:
            value = [u for v in given for u in v.split(",") if u.strip()]
        elif name in FLAGS:
            value = given[0] == "true"
        setattr(options, dest(name), value)


def _data(lifecycle: Lifecycle) -> dict[str, Any]:
    run, conclusion = lifecycle.run, lifecycle.conclusion
    if run is None:
        return {"state": "no run yet"}
    state = "draining" if run.is_finishing else "running" if run.is_on else "done"
    spec = run.spec
    data = {
        "state": state,
        "run_id": spec.run_id,
        "workload": spec.workload_name,
        "host": shown_url(spec.host),
        "rate_rps": spec.rate_rps,
        "slo_ms": {"ttft": spec.ttft_slo_ms, "tpot": spec.tpot_slo_ms},
        "in_flight": run.in_flight(),
        **asdict(live_view(run)),
    }
    if conclusion is not None and state == "done":
        data["conclusion"] = conclusion.for_page()
    return data
