"""What Locust loads: the users and the hooks. Copy it, change the class, keep ``install()``."""

from pd_users.hooks import install
from pd_users.users import PDUser


class PDTraffic(PDUser):
    """The traffic that --workload or --trace names."""


install()
