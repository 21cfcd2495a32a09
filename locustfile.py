"""What Locust loads: the users and the hooks. Copy it, subclass PDUser, keep install()."""

from pd_users.hooks import install
from pd_users.users import PDUser

__all__ = ["PDUser"]

install()
