"""Send and measure: the only package that imports locust and gevent."""

VERSION = "0.1.0"
