"""Send and measure: the only package that imports locust and gevent."""
