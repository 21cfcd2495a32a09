# One image for emulator, master and worker. The base can be any image with Python 3.11+ and its venv.
ARG BASE=python:3.11-slim
FROM ${BASE}
WORKDIR /app
COPY requirements.txt .
RUN python3 -m venv /venv && /venv/bin/pip install --no-cache-dir -r requirements.txt
COPY . .
RUN /venv/bin/python -m compileall -q /app \
    && useradd --no-create-home --uid 10001 load && mkdir /runs && chown load /runs
# By number, so that Kubernetes can see that it is not root.
USER 10001
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 LOCUST_RUN_DIR=/runs
ENTRYPOINT ["locust", "-f", "locustfile.py"]
