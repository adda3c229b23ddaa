"""The window: a page at / where one watches methods decode, side by side and round by round."""

from .routes import OPEN as OPEN
from .routes import routes as routes
